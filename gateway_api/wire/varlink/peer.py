"""The process at the other end of a Unix socket, checked whatever the permissions of the socket file are."""

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
    """The peer: of a server the process that listened, of a client the one that connected. Raises Stranger.

    The group counts because a service in a user namespace of its own (`PrivateUsers=`) sees all other users
    as one, but its group as it is. It is the primary group: the kernel does not report the others.
    """
    held = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    peer = Peer(*_CREDENTIALS.unpack(held))
    if peer.user not in (_ROOT, os.geteuid()) and peer.group != os.getegid():
        raise Stranger(f"the peer is of user {peer.user} and group {peer.group}, whom nobody here trusts")
    return peer
