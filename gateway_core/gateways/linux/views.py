"""Lists of the Linux gateway: interfaces and VLANs of the machine's links, and routes of the kernel."""

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Generic, TypeVar

from gateway_contract.contract import record_of
from gateway_contract.core.network import Interface, InterfaceAddress, InterfaceType, Route, Vlan
from gateway_core.gateways.linux.demux.admission import AccessVlan, ManagedVlan
from gateway_core.gateways.linux.kernel.fib import MAIN_TABLE, NextHop, RouteEntry
from gateway_core.gateways.linux.kernel.links import Link
from gateway_core.gateways.linux.kernel.reader import KernelReader
from gateway_core.records.paging import Key, Rows, SortedRows
from gateway_core.sessions.session import Session
from gateway_core.sessions.table import SessionTable

T = TypeVar("T")

#: Maximum age of a cached reading. Reading 20,000 links takes a quarter of a second.
_MAX_READING_AGE_SECONDS = 1.0


class CachedReading(Generic[T]):
    """Cache that keeps the result of `read` for at most one second. Simultaneous callers share one call of
    `read`. Thread-safe.

    `clock` returns monotonic seconds.
    """

    def __init__(self, read: Callable[[], T], clock: Callable[[], float]) -> None:
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._cached: tuple[float, T] | None = None

    def get(self) -> T:
        """Return the cached result; if no recent result exists, call `read`. Raises whatever `read`
        raises."""
        with self._lock:
            at = self._clock()
            if self._cached is None or at - self._cached[0] >= _MAX_READING_AGE_SECONDS:
                self._cached = at, self._read()
            return self._cached[1]

    def forget(self) -> None:
        """Drop the cached result after a change, so that the next `get` calls `read`."""
        with self._lock:
            self._cached = None


_TYPE_OF_KIND = {
    "vlan": InterfaceType.VLAN, "ppp": InterfaceType.PPP, "ifb": InterfaceType.IFB, "vrf": InterfaceType.VRF,
}  # fmt: skip
_LOOPBACK = "lo"


class Links:
    """Snapshot of all links with the addresses of the links. Raises KernelError if links or addresses cannot
    be read."""

    def __init__(self, reader: KernelReader) -> None:
        self._links = reader.read_links()
        self._by_name = {link.name: link for link in self._links.values()}
        self._addresses: dict[int, list[InterfaceAddress]] = defaultdict(list)
        for address in reader.read_addresses():
            interface_address = InterfaceAddress(address.family, address.address, address.prefix_length)
            self._addresses[address.ifindex].append(interface_address)

    def find(self, name: str) -> Link | None:
        return self._by_name.get(name)

    def map_names(self) -> dict[int, str]:
        """Return a map from interface index to name, for all links."""
        return {link.index: link.name for link in self._links.values()}

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def list_interfaces(
        self, trunks: Collection[str], vlans: Sequence[AccessVlan], sessions: Collection[Session]
    ) -> Rows:
        """Return Interface rows: first the links that belong to neither a VLAN nor a session, then VLANs,
        then the devices of sessions, then the IFBs of sessions; sessions are ordered by id."""
        # A DHCP session may have no other device than its VLAN, which several sessions may share.
        with_device = [each for each in sessions if each.interface != each.access_interface]
        carried_rows: list[tuple[Key, str, str | None]] = [
            ((1, *get_vlan_key(vlan)), vlan.name, None) for vlan in vlans
        ]
        # If several sessions have the same device, the newest session counts.
        for name, session in {each.interface: each for each in with_device}.items():
            carried_rows.append(((2, session.id), name, session.access_interface))
        for name, session in {each.ifb_device: each for each in sessions}.items():
            carried_rows.append(((3, session.id), name, None))
        carried_names = {name for _, name, _ in carried_rows}
        fixed_links = [link for link in self._links.values() if link.name not in carried_names]
        rows: list[tuple[Key, Link, str | None]] = [((0, link.index), link, None) for link in fixed_links]
        rows += [(key, self._by_name[name], carrier) for key, name, carrier in carried_rows if name in self]
        rows.sort(key=itemgetter(0))
        return SortedRows(rows, itemgetter(0), lambda row: self._make_interface(row[1], trunks, row[2]))

    def _make_interface(self, link: Link, trunks: Collection[str], carrier: str | None) -> Interface:
        """Return the Interface record of a link. For a link whose parent the kernel does not know, such as a
        ppp device, `carrier` is the name of the parent."""
        return Interface(
            ifindex=link.index,
            name=link.name,
            type=_find_type(link, trunks),
            mac_address=link.mac_address,
            mtu=link.mtu,
            admin_state=link.admin_state,
            oper_state=link.oper_state,
            parent=self._find_name(link.parent) or carrier,
            master=self._find_name(link.master),
            addresses=tuple(self._addresses.get(link.index, ())),
            stats=link.stats,
        )

    def _find_name(self, index: int | None) -> str | None:
        link = None if index is None else self._links.get(index)
        return None if link is None else link.name


def get_vlan_key(vlan: AccessVlan) -> Key:
    """Return the sort key of a VLAN: trunk, outer VLAN id (0 for a single tag), VLAN id."""
    return vlan.trunk, vlan.outer_vlan_id or 0, vlan.vlan_id


def _find_type(link: Link, trunks: Collection[str]) -> InterfaceType:
    if link.name in trunks:
        return InterfaceType.TRUNK
    if link.name == _LOOPBACK:
        return InterfaceType.LOOPBACK
    return _TYPE_OF_KIND.get(link.kind or "", InterfaceType.OTHER)


#: State of a missing device, while it is being created or removed (RFC 2863 ifOperStatus).
_NOT_PRESENT = "notpresent"


def list_vlans(
    vlans: Sequence[ManagedVlan], links: Links, sessions: SessionTable[Any], epoch_offset: float
) -> SortedRows[ManagedVlan]:
    """Return Vlan rows, sorted by trunk and tags. `epoch_offset` is the difference in seconds between epoch
    time and the monotonic time of `vlans`."""

    def make_record(managed: ManagedVlan) -> Vlan:
        vlan, link = managed.vlan, links.find(managed.vlan.name)
        return record_of(
            Vlan, vlan,
            oper_state=_NOT_PRESENT if link is None else link.oper_state,
            session_count=len(sessions.find_on_access_interface(vlan.name)),
            created_at=int(managed.created_at + epoch_offset),
        )  # fmt: skip

    def get_key(managed: ManagedVlan) -> Key:
        return get_vlan_key(managed.vlan)

    return SortedRows(sorted(vlans, key=get_key), get_key, make_record)


def list_routes(
    entries: Sequence[RouteEntry], device_names: Mapping[int, str], sessions: Collection[Session]
) -> Rows:
    """Return Route rows, one row for each next hop: network routes first, then the routes of sessions, sorted
    by session id. `device_names` maps interface indexes to device names."""
    by_destination = {destination: each for each in sessions for destination in _list_destinations(each)}
    # Several DHCP sessions may share a VLAN: the other routes of the VLAN belong to no session.
    by_device = {each.interface: each for each in sessions if each.interface != each.access_interface}
    hops = ((entry, hop) for entry in entries for hop in entry.next_hops or (NextHop(None, None),))
    rows: list[tuple[Key, Route]] = []
    for number, (entry, hop) in enumerate(hops):
        device = device_names.get(hop.ifindex or 0, "")
        session = by_destination.get(entry.destination) or by_device.get(device)
        key = (0, number, 0) if session is None else (1, session.id, number)
        rows.append((key, _make_route(entry, hop, device, session)))
    rows.sort(key=itemgetter(0))
    return SortedRows(rows, itemgetter(0), itemgetter(1))


def _list_destinations(session: Session) -> Iterator[str]:
    summary = session.summary
    if summary.ip_address is not None:
        yield f"{summary.ip_address}/32"
    if summary.ipv6_address is not None:
        yield f"{summary.ipv6_address}/128"
    if summary.ipv6_prefix is not None:
        yield summary.ipv6_prefix
    yield from summary.delegated_prefixes


def _make_route(entry: RouteEntry, hop: NextHop, device: str, session: Session | None) -> Route:
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
