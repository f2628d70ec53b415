"""Sockets of clients, and of the hub."""

import socket as sockets
import ssl
import threading
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent import socket
from gevent.ssl import SSLContext

from gateway_api.cli import certificates
from gateway_api.hub.sender import HubTlsContext
from gateway_api.serving.connections import TlsSocket, watch_socket


def test_of_a_long_body_a_piece_is_read_at_once() -> None:
    client, server = socket.socketpair()
    with client, watch_socket(server, None) as ours:
        client.setblocking(False)
        sent = client.send(bytes(1 << 20))
        assert sent > 100_000
        # As gunicorn does: it copies what it has read at each piece that it gives.
        assert len(ours.recv(1 << 20)) == 64 << 10


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    files = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificates.ensure(*files, "localhost")
    return files


def assert_failures_stay_apart(ours: list[Any], peers: list[Any]) -> None:
    """The peer of the first connection goes away. With Python 3.13, the second would get its error."""
    # A client of TLS 1.3 also gets the tickets of its session, which are part of its handshake.
    peers[1].sendall(b"x")
    assert ours[1].recv(1) == b"x"
    peers[0].close()
    with pytest.raises(OSError):
        for _ in range(10):
            ours[0].sendall(b"x")
    ours[1].settimeout(0.1)
    with pytest.raises(TimeoutError):
        ours[1].recv(1)
    for each in (*ours, *peers):
        each.close()


def test_a_client_that_goes_away_fails_no_other_clients_connection(
    certificate: tuple[Path, Path],
) -> None:
    context, trusting = SSLContext(ssl.PROTOCOL_TLS_SERVER), SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_cert_chain(*certificate)
    context.sslsocket_class = TlsSocket
    trusting.load_verify_locations(certificate[0])
    ours, clients = [], []
    for _ in range(2):
        client, server = socket.socketpair()
        handshake = gevent.spawn(trusting.wrap_socket, client, server_hostname="localhost")
        ours.append(watch_socket(server, context))
        ours[-1].do_handshake()
        clients.append(handshake.get())
    assert_failures_stay_apart(ours, clients)


def test_a_receiver_that_goes_away_fails_no_other_receivers_connection(
    certificate: tuple[Path, Path],
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    trusting = HubTlsContext.make()
    trusting.load_verify_locations(certificate[0])
    ours, receivers = [], []
    for _ in range(2):
        receiver, client = sockets.socketpair()
        receivers.append(context.wrap_socket(receiver, True, False))
        handshake = threading.Thread(target=receivers[-1].do_handshake)
        handshake.start()
        client.settimeout(20)
        ours.append(trusting.wrap_socket(client, server_hostname="localhost"))
        handshake.join()
    assert_failures_stay_apart(ours, receivers)
