"""Messages of netlink (RFC 3549 section 2.2), and the exchange of messages with the kernel.

Each exchange uses a separate socket, so all functions are thread-safe, and a reply always belongs to the
request of the caller. An exchange uses the network namespace of the calling thread. One datagram carries many
changes or queries, so that the state of thousands of sessions is set within seconds.

The parsers of the kernel's messages are pure functions. Any input gives a value or raises `MalformedMessage`.
"""

import errno
import os
import socket
import struct
from collections.abc import Callable, Container, Hashable, Iterator, Sequence, Set
from typing import Any, NamedTuple, TypeVar

from gateway_contract.base.errors import GatewayApiError
from gateway_core.gateways.linux.entries import EntryReader, UnreadableEntry
from gateway_core.gateways.linux.kernel import rtnetlink as rt

T = TypeVar("T")

ERROR, DONE = 2, 3
REQUEST, ACK, ECHO = 0x01, 0x04, 0x08
DUMP = 0x300
REPLACE, EXCLUSIVE, CREATE = 0x100, 0x200, 0x400
#: Flag of a dump during which the kernel's tables changed: entries may be missing.
INTERRUPTED = 0x10
#: Sequence numbers of the core's changes and queries. The kernel sends the replies to some queries to all
#: event listeners: an event with QUERY_SEQUENCE is such a reply and reports no change.
_CHANGE_SEQUENCE, QUERY_SEQUENCE = 0, 0x47415445
#: Length of an address by address family.
ADDRESS_BYTES: dict[int, int] = {socket.AF_INET: 4, socket.AF_INET6: 16}
#: The kernel fills 32 KiB at most, unless one message is larger.
MAX_DATAGRAM_BYTES = 1 << 18

_HEADER_STRUCT = struct.Struct("=IHHII")
_ATTRIBUTE_STRUCT = struct.Struct("=HH")
#: Mask of an attribute's type: without the flag bits for nested attributes and for network byte order.
_TYPE_MASK = 0x3FFF
_U32_STRUCT = struct.Struct("=I")
_CODE_STRUCT = struct.Struct("=i")
_SOL_NETLINK, _CAP_ACK, _STRICT = 270, 10, 12
#: Attempts at a dump that is interrupted by changes.
_MAX_DUMP_ATTEMPTS = 4
#: Maximum number of changes or queries in one datagram, so that the replies fit into the socket's buffer.
_MAX_CHANGES_PER_DATAGRAM, _MAX_QUERIES_PER_DATAGRAM = 256, 64
#: The kernel doubles this number, and counts 768 bytes for each acknowledgement.
_RECEIVE_BUFFER_BYTES = 1 << 18

#: Type, flags, sequence number and body.
Message = tuple[int, int, int, bytes]


class KernelChange(NamedTuple):
    """Netlink message that changes the kernel's network configuration."""

    type: int
    flags: int
    body: bytes


class KernelError(GatewayApiError):
    """Refusal of a change or query by the kernel. `step` is a verb and an object, such as `read the links`.
    `code` is the error number, or None if the kernel gave no error number."""

    def __init__(self, step: str, reason: object, code: int | None = None) -> None:
        self.code = code
        super().__init__(f"cannot {step}: {reason}")

    @staticmethod
    def of(step: str, code: int) -> "KernelError":
        """Return the exception for an error number: NoDevice for ENODEV."""
        kind = NoDevice if code == errno.ENODEV else KernelError
        return kind(step, os.strerror(code), code)


class NoDevice(KernelError):
    """Refusal by the kernel because a device does not exist."""


class MalformedMessage(KernelError, UnreadableEntry):
    """Message that is not in the format of the kernel's messages. `rule` says what is wrong."""

    def __init__(self, rule: str) -> None:
        super().__init__("read a netlink message", rule)


def pack_request(type: int, flags: int, sequence: int, body: bytes) -> bytes:
    """Return a netlink request: header and body."""
    return _HEADER_STRUCT.pack(_HEADER_STRUCT.size + len(body), type, REQUEST | flags, sequence, 0) + body


def pack_attribute(type: int, value: bytes) -> bytes:
    """Return an attribute, padded to a multiple of four bytes."""
    return _ATTRIBUTE_STRUCT.pack(_ATTRIBUTE_STRUCT.size + len(value), type) + value + bytes(-len(value) % 4)


def pack_u32(type: int, value: int) -> bytes:
    """Return an attribute with a 32-bit number."""
    return pack_attribute(type, _U32_STRUCT.pack(value))


def pack_text(type: int, value: str) -> bytes:
    """Return an attribute with a null-terminated text."""
    return pack_attribute(type, value.encode() + b"\0")


def split_messages(data: bytes) -> Iterator[Message]:
    """Yield the messages of one datagram. Raises MalformedMessage if a message is cut off or has a wrong
    length."""
    offset, end = 0, len(data)
    while offset < end:
        if end - offset < _HEADER_STRUCT.size:
            raise MalformedMessage("the header is cut off")
        length, type, flags, sequence, _ = _HEADER_STRUCT.unpack_from(data, offset)
        if not _HEADER_STRUCT.size <= length <= end - offset:
            raise MalformedMessage("the length is wrong")
        yield type, flags, sequence, data[offset + _HEADER_STRUCT.size : offset + length]
        offset += (length + 3) & ~3


def split_attributes(data: bytes, offset: int = 0) -> dict[int, bytes]:
    """Return a map from attribute type to value, for the attributes from `offset` to the end of `data`. If
    several attributes have the same type, the last attribute counts. Raises MalformedMessage if an attribute
    is cut off or has a wrong length."""
    values = {}
    end = len(data)
    unpack = _ATTRIBUTE_STRUCT.unpack_from
    while offset < end:
        if end - offset < 4:
            raise MalformedMessage("an attribute is cut off")
        length, type = unpack(data, offset)
        if not 4 <= length <= end - offset:
            raise MalformedMessage("the length of an attribute is wrong")
        values[type & _TYPE_MASK] = data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return values


def find_text(data: bytes, offset: int, type: int) -> str:
    """Return the text of the attribute with this type. If the first attribute has this type, the search is
    five times as fast as `split_attributes`. Raises MalformedMessage if the attribute is missing."""
    if len(data) >= offset + _ATTRIBUTE_STRUCT.size:
        length, first_type = _ATTRIBUTE_STRUCT.unpack_from(data, offset)
        if first_type == type and length <= len(data) - offset:
            return parse_text(data[offset + _ATTRIBUTE_STRUCT.size : offset + length])
    attributes = split_attributes(data, offset)
    if type not in attributes:
        raise MalformedMessage("a link has no name, or a qdisc no kind")
    return parse_text(attributes[type])


def unpack(structure: struct.Struct, data: bytes, offset: int = 0) -> tuple[int, ...]:
    """Return the numbers of a structure at `offset`. Bytes after the structure are ignored, because a later
    kernel may have appended fields. Raises MalformedMessage if the data ends before the structure."""
    if len(data) - offset < structure.size:
        raise MalformedMessage("a structure is cut off")
    return structure.unpack_from(data, offset)


def parse_u32(data: bytes | None) -> int | None:
    """Return the 32-bit number of an attribute; None for an absent attribute."""
    return None if data is None else unpack(_U32_STRUCT, data)[0]


def parse_text(data: bytes) -> str:
    """Return the text before the first null byte. Bytes that are not UTF-8 become escapes such as `\\xff`."""
    return data.partition(b"\0")[0].decode(errors="backslashreplace")


def parse_address(family: int, data: bytes) -> str:
    """Return the text of an IPv4 or IPv6 address. Raises MalformedMessage if the length of `data` does not
    match `family`."""
    if len(data) != ADDRESS_BYTES.get(family):
        raise MalformedMessage("an address has the wrong length")
    return socket.inet_ntop(family, data)


def _make_entry_reader(kind: str, entries: str) -> EntryReader:
    return EntryReader("kernel", kind, f"the {entries} of the kernel", "unreadable entries count as absent")


#: Reader of the entries in the replies, by the type of the query.
_ENTRY_READERS = {
    rt.RTM_GETLINK: _make_entry_reader("link", "links"),
    rt.RTM_GETSTATS: _make_entry_reader("counters", "counters of links"),
    rt.RTM_GETADDR: _make_entry_reader("address", "addresses"),
    rt.RTM_GETROUTE: _make_entry_reader("route", "routes"),
    rt.RTM_GETRULE: _make_entry_reader("rule", "policy rules"),
    rt.RTM_GETQDISC: _make_entry_reader("qdisc", "qdiscs"),
    rt.RTM_GETTFILTER: _make_entry_reader("filter", "filters"),
    rt.RTM_GETNEIGHTBL: _make_entry_reader("neighbour_table", "neighbour tables"),
}


class Reply(NamedTuple):
    """Reply of the kernel to one request. `code` is the error number, 0 for success. `bodies` are the bodies
    of the messages before the end of the reply."""

    code: int
    bodies: list[bytes]
    is_interrupted: bool = False


def _return_entry(entry: Any) -> Any:
    return entry


def dump(
    step: str,
    type: int,
    body: bytes,
    parse: Callable[[bytes], T],
    key: Callable[[T], Hashable] = _return_entry,
) -> list[T]:
    """Return all readable entries of a dump. Raises KernelError if the kernel refuses the dump, or if all
    entries are unreadable.

    If the kernel's tables change during each attempt, return the entries of all attempts; of the entries with
    the same `key`, only one is returned. Such a result may include deleted entries. An existing entry is
    missing only if every attempt missed the entry.
    """
    entries_by_key: dict[Hashable, T] = {}
    for _ in range(_MAX_DUMP_ATTEMPTS):
        (reply,) = _exchange(step, [pack_request(type, DUMP, QUERY_SEQUENCE, body)])
        if reply.code:
            raise KernelError.of(step, reply.code)
        entries = _ENTRY_READERS[type].read(reply.bodies, parse, place=(step, body))
        if reply.bodies and not entries:
            raise KernelError(step, "no reply of the kernel is in its format")
        if not reply.is_interrupted:
            return entries
        entries_by_key.update((key(entry), entry) for entry in entries)
    return list(entries_by_key.values())


def query(
    step: str,
    type: int,
    flags: int,
    bodies: Sequence[bytes],
    parse: Callable[[bytes], T],
    absent_codes: Set[int],
) -> list[T | None]:
    """Return the object of each query. The result is None for a query that the kernel refuses with an error
    number in `absent_codes`, for an empty reply, and for an unreadable object. Raises KernelError if the
    kernel refuses a query with another error number."""
    requests = [pack_request(type, flags | ACK, QUERY_SEQUENCE, body) for body in bodies]
    objects: list[T | None] = []
    for body, reply in zip(bodies, _exchange(step, requests, _MAX_QUERIES_PER_DATAGRAM), strict=True):
        if reply.code and reply.code not in absent_codes:
            raise KernelError.of(step, reply.code)
        entries = _ENTRY_READERS[type].read(reply.bodies[-1:], parse, place=(step, body))
        objects.append(next(iter(entries), None))
    return objects


def try_changes(step: str, changes: Sequence[KernelChange]) -> list[int]:
    """Try each change, in this order. Return the error number of each change, 0 for success. Raises
    KernelError only when the socket fails."""
    requests = [
        pack_request(change.type, change.flags | ACK, _CHANGE_SEQUENCE, change.body) for change in changes
    ]
    return [reply.code for reply in _exchange(step, requests, _MAX_CHANGES_PER_DATAGRAM)]


def change(step: str, *changes: KernelChange, accept: Container[int] = ()) -> list[bool]:
    """Apply changes in this order. Return a list with True for each applied change, and False for each change
    that the kernel refused with an error number in `accept`, such as EEXIST. Raises KernelError for the first
    change that the kernel refused with another error number, or NoDevice if a device does not exist. All
    changes are tried before the exception is raised."""
    codes = try_changes(step, changes)
    for code in codes:
        if code and code not in accept:
            raise KernelError.of(step, code)
    return [not code for code in codes]


def _exchange(step: str, requests: Sequence[bytes], max_per_datagram: int = 1) -> list[Reply]:
    """Send requests, and return the reply to each request. Every request must be a dump or have the flag ACK:
    the kernel then ends each reply with DONE or ERROR. The kernel handles requests in order."""
    replies: list[Reply] = []
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
            # Strict checking: the kernel filters by table, and refuses attributes that it does not know.
            kernel.setsockopt(_SOL_NETLINK, _STRICT, 1)
            # An acknowledgement of an error doesn't repeat the request.
            kernel.setsockopt(_SOL_NETLINK, _CAP_ACK, 1)
            kernel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
            for first in range(0, len(requests), max_per_datagram):
                batch = requests[first : first + max_per_datagram]
                kernel.send(b"".join(batch))
                replies += _receive(step, kernel, len(batch))
    except OSError as error:
        raise KernelError(step, error.strerror, error.errno) from error
    return replies


def _receive(step: str, kernel: socket.socket, reply_count: int) -> list[Reply]:
    replies: list[Reply] = []
    bodies: list[bytes] = []
    interrupted = 0
    while len(replies) < reply_count:
        data, _, message_flags, (sender, _) = kernel.recvmsg(MAX_DATAGRAM_BYTES)
        if message_flags & socket.MSG_TRUNC:
            raise KernelError(step, f"a reply has more than {MAX_DATAGRAM_BYTES} bytes")
        if sender != 0:
            # Another process may send to the socket.
            continue
        for type, flags, _, body in split_messages(data):
            interrupted |= flags & INTERRUPTED
            if type in {DONE, ERROR}:
                code = -unpack(_CODE_STRUCT, body)[0] if body else 0
                replies.append(Reply(code, bodies, bool(interrupted)))
                bodies, interrupted = [], 0
            else:
                bodies.append(body)
    return replies
