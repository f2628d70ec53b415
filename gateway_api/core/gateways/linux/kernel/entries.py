"""Entries: the few fields of links, qdiscs and routes that a comparison needs, for tens of thousands of each.

To parse all attributes of a message, as the records of the other modules do, takes five times as long.
"""

import socket
import struct
from typing import NamedTuple

from gateway_api.core.gateways.linux.kernel.messages import MalformedMessage, attributes, text, u32, unpacked

_LINK = struct.Struct("=BxHiII")
_LINK_NAME = 3
_TC = struct.Struct("=BxxxiIII")
_KIND = 1
_ROUTE = struct.Struct("=8BI")
#: The type of a route for which packets are refused with ICMP (RTN_UNREACHABLE of linux/rtnetlink.h).
UNREACHABLE = 7
_DST, _OIF, _GATEWAY, _SOURCE, _TABLE = 1, 4, 5, 7, 15
_ATTRIBUTE = struct.Struct("=HH")

_ETHERNET = 1
_UP = 1
_BYTES: dict[int, int] = {socket.AF_INET: 4, socket.AF_INET6: 16}


class LinkEntry(NamedTuple):
    """A device."""

    ifindex: int
    name: str
    is_up: bool
    has_ethernet_header: bool


class QdiscEntry(NamedTuple):
    """A qdisc of a device, by index."""

    ifindex: int
    parent: int
    handle: int
    kind: str


class FibEntry(NamedTuple):
    """A route. Addresses are in network byte order; the length of the destination tells the family. `ifindex`
    is 0 for a route over several devices, or none. One that is unreachable has no device, and the worst
    metric where it is the core's."""

    table: int
    destination: bytes
    length: int
    ifindex: int
    gateway: bytes | None
    source: bytes | None
    is_unreachable: bool = False


def link_entry(body: bytes) -> LinkEntry:
    """The link of an RTM_NEWLINK."""
    _, type, index, flags, _ = unpacked(_LINK, body)
    return LinkEntry(index, _named(body, _LINK.size, _LINK_NAME), bool(flags & _UP), type == _ETHERNET)


def qdisc_entry(body: bytes) -> QdiscEntry:
    """The qdisc of an RTM_NEWQDISC."""
    _, ifindex, handle, parent, _ = unpacked(_TC, body)
    return QdiscEntry(ifindex, parent, handle, _named(body, _TC.size, _KIND))


def fib_entry(body: bytes) -> FibEntry:
    """The route of an RTM_NEWROUTE."""
    family, length, _, _, table, _, _, type, _ = unpacked(_ROUTE, body)
    found = attributes(body, _ROUTE.size)
    if family not in _BYTES:
        raise MalformedMessage("a route has no family")
    listed = found.get(_TABLE)
    return FibEntry(
        table=table if listed is None else u32(listed) or 0,
        destination=found.get(_DST) or bytes(_BYTES[family]),
        length=length,
        ifindex=u32(found.get(_OIF)) or 0,
        gateway=found.get(_GATEWAY),
        source=found.get(_SOURCE),
        is_unreachable=type == UNREACHABLE,
    )


def _named(body: bytes, offset: int, type: int) -> str:
    """The text of an attribute, which the kernel puts first."""
    if len(body) >= offset + _ATTRIBUTE.size:
        length, first = _ATTRIBUTE.unpack_from(body, offset)
        if first == type and length <= len(body) - offset:
            return text(body[offset + _ATTRIBUTE.size : offset + length])
    found = attributes(body, offset)
    if type not in found:
        raise MalformedMessage("a link has no name, or a qdisc no kind")
    return text(found[type])
