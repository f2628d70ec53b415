"""The parts that both ends of a varlink connection share: messages as bytes, and the check of the peer.

Messages are JSON objects, each ended by a NUL. A buffer takes bytes as they come and gives whole messages;
`None` means that it needs more. Source: https://varlink.org, "Protocol".
"""

import errno
import os
import socket
import struct
from typing import Any, NamedTuple, TypeVar

import msgspec

from gateway_contract.base.errors import GatewayApiError

T = TypeVar("T")

#: The most bytes of a message: calls are small, a list of 200,000 sessions is not.
REQUEST_CAP = 1 << 20
REPLY_CAP = 96 << 20

_CREDENTIALS = struct.Struct("iII")  # struct ucred: process, user, group
_ROOT = 0
#: Of Linux 4.13. Neither socket(7) nor `socket` has it. Python reads at most 1 KiB of an option.
_SO_PEERGROUPS = 59
_GROUP = struct.Struct("I")
_MOST_GROUPS = 256

_LACKING = ("org.varlink.service.MethodNotFound", "org.varlink.service.MethodNotImplemented")

#: The parameters of a message that has none.
NOTHING = msgspec.Raw(b"{}")


class ProtocolError(GatewayApiError):
    """The peer broke the varlink protocol."""


class MessageTooLarge(ProtocolError):
    """A message is longer than its cap."""


class ErrorReply(GatewayApiError):
    """An error as the reply to a call: a handler raises it, and the client raises it again. `name` is the
    full name, such as `org.varlink.service.MethodNotFound`; `parameters` has the fields."""

    def __init__(self, name: str, parameters: msgspec.Raw = NOTHING) -> None:
        self.name = name
        self.parameters = parameters
        super().__init__(name)

    @classmethod
    def of(cls, name: str, **parameters: Any) -> "ErrorReply":
        """Return the error with these fields."""
        return cls(name, msgspec.Raw(msgspec.json.encode(parameters)))

    @property
    def lacks_method(self) -> bool:
        """Whether the service does not have the method."""
        return self.name in _LACKING


class CallMessage(msgspec.Struct, omit_defaults=True):
    """A message of a client. `method` is the full name, with the interface."""

    method: str
    parameters: msgspec.Raw = NOTHING
    oneway: bool = False
    more: bool = False
    upgrade: bool = False


class Reply(msgspec.Struct, omit_defaults=True):
    """A message of a service. `error` is a full name; `continues` announces another reply."""

    parameters: msgspec.Raw = NOTHING
    error: str | None = None
    continues: bool = False

    def result(self) -> msgspec.Raw:
        """Return the parameters. Raises ErrorReply."""
        if self.error is not None:
            raise ErrorReply(self.error, self.parameters)
        return self.parameters


_calls = msgspec.json.Decoder(CallMessage)
_replies = msgspec.json.Decoder(Reply)
_encoder = msgspec.json.Encoder()


def encode(message: CallMessage | Reply) -> bytes:
    """Return the bytes of the message, with its NUL."""
    wire = bytearray()
    _encoder.encode_into(message, wire)
    wire.append(0)
    return bytes(wire)


def decode_call(message: bytes) -> CallMessage:
    """Return the call in the bytes of a message. Raises ProtocolError."""
    call = _decode(_calls, message)
    if _starts_with(call.parameters, b"n"):
        call.parameters = NOTHING
    return call


def decode_reply(message: bytes) -> Reply:
    """Return the reply in the bytes of a message. Raises ProtocolError.

    It checks that the parameters are an object in UTF-8, because HTTP clients get them as they are."""
    reply = _decode(_replies, message)
    if _starts_with(reply.parameters, b"n"):
        reply.parameters = NOTHING
    elif not _starts_with(reply.parameters, b"{"):
        raise ProtocolError("the parameters of a reply are no object")
    return reply


def _starts_with(raw: msgspec.Raw, byte: bytes) -> bool:
    return bytes(memoryview(raw)[:1]) == byte


def _decode(decoder: msgspec.json.Decoder[T], message: bytes) -> T:
    try:
        str(message, "utf-8")
        return decoder.decode(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"not a varlink message: {error}") from error


class MessageBuffer:
    """Collects bytes, and separates the messages in them, each of at most `cap` bytes."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._buffer = bytearray()
        # Where the search for the next NUL continues: a message that comes in many pieces would otherwise be
        # searched from its start after each of them.
        self._searched = 0

    def __len__(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Add bytes of the stream."""
        self._buffer += data

    def has_message(self) -> bool:
        """Return whether `next_message` has one."""
        return self._buffer.find(0, self._searched) >= 0

    def next_message(self) -> bytes | None:
        """Return the bytes of the next whole message without its NUL, or None for "need more"."""
        end = self._buffer.find(0, self._searched)
        size = len(self._buffer) if end < 0 else end
        if size > self._cap:
            raise MessageTooLarge(f"a message of over {self._cap} bytes")
        if end < 0:
            self._searched = size
            return None
        message = bytes(memoryview(self._buffer)[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        return message


class Stranger(GatewayApiError):
    """The process at the other end is neither root's, nor of our own user, nor in our own group."""


class Peer(NamedTuple):
    """A process. The kernel translates `user` and `group`, which are numbers, to this user namespace."""

    process: int
    user: int
    group: int


def check_peer(connection: socket.socket) -> Peer:
    """Return the process that listened or connected at the other end. Raises Stranger.

    All its groups count: a service in a user namespace of its own (`PrivateUsers=`) sees all other users as
    one, but its group as it is."""
    held = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    peer = Peer(*_CREDENTIALS.unpack(held))
    if peer.user in (_ROOT, os.geteuid()) or os.getegid() in (peer.group, *_groups(connection)):
        return peer
    raise Stranger(f"the peer is of user {peer.user} and group {peer.group}, which are not trusted")


def _groups(connection: socket.socket) -> tuple[int, ...]:
    """Return the supplementary groups of the process at the other end. Those of a process with more than 256
    do not count."""
    try:
        held = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MOST_GROUPS * _GROUP.size)
    except OSError as error:
        if error.errno != errno.ERANGE:
            raise
        return ()
    return tuple(group for (group,) in _GROUP.iter_unpack(held))
