"""The thresholds of the kernel's neighbour tables (linux/neighbour.h; `gc_thresh` of ip-sysctl).

The kernel has one table for each family, for all network namespaces, and only the first namespace may change
it.
"""

import socket
from typing import NamedTuple

from gateway_api.core.gateways.linux.kernel import messages as nl
from gateway_api.core.gateways.linux.kernel import rtnetlink as rt
from gateway_api.core.gateways.linux.kernel.exchange import ask, dump

_TABLES: dict[int, str] = {socket.AF_INET: "arp_cache", socket.AF_INET6: "ndisc_cache"}


class Thresholds(NamedTuple):
    """Numbers of neighbours: up to the first, all stay; above the second, those not in use go within seconds;
    above the third, no new one is reached."""

    first: int
    second: int
    third: int


def thresholds(family: int) -> Thresholds | None:
    """The thresholds of a table; None where the kernel does without IPv6. Raises KernelError."""
    found = dump("read the neighbour tables", rt.RTM_GETNEIGHTBL, rt.NDTMSG.pack(family, 0), _thresholds)
    return next(filter(None, found), None)


def raise_thresholds(neighbours: int) -> bool:
    """Has each table keep so many neighbours, and reach four times as many. A higher threshold stays. False
    if all were as high. Raises KernelError: ENOENT, where the network namespace is not the first."""
    is_changed = False
    wanted = Thresholds(neighbours, 2 * neighbours, 4 * neighbours)
    for family, name in _TABLES.items():
        now = thresholds(family)
        higher = now and Thresholds(*map(max, now, wanted))
        if higher and higher != now:
            body = rt.NDTMSG.pack(family, 0) + nl.text_attribute(rt.NDTA_NAME, name)
            for number, value in enumerate(higher, rt.NDTA_THRESH1):
                body += nl.u32_attribute(number, value)
            ask("raise the thresholds of the neighbour tables", rt.RTM_SETNEIGHTBL, 0, body)
            is_changed = True
    return is_changed


def _thresholds(body: bytes) -> Thresholds | None:
    """None for the settings of a device."""
    found = nl.attributes(body, rt.NDTMSG.size)
    values = [nl.u32(found.get(number)) for number in range(rt.NDTA_THRESH1, rt.NDTA_THRESH1 + 3)]
    known = [value for value in values if value is not None]
    return Thresholds(*known) if len(known) == len(values) else None
