"""Shapes sessions: downstream on the session's device, upstream on an IFB of its own.

Each of both devices has HTB as root, one class, and fq_codel in it. What arrives from the subscriber is
redirected to the IFB. Rates change in place: no qdisc goes, no packet is lost.
"""

import errno
import logging
import threading
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from gateway_api.core.gateways.linux.kernel.exchange import change, make, refusal
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
#: Bytes of memory, some 900 full packets: 100 ms at 100 Mbit/s. The kernel's 32 MB a direction and session
#: would let a few subscribers that are flooded take the memory of the machine.
_MEMORY = 2 << 20
#: Packets, some 100 ms at 20 Mbit/s. Without a limit, HTB takes that of the device, which is 3 for ppp.
_PFIFO_LIMIT = 170

#: The priority of the redirect among the filters of a device.
_PRIORITY = 10
#: The group of IFBs that go: the kernel removes a group in one step. Nothing else has this number.
_OUTGOING = 0x47415445
_NO_IFB = "it is not an IFB"
#: Error numbers for a thing to remove that went by itself.
_GONE = {errno.ENODEV, errno.ENOENT, errno.EINVAL}


class Limits(NamedTuple):
    """The limits of a session with this device. A rate is in bits per second; 0 is no limit, and the least
    limit is 8 kbit/s."""

    link: Link
    ifb: str
    down: int
    up: int
    profile: OverheadProfile


@dataclass(eq=False)
class Direction:
    """A direction of a session while it is shaped: whether something was missing or different, and the error
    that ended the work."""

    step: str
    #: The index of the session's device.
    device: int
    #: None for no limit.
    limit: HtbClass | None
    #: For what a session sends.
    ifb: str = ""
    #: The index of the device that has the limit.
    limited: int = 0
    is_changed: bool = False
    error: KernelError | None = None


class _NoIfb(KernelError):
    """Another device has the name of an IFB."""


class Shaper:
    """Shapes sessions, many at once: one kind of change after the other, in the order that costs the kernel
    least. What it refuses ends the work on one direction of one session. Any thread may call. Methods raise
    KernelError when the kernel cannot be asked."""

    def __init__(self, reader: KernelReader) -> None:
        self._reader = reader
        # Held during changes: two at once would share the group of IFBs that go.
        self._lock = threading.Lock()
        #: The queue of a class, as the kernel has it.
        self._leaf, self._is_leaf_known = _FQ_CODEL, False

    def shape(self, sessions: Sequence[Limits]) -> list[tuple[Direction, Direction]]:
        """Limits what is sent to each session, and what it sends. No two have the same device. An error is
        NoDevice when a device was removed meanwhile."""
        pairs = [_directions(each) for each in sessions]
        down, up = [down for down, _ in pairs], [up for _, up in pairs]
        limited_up = [each for each in up if each.limit is not None]
        unlimited_up = [each for each in up if each.limit is None]
        with self._lock:
            self._remove_redirects(unlimited_up)
            self._remove_ifbs(unlimited_up)
            self._remove_limits([each for each in down if each.limit is None])
            ifbs_down = self._find_ifbs(limited_up)
            # Before the IFBs are up: then the kernel need not wait until no processor uses a former queue.
            self._set_limits([*limited_up, *(each for each in down if each.limit is not None)])
            _run([(each, set_up(each.limited)) for each in _working(ifbs_down)])
            # Last: packets to an IFB that is down, or gone, are lost.
            self._set_redirects(limited_up)
        return pairs

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
        takes 20 ms for each IFB alone, and as long for many at once. Raises the first error."""
        step = f"remove the limits of {len(sessions)} sessions"
        links = self._reader.links_named([interface for interface, _ in sessions])
        going = [
            Direction(step, 0 if link is None else link.index, None, ifb)
            for link, (_, ifb) in zip(links, sessions, strict=True)
        ]
        # The kernel has removed the qdiscs of a device that is gone.
        present = [each for each in going if each.device]
        with self._lock:
            self._remove_redirects(present)
            self._remove_limits(present)
            self._remove_ifbs(going)
        for each in going:
            # A device of others, with the name of an IFB, keeps nothing else from going.
            if each.error is not None and not isinstance(each.error, _NoIfb):
                raise each.error

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
        candidates = [name for name in alone if name not in kept]
        found = zip(candidates, self._reader.links_named(candidates), strict=True)
        removed = {name: name for name, link in found if link is not None and link.kind == IFB} | surplus
        if removed:
            self.unshape(*removed.items())
        return list(removed)

    def _find_ifbs(self, directions: Sequence[Direction]) -> list[Direction]:
        """Makes the IFBs that there are not, and returns the directions whose IFB is down."""
        for each in directions:
            if len(each.ifb) > LONGEST_NAME:
                reason = f"a name has at most {LONGEST_NAME} bytes"
                each.error = KernelError(f"make the IFB {each.ifb}", reason)
        made, present = _run([(each, add_ifb(each.ifb)) for each in _working(directions)], {errno.EEXIST})
        down = []
        found = [*made, *present]
        links = self._reader.links_named([each.ifb for each in found])
        for each, link in zip(found, links, strict=True):
            if link is None:
                each.error = NoDevice(each.step, f"{each.ifb} is gone", errno.ENODEV)
            elif link.kind != IFB:
                each.error = _NoIfb(f"shape by {each.ifb}", _NO_IFB)
            else:
                each.limited = link.index
                if not link.is_up:
                    down.append(each)
        return down

    def _set_limits(self, directions: Sequence[Direction]) -> None:
        """Limits what devices send. A class changes in place."""
        new = self._add_qdiscs(directions, ROOT, _HTB, lambda index: add_htb(index, _HTB.handle, _DEFAULT))
        changes = []
        for each in _working(directions):
            wanted = each.limit
            if wanted and (each in new or wanted not in self._reader.classes(each.limited)):
                burst = max(int(wanted.rate * _BURST_SECONDS), _LEAST_BURST)
                changes.append((each, set_class(each.limited, _HTB.handle, wanted, burst, _QUANTUM)))
        _run(changes)
        waiting = deque(_working(directions))
        while waiting and not self._is_leaf_known:
            # Alone: a kernel without fq_codel looks for its module each time.
            self._try_leaf(waiting.popleft())
        self._add_leaves(waiting)

    def _try_leaf(self, direction: Direction) -> None:
        self._add_leaves([direction])
        error = direction.error
        if error is not None and error.code == errno.ENOENT:
            # The same error may say that the class is gone: then this fails, too.
            self._leaf, direction.error = _PFIFO, None
            self._add_leaves([direction])
            if direction.error is None:
                _log.warning(
                    "the kernel has no fq_codel: sessions get a plain queue of %d packets", _PFIFO_LIMIT
                )
            else:
                self._leaf = _FQ_CODEL
        self._is_leaf_known = direction.error is None

    def _add_leaves(self, directions: Iterable[Direction]) -> None:
        def add(index: int) -> KernelChange:
            if self._leaf == _FQ_CODEL:
                return add_fq_codel(index, CLASS, _LEAF, _FLOWS, _MEMORY)
            return add_pfifo(index, CLASS, _LEAF, _PFIFO_LIMIT)

        self._add_qdiscs(directions, CLASS, self._leaf, add)

    def _add_qdiscs(
        self,
        directions: Iterable[Direction],
        parent: int,
        wanted: Qdisc,
        add: Callable[[int], KernelChange],
    ) -> Set[Direction]:
        """Adds a qdisc at a place of each device, instead of another one. Returns the directions that did not
        have it."""
        made, present = _run([(each, add(each.limited)) for each in _working(directions)], {errno.EEXIST})
        found = self._reader.qdiscs([(each.limited, parent) for each in present])
        others = [(each, qdisc) for each, qdisc in zip(present, found, strict=True) if qdisc != wanted]
        _run([(each, delete_qdisc(each.limited, parent, qdisc)) for each, qdisc in others if qdisc], _GONE)
        replaced, _ = _run([(each, add(each.limited)) for each in _working(each for each, _ in others)])
        return {*made, *replaced}

    def _remove_limits(self, directions: Sequence[Direction]) -> None:
        working = _working(directions)
        found = self._reader.qdiscs([(each.device, ROOT) for each in working])
        ours = [each for each, qdisc in zip(working, found, strict=True) if qdisc == _HTB]
        _run([(each, delete_qdisc(each.device, ROOT, _HTB)) for each in ours], _GONE)

    def _set_redirects(self, directions: Sequence[Direction]) -> None:
        made, present = _run(
            [(each, add_ingress(each.device)) for each in _working(directions)], {errno.EEXIST}
        )
        wrong, missing = [], list(made)
        found = self._reader.qdiscs([(each.device, INGRESS) for each in present])
        for each, qdisc in zip(present, found, strict=True):
            if qdisc is not None and qdisc.kind != _INGRESS.kind:
                each.error = KernelError(each.step, f"another program added the qdisc {qdisc.kind}")
                continue
            ours = self._our_filters(each.device)
            if ours != [PacketFilter(_PRIORITY, each.limited)]:
                missing.append(each)
                if ours:
                    wrong.append(each)
        _run([(each, delete_redirects(each.device, _PRIORITY)) for each in wrong], _GONE)
        _run([(each, add_redirect(each.device, _PRIORITY, each.limited)) for each in _working(missing)])

    def _remove_redirects(self, directions: Sequence[Direction]) -> None:
        ours = [each for each in _working(directions) if self._our_filters(each.device)]
        _run([(each, delete_redirects(each.device, _PRIORITY)) for each in ours], _GONE)
        unused = [each for each in _working(ours) if not self._reader.ingress_filters(each.device)]
        _run([(each, delete_qdisc(each.device, INGRESS, _INGRESS)) for each in unused], _GONE)

    def _our_filters(self, ifindex: int) -> list[PacketFilter]:
        return [each for each in self._reader.ingress_filters(ifindex) if each.priority == _PRIORITY]

    def _remove_ifbs(self, directions: Sequence[Direction]) -> None:
        """No redirect leads to them: its packets would be lost."""
        working, changes = _working(directions), []
        for each, link in zip(working, self._reader.links_named([each.ifb for each in working]), strict=True):
            if link is not None and link.kind == IFB:
                changes.append((each, set_group(link.index, _OUTGOING)))
            elif link is not None:
                each.error = _NoIfb(f"remove {each.ifb}", _NO_IFB)
        going, _ = _run(changes, _GONE)
        if going:
            change(f"remove {len(going)} IFBs", delete_group(_OUTGOING))


def _directions(session: Limits) -> tuple[Direction, Direction]:
    link, ifb = session.link, session.ifb
    down, up = (_limit(rate, session.profile, link) if rate else None for rate in (session.down, session.up))
    return (
        Direction(f"shape {link.name}", link.index, down, limited=link.index),
        Direction(f"shape {link.name} by {ifb}", link.index, up, ifb),
    )


def _working(directions: Iterable[Direction]) -> list[Direction]:
    return [each for each in directions if each.error is None]


def _run(
    changes: Sequence[tuple[Direction, KernelChange]], accept: Container[int] = ()
) -> tuple[list[Direction], list[Direction]]:
    """Makes changes in this order. Returns the directions whose change was made, and those for which the
    kernel refused it with a number to accept. What else it refuses becomes the error of the direction."""
    made, refused = [], []
    codes = make("shape sessions", [change for _, change in changes])
    for (each, _), code in zip(changes, codes, strict=True):
        if not code:
            each.is_changed = True
            made.append(each)
        elif code in accept:
            refused.append(each)
        else:
            each.error = refusal(each.step, code)
    return made, refused


def _limit(bps: int, profile: OverheadProfile, link: Link | LinkEntry) -> HtbClass:
    """The class for packets of a session's device. A profile counts from the IP packet; where the kernel
    counts the Ethernet header already, it isn't added again."""
    rate = max(bps // 8, _LEAST_RATE)
    counted = _ETHERNET_HEADER if link.has_ethernet_header else 0
    return HtbClass(CLASS, rate, rate, max(profile.overhead - counted, 0), profile.mpu)
