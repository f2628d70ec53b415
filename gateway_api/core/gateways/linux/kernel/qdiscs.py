"""Queueing disciplines, HTB classes and redirects, from messages of the kernel (tc(8); linux/pkt_sched.h,
pkt_cls.h, tc_act/tc_mirred.h)."""

import struct

from gateway_api.core.gateways.linux.kernel.messages import (
    MalformedMessage,
    attributes,
    text,
    unpacked,
)
from gateway_api.wire.contract import Record

#: Parents of a device's own qdiscs.
ROOT, INGRESS = 0xFFFFFFFF, 0xFFFFFFF1

_HEADER = struct.Struct("=BxxxiIII")
_KIND, _OPTIONS = 1, 2

_HTB_PARAMETERS, _HTB_GLOBAL, _HTB_RATE64, _HTB_CEIL64 = 1, 2, 6, 7
# Of rate and ceiling: overhead, mpu and bytes a second.
_HTB_CLASS = struct.Struct("=xxHxxHIxxHxxHI")
_HTB_DEFAULT = struct.Struct("=8xI")
_U64 = struct.Struct("=Q")

_U32_SELECTOR, _U32_ACTIONS = 5, 7
_U32_KEYS = struct.Struct("=xxB13x")
_U32_MASK = struct.Struct("=I12x")
_FIRST_ACTION = 1
_MIRRED_PARAMETERS = 2
_MIRRED = struct.Struct("=20xiI")
_EGRESS_REDIRECT = 1


class Qdisc(Record, frozen=True):
    """A queueing discipline of a device. `default_class` is HTB's, for packets without a class."""

    ifindex: int
    kind: str
    handle: int
    parent: int
    default_class: int | None


class HtbClass(Record, frozen=True):
    """A class of HTB. Rates are in bytes per second, overhead and mpu in bytes."""

    handle: int
    rate: int
    ceil: int
    overhead: int
    mpu: int


class PacketFilter(Record, frozen=True):
    """A filter of a device. `redirect` is the index of the device that gets every packet; None for a filter
    that does anything else, 0 when that device is gone."""

    priority: int
    redirect: int | None


def qdisc(body: bytes) -> Qdisc:
    """The qdisc of an RTM_NEWQDISC."""
    ifindex, handle, parent, _, kind, options = _parts(body)
    default = None
    if kind == "htb":
        found = attributes(options)
        (default,) = unpacked(_HTB_DEFAULT, found.get(_HTB_GLOBAL, b""))
    return Qdisc(ifindex, kind, handle, parent, default)


def htb_class(body: bytes) -> HtbClass | None:
    """The class of an RTM_NEWTCLASS; None for one that isn't HTB's."""
    _, handle, _, _, kind, options = _parts(body)
    if kind != "htb":
        return None
    found = attributes(options)
    overhead, mpu, rate, _, _, ceil = unpacked(_HTB_CLASS, found.get(_HTB_PARAMETERS, b""))
    if _HTB_RATE64 in found:
        (rate,) = unpacked(_U64, found[_HTB_RATE64])
    if _HTB_CEIL64 in found:
        (ceil,) = unpacked(_U64, found[_HTB_CEIL64])
    return HtbClass(handle, rate, ceil, overhead, mpu)


def packet_filter(body: bytes) -> PacketFilter | None:
    """The filter of an RTM_NEWTFILTER; None for a part of one, such as a hash table of u32."""
    _, handle, _, info, kind, options = _parts(body)
    # A u32 filter comes in three messages: its hash list and hash table have no item number.
    if kind == "u32" and not handle & 0xFFF:
        return None
    return PacketFilter(info >> 16, _redirect(attributes(options)) if kind == "u32" else None)


def _parts(body: bytes) -> tuple[int, int, int, int, str, bytes]:
    """Index of the device, handle, parent, information, kind and options."""
    _, ifindex, handle, parent, info = unpacked(_HEADER, body)
    found = attributes(body, _HEADER.size)
    if _KIND not in found:
        raise MalformedMessage("a qdisc, class or filter has no kind")
    return ifindex, handle, parent, info, text(found[_KIND]), found.get(_OPTIONS, b"")


def _redirect(found: dict[int, bytes]) -> int | None:
    selector = found.get(_U32_SELECTOR, b"")
    (count,) = unpacked(_U32_KEYS, selector)
    if any(unpacked(_U32_MASK, selector, _U32_KEYS.size + 16 * key)[0] for key in range(count)):
        return None
    actions = attributes(found.get(_U32_ACTIONS, b""))
    if set(actions) != {_FIRST_ACTION}:
        return None
    action = attributes(actions[_FIRST_ACTION])
    if text(action.get(_KIND, b"")) != "mirred":
        return None
    parameters = attributes(action.get(_OPTIONS, b"")).get(_MIRRED_PARAMETERS, b"")
    what, ifindex = unpacked(_MIRRED, parameters)
    return ifindex if what == _EGRESS_REDIRECT else None
