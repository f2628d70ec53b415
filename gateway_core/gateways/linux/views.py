"""The links of the machine as lists of interfaces and of VLANs, and the routes of the kernel as a list."""

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeVar

from gateway_contract.contract import record_of
from gateway_contract.core.network import (
    Interface,
    InterfaceAddress,
    InterfaceType,
    Route,
    Vlan,
)
from gateway_core.gateways.linux.demux.admission import AccessVlan, ServedVlan
from gateway_core.gateways.linux.kernel.fib import MAIN_TABLE, NextHop, RouteEntry
from gateway_core.gateways.linux.kernel.links import Link
from gateway_core.gateways.linux.kernel.reader import KernelReader
from gateway_core.gateways.protocols import demux_vlan
from gateway_core.records.paging import ChainedRows, Key, Rows, SortedRows
from gateway_core.sessions.session import Session
from gateway_core.sessions.table import SessionTable

T = TypeVar("T")

#: Seconds that it serves further requests. 20,000 links take a quarter of one to read.
_FRESH = 1.0


class Reading(Generic[T]):
    """A result of `read` of at most a second ago. Callers at the same time wait for one reading. `clock`
    gives steady seconds. Any thread may call."""

    def __init__(self, read: Callable[[], T], clock: Callable[[], float]) -> None:
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._held: tuple[float, T] | None = None

    def now(self) -> T:
        """Raises what `read` raises."""
        with self._lock:
            at = self._clock()
            if self._held is None or at - self._held[0] >= _FRESH:
                self._held = at, self._read()
            return self._held[1]

    def forget(self) -> None:
        """After a change: the next caller gets another reading."""
        with self._lock:
            self._held = None


_TYPES = {
    "vlan": InterfaceType.VLAN, "ppp": InterfaceType.PPP, "ifb": InterfaceType.IFB, "vrf": InterfaceType.VRF,
}  # fmt: skip
_LOOPBACK = "lo"


class Links:
    """All links with their addresses, of one moment. Raises KernelError."""

    def __init__(self, reader: KernelReader) -> None:
        self._links = reader.read_links()
        self._by_name = {link.name: link for link in self._links.values()}
        self._addresses: dict[int, list[InterfaceAddress]] = defaultdict(list)
        for address in reader.read_addresses():
            shown = InterfaceAddress(address.family, address.address, address.prefix_length)
            self._addresses[address.ifindex].append(shown)

    def named(self, name: str) -> Link | None:
        return self._by_name.get(name)

    def names(self) -> dict[int, str]:
        """By index."""
        return {link.index: link.name for link in self._links.values()}

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def rows(
        self, trunks: Collection[str], vlans: Sequence[AccessVlan], sessions: Collection[Session]
    ) -> Rows:
        """Interface: those of no VLAN and no session, then VLANs, then devices and IFBs of sessions by id."""
        carried = {vlan.name for vlan in vlans}
        # A DHCP session may have no device but its VLAN, on which there may be others.
        with_device = [each for each in sessions if each.interface != each.access_interface]
        own = self._holders(attrgetter("interface"), with_device)
        shaped = self._holders(attrgetter("ifb_device"), sessions)
        carried.update(each.interface for each in own)
        carried.update(each.ifb_device for each in shaped)
        fixed = [link for _, link in sorted(self._links.items()) if link.name not in carried]
        present = sorted((vlan for vlan in vlans if vlan.name in self), key=vlan_key)
        return ChainedRows(
            SortedRows(fixed, lambda link: (0, link.index), lambda link: self._interface(link, trunks)),
            SortedRows(present, lambda vlan: (1, *vlan_key(vlan)), lambda vlan: self._named(vlan.name)),
            SortedRows(own, lambda session: (2, session.id), self._of_session),
            SortedRows(
                shaped, lambda session: (3, session.id), lambda session: self._named(session.ifb_device)
            ),
        )

    def _holders(self, device: Callable[[Session], str], sessions: Iterable[Session]) -> list[Session]:
        """Return the sessions with a device that there is, by id. Of several with one, the newest."""
        newest = {name: each for each in sessions if (name := device(each)) in self}
        return sorted(newest.values(), key=attrgetter("id"))

    def _named(self, name: str) -> Interface:
        return self._interface(self._by_name[name], ())

    def _of_session(self, session: Session) -> Interface:
        return self._interface(self._by_name[session.interface], (), session.access_interface)

    def _interface(self, link: Link, trunks: Collection[str], carrier: str | None = None) -> Interface:
        """`carrier` is what carries a link of which the kernel does not know that: ppp."""
        return Interface(
            ifindex=link.index,
            name=link.name,
            type=_type(link, trunks),
            mac_address=link.mac_address,
            mtu=link.mtu,
            admin_state=link.admin_state,
            oper_state=link.oper_state,
            parent=self._name_of(link.parent) or carrier,
            master=self._name_of(link.master),
            addresses=tuple(self._addresses.get(link.index, ())),
            stats=link.stats,
        )

    def _name_of(self, index: int | None) -> str | None:
        link = None if index is None else self._links.get(index)
        return None if link is None else link.name


def vlan_key(vlan: AccessVlan) -> Key:
    """Return the key of a VLAN in a list: by trunk and tags, those with one tag first."""
    return vlan.trunk, vlan.outer_vlan_id or 0, vlan.vlan_id


def _type(link: Link, trunks: Collection[str]) -> InterfaceType:
    if link.name in trunks:
        return InterfaceType.TRUNK
    if link.name == _LOOPBACK:
        return InterfaceType.LOOPBACK
    return _TYPES.get(link.kind or "", InterfaceType.OTHER)


#: Of a device that the kernel does not have, while it is made or removed (RFC 2863 ifOperStatus).
_NOT_PRESENT = "notpresent"


class ManagedVlans:
    """The VLANs of one moment. Their times are of the steady clock, which is `ahead` seconds behind epoch."""

    def __init__(
        self, vlans: Sequence[ServedVlan], links: Links, sessions: SessionTable[Any], ahead: float
    ) -> None:
        self._vlans = sorted(vlans, key=lambda served: vlan_key(served.vlan))
        self._links = links
        self._sessions = sessions
        self._ahead = ahead

    def rows(self) -> Rows:
        """Vlan by trunk and tags."""
        return self._rows(self._vlan)

    def demux_rows(self) -> Rows:
        """DemuxVlan by trunk and tags."""
        return self._rows(lambda served: demux_vlan(self._vlan(served)))

    def _rows(self, record: Callable[[ServedVlan], Vlan]) -> Rows:
        return SortedRows(self._vlans, lambda served: vlan_key(served.vlan), record)

    def _vlan(self, served: ServedVlan) -> Vlan:
        vlan, link = served.vlan, self._links.named(served.vlan.name)
        return record_of(
            Vlan, vlan,
            oper_state=_NOT_PRESENT if link is None else link.oper_state,
            session_count=len(self._sessions.on_access_interface(vlan.name)),
            created_at=int(served.created_at + self._ahead),
        )  # fmt: skip


def route_rows(
    entries: Sequence[RouteEntry], devices: Mapping[int, str], sessions: Collection[Session]
) -> Rows:
    """Route, one for each next hop: those of the network, then those of the sessions by id. `devices` are the
    names of the links."""
    by_destination = {destination: each for each in sessions for destination in _destinations(each)}
    # Several DHCP sessions may share a VLAN: its other routes are those of none.
    by_device = {each.interface: each for each in sessions if each.interface != each.access_interface}
    network: list[Route] = []
    owned: list[tuple[int, Route]] = []
    for entry in entries:
        for hop in entry.next_hops or (NextHop(None, None),):
            device = devices.get(hop.ifindex or 0, "")
            session = by_destination.get(entry.destination) or by_device.get(device)
            route = _route(entry, hop, device, session)
            if session is None:
                network.append(route)
            else:
                owned.append((session.id, route))
    owned.sort(key=lambda each: each[0])
    return ChainedRows(
        SortedRows(list(enumerate(network)), lambda each: (0, each[0], 0), lambda each: each[1]),
        SortedRows(
            [(id, number, route) for number, (id, route) in enumerate(owned)],
            lambda each: (1, each[0], each[1]),
            lambda each: each[2],
        ),
    )


def _destinations(session: Session) -> Iterator[str]:
    summary = session.summary
    if summary.ip_address is not None:
        yield f"{summary.ip_address}/32"
    if summary.ipv6_address is not None:
        yield f"{summary.ipv6_address}/128"
    if summary.ipv6_prefix is not None:
        yield summary.ipv6_prefix
    yield from summary.delegated_prefixes


def _route(entry: RouteEntry, hop: NextHop, device: str, session: Session | None) -> Route:
    return Route(
        dst=entry.destination,
        gateway=hop.gateway,
        dev=device,
        protocol=entry.protocol,
        scope=entry.scope,
        type=entry.type,
        table="main" if entry.table == MAIN_TABLE else str(entry.table),
        metric=entry.metric,
        prefsrc=entry.source,
        session_id=None if session is None else session.id,
    )
