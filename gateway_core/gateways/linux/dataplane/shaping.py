"""Shaping of sessions: downstream on the session's device, upstream on an IFB device that belongs to the
session.

Both devices have TBF as root qdisc, with fq_codel below it. Packets from the subscriber are redirected to the
IFB. A rate is changed in place, so that no qdisc is removed and no packet is lost. HTB would shape equally
well, but takes longer to create: for each filter block, as HTB and each of its classes have, the kernel walks
a list of all filter blocks. TBF has no filter block.
"""

import errno
import logging
import threading
from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from gateway_contract.core.network import OverheadProfile
from gateway_core.gateways.linux.kernel import links, qdiscs
from gateway_core.gateways.linux.kernel.links import IFB, Link, LinkEntry
from gateway_core.gateways.linux.kernel.netlink import (
    KernelChange,
    KernelError,
    NoDevice,
    change,
    try_changes,
)
from gateway_core.gateways.linux.kernel.qdiscs import (
    INGRESS,
    ROOT,
    PacketFilter,
    Qdisc,
    QdiscEntry,
    TbfLimit,
)
from gateway_core.gateways.linux.kernel.reader import KernelReader
from gateway_core.sessions.session import IFB_PREFIX, MAX_NAME_LENGTH

_log = logging.getLogger(__name__)

_TBF_KIND = "tbf"
_TBF_HANDLE = 0x20000
#: The class of TBF, as whose child it has its queue.
_TBF_CLASS = 0x20001
_FQ_CODEL_QDISC = Qdisc("fq_codel", 0x110000)
_INGRESS_QDISC = Qdisc("ingress", qdiscs.INGRESS_HANDLE)

_ETHERNET_HEADER_BYTES = 14
#: Bytes a second. Below that, one packet takes minutes, and the kernel can't count its burst.
_MIN_BYTES_PER_SECOND = 1000
#: TBF sends a burst at once: a shorter one makes timers limit the rate, a longer one fills buffers.
_BURST_SECONDS = 0.005
#: TBF drops a packet that is larger than the burst: a jumbo frame isn't.
_MIN_BURST_BYTES = 10_000
#: Flows of fq_codel, for one subscriber. The kernel's 1024 take 64 kB, which is 1.3 GB for 10,000 sessions.
_MAX_FLOWS = 256
#: Memory of fq_codel, some 900 full packets: 100 ms at 100 Mbit/s. The kernel's 32 MB a direction and session
#: would let a few subscribers that are flooded take the memory of the machine.
_MAX_QUEUE_MEMORY_BYTES = 2 << 20
#: Bytes in the plain queue where there is no fq_codel, or not yet: some 100 ms at 20 Mbit/s.
_PLAIN_QUEUE_BYTES = 256 << 10

#: The priority of the redirect among the filters of a device.
_REDIRECT_PRIORITY = 10
#: Group of IFBs to remove: the kernel removes all links of a group in one step. No other link has this group.
_REMOVAL_GROUP = 0x47415445
#: Error numbers for a thing to remove that went by itself.
_GONE_CODES = {errno.ENODEV, errno.ENOENT, errno.EINVAL}


class Limits(NamedTuple):
    """Rate limits and device of a session. A rate of 0 means no limit. Any other rate below 8,000 bit/s is
    raised to 8,000 bit/s."""

    link: Link
    ifb: str
    down_bps: int
    up_bps: int
    profile: OverheadProfile


@dataclass(eq=False)
class DirectionShaper:
    """Work on one traffic direction of a session, downstream or upstream: the limit, the devices, and the
    result."""

    step: str
    #: The index of the session's device.
    device_index: int
    #: None for no limit.
    limit: TbfLimit | None
    #: For what a session sends.
    ifb: str = ""
    #: The index of the device that has the limit.
    limited_index: int = 0
    is_changed: bool = False
    error: KernelError | None = None


class _NotAnIfb(KernelError):
    """Refusal of a change, because a device that has the name of an IFB is not an IFB."""

    def __init__(self, step: str) -> None:
        super().__init__(step, "it is not an IFB")


class Shaper:
    """Shaper of many sessions at once. Changes of one kind are sent to the kernel together, in the order that
    takes the kernel the least time. If the kernel refuses a change, only the work on one direction of one
    session ends. Thread-safe. Methods raise KernelError if the kernel cannot be reached."""

    def __init__(self, reader: KernelReader) -> None:
        self._reader = reader
        # Held during changes: two at once would share the group of IFBs that go.
        self._lock = threading.Lock()
        #: None until fq_codel was tried.
        self._has_fq_codel: bool | None = None

    def shape(self, sessions: Sequence[Limits]) -> list[tuple[DirectionShaper, DirectionShaper]]:
        """Set the downstream and upstream limits of sessions. Return the two directions of each session,
        downstream first. No two sessions may have the same device. If a device is removed during the change,
        the error of the direction is NoDevice."""
        pairs = [_make_directions(each) for each in sessions]
        down, up = [down for down, _ in pairs], [up for _, up in pairs]
        limited_up = [each for each in up if each.limit is not None]
        unlimited_up = [each for each in up if each.limit is None]
        with self._lock:
            self._remove_redirects(unlimited_up)
            self._remove_ifbs(unlimited_up)
            self._remove_limits([each for each in down if each.limit is None])
            ifbs_down = self._create_ifbs(limited_up)
            # Before the IFBs are up: then the kernel need not wait until no processor uses a former queue.
            self._set_limits([*limited_up, *(each for each in down if each.limit is not None)])
            _run_changes([(each, links.set_up(each.limited_index)) for each in _select_working(ifbs_down)])
            # Last: packets to an IFB that is down, or gone, are lost.
            self._set_redirects(limited_up)
        return pairs

    def make_qdisc_entries(
        self, ifindex: int, ifb: int
    ) -> tuple[tuple[QdiscEntry, ...], tuple[QdiscEntry, ...]]:
        """Return the downstream qdiscs and the upstream qdiscs that a session must have. `ifindex` is the
        index of the session's device, and `ifb` is the index of the session's IFB."""
        down, up = self._make_limit_entries(ifindex), self._make_limit_entries(ifb)
        return down, (QdiscEntry(ifindex, INGRESS, _INGRESS_QDISC.handle, _INGRESS_QDISC.kind), *up)

    def has_exact_limits(
        self, link: LinkEntry, ifb: LinkEntry | None, down_bps: int, up_bps: int, profile: OverheadProfile
    ) -> bool:
        """Return True if the kernel has the rates `down_bps` and `up_bps` and the redirect of a session. Call
        this method only if all qdiscs of the session exist. `link` is the session's device. `ifb` is the
        session's IFB, or None if there is no IFB."""
        limit = partial(_make_limit, profile=profile, link=link)
        down, up = self._reader.find_qdiscs([(link.ifindex, ROOT), (0 if ifb is None else ifb.ifindex, ROOT)])
        if down_bps and down != _make_tbf(limit(down_bps)):
            return False
        redirects = self._read_redirects(link.ifindex)
        if not up_bps:
            return not redirects
        return (
            ifb is not None
            and up == _make_tbf(limit(up_bps))
            and redirects == [PacketFilter(_REDIRECT_PRIORITY, ifb.ifindex)]
        )

    def stop_shaping(self, *sessions: tuple[str, str]) -> None:
        """Remove all limits of sessions. `sessions` contains the name of the device and the name of the IFB
        of each session. Both devices may be missing. A call for many sessions takes little more time than a
        call for one session: the kernel needs 20 ms to remove one IFB, and also 20 ms to remove many IFBs
        together. Raises the KernelError of the first refusal, after all other changes were tried."""
        step = f"remove the limits of {len(sessions)} sessions"
        links = self._reader.find_links([interface for interface, _ in sessions])
        directions = [
            DirectionShaper(step, 0 if link is None else link.index, None, ifb)
            for link, (_, ifb) in zip(links, sessions, strict=True)
        ]
        # The kernel has removed the qdiscs of a device that is gone.
        present = [each for each in directions if each.device_index]
        with self._lock:
            self._remove_redirects(present)
            self._remove_limits(present)
            self._remove_ifbs(directions)
        for each in directions:
            # A device of others, with the name of an IFB, keeps nothing else from going.
            if each.error is not None and not isinstance(each.error, _NotAnIfb):
                raise each.error

    def remove_surplus(
        self, present: Mapping[str, LinkEntry], qdiscs: Iterable[QdiscEntry], kept_names: Container[object]
    ) -> list[str]:
        """Remove the IFBs with the gateway's name prefix, and the limits of the devices whose packets are
        redirected to such an IFB. Devices with a name in `kept_names` stay. `present` and `qdiscs` are the
        links and the qdiscs in the kernel. Return the names of the devices whose limits or IFBs were
        removed."""
        names = {link.ifindex: name for name, link in present.items()}
        ifbs = {index for index, name in names.items() if name.startswith(IFB_PREFIX)}
        surplus = {}
        for qdisc in qdiscs:
            name = names.get(qdisc.ifindex)
            if qdisc.parent == INGRESS and name is not None and name not in kept_names:
                for each in self._read_redirects(qdisc.ifindex):
                    # The index is 0 when the IFB is gone.
                    if each.redirect == 0 or each.redirect in ifbs:
                        surplus[name] = names.get(each.redirect, IFB_PREFIX + name)
        alone = {names[index] for index in ifbs} - set(surplus.values())
        candidates = [name for name in alone if name not in kept_names]
        found = zip(candidates, self._reader.find_links(candidates), strict=True)
        removed = {name: name for name, link in found if link is not None and link.kind == IFB} | surplus
        if removed:
            self.stop_shaping(*removed.items())
        return list(removed)

    def _create_ifbs(self, directions: Sequence[DirectionShaper]) -> list[DirectionShaper]:
        """Create the missing IFBs of directions. Return the directions whose IFB is down."""
        for each in directions:
            if len(each.ifb) > MAX_NAME_LENGTH:
                reason = f"a name has at most {MAX_NAME_LENGTH} bytes"
                each.error = KernelError(f"make the IFB {each.ifb}", reason)
        additions = [(each, links.add_ifb(each.ifb)) for each in _select_working(directions)]
        made, present = _run_changes(additions, {errno.EEXIST})
        down = []
        found = [*made, *present]
        for each, link in zip(found, self._reader.find_links([each.ifb for each in found]), strict=True):
            if link is None:
                each.error = NoDevice(each.step, f"{each.ifb} is gone", errno.ENODEV)
            elif link.kind != IFB:
                each.error = _NotAnIfb(f"shape by {each.ifb}")
            else:
                each.limited_index = link.index
                if not link.is_up:
                    down.append(each)
        return down

    def _make_limit_entries(self, ifindex: int) -> tuple[QdiscEntry, ...]:
        root = QdiscEntry(ifindex, ROOT, _TBF_HANDLE, _TBF_KIND)
        if self._has_fq_codel is False:
            return (root,)
        return root, QdiscEntry(ifindex, _TBF_CLASS, _FQ_CODEL_QDISC.handle, _FQ_CODEL_QDISC.kind)

    def _set_limits(self, directions: Sequence[DirectionShaper]) -> None:
        """Set the rate limits of directions. A limit works with a plain FIFO queue until fq_codel is
        added."""
        self._set_qdisc(
            ROOT,
            [
                (
                    each,
                    _make_tbf(each.limit),
                    qdiscs.add_tbf(each.limited_index, _TBF_HANDLE, each.limit, _PLAIN_QUEUE_BYTES),
                )
                for each in _select_working(directions)
                if each.limit is not None
            ],
        )
        waiting = deque(_select_working(directions))
        while waiting and self._has_fq_codel is None:
            # Alone: a kernel without fq_codel looks for its module each time.
            self._try_fq_codel(waiting.popleft())
        if self._has_fq_codel:
            self._set_queues(waiting)

    def _try_fq_codel(self, direction: DirectionShaper) -> None:
        self._set_queues([direction])
        if direction.error is None:
            self._has_fq_codel = True
        elif direction.error.code == errno.ENOENT:
            # The same error may say that TBF is gone.
            (root,) = self._reader.find_qdiscs([(direction.limited_index, ROOT)])
            if root is not None and root.handle == _TBF_HANDLE:
                self._has_fq_codel, direction.error = False, None
                _log.warning(
                    "the kernel has no fq_codel, sessions get a plain FIFO queue: "
                    "load the module sch_fq_codel and restart the core"
                )

    def _set_queues(self, directions: Iterable[DirectionShaper]) -> None:
        add = partial(
            qdiscs.add_fq_codel,
            parent=_TBF_CLASS,
            handle=_FQ_CODEL_QDISC.handle,
            flow_count=_MAX_FLOWS,
            max_memory_bytes=_MAX_QUEUE_MEMORY_BYTES,
        )
        self._set_qdisc(_TBF_CLASS, [(each, _FQ_CODEL_QDISC, add(each.limited_index)) for each in directions])

    def _set_qdisc(self, parent: int, todo: Sequence[tuple[DirectionShaper, Qdisc, KernelChange]]) -> None:
        """Set the qdisc under the handle `parent` on each device. `todo` contains each direction with the
        qdisc and the change that adds the qdisc. An existing qdisc with the same handle and kind is changed
        in place. Any other qdisc is replaced."""
        wanted = {each: (qdisc, add) for each, qdisc, add in todo}
        _, present = _run_changes([(each, add) for each, _, add in todo], {errno.EEXIST})
        found = self._reader.find_qdiscs([(each.limited_index, parent) for each in present])
        others = [
            (each, qdisc) for each, qdisc in zip(present, found, strict=True) if qdisc != wanted[each][0]
        ]
        # Another program may have given our handle to another kind, which the kernel does not change.
        alien = [
            (each, qdiscs.delete_qdisc(each.limited_index, parent, qdisc))
            for each, qdisc in others
            if qdisc is not None
            and qdisc.handle == wanted[each][0].handle
            and qdisc.kind != wanted[each][0].kind
        ]
        _run_changes(alien, _GONE_CODES)
        working = _select_working(each for each, _ in others)
        _run_changes([(each, qdiscs.make_replacement(wanted[each][1])) for each in working])

    def _remove_limits(self, directions: Sequence[DirectionShaper]) -> None:
        working = _select_working(directions)
        found = self._reader.find_qdiscs([(each.device_index, ROOT) for each in working])
        ours = [
            (each, qdiscs.delete_qdisc(each.device_index, ROOT, qdisc))
            for each, qdisc in zip(working, found, strict=True)
            if qdisc is not None and (qdisc.kind, qdisc.handle) == (_TBF_KIND, _TBF_HANDLE)
        ]
        _run_changes(ours, _GONE_CODES)

    def _set_redirects(self, directions: Sequence[DirectionShaper]) -> None:
        additions = [(each, qdiscs.add_ingress(each.device_index)) for each in _select_working(directions)]
        created, present = _run_changes(additions, {errno.EEXIST})
        wrong, missing = [], list(created)
        found = self._reader.find_qdiscs([(each.device_index, INGRESS) for each in present])
        for each, qdisc in zip(present, found, strict=True):
            if qdisc is not None and qdisc.kind != _INGRESS_QDISC.kind:
                each.error = KernelError(each.step, f"another program added the qdisc {qdisc.kind}")
                continue
            redirects = self._read_redirects(each.device_index)
            if redirects != [PacketFilter(_REDIRECT_PRIORITY, each.limited_index)]:
                missing.append(each)
                if redirects:
                    wrong.append(each)
        _run_changes(
            [(each, qdiscs.delete_redirects(each.device_index, _REDIRECT_PRIORITY)) for each in wrong],
            _GONE_CODES,
        )
        working = _select_working(missing)
        _run_changes(
            [
                (each, qdiscs.add_redirect(each.device_index, _REDIRECT_PRIORITY, each.limited_index))
                for each in working
            ]
        )

    def _remove_redirects(self, directions: Sequence[DirectionShaper]) -> None:
        ours = [each for each in _select_working(directions) if self._read_redirects(each.device_index)]
        _run_changes(
            [(each, qdiscs.delete_redirects(each.device_index, _REDIRECT_PRIORITY)) for each in ours],
            _GONE_CODES,
        )
        unused = [each for each in _select_working(ours) if not self._reader.read_filters(each.device_index)]
        _run_changes(
            [(each, qdiscs.delete_qdisc(each.device_index, INGRESS, _INGRESS_QDISC)) for each in unused],
            _GONE_CODES,
        )

    def _read_redirects(self, ifindex: int) -> list[PacketFilter]:
        return [each for each in self._reader.read_filters(ifindex) if each.priority == _REDIRECT_PRIORITY]

    def _remove_ifbs(self, directions: Sequence[DirectionShaper]) -> None:
        """Remove the IFBs of directions. Remove the redirects to these IFBs before this call, or the
        redirected packets would be lost."""
        working, changes = _select_working(directions), []
        for each, link in zip(working, self._reader.find_links([each.ifb for each in working]), strict=True):
            if link is not None and link.kind == IFB:
                changes.append((each, links.set_group(link.index, _REMOVAL_GROUP)))
            elif link is not None:
                each.error = _NotAnIfb(f"remove {each.ifb}")
        going, _ = _run_changes(changes, _GONE_CODES)
        if going:
            change(f"remove {len(going)} IFBs", links.delete_group(_REMOVAL_GROUP))


def _make_directions(session: Limits) -> tuple[DirectionShaper, DirectionShaper]:
    link, ifb = session.link, session.ifb
    down, up = (
        _make_limit(rate, session.profile, link) if rate else None
        for rate in (session.down_bps, session.up_bps)
    )
    return (
        DirectionShaper(f"shape {link.name}", link.index, down, limited_index=link.index),
        DirectionShaper(f"shape {link.name} by {ifb}", link.index, up, ifb),
    )


def _select_working(directions: Iterable[DirectionShaper]) -> list[DirectionShaper]:
    return [each for each in directions if each.error is None]


def _run_changes(
    changes: Sequence[tuple[DirectionShaper, KernelChange]], accepted_codes: Container[int] = ()
) -> tuple[list[DirectionShaper], list[DirectionShaper]]:
    """Make changes in the given order. Return two lists: the directions whose change succeeded, and the
    directions whose change the kernel refused with an error number in `accepted_codes`. Any other refusal is
    stored as the error of its direction."""
    changed, refused = [], []
    codes = try_changes("shape sessions", [change for _, change in changes])
    for (each, _), code in zip(changes, codes, strict=True):
        if not code:
            each.is_changed = True
            changed.append(each)
        elif code in accepted_codes:
            refused.append(each)
        else:
            each.error = KernelError.of(each.step, code)
    return changed, refused


def _make_limit(bps: int, profile: OverheadProfile, link: Link | LinkEntry) -> TbfLimit:
    """Return the TBF limit of one direction of a session. `bps` is the rate in bits per second, and `link` is
    the session's device. The overhead of a profile is counted from the IP packet. So the Ethernet header is
    subtracted from the overhead if the kernel counts the header for `link`."""
    rate = max(bps // 8, _MIN_BYTES_PER_SECOND)
    counted = _ETHERNET_HEADER_BYTES if link.has_ethernet_header else 0
    burst = max(int(rate * _BURST_SECONDS), _MIN_BURST_BYTES)
    return TbfLimit(
        rate, max(profile.overhead - counted, 0), profile.mpu, qdiscs.convert_to_ticks(burst, rate)
    )


def _make_tbf(limit: TbfLimit) -> Qdisc:
    return Qdisc(_TBF_KIND, _TBF_HANDLE, limit)
