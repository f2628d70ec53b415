"""The sender of a webhook: the URLs it accepts, one attempt, its deadline, and what it trusts."""

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from urllib3.util import parse_url

from gateway_api.cli import certificates
from gateway_api.hub import sender as senders
from gateway_api.hub.interface import TIMEOUT
from gateway_api.hub.sender import AttemptResult, Sender, WebhookMessage, connect
from gateway_contract.base.receivers import Address, Denied, check_address, check_url
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
        assert not outcome.is_delivered


def test_a_cut_between_two_attempts_keeps_the_connection() -> None:
    with Receiver() as receiver:
        sender = Sender(receiver.url, None, tuple, None)
        sender.cut(float("inf"))
        assert sender.send(message()).is_delivered
        sender.cut(float("inf"))
        assert sender.send(message()).is_delivered
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
            assert sender.send(message()).is_delivered
        assert [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) for each in connections] == [1]
        sender.close()


@pytest.mark.parametrize("status", [199, 300, None])
def test_a_status_below_200_or_from_300_is_no_delivery(status: int | None) -> None:
    assert not AttemptResult(status, None, 0.1).is_delivered


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
        assert sender.send(message()).is_delivered
        assert len(receiver.received) == 1
        assert not proxy.opened
        sender.close()


#: Hosts as a URL has them, each of which means an address that nothing is delivered to.
NEVER = [
    *("169.254.169.254", "169.254.0.0", "169.254.255.255", "2852039166", "0251.254.0xa9.254"),
    *("[::ffff:169.254.169.254]", "[::169.254.169.254]", "[64:ff9b::a9fe:a9fe]"),
    *("[64:ff9b:1::a9fe:a9fe]", "[2002:a9fe:a9fe:1::9]", "[::ffff:0:169.254.169.254]", "[fd00:ec2::254]"),
    *("[fe80::1]", "[febf:ffff::1]", "[fe80::1%eth0]", "0.0.0.0", "0", "0.1.2.3", "[::]", "[2002::1]"),
    *("224.0.0.1", "239.255.255.255", "[ff02::1]", "[64:ff9b::e000:1]", "255.255.255.255"),
]
LEGAL = [
    *("127.0.0.1", "127.1", "2130706433", "[::1]", "10.0.0.1", "192.168.1.1", "100.64.0.1", "8.8.8.8"),
    *("[::ffff:10.0.0.1]", "[64:ff9b::8.8.8.8]", "[2002:808:808::1]", "[fd00::1]", "[2001:db8::1]"),
    *("169.253.255.255", "169.255.0.0", "223.255.255.255", "1.0.0.0", "255.255.255.254"),
    *("[fec0::1]", "[fe7f::1]"),
]
NAMES = [
    *("localhost", "example.com.", "a_b.example", "169.254.169.254.nip.io", "xn--bcher-kva.example"),
    *("a" * 63 + ".example", "a123456789." * 22 + "a" * 11, "1a", "0xg", "1.a"),
]


def test_a_url_with_an_address_that_is_never_delivered_to_is_refused() -> None:
    for host in NEVER:
        with pytest.raises(ValueError, match="link-local, unspecified, multicast or broadcast"):
            check_url(f"http://{host}:8080/hook")


def test_a_url_with_a_private_a_public_or_a_loopback_address_or_a_name_is_taken() -> None:
    for host in (*LEGAL, *NAMES):
        check_url(f"http://{host}/hook")
        check_url(f"HtTpS://{host}:65535/hook?a=b%20c&d")


def test_a_url_that_is_no_receivers_is_refused_with_the_rule() -> None:
    begin = "http://example.com/"
    check_url(begin + "a" * (2048 - len(begin)))
    refused = {
        "2048": [begin + "a" * (2049 - len(begin))],
        "printable": ["", *(begin + c for c in " \n\x7fé"), "http://\uff11\uff16\uff19.254.169.254/"],
        "backslash": ["http://example.com\\@127.0.0.1/"],
        "begin with http": ["ftp://a", "example.com", "//a/", "/hook", "httpx://a"],
        "user or a password": ["http://u@a/", "http://@a/", "http://127.0.0.1@a"],
        "fragment": [f"{begin}#a", f"{begin}#", f"{begin}?a#b"],
        "host": [
            "http://",
            "http:///hook",
            "http://:80/",
            *(f"http://{host}/" for host in ("*", "a:1:2", "::1")),
        ],
        "percent": [f"http://{host}/" for host in ("%61", "a%", "127.0.0.%31")],
        "port from 1 to 65535": [f"http://a:{port}/" for port in ("0", "65536", "-1", "a", "8_0", "999999")],
        "IPv6": [
            f"http://{host}/" for host in ("[::1", "::1]", "[1.2.3.4]", "[]", "[v1.x]", "[::1]x", "[::1%]]")
        ],
        "zone": ["http://[::1%25lo]/", "http://[fd00::1%eth0]/"],
        "labels": [f"http://{host}/" for host in ("a..b", ".a", "a..", ".", f"{'a' * 64}.example")],
        "253": ["http://" + "a123456789." * 23 + "a"],
        "number": [
            f"http://{host}/" for host in ("256.1.1.1", "127.0.0.1.", "08.1.1.1", "4294967296", "a.0x")
        ],
    }
    for rule, urls in refused.items():
        for url in urls:
            with pytest.raises(ValueError, match=rule):
                check_url(url)


@given(st.from_regex(r"\Ahttps?://[][A-Za-z0-9.:%_x-]{1,80}(/[!-~]{0,9})?\Z"))
def test_a_url_that_is_taken_can_be_sent_to(url: str) -> None:
    try:
        check_url(url)
    except ValueError:
        return
    prepared = requests.Request("POST", url).prepare()
    host = parse_url(str(prepared.url)).host or ""
    assert host.strip("[]") == (urlsplit(url).hostname or "")
    # As getaddrinfo would.
    host.encode("idna")


def test_a_denied_network_denies_its_addresses_in_every_spelling() -> None:
    for address, network in (
        ("10.1.2.3", "10.0.0.0/8"),
        ("::ffff:10.1.2.3", "10.0.0.0/8"),
        ("::10.1.2.3", "10.0.0.0/8"),
        ("64:ff9b::10.1.2.3", "10.0.0.0/8"),
        ("2002:a01:203::1", "10.0.0.0/8"),
        ("2001:db8::1", "2001:db8::/32"),
        ("64:ff9b::10.1.2.3", "64:ff9b::/96"),
        ("::1", "::1/128"),
    ):
        with pytest.raises(Denied):
            check_address(ip_address(address), ["198.51.100.0/24", network])


def test_a_denied_network_denies_no_other_address() -> None:
    for address, network in (
        ("11.0.0.0", "10.0.0.0/8"),
        ("2001:db9::", "2001:db8::/32"),
        ("::1", "0.0.0.0/0"),
        ("127.0.0.1", "::/0"),
    ):
        check_address(ip_address(address), [network])


def test_a_denied_network_is_denied_where_it_is_connected_to() -> None:
    with pytest.raises(Denied):
        connect("127.0.0.1", 9, 1.0, lambda: ["127.0.0.0/8"])


def test_an_attempt_without_time_left_does_not_connect() -> None:
    with pytest.raises(TimeoutError):
        connect("127.0.0.1", 9, 0.0, lambda: ())
