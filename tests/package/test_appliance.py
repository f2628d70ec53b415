"""What is made at a first start: whole or not at all, and not twice."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gateway_api.cli import setup
from gateway_contract.passwords import verify

#: Each makes all of the files of a first start in an empty folder.
_MAKERS = {
    "appliance": "from gateway_api.cli.setup import prepare; prepare({0!r}, {0!r} / 'none', None)",
    "make run": "from gateway_api.cli.run import RunFolder; RunFolder({0!r}).prepare()",
}
APPLIANCE = ("secret", "first-password", "first-users.json", "tls/key.pem", "tls/certificate.pem")
QUICKSTART = ("secret", "passwords.json", "factory.json", "key.pem", "certificate.pem")


def prepare(folder: Path) -> None:
    setup.prepare(folder, folder / "none", None)


def held(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def make(folder: Path, maker: str) -> None:
    """In a process of its own: the quick start holds its folder until it ends."""
    subprocess.run([sys.executable, "-c", code(folder, maker)], check=True, capture_output=True, timeout=60)


def code(folder: Path, maker: str) -> str:
    return f"from pathlib import PosixPath; {_MAKERS[maker].format(folder)}"


def traced(folder: Path, maker: str, *options: str) -> str:
    """strace's lines of a first start, with the path of each descriptor."""
    trace = folder.with_suffix(".trace")
    subprocess.run(
        ["strace", "-f", "-y", "-o", str(trace), *options, sys.executable, "-c", code(folder, maker)],
        capture_output=True,
        timeout=60,
        check=False,
    )
    return trace.read_text()


@pytest.mark.parametrize(("maker", "names"), [("appliance", APPLIANCE), ("make run", QUICKSTART)])
def test_a_file_of_a_first_start_is_synced_around_its_rename_and_made_by_the_next_start_after_a_kill_there(
    tmp_path: Path, maker: str, names: tuple[str, ...]
) -> None:
    folder = tmp_path / "made"
    lines = traced(folder, maker, "-e", "trace=fsync,rename,renameat,renameat2").splitlines()
    for call, name in enumerate(names, 1):
        path = folder / name
        draft = path.with_name(f".{path.name}.new")
        (renamed,) = (at for at, line in enumerate(lines) if f'"{draft}", "{path}"' in line)
        assert re.search(rf"fsync\(\d+<{re.escape(str(draft))}>\) += 0", lines[renamed - 1])
        assert re.search(rf"fsync\(\d+<{re.escape(str(path.parent))}>\) += 0", lines[renamed + 1])
        killed = tmp_path / str(call)
        trace = traced(killed, maker, "-e", f"inject=rename:signal=SIGKILL:when={call}")
        assert "killed by SIGKILL" in trace
        make(killed, maker)
        assert all((killed / each).stat().st_size for each in names)


@pytest.mark.parametrize("left", [b"", b" \n"])
def test_an_empty_secret_is_made_anew(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "secret").write_bytes(left)
    prepare(tmp_path)
    assert re.fullmatch(rb"[0-9a-f]{64}\n", (tmp_path / "secret").read_bytes())


@pytest.mark.parametrize("left", [b"", b'[{"username": "adm'])
def test_first_users_that_were_cut_off_are_made_anew_with_their_password(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "first-users.json").write_bytes(left)
    (tmp_path / "first-password").write_bytes(b"lost\n")
    prepare(tmp_path)
    (user,) = json.loads((tmp_path / "first-users.json").read_bytes())
    assert verify((tmp_path / "first-password").read_text().strip(), user["password_hash"])


def test_files_that_are_whole_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"0123abc\n")
    prepare(tmp_path)
    before = held(tmp_path)
    assert before["secret"] == b"0123abc\n"
    prepare(tmp_path)
    assert held(tmp_path) == before


@pytest.mark.parametrize("has_configuration", [True, False])
def test_first_users_are_made_unless_the_core_has_a_configuration(
    tmp_path: Path, has_configuration: bool
) -> None:
    configuration = tmp_path / "configuration"
    # The core makes this folder before it reads its first users.
    (configuration / "revisions").mkdir(parents=True)
    if has_configuration:
        (configuration / "state.json").write_text("{}")
    setup.prepare(tmp_path, configuration, None)
    made = [(tmp_path / name).exists() for name in ("first-users.json", "first-password")]
    assert made == [not has_configuration] * 2


def test_only_root_and_the_core_s_group_read_the_first_users(tmp_path: Path) -> None:
    setup.prepare(tmp_path, tmp_path / "none", "daemon")
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in APPLIANCE}
    assert modes == {
        **dict.fromkeys(("secret", "first-password", "tls/key.pem"), 0o600),
        "first-users.json": 0o640,
        "tls/certificate.pem": 0o644,
    }
    assert (tmp_path / "first-users.json").group() == "daemon"


@pytest.mark.parametrize("name", QUICKSTART)
def test_a_file_of_make_run_that_was_cut_off_is_made_anew(tmp_path: Path, name: str) -> None:
    make(tmp_path, "make run")
    os.truncate(tmp_path / name, 0)
    make(tmp_path, "make run")
    assert (tmp_path / name).stat().st_size
    assert_passwords_fit(tmp_path)


def assert_passwords_fit(folder: Path) -> None:
    users = json.loads((folder / "factory.json").read_bytes())["api"]["users"]
    hashes = {user["username"]: user["password_hash"] for user in users}
    passwords = json.loads((folder / "passwords.json").read_bytes())
    assert passwords.keys() == hashes.keys()
    assert all(verify(password, hashes[user]) for user, password in passwords.items())


def test_the_factory_of_make_run_fits_though_a_run_is_killed_after_the_passwords(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    make(folder, "make run")
    os.truncate(folder / "passwords.json", 0)
    # The only other rename would be that of the factory.
    assert "killed by SIGKILL" in traced(folder, "make run", "-e", "inject=rename:signal=SIGKILL:when=2")
    make(folder, "make run")
    assert_passwords_fit(folder)


def test_make_run_refuses_to_start_where_the_passwords_of_a_configuration_are_lost(tmp_path: Path) -> None:
    make(tmp_path, "make run")
    configuration = tmp_path / "configuration"
    configuration.mkdir()
    (configuration / "state.json").write_text("{}")
    os.truncate(tmp_path / "passwords.json", 0)
    before = held(tmp_path)
    with pytest.raises(subprocess.CalledProcessError) as refused:
        make(tmp_path, "make run")
    assert f"remove the folder {configuration} " in refused.value.stderr.decode()
    assert held(tmp_path) == before
