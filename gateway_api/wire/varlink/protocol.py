"""What both ends of a varlink connection share: messages as bytes, and the check of the peer.

Messages are JSON objects, each ended by a NUL. A buffer takes bytes as they come and gives whole messages;
`None` means that it needs more. Source: https://varlink.org, "Protocol".
"""

import os
import socket
import struct
from typing import Any, NamedTuple, TypeVar

import msgspec

from gateway_api.base.errors import GatewayApiError

T = TypeVar("T")

#: The most bytes of one message, by direction: calls are small, a list of 200,000 sessions is not.
REQUEST_CAP = 1 << 20
REPLY_CAP = 64 << 20

_CREDENTIALS = struct.Struct("iII")  # struct ucred: process, user, group
_ROOT = 0

#: The parameters of a message that has none.
NOTHING = msgspec.Raw(b"{}")


class ProtocolError(GatewayApiError):
    """The peer sent what no varlink peer sends."""


class MessageTooLarge(ProtocolError):
    """A message grew past its cap before its end came."""


class ErrorReply(GatewayApiError):
    """An error as the reply to a call: raised by a handler, and raised again at the caller."""

    def __init__(self, name: str, parameters: msgspec.Raw = NOTHING) -> None:
        #: The full error name, `org.varlink.service.MethodNotFound` say: what a caller branches on.
        self.name = name
        #: The error's own fields, unparsed.
        self.parameters = parameters
        super().__init__(name)

    @classmethod
    def of(cls, name: str, **parameters: Any) -> "ErrorReply":
        """The error with these fields."""
        return cls(name, msgspec.Raw(msgspec.json.encode(parameters)))


class Call(msgspec.Struct, omit_defaults=True):
    """A client's message. `method` is the interface name, a dot and the method's name."""

    method: str
    parameters: msgspec.Raw = NOTHING
    oneway: bool = False
    more: bool = False
    upgrade: bool = False


class Reply(msgspec.Struct, omit_defaults=True):
    """A service's message. `error` is a full error name; `continues` announces one more reply."""

    parameters: msgspec.Raw = NOTHING
    error: str | None = None
    continues: bool = False


_calls = msgspec.json.Decoder(Call)
_replies = msgspec.json.Decoder(Reply)
_encoder = msgspec.json.Encoder()


def encode(message: Call | Reply) -> bytes:
    """The message as it goes over the wire, with its NUL."""
    wire = bytearray()
    _encoder.encode_into(message, wire)
    wire.append(0)
    return bytes(wire)


def decode_call(message: bytes) -> Call:
    """The call in one message's bytes, its parameters still unparsed. Raises ProtocolError."""
    call = _decode(_calls, message)
    if _starts_with(call.parameters, b"n"):
        call.parameters = NOTHING
    return call


def decode_reply(message: bytes) -> Reply:
    """The reply in one message's bytes, its parameters still unparsed. Raises ProtocolError.

    Parameters are checked to be an object of valid UTF-8 here, because they travel on to HTTP
    clients as they are: this is the last place that could see what a broken peer put in.
    """
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
    """Collects bytes and gives the messages in them, one by one.

    `cap` is the most bytes that one message may have.
    """

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._buffer = bytearray()
        # Where the search for the next NUL continues: without it, a message that comes in many
        # pieces would be searched from its start at each of them.
        self._searched = 0

    def __len__(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Adds the next bytes of the stream."""
        self._buffer += data

    def next_message(self) -> bytes | None:
        """The bytes of the next whole message without its NUL, or None for "need more"."""
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
