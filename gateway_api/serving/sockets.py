"""Sockets that tell their connection when we wait for the client.

gunicorn reads and writes through `recv` and `sendall` only. Internals of gevent, read in 26.9: `_sock`, and
`SSLSocket` as a context's `sslsocket_class`.
"""

import logging
import ssl
import struct
from contextlib import nullcontext
from typing import Any, cast

from gevent.socket import (
    AF_UNIX,
    IPPROTO_TCP,
    SHUT_RDWR,
    SO_LINGER,
    SOL_SOCKET,
    TCP_NOTSENT_LOWAT,
)
from gevent.socket import socket as Socket
from gevent.ssl import SSLContext, SSLSocket

from gateway_api.serving.connections import Connection

_log = logging.getLogger(__name__)

#: Bytes of a response that the kernel holds unsent.
_UNSENT = 64 << 10


class _Watched:
    #: TLS reads before it can be set.
    connection: Connection | None = None

    def recv(self, *arguments: Any) -> bytes:
        with self.connection.reading() if self.connection else nullcontext():
            return cast(bytes, super().recv(*arguments))  # type: ignore[misc]

    def sendall(self, data: Any, *more: Any) -> None:
        with self.connection.writing(data) if self.connection else nullcontext():
            super().sendall(data, *more)  # type: ignore[misc]


class Plain(_Watched, Socket):  # type: ignore[misc]
    """Over TCP or a Unix socket."""


class Secure(_Watched, SSLSocket):  # type: ignore[misc]
    """Over TLS."""


def watched(client: Socket, context: ssl.SSLContext | None) -> Plain | Secure:
    """Takes over a client's socket. With a context, the TLS handshake comes later."""
    if client.family != AF_UNIX:
        # The kernel would buffer megabytes for a client that does not read, and no deadline would notice.
        client.setsockopt(IPPROTO_TCP, TCP_NOTSENT_LOWAT, _UNSENT)
    if context is None:
        return Plain(client.family, client.type, client.proto, fileno=client.detach())
    return cast(Secure, context.wrap_socket(client, server_side=True, do_handshake_on_connect=False))


def for_tls(context: SSLContext) -> SSLContext:
    """Makes a context return sockets of this kind."""
    context.sslsocket_class = Secure
    return context


def end(client: Plain | Secure) -> None:
    """Closes the connection and drops unsent bytes: the kernel would keep them for minutes for a client that
    does not read. TLS is not closed first, for the same reason."""
    client.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    try:
        # gevent's own shutdown raises in the greenlet that waits, where it would look like our fault.
        client._sock.shutdown(SHUT_RDWR)
    except OSError as error:
        _log.debug("the connection was closed already: %s", error)
