"""Queueing disciplines and redirects: read from messages of the kernel, and changed (tc(8))."""

import socket
import struct
from typing import NamedTuple

from gateway_contract.contract import Record
from gateway_core.gateways.linux.kernel import messages as nl
from gateway_core.gateways.linux.kernel import rtnetlink as rt
from gateway_core.gateways.linux.kernel.messages import KernelChange, MalformedMessage

#: Parents of a device's own qdiscs.
ROOT, INGRESS = rt.TC_H_ROOT, rt.TC_H_INGRESS
#: The handle of the ingress qdisc, which is the parent of its filters.
INGRESS_HANDLE = 0xFFFF0000

_U64 = struct.Struct("=Q")
_MOST_U32 = 0xFFFFFFFF
_FIRST_ACTION = 1


class TbfLimit(Record, frozen=True):
    """The limit of TBF (tc-tbf(8)). The rate is in bytes per second, overhead and mpu in bytes. The burst is
    the time that its bytes take at this rate, in ticks."""

    rate: int
    overhead: int
    mpu: int
    burst: int


class Qdisc(Record, frozen=True):
    """A queueing discipline. `bucket` is TBF's."""

    kind: str
    handle: int
    bucket: TbfLimit | None = None


class QdiscEntry(NamedTuple):
    """The fields of a qdisc that a comparison of tens of thousands needs, with the index of its device."""

    ifindex: int
    parent: int
    handle: int
    kind: str


class PacketFilter(Record, frozen=True):
    """A filter of a device. `redirect` is the index of the device that gets every packet; None for a filter
    that does anything else, 0 when that device is gone."""

    priority: int
    redirect: int | None


def qdisc(body: bytes) -> Qdisc:
    """Return the qdisc of an RTM_NEWQDISC."""
    handle, _, kind, options = _parts(body)
    return Qdisc(kind, handle, _bucket(nl.attributes(options)) if kind == "tbf" else None)


def qdisc_entry(body: bytes) -> QdiscEntry:
    """Return the qdisc of an RTM_NEWQDISC."""
    _, ifindex, handle, parent, _ = nl.unpacked(rt.TCMSG, body)
    return QdiscEntry(ifindex, parent, handle, nl.first_text(body, rt.TCMSG.size, rt.TCA_KIND))


def packet_filter(body: bytes) -> PacketFilter | None:
    """Return the filter of an RTM_NEWTFILTER; None for a part of one, such as a hash table of u32."""
    handle, info, kind, options = _parts(body)
    # A u32 filter comes in three messages: its hash list and hash table have no item number.
    if kind == "u32" and not handle & 0xFFF:
        return None
    return PacketFilter(info >> 16, _redirect(nl.attributes(options)) if kind == "u32" else None)


def ticks(size: int, rate: int) -> int:
    """Return the time that so many bytes take at a rate in bytes per second, as the kernel wants it: it takes
    4.2 s at most."""
    return min(round(size / rate * 1e9 / rt.TICK), _MOST_U32 // rt.TICK)


def add_tbf(ifindex: int, handle: int, bucket: TbfLimit, limit: int) -> KernelChange:
    """TBF as the root of a device, with a plain queue of at most `limit` bytes. It drops packets that are
    larger than its burst. Another queue takes the place of the plain one."""
    rate = min(bucket.rate, _MOST_U32)
    parameters = rt.TC_TBF_QOPT.pack(
        rt.TC_LINKLAYER_ETHERNET, bucket.overhead, bucket.mpu, rate, limit, bucket.burst
    )
    options = nl.attribute(rt.TCA_TBF_PARMS, parameters)
    if bucket.rate > _MOST_U32:
        options += nl.attribute(rt.TCA_TBF_RATE64, _U64.pack(bucket.rate))
    return _add(ifindex, ROOT, handle, "tbf", options)


def replacing(change: KernelChange) -> KernelChange:
    """Return the change that adds a qdisc also where there is one: with another handle, that one goes in the
    same step; with the same handle and kind, it changes in place; with the same handle alone, it is refused
    with EINVAL."""
    return change._replace(flags=nl.CREATE | nl.REPLACE)


def add_fq_codel(ifindex: int, parent: int, handle: int, flows: int, memory: int) -> KernelChange:
    """Its packets take at most so many bytes of memory. Refused with ENOENT by a kernel without fq_codel."""
    options = nl.u32_attribute(rt.TCA_FQ_CODEL_FLOWS, flows)
    options += nl.u32_attribute(rt.TCA_FQ_CODEL_MEMORY_LIMIT, memory)
    return _add(ifindex, parent, handle, "fq_codel", options)


def add_ingress(ifindex: int) -> KernelChange:
    return _add(ifindex, INGRESS, INGRESS_HANDLE, "ingress", b"")


def delete_qdisc(ifindex: int, parent: int, found: Qdisc) -> KernelChange:
    """Refused with ENOENT or EINVAL if another one, or none, is there."""
    return KernelChange(rt.RTM_DELQDISC, 0, _body(ifindex, parent, found.handle, found.kind, b""))


def add_redirect(ifindex: int, priority: int, target: int) -> KernelChange:
    """Redirect every packet that arrives on a device with an ingress qdisc to another device. u32: some
    kernels have no matchall."""
    mirred = rt.TC_MIRRED.pack(rt.TC_ACT_STOLEN, rt.TCA_EGRESS_REDIR, target)
    action = nl.text_attribute(rt.TCA_ACT_KIND, "mirred")
    action += nl.attribute(rt.TCA_ACT_OPTIONS, nl.attribute(rt.TCA_MIRRED_PARMS, mirred))
    every_packet = rt.TC_U32_SEL.pack(rt.TC_U32_TERMINAL, 1) + rt.TC_U32_KEY.pack(0)
    options = nl.attribute(rt.TCA_U32_SEL, every_packet)
    options += nl.attribute(rt.TCA_U32_ACT, nl.attribute(_FIRST_ACTION, action))
    body = _body(ifindex, INGRESS_HANDLE, 0, "u32", options, _of_all_protocols(priority))
    return KernelChange(rt.RTM_NEWTFILTER, nl.CREATE | nl.EXCLUSIVE, body)


def delete_redirects(ifindex: int, priority: int) -> KernelChange:
    """Remove the filters of a priority, for packets that arrive."""
    body = _body(ifindex, INGRESS_HANDLE, 0, "u32", b"", _of_all_protocols(priority))
    return KernelChange(rt.RTM_DELTFILTER, 0, body)


def _add(ifindex: int, parent: int, handle: int, kind: str, options: bytes) -> KernelChange:
    body = _body(ifindex, parent, handle, kind, options)
    return KernelChange(rt.RTM_NEWQDISC, nl.CREATE | nl.EXCLUSIVE, body)


def _body(ifindex: int, parent: int, handle: int, kind: str, options: bytes, info: int = 0) -> bytes:
    body = rt.TCMSG.pack(0, ifindex, handle, parent, info) + nl.text_attribute(rt.TCA_KIND, kind)
    return body + nl.attribute(rt.TCA_OPTIONS, options) if options else body


def _of_all_protocols(priority: int) -> int:
    return priority << 16 | socket.htons(rt.ETH_P_ALL)


def _parts(body: bytes) -> tuple[int, int, str, bytes]:
    """Handle, information, kind and options."""
    _, _, handle, _, info = nl.unpacked(rt.TCMSG, body)
    found = nl.attributes(body, rt.TCMSG.size)
    if rt.TCA_KIND not in found:
        raise MalformedMessage("a qdisc, class or filter has no kind")
    return handle, info, nl.text(found[rt.TCA_KIND]), found.get(rt.TCA_OPTIONS, b"")


def _bucket(found: dict[int, bytes]) -> TbfLimit:
    _, overhead, mpu, rate, _, burst = nl.unpacked(rt.TC_TBF_QOPT, found.get(rt.TCA_TBF_PARMS, b""))
    if rt.TCA_TBF_RATE64 in found:
        (rate,) = nl.unpacked(_U64, found[rt.TCA_TBF_RATE64])
    return TbfLimit(rate, overhead, mpu, burst)


def _redirect(found: dict[int, bytes]) -> int | None:
    selector = found.get(rt.TCA_U32_SEL, b"")
    _, count = nl.unpacked(rt.TC_U32_SEL, selector)
    offsets = range(rt.TC_U32_SEL.size, rt.TC_U32_SEL.size + count * rt.TC_U32_KEY.size, rt.TC_U32_KEY.size)
    if any(nl.unpacked(rt.TC_U32_KEY, selector, offset)[0] for offset in offsets):
        return None
    actions = nl.attributes(found.get(rt.TCA_U32_ACT, b""))
    if set(actions) != {_FIRST_ACTION}:
        return None
    action = nl.attributes(actions[_FIRST_ACTION])
    if nl.text(action.get(rt.TCA_ACT_KIND, b"")) != "mirred":
        return None
    options = nl.attributes(action.get(rt.TCA_ACT_OPTIONS, b""))
    _, what, ifindex = nl.unpacked(rt.TC_MIRRED, options.get(rt.TCA_MIRRED_PARMS, b""))
    return ifindex if what == rt.TCA_EGRESS_REDIR else None
