"""The sessions of a gateway, with an index for each thing that an operator may know of one."""

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network
from operator import attrgetter, methodcaller
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from gateway_contract.base import ipv6
from gateway_contract.base.search import parse_search
from gateway_contract.configuration import Cgnat
from gateway_contract.contract import Record
from gateway_contract.core.sessions import SessionFilter, SessionState, SessionStatistics, SessionType
from gateway_core.records.orders import ByChunk, Ordering, Orders, SortedSnapshot
from gateway_core.records.paging import Listing, Ordered, Rows, Text, fitting, text_of
from gateway_core.sessions.search import Search
from gateway_core.sessions.session import IFB_PREFIX, LONGEST_NAME, Session


class WholeSessions:
    """Any thread may call."""

    def __init__(self) -> None:
        #: 400 bytes for each session.
        self._texts: ByChunk[Session, Text] = ByChunk(_text)

    def listing(self, sessions: SortedSnapshot[Session]) -> Listing:
        """Return the reply with these sessions."""
        return Listing("sessions", fitting(self._made(sessions)), len(sessions), {})

    def _made(self, sessions: SortedSnapshot[Session]) -> Iterator[Text]:
        return (text for _, text in self._texts.of(sessions))


def _text(sessions: list[Session]) -> Text:
    return text_of([session.summary for session in sessions])


K = TypeVar("K", bound=Hashable)


class Index(Generic[K]):
    """Ids by a key. Most keys have one id, and 200,000 sets of one would take 40 MB."""

    def __init__(self) -> None:
        self._ids: dict[K, int | set[int]] = {}

    def add(self, key: K, id: int) -> None:
        held = self._ids.get(key)
        if held is None:
            self._ids[key] = id
        elif isinstance(held, int):
            self._ids[key] = {held, id}
        else:
            held.add(id)

    def remove(self, key: K, id: int) -> None:
        held = self._ids[key]
        if isinstance(held, int):
            del self._ids[key]
            return
        held.remove(id)
        if not held:
            del self._ids[key]

    def ids(self, key: K) -> list[int]:
        """In ascending order."""
        held = self._ids.get(key)
        if held is None:
            return []
        return [held] if isinstance(held, int) else sorted(held)


class NetworkIndex(Index[int]):
    """Ids by IPv6 network, as `ipv6.network` makes it. A search takes one step for each length of prefix that
    is in use."""

    def __init__(self) -> None:
        super().__init__()
        self._lengths: Counter[int] = Counter()

    def add(self, key: int, id: int) -> None:
        super().add(key, id)
        self._lengths[key.bit_length()] += 1

    def remove(self, key: int, id: int) -> None:
        super().remove(key, id)
        length = key.bit_length()
        self._lengths[length] -= 1
        if not self._lengths[length]:
            del self._lengths[length]

    def around(self, network: int) -> list[int]:
        """Return the ids of the networks that contain an address or network, in ascending order."""
        bits = network.bit_length()
        lengths = [length for length in self._lengths if length <= bits]
        return sorted({id for length in lengths for id in self.ids(network >> bits - length)})

    def inside(self, network: int) -> list[int]:
        """Return the networks that are a part of a network, and not the same. If there is a longer prefix
        than its own, it reads all networks, while others may change them."""
        bits = network.bit_length()
        found: list[int] = []
        for longer in [length - bits for length in list(self._lengths) if length > bits]:
            # Of one length, all that are inside are in one range. No network of another length is in it.
            first, behind = network << longer, network + 1 << longer
            found += [key for key in list(self._ids) if first <= key < behind]
        return found


S = TypeVar("S", bound=Session)

#: RFC 6598: addresses that providers share among subscribers.
_SHARED_ADDRESSES = IPv4Network("100.64.0.0/10")

#: By fields of the summary and of a filter. `interface` has the access interface, too.
_TEXTS = ("ip_address", "username", "mac_address", "interface")
_id = attrgetter("summary.id")
_ALL: Ordering[Any] = Ordering(_id)
_STEERED: Ordering[Any] = Ordering(_id, attrgetter("vrf_steered"))
_indexed = attrgetter(*_TEXTS, "access_interface", "ipv6_address", "ipv6_prefix", "delegated_prefixes")


class SessionTable(Generic[S]):
    """All sessions by id, username, address, prefix, MAC and interface. Ids ascend in the order of `add`.

    Any thread may read. A thread that changes the table holds the `lock`: so it can make several changes in
    one moment.
    """

    def __init__(self, cgnat: Cgnat) -> None:
        self.lock = threading.RLock()
        self._cgnat = cgnat
        self._sessions: dict[int, S] = {}
        self._indexes: dict[str, Index[str]] = {field: Index() for field in _TEXTS}
        self._networks = NetworkIndex()
        self._counts: Counter[str] = Counter()
        self._orders = Orders(self._sessions)
        self._search: Search[S] = Search()
        #: The number of changes.
        self.version = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def all(self) -> SortedSnapshot[S]:
        """Return all sessions by id."""
        return self.ordered(_ALL)

    def ordered(self, ordering: Ordering[S]) -> SortedSnapshot[S]:
        """Return the sessions that belong to an order."""
        with self.lock:
            return self._orders.now(ordering)

    def get(self, id: int) -> S | None:
        return self._sessions.get(id)

    def find(self, wanted: SessionFilter) -> list[S]:
        """Return the sessions that match, by id. A filter by type alone, a search, or an empty filter reads
        all of them."""
        address = wanted.ip_address
        if address is not None and ipv6.is_meant(address) and not ipv6.is_address(address):
            return []
        if wanted.search is not None:
            return [session for session in self._searched(wanted.search) if session.matches(wanted)]
        with self.lock:
            return [session for session in self._candidates(wanted) if session.matches(wanted)]

    def has_address(self, address: str) -> bool:
        return bool(self._indexes["ip_address"].ids(address))

    def has_interface(self, interface: str) -> bool:
        """Return True for the device, the IFB or the access interface of a session."""
        with self.lock:
            index, device = self._indexes["interface"], interface.removeprefix(IFB_PREFIX)
            ids = index.ids(device)
            if device == interface:
                return bool(ids)
            if device.isdecimal() and len(device) < LONGEST_NAME:
                ids.append(int(device))
            found = (self._sessions.get(id) for id in ids)
            return any(session.ifb_device == interface for session in found if session is not None)

    def on_access_interface(self, interface: str) -> list[S]:
        """Return the sessions that arrived on an interface, by id."""
        found = self.find(SessionFilter(interface=interface))
        return [session for session in found if session.access_interface == interface]

    def statistics(self) -> SessionStatistics:
        """Costs the same for any number of sessions."""
        with self.lock:
            return SessionStatistics(
                active_sessions=len(self),
                pppoe_sessions=self._counts[SessionType.PPPOE],
                dhcp_sessions=self._counts[SessionType.DHCP],
                vrf_steered_sessions=self._counts["steered"],
                public_ip_sessions=self._counts["public"],
                qos_sessions=self._counts["shaped"],
                stale_sessions=self._counts[SessionState.STALE],
            )

    def rows(self, record: Callable[[S], Record]) -> Rows:
        """Return a record of each session, by its id."""
        return Ordered(self.all(), lambda session: (session.id,), record)

    def cgnat_sessions(self) -> Rows:
        """CgnatSession by session id."""
        with self.lock:
            cgnat, steered = self._cgnat, self.ordered(_STEERED)
        return Ordered(steered, lambda session: (session.id,), methodcaller("cgnat", cgnat))

    def steering(self, address: str | None) -> tuple[bool, bool]:
        """`vrf_steered` and `shared_address` of the sessions with an IPv4 address, or without one."""
        if address is None:
            return False, False
        parsed = IPv4Address(address)
        in_range = any(parsed in network for network in self._cgnat.source_ranges)
        return in_range and self._cgnat.enabled, in_range or parsed in _SHARED_ADDRESSES

    def configure(self, cgnat: Cgnat) -> None:
        """Apply a new CGNAT configuration to all sessions."""
        self._cgnat = cgnat
        for session in self.all():
            steered, shared = self.steering(session.summary.ip_address)
            if (steered, shared) != (session.vrf_steered, session.shared_address):
                self.replace(replace(session, vrf_steered=steered, shared_address=shared))

    def add(self, session: S) -> None:
        places = self._places(session)
        self._changed(session.id, None)
        self._sessions[session.id] = session
        for index, key in places:
            index.add(key, session.id)
        self._counts.update(_counted(session))

    def remove(self, id: int) -> S:
        """Raises KeyError for an unknown id."""
        session = self._sessions.pop(id)
        self._changed(id, session)
        for index, key in self._places(session):
            index.remove(key, id)
        self._counts.subtract(_counted(session))
        return session

    def replace(self, session: S) -> None:
        """Replace the session with the same id."""
        id = session.id
        before = self._sessions[id]
        if _indexed(before.summary) != _indexed(session.summary):
            former, present = self._places(before), self._places(session)
            for index, key in former - present:
                index.remove(key, id)
            for index, key in present - former:
                index.add(key, id)
        self._changed(id, before)
        self._sessions[id] = session
        self._counts.subtract(_counted(before))
        self._counts.update(_counted(session))

    def move_starts(self, seconds: int) -> None:
        """Move all start times, after the clock that dated them was set."""
        for session in self.all():
            started_at = session.summary.started_at + seconds
            moved = replace(session, summary=replace(session.summary, started_at=started_at))
            self._sessions[session.id] = moved
        self._orders.forget()
        self.version += 1

    def _searched(self, text: str) -> list[S]:
        wanted = parse_search(text)
        if wanted.id is not None:
            session = self._sessions.get(wanted.id)
            return [] if session is None else [session]
        # Without the lock, which a search of 200,000 sessions would hold for long.
        found = self._search.found(self.all(), wanted)
        network = wanted.ipv6
        if network is None:
            return found
        inside = self._networks.inside(network)
        with self.lock:
            ids = {*self._networks.around(network), *(id for key in inside for id in self._networks.ids(key))}
            by_id = {session.id: session for session in found} | {id: self._sessions[id] for id in ids}
        return [by_id[id] for id in sorted(by_id)]

    def _changed(self, id: int, before: S | None) -> None:
        self._orders.changed(id, before)
        self.version += 1

    def _candidates(self, wanted: SessionFilter) -> Iterable[S]:
        if wanted.ip_address is not None and ipv6.is_meant(wanted.ip_address):
            return [self._sessions[id] for id in self._networks.around(ipv6.address(wanted.ip_address))]
        for field, index in self._indexes.items():
            text = getattr(wanted, field)
            if text is not None:
                return [self._sessions[id] for id in index.ids(text)]
        return self._sessions.values()

    def _places(self, session: S) -> set[tuple[Index[Any], Any]]:
        """Return the keys of a session, each with its index."""
        summary, networks = session.summary, set(session.networks())
        places: set[tuple[Index[Any], Any]] = {
            (index, text)
            for field, index in self._indexes.items()
            if (text := getattr(summary, field)) is not None
        }
        places.add((self._indexes["interface"], summary.access_interface))
        # The address is in the prefix, as a rule: one key finds both.
        for network in networks:
            if not any(network != other and ipv6.is_inside(network, other) for other in networks):
                places.add((self._networks, network))
        return places


def _counted(session: Session) -> list[str]:
    counted: list[str] = [session.summary.type, session.summary.state]
    if session.vrf_steered:
        counted.append("steered")
    if session.summary.ip_address is not None and not session.shared_address:
        counted.append("public")
    if session.summary.rate_down or session.summary.rate_up:
        counted.append("shaped")
    return counted
