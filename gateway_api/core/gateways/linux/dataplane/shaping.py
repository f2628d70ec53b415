"""Shapes sessions: downstream on the session's device, upstream on an IFB of its own.

Each of both devices has HTB as root, one class, and fq_codel in it. What arrives from the subscriber is
redirected to the IFB. Rates change in place: no qdisc goes, no packet is lost.
"""

import errno
from collections.abc import Iterable
from functools import partial
from typing import Any

from gateway_api.core.gateways.linux.dataplane.htb import CLASS, GONE, Htb, is_ours, limit_of
from gateway_api.core.gateways.linux.netlink.kernel import Kernel, unless
from gateway_api.core.gateways.linux.netlink.links import Link
from gateway_api.core.gateways.linux.netlink.messages import KernelError, NoDevice
from gateway_api.core.gateways.linux.netlink.qdiscs import INGRESS, ROOT, PacketFilter, Qdisc
from gateway_api.core.gateways.linux.netlink.reader import INGRESS_HANDLE, Reader
from gateway_api.core.session import IFB_PREFIX, LONGEST_NAME
from gateway_api.wire.contract import Enumeration, Record
from gateway_api.wire.core.network import OverheadProfile

_PRIORITY = 10
_ALL_PROTOCOLS = 3
_EVERY_PACKET = ["0x0/0x0+0"]

_NO_OWN_ADDRESS = {"attrs": [["AF_INET6", {"attrs": [["IFLA_INET6_ADDR_GEN_MODE", 1]]}]]}
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EOPNOTSUPP)
#: The group of IFBs that go: the kernel removes a group in one step. Nothing else has this number.
_OUTGOING = 0x47415445


class Part(Enumeration):
    """A part of the shaping of a session."""

    DOWNSTREAM = "downstream", "HTB, its class or its queue on the session's device."
    IFB = "ifb", "The IFB itself."
    UPSTREAM = "upstream", "HTB, its class or its queue on the IFB."
    REDIRECT = "redirect", "The redirect from the session's device to the IFB."


class DeviceShaping(Record, frozen=True):
    """What a device has now. An IFB of ours that belongs to no session is an orphan."""

    interface: str
    is_ifb: bool
    #: HTB as `shape` makes it.
    has_htb: bool
    #: The queue in the class; None without the class.
    leaf: str | None
    has_ingress: bool


class SessionShaping(Record, frozen=True):
    """What limits a session now, bits per second; None for a direction without a limit."""

    down_bps: int | None
    up_bps: int | None


class Shaper:
    """Shapes sessions. Any thread may call. Methods raise KernelError, and NoDevice when a device goes in the
    middle."""

    def __init__(self, kernel: Kernel, reader: Reader) -> None:
        self._kernel = kernel
        self._reader = reader
        self._htb = Htb(reader)

    def shape(
        self, interface: str, ifb: str, down_bps: int, up_bps: int, profile: OverheadProfile
    ) -> tuple[Part, ...]:
        """Limits a session, and returns what was missing or different. A rate of 0 is no limit; the least
        limit is 8 kbit/s."""
        return self._kernel.change(
            f"shape {interface}", lambda ip: self._shape(ip, interface, ifb, down_bps, up_bps, profile)
        )

    def unshape(self, *sessions: tuple[str, str]) -> None:
        """Removes all limits of sessions, by the names of device and IFB. The devices may be gone. The kernel
        takes 20 ms for each IFB alone, and as long for many at once."""
        self._kernel.change(
            f"remove the limits of {len(sessions)} sessions", lambda ip: self._unshape(ip, sessions)
        )

    def read(self) -> dict[str, DeviceShaping]:
        """What each device has, by name: those with a part of a shaper, and all IFBs named like ours. Rates
        and redirects are left out, for each costs a question: `shape` and `limits` look at them."""
        qdiscs: dict[int, dict[int, Qdisc]] = {}
        for qdisc in self._reader.qdiscs():
            qdiscs.setdefault(qdisc.ifindex, {})[qdisc.parent] = qdisc
        shapings = (
            _device_shaping(link, qdiscs.get(link.index, {})) for link in self._reader.links().values()
        )
        return {
            shaping.interface: shaping
            for shaping in shapings
            if shaping.is_ifb or shaping.has_htb or shaping.has_ingress
        }

    def limits(self, interface: str, ifb: str) -> SessionShaping:
        """What limits a session."""
        down = self._htb.limit(self._reader.link(interface).index)
        try:
            up = self._htb.limit(self._reader.link(ifb).index)
        except NoDevice:
            up = None
        return SessionShaping(down, up)

    def _shape(
        self, ip: Any, interface: str, ifb: str, down_bps: int, up_bps: int, profile: OverheadProfile
    ) -> tuple[Part, ...]:
        link = self._reader.link(interface)
        changed = []
        if down_bps:
            if self._htb.set(ip, link, limit_of(down_bps, profile, link)):
                changed.append(Part.DOWNSTREAM)
        elif self._htb.remove(ip, link):
            changed.append(Part.DOWNSTREAM)
        if up_bps:
            # The redirect comes last: packets to an IFB that is down, or gone, are lost.
            device, is_new = self._ifb(ip, ifb)
            if is_new:
                changed.append(Part.IFB)
            if self._htb.set(ip, device, limit_of(up_bps, profile, link)):
                changed.append(Part.UPSTREAM)
            if self._set_redirect(ip, link, device):
                changed.append(Part.REDIRECT)
        else:
            if self._remove_redirect(ip, link):
                changed.append(Part.REDIRECT)
            if self._remove_ifbs(ip, [ifb]):
                changed.append(Part.IFB)
        return tuple(changed)

    def _unshape(self, ip: Any, sessions: Iterable[tuple[str, str]]) -> None:
        ifbs = []
        for interface, ifb in sessions:
            try:
                link = self._reader.link(interface)
                self._remove_redirect(ip, link)
                self._htb.remove(ip, link)
            except NoDevice:
                # What it had went with it.
                pass
            ifbs.append(ifb)
        self._remove_ifbs(ip, ifbs)

    def _ifb(self, ip: Any, name: str) -> tuple[Link, bool]:
        """The IFB, up, and whether it had to be made or set up."""
        try:
            link, is_new = self._reader.link(name), False
        except NoDevice:
            if len(name) > LONGEST_NAME:
                raise KernelError(
                    f"make the IFB {name}", f"a name has at most {LONGEST_NAME} bytes"
                ) from None
            ip.link("add", ifname=name, kind="ifb")
            link, is_new = self._reader.link(name), True
        if link.kind != "ifb":
            raise KernelError(f"shape by {name}", "it is not an IFB")
        if not link.is_up:
            # An address that the kernel makes by itself would add an IPv6 route for each session. It is an
            # error where IPv6 is off.
            unless(*_NO_IPV6, change=partial(ip.link, "set", index=link.index, IFLA_AF_SPEC=_NO_OWN_ADDRESS))
            ip.link("set", index=link.index, state="up")
        return link, is_new or not link.is_up

    def _set_redirect(self, ip: Any, link: Link, ifb: Link) -> bool:
        """True when something changed."""
        ingress = self._reader.qdisc(link.index, INGRESS)
        if ingress is None:
            ip.tc("add", "ingress", link.index, INGRESS_HANDLE)
        elif ingress.kind != "ingress":
            raise KernelError(f"redirect {link.name}", f"another program added the qdisc {ingress.kind}")
        ours = self._our_filters(link)
        if ours == [PacketFilter(_PRIORITY, ifb.index)]:
            return False
        if ours:
            _change_redirect(ip, "del-filter", link, 0)
        _change_redirect(ip, "add-filter", link, ifb.index)
        return True

    def _remove_redirect(self, ip: Any, link: Link) -> bool:
        """True when something changed."""
        if not self._our_filters(link):
            return False
        done = unless(*GONE, change=lambda: _change_redirect(ip, "del-filter", link, 0))
        if not self._reader.ingress_filters(link.index):
            unless(*GONE, change=lambda: ip.tc("del", "ingress", link.index, INGRESS_HANDLE))
        return done

    def _our_filters(self, link: Link) -> list[PacketFilter]:
        return [each for each in self._reader.ingress_filters(link.index) if each.priority == _PRIORITY]

    def _remove_ifbs(self, ip: Any, names: Iterable[str]) -> bool:
        """True when there was one. No redirect leads to them: its packets would be lost."""
        removed = False
        for name in names:
            try:
                link = self._reader.link(name)
            except NoDevice:
                continue
            if link.kind != "ifb":
                raise KernelError(f"remove {name}", "it is not an IFB")
            removed |= unless(*GONE, change=partial(ip.link, "set", index=link.index, group=_OUTGOING))
        if removed:
            ip.link("del", group=_OUTGOING)
        return removed


def _device_shaping(link: Link, qdiscs: dict[int, Qdisc]) -> DeviceShaping:
    root, leaf, ingress = qdiscs.get(ROOT), qdiscs.get(CLASS), qdiscs.get(INGRESS)
    return DeviceShaping(
        interface=link.name,
        is_ifb=link.kind == "ifb" and link.name.startswith(IFB_PREFIX),
        has_htb=root is not None and is_ours(root),
        leaf=None if leaf is None else leaf.kind,
        has_ingress=ingress is not None and ingress.kind == "ingress",
    )


def _change_redirect(ip: Any, change: str, link: Link, ifb: int) -> None:
    """Adds or deletes the filter that redirects every packet. u32: some kernels have no matchall."""
    ip.tc(
        change, "u32", link.index, parent=INGRESS_HANDLE, prio=_PRIORITY, protocol=_ALL_PROTOCOLS,
        target=CLASS, keys=_EVERY_PACKET,
        action={"kind": "mirred", "direction": "egress", "action": "redirect", "ifindex": ifb},
    )  # fmt: skip
