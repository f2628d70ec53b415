"""The lab as a gateway: simulated subscribers behind the ports of the core."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from ipaddress import IPv4Address
from typing import Any

from gateway_api.core.clock import Clock
from gateway_api.core.configuration.sections import Configuration
from gateway_api.core.gateways.lab import interfaces, routing
from gateway_api.core.gateways.lab.population import Population
from gateway_api.core.gateways.lab.traffic import LabSession, Traffic
from gateway_api.core.gateways.lab.vlans import ManagedVlan
from gateway_api.core.gateways.lab.world import World
from gateway_api.core.journal import Journal
from gateway_api.core.paging import Chained, Key, Rows, Sorted
from gateway_api.core.session import Counters
from gateway_api.core.sessions import SessionTable
from gateway_api.wire.core.network import AddressFamily, Interface, InterfaceAddress
from gateway_api.wire.core.sessions import SessionDetail

#: Arrivals and departures in one hold of the lock: some ten milliseconds.
_AT_ONCE = 500


class LabGateway:
    """A `Gateway` with the subscribers of a `Population`. Their arrivals and departures are in the `journal`.

    Subscribers come and go, and the lab follows a clock that was set, only in `advance`. Counters are always
    up to date. The lock of the session table protects all of the world.
    """

    def __init__(
        self,
        configuration: Configuration,
        population: Population,
        journal: Journal,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._booted = clock.wall() - clock.steady()
        self._world = World(configuration, population, journal, self._now())
        self._lock = self._world.sessions.lock

    @property
    def sessions(self) -> SessionTable[LabSession]:
        return self._world.sessions

    def advance(self) -> None:
        """Makes all arrivals and departures that are due, some at a time, so that requests do not wait for
        all of them."""
        with self._lock:
            self._follow_clock()
        now, more = self._now(), True
        while more:
            with self._lock:
                more = self._world.advance(now, _AT_ONCE)

    def configure(self, configuration: Configuration) -> None:
        with self._present() as now:
            self._world.configure(configuration, now)

    def counters(self, session: LabSession) -> Counters:
        return session.traffic.counters(self._now())

    def disconnect(self, id: int) -> SessionDetail | None:
        with self._present() as now:
            session = self.sessions.get(id)
            if session is None:
                return None
            self._world.disconnect([session], now)
            return session.detail(session.traffic.counters(now))

    def disconnect_interface(self, interface: str, *, dry_run: bool) -> list[LabSession] | None:
        with self._present() as now:
            if not self._has_interface(interface, now):
                return None
            found = self.sessions.on_access_interface(interface)
            if not dry_run:
                self._world.disconnect(found, now)
            return found

    def set_rate(self, id: int, down_bps: int, up_bps: int) -> tuple[SessionDetail, SessionDetail] | None:
        with self._present() as now:
            session = self.sessions.get(id)
            if session is None:
                return None
            changed = self._world.set_rate(session, down_bps, up_bps, now)
            before, after = (one.detail(one.traffic.counters(now)) for one in (session, changed))
            return before, after

    def vlans(self) -> Rows:
        vlans, ahead, _ = self._vlans()
        return Sorted(vlans, _vlan_key, partial(ManagedVlan.record, ahead=ahead))

    def demux_vlans(self) -> tuple[Rows, int]:
        vlans, ahead, rejected = self._vlans()
        return Sorted(vlans, _vlan_key, partial(ManagedVlan.demux_record, ahead=ahead)), rejected

    def interfaces(self) -> Rows:
        with self._lock:
            now, sessions = self._now(), self.sessions.all()
            fixed = sorted(self._fixed_interfaces(now), key=lambda interface: interface.ifindex)
            vlans, _, _ = self._vlans()
        return Chained(
            Sorted(fixed, lambda interface: (0, interface.ifindex), lambda interface: interface),
            Sorted(vlans, lambda vlan: (1, *_vlan_key(vlan)), partial(interfaces.vlan, now=now)),
            Sorted(sessions, lambda session: (2, session.id), partial(interfaces.session, now=now)),
            Sorted(sessions, lambda session: (3, session.id), partial(interfaces.ifb, now=now)),
        )

    def routes(self) -> Rows:
        with self._lock:
            configuration, sessions = self._world.configuration, self.sessions.all()
        network = list(enumerate(routing.network_routes(configuration)))
        route = partial(routing.session_route, configuration.cgnat)
        return Chained(
            Sorted(network, lambda numbered: (0, numbered[0]), lambda numbered: numbered[1]),
            Sorted(sessions, lambda session: (1, session.id), route),
        )

    def bgp_summary(self) -> dict[str, Any]:
        with self._lock:
            bgp, sessions = self._world.configuration.bgp, len(self.sessions)
            started, ahead = self._world.started, self._world.ahead
        return routing.bgp_summary(bgp, sessions, int(self._now() - started), int(started) + ahead)

    @contextmanager
    def _present(self) -> Iterator[float]:
        """The time, with the world advanced to it: a change before arrivals that were due earlier would
        turn counters back."""
        with self._lock:
            now = self._now()
            while self._world.advance(now, _AT_ONCE):
                pass
            yield now

    def _now(self) -> float:
        """The lab's own time: see World."""
        return self._booted + self._clock.steady()

    def _follow_clock(self) -> None:
        ahead = self._clock.wall() - self._now()
        # In whole seconds, so that a clock that is slewed, or read a moment later, moves nothing.
        if abs(ahead - self._world.ahead) >= 1:
            self._world.set_ahead(round(ahead))

    def _vlans(self) -> tuple[list[ManagedVlan], int, int]:
        """The VLANs in order; how far the clock is ahead; how many VLANs the limits rejected."""
        with self._lock:
            vlans, ahead = list(self._world.vlans), self._world.ahead
            rejected = self._world.vlans.rate_limited_total
        return sorted(vlans, key=_vlan_key), ahead, rejected

    def _has_interface(self, name: str, now: float) -> bool:
        if name in self._world.vlans or self.sessions.has_interface(name):
            return True
        return any(interface.name == name for interface in self._fixed_interfaces(now))

    def _fixed_interfaces(self, now: float) -> Iterator[Interface]:
        configuration, ifindex_of = self._world.configuration, self._world.ifindex_of
        cgnat = configuration.cgnat
        yield interfaces.loopback()
        everything = Traffic.none(now)
        for name in configuration.interfaces.trunks:
            traffic = self._world.traffic[name]
            everything = everything.plus(traffic, now)
            yield interfaces.trunk(ifindex_of[name], name, traffic, now)
        for name in configuration.interfaces.uplinks:
            # The first uplink leads to the network. The lab simulates no traffic on the others.
            first = name == configuration.interfaces.uplinks[0]
            traffic = everything if first else Traffic.none(now)
            addresses = _uplink_addresses(configuration, name)
            handoff = cgnat.enabled and name == cgnat.handoff_interface
            master = cgnat.vrf_name if handoff else None
            yield interfaces.uplink(ifindex_of[name], name, addresses, master, traffic, now)
        if cgnat.enabled:
            yield interfaces.vrf(ifindex_of[cgnat.vrf_name], cgnat)


def _uplink_addresses(configuration: Configuration, name: str) -> tuple[InterfaceAddress, ...]:
    peers: list[IPv4Address] = []
    if configuration.bgp is not None and name == configuration.interfaces.uplinks[0]:
        peers += (neighbor.address for neighbor in configuration.bgp.neighbors)
    if configuration.cgnat.enabled and name == configuration.cgnat.handoff_interface:
        peers.append(configuration.cgnat.handoff_gateway)
    return tuple(InterfaceAddress(AddressFamily.INET, routing.own_address(peer), 30) for peer in peers)


def _vlan_key(vlan: ManagedVlan) -> Key:
    return vlan.line.trunk, vlan.line.outer_vlan_id or 0, vlan.line.vlan_id
