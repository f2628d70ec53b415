"""Parts of the varlink protocol that both ends of a connection share: messages as bytes, and the check of the
peer.

Messages are JSON objects, each followed by a NUL. A message buffer takes bytes as they arrive and returns
whole messages. Source: https://varlink.org, "Protocol".
"""

import errno
import os
import socket
import struct
from typing import Any, NamedTuple, TypeVar

import msgspec

from gateway_contract.base.errors import GatewayApiError

T = TypeVar("T")

#: Maximum bytes of a call and of a reply. A list of 200,000 sessions is one reply.
MAX_CALL_BYTES = 1 << 20
MAX_REPLY_BYTES = 96 << 20

_CREDENTIALS_FORMAT = struct.Struct("iII")  # struct ucred: process, user, group
_ROOT_USER = 0
#: A socket option of Linux 4.13, which neither socket(7) nor Python names. Python reads at most 1 KiB of an
#: option.
_SO_PEERGROUPS = 59
_GROUP_FORMAT = struct.Struct("I")
_MAX_GROUPS = 256

_NO_METHOD_ERRORS = ("org.varlink.service.MethodNotFound", "org.varlink.service.MethodNotImplemented")

#: No parameters.
NO_PARAMETERS = msgspec.Raw(b"{}")


class ProtocolError(GatewayApiError):
    """Error of a peer that broke the varlink protocol."""


class MessageTooLarge(ProtocolError):
    """Error of a message that is longer than the limit of its buffer."""


class ErrorReply(GatewayApiError):
    """Error that is the reply to a call. A handler raises this error, and the client raises this error again
    when the reply arrives. `name` is the full name of the error, such as
    `org.varlink.service.MethodNotFound`; `parameters` contains the fields of the error."""

    def __init__(self, name: str, parameters: msgspec.Raw = NO_PARAMETERS) -> None:
        self.name = name
        self.parameters = parameters
        super().__init__(name)

    @classmethod
    def of(cls, name: str, **parameters: Any) -> "ErrorReply":
        """Return the error with this name and these fields."""
        return cls(name, msgspec.Raw(msgspec.json.encode(parameters)))

    @property
    def is_unknown_method(self) -> bool:
        """True if the error says that the service does not have the method."""
        return self.name in _NO_METHOD_ERRORS


class CallMessage(msgspec.Struct, omit_defaults=True):
    """Message of a client, with one call. `method` is the full name of the method, with the interface."""

    method: str
    parameters: msgspec.Raw = NO_PARAMETERS
    oneway: bool = False
    more: bool = False
    upgrade: bool = False


class Reply(msgspec.Struct, omit_defaults=True):
    """Message of a service, with one reply. `error` is the full name of an error, or None. If `continues` is
    True, another reply follows."""

    parameters: msgspec.Raw = NO_PARAMETERS
    error: str | None = None
    continues: bool = False

    def result(self) -> msgspec.Raw:
        """Return the parameters of the reply. Raises ErrorReply if the reply is an error."""
        if self.error is not None:
            raise ErrorReply(self.error, self.parameters)
        return self.parameters


_call_decoder = msgspec.json.Decoder(CallMessage)
_reply_decoder = msgspec.json.Decoder(Reply)
_encoder = msgspec.json.Encoder()


def encode(message: CallMessage | Reply) -> bytes:
    """Encode a message as bytes, with its NUL."""
    wire = bytearray()
    _encoder.encode_into(message, wire)
    wire.append(0)
    return bytes(wire)


def decode_call(message: bytes) -> CallMessage:
    """Return the call in a client's message. Raises ProtocolError if the message is not a valid call."""
    call = _decode(_call_decoder, message)
    if _starts_with(call.parameters, b"n"):
        call.parameters = NO_PARAMETERS
    return call


def decode_reply(message: bytes) -> Reply:
    """Decode a message of a service to a reply. Raises ProtocolError if the message is not a valid reply. The
    parameters must be a JSON object in UTF-8, because HTTP clients get the parameters unchanged."""
    reply = _decode(_reply_decoder, message)
    if _starts_with(reply.parameters, b"n"):
        reply.parameters = NO_PARAMETERS
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
    """Buffer that splits a stream of bytes into messages. A message has at most `max_bytes` bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        # Where the search for the next NUL continues: a message that comes in many pieces would otherwise be
        # searched from its start after each of them.
        self._search_position = 0

    def __len__(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Add bytes to the buffer."""
        self._buffer += data

    def has_message(self) -> bool:
        """Return True if the buffer contains a whole message."""
        return self._buffer.find(0, self._search_position) >= 0

    def next_message(self) -> bytes | None:
        """Return the next whole message without its NUL, or None if no whole message has arrived yet. Raises
        MessageTooLarge if the message is longer than `max_bytes`."""
        end = self._buffer.find(0, self._search_position)
        size = len(self._buffer) if end < 0 else end
        if size > self._max_bytes:
            raise MessageTooLarge(f"a message of over {self._max_bytes} bytes")
        if end < 0:
            self._search_position = size
            return None
        message = bytes(memoryview(self._buffer)[:end])
        del self._buffer[: end + 1]
        self._search_position = 0
        return message


class UntrustedPeer(GatewayApiError):
    """Error of a peer that is not trusted: the process does not belong to root, to the user of this process,
    or to the group of this process."""


class Peer(NamedTuple):
    """Process at the other end of a connection. `user` and `group` are numbers in the user namespace of this
    process."""

    process: int
    user: int
    group: int


def check_peer(connection: socket.socket) -> Peer:
    """Check that the process at the other end of a connection is trusted, and return this process. Raises
    UntrustedPeer if the process is not trusted.

    All groups of the peer count. The reason is a service in a separate user namespace (`PrivateUsers=`):
    there, all other users have the same number, but the service's own group has its real number.
    """
    option_value = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS_FORMAT.size)
    peer = Peer(*_CREDENTIALS_FORMAT.unpack(option_value))
    if peer.user in (_ROOT_USER, os.geteuid()) or os.getegid() in (peer.group, *_read_groups(connection)):
        return peer
    raise UntrustedPeer(f"the peer is of user {peer.user} and group {peer.group}, which are not trusted")


def _read_groups(connection: socket.socket) -> tuple[int, ...]:
    """Return the supplementary groups of the process at the other end of a connection. Return an empty result
    if the process has more than 256 groups."""
    try:
        option_value = connection.getsockopt(
            socket.SOL_SOCKET, _SO_PEERGROUPS, _MAX_GROUPS * _GROUP_FORMAT.size
        )
    except OSError as error:
        if error.errno != errno.ERANGE:
            raise
        return ()
    return tuple(group for (group,) in _GROUP_FORMAT.iter_unpack(option_value))
