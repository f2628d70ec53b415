"""Shapes sessions: downstream on the session's device, upstream on an IFB of its own.

Each of both devices has HTB as root, one class, and fq_codel in it. What arrives from the subscriber is
redirected to the IFB. Rates change in place: no qdisc goes, no packet is lost.
"""

import errno
import logging
import threading
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial

from gateway_api.core.gateways.linux.kernel.exchange import change
from gateway_api.core.gateways.linux.kernel.links import (
    IFB,
    Link,
    LinkEntry,
    add_ifb,
    delete_group,
    set_group,
    set_up,
)
from gateway_api.core.gateways.linux.kernel.messages import KernelChange, KernelError, NoDevice
from gateway_api.core.gateways.linux.kernel.qdiscs import (
    INGRESS,
    INGRESS_HANDLE,
    ROOT,
    HtbClass,
    PacketFilter,
    Qdisc,
    QdiscEntry,
    add_fq_codel,
    add_htb,
    add_ingress,
    add_pfifo,
    add_redirect,
    delete_qdisc,
    delete_redirects,
    set_class,
)
from gateway_api.core.gateways.linux.kernel.reader import KernelReader
from gateway_api.core.sessions.session import IFB_PREFIX, LONGEST_NAME
from gateway_api.wire.core.network import OverheadProfile

_log = logging.getLogger(__name__)

CLASS = 0x10010
#: The number of the class in HTB, which gets all packets.
_DEFAULT = 0x10
_HTB = Qdisc("htb", 0x10000, _DEFAULT)
_LEAF = 0x110000
_FQ_CODEL, _PFIFO = Qdisc("fq_codel", _LEAF), Qdisc("pfifo", _LEAF)
_INGRESS = Qdisc("ingress", INGRESS_HANDLE)

_ETHERNET_HEADER = 14
#: Bytes a second. Below it, one packet takes minutes, and the kernel can't count its burst.
_LEAST_RATE = 1000
#: A class sends so much at once: less makes timers limit the rate, more fills the buffers behind it.
_BURST_SECONDS = 0.005
_LEAST_BURST = 2 * 1600
# The kernel divides a rate by 10 for the quantum, and logs a warning for each class where it is over 200,000.
_QUANTUM = 3000
#: Of fq_codel, for one subscriber. The kernel's 1024 take 64 kB, which is 1.3 GB for 10,000 sessions.
_FLOWS = 256
#: Packets, some 100 ms at 20 Mbit/s. Without a limit, HTB takes that of the device, which is 3 for ppp.
_PFIFO_LIMIT = 170

#: The priority of the redirect among the filters of a device.
_PRIORITY = 10
#: The group of IFBs that go: the kernel removes a group in one step. Nothing else has this number.
_OUTGOING = 0x47415445
#: Error numbers for a thing to remove that went by itself.
_GONE = {errno.ENODEV, errno.ENOENT, errno.EINVAL}


class Shaper:
    """Shapes sessions. Any thread may call. Methods raise KernelError, and NoDevice when a device goes in the
    middle. A rate is in bits per second; 0 is no limit, and the least limit is 8 kbit/s."""

    def __init__(self, reader: KernelReader) -> None:
        self._reader = reader
        # Held during changes: two at once would share the group of IFBs that go.
        self._lock = threading.Lock()
        #: The queue of a class, as the kernel has it.
        self._leaf = _FQ_CODEL

    def shape_downstream(self, interface: str, bps: int, profile: OverheadProfile) -> bool:
        """Limits what is sent to a session. True when something was missing or different."""
        step = f"shape {interface}"
        with self._lock:
            link = self._reader.link(interface)
            if bps:
                return self._set_limit(step, link, _limit(bps, profile, link))
            return self._remove_limit(step, link)

    def shape_upstream(self, interface: str, ifb: str, bps: int, profile: OverheadProfile) -> bool:
        """Limits what a session sends. True when something was missing or different."""
        step = f"shape {interface} by {ifb}"
        with self._lock:
            link = self._reader.link(interface)
            if not bps:
                is_changed = self._remove_redirect(step, link)
                return self._remove_ifbs(step, [ifb]) or is_changed
            device = self._ifb(step, ifb)
            # Before it is up: then the kernel need not wait until no processor uses its former queue.
            is_changed = self._set_limit(step, device, _limit(bps, profile, link))
            if not device.is_up:
                is_changed |= any(change(step, set_up(device.index)))
            # Last: packets to an IFB that is down, or gone, are lost.
            return self._set_redirect(step, link, device) or is_changed

    def entries(self, ifindex: int, ifb: int) -> tuple[tuple[QdiscEntry, ...], tuple[QdiscEntry, ...]]:
        """The qdiscs of a session with limits each way, by the indexes of device and IFB: for the downstream,
        and for the upstream."""
        down, up = (
            (
                QdiscEntry(index, ROOT, _HTB.handle, _HTB.kind),
                QdiscEntry(index, CLASS, self._leaf.handle, self._leaf.kind),
            )
            for index in (ifindex, ifb)
        )
        return down, (QdiscEntry(ifindex, INGRESS, _INGRESS.handle, _INGRESS.kind), *up)

    def is_exact(
        self, link: LinkEntry, ifb: LinkEntry | None, down_bps: int, up_bps: int, profile: OverheadProfile
    ) -> bool:
        """True when the rates and the redirect of a session, which has all qdiscs, are those wanted."""
        limit = partial(_limit, profile=profile, link=link)
        if down_bps and limit(down_bps) not in self._reader.classes(link.ifindex):
            return False
        if not up_bps:
            return not self._our_filters(link.ifindex)
        return (
            ifb is not None
            and limit(up_bps) in self._reader.classes(ifb.ifindex)
            and self._our_filters(link.ifindex) == [PacketFilter(_PRIORITY, ifb.ifindex)]
        )

    def unshape(self, *sessions: tuple[str, str]) -> None:
        """Removes all limits of sessions, by the names of device and IFB. The devices may be gone. The kernel
        takes 20 ms for each IFB alone, and as long for many at once."""
        step, ifbs = f"remove the limits of {len(sessions)} sessions", []
        with self._lock:
            for interface, ifb in sessions:
                try:
                    link = self._reader.link(interface)
                    self._remove_redirect(step, link)
                    self._remove_limit(step, link)
                except NoDevice:
                    # What it had went with it.
                    pass
                # A device of others, with the name of an IFB, keeps nothing else from going.
                if self._is_ifb(ifb):
                    ifbs.append(ifb)
            self._remove_ifbs(step, ifbs)

    def remove_surplus(
        self, links: Mapping[str, LinkEntry], qdiscs: Iterable[QdiscEntry], kept: Container[object]
    ) -> list[str]:
        """Removes IFBs named like ours, and limits of devices that are redirected to one, unless their names
        are kept. Returns the names. The kernel has these links and qdiscs."""
        names = {link.ifindex: name for name, link in links.items()}
        ifbs = {index for index, name in names.items() if name.startswith(IFB_PREFIX)}
        surplus = {}
        for qdisc in qdiscs:
            name = names.get(qdisc.ifindex)
            if qdisc.parent == INGRESS and name is not None and name not in kept:
                for each in self._our_filters(qdisc.ifindex):
                    # The index is 0 when the IFB is gone.
                    if each.redirect == 0 or each.redirect in ifbs:
                        surplus[name] = names.get(each.redirect, IFB_PREFIX + name)
        alone = {names[index] for index in ifbs} - set(surplus.values())
        removed = {name: name for name in alone if name not in kept and self._is_ifb(name)} | surplus
        if removed:
            self.unshape(*removed.items())
        return list(removed)

    def _set_limit(self, step: str, link: Link, wanted: HtbClass) -> bool:
        """Limits what a device sends. True when something was missing or different. A class changes in
        place."""
        index, changes = link.index, list[KernelChange]()
        root, leaf = self._reader.qdisc(index, ROOT), None
        if root != _HTB:
            _make_room(step, index, ROOT, root)
            changes.append(add_htb(index, _HTB.handle, _DEFAULT))
        else:
            leaf = self._reader.qdisc(index, CLASS)
        if root != _HTB or wanted not in self._reader.classes(index):
            burst = max(int(wanted.rate * _BURST_SECONDS), _LEAST_BURST)
            changes.append(set_class(index, _HTB.handle, wanted, burst, _QUANTUM))
        if changes:
            change(step, *changes)
        if leaf == self._leaf:
            return bool(changes)
        _make_room(step, index, CLASS, leaf)
        self._add_leaf(step, index)
        return True

    def _add_leaf(self, step: str, index: int) -> None:
        if self._leaf == _FQ_CODEL:
            fq_codel = add_fq_codel(index, CLASS, _LEAF, _FLOWS)
            if any(change(step, fq_codel, accept={errno.ENOENT})):
                return
        # The same error may say that the class is gone: then this fails, too.
        change(step, add_pfifo(index, CLASS, _LEAF, _PFIFO_LIMIT))
        if self._leaf != _PFIFO:
            self._leaf = _PFIFO
            _log.warning("the kernel has no fq_codel: sessions get a plain queue of %d packets", _PFIFO_LIMIT)

    def _remove_limit(self, step: str, link: Link) -> bool:
        """True when there was a limit."""
        if self._reader.qdisc(link.index, ROOT) != _HTB:
            return False
        return any(change(step, delete_qdisc(link.index, ROOT, _HTB), accept=_GONE))

    def _is_ifb(self, name: str) -> bool:
        try:
            return self._reader.link(name).kind == IFB
        except NoDevice:
            return False

    def _ifb(self, step: str, name: str) -> Link:
        """The IFB, which is made if there is none."""
        try:
            link = self._reader.link(name)
        except NoDevice:
            if len(name) > LONGEST_NAME:
                reason = f"a name has at most {LONGEST_NAME} bytes"
                raise KernelError(f"make the IFB {name}", reason) from None
            change(step, add_ifb(name))
            link = self._reader.link(name)
        if link.kind != IFB:
            raise KernelError(f"shape by {name}", "it is not an IFB")
        return link

    def _set_redirect(self, step: str, link: Link, ifb: Link) -> bool:
        """True when something changed."""
        ours, changes = self._our_filters(link.index), list[KernelChange]()
        ingress = self._reader.qdisc(link.index, INGRESS)
        if ingress is None:
            changes.append(add_ingress(link.index))
        elif ingress.kind != _INGRESS.kind:
            raise KernelError(f"redirect {link.name}", f"another program added the qdisc {ingress.kind}")
        if ours == [PacketFilter(_PRIORITY, ifb.index)]:
            return False
        if ours:
            changes.append(delete_redirects(link.index, _PRIORITY))
        change(step, *changes, add_redirect(link.index, _PRIORITY, ifb.index))
        return True

    def _remove_redirect(self, step: str, link: Link) -> bool:
        """True when something changed."""
        if not self._our_filters(link.index):
            return False
        done = any(change(step, delete_redirects(link.index, _PRIORITY), accept=_GONE))
        if not self._reader.ingress_filters(link.index):
            change(step, delete_qdisc(link.index, INGRESS, _INGRESS), accept=_GONE)
        return done

    def _our_filters(self, ifindex: int) -> list[PacketFilter]:
        return [each for each in self._reader.ingress_filters(ifindex) if each.priority == _PRIORITY]

    def _remove_ifbs(self, step: str, names: Sequence[str]) -> bool:
        """True when there was one. No redirect leads to them: its packets would be lost."""
        changes = []
        for name in names:
            try:
                link = self._reader.link(name)
            except NoDevice:
                continue
            if link.kind != IFB:
                raise KernelError(f"remove {name}", "it is not an IFB")
            changes.append(set_group(link.index, _OUTGOING))
        if not any(change(step, *changes, accept=_GONE)):
            return False
        change(step, delete_group(_OUTGOING))
        return True


def _limit(bps: int, profile: OverheadProfile, link: Link | LinkEntry) -> HtbClass:
    """The class for packets of a session's device. A profile counts from the IP packet; where the kernel
    counts the Ethernet header already, it isn't added again."""
    rate = max(bps // 8, _LEAST_RATE)
    counted = _ETHERNET_HEADER if link.has_ethernet_header else 0
    return HtbClass(CLASS, rate, rate, max(profile.overhead - counted, 0), profile.mpu)


def _make_room(step: str, ifindex: int, parent: int, found: Qdisc | None) -> None:
    """Only a qdisc that someone made has a handle. The kernel's default has none, and gives way."""
    if found is not None and found.handle:
        change(step, delete_qdisc(ifindex, parent, found))
