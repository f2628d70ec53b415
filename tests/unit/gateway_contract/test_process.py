"""The process: what it keeps loaded, and what systemd hears of it and when."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_contract.base.process import Readiness, Watchdog
from tests.support.stack import wait_for


def test_what_is_loaded_is_exempt_from_collection_and_what_comes_later_is_not() -> None:
    code = """
import gc, weakref
from gateway_contract.base.process import freeze_loaded_objects

class Node: pass

def circle():
    node = Node()
    node.itself = node
    return weakref.ref(node)

kept = Node()
freeze_loaded_objects()
later = circle()
assert not any(held is kept for held in gc.get_objects())
gc.collect()
assert later() is None
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_process_that_was_stopped_and_continues_has_no_signal() -> None:
    code = """
import signal, sys
from gateway_contract.base.process import wait_for_signal

ends = {signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, ends)
print("ready", flush=True)
sys.exit(wait_for_signal(ends, 1))
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        state = Path(f"/proc/{process.pid}/stat")
        wait_for("its wait", lambda: state.read_text().split()[2] == "S")
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        process.send_signal(signal.SIGCONT)
        assert process.wait() == 0


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """What listens where systemd would, and where that is."""
    name = str(tmp_path / "notify")
    address = name if request.param == "path" else f"@{name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address.replace("@", "\0"))
        listener.settimeout(10)
        yield listener, address


def test_it_is_said_once_when_a_forked_process_answers(
    systemd: tuple[socket.socket, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, address = systemd
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    readiness = Readiness()
    readiness.take_over()
    # Nobody else says it.
    assert "NOTIFY_SOCKET" not in os.environ
    child = os.fork()
    if not child:
        readiness.report_serving()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    readiness.report_serving()
    assert listener.recv(100) == b"READY=1"
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.recv(100)


def test_without_systemd_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    readiness = Readiness()
    readiness.take_over()
    readiness.report_serving()


def test_the_watchdog_hears_of_a_turn_and_not_of_each(systemd: tuple[socket.socket, str]) -> None:
    listener, address = systemd
    watchdog = Watchdog.of({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "400000000"})
    assert watchdog is not None and watchdog.pause == 100
    watchdog.beat()
    watchdog.beat()
    assert listener.recv(100) == b"WATCHDOG=1"
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.recv(100)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "1000000"},
        {"NOTIFY_SOCKET": "@x"},
        {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": ""},
        # Of the process that started this one.
        {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"},
    ],
)
def test_without_a_watchdog_nothing_is_reported(environment: dict[str, str]) -> None:
    assert Watchdog.of(environment) is None


def test_a_process_works_while_nobody_listens_to_its_reports() -> None:
    watchdog = Watchdog.of({"NOTIFY_SOCKET": "@nobody-listens-here", "WATCHDOG_USEC": "1000000"})
    assert watchdog is not None
    watchdog.beat()
