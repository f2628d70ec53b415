"""The sessions of a gateway, found by whatever an operator knows of one."""

import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Network

from msgspec.structs import replace

from gateway_api.core.traffic import Traffic
from gateway_api.wire.core import Record, SessionDetail, SessionFilter, SessionSummary

#: RFC 6598: addresses that providers share among subscribers.
SHARED_ADDRESSES = IPv4Network("100.64.0.0/10")


class Session(Record, frozen=True):
    """One session at one moment; a change makes another object of it.

    `summary` is the list's record, kept ready: a list of 200,000 is encoded, not built.
    """

    summary: SessionSummary
    gateway: str
    overhead_profile: str
    acct_session_id: str
    ifindex: int
    vrf_steered: bool
    shared_address: bool
    traffic: Traffic

    @property
    def id(self) -> int:
        return self.summary.id

    @property
    def ifb_ifindex(self) -> int:
        """The IFB is made right after the session's own device."""
        return self.ifindex + 1

    @property
    def interface(self) -> str:
        return self.summary.interface

    @property
    def mac_address(self) -> str:
        return self.summary.mac_address

    @property
    def access_interface(self) -> str:
        return self.summary.access_interface

    @property
    def is_pppoe(self) -> bool:
        return self.summary.type == "PPPoE"

    def detail(self, now: float) -> SessionDetail:
        """The whole record, its counters as of `now`."""
        packets_in, packets_out = self.traffic.packets(now)
        return SessionDetail(
            id=self.id,
            session_type=self.summary.type,
            state=self.summary.state,
            username=self.summary.username,
            mac_address=self.mac_address,
            ip_address=self.summary.ip_address,
            gateway=self.gateway,
            access_interface=self.access_interface,
            ppp_interface=self.interface if self.is_pppoe else "",
            rate_down_bps=self.summary.rate_down,
            rate_up_bps=self.summary.rate_up,
            overhead_profile=self.overhead_profile,
            vrf_steered=self.vrf_steered,
            acct_session_id=self.acct_session_id,
            started_at=self.summary.started_at,
            bytes_in=self.traffic.up.read(now),
            bytes_out=self.traffic.down.read(now),
            packets_in=packets_in,
            packets_out=packets_out,
        )

    def matches(self, wanted: SessionFilter) -> bool:
        """True when every condition that is given holds."""
        return (
            (wanted.type is None or self.summary.type.lower() == wanted.type)
            and (wanted.username is None or self.summary.username == wanted.username)
            and (wanted.ip_address is None or self.summary.ip_address == wanted.ip_address)
            and (wanted.mac_address is None or self.mac_address == wanted.mac_address)
            and (wanted.interface is None or wanted.interface in (self.interface, self.access_interface))
        )


class Index:
    """Ids by a text. Most texts have one id, and 200,000 sets of one would take 40 MB."""

    def __init__(self) -> None:
        self._ids: dict[str, int | set[int]] = {}

    def add(self, text: str, id: int) -> None:
        held = self._ids.get(text)
        if held is None:
            self._ids[text] = id
        elif isinstance(held, int):
            self._ids[text] = {held, id}
        else:
            held.add(id)

    def remove(self, text: str, id: int) -> None:
        held = self._ids[text]
        if isinstance(held, int):
            del self._ids[text]
            return
        held.remove(id)
        if not held:
            del self._ids[text]

    def ids(self, text: str) -> list[int]:
        """In ascending order."""
        held = self._ids.get(text)
        if held is None:
            return []
        return [held] if isinstance(held, int) else sorted(held)


class SessionTable:
    """All sessions by id, username, address, MAC and interface. Ids are handed out ascending.

    Not for several threads at once: who owns the table holds a lock.
    """

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}
        self._by_username = Index()
        self._by_address = Index()
        self._by_mac = Index()
        self._by_interface = Index()
        self._counts: Counter[str] = Counter()
        self._all: list[Session] | None = None

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def all(self) -> Sequence[Session]:
        """All of them by id, as of now. The same object until something changes: a copy of 200,000
        takes longer than most of what is asked of it."""
        if self._all is None:
            self._all = list(self._sessions.values())
        return self._all

    def get(self, id: int) -> Session | None:
        return self._sessions.get(id)

    def add(self, session: Session) -> None:
        self._all = None
        self._sessions[session.id] = session
        for index, text in self._places(session):
            index.add(text, session.id)
        self._counts.update(_counted(session))

    def remove(self, id: int) -> Session:
        """Raises KeyError for an id that isn't there."""
        self._all = None
        session = self._sessions.pop(id)
        for index, text in self._places(session):
            index.remove(text, id)
        self._counts.subtract(_counted(session))
        return session

    def replace(self, session: Session) -> None:
        """Puts a changed session in the place of the one with its id; what it is found by stays."""
        self._all = None
        self._counts.subtract(_counted(self._sessions[session.id]))
        self._sessions[session.id] = session
        self._counts.update(_counted(session))

    def move_starts(self, seconds: int) -> None:
        """Has all sessions begin so many seconds later: the clock that they were dated by was set."""
        self._all = None
        self._sessions = {id: _moved(session, seconds) for id, session in self._sessions.items()}

    def count(self, what: str) -> int:
        """How many sessions are `PPPoE`, `DHCP`, `steered`, `shared` or `shaped`; kept, not counted."""
        return self._counts[what]

    def find(self, wanted: SessionFilter) -> Sequence[Session]:
        """The sessions that fit, by id. Only a filter by type alone looks at each of them."""
        if wanted == SessionFilter():
            return self.all()
        return [session for session in self._candidates(wanted) if session.matches(wanted)]

    def has_interface(self, interface: str) -> bool:
        """Whether a session has this interface, or arrived on it."""
        return bool(self._by_interface.ids(interface))

    def on_access_interface(self, interface: str) -> list[Session]:
        """The sessions that arrived on an interface, by id."""
        found = self.find(SessionFilter(interface=interface))
        return [session for session in found if session.access_interface == interface]

    def _candidates(self, wanted: SessionFilter) -> Iterable[Session]:
        for index, text in (
            (self._by_address, wanted.ip_address),
            (self._by_username, wanted.username),
            (self._by_mac, wanted.mac_address),
            (self._by_interface, wanted.interface),
        ):
            if text is not None:
                return [self._sessions[id] for id in index.ids(text)]
        return self._sessions.values()

    def _places(self, session: Session) -> Iterator[tuple[Index, str]]:
        yield self._by_username, session.summary.username
        yield self._by_address, session.summary.ip_address
        yield self._by_mac, session.mac_address
        yield self._by_interface, session.interface
        if session.access_interface != session.interface:
            yield self._by_interface, session.access_interface


def _moved(session: Session, seconds: int) -> Session:
    summary = replace(session.summary, started_at=session.summary.started_at + seconds)
    return replace(session, summary=summary)


def _counted(session: Session) -> list[str]:
    counted: list[str] = [session.summary.type]
    if session.vrf_steered:
        counted.append("steered")
    if session.shared_address:
        counted.append("shared")
    if session.summary.rate_down or session.summary.rate_up:
        counted.append("shaped")
    return counted


def sort_key(session: Session, field: str) -> int | str:
    """What sorts a session by a field of its summary: addresses as numbers, the rest as it is."""
    value: int | str = getattr(session.summary, field)
    if field == "ip_address":
        return int.from_bytes(socket.inet_aton(str(value)))
    return value
