"""The counters of all devices, for tens of thousands of them every few seconds.

The kernel's dump of statistics (RTM_GETSTATS, linux/if_link.h) takes a tenth of the time of one of the links,
each of which has 1,400 bytes. It has the indexes of the devices alone.
"""

import errno
import fcntl
import socket
import struct

from gateway_api.core.gateways.linux.kernel.dumps import dump
from gateway_api.core.gateways.linux.kernel.links import stats
from gateway_api.core.gateways.linux.kernel.messages import KernelError, attributes, unpacked
from gateway_api.wire.core.network import InterfaceStats

_STEP = "read the counters"
_GET_STATS = 94
_LINK_64 = 1
#: struct if_stats_msg, with a filter for the 64-bit counters.
_HEADER = struct.Struct("=BxHII")
_WANTED = _HEADER.pack(socket.AF_UNSPEC, 0, 0, 1 << (_LINK_64 - 1))
#: netdevice(7): the name of an index.
_SIOCGIFNAME = 0x8910
_IFREQ = struct.Struct("16si20x")


def device_statistics() -> dict[str, InterfaceStats]:
    """By the name of the device. Raises KernelError."""
    found = dump(_STEP, _GET_STATS, _WANTED, _statistics, lambda one: one[0])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as names:
            return {name: one for index, one in found if (name := _name(names, index)) is not None}
    except OSError as error:
        raise KernelError(_STEP, error.strerror, error.errno) from error


def _statistics(body: bytes) -> tuple[int, InterfaceStats]:
    """The index and the counters of an RTM_NEWSTATS."""
    return unpacked(_HEADER, body)[2], stats(attributes(body, _HEADER.size).get(_LINK_64))


def _name(names: socket.socket, index: int) -> str | None:
    """None for a device that is gone."""
    try:
        named = fcntl.ioctl(names, _SIOCGIFNAME, _IFREQ.pack(b"", index))
    except OSError as error:
        if error.errno in {errno.ENODEV, errno.ENXIO}:
            return None
        raise
    return named[:16].partition(b"\0")[0].decode(errors="backslashreplace")
