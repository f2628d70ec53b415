"""The lab's world: sessions, VLANs and traffic, and what happens to them.

Every list derives from it on request. So no second copy can show a session that has ended. Not thread-safe.
"""

import heapq
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network
from itertools import count

from msgspec.structs import replace

from gateway_contract.configuration import Configuration
from gateway_contract.contract import record_of
from gateway_contract.core.sessions import SessionState, SessionSummary, SessionType
from gateway_core.gateways.lab.access import LabSession, ManagedVlan, VlanTable
from gateway_core.gateways.lab.kept_rates import KeptRate, KeptRates
from gateway_core.gateways.lab.network import LOOPBACK_IFINDEX
from gateway_core.gateways.lab.population import Crowd, LockedOut, Population, Roster, Subscriber
from gateway_core.gateways.lab.traffic import Demand, FullRate, Meter, People, Traffic
from gateway_core.records.clock import Expiry
from gateway_core.sessions.journal import Journal
from gateway_core.sessions.table import SessionTable

MAX_SESSIONS = 200_000

#: RFC 2544's benchmark networks stand for the public addresses of the provider: no real network has them.
_PUBLIC_ADDRESSES, _PUBLIC_GATEWAY = IPv4Network("198.18.0.0/15"), IPv4Address("198.18.0.1")


class AddressPool:
    """The host addresses of a network behind the one of its gateway.

    A returned address is the last to go out again, so that logs do not show two subscribers with it in a row.
    """

    def __init__(self, network: IPv4Network, gateway: IPv4Address) -> None:
        self.gateway = str(gateway)
        self._unused = iter(range(int(gateway) + 1, int(network.broadcast_address)))
        self._returned: deque[str] = deque()

    def take(self, in_use: Callable[[str], bool]) -> str | None:
        """Return a free address; None when there is none."""
        return next((address for address in self._candidates() if not in_use(address)), None)

    def give_back(self, address: str) -> None:
        self._returned.append(address)

    def _candidates(self) -> Iterator[str]:
        for host in self._unused:
            yield str(IPv4Address(host))
        while self._returned:
            yield self._returned.popleft()


class UnitPool:
    """Numbers from 0 up, the lowest free one first, as the kernel numbers ppp devices."""

    def __init__(self) -> None:
        self._unused = count()
        self._returned: list[int] = []

    def take(self) -> int:
        return heapq.heappop(self._returned) if self._returned else next(self._unused)

    def give_back(self, unit: int) -> None:
        heapq.heappush(self._returned, unit)


class World:
    """`sessions` and `vlans`, from a seed. The first sessions have no event in the `journal`.

    Times inside are the lab's own: epoch seconds by the clock at the start, so they never jump. Shown times
    are `ahead` of them by whole seconds, and so follow a clock that is set.
    """

    def __init__(
        self,
        configuration: Configuration,
        population: Population,
        journal: Journal,
        now: float,
        kept: KeptRates | None = None,
    ) -> None:
        self.configuration = configuration
        self._kept = kept
        self._journal = journal
        self.started = self._at = now
        self.ahead = 0
        self.sessions: SessionTable[LabSession] = SessionTable(configuration.cgnat)
        self.vlans = VlanTable(configuration.demux)
        self.ifindex_of: dict[str, int] = {}
        self._roster = Roster()
        self._crowd = Crowd(population, configuration.demux)
        self._locked_out = LockedOut(population.seed, journal)
        self._demand = _demand_of(population, now)
        self._public = AddressPool(_PUBLIC_ADDRESSES, _PUBLIC_GATEWAY)
        self._shared = _shared_pool(configuration)
        self._pools: dict[int, AddressPool] = {}
        self._units = {"ppp": UnitPool(), "ipoe": UnitPool()}
        self._ids = count(1)
        self._ifindexes = count(LOOPBACK_IFINDEX + 1)
        self._number_interfaces()
        for _ in range(population.sessions):
            self._arrive(now, self._crowd.age(), limited=False)
        self._due = self._crowd.next_event(len(self.sessions))
        if kept is not None:
            self._restore_rates(kept, now)

    def advance(self, now: float, most: int) -> bool:
        """Make the arrivals and departures that are due, then the sign-ons that fail, at most so many of
        each. True when more are due."""
        for _ in range(most):
            if self._due is None or self._at + self._due[0] > now:
                self.vlans.expire(now)
                return self._locked_out.advance(now, self.ahead, most)
            wait, arrives = self._due
            self._at += wait
            self.vlans.expire(self._at)
            if arrives:
                self._arrive(self._at)
            else:
                id, reason = self._crowd.departure(self._roster)
                self._locked_out.left(self._leave(id, reason, self._at), self._at)
            self._due = self._crowd.next_event(len(self.sessions))
        return True

    def set_ahead(self, ahead: int) -> None:
        """Show all times by a clock that was set."""
        self.sessions.move_starts(ahead - self.ahead)
        self.ahead = ahead

    def disconnect(self, sessions: Iterable[LabSession], now: float) -> None:
        """End these sessions, which must exist."""
        for session in sessions:
            self._leave(session.id, "admin_disconnect", now)
        self._draw_next_event(now)

    def set_rate(
        self, before: LabSession, down_bps: int, up_bps: int, expiry: Expiry | None, now: float
    ) -> LabSession:
        """Shape a session, which must exist, at other rates. Return the changed one. Raises StepFailed."""
        if self._kept is not None and expiry is not None:
            self._kept.put(before.acct_session_id, KeptRate(down_bps, up_bps, expiry))
        elif self._kept is not None and before.expiry is not None:
            self._kept.forget(before.acct_session_id)
        return self._shape(before, down_bps, up_bps, expiry, now)

    def _shape(
        self, before: LabSession, down_bps: int, up_bps: int, expiry: Expiry | None, now: float
    ) -> LabSession:
        after = replace(
            before,
            summary=replace(before.summary, rate_down=down_bps, rate_up=up_bps),
            traffic=before.traffic.moving(up_bps, down_bps, now),
            expiry=expiry,
        )
        self.sessions.replace(after)
        self.vlans.changed(before, after)
        return after

    def sessions_on_removed_trunks(self, configuration: Configuration) -> list[int]:
        """Return the ids of the sessions that `configure` would end, ascending."""
        lost = {vlan.line.name for vlan in self._lost_vlans(configuration)}
        sessions = self.sessions.all() if lost else ()
        return [session.id for session in sessions if session.access_interface in lost]

    def configure(self, configuration: Configuration, now: float) -> None:
        """As `Gateway.configure`."""
        if configuration.cgnat.source_range != self.configuration.cgnat.source_range:
            self._shared = _shared_pool(configuration)
        self.configuration = configuration
        for vlan in self._lost_vlans(configuration):
            for session in self.sessions.on_access_interface(vlan.line.name):
                self._leave(session.id, "admin_disconnect", now)
            self.vlans.remove(vlan.line.name)
        self._number_interfaces()
        self._crowd.configure(configuration.demux)
        self._locked_out.configure(configuration.demux)
        self.vlans.configure(configuration.demux)
        self.sessions.configure(configuration.cgnat)
        self._draw_next_event(now)

    def _restore_rates(self, kept: KeptRates, now: float) -> None:
        rates = kept.all()
        for session in self.sessions.all() if rates else ():
            if rate := rates.pop(session.acct_session_id, None):
                self._shape(session, rate.down_bps, rate.up_bps, rate.expiry, now)
        for id in rates:
            kept.forget(id)

    def _lost_vlans(self, configuration: Configuration) -> list[ManagedVlan]:
        """Return the VLANs on trunks that a new configuration does not have."""
        return [vlan for vlan in self.vlans if vlan.line.trunk not in configuration.demux.trunks]

    def _draw_next_event(self, now: float) -> None:
        # The next event depends on the number of sessions: the event drawn before may no longer be possible.
        self._at = now
        self._due = self._crowd.next_event(len(self.sessions))

    def _arrive(self, now: float, age: float = 0.0, *, limited: bool = True) -> None:
        if len(self.sessions) >= MAX_SESSIONS:
            return
        subscriber = self._crowd.next_subscriber()
        if subscriber is None or not self.vlans.admit(subscriber.line, self._ifindexes, now, limited=limited):
            return
        started = now - age
        session = self._session_of(subscriber, started)
        if session is None:
            return
        self.sessions.add(session)
        self._roster.add(session.id)
        self.vlans.join(session, started)
        if limited:
            self._journal.session_up(session.summary, now + self.ahead)

    def _session_of(self, subscriber: Subscriber, started: float) -> LabSession | None:
        pools = [self._public, self._shared]
        if not subscriber.wants_public_address:
            pools.reverse()
        # Pools may overlap, and a new pool does not know the addresses that the former one gave out.
        in_use = self.sessions.has_address
        taken = next(((pool, address) for pool in pools if (address := pool.take(in_use))), None)
        if taken is None:
            return None
        pool, address = taken
        id, qos = next(self._ids), self.configuration.qos
        self._pools[id] = pool
        kind = "ppp" if subscriber.session_type == "pppoe" else "ipoe"
        steered, shared = self.sessions.steering(address)
        down, up = self._demand(subscriber.acct_session_id)
        ifindex = next(self._ifindexes)
        next(self._ifindexes)  # the IFB's
        return LabSession(
            summary=record_of(
                SessionSummary,
                subscriber,
                subscriber.line,
                id=id,
                type=SessionType.PPPOE if kind == "ppp" else SessionType.DHCP,
                ip_address=address,
                interface=f"{kind}{self._units[kind].take()}",
                rate_down=qos.default_down,
                rate_up=qos.default_up,
                state=SessionState.ACTIVE,
                started_at=int(started) + self.ahead,
                # One text for all sessions of the VLAN.
                access_interface=sys.intern(subscriber.line.name),
                inner_vlan_id=subscriber.line.vlan_id,
                source="lab",
            ),
            gateway=pool.gateway,
            overhead_profile=subscriber.line.profile.overhead_profile,
            acct_session_id=subscriber.acct_session_id,
            vrf_steered=steered,
            shared_address=shared,
            ifindex=ifindex,
            traffic=Traffic(
                up=Meter.started(started, up, qos.default_up),
                down=Meter.started(started, down, qos.default_down),
            ),
        )

    def _leave(self, id: int, reason: str, now: float) -> LabSession:
        session = self.sessions.remove(id)
        if self._kept is not None and session.expiry is not None:
            self._kept.forget(session.acct_session_id)
        self._roster.remove(id)
        self.vlans.leave(session, now)
        pool = self._pools.pop(id)
        if session.summary.ip_address is not None:
            pool.give_back(session.summary.ip_address)
        kind = "ppp" if session.is_pppoe else "ipoe"
        self._units[kind].give_back(int(session.interface.removeprefix(kind)))
        self._journal.session_down(session.summary, reason, now + self.ahead, session.traffic.counters(now))
        return session

    def _number_interfaces(self) -> None:
        interfaces = self.configuration.interfaces
        for name in (*interfaces.trunks, *interfaces.uplinks, self.configuration.cgnat.vrf_name):
            if name not in self.ifindex_of:
                self.ifindex_of[name] = next(self._ifindexes)


def _shared_pool(configuration: Configuration) -> AddressPool:
    return AddressPool(configuration.cgnat.source_range, configuration.cgnat.subscriber_gateway)


def _demand_of(population: Population, now: float) -> Callable[[str], tuple[Demand, Demand]]:
    """Return the demand down and up of a subscriber, by accounting id."""
    if population.full_rate:
        demand = Demand(FullRate())
        return lambda _: (demand, demand)
    return People(population.seed, now).of
