"""Subscribers of the lab: the times and VLANs of arrivals, the lengths of sessions, and failed sign-ons.

One seed determines all random numbers.
"""

import math
import random
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gateway_contract.configuration import Demux, VlanProfile
from gateway_contract.contract import Record
from gateway_contract.core.sessions import SessionSummary
from gateway_core.gateways.lab.access import AccessVlan

#: Share of the subscribers with PPPoE: three for each subscriber with DHCP.
_PPPOE_SHARE = 0.75
#: Share of the subscribers with public addresses.
_PUBLIC_SHARE = 0.3

#: 2001:db8::/32 is for documentation (RFC 3849): no real network uses these addresses. The lower half
#: contains a /64 for each subscriber, and the upper half a /56.
_DOCUMENTATION_NETWORK = 0x20010DB8 << 96
_DELEGATED_NETWORK = _DOCUMENTATION_NETWORK | 1 << 95
#: Number of subscribers after which IPv6 networks are assigned again. The first subscribers left long before.
_MAX_NETWORKS = 1 << 23

_SESSIONS_PER_VLAN = {"pppoe": 32, "dhcp": 16}
_MIN_VLANS = 4
_INNER_VLANS_PER_OUTER = 64
#: Mean length of a session in a lab that starts without sessions.
_MEAN_STAY_SECONDS = 3600.0
_MAX_AGE_SECONDS = 30 * 86400.0
#: Reasons of session ends (RFC 2866 section 5.10), and how often each occurs.
_END_REASONS = ("user_request", "lost_carrier", "idle_timeout", "session_timeout"), (60, 25, 10, 5)
#: Share of the departed subscribers who try to sign on again and fail.
_LOCKED_OUT_SHARE = 0.05
#: Reasons of failed sign-ons, and how often each occurs.
_SIGN_ON_FAILURES = ("rejected", "radius_timeout", "no_address", "session_limit"), (60, 15, 15, 10)
#: Maximum number of locked-out subscribers. One of them tries to sign on at each departure, so each one fails
#: about 20 times before newer subscribers replace it.
_MAX_LOCKED_OUT = 20


#: Labs of different numbers, from 0 to MAX_LABS - 1, have different subscribers and addresses.
MAX_LABS = 32
_SUBSCRIBERS_PER_LAB = 200_000


@dataclass(frozen=True)
class Population:
    """Settings of the lab's subscribers: sessions at the start, arrivals per second, seed, whether
    subscribers use their full rates, and the number of the lab.

    The rate of departures is chosen so that the mean number of sessions equals the number at the start. In a
    lab that starts without sessions, subscribers stay for an hour on average, and the number of sessions
    grows until departures balance arrivals.
    """

    sessions: int
    arrivals: float
    seed: int
    is_full_rate: bool = True
    number: int = 0

    @property
    def departures_per_session(self) -> float:
        """Probability per second that a session ends without a disconnect request."""
        if not self.arrivals:
            return 0.0
        return self.arrivals / self.sessions if self.sessions else 1 / _MEAN_STAY_SECONDS

    @property
    def mean_sessions(self) -> int:
        return self.sessions or int(self.arrivals * _MEAN_STAY_SECONDS)


class Subscriber(Record, frozen=True):
    """Subscriber of the lab. `number` counts from 0; `acct_session_id` contains 64 random bits."""

    number: int
    session_type: str
    access_vlan: AccessVlan
    wants_public_address: bool
    acct_session_id: str

    @property
    def mac_address(self) -> str:
        """Locally administered MAC address, unique for each subscriber."""
        return (2 << 40 | self.number).to_bytes(6).hex(":")

    @property
    def username(self) -> str:
        """Login of a PPPoE subscriber; MAC address of a DHCP subscriber."""
        if self.session_type == "dhcp":
            return self.mac_address
        return f"subscriber{self.number:06d}@lab.example"

    @property
    def is_dual_stack(self) -> bool:
        """True if the subscriber has IPv6 besides IPv4, as two thirds of the subscribers have."""
        return int(self.acct_session_id, 16) % 3 > 0

    @property
    def ipv6_address(self) -> str | None:
        return _format_ipv6(self._link_network | 2) if self.is_dual_stack else None

    @property
    def ipv6_prefix(self) -> str | None:
        """Prefix of the network that contains `ipv6_address`; None without IPv6."""
        return f"{_format_ipv6(self._link_network)}/64" if self.is_dual_stack else None

    @property
    def delegated_prefixes(self) -> tuple[str, ...]:
        """Prefix for the devices behind the subscriber's router; empty without IPv6."""
        network = _DELEGATED_NETWORK | self.number % _MAX_NETWORKS << 72
        return (f"{_format_ipv6(network)}/56",) if self.is_dual_stack else ()

    @property
    def _link_network(self) -> int:
        return _DOCUMENTATION_NETWORK | self.number % _MAX_NETWORKS << 64


def _format_ipv6(number: int) -> str:
    return socket.inet_ntop(socket.AF_INET6, number.to_bytes(16))


class SubscriberGenerator:
    """Generator of random subscribers and times. The same seed gives the same sequence."""

    def __init__(self, population: Population, demux: Demux) -> None:
        self._population = population
        self._subscribers = random.Random(population.seed)  # noqa: S311 - must be reproducible
        self._time_random = random.Random(f"{population.seed} times")  # noqa: S311 - must be reproducible
        self._next_number = population.number * _SUBSCRIBERS_PER_LAB
        self.configure(demux)

    def configure(self, demux: Demux) -> None:
        """Use the trunks and VLAN profiles of a new configuration for later arrivals."""
        self._vlans_of_type = {kind: list(self._list_vlans(demux, kind)) for kind in ("pppoe", "dhcp")}

    def draw_subscriber(self) -> Subscriber | None:
        """Return the next subscriber to arrive; None if no VLAN profile exists."""
        type_draw, vlan_draw, public_draw = (self._subscribers.random() for _ in range(3))
        acct_session_id = f"{self._subscribers.getrandbits(64):016x}"
        kind = "pppoe" if type_draw < _PPPOE_SHARE else "dhcp"
        if not self._vlans_of_type[kind]:
            kind = "dhcp" if kind == "pppoe" else "pppoe"
        vlans = self._vlans_of_type[kind]
        if not vlans:
            return None
        self._next_number += 1
        return Subscriber(
            number=self._next_number - 1,
            session_type=kind,
            access_vlan=vlans[int(vlan_draw * len(vlans))],
            wants_public_address=public_draw < _PUBLIC_SHARE,
            acct_session_id=acct_session_id,
        )

    def draw_age(self) -> float:
        """Return the age, in seconds, of a session that exists at the start of the lab."""
        departures = self._population.departures_per_session
        if not departures:
            return self._subscribers.uniform(60, 24 * _MEAN_STAY_SECONDS)
        return min(self._subscribers.expovariate(departures), _MAX_AGE_SECONDS)

    def draw_stay(self) -> float:
        """Return the seconds until a session ends without a disconnect request; infinite in a lab without
        arrivals."""
        departures = self._population.departures_per_session
        return self._time_random.expovariate(departures) if departures else math.inf

    def draw_wait(self) -> float:
        """Return the seconds until the next arrival; infinite in a lab without arrivals."""
        arrivals = self._population.arrivals
        return self._time_random.expovariate(arrivals) if arrivals else math.inf

    def draw_end_reason(self) -> str:
        return self._time_random.choices(*_END_REASONS)[0]

    def _list_vlans(self, demux: Demux, kind: str) -> Iterator[AccessVlan]:
        share = _PPPOE_SHARE if kind == "pppoe" else 1 - _PPPOE_SHARE
        wanted_count = int(self._population.mean_sessions * share / _SESSIONS_PER_VLAN[kind])
        profiles_and_trunks = [
            (profile, trunk) for profile in demux.profiles_of(kind) for trunk in demux.trunks
        ]
        for profile, trunk in profiles_and_trunks:
            yield from _list_first_vlans(
                profile, trunk, max(_MIN_VLANS, wanted_count // len(profiles_and_trunks) + 1)
            )


def _list_first_vlans(profile: VlanProfile, trunk: str, count: int) -> Iterator[AccessVlan]:
    """Yield the first VLANs of a profile on a trunk, at most `count`."""
    inner, outer = profile.vlan_range, profile.outer_vlan_range
    if outer is None:
        for vlan_id in range(inner.first, min(inner.last + 1, inner.first + count)):
            yield AccessVlan(trunk, vlan_id, None, profile)
        return
    vlans_per_outer = min(_INNER_VLANS_PER_OUTER, len(inner))
    for number in range(min(count, vlans_per_outer * len(outer))):
        outer_number, inner_number = divmod(number, vlans_per_outer)
        yield AccessVlan(trunk, inner.first + inner_number, outer.first + outer_number, profile)


class LockedOutSubscribers:
    """Latest departed subscribers who cannot sign on again.

    The class has its own random number generator, so that failed sign-ons do not change which subscribers
    arrive and depart.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(f"{seed} sign-ons")  # noqa: S311 - must be reproducible
        self._subscribers: deque[tuple[SessionSummary, str]] = deque(maxlen=_MAX_LOCKED_OUT)

    def draw_failure(
        self, departed: SessionSummary, trunks: Sequence[str]
    ) -> tuple[SessionSummary, str] | None:
        """Lock out a departed subscriber, with a small probability. Return a random locked-out subscriber and
        the reason why the sign-on fails. Return None if no subscriber is locked out, or if the random
        subscriber is not on one of the `trunks`."""
        if self._random.random() < _LOCKED_OUT_SHARE:
            self._subscribers.append((departed, self._random.choices(*_SIGN_ON_FAILURES)[0]))
        if not self._subscribers:
            return None
        subscriber, reason = self._random.choice(self._subscribers)
        tags = 1 if subscriber.outer_vlan_id is None else 2
        trunk = subscriber.access_interface.rsplit(".", tags)[0]
        return (subscriber, reason) if trunk in trunks else None
