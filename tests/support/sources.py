"""Sources of sessions in this process, and what is around a tracker, for tests of its logic."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gateway_contract.core.sessions import SessionEvent, SessionType
from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.linux.daemons.source import (
    NO_SESSIONS,
    UNKNOWN,
    Source,
    SourceEnd,
    SourceRefused,
    SourceSession,
    SourceTraffic,
    SourceUnavailable,
)
from gateway_core.gateways.linux.sessions.session import LinuxSession, SessionTerms
from gateway_core.gateways.linux.sessions.session_store import SessionStore
from gateway_core.gateways.linux.sessions.tracker import Tracker
from gateway_core.sessions.journal import Journal
from gateway_core.sessions.session import Counters
from tests.support.clocks import NOW
from tests.support.core_clock import StillClock
from tests.support.documents import valid_document

CGNAT = RunningConfiguration.of(valid_document()).sections.cgnat
TERMS = SessionTerms("100.64.0.1", "pppoe_ethernet", 50_000_000, 10_000_000, None, 100)


def listed(key: str, **fields: Any) -> SourceSession:
    """Return a PPPoE session, as a source lists it."""
    return SourceSession(
        **{
            "key": key,
            "type": SessionType.PPPOE,
            "username": f"user-{key}",
            "mac_address": "02:00:00:00:00:06",
            "access_interface": "trunk0.100",
            "interface": "ppp0",
            "ip_address": "100.64.0.10",
            "ipv6_address": None,
            "ipv6_prefix": None,
            "delegated_prefixes": (),
            "acct_session_id": key,
            "started_at": NOW - 60,
            "rate_down": None,
            "rate_up": None,
            **fields,
        }
    )


class ListedSource:
    """A Source with the sessions that a test gives it. `at_poll` is called at the start of each poll."""

    def __init__(self, name: str = "accel-ppp") -> None:
        self.name = name
        self.listed: dict[str, SourceSession] = {}
        #: The sessions that it had listed before, by the last poll.
        self.former: Mapping[str, SourceSession] = {}
        self.fails = False
        self.twice = False
        self.reasons: dict[str, str] = {}
        self.polls = 0
        self.at_poll: Callable[[], None] = lambda: None
        #: The keys of the requests to end a session, which `at_terminate` carries out.
        self.terminated: list[str] = []
        self.at_terminate: Callable[[str], None] = self.down
        self.counted: dict[str, SourceTraffic] = {}
        #: The numbers of ends that it was asked for, and whether it tells nothing of them.
        self.asked: list[int] = []
        self.forgets = False
        self.worry: str | None = None
        #: The VLANs with their types, and whether more are refused.
        self.served: dict[str, SessionType] = {}
        self.refuses = False

    def up(self, *sessions: SourceSession) -> None:
        self.listed |= {session.key: session for session in sessions}

    def down(self, key: str, reason: str = "admin_disconnect") -> None:
        del self.listed[key]
        self.reasons[key] = reason

    def list_sessions(self, former: Mapping[str, SourceSession] = NO_SESSIONS) -> Sequence[SourceSession]:
        self.polls += 1
        self.former = dict(former)
        self.at_poll()
        if self.fails:
            raise SourceUnavailable(f"cannot reach {self.name}")
        return list(self.listed.values()) * (2 if self.twice else 1)

    def terminate(self, session: SourceSession) -> None:
        if self.fails:
            raise SourceUnavailable(f"cannot reach {self.name}")
        self.terminated.append(session.key)
        if session.key in self.listed:
            self.at_terminate(session.key)

    def read_ends(self, keys: Sequence[str]) -> Mapping[str, SourceEnd]:
        self.asked.append(len(keys))
        if self.forgets:
            raise SourceUnavailable(f"cannot reach {self.name}")
        return {key: SourceEnd(self.reasons.get(key, UNKNOWN), self.counted.get(key)) for key in keys}

    def find_concern(self) -> str | None:
        return self.worry

    def serve(self, interfaces: Sequence[str], type: SessionType) -> None:
        self._check()
        self.served.update(dict.fromkeys(interfaces, type))

    def release(self, interface: str) -> None:
        self._check()
        self.served.pop(interface, None)

    def _check(self) -> None:
        if self.fails:
            raise SourceUnavailable(f"cannot reach {self.name}")
        if self.refuses:
            raise SourceRefused(f"{self.name} refused")


class Surroundings:
    """The surroundings of sessions that a test wants, which record their calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []
        #: Called where sessions have left the table, before their ends are told.
        self.at_end: Callable[[], None] = lambda: None
        self.counted = Counters(1000, 2000, 10, 20)

    def make_terms(self, _: SourceSession) -> SessionTerms:
        return TERMS

    def read_baseline(self, _: SourceSession) -> Counters:
        return self.counted

    def find_traffic(self, session: LinuxSession, counted: SourceTraffic | None) -> Counters:
        return session.count_traffic(self.counted)

    def add_sessions(self, sessions: Sequence[LinuxSession]) -> None:
        self.calls.append(("appeared", [session.id for session in sessions]))

    def update_sessions(self, sessions: Sequence[LinuxSession]) -> None:
        self.calls.append(("changed", [session.id for session in sessions]))

    def remove_sessions(self, sessions: Sequence[LinuxSession]) -> None:
        self.calls.append(("gone", [session.id for session in sessions]))
        self.at_end()


def poll(tracker: Tracker) -> None:
    """Poll each source now, one after the other."""
    for watch in tracker.watches:
        watch.poll()


class Lives:
    """A tracker that is killed and started again on one folder. `events` has those of all its journals."""

    def __init__(self, folder: Path, *sources: Source) -> None:
        self.sources: tuple[Source, ...] = sources or (ListedSource(),)
        self.clock = StillClock()
        self.surroundings = Surroundings()
        self.folder = folder
        self._earlier: list[SessionEvent] = []
        self.start()

    def start(self) -> None:
        self.store, self.journal = self.made()
        self.tracker = Tracker(
            self.sources, self.store, self.journal, self.clock, CGNAT, self.surroundings, self._pass
        )

    def made(self) -> tuple[SessionStore, Journal]:
        return SessionStore(self.folder), Journal("life")

    def kill(self) -> None:
        self._earlier = self.events
        self.store.close()

    def restart(self) -> None:
        self.kill()
        self.start()

    def poll(self) -> None:
        poll(self.tracker)

    @property
    def events(self) -> list[SessionEvent]:
        return self._earlier + events(self.journal)

    def _pass(self, seconds: float) -> None:
        self.clock.now += seconds


def events(journal: Journal) -> list[SessionEvent]:
    """Return all events of a journal."""
    found: list[SessionEvent] = []
    for reply in journal.follow(None, 0):
        assert reply is not None
        found += [msgspec.json.decode(event, type=SessionEvent) for event in reply.events]
        if len(found) == reply.newest:
            break
    return found
