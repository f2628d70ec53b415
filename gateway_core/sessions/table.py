"""Table of the sessions of a gateway, with an index for each property by which an operator finds sessions."""

import re
import threading
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network
from itertools import compress
from operator import attrgetter, methodcaller
from typing import Any, Generic, NamedTuple, Self, TypeVar

from msgspec.structs import replace

from gateway_contract.base import ipv6
from gateway_contract.base.search import SearchText, parse_search
from gateway_contract.configuration import Cgnat
from gateway_contract.contract import Record
from gateway_contract.core.sessions import SessionFilter, SessionState, SessionStatistics, SessionType
from gateway_core.records.orders import ChunkValues, Ordering, SortedSnapshot, SortedViews
from gateway_core.records.paging import Rows, SortedRows, WholeList, encode_chunk, limit_size, make_ipv4_key
from gateway_core.sessions.session import IFB_PREFIX, MAX_NAME_LENGTH, Session

K = TypeVar("K", bound=Hashable)
S = TypeVar("S", bound=Session)


# Indexes


class Index(Generic[K]):
    """Index from a key to session ids. Most keys have only one id, which is stored without a set: 200,000
    sets with one id each would take 40 MB."""

    def __init__(self) -> None:
        self._ids: dict[K, int | set[int]] = {}

    def add(self, key: K, id: int) -> None:
        entry = self._ids.get(key)
        if entry is None:
            self._ids[key] = id
        elif isinstance(entry, int):
            self._ids[key] = {entry, id}
        else:
            entry.add(id)

    def remove(self, key: K, id: int) -> None:
        entry = self._ids[key]
        if isinstance(entry, set):
            entry.remove(id)
        if isinstance(entry, int) or not entry:
            del self._ids[key]

    def find(self, key: K) -> list[int]:
        """Return the session ids of a key, in ascending order."""
        entry = self._ids.get(key)
        if entry is None:
            return []
        return [entry] if isinstance(entry, int) else sorted(entry)


class NetworkIndex(Index[int]):
    """Index from an IPv6 network to session ids. A network is a number that `ipv6.parse_network` returns. A
    search takes one step for each prefix length in the index."""

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

    def find_enclosing_ids(self, network: int) -> list[int]:
        """Return the session ids of all networks that contain `network`, which may be an address. The ids are
        in ascending order."""
        bits = network.bit_length()
        lengths = [length for length in self._lengths if length <= bits]
        return sorted({id for length in lengths for id in self.find(network >> bits - length)})

    def find_subnets(self, network: int) -> list[int]:
        """Return the networks that are a part of `network`, without `network` itself. If the index has a
        longer prefix, this method reads all networks of the index, which other threads may change
        meanwhile."""
        bits = network.bit_length()
        found: list[int] = []
        for longer in [length - bits for length in list(self._lengths) if length > bits]:
            # The subnets of one length are a range of numbers, in which no network of another length is.
            first, end = network << longer, network + 1 << longer
            found += [key for key in list(self._ids) if first <= key < end]
        return found


# Search


#: The text of an interface, number or accounting id, or the beginning of one.
_KEY_PATTERN = re.compile(r"[^\s@:]+")
#: A shorter beginning of an accounting id would find many sessions.
_MIN_ACCOUNTING_ID_LENGTH = 4
#: Separates the texts of two sessions. A username may have any other character.
_SEPARATOR = "\0"
#: Stands for a value that a session does not have.
_NO_VALUE = " "


class _ChunkTexts(NamedTuple):
    """Texts of the sessions of a chunk: one text for each session, and all texts `joined`. In most chunks,
    one search in `joined` shows that no session matches. Each method returns a list with a boolean for each
    text, True if the text matches. If no text matches, the list is empty."""

    texts: list[str]
    joined: str

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        text_list = list(texts)
        return cls(text_list, _SEPARATOR.join(["", *text_list, ""]))

    def match_part(self, part: str) -> list[bool]:
        return [part in text for text in self.texts] if part in self.joined else []

    def match_name(self, name: str) -> list[bool]:
        """Match texts whose whole username is `name`, or whose username is `name` before an `@`."""
        if not any(f"{_SEPARATOR}{name}{end}" in self.joined for end in (_SEPARATOR, "@")):
            return []
        return [text == name or text.startswith(f"{name}@") for text in self.texts]

    def match_key(self, key: str) -> list[bool]:
        """Match texts with the whole key `key`, with a name that is `key` before a dot (such as the trunk of
        a VLAN), or with an accounting id that begins with `key`."""
        begins, whole = f"\n{key}", f"\n{key}\n"
        if begins not in self.joined:
            return []
        # A number is an id or a VLAN id, and never the beginning of a name.
        before_dot = whole if key.isdecimal() else f"\n{key.rstrip('.')}."
        accounting_id = f"\n\n{key}" if len(key) >= _MIN_ACCOUNTING_ID_LENGTH else whole
        return [
            begins in keys and (whole in keys or before_dot in keys or accounting_id in keys)
            for keys in self.texts
        ]


class _SearchedChunk(NamedTuple):
    """Texts and addresses by which a search finds the sessions of a chunk. `addresses` are IPv4 addresses as
    numbers; -1 means no address."""

    usernames: _ChunkTexts
    #: The keys of a session are between line feeds.
    keys: _ChunkTexts
    macs: _ChunkTexts
    addresses: list[int]
    sorted_addresses: list[int]

    @classmethod
    def of(cls, sessions: Iterable[Session]) -> Self:
        sessions = list(sessions)
        addresses = [make_ipv4_key(session.summary.ip_address) for session in sessions]
        return cls(
            _ChunkTexts.of(session.summary.username.casefold() for session in sessions),
            _ChunkTexts.of(map(_make_search_text, sessions)),
            _ChunkTexts.of(_make_mac_text(session.summary.mac_address) for session in sessions),
            addresses,
            sorted(addresses),
        )

    def match(self, wanted: SearchText) -> Iterator[bool]:
        """Yield True or False for each session: True if the session matches the search text. Yield nothing if
        no session matches. Ids and IPv6 addresses are not compared here, but in `SessionTable`."""
        found: list[list[bool]] = []
        if wanted.name is not None:
            found.append(self.usernames.match_part(wanted.name))
        if wanted.short_name is not None:
            found.append(self.usernames.match_name(wanted.short_name))
        if wanted.key is not None and _KEY_PATTERN.fullmatch(wanted.key):
            found.append(self.keys.match_key(wanted.key))
        if wanted.mac is not None:
            found.append(self.macs.match_part(wanted.mac))
        if wanted.ipv4 is not None:
            found.append(self._match_addresses(*wanted.ipv4))
        return map(any, zip(*filter(None, found), strict=True))

    def _match_addresses(self, first: int, last: int) -> list[bool]:
        if bisect_left(self.sorted_addresses, first) == bisect_right(self.sorted_addresses, last):
            return []
        return [first <= number <= last for number in self.addresses]


def _make_search_text(session: Session) -> str:
    summary = session.summary
    keys = (
        summary.interface.casefold(),
        summary.access_interface.casefold(),
        summary.id,
        summary.outer_vlan_id,
        summary.inner_vlan_id,
    )
    # Two line feeds are before the accounting id, which is found by its beginning.
    texts = (_NO_VALUE if key is None or key == "" else str(key) for key in keys)
    return "\n" + "\n".join(texts) + f"\n\n{session.acct_session_id.casefold() or _NO_VALUE}\n"


def _make_mac_text(address: str | None) -> str:
    """Return a text that contains a MAC address twice: with colons, and as bare digits."""
    return f"{address} {address.replace(':', '')}" if address else ""


# The table

#: RFC 6598: addresses that providers share among subscribers.
_SHARED_ADDRESSES = IPv4Network("100.64.0.0/10")

#: Indexed fields of the summary and of a filter. The index of `interface` has the access interfaces, too.
_INDEXED_TEXTS = ("ip_address", "username", "mac_address", "interface")
_get_id = attrgetter("summary.id")
_BY_ID: Ordering[Any] = Ordering(_get_id)
_STEERED_SESSIONS_BY_ID: Ordering[Any] = Ordering(_get_id, attrgetter("vrf_steered"))
_get_indexed_values = attrgetter(
    *_INDEXED_TEXTS, "access_interface", "ipv6_address", "ipv6_prefix", "delegated_prefixes"
)


class SessionTable(Generic[S]):
    """Table of all sessions, which finds sessions by id, username, address, prefix, MAC address and
    interface. Sessions must be added in ascending order of their ids.

    Any thread may read. A thread that changes the table must hold the `lock`. All changes during one hold of
    the `lock` become visible together.
    """

    def __init__(self, cgnat: Cgnat) -> None:
        self.lock = threading.RLock()
        self._cgnat = cgnat
        self._sessions: dict[int, S] = {}
        self._indexes: dict[str, Index[str]] = {field: Index() for field in _INDEXED_TEXTS}
        self._networks = NetworkIndex()
        self._counts: Counter[str] = Counter()
        self._sorted_views = SortedViews(self._sessions)
        #: Each session takes 450 bytes in the searched chunks, and 400 bytes in the encoded chunks.
        self._search_texts: ChunkValues[S, _SearchedChunk] = ChunkValues(_SearchedChunk.of)
        self._encoded_chunks = ChunkValues[S, tuple[bytes, int]](
            lambda sessions: encode_chunk([session.summary for session in sessions])
        )
        #: The number of changes so far.
        self.version = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def all(self) -> SortedSnapshot[S]:
        """Return all sessions, sorted by id."""
        return self.snapshot(_BY_ID)

    def snapshot(self, ordering: Ordering[S]) -> SortedSnapshot[S]:
        """Return the present sessions of an ordering, in the order of the ordering."""
        with self.lock:
            return self._sorted_views.snapshot(ordering)

    def whole(self) -> WholeList:
        """Return the reply that lists all sessions, sorted by id."""
        sessions = self.all()
        chunks = (chunk for _, chunk in self._encoded_chunks.iterate(sessions))
        return WholeList("sessions", limit_size(chunks), len(sessions), {})

    def get(self, id: int) -> S | None:
        return self._sessions.get(id)

    def find(self, wanted: SessionFilter) -> list[S]:
        """Return the sessions that match a filter, sorted by id. The table reads all sessions if the filter
        is empty, has only a type, or has a search text."""
        address = wanted.ip_address
        if address is not None and ipv6.looks_like_ipv6(address) and not ipv6.is_address(address):
            return []
        if wanted.search is not None:
            return [session for session in self._search(wanted.search) if session.matches(wanted)]
        with self.lock:
            return [session for session in self._find_candidates(wanted) if session.matches(wanted)]

    def has_address(self, address: str) -> bool:
        return bool(self._indexes["ip_address"].find(address))

    def has_interface(self, interface: str) -> bool:
        """Return True if `interface` is the device, the IFB device or the access interface of a session."""
        with self.lock:
            index, device = self._indexes["interface"], interface.removeprefix(IFB_PREFIX)
            ids = index.find(device)
            if device == interface:
                return bool(ids)
            if device.isdecimal() and len(device) < MAX_NAME_LENGTH:
                ids.append(int(device))
            found = (self._sessions.get(id) for id in ids)
            return any(session.ifb_device == interface for session in found if session is not None)

    def find_on_access_interface(self, interface: str) -> list[S]:
        """Return the sessions on an access interface, sorted by id."""
        found = self.find(SessionFilter(interface=interface))
        return [session for session in found if session.access_interface == interface]

    def compute_statistics(self) -> SessionStatistics:
        """Return the counts of sessions. The time that this method takes does not depend on the number of
        sessions."""
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
        """Return a row for each session, sorted by id. `record` returns the record of a session for its
        row."""
        return SortedRows(self.all(), lambda session: (session.id,), record)

    def cgnat_sessions(self) -> Rows:
        """Return a row with a CgnatSession for each session that is steered to the CGNAT appliance, sorted by
        id."""
        with self.lock:
            cgnat, steered = self._cgnat, self.snapshot(_STEERED_SESSIONS_BY_ID)
        return SortedRows(steered, lambda session: (session.id,), methodcaller("make_cgnat", cgnat))

    def compute_steering(self, address: str | None) -> tuple[bool, bool]:
        """Return the values of `vrf_steered` and `shared_address` for a session with the IPv4 address
        `address`; None means no address."""
        if address is None:
            return False, False
        parsed = IPv4Address(address)
        in_range = any(parsed in network for network in self._cgnat.source_ranges)
        return in_range and self._cgnat.enabled, in_range or parsed in _SHARED_ADDRESSES

    def configure(self, cgnat: Cgnat) -> None:
        """Apply a new CGNAT configuration to all sessions."""
        self._cgnat = cgnat
        for session in self.all():
            steered, shared = self.compute_steering(session.summary.ip_address)
            if (steered, shared) != (session.vrf_steered, session.shared_address):
                self.replace(replace(session, vrf_steered=steered, shared_address=shared))

    def add(self, session: S) -> None:
        entries = self._make_index_entries(session)
        self._note_change(session.id, None)
        self._sessions[session.id] = session
        for index, key in entries:
            index.add(key, session.id)
        self._counts.update(_list_counted_properties(session))

    def remove(self, id: int) -> S:
        """Remove a session, and return it. Raises KeyError if there is no session with this id."""
        session = self._sessions.pop(id)
        self._note_change(id, session)
        for index, key in self._make_index_entries(session):
            index.remove(key, id)
        self._counts.subtract(_list_counted_properties(session))
        return session

    def replace(self, session: S) -> None:
        """Replace the session that has the same id as `session`."""
        id = session.id
        before = self._sessions[id]
        if _get_indexed_values(before.summary) != _get_indexed_values(session.summary):
            former, present = self._make_index_entries(before), self._make_index_entries(session)
            for index, key in former - present:
                index.remove(key, id)
            for index, key in present - former:
                index.add(key, id)
        self._note_change(id, before)
        self._sessions[id] = session
        self._counts.subtract(_list_counted_properties(before))
        self._counts.update(_list_counted_properties(session))

    def _note_change(self, id: int, before: S | None) -> None:
        self._sorted_views.note_change(id, before)
        self.version += 1

    def _search(self, text: str) -> list[S]:
        wanted = parse_search(text)
        if wanted.id is not None:
            session = self._sessions.get(wanted.id)
            return [] if session is None else [session]
        # Without the lock, which a search of 200,000 sessions would hold for long.
        found = [
            session
            for sessions, texts in self._search_texts.iterate(self.all())
            for session in compress(sessions, texts.match(wanted))
        ]
        network = wanted.ipv6
        if network is None:
            return found
        subnets = self._networks.find_subnets(network)
        with self.lock:
            ids = set(self._networks.find_enclosing_ids(network))
            ids.update(id for subnet in subnets for id in self._networks.find(subnet))
            by_id = {session.id: session for session in found} | {id: self._sessions[id] for id in ids}
        return [by_id[id] for id in sorted(by_id)]

    def _find_candidates(self, wanted: SessionFilter) -> Iterable[S]:
        """Return the sessions that may match a filter, sorted by id. These are the sessions that one index
        finds, or all sessions if no index applies."""
        if wanted.ip_address is not None and ipv6.looks_like_ipv6(wanted.ip_address):
            return [
                self._sessions[id]
                for id in self._networks.find_enclosing_ids(ipv6.parse_address(wanted.ip_address))
            ]
        for field, index in self._indexes.items():
            text = getattr(wanted, field)
            if text is not None:
                return [self._sessions[id] for id in index.find(text)]
        return self._sessions.values()

    def _make_index_entries(self, session: S) -> set[tuple[Index[Any], Any]]:
        """Return each index that contains a session, with the key of the session in the index."""
        summary, networks = session.summary, set(session.iterate_networks())
        entries: set[tuple[Index[Any], Any]] = {
            (index, text)
            for field, index in self._indexes.items()
            if (text := getattr(summary, field)) is not None
        }
        entries.add((self._indexes["interface"], summary.access_interface))
        # The address is usually inside the prefix: the key of the prefix finds both.
        for network in networks:
            if not any(network != other and ipv6.is_inside(network, other) for other in networks):
                entries.add((self._networks, network))
        return entries


def _list_counted_properties(session: Session) -> list[str]:
    properties: list[str] = [session.summary.type, session.summary.state]
    if session.vrf_steered:
        properties.append("steered")
    if session.summary.ip_address is not None and not session.shared_address:
        properties.append("public")
    if session.summary.rate_down or session.summary.rate_up:
        properties.append("shaped")
    return properties
