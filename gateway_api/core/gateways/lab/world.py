"""The lab's world: sessions, VLANs and traffic, and what happens to them.

Everything that the lab shows is derived from this when asked. So there is no second copy of a session
that could still be there when the session is gone. Not for several threads at once.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network
from itertools import count

from msgspec.structs import replace

from gateway_api.core.configuration.sections import Configuration
from gateway_api.core.gateways.lab.interfaces import LOOPBACK_IFINDEX
from gateway_api.core.gateways.lab.pools import AddressPool, UnitPool
from gateway_api.core.gateways.lab.population import Crowd, Population, Roster, Subscriber
from gateway_api.core.gateways.lab.vlans import VlanTable
from gateway_api.core.journal import Journal
from gateway_api.core.sessions import SHARED_ADDRESSES, Session, SessionTable
from gateway_api.core.traffic import Meter, Traffic
from gateway_api.wire.core import SessionFilter, SessionSummary

MAX_SESSIONS = 200_000

#: RFC 2544's benchmark networks stand for the provider's public ones: nobody else has them.
_PUBLIC_ADDRESSES = IPv4Network("198.18.0.0/15")


class World:
    """`sessions`, `vlans` and the `traffic` of each trunk, from a seed on; who is there from the start is no
    news to the `journal`.

    Times are the lab's own: epoch seconds by the clock as it was set at the start, so that they never jump.
    What is shown is `ahead` of them, in whole seconds: by the clock as it is set now.
    """

    def __init__(
        self, configuration: Configuration, population: Population, journal: Journal, now: float
    ) -> None:
        self.configuration = configuration
        self._journal = journal
        self.started = self._at = now
        self.ahead = 0
        self.sessions = SessionTable()
        self.vlans = VlanTable(configuration.demux, now)
        self.traffic: dict[str, Traffic] = {}
        self.ifindex_of: dict[str, int] = {}
        self._roster = Roster()
        self._crowd = Crowd(population, configuration.demux)
        self._public = AddressPool(_PUBLIC_ADDRESSES)
        self._shared = AddressPool(configuration.cgnat.source_range)
        self._pools: dict[int, AddressPool] = {}
        self._units = {"ppp": UnitPool(), "ipoe": UnitPool()}
        self._ids = count(1)
        self._ifindexes = count(LOOPBACK_IFINDEX + 1)
        self._number_interfaces(now)
        for _ in range(population.sessions):
            self._arrive(now, self._crowd.age(), limited=False)
        self._due = self._crowd.next_event(len(self.sessions))

    def advance(self, now: float, most: int) -> bool:
        """Lets those come and go who are due by now, at most so many; True when more are due."""
        for _ in range(most):
            if self._due is None or self._at + self._due[0] > now:
                self.vlans.expire(now)
                return False
            wait, arrives = self._due
            self._at += wait
            self.vlans.expire(self._at)
            if arrives:
                self._arrive(self._at)
            else:
                self._leave(self._crowd.choose(self._roster), self._crowd.reason(), self._at)
            self._due = self._crowd.next_event(len(self.sessions))
        return True

    def set_ahead(self, ahead: int) -> None:
        """Shows all times by a clock that was set."""
        self.sessions.move_starts(ahead - self.ahead)
        self.ahead = ahead

    def disconnect(self, sessions: Iterable[Session], now: float) -> None:
        """Ends these sessions, which must be there."""
        for session in sessions:
            self._leave(session.id, "admin_disconnect", now)
        self._draw_next_event(now)

    def _draw_next_event(self, now: float) -> None:
        # Who is to come or go next depends on how many there are: the one drawn before may be gone.
        self._at = now
        self._due = self._crowd.next_event(len(self.sessions))

    def set_rate(self, before: Session, down_bps: int, up_bps: int, now: float) -> Session:
        """Shapes a session, which must be there, at other rates; the changed session."""
        after = replace(
            before,
            summary=replace(before.summary, rate_down=down_bps, rate_up=up_bps),
            traffic=before.traffic.moving(up_bps, down_bps, now),
        )
        self.sessions.replace(after)
        self.vlans.changed(before, after, now)
        trunk = self._trunk_of(before)
        self.traffic[trunk] = self.traffic[trunk].changed(before.traffic, after.traffic, now)
        return after

    def configure(self, configuration: Configuration, now: float) -> None:
        """As `Gateway.configure`."""
        source_range = configuration.cgnat.source_range
        if source_range != self.configuration.cgnat.source_range:
            self._shared = AddressPool(source_range)
        self.configuration = configuration
        for vlan in [v for v in self.vlans if v.line.trunk not in configuration.demux.trunks]:
            for session in self.sessions.on_access_interface(vlan.line.name):
                self._leave(session.id, "port_unneeded", now)
            self.vlans.remove(vlan.line.name)
        self._number_interfaces(now)
        self._crowd.configure(configuration.demux)
        self.vlans.configure(configuration.demux, now)
        for session in self.sessions.all():
            shared, steered = self._sharing(IPv4Address(session.summary.ip_address))
            if (shared, steered) != (session.shared_address, session.vrf_steered):
                self.sessions.replace(replace(session, shared_address=shared, vrf_steered=steered))
        self._draw_next_event(now)

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
        self.vlans.join(session, started, now)
        trunk = subscriber.line.trunk
        self.traffic[trunk] = self.traffic[trunk].plus(session.traffic, now)
        if limited:
            self._journal.session_up(session.summary, now + self.ahead)

    def _session_of(self, subscriber: Subscriber, started: float) -> Session | None:
        pools = [self._public, self._shared]
        if not subscriber.wants_public_address:
            pools.reverse()
        taken = next(((pool, address) for pool in pools if (address := pool.take(self._has_address))), None)
        if taken is None:
            return None
        pool, address = taken
        id, qos = next(self._ids), self.configuration.qos
        self._pools[id] = pool
        kind = "ppp" if subscriber.session_type == "pppoe" else "ipoe"
        shared, steered = self._sharing(IPv4Address(address))
        ifindex = next(self._ifindexes)
        next(self._ifindexes)  # the IFB's
        return Session(
            summary=SessionSummary(
                id=id,
                type="PPPoE" if kind == "ppp" else "DHCP",
                username=subscriber.username,
                ip_address=address,
                interface=f"{kind}{self._units[kind].take()}",
                rate_down=qos.default_down,
                rate_up=qos.default_up,
                state="active",
                started_at=int(started) + self.ahead,
                mac_address=subscriber.mac_address,
                access_interface=subscriber.line.name,
            ),
            gateway=pool.gateway,
            overhead_profile=subscriber.line.profile.overhead_profile,
            acct_session_id=subscriber.acct_session_id,
            ifindex=ifindex,
            vrf_steered=steered,
            shared_address=shared,
            traffic=Traffic(Meter(started, qos.default_up), Meter(started, qos.default_down)),
        )

    def _has_address(self, address: str) -> bool:
        # Pools may overlap, and a new one knows nothing of the addresses given out by the one before.
        return bool(self.sessions.find(SessionFilter(ip_address=address)))

    def _leave(self, id: int, reason: str, now: float) -> None:
        session = self.sessions.remove(id)
        self._roster.remove(id)
        trunk = self._trunk_of(session)
        self.traffic[trunk] = self.traffic[trunk].less(session.traffic, now)
        self.vlans.leave(session, now)
        self._pools.pop(id).give_back(session.summary.ip_address)
        kind = "ppp" if session.is_pppoe else "ipoe"
        self._units[kind].give_back(int(session.interface.removeprefix(kind)))
        bytes_in, bytes_out = session.traffic.up.read(now), session.traffic.down.read(now)
        at = now + self.ahead
        self._journal.session_down(session.summary, reason, at, bytes_in=bytes_in, bytes_out=bytes_out)

    def _trunk_of(self, session: Session) -> str:
        return self.vlans[session.access_interface].line.trunk

    def _sharing(self, address: IPv4Address) -> tuple[bool, bool]:
        """Whether an address is one that subscribers share, and whether its sessions are steered."""
        cgnat = self.configuration.cgnat
        in_range = address in cgnat.source_range
        return in_range or address in SHARED_ADDRESSES, in_range and cgnat.enabled

    def _number_interfaces(self, now: float) -> None:
        configuration = self.configuration
        fixed = (*configuration.interfaces.trunks, *configuration.interfaces.uplinks)
        for name in (*fixed, configuration.cgnat.vrf_name):
            if name not in self.ifindex_of:
                self.ifindex_of[name] = next(self._ifindexes)
        for trunk in configuration.interfaces.trunks:
            self.traffic.setdefault(trunk, Traffic.none(now))
