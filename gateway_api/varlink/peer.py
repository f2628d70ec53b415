"""Who is at the other end of a Unix socket, whatever the permissions of its file have become."""

import os
import socket
import struct

from gateway_api.errors import GatewayApiError

_CREDENTIALS = struct.Struct("iII")  # struct ucred: process, user, group
_ROOT = 0


class Stranger(GatewayApiError):
    """The process at the other end is neither root's, nor of our own user or group."""


def check_peer(connection: socket.socket) -> None:
    """Raises Stranger. Of a server it is known who listened, of a client who connected.

    The group counts because a service in a user namespace of its own (`PrivateUsers=`) sees the users of all
    others as one, but its group as it is. It is the primary one: other groups of a process aren't told.
    """
    held = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, group = _CREDENTIALS.unpack(held)
    if user not in (_ROOT, os.geteuid()) and group != os.getegid():
        raise Stranger(f"the peer is of user {user} and group {group}, whom nobody here trusts")
