"""`make run` as a person meets it: what it prints, keeps, refuses and leaves behind."""

import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import requests

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
QUICK_START = [sys.executable, "-m", "gateway_api.cli.run"]


@contextmanager
def make_run(state: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """`make run` in a process group of its own, as a terminal would have it, once it responds."""
    variables = {"STATE": str(state), "PORT": str(free_port()), "SESSIONS": "20", "ARRIVALS": "0"}
    log = state.parent / f"{state.name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["make", "-C", str(REPOSITORY), "--no-print-directory", "run"],
            env={**os.environ, **variables},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def ready() -> bool:
        assert process.poll() is None, log.read_text()
        return (state / "environment").exists()

    try:
        wait_for("make run to answer", ready)
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


def refusal(status: int = 1, **environment: str) -> str:
    """What the quick start says when it can't run, with an exit status."""
    ended = subprocess.run(
        QUICK_START,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == status
    return ended.stderr


def test_the_printed_lines_work_when_pasted_and_ctrl_c_stops_everything(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with make_run(state) as process:
        log = tmp_path / "state.log"
        wait_for("the greeting", lambda: "-X DELETE" in log.read_text())
        printed = log.read_text().partition("In another shell:")[2]
        lines = "".join(line + "\n" for line in printed.splitlines() if line.startswith("  "))
        command = ["bash", "-eu", "-o", "pipefail"]
        ended = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=60, check=True)
        assert ended.stdout.count('"status":"ok"') == 4
        assert "Session 1 disconnected" in ended.stdout
        assert set(read_environment(state / "environment")) == {
            *("GATEWAY_URL", "GATEWAY_CA", "CORE_SOCKET"),
            *("ADMIN_USER", "ADMIN_PASSWORD", "OPERATOR_USER", "OPERATOR_PASSWORD"),
        }
        assert (state / "environment").stat().st_mode & 0o77 == 0
        # The quick start, core, arbiter, two workers. The first worker replies before there is another one.
        wait_for("all processes", lambda: len(descendants(process.pid)) >= 5)
        started = descendants(process.pid)
        began = time.monotonic()
        interrupt(process)
        # It insists after 4.5 s, and a busy machine takes its time to end what that kills.
        assert time.monotonic() - began < 20
        assert alive(started) == []
        assert not (state / "environment").exists()


# At a terminal


class Terminal:
    """The quick start on a terminal. `shown` is all that stands there."""

    def __init__(self, state: Path) -> None:
        self.shown = ""
        self.state = state
        self._screen, keyboard = pty.openpty()
        os.set_blocking(self._screen, False)
        variables = {"STATE": str(state), "PORT": str(free_port()), "SESSIONS": "3", "ARRIVALS": "0"}
        self.process = subprocess.Popen(
            QUICK_START,
            env={**os.environ, **variables},
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

    def told(self, name: str) -> str:
        """What the greeting gives by a name."""
        (found,) = re.findall(rf"(?m)^ +{name}: +(\S+)", self.shown)
        return str(found)

    def close(self) -> None:
        stop(self.process)
        os.close(self._screen)


def test_a_terminal_gets_a_page_a_user_a_log_and_word_of_a_part_that_is_started_again(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "state")
    try:
        wait_for("the greeting", lambda: terminal.shows('/subscribers/1" -X DELETE\n'))
        greeting = terminal.shown
        page = requests.get(terminal.told("Page"), verify=terminal.state / "certificate.pem", timeout=60)
        assert (page.status_code, page.headers["Content-Type"][:9]) == (200, "text/html")
        api, password = Api(read_environment(terminal.state / "environment")), terminal.told("Password")
        assert api.log_in(terminal.told("User"), password).status_code == 200
        assert greeting.count(password) == 1
        log = Path(terminal.told("Log"))
        assert api.send("GET", "/subscribers/77").status_code == 404
        wait_for("the request in the log", lambda: "path=/api/v1/subscribers/77" in log.read_text())
        terminal.shows("")
        assert terminal.shown == greeting
        assert log.stat().st_mode & 0o77 == 0
        assert password not in log.read_text()
        os.kill(core_of(terminal.process), signal.SIGKILL)
        ended = "the core daemon ended with -9; starting it again\n"
        wait_for("the sentence", lambda: terminal.shows(ended))
        wait_for("the core to be back", lambda: api.send("GET", "/health", None).status_code == 200)
    finally:
        terminal.close()


def test_a_start_that_fails_on_a_terminal_names_the_log_with_the_reason(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "passwords.json").write_text('{"admin": "watchword", "operator": "watchword"}')
    (state / "factory.json").write_text('{"api": {}}')
    terminal = Terminal(state)
    try:
        assert terminal.process.wait(60) == 1
        assert terminal.shows(f"the core daemon did not start; its output is in {state / 'log'}\n")
    finally:
        terminal.close()
    assert "required" in (state / "log").read_text()


# Runs in one folder


def test_a_second_run_keeps_what_the_first_had_and_neither_gives_a_warning(tmp_path: Path) -> None:
    kept = []
    for known in (3, 6):
        with running_stack(tmp_path, sessions=3) as (api, _):
            names = ("certificate.pem", "key.pem", "factory.json", "passwords.json", "secret")
            kept.append([(tmp_path / name).read_bytes() for name in names])
            assert api.get("/subscribers")["count"] == 3
            # Those of the first run have ended with it.
            wait_for(
                "the history", lambda api=api, known=known: api.get("/subscribers/history")["count"] == known
            )
            with api.send("GET", "/events/subscribers", stream=True) as stream:
                assert stream.status_code == 200
    assert kept[0] == kept[1]
    log = (tmp_path / "log").read_text()
    # A log gets the file that has the password, and not the password.
    assert str(tmp_path / "environment") in log
    assert api.environment["ADMIN_PASSWORD"] not in log
    assert "3 sessions ended" in log
    assert not re.search("warn|error|traceback|lost the varlink", log, re.IGNORECASE)


def test_a_run_beside_another_gets_one_sentence_and_a_killed_one_takes_its_children_along(
    tmp_path: Path,
) -> None:
    # Where no file has the name localhost.
    without_hosts = 'mount --bind /dev/null /etc/hosts && exec "$@"'
    wrap = ("unshare", "--mount", "bash", "-c", without_hosts, "bash")
    with running_stack(tmp_path, sessions=3, wrap=wrap) as (api, process):
        published = (tmp_path / "environment").read_text()
        said = refusal(STATE=str(tmp_path), PORT=str(free_port()))
        assert f"it runs in {tmp_path} already" in said
        assert (tmp_path / "environment").read_text() == published
        assert api.get("/subscribers")["count"] == 3
        started = descendants(process.pid)
        assert len(started) >= 4
        process.kill()
        process.wait()
        wait_for("the children to end", lambda: not alive(started))


# Refusals


def test_a_port_in_use_or_a_missing_program_gets_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refusal(STATE=str(tmp_path), PORT=str(port))
    assert f"cannot listen on port {port}" in said
    assert "PORT" in said
    said = refusal(STATE=str(tmp_path), PORT=str(free_port()), PATH=str(tmp_path))
    assert "openssl is not installed" in said
    command = ["make", "-C", str(REPOSITORY), "run", "PYTHON=python9.9", f"VENV={tmp_path / 'venv'}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert "Python 3.11 or newer is needed" in ended.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [("PORT", "http"), ("PORT", "0"), ("SESSIONS", "-1"), ("SESSIONS", "200001"), ("WORKERS", "0")],
)
def test_a_variable_with_a_wrong_value_is_named(tmp_path: Path, name: str, value: str) -> None:
    said = refusal(2, STATE=str(tmp_path), **{name: value})
    assert f"--{name.lower()}" in said
    assert value in said
