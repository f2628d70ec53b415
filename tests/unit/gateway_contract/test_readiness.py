"""systemd hears that a service is up when it is, and not before; and as long as it works."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_contract.base.process import Readiness, Watchdog


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
        readiness.serves()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    readiness.serves()
    assert listener.recv(100) == b"READY=1"
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.recv(100)


def test_without_systemd_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    readiness = Readiness()
    readiness.take_over()
    readiness.serves()


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
