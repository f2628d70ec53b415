"""The thresholds of the kernel's neighbour tables (linux/neighbour.h; `gc_thresh` of ip-sysctl).

The kernel has one table for each family, for all network namespaces, and only the first namespace may change
it.
"""

import socket
import struct
from typing import NamedTuple

from gateway_api.core.gateways.linux.kernel import messages as nl
from gateway_api.core.gateways.linux.kernel.dumps import ask, dump

_GET_TABLE, _SET_TABLE = 66, 67
_HEADER = struct.Struct("=BBH")
_NAME, _FIRST_THRESHOLD = 1, 2
_TABLES: dict[int, bytes] = {socket.AF_INET: b"arp_cache\0", socket.AF_INET6: b"ndisc_cache\0"}


class Thresholds(NamedTuple):
    """Numbers of neighbours: up to the first, all stay; above the second, those not in use go within seconds;
    above the third, no new one is reached."""

    first: int
    second: int
    third: int


def thresholds(family: int) -> Thresholds | None:
    """The thresholds of a table; None where the kernel does without IPv6. Raises KernelError."""
    found = dump("read the neighbour tables", _GET_TABLE, _HEADER.pack(family, 0, 0), _thresholds)
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
            body = _HEADER.pack(family, 0, 0) + nl.attribute(_NAME, name)
            for number, value in enumerate(higher, _FIRST_THRESHOLD):
                body += nl.attribute(number, struct.pack("=I", value))
            ask("raise the thresholds of the neighbour tables", _SET_TABLE, 0, body)
            is_changed = True
    return is_changed


def _thresholds(body: bytes) -> Thresholds | None:
    """None for the settings of a device."""
    found = nl.attributes(body, _HEADER.size)
    values = [nl.u32(found.get(number)) for number in range(_FIRST_THRESHOLD, _FIRST_THRESHOLD + 3)]
    known = [value for value in values if value is not None]
    return Thresholds(*known) if len(known) == len(values) else None
