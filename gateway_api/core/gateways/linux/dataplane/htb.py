"""The limit of one device: HTB as root, one class for all packets, and fq_codel in it."""

import errno
import logging
from functools import partial
from typing import Any

from gateway_api.core.gateways.linux.kernel.entries import QdiscEntry
from gateway_api.core.gateways.linux.kernel.kernel import unless
from gateway_api.core.gateways.linux.kernel.links import Link
from gateway_api.core.gateways.linux.kernel.qdiscs import ROOT, HtbClass, Qdisc
from gateway_api.core.gateways.linux.kernel.reader import KernelReader
from gateway_api.wire.core.network import OverheadProfile

log = logging.getLogger(__name__)

CLASS = 0x10010
_HTB, _LEAF = 0x10000, 0x110000
#: The number of the class in HTB, which gets all packets.
_DEFAULT = 0x10

_ETHERNET_HEADER = 14
#: Bytes a second. Below it, one packet takes minutes, and the kernel can't count its burst.
_LEAST_RATE = 1000
#: A class sends so much at once: less makes timers limit the rate, more fills the buffers behind it.
_BURST_SECONDS = 0.005
_LEAST_BURST = 2 * 1600
# The kernel divides a rate by 10 for the quantum, and logs a warning for each class where it is over 200,000.
_QUANTUM = 3000

_FQ_CODEL, _PFIFO = "fq_codel", "pfifo"
#: Of fq_codel, for one subscriber. The kernel's 1024 take 64 kB, which is 1.3 GB for 10,000 sessions.
_FLOWS = 256
# pyroute2 0.9 warns at each use of it that the parameter's name may change.
logging.getLogger("pyroute2.netlink.rtnl.tcmsg.sched_fq_codel").setLevel(logging.ERROR)
#: Packets, some 100 ms at 20 Mbit/s. Without a limit, HTB takes that of the device, which is 3 for ppp.
_PFIFO_LIMIT = 170

#: Error numbers for a thing to remove that went by itself.
GONE = (errno.ENODEV, errno.ENOENT, errno.EINVAL)


class Htb:
    """Sets the limits of devices, on the thread of the `Kernel`."""

    def __init__(self, reader: KernelReader) -> None:
        self._reader = reader
        self._leaf = _FQ_CODEL

    def set(self, ip: Any, link: Link, wanted: HtbClass) -> bool:
        """Limits a device. True when something was missing or different. A class changes in place."""
        changed = False
        root = self._reader.qdisc(link.index, ROOT)
        if root is None or not is_ours(root):
            if root is not None and root.handle:
                # Only one that someone made has a handle. The kernel's default has none, and gives way.
                ip.tc("del", root.kind, link.index, root.handle, parent=ROOT)
            ip.tc("add", "htb", link.index, _HTB, default=_DEFAULT)
            changed = True
        if wanted not in self._reader.classes(link.index):
            _set_class(ip, link.index, wanted)
            changed = True
        leaf = self._reader.qdisc(link.index, CLASS)
        if leaf is None or (leaf.kind, leaf.handle) != (self._leaf, _LEAF):
            # HTB's own queue, which a class has without another, has no handle, and gives way.
            if leaf is not None and leaf.handle:
                ip.tc("del", leaf.kind, link.index, leaf.handle, parent=CLASS)
            self._add_leaf(ip, link.index)
            changed = True
        return changed

    def remove(self, ip: Any, link: Link) -> bool:
        """True when there was a limit."""
        root = self._reader.qdisc(link.index, ROOT)
        if root is None or not is_ours(root):
            return False
        return unless(*GONE, change=lambda: ip.tc("del", "htb", link.index, _HTB))

    def entries(self, ifindex: int) -> tuple[QdiscEntry, QdiscEntry]:
        """The qdiscs of a device with a limit: the root, and the queue in its class."""
        return QdiscEntry(ifindex, ROOT, _HTB, "htb"), QdiscEntry(ifindex, CLASS, _LEAF, self._leaf)

    def limit(self, ifindex: int) -> int | None:
        """The limit of a device now, bits per second."""
        return next((8 * each.ceil for each in self._reader.classes(ifindex) if each.handle == CLASS), None)

    def _add_leaf(self, ip: Any, ifindex: int) -> None:
        add = partial(ip.tc, "add", _FQ_CODEL, ifindex, _LEAF, parent=CLASS, fqc_flows=_FLOWS)
        if self._leaf == _FQ_CODEL and unless(errno.ENOENT, change=add):
            return
        # The same error may say that the class is gone: then this fails, too.
        ip.tc("add", _PFIFO, ifindex, _LEAF, parent=CLASS, limit=_PFIFO_LIMIT)
        if self._leaf != _PFIFO:
            self._leaf = _PFIFO
            log.warning("the kernel has no fq_codel: sessions get a plain queue of %d packets", _PFIFO_LIMIT)


def is_ours(root: Qdisc) -> bool:
    """True for HTB as `Htb` makes it."""
    return root.kind == "htb" and root.handle == _HTB and root.default_class == _DEFAULT


def limit_of(bps: int, profile: OverheadProfile, *, has_ethernet_header: bool) -> HtbClass:
    """The class for packets of a session's device. A profile counts from the IP packet; where the kernel
    counts the Ethernet header already, it isn't added again."""
    rate = max(bps // 8, _LEAST_RATE)
    counted = _ETHERNET_HEADER if has_ethernet_header else 0
    return HtbClass(CLASS, rate, rate, max(profile.overhead - counted, 0), profile.mpu)


def _set_class(ip: Any, ifindex: int, wanted: HtbClass) -> None:
    """Adds the class, or changes it in place."""
    # pyroute2 reads a number as bytes a second, a text as bits.
    rate = f"{8 * wanted.rate}bit"
    burst = max(int(wanted.rate * _BURST_SECONDS), _LEAST_BURST)
    ip.tc(
        "replace-class", "htb", ifindex, wanted.handle, parent=_HTB, rate=rate, ceil=rate, burst=burst,
        cburst=burst, overhead=wanted.overhead, mpu=wanted.mpu, quantum=_QUANTUM,
    )  # fmt: skip
