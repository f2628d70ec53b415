"""Queueing disciplines and redirects (tc(8)): parsers of the kernel's messages, and messages that change
qdiscs and redirects.

A function that adds or deletes returns a message for `netlink.change`. The docstring of the function names
the error number with which the kernel refuses the message.
"""

import socket
import struct
from typing import NamedTuple

from gateway_contract.contract import Record
from gateway_core.gateways.linux.kernel import netlink as nl
from gateway_core.gateways.linux.kernel import rtnetlink as rt
from gateway_core.gateways.linux.kernel.netlink import KernelChange, MalformedMessage

#: Parents of the root qdisc and of the ingress qdisc of a device.
ROOT, INGRESS = rt.TC_H_ROOT, rt.TC_H_INGRESS
#: The handle of the ingress qdisc, which is the parent of its filters.
INGRESS_HANDLE = 0xFFFF0000

_U64_STRUCT = struct.Struct("=Q")
_MAX_U32 = 0xFFFFFFFF
_FIRST_ACTION = 1


class TbfLimit(Record, frozen=True):
    """Rate limit of a TBF qdisc (tc-tbf(8)). `rate` is in bytes per second, `overhead` and `mpu` are in
    bytes. `burst` is the time, in ticks of the kernel, in which the bytes of the burst are sent at this
    rate."""

    rate: int
    overhead: int
    mpu: int
    burst: int


class Qdisc(Record, frozen=True):
    """Queueing discipline. `bucket` is the rate limit of a TBF; None for any other kind."""

    kind: str
    handle: int
    bucket: TbfLimit | None = None


class QdiscEntry(NamedTuple):
    """Fields of a qdisc that are needed to compare tens of thousands of qdiscs. `ifindex` is the index of the
    device."""

    ifindex: int
    parent: int
    handle: int
    kind: str


class PacketFilter(Record, frozen=True):
    """Packet filter of a device. `redirect` is the index of the device to which the filter redirects every
    packet. `redirect` is 0 if that device was deleted, and None if the filter does not redirect every
    packet."""

    priority: int
    redirect: int | None


def parse_qdisc(body: bytes) -> Qdisc:
    """Parse an RTM_NEWQDISC message into a qdisc. Raises MalformedMessage if `body` is malformed."""
    handle, _, kind, options = _unpack_message(body)
    return Qdisc(kind, handle, _parse_limit(nl.split_attributes(options)) if kind == "tbf" else None)


def parse_qdisc_entry(body: bytes) -> QdiscEntry:
    """Parse an RTM_NEWQDISC message into a qdisc entry. Raises MalformedMessage if `body` is malformed."""
    _, ifindex, handle, parent, _ = nl.unpack(rt.TCMSG, body)
    return QdiscEntry(ifindex, parent, handle, nl.find_text(body, rt.TCMSG.size, rt.TCA_KIND))


def parse_filter(body: bytes) -> PacketFilter | None:
    """Parse an RTM_NEWTFILTER message into a filter. Return None if the message has only a part of a filter,
    such as a hash table of u32. Raises MalformedMessage if `body` is malformed."""
    handle, info, kind, options = _unpack_message(body)
    # A u32 filter comes in three messages: its hash list and hash table have no item number.
    if kind == "u32" and not handle & 0xFFF:
        return None
    return PacketFilter(info >> 16, _parse_redirect(nl.split_attributes(options)) if kind == "u32" else None)


def convert_to_ticks(byte_count: int, rate: int) -> int:
    """Return the time in which `byte_count` bytes are sent at `rate` bytes per second. The time is in ticks
    of the kernel, and at most 4.2 s."""
    return min(round(byte_count / rate * 1e9 / rt.TICK), _MAX_U32 // rt.TICK)


def add_tbf(ifindex: int, handle: int, bucket: TbfLimit, max_queue_bytes: int) -> KernelChange:
    """Add TBF as the root qdisc of a device, with a FIFO of at most `max_queue_bytes` bytes. TBF drops
    packets that are larger than the burst. A child qdisc that is added later replaces the FIFO."""
    rate = min(bucket.rate, _MAX_U32)
    parameters = rt.TC_TBF_QOPT.pack(
        rt.TC_LINKLAYER_ETHERNET, bucket.overhead, bucket.mpu, rate, max_queue_bytes, bucket.burst
    )
    options = nl.pack_attribute(rt.TCA_TBF_PARMS, parameters)
    if bucket.rate > _MAX_U32:
        options += nl.pack_attribute(rt.TCA_TBF_RATE64, _U64_STRUCT.pack(bucket.rate))
    return _add_qdisc(ifindex, ROOT, handle, "tbf", options)


def make_replacement(change: KernelChange) -> KernelChange:
    """Return a change that adds the qdisc of `change` and replaces an existing qdisc. A qdisc with another
    handle is deleted in the same step; a qdisc with the same handle and kind is changed in place. EINVAL: the
    existing qdisc has the same handle but another kind."""
    return change._replace(flags=nl.CREATE | nl.REPLACE)


def add_fq_codel(
    ifindex: int, parent: int, handle: int, flow_count: int, max_memory_bytes: int
) -> KernelChange:
    """Add fq_codel with `flow_count` flows, whose packets use at most `max_memory_bytes` bytes. ENOENT: the
    kernel has no fq_codel."""
    options = nl.pack_u32(rt.TCA_FQ_CODEL_FLOWS, flow_count)
    options += nl.pack_u32(rt.TCA_FQ_CODEL_MEMORY_LIMIT, max_memory_bytes)
    return _add_qdisc(ifindex, parent, handle, "fq_codel", options)


def add_ingress(ifindex: int) -> KernelChange:
    """Add the ingress qdisc of a device. EEXIST: the device already has an ingress qdisc."""
    return _add_qdisc(ifindex, INGRESS, INGRESS_HANDLE, "ingress", b"")


def delete_qdisc(ifindex: int, parent: int, qdisc: Qdisc) -> KernelChange:
    """Delete a qdisc. ENOENT or EINVAL: the parent has no qdisc, or has another qdisc."""
    return KernelChange(rt.RTM_DELQDISC, 0, _pack_message(ifindex, parent, qdisc.handle, qdisc.kind, b""))


def add_redirect(ifindex: int, priority: int, target: int) -> KernelChange:
    """Redirect every packet that arrives on a device to the device `target`. The device needs an ingress
    qdisc. The filter is u32, because some kernels have no matchall."""
    mirred = rt.TC_MIRRED.pack(rt.TC_ACT_STOLEN, rt.TCA_EGRESS_REDIR, target)
    action = nl.pack_text(rt.TCA_ACT_KIND, "mirred")
    action += nl.pack_attribute(rt.TCA_ACT_OPTIONS, nl.pack_attribute(rt.TCA_MIRRED_PARMS, mirred))
    every_packet = rt.TC_U32_SEL.pack(rt.TC_U32_TERMINAL, 1) + rt.TC_U32_KEY.pack(0)
    options = nl.pack_attribute(rt.TCA_U32_SEL, every_packet)
    options += nl.pack_attribute(rt.TCA_U32_ACT, nl.pack_attribute(_FIRST_ACTION, action))
    body = _pack_message(ifindex, INGRESS_HANDLE, 0, "u32", options, _pack_info(priority))
    return KernelChange(rt.RTM_NEWTFILTER, nl.CREATE | nl.EXCLUSIVE, body)


def delete_redirects(ifindex: int, priority: int) -> KernelChange:
    """Delete all filters with this priority from the ingress qdisc of a device."""
    body = _pack_message(ifindex, INGRESS_HANDLE, 0, "u32", b"", _pack_info(priority))
    return KernelChange(rt.RTM_DELTFILTER, 0, body)


def _add_qdisc(ifindex: int, parent: int, handle: int, kind: str, options: bytes) -> KernelChange:
    body = _pack_message(ifindex, parent, handle, kind, options)
    return KernelChange(rt.RTM_NEWQDISC, nl.CREATE | nl.EXCLUSIVE, body)


def _pack_message(ifindex: int, parent: int, handle: int, kind: str, options: bytes, info: int = 0) -> bytes:
    body = rt.TCMSG.pack(0, ifindex, handle, parent, info) + nl.pack_text(rt.TCA_KIND, kind)
    return body + nl.pack_attribute(rt.TCA_OPTIONS, options) if options else body


def _pack_info(priority: int) -> int:
    return priority << 16 | socket.htons(rt.ETH_P_ALL)


def _unpack_message(body: bytes) -> tuple[int, int, str, bytes]:
    """Return the handle, the `tcm_info` field, the kind and the options of a traffic-control message."""
    _, _, handle, _, info = nl.unpack(rt.TCMSG, body)
    attributes = nl.split_attributes(body, rt.TCMSG.size)
    if rt.TCA_KIND not in attributes:
        raise MalformedMessage("a qdisc, class or filter has no kind")
    return handle, info, nl.parse_text(attributes[rt.TCA_KIND]), attributes.get(rt.TCA_OPTIONS, b"")


def _parse_limit(attributes: dict[int, bytes]) -> TbfLimit:
    _, overhead, mpu, rate, _, burst = nl.unpack(rt.TC_TBF_QOPT, attributes.get(rt.TCA_TBF_PARMS, b""))
    if rt.TCA_TBF_RATE64 in attributes:
        (rate,) = nl.unpack(_U64_STRUCT, attributes[rt.TCA_TBF_RATE64])
    return TbfLimit(rate, overhead, mpu, burst)


def _parse_redirect(attributes: dict[int, bytes]) -> int | None:
    selector = attributes.get(rt.TCA_U32_SEL, b"")
    _, count = nl.unpack(rt.TC_U32_SEL, selector)
    offsets = range(rt.TC_U32_SEL.size, rt.TC_U32_SEL.size + count * rt.TC_U32_KEY.size, rt.TC_U32_KEY.size)
    if any(nl.unpack(rt.TC_U32_KEY, selector, offset)[0] for offset in offsets):
        return None
    actions = nl.split_attributes(attributes.get(rt.TCA_U32_ACT, b""))
    if set(actions) != {_FIRST_ACTION}:
        return None
    action = nl.split_attributes(actions[_FIRST_ACTION])
    if nl.parse_text(action.get(rt.TCA_ACT_KIND, b"")) != "mirred":
        return None
    options = nl.split_attributes(action.get(rt.TCA_ACT_OPTIONS, b""))
    _, action_code, ifindex = nl.unpack(rt.TC_MIRRED, options.get(rt.TCA_MIRRED_PARMS, b""))
    return ifindex if action_code == rt.TCA_EGRESS_REDIR else None
