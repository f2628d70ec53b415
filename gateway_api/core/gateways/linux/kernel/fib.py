"""Routes and rules of the kernel, from its messages (rtnetlink(7); linux/rtnetlink.h and fib_rules.h)."""

import socket
import struct

from gateway_api.core.gateways.linux.kernel.messages import (
    MalformedMessage,
    address,
    attributes,
    text,
    u32,
    unpacked,
)
from gateway_api.wire.contract import Record
from gateway_api.wire.core.network import AddressFamily

#: What the core adds carries this protocol, so that a later core finds what an earlier one left. No protocol
#: of iproute2 6.1 or FRR 8.4 has the number.
OWN_PROTOCOL = 140

_HEADER = struct.Struct("=8BI")
_HOP = struct.Struct("=HBBi")
_FAMILY = struct.Struct("=H")

# Attributes of a route.
_DST, _OIF, _GATEWAY, _METRIC, _SOURCE, _MULTIPATH, _TABLE, _VIA = 1, 4, 5, 6, 7, 9, 15, 18
# Attributes of a rule, whose table has the number of the route's.
_FROM, _IIF, _PRIORITY, _PROTOCOL = 2, 3, 6, 21

_FAMILIES: dict[int, AddressFamily] = {
    socket.AF_INET: AddressFamily.INET,
    socket.AF_INET6: AddressFamily.INET6,
}
_BYTES: dict[int, int] = {socket.AF_INET: 4, socket.AF_INET6: 16}
# As `ip route` of iproute2 6.1 prints them.
_PROTOCOLS = {
    0: "unspec", 1: "redirect", 2: "kernel", 3: "boot", 4: "static", 8: "gated", 9: "ra", 10: "mrt",
    11: "zebra", 12: "bird", 13: "dnrouted", 14: "xorp", 15: "ntk", 16: "dhcp", 18: "keepalived",
    42: "babel", 84: "ovn", 99: "openr", 186: "bgp", 187: "isis", 188: "ospf", 189: "rip", 192: "eigrp",
}  # fmt: skip
_SCOPES = {0: "global", 200: "site", 253: "link", 254: "host", 255: "nowhere"}
_TYPES = ("none", "unicast", "local", "broadcast", "anycast", "multicast", "blackhole", "unreachable",
          "prohibit", "throw", "nat", "xresolve")  # fmt: skip


class NextHop(Record, frozen=True):
    """Where a route leads. `gateway` is None when the destination is on the link itself."""

    gateway: str | None
    ifindex: int | None


class RouteEntry(Record, frozen=True):
    """A route of the kernel. Texts are those of `ip route`."""

    family: AddressFamily
    table: int
    #: With the length of the prefix; the default route is 0.0.0.0/0 or ::/0.
    destination: str
    #: Empty for a route that leads nowhere, such as blackhole.
    next_hops: tuple[NextHop, ...]
    protocol: str
    scope: str
    type: str
    metric: int | None
    source: str | None


class Rule(Record, frozen=True):
    """An IPv4 policy rule. `source` is a network, None for any. `iif` is the device on which a packet
    arrived; it may be gone."""

    priority: int
    table: int
    source: str | None
    iif: str | None
    protocol: int


def route(body: bytes) -> RouteEntry:
    """The route of an RTM_NEWROUTE."""
    family, length, _, _, table, protocol, scope, type, _ = unpacked(_HEADER, body)
    found = attributes(body, _HEADER.size)
    if family not in _FAMILIES or length > 8 * _BYTES[family]:
        raise MalformedMessage("a route has no family, or a prefix that is too long")
    destination = address(family, found.get(_DST, bytes(_BYTES[family])))
    listed = found.get(_TABLE)
    return RouteEntry(
        family=_FAMILIES[family],
        # The field of the header holds 255 tables.
        table=table if listed is None else u32(listed) or 0,
        destination=f"{destination}/{length}",
        next_hops=_hops(family, found),
        protocol=_PROTOCOLS.get(protocol) or str(protocol),
        scope=_SCOPES.get(scope) or str(scope),
        type=_TYPES[type] if type < len(_TYPES) else str(type),
        metric=u32(found.get(_METRIC)),
        source=address(family, found[_SOURCE]) if _SOURCE in found else None,
    )


def rule(body: bytes) -> Rule:
    """The rule of an RTM_NEWRULE."""
    _, _, length, _, table, *_ = unpacked(_HEADER, body)
    found = attributes(body, _HEADER.size)
    listed = found.get(_TABLE)
    return Rule(
        priority=u32(found.get(_PRIORITY)) or 0,
        table=table if listed is None else u32(listed) or 0,
        source=f"{address(socket.AF_INET, found[_FROM])}/{length}" if _FROM in found else None,
        iif=text(found[_IIF]) if _IIF in found else None,
        protocol=found.get(_PROTOCOL, b"\0")[0] if found.get(_PROTOCOL) else 0,
    )


def _hops(family: int, found: dict[int, bytes]) -> tuple[NextHop, ...]:
    if _MULTIPATH not in found:
        hop = NextHop(_gateway(family, found), u32(found.get(_OIF)))
        return () if hop == NextHop(None, None) else (hop,)
    hops, data, offset = [], found[_MULTIPATH], 0
    while offset < len(data):
        length, _, _, ifindex = unpacked(_HOP, data, offset)
        if not _HOP.size <= length <= len(data) - offset:
            raise MalformedMessage("the length of a next hop is wrong")
        hop_attributes = attributes(data[offset : offset + length], _HOP.size)
        hops.append(NextHop(_gateway(family, hop_attributes), ifindex))
        offset += (length + 3) & ~3
    return tuple(hops)


def _gateway(family: int, found: dict[int, bytes]) -> str | None:
    if _GATEWAY in found:
        return address(family, found[_GATEWAY])
    if _VIA in found:
        # Of another family than the destination: IPv4 over IPv6 (RFC 5549).
        via = found[_VIA]
        return address(unpacked(_FAMILY, via)[0], via[_FAMILY.size :])
    return None
