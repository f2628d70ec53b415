"""The lab behind the `Gateway` interface: any thread may ask, and each answer is of one moment."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from ipaddress import IPv4Address
from typing import Any

from gateway_api.core.clock import Clock
from gateway_api.core.configuration.sections import Cgnat, Configuration
from gateway_api.core.gateways.lab import interfaces, routing
from gateway_api.core.gateways.lab.population import Population
from gateway_api.core.gateways.lab.vlans import ManagedVlan
from gateway_api.core.gateways.lab.world import World
from gateway_api.core.journal import Journal
from gateway_api.core.overhead import OVERHEAD_PROFILES
from gateway_api.core.paging import Chained, Key, Rows, Sorted
from gateway_api.core.sessions import Session
from gateway_api.core.traffic import Traffic
from gateway_api.wire.core import (
    CgnatSession,
    Interface,
    InterfaceAddress,
    SessionDetail,
    SessionFilter,
    SessionQos,
    Statistics,
)

#: Arrivals and departures while the lock is held: some ten milliseconds.
_AT_ONCE = 500


class LabGateway:
    """A gateway with the subscribers of a `Population`.

    Who comes and goes is written into the `journal`. Subscribers come and go, and a clock that was set is
    noticed, only in `advance`; counters always are where they have to be.
    """

    def __init__(
        self,
        configuration: Configuration,
        population: Population,
        journal: Journal,
        clock: Clock,
    ) -> None:
        self._lock = threading.RLock()
        self._clock = clock
        self._booted = clock.wall() - clock.steady()
        self._world = World(configuration, population, journal, self._now())

    def advance(self) -> None:
        """Lets everybody come and go who is due by now, some at a time, so that those who ask don't
        wait for all of them."""
        with self._lock:
            self._follow_clock()
        now, more = self._now(), True
        while more:
            with self._lock:
                more = self._world.advance(now, _AT_ONCE)

    def configure(self, configuration: Configuration) -> None:
        with self._present() as now:
            self._world.configure(configuration, now)

    def disconnect(self, id: int) -> SessionDetail | None:
        with self._present() as now:
            session = self._world.sessions.get(id)
            if session is None:
                return None
            self._world.disconnect([session], now)
            return session.detail(now)

    def disconnect_interface(self, interface: str, *, dry_run: bool) -> list[Session] | None:
        with self._present() as now:
            if not self._has_interface(interface, now):
                return None
            found = self._world.sessions.on_access_interface(interface)
            if not dry_run:
                self._world.disconnect(found, now)
            return found

    def set_rate(self, id: int, down_bps: int, up_bps: int) -> tuple[SessionDetail, SessionDetail] | None:
        with self._present() as now:
            session = self._world.sessions.get(id)
            if session is None:
                return None
            changed = self._world.set_rate(session, down_bps, up_bps, now)
            return session.detail(now), changed.detail(now)

    @contextmanager
    def _present(self) -> Iterator[float]:
        """The time, with the world in it: a change before the arrivals that were due before it would
        turn the counters back."""
        with self._lock:
            now = self._now()
            while self._world.advance(now, _AT_ONCE):
                pass
            yield now

    def uptime(self) -> int:
        return max(0, int(self._now() - self._world.started))

    def statistics(self) -> Statistics:
        with self._lock:
            sessions = self._world.sessions
            return Statistics(
                active_sessions=len(sessions),
                pppoe_sessions=sessions.count("PPPoE"),
                dhcp_sessions=sessions.count("DHCP"),
                vrf_steered_sessions=sessions.count("steered"),
                public_ip_sessions=len(sessions) - sessions.count("shared"),
                qos_sessions=sessions.count("shaped"),
            )

    def find(self, wanted: SessionFilter) -> Sequence[Session]:
        with self._lock:
            return self._world.sessions.find(wanted)

    def detail(self, id: int) -> SessionDetail | None:
        with self._lock:
            session = self._world.sessions.get(id)
            return None if session is None else session.detail(self._now())

    def qos(self) -> Rows:
        with self._lock:
            sessions = self._world.sessions.all()
        return Sorted(sessions, _session_key, _qos)

    def cgnat_sessions(self) -> Rows:
        with self._lock:
            cgnat, sessions = self._world.configuration.cgnat, self._world.sessions.all()
        steered = [session for session in sessions if session.vrf_steered]
        return Sorted(steered, _session_key, partial(_cgnat_session, cgnat))

    def vlans(self) -> Rows:
        with self._lock:
            vlans, ahead = list(self._world.vlans), self._world.ahead
        return Sorted(sorted(vlans, key=_vlan_key), _vlan_key, partial(ManagedVlan.record, ahead=ahead))

    def demux_vlans(self) -> tuple[Rows, int]:
        with self._lock:
            vlans, ahead = list(self._world.vlans), self._world.ahead
            refused = self._world.vlans.rate_limited_total
        return Sorted(
            sorted(vlans, key=_vlan_key), _vlan_key, partial(ManagedVlan.demux_record, ahead=ahead)
        ), refused

    def interfaces(self) -> Rows:
        with self._lock:
            now, sessions, vlans = self._now(), self._world.sessions.all(), list(self._world.vlans)
            fixed = sorted(self._fixed_interfaces(now), key=lambda interface: interface.ifindex)
        vlans.sort(key=_vlan_key)
        return Chained(
            Sorted(fixed, lambda interface: (0, interface.ifindex), lambda interface: interface),
            Sorted(vlans, lambda vlan: (1, *_vlan_key(vlan)), partial(interfaces.vlan, now=now)),
            Sorted(sessions, lambda session: (2, session.id), partial(interfaces.session, now=now)),
            Sorted(sessions, lambda session: (3, session.id), partial(interfaces.ifb, now=now)),
        )

    def routes(self) -> Rows:
        with self._lock:
            configuration, sessions = self._world.configuration, self._world.sessions.all()
        network = list(enumerate(routing.network_routes(configuration)))
        return Chained(
            Sorted(network, lambda numbered: (0, numbered[0]), lambda numbered: numbered[1]),
            Sorted(
                sessions,
                lambda session: (1, session.id),
                partial(routing.session_route, configuration.cgnat),
            ),
        )

    def bgp_summary(self) -> dict[str, Any]:
        with self._lock:
            bgp, sessions = self._world.configuration.bgp, len(self._world.sessions)
            uptime, ahead = self.uptime(), self._world.ahead
        return routing.bgp_summary(bgp, sessions, uptime, int(self._world.started) + ahead)

    def _now(self) -> float:
        """The lab's own time: see World."""
        return self._booted + self._clock.steady()

    def _follow_clock(self) -> None:
        ahead = self._clock.wall() - self._now()
        # Whole seconds, so that what is slewed, or read a moment later, moves nothing.
        if abs(ahead - self._world.ahead) >= 1:
            self._world.set_ahead(round(ahead))

    def _has_interface(self, name: str, now: float) -> bool:
        if name in self._world.vlans or self._world.sessions.has_interface(interfaces.without_ifb(name)):
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
            ifindex = ifindex_of[name]
            yield interfaces.trunk(ifindex, name, traffic, now)
        for name in configuration.interfaces.uplinks:
            # The first uplink leads to the network; what the others carry, the lab doesn't know.
            first = name == configuration.interfaces.uplinks[0]
            traffic = everything if first else Traffic.none(now)
            ifindex, addresses = ifindex_of[name], _uplink_addresses(configuration, name)
            handoff = cgnat.enabled and name == cgnat.handoff_interface
            master = cgnat.vrf_name if handoff else None
            yield interfaces.uplink(ifindex, name, addresses, master, traffic, now)
        if configuration.cgnat.enabled:
            ifindex = ifindex_of[configuration.cgnat.vrf_name]
            yield interfaces.vrf(ifindex, configuration.cgnat)


def _uplink_addresses(configuration: Configuration, name: str) -> tuple[InterfaceAddress, ...]:
    peers: list[IPv4Address] = []
    if configuration.bgp is not None and name == configuration.interfaces.uplinks[0]:
        peers += (neighbor.address for neighbor in configuration.bgp.neighbors)
    if configuration.cgnat.enabled and name == configuration.cgnat.handoff_interface:
        peers.append(configuration.cgnat.handoff_gateway)
    return tuple(InterfaceAddress("inet", routing.own_address(peer), 30) for peer in peers)


def _session_key(session: Session) -> Key:
    return (session.id,)


def _vlan_key(vlan: ManagedVlan) -> Key:
    return vlan.line.trunk, vlan.line.outer_vlan_id or 0, vlan.line.vlan_id


def _qos(session: Session) -> SessionQos:
    profile = OVERHEAD_PROFILES[session.overhead_profile]
    return SessionQos(
        session_id=session.id,
        username=session.summary.username,
        interface=session.interface,
        ifb_device=interfaces.ifb_name(session),
        rate_down_bps=session.summary.rate_down,
        rate_up_bps=session.summary.rate_up,
        overhead_profile=profile.name,
        overhead=profile.overhead,
        mpu=profile.mpu,
        qdisc="htb",
    )


def _cgnat_session(cgnat: Cgnat, session: Session) -> CgnatSession:
    return CgnatSession(
        id=session.id,
        type=session.summary.type,
        username=session.summary.username,
        ip_address=session.summary.ip_address,
        interface=session.interface,
        vrf_name=cgnat.vrf_name,
        vrf_table=cgnat.vrf_table,
        handoff_interface=cgnat.handoff_interface,
        handoff_gateway=str(cgnat.handoff_gateway),
        started_at=session.summary.started_at,
    )
