"""The lab's subscribers: who arrives, when, and where, and who cannot sign on again. All of it comes from one
seed."""

import heapq
import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gateway_contract.configuration import Demux, VlanProfile
from gateway_contract.contract import Record
from gateway_contract.core.sessions import SessionSummary
from gateway_core.gateways.lab.access import LabSession, Line
from gateway_core.sessions.journal import Journal

# A region with three PPPoE subscribers for each on DHCP, and a third of them with public addresses.
_PPPOE_SHARE = 0.75
_PUBLIC_SHARE = 0.3

#: 2001:db8::/32, which is for documentation (RFC 3849): no real network has it. Its lower half has a /64 for
#: each subscriber, its upper half a /56.
_DOCUMENTATION = 0x20010DB8 << 96
_DELEGATED = _DOCUMENTATION | 1 << 95
#: After so many subscribers, addresses are given again. The first of them have left long before.
_NETWORKS = 1 << 23

_SESSIONS_A_VLAN = {"pppoe": 32, "dhcp": 16}
_LEAST_VLANS = 4
#: Mean seconds of a session when nothing else determines them.
_STAY = 3600.0
_LONGEST_STAY = 30 * 86400.0
#: The reasons of session ends (RFC 2866 section 5.10), and how often each occurs.
_REASONS = ("user_request", "lost_carrier", "idle_timeout", "session_timeout"), (60, 25, 10, 5)
#: The part of those who leave that tries to come back, and fails.
_LOCKED_OUT_SHARE = 0.05
#: Why they cannot sign on, and how often each occurs.
_FAILURES = ("rejected", "radius_timeout", "no_address", "session_limit"), (60, 15, 15, 10)
#: A router waits longer after each failure, in seconds, as most of them do.
_FIRST_WAIT, _LONGEST_WAIT = 5.0, 300.0
#: Then its owner turns it off.
_ATTEMPTS = 20
#: Routers that try at a time. Without a bound, a lab with thousands of departures a second would fill the
#: memory, as each of its routers tries for more than an hour.
MOST_LOCKED_OUT = 5000


@dataclass(frozen=True)
class Population:
    """The number of sessions at the start, arrivals per second, and the seed. Subscribers use all of their
    rates all the time, or else as people do: see `traffic`.

    Subscribers leave so that the number at the start is also the mean. A lab that starts empty fills until
    its subscribers, who stay for an hour, leave as fast as they arrive.
    """

    sessions: int
    arrivals: float
    seed: int
    full_rate: bool = True

    @property
    def departures_each(self) -> float:
        """Departures of one subscriber per second."""
        if not self.arrivals:
            return 0.0
        return self.arrivals / self.sessions if self.sessions else 1 / _STAY

    @property
    def expected(self) -> int:
        """The mean number of sessions."""
        return self.sessions or int(self.arrivals * _STAY)


class Subscriber(Record, frozen=True):
    """A subscriber of the lab. `number` counts from 0."""

    number: int
    session_type: str
    line: Line
    wants_public_address: bool
    acct_session_id: str

    @property
    def mac_address(self) -> str:
        """A locally administered address, unique for each subscriber."""
        return (2 << 40 | self.number).to_bytes(6).hex(":")

    @property
    def username(self) -> str:
        """A login for PPPoE, the MAC address for DHCP."""
        if self.session_type == "dhcp":
            return self.mac_address
        return f"subscriber{self.number:06d}@lab.example"

    @property
    def is_dual_stack(self) -> bool:
        """Two thirds are. It is drawn from the random bits of the accounting id."""
        return int(self.acct_session_id, 16) % 3 > 0

    @property
    def ipv6_address(self) -> str | None:
        return _ipv6(self._link | 2) if self.is_dual_stack else None

    @property
    def ipv6_prefix(self) -> str | None:
        """The network of the address."""
        return f"{_ipv6(self._link)}/64" if self.is_dual_stack else None

    @property
    def delegated_prefixes(self) -> tuple[str, ...]:
        """One network for those behind the subscriber's router."""
        network = _DELEGATED | self.number % _NETWORKS << 72
        return (f"{_ipv6(network)}/56",) if self.is_dual_stack else ()

    @property
    def _link(self) -> int:
        return _DOCUMENTATION | self.number % _NETWORKS << 64


def _ipv6(number: int) -> str:
    return socket.inet_ntop(socket.AF_INET6, number.to_bytes(16))


class Roster:
    """The `ids` of the sessions, to draw one at random in constant time."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._places: dict[int, int] = {}

    def add(self, id: int) -> None:
        self._places[id] = len(self.ids)
        self.ids.append(id)

    def remove(self, id: int) -> None:
        """The last id takes the place of the removed one."""
        place = self._places.pop(id)
        last = self.ids.pop()
        if last != id:
            self.ids[place] = last
            self._places[last] = place


class Crowd:
    """Draws subscribers and the times between events: the same ones for the same seed."""

    def __init__(self, population: Population, demux: Demux) -> None:
        self._population = population
        self._random = random.Random(population.seed)  # noqa: S311 - reproducible is what it has to be
        self._number = 0
        self.configure(demux)

    def configure(self, demux: Demux) -> None:
        """From now on, subscribers arrive where these profiles allow."""
        self._lines = {kind: list(self._lines_of(demux, kind)) for kind in ("pppoe", "dhcp")}

    def next_subscriber(self) -> Subscriber | None:
        """Return the next one to arrive; None when no profile allows one."""
        share, line_draw, public_draw = (self._random.random() for _ in range(3))
        acct_session_id = f"{self._random.getrandbits(64):016x}"
        kind = "pppoe" if share < _PPPOE_SHARE else "dhcp"
        if not self._lines[kind]:
            kind = "dhcp" if kind == "pppoe" else "pppoe"
        lines = self._lines[kind]
        if not lines:
            return None
        self._number += 1
        return Subscriber(
            number=self._number - 1,
            session_type=kind,
            line=lines[int(line_draw * len(lines))],
            wants_public_address=public_draw < _PUBLIC_SHARE,
            acct_session_id=acct_session_id,
        )

    def age(self) -> float:
        """Seconds since the start of a session that exists from the beginning."""
        each = self._population.departures_each
        if not each:
            return self._random.uniform(60, 24 * _STAY)
        return min(self._random.expovariate(each), _LONGEST_STAY)

    def next_event(self, present: int) -> tuple[float, bool] | None:
        """Seconds until the next event, and whether it is an arrival."""
        arrivals = self._population.arrivals
        rate = arrivals + present * self._population.departures_each
        if not rate:
            return None
        return self._random.expovariate(rate), self._random.random() * rate < arrivals

    def departure(self, roster: Roster) -> tuple[int, str]:
        """Return the id of a session that ends, and the reason. The roster must not be empty."""
        return self._random.choice(roster.ids), self._random.choices(*_REASONS)[0]

    def _lines_of(self, demux: Demux, kind: str) -> Iterator[Line]:
        share = _PPPOE_SHARE if kind == "pppoe" else 1 - _PPPOE_SHARE
        wanted = int(self._population.expected * share / _SESSIONS_A_VLAN[kind])
        profiles = list(demux.profiles_of(kind))
        places = [(profile, trunk) for profile in profiles for trunk in demux.trunks]
        for profile, trunk in places:
            yield from _lines_in(profile, trunk, max(_LEAST_VLANS, wanted // len(places) + 1))


def _lines_in(profile: VlanProfile, trunk: str, most: int) -> Iterator[Line]:
    """The first VLANs of a profile on a trunk. With two tags, 64 inner VLANs share an outer one."""
    inner, outer = profile.vlan_range, profile.outer_vlan_range
    if outer is None:
        for vlan_id in range(inner.first, min(inner.last + 1, inner.first + most)):
            yield Line(trunk, vlan_id, None, profile)
        return
    together = min(64, len(inner))
    for number in range(min(most, together * len(outer))):
        outer_number, inner_number = divmod(number, together)
        yield Line(trunk, inner.first + inner_number, outer.first + outer_number, profile)


class Attempt(NamedTuple):
    """A sign-on that fails. `at` is in the lab's own time; attempts sort by it. Each subscriber has another
    `number`."""

    at: float
    number: int
    wait: float
    left: int
    reason: str
    subscriber: SessionSummary

    @property
    def trunk(self) -> str:
        tags = 1 if self.subscriber.outer_vlan_id is None else 2
        return self.subscriber.access_interface.rsplit(".", tags)[0]


class LockedOut:
    """Some of those who leave try to come back, and fail: the `journal` has it. All of it comes from a seed,
    and from a generator of its own: the same subscribers arrive and leave with it as without it."""

    def __init__(self, seed: int, journal: Journal) -> None:
        self._random = random.Random(f"{seed} sign-ons")  # noqa: S311 - reproducible is what it has to be
        self._journal = journal
        self._next: list[Attempt] = []
        self._number = 0

    def configure(self, demux: Demux) -> None:
        """Nobody tries again on a trunk that these settings do not have."""
        self._next = [attempt for attempt in self._next if attempt.trunk in demux.trunks]
        heapq.heapify(self._next)

    def left(self, session: LabSession, now: float) -> None:
        """A session has ended. Its subscriber may try to come back."""
        share, wait = self._random.random(), self._random.uniform(1, _FIRST_WAIT)
        (reason,) = self._random.choices(*_FAILURES)
        if share < _LOCKED_OUT_SHARE and len(self._next) < MOST_LOCKED_OUT:
            self._number += 1
            heapq.heappush(
                self._next, Attempt(now + wait, self._number, wait, _ATTEMPTS, reason, session.summary)
            )

    def advance(self, now: float, ahead: int, most: int) -> bool:
        """Make the attempts that are due, at most so many; the journal has them `ahead` seconds later. True
        when more are due."""
        for _ in range(most):
            if not self._next or self._next[0].at > now:
                return False
            attempt = heapq.heappop(self._next)
            self._journal.sign_on_failed(attempt.reason, attempt.at + ahead, attempt.subscriber)
            if attempt.left > 1:
                wait = min(2 * attempt.wait, _LONGEST_WAIT)
                again = attempt._replace(at=attempt.at + wait, wait=wait, left=attempt.left - 1)
                heapq.heappush(self._next, again)
        return True
