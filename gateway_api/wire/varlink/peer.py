"""Who is at the other end of a Unix socket, whatever the permissions of its file have become."""

import os
import socket
import struct
from typing import NamedTuple

from gateway_api.base.errors import GatewayApiError

_CREDENTIALS = struct.Struct("iII")  # struct ucred: process, user, group
_ROOT = 0


class Stranger(GatewayApiError):
    """The process at the other end is neither root's, nor of our own user or group."""


class Peer(NamedTuple):
    """A process as the kernel knows it. `user` and `group` are numbers, as they look from here."""

    process: int
    user: int
    group: int


def check_peer(connection: socket.socket) -> Peer:
    """Who it is. Raises Stranger. Of a server it is known who listened, of a client who connected.

    The group counts because a service in a user namespace of its own (`PrivateUsers=`) sees the users of all
    others as one, but its group as it is. It is the primary one: other groups of a process aren't told.
    """
    held = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    peer = Peer(*_CREDENTIALS.unpack(held))
    if peer.user not in (_ROOT, os.geteuid()) and peer.group != os.getegid():
        raise Stranger(f"the peer is of user {peer.user} and group {peer.group}, whom nobody here trusts")
    return peer
