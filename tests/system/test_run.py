"""`make run` as a person meets it: what it prints, keeps, refuses and leaves behind."""

import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import requests

from gateway_api.cli import certificates, run
from gateway_api.cli.run import CannotRun
from tests.support.stack import (
    Api,
    core_of,
    descendants,
    free_port,
    read_environment,
    running_stack,
    stop,
    wait_for,
)

REPOSITORY = Path(__file__).parents[2]


@contextmanager
def make_run(state: Path, **variables: object) -> Iterator["subprocess.Popen[bytes]"]:
    """`make run` in a process group of its own, as a terminal would have it."""
    environment = {
        **os.environ,
        "STATE": str(state),
        "SESSIONS": "20",
        "ARRIVALS": "0",
        "PORT": str(free_port()),
    }
    environment |= {key: str(value) for key, value in variables.items()}
    with (state.parent / f"{state.name}.log").open("wb") as log:
        process = subprocess.Popen(
            ["make", "-C", str(REPOSITORY), "--no-print-directory", "run"],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_for("make run to answer", lambda: process.poll() is not None or (state / "environment").exists())
        yield process
    finally:
        interrupt(process)


def interrupt(process: "subprocess.Popen[bytes]") -> None:
    """Ctrl-C: the whole group gets the signal."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def refusal(**environment: str) -> str:
    """What the quick start says when it can't run; it must be one sentence."""
    ended = subprocess.run(
        [sys.executable, "-m", "gateway_api.cli.run"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    return ended.stderr


def test_the_printed_lines_work_when_pasted(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with make_run(state):
        log = tmp_path / "state.log"
        wait_for("the greeting", lambda: "-X DELETE" in log.read_text())
        printed = log.read_text().partition("In another shell:")[2]
        lines = "".join(line + "\n" for line in printed.splitlines() if line.startswith("  "))
        ended = subprocess.run(
            ["bash", "-eu", "-o", "pipefail"],
            input=lines,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert ended.stdout.count('"status":"ok"') == 4
        assert "Session 1 disconnected" in ended.stdout


class Terminal:
    """The quick start on a terminal. `shown` is all that stands there."""

    def __init__(self, state: Path, **variables: str) -> None:
        self.shown = ""
        self.state = state
        self._screen, keyboard = pty.openpty()
        os.set_blocking(self._screen, False)
        environment = {
            "STATE": str(state),
            "PORT": str(free_port()),
            "SESSIONS": "3",
            "ARRIVALS": "0",
            **variables,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gateway_api.cli.run"],
            env={**os.environ, **environment},
            stdin=keyboard,
            stdout=keyboard,
            stderr=keyboard,
            start_new_session=True,
        )
        os.close(keyboard)

    def shows(self, text: str) -> bool:
        # EIO: nobody writes there any more.
        with suppress(BlockingIOError, OSError):
            while read := os.read(self._screen, 65_536):
                self.shown += read.decode().replace("\r\n", "\n")
        return text in self.shown

    def close(self) -> None:
        stop(self.process)
        os.close(self._screen)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """With the greeting on it."""
    opened = Terminal(tmp_path_factory.mktemp("terminal") / "state")
    try:
        wait_for("the greeting", lambda: opened.shows('/subscribers/1" -X DELETE\n'))
        yield opened
    finally:
        opened.close()


def said_of(terminal: Terminal, name: str) -> str:
    """What the greeting gives by a name."""
    (found,) = re.findall(rf"(?m)^ +{name}: +(\S+)", terminal.shown)
    return str(found)


def test_a_terminal_is_greeted_with_an_address_that_shows_the_page(terminal: Terminal) -> None:
    shown = requests.get(said_of(terminal, "Page"), verify=terminal.state / "certificate.pem", timeout=60)
    assert shown.status_code == 200
    assert shown.headers["Content-Type"].startswith("text/html")


def test_a_terminal_is_greeted_with_a_user_and_password_that_log_in(terminal: Terminal) -> None:
    api = Api(read_environment(terminal.state / "environment"))
    assert api.log_in(said_of(terminal, "User"), said_of(terminal, "Password")).status_code == 200
    assert terminal.shown.count(said_of(terminal, "Password")) == 1


def test_on_a_terminal_requests_are_logged_in_the_file_that_the_greeting_names(terminal: Terminal) -> None:
    greeting = terminal.shown
    log = Path(said_of(terminal, "Log"))
    api = Api(read_environment(terminal.state / "environment"))
    assert api.send("GET", "/subscribers/77").status_code == 404
    wait_for("the request in the log", lambda: "path=/api/v1/subscribers/77" in log.read_text(), 10)
    terminal.shows("")
    assert terminal.shown == greeting
    assert log.stat().st_mode & 0o77 == 0


def test_on_a_terminal_the_log_has_no_password(terminal: Terminal) -> None:
    assert said_of(terminal, "Password") not in Path(said_of(terminal, "Log")).read_text()


def test_a_terminal_shows_that_a_part_is_started_again(terminal: Terminal) -> None:
    os.kill(core_of(terminal.process), signal.SIGKILL)
    wait_for("the sentence", lambda: terminal.shows("the core daemon ended with -9; starting it again\n"), 10)


def test_a_start_that_fails_on_a_terminal_names_the_log_with_the_reason(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "passwords.json").write_text('{"admin": "watchword", "operator": "watchword"}')
    (state / "factory.json").write_text('{"api": {}}')
    opened = Terminal(state)
    try:
        assert opened.process.wait(60) == 1
        assert opened.shows(f"the core daemon did not start; its output is in {state / 'log'}\n")
    finally:
        opened.close()
    assert "required" in (state / "log").read_text()


def test_a_log_gets_the_file_that_has_the_password_and_not_the_password(tmp_path: Path) -> None:
    with running_stack(tmp_path, sessions=3) as (api, _):
        log = tmp_path / "log"
        wait_for("the greeting", lambda: "-X DELETE" in log.read_text())
        assert str(tmp_path / "environment") in log.read_text()
        assert f"{api.url}/\n" in log.read_text()
        assert api.environment["ADMIN_PASSWORD"] not in log.read_text()


def test_the_environment_file_has_shell_assignments_of_what_others_need(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with make_run(state):
        assert set(read_environment(state / "environment")) == {
            *("GATEWAY_URL", "GATEWAY_CA", "CORE_SOCKET"),
            *("ADMIN_USER", "ADMIN_PASSWORD", "OPERATOR_USER", "OPERATOR_PASSWORD"),
        }
        assert (state / "environment").stat().st_mode & 0o77 == 0


def test_ctrl_c_stops_everything_soon(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with make_run(state) as process:
        # The quick start, core, arbiter, two workers. The first worker replies before there is another one.
        wait_for("all processes", lambda: len(descendants(process.pid)) >= 5)
        started = descendants(process.pid)
        began = time.monotonic()
        interrupt(process)
        # It insists after 4.5 s, and a busy machine takes its time to end what that kills.
        assert time.monotonic() - began < 20
        assert alive(started) == []
        assert not (state / "environment").exists()


def test_started_again_it_keeps_what_it_had(tmp_path: Path) -> None:
    kept = {}
    for number in ("first", "second"):
        with running_stack(tmp_path, sessions=3) as (api, _):
            names = ("certificate.pem", "key.pem", "factory.json", "passwords.json", "secret")
            kept[number] = [(tmp_path / name).read_bytes() for name in names]
            assert api.get("/subscribers/summary")["total"] == 3
    assert kept["first"] == kept["second"]


def test_two_runs_in_a_folder_give_nobody_a_warning(tmp_path: Path) -> None:
    for known in (3, 6):
        with running_stack(tmp_path, sessions=3) as (api, _):
            assert api.get("/subscribers")["count"] == 3
            # Those of the first run have ended with it.
            wait_for(
                "the history", lambda api=api, known=known: api.get("/subscribers/history")["count"] == known
            )
            with api.send("GET", "/events/subscribers", stream=True) as stream:
                assert stream.status_code == 200
    log = (tmp_path / "log").read_text()
    assert "3 sessions ended" in log
    assert not re.search("warn|error|traceback|lost a connection", log, re.IGNORECASE)


def test_it_starts_where_no_file_has_the_name_localhost(tmp_path: Path) -> None:
    without_hosts = 'mount --bind /dev/null /etc/hosts && exec "$@"'
    wrap = ("unshare", "--mount", "bash", "-c", without_hosts, "bash")
    with running_stack(tmp_path, sessions=3, wrap=wrap) as (api, _):
        assert api.get("/subscribers")["count"] == 3


class GoesOn(run.Stop):
    """Gets no signal, and blocks none."""

    def __init__(self) -> None:
        pass

    def wait(self, seconds: float) -> bool:
        return False


def test_an_api_that_does_not_respond_in_time_is_told_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = tmp_path / "certificate.pem"
    certificates.ensure(certificate, tmp_path / "key.pem", "localhost")
    lacks = partial(run._api_lacks, free_port(), certificate)
    monkeypatch.setattr(run, "_START_TIMEOUT", 0.0)
    with pytest.raises(CannotRun) as caught:
        run._wait(GoesOn(), [], lacks, "the API did not respond", "above")
    reason = "[Errno 111] Connection refused"
    assert str(caught.value) == f"the API did not respond within 0 s: {reason}; its output is above"


def test_a_core_that_was_killed_is_started_again(tmp_path: Path) -> None:
    with running_stack(tmp_path, sessions=3) as (api, process):
        os.kill(core_of(process), signal.SIGKILL)
        wait_for("an answer without the core", lambda: api.send("GET", "/health", None).status_code == 500)
        wait_for("the core to be back", lambda: api.send("GET", "/health", None).status_code == 200, 5)


def test_a_killed_quick_start_takes_its_children_along(tmp_path: Path) -> None:
    with running_stack(tmp_path, sessions=3) as (_, process):
        started = descendants(process.pid)
        assert len(started) >= 4
        process.kill()
        process.wait()
        wait_for("the children to end", lambda: not alive(started), 10)


def test_a_port_in_use_gets_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refusal(STATE=str(tmp_path), PORT=str(port))
    assert f"cannot listen on port {port}" in said
    assert "PORT" in said


def test_a_second_run_in_the_same_folder_gets_one_sentence_and_harms_the_first_in_nothing(
    tmp_path: Path,
) -> None:
    with running_stack(tmp_path, sessions=3) as (api, _):
        published = (tmp_path / "environment").read_text()
        said = refusal(STATE=str(tmp_path), PORT=str(free_port()))
        assert f"it runs in {tmp_path} already" in said
        assert (tmp_path / "environment").read_text() == published
        assert api.get("/subscribers")["count"] == 3


def test_a_missing_openssl_gets_one_sentence(tmp_path: Path) -> None:
    said = refusal(STATE=str(tmp_path), PORT=str(free_port()), PATH=str(tmp_path))
    assert "openssl is not installed" in said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "http"),
        ("PORT", "0"),
        ("SESSIONS", "-1"),
        ("SESSIONS", "200001"),
        ("ARRIVALS", "nan"),
        ("WORKERS", "0"),
    ],
)
def test_a_wish_that_cannot_be_is_named(tmp_path: Path, name: str, value: str) -> None:
    said = refusal(STATE=str(tmp_path), **{name: value})
    assert f"{name} must be" in said
    assert repr(value) in said


def test_a_missing_python_gets_one_sentence(tmp_path: Path) -> None:
    ended = subprocess.run(
        ["make", "-C", str(REPOSITORY), "run", "PYTHON=python9.9", f"VENV={tmp_path / 'venv'}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode != 0
    assert "Python 3.11 or newer is needed" in ended.stderr


def test_a_fresh_clone_runs_with_nothing_but_python_make_openssl_and_git(tmp_path: Path) -> None:
    clone, tools = tmp_path / "clone", tmp_path / "bin"
    tools.mkdir()
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(clone)], check=True)
    # Debian's own Python if there is one, and no compiler in sight.
    python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    (tools / "python3").symlink_to(python)
    needed = (
        *("bash", "sh", "make", "openssl", "git", "awk", "cat", "rm", "mkdir", "touch", "cp", "mv", "ln"),
        *("sed", "cut", "env", "uname"),
    )
    for tool in needed:
        found = shutil.which(tool)
        assert found, tool
        (tools / tool).symlink_to(found)
    port = free_port()
    environment = {
        **{key: value for key, value in os.environ.items() if not re.match("VIRTUAL_ENV|PYTHON|PYENV", key)},
        "PATH": str(tools),
        "PORT": str(port),
        "STATE": str(tmp_path / "state"),
    }
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            ["make", "run"],
            cwd=clone,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        published = tmp_path / "state" / "environment"

        def ready() -> bool:
            assert process.poll() is None, (tmp_path / "log").read_text()
            return published.exists()

        wait_for("make run in a fresh clone", ready, 300)
        assert "No C compiler" in (tmp_path / "log").read_text()
        packages = {path.name for path in (clone / ".venv" / "lib").glob("python3*/site-packages/*")}
        assert {"flask", "varlink"} <= packages
        assert packages.isdisjoint({"pytest", "mypy", "playwright", "hypothesis", "schemathesis"})
    finally:
        interrupt(process)
