"""Messages of netlink (RFC 3549 section 2.2), as bytes: their frames, and the attributes in them.

The parsers of the kernel's messages are pure functions. Any bytes give a value or a `MalformedMessage`.
"""

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from gateway_contract.base.errors import GatewayApiError
from gateway_core.gateways.linux.entries import UnreadableEntry

ERROR, DONE = 2, 3
REQUEST, ACK, ECHO = 0x01, 0x04, 0x08
DUMP = 0x300
REPLACE, EXCLUSIVE, CREATE = 0x100, 0x200, 0x400
#: The kernel's tables changed during a dump: entries may be missing.
INTERRUPTED = 0x10
#: The sequence number of the core's questions. The kernel sends the replies to some of them to all listeners
#: for events: an event with this number is no change.
QUESTION = 0x47415445

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
#: Without the bits for nested attributes and for network byte order.
_TYPE = 0x3FFF
_U32 = struct.Struct("=I")
_CODE = struct.Struct("=i")
#: By the family of addresses.
ADDRESS_BYTES: dict[int, int] = {socket.AF_INET: 4, socket.AF_INET6: 16}

#: Type, flags, sequence number, and what comes after the header.
Message = tuple[int, int, int, bytes]


class KernelChange(NamedTuple):
    """A message that changes something."""

    type: int
    flags: int
    body: bytes


class KernelError(GatewayApiError):
    """The kernel refused. `step` is a verb and an object, `code` the error number, None without one."""

    def __init__(self, step: str, reason: object, code: int | None = None) -> None:
        self.code = code
        super().__init__(f"cannot {step}: {reason}")


class NoDevice(KernelError):
    """The device does not exist, or no longer."""


class MalformedMessage(KernelError, UnreadableEntry):
    """A message that the kernel doesn't send."""

    def __init__(self, rule: str) -> None:
        super().__init__("read a netlink message", rule)


def request(type: int, flags: int, sequence: int, body: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), type, REQUEST | flags, sequence, 0) + body


def attribute(type: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), type) + value + bytes(-len(value) % 4)


def u32_attribute(type: int, value: int) -> bytes:
    return attribute(type, _U32.pack(value))


def text_attribute(type: int, value: str) -> bytes:
    """With the zero byte that ends it."""
    return attribute(type, value.encode() + b"\0")


def messages(data: bytes) -> Iterator[Message]:
    """The messages of one datagram."""
    offset, end = 0, len(data)
    while offset < end:
        if end - offset < _HEADER.size:
            raise MalformedMessage("the header is cut off")
        length, type, flags, sequence, _ = _HEADER.unpack_from(data, offset)
        if not _HEADER.size <= length <= end - offset:
            raise MalformedMessage("the length is wrong")
        yield type, flags, sequence, data[offset + _HEADER.size : offset + length]
        offset += (length + 3) & ~3


def attributes(data: bytes, offset: int = 0) -> dict[int, bytes]:
    """Values by type. Of several with one type, the last."""
    found = {}
    end = len(data)
    unpack = _ATTRIBUTE.unpack_from
    while offset < end:
        if end - offset < 4:
            raise MalformedMessage("an attribute is cut off")
        length, type = unpack(data, offset)
        if not 4 <= length <= end - offset:
            raise MalformedMessage("the length of an attribute is wrong")
        found[type & _TYPE] = data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return found


def first_text(data: bytes, offset: int, type: int) -> str:
    """Return the text of an attribute that the kernel puts first. To parse them all takes five times as
    long."""
    if len(data) >= offset + _ATTRIBUTE.size:
        length, first = _ATTRIBUTE.unpack_from(data, offset)
        if first == type and length <= len(data) - offset:
            return text(data[offset + _ATTRIBUTE.size : offset + length])
    found = attributes(data, offset)
    if type not in found:
        raise MalformedMessage("a link has no name, or a qdisc no kind")
    return text(found[type])


def error_code(body: bytes) -> int:
    """Return the error number of an ERROR or DONE message; 0 for success."""
    return -int(unpacked(_CODE, body)[0]) if body else 0


def unpacked(form: struct.Struct, data: bytes, offset: int = 0) -> tuple[int, ...]:
    """Numbers from the start of a structure: a later kernel may have appended to it."""
    if len(data) - offset < form.size:
        raise MalformedMessage("a structure is cut off")
    return form.unpack_from(data, offset)


def u32(data: bytes | None) -> int | None:
    """None for an attribute that is absent."""
    return None if data is None else unpacked(_U32, data)[0]


def text(data: bytes) -> str:
    """Return a string with the zero byte that ends it. What isn't UTF-8 appears as backslash and number."""
    return data.partition(b"\0")[0].decode(errors="backslashreplace")


def address(family: int, data: bytes) -> str:
    if len(data) != ADDRESS_BYTES.get(family):
        raise MalformedMessage("an address has the wrong length")
    return socket.inet_ntop(family, data)
