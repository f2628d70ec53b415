"""The sender of a webhook: one attempt, its deadline, and what it trusts."""

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway_api.cli import certificates
from gateway_api.hub import sender as senders
from gateway_api.hub.interface import TIMEOUT
from gateway_api.hub.sender import AttemptResult, Sender, WebhookMessage
from gateway_contract.base.receivers import Address
from tests.support.receivers import OK, Receiver, Rude, hang
from tests.support.stack import wait_for


def message() -> WebhookMessage:
    return WebhookMessage("life-1", "session.up", b"{}")


@contextmanager
def sending(url: str) -> Iterator[tuple[Sender, list[AttemptResult]]]:
    """An attempt under way in a thread, and its outcome when it has one."""
    sender = Sender(url, None, tuple, None)
    outcomes: list[AttemptResult] = []
    thread = threading.Thread(target=lambda: outcomes.append(sender.send(message())))
    thread.start()
    try:
        yield sender, outcomes
    finally:
        sender.cut(float("inf"))
        thread.join(TIMEOUT + 1)
        sender.close()
        assert not thread.is_alive()


def test_an_attempt_is_cut_at_its_deadline_and_not_before() -> None:
    assert TIMEOUT == 10
    with Rude(hang) as receiver, sending(receiver.url) as (sender, outcomes):
        wait_for("the request", lambda: receiver.received, 5)
        sender.cut(time.monotonic() + TIMEOUT - 1)
        assert not receiver.ended
        assert not outcomes
        sender.cut(time.monotonic() + TIMEOUT)
        (outcome,) = wait_for("the outcome", lambda: outcomes, 2)
        assert outcome.status is None
        assert not outcome.delivered


def test_a_cut_between_two_attempts_keeps_the_connection() -> None:
    with Receiver() as receiver:
        sender = Sender(receiver.url, None, tuple, None)
        sender.cut(float("inf"))
        assert sender.send(message()).delivered
        sender.cut(float("inf"))
        assert sender.send(message()).delivered
        assert {one.connection for one in receiver.received} == {1}
        sender.close()
        sender.cut(float("inf"))


def test_what_a_receiver_sends_is_acknowledged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    connections: list[socket.socket] = []
    original = senders.connect

    def connect(*arguments: Any) -> tuple[socket.socket, Address]:
        connection, peer = original(*arguments)
        connections.append(connection)
        return connection, peer

    monkeypatch.setattr(senders, "connect", connect)
    with Receiver() as receiver:
        sender = Sender(receiver.url, None, tuple, None)
        for _ in range(3):
            assert sender.send(message()).delivered
        assert [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) for each in connections] == [1]
        sender.close()


@pytest.mark.parametrize("status", [199, 300, None])
def test_a_status_below_200_or_from_300_is_no_delivery(status: int | None) -> None:
    assert not AttemptResult(status, None, 0.1).delivered


@pytest.mark.parametrize("status", [100, 102, 103])
def test_the_status_is_that_of_the_final_response(status: int) -> None:
    interim = f"HTTP/1.1 {status} Whatever\r\nLink: </style.css>\r\n\r\n".encode()
    with Receiver(2 * interim + OK) as receiver:
        sender = Sender(receiver.url, None, tuple, None)
        assert [sender.send(message()).status for _ in range(2)] == [200, 200]
        sender.close()
        assert len(receiver.opened) == 1


def test_a_receiver_with_an_unknown_certificate_gets_nothing(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificates.ensure(certificate, key, "localhost")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with Receiver(tls=tls) as receiver:
        sender = Sender(receiver.url, None, tuple, None)
        assert sender.send(message()).error == "TLS failed"
        assert not receiver.received
        sender.close()


def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as receiver, Receiver() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        sender = Sender(receiver.url, None, tuple, None)
        assert sender.send(message()).delivered
        assert len(receiver.received) == 1
        assert not proxy.opened
        sender.close()
