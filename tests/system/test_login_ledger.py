"""The ledger of logins under a running API: a full disk, a power cut, a reboot, a broken file."""

import errno
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import requests

from tests.support.stack import Api, descendants, running_api, wait_for

STILL_VALID = "Cannot store the logout: the token is still valid"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The state folder of an API of its own."""
    made = tmp_path / "state"
    made.mkdir()
    return made


@contextmanager
def running(
    api: Api, state: Path, folder: Path, runtime: Path | None = None, workers: int = 1
) -> Iterator[Api]:
    """An API in front of the shared core, whose logins are in `folder`."""
    settings = {"GATEWAY_API_STATE": str(folder)}
    if runtime is not None:
        settings["GATEWAY_API_RUNTIME"] = str(runtime)
    with running_api(state / "core.sock", state, workers=workers, **settings) as url:
        yield Api({**api.environment, "GATEWAY_URL": url})


def log_out(api: Api, token: str) -> requests.Response:
    return api.send("POST", "/auth/logout", token=token, headers={"X-Request-ID": "the-logout"})


def holds(api: Api, token: str) -> bool:
    status = api.send("GET", "/qos", token=token).status_code
    assert status in (200, 401)
    return status == 200


# A full disk


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Path]:
    """The state folder on a file system of its own, of 1 MiB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    subprocess.run(mount, check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Nothing more goes onto it until the end of the block."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError) as refused:
        while True:
            file.write(bytes(4096))
    assert refused.value.errno == errno.ENOSPC
    yield
    filler.unlink()


def test_on_a_full_disk_logins_go_on_and_are_counted_and_a_logout_says_that_it_failed(
    api: Api, state: Path, small_disk: Path
) -> None:
    log = state / "api.log"
    password = api.environment["OPERATOR_PASSWORD"]
    with running(api, state, small_disk) as own:
        token, before = own.new_token("admin"), log.stat().st_size
        with filled(small_disk):
            assert [own.log_in("operator", "wrong").status_code for _ in range(6)] == [401] * 5 + [429]
            wait_for("the end of the pause", lambda: own.log_in("operator", password).status_code == 200, 10)
            # That has cleared what was counted.
            assert [own.log_in("operator", "wrong").status_code for _ in range(5)] == [401] * 5
            answer = log_out(own, token)
            assert (answer.status_code, answer.json()) == (500, {"status": "error", "message": STILL_VALID})
            assert holds(own, token)
        said = log.read_bytes()[before:].decode()
        assert "Traceback" not in said
        (line,) = (line for line in said.splitlines() if STILL_VALID in line)
        assert "level=error" in line
        assert "request_id=the-logout" in line
        assert log_out(own, token).status_code == 200
        assert not holds(own, token)


def test_the_api_starts_on_a_full_disk_and_knows_what_was_revoked(
    api: Api, state: Path, small_disk: Path
) -> None:
    with running(api, state, small_disk) as own:
        token, other = own.new_token("operator"), own.new_token("operator")
        assert log_out(own, token).status_code == 200
    with filled(small_disk), running(api, state, small_disk) as own:
        assert [holds(own, each) for each in (token, other)] == [False, True]
        assert holds(own, own.new_token("operator"))
    assert "the disk of the login ledger is full" in (state / "api.log").read_text()


def worker_of(folder: Path) -> int:
    """The process that has the ledger open."""
    mine = descendants(int(Path("/proc/self").resolve().name))
    for pid in mine:
        links = Path(f"/proc/{pid}/fd").iterdir()
        if any(str(link.resolve()).startswith(str(folder / "logins")) for link in links):
            return pid
    pytest.fail("nobody has the ledger open")


# A ledger that is lost while the API runs


def restore(path: Path) -> None:
    """Puts the ledger in its place as it was before the last logout."""
    path.with_name("backup").replace(path)


def ledger_health(api: Api) -> tuple[str, str]:
    found = api.get("/system/health/detail")["dependencies"]
    (told,) = (each for each in found if each["name"] == "ledger")
    return told["state"], told["message"]


@pytest.mark.parametrize("fault", [Path.unlink, restore])
def test_a_ledger_that_is_lost_ends_all_tokens_and_all_workers_serve_on(
    api: Api, state: Path, folder: Path, fault: Callable[[Path], None]
) -> None:
    path = folder / "logins.sqlite"
    with running(api, state, folder, workers=2) as own:
        before = (state / "api.log").stat().st_size
        former, revoked = own.new_token("admin"), own.new_token("operator")
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(folder / "backup")) as backup:
            source.backup(backup)
        assert log_out(own, revoked).status_code == 200
        fault(path)
        # The worker that follows it has read nothing of the former ledger.
        killed = worker_of(folder)
        os.kill(killed, signal.SIGKILL)
        wait_for("another worker", lambda: not Path(f"/proc/{killed}").exists())
        wait_for("the end of the former tokens", lambda: not holds(own, former))
        again = own.new_token("operator")
        assert all(holds(own, again) for _ in range(20))
        assert not any(holds(own, old) for _ in range(20) for old in (former, revoked))
        state_of_ledger, message = ledger_health(own)
        assert (state_of_ledger, "a new one began at" in message) == ("degraded", True)
        assert log_out(own, again).status_code == 200
        assert not any(holds(own, again) for _ in range(20))
    said = (state / "api.log").read_bytes()[before:].decode()
    assert f"the login ledger {path} is new, tokens of the old ledger are rejected" in said
    assert "Traceback" not in said


def test_a_logout_works_when_a_read_only_state_folder_becomes_writable(
    api: Api, state: Path, small_disk: Path
) -> None:
    left = f"open_ledger(Path('{small_disk}/logins.sqlite')); os._exit(0)"
    code = f"import os; from pathlib import Path; from gateway_api.auth.ledger import open_ledger; {left}"
    subprocess.run([sys.executable, "-c", code], check=True)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with running(api, state, small_disk) as own:
        token = own.new_token("admin")
        assert log_out(own, token).json()["message"] == STILL_VALID
        assert ledger_health(own) == ("degraded", "The login ledger is read-only, so nobody can log out.")
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
        assert log_out(own, token).status_code == 200
        assert not holds(own, token)
        assert ledger_health(own)[0] == "ok"
