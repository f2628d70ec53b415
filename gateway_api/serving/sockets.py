"""Sockets of clients, which tell their connection what they wait for.

Internals of gevent, read in 26.9: `_sock`, and `SSLSocket` as a context's `sslsocket_class`. gunicorn reads
and writes through `recv` and `sendall` only.
"""

import logging
import ssl
import struct
from contextlib import nullcontext
from typing import Any, cast

from gevent import socket
from gevent.ssl import SSLSocket

from gateway_api.base import tls_errors
from gateway_api.serving.connections import Connection
from gateway_contract.base.turns import give_way

_log = logging.getLogger(__name__)

#: Bytes that are sent or read at once, in a tenth of a millisecond; with TLS, in three.
_PIECE = 64 << 10
#: Bytes of a response that the kernel holds unsent.
_UNSENT = 64 << 10


class _Watched:
    #: TLS reads before they can be set.
    connection: Connection | None = None
    #: The body of the last request, of which the view may have read nothing.
    body: Any = None

    def recv(self, size: int, *more: Any) -> bytes:
        with self.connection.reading() if self.connection else nullcontext():
            # gunicorn takes up to a megabyte of a body, and copies what is left of it at each piece.
            return cast(bytes, super().recv(min(size, _PIECE), *more))  # type: ignore[misc]

    def sendall(self, data: bytes) -> None:
        with self.connection.writing(data) if self.connection else nullcontext():
            for start in range(0, len(data), _PIECE):
                if start:
                    # A client that reads as fast as it gets would otherwise leave no turn to others.
                    give_way()
                piece = memoryview(data)[start : start + _PIECE]
                # gevent's `sendall` looks up the size of the kernel's buffer first. Most responses are short.
                sent: int = self.send(piece)  # type: ignore[attr-defined]
                if sent < len(piece):
                    super().sendall(piece[sent:])  # type: ignore[misc]


class PlainSocket(_Watched, socket.socket):  # type: ignore[misc]
    """A client's socket over TCP or a Unix socket."""


class TlsSocket(_Watched, SSLSocket):  # type: ignore[misc]
    """A client's socket over TLS."""

    do_handshake = tls_errors.forget_after(SSLSocket.do_handshake)
    read = tls_errors.forget_after(SSLSocket.read)
    send = tls_errors.forget_after(SSLSocket.send)


def watched(client: socket.socket, context: ssl.SSLContext | None) -> PlainSocket | TlsSocket:
    """Take over a client's socket. A context has `TlsSocket` as its class; the handshake comes later."""
    if client.family != socket.AF_UNIX:
        # The kernel would buffer megabytes for a client that does not read, and no deadline would notice.
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)
    if context is None:
        return PlainSocket(client.family, client.type, client.proto, fileno=client.detach())
    return cast(TlsSocket, context.wrap_socket(client, server_side=True, do_handshake_on_connect=False))


def end(client: PlainSocket | TlsSocket) -> None:
    """Close the connection and drop unsent bytes: the kernel would keep them for minutes for a client that
    does not read. TLS is not closed first, for the same reason."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    try:
        # gevent's own shutdown raises in the greenlet that waits, where it would look like our fault.
        client._sock.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        _log.debug("the connection was closed already: %s", error)
