"""World of the lab: sessions, VLANs, and the events that change the sessions and VLANs. Not thread-safe."""

import heapq
import logging
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network
from itertools import count
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gateway_contract.base import durable
from gateway_contract.base.errors import StepFailed
from gateway_contract.configuration import Configuration
from gateway_contract.contract import Record, record_of
from gateway_contract.core.sessions import SessionState, SessionSummary, SessionType
from gateway_core.configuration.store import Unreadable, disk_step, read_json
from gateway_core.gateways.lab.access import LabSession, ManagedVlan, VlanTable
from gateway_core.gateways.lab.network import LOOPBACK_IFINDEX
from gateway_core.gateways.lab.population import (
    MAX_LABS,
    LockedOutSubscribers,
    Population,
    Subscriber,
    SubscriberGenerator,
)
from gateway_core.gateways.lab.traffic import Traffic, TrafficModel
from gateway_core.records.clock import Expiry
from gateway_core.sessions.journal import Journal
from gateway_core.sessions.table import SessionTable

MAX_SESSIONS = 200_000

#: The benchmark networks of RFC 2544 stand for the provider's public addresses: no real network uses them.
_PUBLIC_ADDRESSES, _PUBLIC_GATEWAY = IPv4Network("198.18.0.0/15"), IPv4Address("198.18.0.1")

_log = logging.getLogger(__name__)


class AddressPool:
    """Pool of the host addresses of a network that follow the gateway's address. Labs of different numbers
    begin at different addresses.

    An address that was given back is assigned again only after all other free addresses, so that logs do not
    show two subscribers with the same address in a row.
    """

    def __init__(self, network: IPv4Network, gateway: IPv4Address, number: int) -> None:
        self.gateway = str(gateway)
        hosts = range(int(gateway) + 1, int(network.broadcast_address))
        self._unused_hosts = iter(hosts[len(hosts) // MAX_LABS * number :])
        self._returned_addresses: deque[str] = deque()

    def take(self, is_used: Callable[[str], bool]) -> str | None:
        """Take a free address from the pool, and return the address; None if no address is free. `is_used`
        returns True for an address that must not be taken."""
        return next((address for address in self._list_free_addresses() if not is_used(address)), None)

    def give_back(self, address: str) -> None:
        self._returned_addresses.append(address)

    def _list_free_addresses(self) -> Iterator[str]:
        for host in self._unused_hosts:
            yield str(IPv4Address(host))
        while self._returned_addresses:
            yield self._returned_addresses.popleft()


class TemporaryRate(Record, frozen=True):
    """Temporary rates of a session, with the expiry of the rates."""

    down_bps: int
    up_bps: int
    expiry: Expiry


class TemporaryRates:
    """Store of the temporary rates of sessions, by accounting id. The rates are kept in the file `path`, or
    only in memory if `path` is None."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.rate_of_id: dict[str, TemporaryRate] = {}
        if path is not None and path.exists():
            try:
                self.rate_of_id = read_json(path, dict[str, TemporaryRate])
            except Unreadable as error:
                _log.error("cannot read the temporary rates of the lab, the rates are lost: %s", error)

    def store(self, acct_session_id: str, rate: TemporaryRate) -> None:
        """Store the temporary rates of a session. Raises StepFailed if the file cannot be written; the former
        rates then stay."""
        self._write({**self.rate_of_id, acct_session_id: rate})

    def forget(self, acct_session_ids: Iterable[str]) -> None:
        """Remove the temporary rates of sessions. A failure to write the file is only logged, because these
        sessions have ended or have permanent rates."""
        known_ids = {id for id in acct_session_ids if id in self.rate_of_id}
        if known_ids:
            try:
                self._write({id: rate for id, rate in self.rate_of_id.items() if id not in known_ids})
            except StepFailed as error:
                _log.error(
                    "cannot remove temporary rates, they may return after a restart: %s", error.sentence
                )

    def _write(self, rates: dict[str, TemporaryRate]) -> None:
        if self._path is not None:
            with disk_step("store temporary rates"):
                durable.make_folder(self._path.parent)
                durable.replace(self._path, msgspec.json.encode(rates))
        self.rate_of_id = rates


class World:
    """World of the lab: `sessions` and `vlans`, generated from a seed. The sessions that exist at the start
    have no event in the `journal`.

    Times are the epoch time at the start of the lab plus the monotonic time since then, so times never jump.
    """

    def __init__(
        self,
        configuration: Configuration,
        population: Population,
        journal: Journal,
        now: float,
        rates: TemporaryRates,
    ) -> None:
        self.configuration = configuration
        self._number = population.number
        self._rates = rates
        self._journal = journal
        #: Time until which all events have been simulated.
        self.started = self._advanced_until = now
        self.sessions: SessionTable[LabSession] = SessionTable(configuration.cgnat)
        self.vlans = VlanTable(configuration.demux)
        self.ifindex_of: dict[str, int] = {}
        self._generator = SubscriberGenerator(population, configuration.demux)
        self._locked_out = LockedOutSubscribers(population.seed)
        self._traffic_model = TrafficModel(is_full_rate=population.is_full_rate)
        self.compute_usage = self._traffic_model.compute_usage
        self._public_pool = AddressPool(_PUBLIC_ADDRESSES, _PUBLIC_GATEWAY, population.number)
        self._shared_pool = _make_shared_pool(configuration, population.number)
        self._pool_of_session: dict[int, AddressPool] = {}
        self._unit_numbers = {"ppp": count(), "ipoe": count()}
        self._ids = count(1)
        self._ifindexes = count(LOOPBACK_IFINDEX + 1)
        self._assign_ifindexes()
        self._next_arrival = now + self._generator.draw_wait()
        #: Heap of departure times and session ids. Includes sessions that were disconnected earlier.
        self._departures: list[tuple[float, int]] = []
        for _ in range(population.sessions):
            self._add_subscriber(now, self._generator.draw_age(), is_at_start=True)
        self._restore_rates()

    def advance(self, now: float, max_events: int) -> bool:
        """Simulate the arrivals and departures that are due, at most `max_events`. Return True if more events
        may be due."""
        for _ in range(max_events):
            is_departure = bool(self._departures) and self._departures[0][0] <= self._next_arrival
            event_at = self._departures[0][0] if is_departure else self._next_arrival
            if event_at > now:
                self.vlans.expire(now)
                self._advanced_until = now
                return False
            self._advanced_until = event_at
            self.vlans.expire(event_at)
            if not is_departure:
                self._next_arrival += self._generator.draw_wait()
                self._add_subscriber(event_at)
                continue
            _, id = heapq.heappop(self._departures)
            session = self.sessions.get(id)
            if session is not None:
                self._end(session, self._generator.draw_end_reason(), event_at)
                failure = self._locked_out.draw_failure(session.summary, self.configuration.demux.trunks)
                if failure is not None:
                    subscriber, reason = failure
                    self._journal.add_failed_sign_on(reason, event_at, subscriber)
        return True

    def disconnect(self, sessions: Iterable[LabSession], now: float) -> None:
        """End existing sessions, with the reason admin_disconnect."""
        for session in sessions:
            self._end(session, "admin_disconnect", now)

    def set_rate(
        self, before: LabSession, down_bps: int, up_bps: int, expiry: Expiry | None, now: float
    ) -> LabSession:
        """Change the rates of a session, and return the changed session. Rates with an `expiry` are stored
        first. Raises StepFailed if the rates cannot be stored; the session then keeps the former rates."""
        if expiry is not None:
            self._rates.store(before.acct_session_id, TemporaryRate(down_bps, up_bps, expiry))
        else:
            self._rates.forget([before.acct_session_id])
        return self._change_rates(before, down_bps, up_bps, expiry, now)

    def find_sessions_to_end(self, configuration: Configuration) -> list[int]:
        """Return the ids of the sessions that `configure` would end, in ascending order."""
        removed_names = {vlan.access_vlan.name for vlan in self._find_vlans_on_removed_trunks(configuration)}
        sessions = self.sessions.all() if removed_names else ()
        return [session.id for session in sessions if session.access_interface in removed_names]

    def configure(self, configuration: Configuration, now: float) -> None:
        """Apply a new running configuration, as `Gateway.configure` describes. Due events that were not
        simulated yet are postponed. Otherwise the events could end sessions that the impact of the commit did
        not count."""
        if configuration.cgnat.source_range != self.configuration.cgnat.source_range:
            self._shared_pool = _make_shared_pool(configuration, self._number)
        self.configuration = configuration
        for vlan in self._find_vlans_on_removed_trunks(configuration):
            self.disconnect(self.sessions.find_on_access_interface(vlan.access_vlan.name), now)
            self.vlans.remove(vlan.access_vlan.name)
        self._assign_ifindexes()
        self._generator.configure(configuration.demux)
        self.vlans.configure(configuration.demux)
        self.sessions.configure(configuration.cgnat)
        delay, self._advanced_until = now - self._advanced_until, now
        self._next_arrival += delay
        self._departures = [(at + delay, id) for at, id in self._departures]

    def _change_rates(
        self, before: LabSession, down_bps: int, up_bps: int, expiry: Expiry | None, now: float
    ) -> LabSession:
        used_rates = self._traffic_model.find_used_rates(before.acct_session_id, up_bps, down_bps)
        after = replace(
            before,
            summary=replace(before.summary, rate_down=down_bps, rate_up=up_bps),
            traffic=before.traffic.with_rates(*used_rates, self.compute_usage(now)),
            expiry=expiry,
        )
        self.sessions.replace(after)
        self.vlans.change_traffic(before, after)
        return after

    def _restore_rates(self) -> None:
        rates = dict(self._rates.rate_of_id)
        for session in self.sessions.all() if rates else ():
            if rate := rates.pop(session.acct_session_id, None):
                self._change_rates(session, rate.down_bps, rate.up_bps, rate.expiry, self.started)
        self._rates.forget(rates)

    def _find_vlans_on_removed_trunks(self, configuration: Configuration) -> list[ManagedVlan]:
        return [vlan for vlan in self.vlans if vlan.access_vlan.trunk not in configuration.demux.trunks]

    def _add_subscriber(self, now: float, age: float = 0.0, *, is_at_start: bool = False) -> None:
        if len(self.sessions) >= MAX_SESSIONS:
            return
        subscriber = self._generator.draw_subscriber()
        if subscriber is None:
            return
        if not self.vlans.admit(subscriber.access_vlan, self._ifindexes, now, is_limited=not is_at_start):
            return
        session = self._make_session(subscriber, now - age)
        if session is None:
            return
        self.sessions.add(session)
        self.vlans.add_session(session, now - age)
        heapq.heappush(self._departures, (now + self._generator.draw_stay(), session.id))
        if not is_at_start:
            self._journal.add_session_up(session.summary, now)

    def _make_session(self, subscriber: Subscriber, started: float) -> LabSession | None:
        """Return a new session of a subscriber; None if no address is free."""
        pools = [self._public_pool, self._shared_pool]
        if not subscriber.wants_public_address:
            pools.reverse()
        # Pools may overlap, and a new pool does not know the addresses that a former pool has assigned.
        in_use = self.sessions.has_address
        pool_and_address = next(((pool, address) for pool in pools if (address := pool.take(in_use))), None)
        if pool_and_address is None:
            return None
        pool, address = pool_and_address
        id, qos = next(self._ids), self.configuration.qos
        self._pool_of_session[id] = pool
        kind = "ppp" if subscriber.session_type == "pppoe" else "ipoe"
        steered, shared = self.sessions.compute_steering(address)
        used_rates = self._traffic_model.find_used_rates(
            subscriber.acct_session_id, qos.default_up, qos.default_down
        )
        ifindex = next(self._ifindexes)
        next(self._ifindexes)  # for the IFB
        return LabSession(
            summary=record_of(
                SessionSummary,
                subscriber,
                subscriber.access_vlan,
                id=id,
                type=SessionType.PPPOE if kind == "ppp" else SessionType.DHCP,
                ip_address=address,
                interface=f"{kind}{next(self._unit_numbers[kind])}",
                rate_down=qos.default_down,
                rate_up=qos.default_up,
                state=SessionState.ACTIVE,
                started_at=int(started),
                # All sessions of the VLAN share one string object, to save memory.
                access_interface=sys.intern(subscriber.access_vlan.name),
                inner_vlan_id=subscriber.access_vlan.vlan_id,
                source="lab",
            ),
            gateway=pool.gateway,
            overhead_profile=subscriber.access_vlan.profile.overhead_profile,
            acct_session_id=subscriber.acct_session_id,
            vrf_steered=steered,
            shared_address=shared,
            ifindex=ifindex,
            traffic=Traffic().with_rates(*used_rates, self.compute_usage(started)),
        )

    def _end(self, session: LabSession, reason: str, now: float) -> None:
        self.sessions.remove(session.id)
        self._rates.forget([session.acct_session_id])
        usage = self.compute_usage(now)
        self.vlans.remove_session(session, now, usage)
        pool = self._pool_of_session.pop(session.id)
        if session.summary.ip_address is not None:
            pool.give_back(session.summary.ip_address)
        self._journal.add_session_down(session.summary, reason, now, session.traffic.compute_counters(usage))

    def _assign_ifindexes(self) -> None:
        interfaces = self.configuration.interfaces
        for name in (*interfaces.trunks, *interfaces.uplinks, self.configuration.cgnat.vrf_name):
            if name not in self.ifindex_of:
                self.ifindex_of[name] = next(self._ifindexes)


def _make_shared_pool(configuration: Configuration, number: int) -> AddressPool:
    return AddressPool(configuration.cgnat.source_range, configuration.cgnat.subscriber_gateway, number)
