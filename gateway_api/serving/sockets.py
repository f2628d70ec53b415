"""Sockets that tell their connection when its client is waited for.

Everything that gunicorn reads and writes goes through `recv` and `sendall`.
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

#: Bytes of an answer that the kernel holds, beside those that are on their way.
_UNSENT = 64 << 10


class _Watched:
    #: TLS looks for early bytes before anybody can set it.
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
    """A client's socket, taken over; with a context, for TLS whose handshake is still to come."""
    if client.family != AF_UNIX:
        # Or the kernel would take megabytes for a client who takes nothing, and nobody would notice.
        client.setsockopt(IPPROTO_TCP, TCP_NOTSENT_LOWAT, _UNSENT)
    if context is None:
        return Plain(client.family, client.type, client.proto, fileno=client.detach())
    return cast(Secure, context.wrap_socket(client, server_side=True, do_handshake_on_connect=False))


def for_tls(context: SSLContext) -> SSLContext:
    """Has a context make sockets of this kind."""
    context.sslsocket_class = Secure
    return context


def end(client: Plain | Secure) -> None:
    """Closes the connection for whoever waits at it, and forgets what its client has not taken: the kernel
    would hold that for minutes, for one who does not read. TLS isn't ended first, for the same reason."""
    client.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    try:
        # Not gevent's: that throws at whoever waits, who would take it for a fault of ours.
        client._sock.shutdown(SHUT_RDWR)
    except OSError as error:
        _log.debug("the connection had ended by itself: %s", error)
