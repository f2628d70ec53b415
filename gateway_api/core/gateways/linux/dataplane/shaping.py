"""Shapes sessions: downstream on the session's device, upstream on an IFB of its own.

Each of both devices has HTB as root, one class, and fq_codel in it. What arrives from the subscriber is
redirected to the IFB. Rates change in place: no qdisc goes, no packet is lost.
"""

import errno
from collections.abc import Container, Iterable, Mapping
from functools import partial
from typing import Any

from gateway_api.core.gateways.linux.dataplane.htb import CLASS, GONE, Htb, limit_of
from gateway_api.core.gateways.linux.kernel.entries import LinkEntry, QdiscEntry
from gateway_api.core.gateways.linux.kernel.kernel import Kernel, unless
from gateway_api.core.gateways.linux.kernel.links import IFB, Link
from gateway_api.core.gateways.linux.kernel.messages import KernelError, NoDevice
from gateway_api.core.gateways.linux.kernel.qdiscs import INGRESS, PacketFilter
from gateway_api.core.gateways.linux.kernel.reader import INGRESS_HANDLE, KernelReader
from gateway_api.core.sessions.session import IFB_PREFIX, LONGEST_NAME
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


class SessionShaping(Record, frozen=True):
    """What limits a session now, bits per second; None for a direction without a limit."""

    down_bps: int | None
    up_bps: int | None


class Shaper:
    """Shapes sessions. Any thread may call. Methods raise KernelError, and NoDevice when a device goes in the
    middle."""

    def __init__(self, kernel: Kernel, reader: KernelReader) -> None:
        self._kernel = kernel
        self._reader = reader
        self._htb = Htb(reader)

    def shape(
        self, interface: str, ifb: str, down_bps: int, up_bps: int, profile: OverheadProfile
    ) -> tuple[Part, ...]:
        """Limits a session, and returns what was missing or different. A rate of 0 is no limit; the least
        limit is 8 kbit/s."""
        return (
            *self.shape_downstream(interface, down_bps, profile),
            *self.shape_upstream(interface, ifb, up_bps, profile),
        )

    def shape_downstream(self, interface: str, bps: int, profile: OverheadProfile) -> tuple[Part, ...]:
        """As `shape`, for one direction."""
        return self._kernel.change(
            f"shape {interface}", lambda ip: self._shape_downstream(ip, interface, bps, profile)
        )

    def shape_upstream(
        self, interface: str, ifb: str, bps: int, profile: OverheadProfile
    ) -> tuple[Part, ...]:
        """As `shape`, for one direction."""
        return self._kernel.change(
            f"shape {interface} by {ifb}", lambda ip: self._shape_upstream(ip, interface, ifb, bps, profile)
        )

    def entries(self, ifindex: int, ifb: int) -> tuple[tuple[QdiscEntry, ...], tuple[QdiscEntry, ...]]:
        """The qdiscs of a session with limits each way, by the indexes of device and IFB: for the downstream,
        and for the upstream."""
        return self._htb.entries(ifindex), (
            QdiscEntry(ifindex, INGRESS, INGRESS_HANDLE, "ingress"),
            *self._htb.entries(ifb),
        )

    def is_exact(
        self, link: LinkEntry, ifb: LinkEntry | None, down_bps: int, up_bps: int, profile: OverheadProfile
    ) -> bool:
        """True when the rates and the redirect of a session, which has all qdiscs, are those of `shape`."""
        limit = partial(limit_of, profile=profile, has_ethernet_header=link.has_ethernet_header)
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
        self._kernel.change(
            f"remove the limits of {len(sessions)} sessions", lambda ip: self._unshape(ip, sessions)
        )

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

    def limits(self, interface: str, ifb: str) -> SessionShaping:
        """What limits a session."""
        down = self._htb.limit(self._reader.link(interface).index)
        try:
            up = self._htb.limit(self._reader.link(ifb).index)
        except NoDevice:
            up = None
        return SessionShaping(down, up)

    def _shape_downstream(
        self, ip: Any, interface: str, bps: int, profile: OverheadProfile
    ) -> tuple[Part, ...]:
        link = self._reader.link(interface)
        if bps:
            limit = limit_of(bps, profile, has_ethernet_header=link.has_ethernet_header)
            changed = self._htb.set(ip, link, limit)
        else:
            changed = self._htb.remove(ip, link)
        return (Part.DOWNSTREAM,) if changed else ()

    def _shape_upstream(
        self, ip: Any, interface: str, ifb: str, bps: int, profile: OverheadProfile
    ) -> tuple[Part, ...]:
        link = self._reader.link(interface)
        changed = []
        if bps:
            # The redirect comes last: packets to an IFB that is down, or gone, are lost.
            device, is_new = self._ifb(ip, ifb)
            if is_new:
                changed.append(Part.IFB)
            if self._htb.set(
                ip, device, limit_of(bps, profile, has_ethernet_header=link.has_ethernet_header)
            ):
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
            # A device of others, with the name of an IFB, keeps nothing else from going.
            if self._is_ifb(ifb):
                ifbs.append(ifb)
        self._remove_ifbs(ip, ifbs)

    def _is_ifb(self, name: str) -> bool:
        try:
            return self._reader.link(name).kind == IFB
        except NoDevice:
            return False

    def _ifb(self, ip: Any, name: str) -> tuple[Link, bool]:
        """The IFB, up, and whether it had to be made or set up."""
        try:
            link, is_new = self._reader.link(name), False
        except NoDevice:
            if len(name) > LONGEST_NAME:
                raise KernelError(
                    f"make the IFB {name}", f"a name has at most {LONGEST_NAME} bytes"
                ) from None
            ip.link("add", ifname=name, kind=IFB)
            link, is_new = self._reader.link(name), True
        if link.kind != IFB:
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
        ours = self._our_filters(link.index)
        if ours == [PacketFilter(_PRIORITY, ifb.index)]:
            return False
        if ours:
            _change_redirect(ip, "del-filter", link, 0)
        _change_redirect(ip, "add-filter", link, ifb.index)
        return True

    def _remove_redirect(self, ip: Any, link: Link) -> bool:
        """True when something changed."""
        if not self._our_filters(link.index):
            return False
        done = unless(*GONE, change=lambda: _change_redirect(ip, "del-filter", link, 0))
        if not self._reader.ingress_filters(link.index):
            unless(*GONE, change=lambda: ip.tc("del", "ingress", link.index, INGRESS_HANDLE))
        return done

    def _our_filters(self, ifindex: int) -> list[PacketFilter]:
        return [each for each in self._reader.ingress_filters(ifindex) if each.priority == _PRIORITY]

    def _remove_ifbs(self, ip: Any, names: Iterable[str]) -> bool:
        """True when there was one. No redirect leads to them: its packets would be lost."""
        removed = False
        for name in names:
            try:
                link = self._reader.link(name)
            except NoDevice:
                continue
            if link.kind != IFB:
                raise KernelError(f"remove {name}", "it is not an IFB")
            removed |= unless(*GONE, change=partial(ip.link, "set", index=link.index, group=_OUTGOING))
        if removed:
            ip.link("del", group=_OUTGOING)
        return removed


def _change_redirect(ip: Any, change: str, link: Link, ifb: int) -> None:
    """Adds or deletes the filter that redirects every packet. u32: some kernels have no matchall."""
    ip.tc(
        change, "u32", link.index, parent=INGRESS_HANDLE, prio=_PRIORITY, protocol=_ALL_PROTOCOLS,
        target=CLASS, keys=_EVERY_PACKET,
        action={"kind": "mirred", "direction": "egress", "action": "redirect", "ifindex": ifb},
    )  # fmt: skip
