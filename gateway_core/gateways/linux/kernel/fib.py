"""Routes and IPv4 policy rules: parsers of the kernel's messages, and messages that change routes and rules.

A function that adds, replaces or deletes returns a message for `netlink.change`. The docstring of the
function names the error number with which the kernel refuses the message.
"""

import socket
import struct
from ipaddress import IPv4Network
from typing import NamedTuple

from gateway_contract.contract import Record
from gateway_core.gateways.linux.kernel import netlink as nl
from gateway_core.gateways.linux.kernel import rtnetlink as rt
from gateway_core.gateways.linux.kernel.netlink import KernelChange, MalformedMessage

#: Protocol number of the routes and rules that the core adds: a restarted core finds its old routes and rules
#: by this number. iproute2 6.1 and FRR 8.4 do not use the number.
OWN_PROTOCOL = 140
MAIN_TABLE = rt.RT_TABLE_MAIN

_FAMILY_STRUCT = struct.Struct("=H")
_WORST_METRIC = 0xFFFFFFFF
#: Tables below this number fit into the one-byte field of the header.
_HEADER_TABLE_COUNT = 256
# Names that `ip route` of iproute2 6.1 prints.
_PROTOCOL_NAMES = {
    0: "unspec", 1: "redirect", 2: "kernel", 3: "boot", 4: "static", 8: "gated", 9: "ra", 10: "mrt",
    11: "zebra", 12: "bird", 13: "dnrouted", 14: "xorp", 15: "ntk", 16: "dhcp", 18: "keepalived",
    42: "babel", 84: "ovn", 99: "openr", 186: "bgp", 187: "isis", 188: "ospf", 189: "rip", 192: "eigrp",
}  # fmt: skip
_SCOPE_NAMES = {0: "global", 200: "site", 253: "link", 254: "host", 255: "nowhere"}
_TYPE_NAMES = ("none", "unicast", "local", "broadcast", "anycast", "multicast", "blackhole", "unreachable",
          "prohibit", "throw", "nat", "xresolve")  # fmt: skip


class NextHop(Record, frozen=True):
    """Next hop of a route. `gateway` is None if the destination is directly on the link."""

    gateway: str | None
    ifindex: int | None


class RouteEntry(Record, frozen=True):
    """Route of the kernel. Protocol, scope and type have the names that `ip route` prints."""

    table: int
    #: Prefix with its length; the default route is 0.0.0.0/0 or ::/0.
    destination: str
    #: Empty for a route without a next hop, such as blackhole.
    next_hops: tuple[NextHop, ...]
    protocol: str
    scope: str
    type: str
    metric: int | None
    source: str | None


class FibEntry(NamedTuple):
    """Fields of a route that are needed to compare tens of thousands of routes.

    Addresses are in network byte order: 4 bytes for IPv4, 16 bytes for IPv6. `ifindex` is 0 for a route over
    several devices or without a device. An unreachable route has no device; the core adds unreachable routes
    with the worst metric.
    """

    table: int
    destination: bytes
    length: int
    ifindex: int
    gateway: bytes | None
    source: bytes | None
    is_unreachable: bool = False


class PolicyRule(Record, frozen=True):
    """IPv4 policy rule for packets from the network `source` that arrive on the device `iif`. If `source` or
    `iif` is None, the rule matches any network or any device."""

    priority: int
    table: int
    source: str | None
    iif: str | None
    protocol: int


def parse_route(body: bytes) -> RouteEntry:
    """Parse an RTM_NEWROUTE message into a route. Raises MalformedMessage if `body` is malformed."""
    family, length, _, _, table, protocol, scope, type, _ = nl.unpack(rt.RTMSG, body)
    attributes = nl.split_attributes(body, rt.RTMSG.size)
    if family not in nl.ADDRESS_BYTES or length > 8 * nl.ADDRESS_BYTES[family]:
        raise MalformedMessage("a route has no family, or a prefix that is too long")
    destination = nl.parse_address(family, attributes.get(rt.RTA_DST, bytes(nl.ADDRESS_BYTES[family])))
    return RouteEntry(
        table=_parse_table(table, attributes.get(rt.RTA_TABLE)),
        destination=f"{destination}/{length}",
        next_hops=_parse_next_hops(family, attributes),
        protocol=_PROTOCOL_NAMES.get(protocol) or str(protocol),
        scope=_SCOPE_NAMES.get(scope) or str(scope),
        type=_TYPE_NAMES[type] if type < len(_TYPE_NAMES) else str(type),
        metric=nl.parse_u32(attributes.get(rt.RTA_PRIORITY)),
        source=nl.parse_address(family, attributes[rt.RTA_PREFSRC]) if rt.RTA_PREFSRC in attributes else None,
    )


def parse_fib_entry(body: bytes) -> FibEntry:
    """Parse an RTM_NEWROUTE message into a FIB entry. Raises MalformedMessage if `body` is malformed."""
    family, length, _, _, table, _, _, type, _ = nl.unpack(rt.RTMSG, body)
    attributes = nl.split_attributes(body, rt.RTMSG.size)
    if family not in nl.ADDRESS_BYTES:
        raise MalformedMessage("a route has no family")
    return FibEntry(
        table=_parse_table(table, attributes.get(rt.RTA_TABLE)),
        destination=attributes.get(rt.RTA_DST) or bytes(nl.ADDRESS_BYTES[family]),
        length=length,
        # The kernel gives the loopback device for an unreachable IPv6 route.
        ifindex=0 if type == rt.RTN_UNREACHABLE else nl.parse_u32(attributes.get(rt.RTA_OIF)) or 0,
        gateway=attributes.get(rt.RTA_GATEWAY),
        source=attributes.get(rt.RTA_PREFSRC),
        is_unreachable=type == rt.RTN_UNREACHABLE,
    )


def parse_rule(body: bytes) -> PolicyRule:
    """Parse an RTM_NEWRULE message into a policy rule. Raises MalformedMessage if `body` is malformed."""
    _, _, length, _, table, *_ = nl.unpack(rt.RTMSG, body)
    attributes = nl.split_attributes(body, rt.RTMSG.size)
    return PolicyRule(
        priority=nl.parse_u32(attributes.get(rt.FRA_PRIORITY)) or 0,
        table=_parse_table(table, attributes.get(rt.FRA_TABLE)),
        source=f"{nl.parse_address(socket.AF_INET, attributes[rt.FRA_SRC])}/{length}"
        if rt.FRA_SRC in attributes
        else None,
        iif=nl.parse_text(attributes[rt.FRA_IIFNAME]) if rt.FRA_IIFNAME in attributes else None,
        protocol=attributes.get(rt.FRA_PROTOCOL, b"\0")[0] if attributes.get(rt.FRA_PROTOCOL) else 0,
    )


def add_route(route: FibEntry) -> KernelChange:
    """Add a route. EEXIST: the table already has a route to the destination with this metric."""
    return KernelChange(
        rt.RTM_NEWROUTE, nl.CREATE | nl.EXCLUSIVE, _pack_route(route, _determine_scope(route))
    )


def replace_route(route: FibEntry) -> KernelChange:
    """Add a route, or replace the existing route to the same destination."""
    return KernelChange(rt.RTM_NEWROUTE, nl.CREATE | nl.REPLACE, _pack_route(route, _determine_scope(route)))


def delete_route(route: FibEntry) -> KernelChange:
    """Delete a route. ESRCH: no route of the core has this destination, table and device."""
    scope = rt.RT_SCOPE_NOWHERE if len(route.destination) == 4 else rt.RT_SCOPE_UNIVERSE
    return KernelChange(rt.RTM_DELROUTE, 0, _pack_route(route, scope))


def add_rule(rule: PolicyRule) -> KernelChange:
    """Add a rule. EEXIST: the rule already exists."""
    return KernelChange(rt.RTM_NEWRULE, nl.CREATE | nl.EXCLUSIVE, _pack_rule(rule))


def delete_rule(rule: PolicyRule) -> KernelChange:
    """Delete a rule. ENOENT: the rule does not exist."""
    return KernelChange(rt.RTM_DELRULE, 0, _pack_rule(rule))


def _parse_table(header_table: int, attribute: bytes | None) -> int:
    """Return the number of a routing table: `attribute` if the message has the attribute, otherwise
    `header_table`. The field of the header has one byte, too small for numbers above 255."""
    return header_table if attribute is None else nl.parse_u32(attribute) or 0


def _parse_next_hops(family: int, attributes: dict[int, bytes]) -> tuple[NextHop, ...]:
    if rt.RTA_MULTIPATH not in attributes:
        hop = NextHop(_parse_gateway(family, attributes), nl.parse_u32(attributes.get(rt.RTA_OIF)))
        return () if hop == NextHop(None, None) else (hop,)
    hops, data, offset = [], attributes[rt.RTA_MULTIPATH], 0
    while offset < len(data):
        length, _, _, ifindex = nl.unpack(rt.RTNEXTHOP, data, offset)
        if not rt.RTNEXTHOP.size <= length <= len(data) - offset:
            raise MalformedMessage("the length of a next hop is wrong")
        hop_attributes = nl.split_attributes(data[offset : offset + length], rt.RTNEXTHOP.size)
        hops.append(NextHop(_parse_gateway(family, hop_attributes), ifindex))
        offset += (length + 3) & ~3
    return tuple(hops)


def _parse_gateway(family: int, attributes: dict[int, bytes]) -> str | None:
    if rt.RTA_GATEWAY in attributes:
        return nl.parse_address(family, attributes[rt.RTA_GATEWAY])
    if rt.RTA_VIA in attributes:
        # The gateway has another address family than the destination: IPv4 over IPv6 (RFC 5549).
        via = attributes[rt.RTA_VIA]
        return nl.parse_address(nl.unpack(_FAMILY_STRUCT, via)[0], via[_FAMILY_STRUCT.size :])
    return None


def _determine_scope(route: FibEntry) -> int:
    is_on_link = len(route.destination) == 4 and route.gateway is None and not route.is_unreachable
    return rt.RT_SCOPE_LINK if is_on_link else rt.RT_SCOPE_UNIVERSE


def _pack_route(route: FibEntry, scope: int) -> bytes:
    family = socket.AF_INET if len(route.destination) == 4 else socket.AF_INET6
    header_table = route.table if route.table < _HEADER_TABLE_COUNT else 0
    type = rt.RTN_UNREACHABLE if route.is_unreachable else rt.RTN_UNICAST
    body = rt.RTMSG.pack(family, route.length, 0, 0, header_table, OWN_PROTOCOL, scope, type, 0)
    body += nl.pack_u32(rt.RTA_TABLE, route.table) + nl.pack_attribute(rt.RTA_DST, route.destination)
    if route.is_unreachable:
        body += nl.pack_u32(rt.RTA_PRIORITY, _WORST_METRIC)
    else:
        body += nl.pack_u32(rt.RTA_OIF, route.ifindex)
    if route.gateway is not None:
        body += nl.pack_attribute(rt.RTA_GATEWAY, route.gateway)
    if route.source is not None:
        body += nl.pack_attribute(rt.RTA_PREFSRC, route.source)
    return body


def _pack_rule(rule: PolicyRule) -> bytes:
    source = None if rule.source is None else IPv4Network(rule.source)
    length = source.prefixlen if source else 0
    header_table = rule.table if rule.table < _HEADER_TABLE_COUNT else 0
    body = rt.RTMSG.pack(socket.AF_INET, 0, length, 0, header_table, 0, 0, rt.FR_ACT_TO_TBL, 0)
    body += nl.pack_u32(rt.FRA_TABLE, rule.table) + nl.pack_u32(rt.FRA_PRIORITY, rule.priority)
    body += nl.pack_attribute(rt.FRA_PROTOCOL, bytes([rule.protocol]))
    if source is not None:
        body += nl.pack_attribute(rt.FRA_SRC, source.network_address.packed)
    if rule.iif is not None:
        body += nl.pack_text(rt.FRA_IIFNAME, rule.iif)
    return body
