"""Changes of routes, rules and settings of devices, many in one message to the kernel (rtnetlink(7)).

pyroute2 takes a third of a millisecond for each; 10,000 routes of sessions must move in less than a second.
"""

import os
import socket
import struct
from collections.abc import Sequence
from ipaddress import IPv4Network
from typing import NamedTuple

from gateway_api.core.gateways.linux.kernel import messages as nl
from gateway_api.core.gateways.linux.kernel.dumps import DATAGRAM
from gateway_api.core.gateways.linux.kernel.entries import UNREACHABLE, FibEntry
from gateway_api.core.gateways.linux.kernel.fib import OWN_PROTOCOL, Rule
from gateway_api.core.gateways.linux.kernel.messages import KernelError

_SET_LINK, _NEW_ROUTE, _DEL_ROUTE, _NEW_RULE, _DEL_RULE = 19, 24, 25, 32, 33
_REPLACE, _EXCLUSIVE, _CREATE = 0x100, 0x200, 0x400

#: Of linux/rtnetlink.h, for routes, and linux/fib_rules.h, for rules.
_FIB = struct.Struct("=8BI")
_DST, _OIF, _GATEWAY, _METRIC, _PREFERRED_SOURCE, _TABLE = 1, 4, 5, 6, 7, 15
_FROM, _IIF, _PRIORITY, _PROTOCOL = 2, 3, 6, 21
_UNICAST, _LOOK_UP = 1, 1
_UNIVERSE, _ON_LINK, _ANY_SCOPE = 0, 253, 255
_WORST_METRIC = 0xFFFFFFFF
_SHORT_TABLES = 256

#: Of linux/rtnetlink.h, if_link.h and ip.h, for a device and its settings of IPv4.
_LINK = struct.Struct("=BxHiII")
_SETTINGS, _OF_IPV4, _PROXY_ARP = 26, 1, 3

#: Replies to so many fit into the buffer of a socket.
_AT_ONCE = 100


class KernelChange(NamedTuple):
    """A message that changes something."""

    type: int
    flags: int
    body: bytes


def add_route(route: FibEntry) -> KernelChange:
    """Refused with EEXIST if there is a route to the destination, in this table, with this metric."""
    return KernelChange(_NEW_ROUTE, _CREATE | _EXCLUSIVE, _route(route, _scope(route)))


def replace_route(route: FibEntry) -> KernelChange:
    """Puts it in the place of the route to the destination, if there is one."""
    return KernelChange(_NEW_ROUTE, _CREATE | _REPLACE, _route(route, _scope(route)))


def delete_route(route: FibEntry) -> KernelChange:
    """Refused with ESRCH if the core added no such route."""
    return KernelChange(
        _DEL_ROUTE, 0, _route(route, _ANY_SCOPE if len(route.destination) == 4 else _UNIVERSE)
    )


def add_rule(rule: Rule) -> KernelChange:
    """Refused with EEXIST if it is there."""
    return KernelChange(_NEW_RULE, _CREATE | _EXCLUSIVE, _rule(rule))


def delete_rule(rule: Rule) -> KernelChange:
    return KernelChange(_DEL_RULE, 0, _rule(rule))


def proxy_arp(ifindex: int) -> KernelChange:
    """Has the kernel answer ARP requests on a device for addresses that it reaches by another (ip-sysctl).
    The service of the core cannot write to /proc/sys."""
    setting = nl.attribute(_OF_IPV4, _u32(_PROXY_ARP, 1))
    settings = nl.attribute(_SETTINGS, nl.attribute(socket.AF_INET, setting))
    return KernelChange(_SET_LINK, 0, _LINK.pack(0, 0, ifindex, 0, 0) + settings)


def make(step: str, changes: Sequence[KernelChange]) -> list[int]:
    """Makes changes in this order, each by itself. Returns an error number for each, 0 for one that was made.
    Any thread may call. Raises KernelError when the socket fails."""
    codes: list[int] = []
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
            for first in range(0, len(changes), _AT_ONCE):
                codes += _made(kernel, changes[first : first + _AT_ONCE])
    except OSError as error:
        raise KernelError(step, error.strerror, error.errno) from error
    return codes


def refusal(step: str, code: int) -> KernelError:
    """The error for an error number of `make`."""
    return KernelError(step, os.strerror(code), code)


def _made(kernel: socket.socket, changes: Sequence[KernelChange]) -> list[int]:
    kernel.send(
        b"".join(
            nl.request(change.type, nl.ACK | change.flags, number, change.body)
            for number, change in enumerate(changes)
        )
    )
    codes: dict[int, int] = {}
    while len(codes) < len(changes):
        data, _, _, (sender, _) = kernel.recvmsg(DATAGRAM)
        if sender != 0:
            # Another process may send to the socket.
            continue
        for type, _, number, body in nl.messages(data):
            if type == nl.ERROR:
                codes[number] = nl.error_code(body)
    return [codes[number] for number in range(len(changes))]


def _scope(route: FibEntry) -> int:
    is_on_link = len(route.destination) == 4 and route.gateway is None and not route.is_unreachable
    return _ON_LINK if is_on_link else _UNIVERSE


def _route(route: FibEntry, scope: int) -> bytes:
    family = socket.AF_INET if len(route.destination) == 4 else socket.AF_INET6
    short = route.table if route.table < _SHORT_TABLES else 0
    type = UNREACHABLE if route.is_unreachable else _UNICAST
    body = _FIB.pack(family, route.length, 0, 0, short, OWN_PROTOCOL, scope, type, 0)
    body += _u32(_TABLE, route.table) + nl.attribute(_DST, route.destination)
    body += _u32(_METRIC, _WORST_METRIC) if route.is_unreachable else _u32(_OIF, route.ifindex)
    if route.gateway is not None:
        body += nl.attribute(_GATEWAY, route.gateway)
    if route.source is not None:
        body += nl.attribute(_PREFERRED_SOURCE, route.source)
    return body


def _rule(rule: Rule) -> bytes:
    source = None if rule.source is None else IPv4Network(rule.source)
    short = rule.table if rule.table < _SHORT_TABLES else 0
    body = _FIB.pack(socket.AF_INET, 0, source.prefixlen if source else 0, 0, short, 0, 0, _LOOK_UP, 0)
    body += _u32(_TABLE, rule.table) + _u32(_PRIORITY, rule.priority)
    body += nl.attribute(_PROTOCOL, bytes([rule.protocol]))
    if source is not None:
        body += nl.attribute(_FROM, source.network_address.packed)
    if rule.iif is not None:
        body += nl.attribute(_IIF, rule.iif.encode() + b"\0")
    return body


def _u32(type: int, value: int) -> bytes:
    return nl.attribute(type, struct.pack("=I", value))
