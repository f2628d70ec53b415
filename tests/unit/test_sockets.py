"""Sockets of clients."""

from gevent import socket

from gateway_api.serving.sockets import watched


def test_of_a_long_body_a_piece_is_read_at_once() -> None:
    client, server = socket.socketpair()
    with client, watched(server, None) as ours:
        client.setblocking(False)
        sent = client.send(bytes(1 << 20))
        assert sent > 100_000
        # As gunicorn does: it copies what it has read at each piece that it gives.
        assert len(ours.recv(1 << 20)) == 64 << 10
