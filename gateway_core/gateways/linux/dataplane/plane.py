"""Data plane of all sessions. The data plane creates the state that each session must have in the kernel, and
finds missing or different state."""

import errno
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import NamedTuple

from gateway_contract.configuration import Cgnat
from gateway_contract.contract import Record
from gateway_contract.core.health import FaultKind
from gateway_contract.core.network import OverheadProfile
from gateway_core.gateways.linux.dataplane import routes
from gateway_core.gateways.linux.dataplane.fault_register import Outcome, PlanePart
from gateway_core.gateways.linux.dataplane.routes import RouteState
from gateway_core.gateways.linux.dataplane.shaping import Limits, Shaper
from gateway_core.gateways.linux.kernel.fib import MAIN_TABLE, FibEntry, PolicyRule
from gateway_core.gateways.linux.kernel.links import Link, LinkEntry, add_ipv6_gateway, delete_ipv6_gateway
from gateway_core.gateways.linux.kernel.netlink import KernelChange, KernelError, NoDevice, try_changes
from gateway_core.gateways.linux.kernel.qdiscs import QdiscEntry
from gateway_core.gateways.linux.kernel.reader import KernelReader
from gateway_core.gateways.linux.kernel.watcher import ALL_PARTS, ChangedPart

#: The parts of a session that limit its rates.
LIMIT_KINDS = frozenset({FaultKind.SHAPER, FaultKind.IFB})


class WantedSession(Record, frozen=True):
    """Wanted state of one session in the kernel."""

    session_id: int
    #: The session's own, such as `ppp0`.
    device: str
    ifb: str
    #: The VLAN that the session arrived on. For DHCP, it may be the device.
    access_interface: str
    #: Bits per second; 0 is no limit.
    rate_down: int
    rate_up: int
    profile: OverheadProfile
    address: IPv4Address | None
    #: False where the kernel adds the host route with the device's address, as for PPPoE.
    sets_host_route: bool
    #: The gateway's own address towards the subscriber.
    gateway: IPv4Address | None
    #: Prefixes that are delegated to the session.
    delegated: tuple[IPv6Network, ...] = ()
    #: The /64 on the device, with the gateway's own address in it, where they are the core's to set.
    prefix: IPv6Network | None = None
    ipv6_gateway: IPv6Address | None = None

    def list_routes(self, ifindex: int) -> Iterator[tuple[FaultKind, FibEntry]]:
        """Yield the routes that the session needs in the main table, each with its fault kind. `ifindex` is
        the index of the session's device."""
        if (host := self.address) is not None:
            source = None if self.gateway is None else self.gateway.packed
            route = FibEntry(MAIN_TABLE, host.packed, host.max_prefixlen, ifindex, None, source)
            yield FaultKind.HOST_ROUTE, route
        for prefix in filter(None, (self.prefix, *self.delegated)):
            network = prefix.network_address.packed
            route = FibEntry(MAIN_TABLE, network, prefix.prefixlen, ifindex, None, None)
            yield FaultKind.DELEGATED_PREFIX, route

    def list_keys(self) -> Iterator[object]:
        """Yield the devices and the route destinations of the session. Only one session at a time can own
        each device and each destination."""
        yield self.device
        yield self.ifb
        for _, route in self.list_routes(0):
            yield route.destination, route.length


class KernelState(NamedTuple):
    """Snapshot of the kernel state that a comparison needs."""

    links: Mapping[str, LinkEntry]
    qdiscs: frozenset[QdiscEntry]
    routes: RouteState
    rules: Sequence[PolicyRule]
    #: The number of the configuration at that time.
    revision: int


EMPTY_STATE = KernelState({}, frozenset(), RouteState(frozenset(), {}), (), 0)


class DataPlane:
    """Kernel state of all sessions. Thread-safe. Methods raise KernelError if the kernel cannot be
    reached."""

    def __init__(self, reader: KernelReader) -> None:
        self._reader = reader
        self._shaper = Shaper(reader)
        self._routes = routes.SessionRoutes(reader)
        self._steering = routes.Steering(reader)
        self._lock = threading.RLock()
        #: The arguments of the last `configure`; None before.
        self.cgnat: Cgnat | None = None
        self.pools: tuple[IPv4Network | IPv6Network, ...] = ()
        self._applied: dict[int, WantedSession] = {}
        #: Session ids by device or destination: of several sessions with one, the newest has it.
        self._owners: dict[object, int] = {}
        #: Number of the configuration: a reading from before the last change must not decide which state is
        #: surplus.
        self._revision = 0

    def configure(self, cgnat: Cgnat, pools: Sequence[IPv4Network | IPv6Network] = ()) -> None:
        """Apply the steering and the pools of a new configuration. The pools are the source ranges of
        `cgnat`, and the networks in `pools`. New routes and rules are added before the former routes are
        removed. If the kernel refuses changes, raises the KernelError of the first refusal, after all other
        changes were tried. The former routes then stay until the next call of `configure` or
        `remove_surplus`. A missing or down interface is not an error: a later repair adds the routes of the
        interface."""
        with self._lock:
            self._revision += 1
            self.cgnat, self.pools = cgnat, tuple(pools)
            unused_table = self._steering.configure(cgnat)
            links = self._reader.read_link_entries()
            refusals = self._routes.replace(
                route
                for wanted in self._applied.values()
                if wanted.device in links
                for kind, route in self.list_routes(wanted, links[wanted.device].ifindex)
                if kind == FaultKind.STEERING
            )
            errors = [error for error in refusals if error.code != errno.ENETDOWN]
            own_routes = self._routes.read_own()
            errors += routes.add_pool_routes(self._list_pool_routes(), own_routes).failed.values()
            errors += self._steering.repair(self._reader.read_rules(), own_routes).failed.values()
            for error in errors:
                if not isinstance(error, NoDevice):
                    raise error
            common_routes = self._list_common_routes()
            self._routes.remove(
                route
                for route in own_routes
                if route.table == unused_table or (route.is_unreachable and route not in common_routes)
            )

    def apply(self, wanted: WantedSession) -> tuple[FaultKind, ...]:
        """Create or change the whole kernel state of a session. Return the kinds of the parts that were
        missing or different. Raises NoDevice if the device of the session does not exist. Raises KernelError
        if the kernel refuses a rate limit: then an existing session gets its former state back, and a new
        session keeps all other state. If the kernel refuses a route, the next repair tries the route
        again."""
        with self._lock:
            before = self._applied.get(wanted.session_id)
            outcome = self._make_state([(wanted, wanted.sets_host_route)]).get(wanted.session_id)
            if outcome is None:
                raise NoDevice(f"find the link {wanted.device}", "there is none", errno.ENODEV)
            for part, error in outcome.failed.items():
                if part.kind in LIMIT_KINDS:
                    if before is not None:
                        self._make_state([(before, before.sets_host_route)])
                    raise error
        return tuple(dict.fromkeys(part.kind for part in outcome.changed))

    def repair(
        self,
        todo: Sequence[tuple[WantedSession, WantedSession | None]],
        known_routes: RouteState | None = None,
    ) -> list[Outcome | None]:
        """Create or change the whole kernel state of sessions. `todo` contains each session with the state
        that was applied before. Return one outcome for each session. The outcome is None if another state has
        been applied since, or if the device of the session does not exist. Routes in `known_routes` are not
        added again. `known_routes` saves time, because the kernel scans all routes to list the routes of one
        device."""
        with self._lock:
            unchanged = [each for each in todo if self._applied.get(each[0].session_id) == each[1]]
            works = [(wanted, wanted.sets_host_route or wanted == before) for wanted, before in unchanged]
            outcomes = self._make_state(works, known_routes)
            return [outcomes.get(wanted.session_id) for wanted, _ in todo]

    def mark_applied(self, wanted: WantedSession) -> None:
        """Record that the kernel has the whole state of a session."""
        with self._lock:
            self._applied.setdefault(wanted.session_id, wanted)
            self._add_owners([wanted])

    def remove(self, *wanted: WantedSession) -> None:
        """Remove the kernel state of sessions. The devices of these sessions may be missing, or may already
        belong to other sessions."""
        with self._lock:
            for each in wanted:
                self._applied.pop(each.session_id, None)
                self._release(each)
            self._remove(wanted)

    def get_applied_sessions(self) -> dict[int, WantedSession]:
        """Return the state that was applied last for each session, by session id."""
        with self._lock:
            return dict(self._applied)

    def set_owners(self, wanted: Iterable[WantedSession]) -> None:
        """Replace the set of sessions that compete for devices and addresses. The newest session that claims
        a device or an address owns it."""
        with self._lock:
            self._owners.clear()
            self._add_owners(wanted)

    def assign_owners(self, wanted: Sequence[WantedSession]) -> None:
        """Make sessions the owners of their devices and addresses, and release the former devices and
        addresses of these sessions. If several sessions claim the same device or address, the newest of these
        sessions owns it."""
        with self._lock:
            for each in wanted:
                before = self._applied.get(each.session_id)
                if before is not None and before != each:
                    self._release(before)
            self._add_owners(wanted)

    def read(
        self, changed: frozenset[ChangedPart] = ALL_PARTS, before: KernelState = EMPTY_STATE
    ) -> KernelState:
        """Return a copy of the kernel state `before` in which the parts `changed` are read again. If the
        configuration has changed since `before` was read, read all parts again."""
        with self._lock:
            state = before._replace(revision=self._revision)
        if state.revision != before.revision:
            changed = ALL_PARTS
        if changed & {ChangedPart.LINKS, ChangedPart.IFBS}:
            state = state._replace(links=self._reader.read_link_entries())
        # Qdiscs and routes go with a link, without an event of their own.
        if changed & {ChangedPart.QDISCS, ChangedPart.LINKS, ChangedPart.IFBS}:
            state = state._replace(qdiscs=frozenset(self._reader.read_qdisc_entries()))
        if changed & {ChangedPart.ROUTES, ChangedPart.LINKS, ChangedPart.ADDRESSES}:
            state = state._replace(routes=self._routes.read())
        if ChangedPart.RULES in changed:
            state = state._replace(rules=self._reader.read_rules())
        return state

    def repair_common(self, state: KernelState) -> Outcome | None:
        """Repair the kernel state that belongs to no session: the routes of pools, and the rules and routes
        of steering. If `state` was read before the last change of the configuration, repair nothing and
        return None."""
        with self._lock:
            if state.revision != self._revision:
                return None
            pool = routes.add_pool_routes(self._list_pool_routes(), state.routes.own_routes)
            steering = self._steering.repair(state.rules, state.routes.own_routes)
            return Outcome(pool.changed + steering.changed, {**pool.failed, **steering.failed})

    def has_differences(
        self, wanted: WantedSession, state: KernelState, expected: Iterable[FibEntry]
    ) -> bool:
        """Return True if the kernel state `state` lacks a part of a session, or has a different part.
        `expected` are the routes that the session needs."""
        link, ifb = state.links[wanted.device], state.links.get(wanted.ifb)
        if self._has_other_owner(wanted.device, wanted):
            return False
        down, up = self._shaper.make_qdisc_entries(link.ifindex, 0 if ifb is None else ifb.ifindex)
        if not (state.qdiscs.issuperset(down) if wanted.rate_down else down[0] not in state.qdiscs):
            return True
        if wanted.rate_up:
            if ifb is None or not ifb.is_up or not state.qdiscs.issuperset(up):
                return True
        elif ifb is not None:
            return True
        return not all(map(state.routes.has, expected))

    def has_exact_limits(self, wanted: WantedSession, state: KernelState) -> bool:
        """Return True if the rates and the redirect in the kernel are those of the session. This method sends
        further requests to the kernel."""
        if self._has_other_owner(wanted.device, wanted):
            return True
        link, ifb = state.links[wanted.device], state.links.get(wanted.ifb)
        return self._shaper.has_exact_limits(link, ifb, wanted.rate_down, wanted.rate_up, wanted.profile)

    def list_routes(self, wanted: WantedSession, ifindex: int) -> Iterator[tuple[FaultKind, FibEntry]]:
        """Yield the routes of a session in the main table and in the steering table, each with its fault
        kind. `ifindex` is the index of the session's device. Routes to a destination that a newer session
        owns are left out."""
        for kind, route in wanted.list_routes(ifindex):
            if self._has_other_owner((route.destination, route.length), wanted):
                continue
            yield kind, route
            if kind == FaultKind.HOST_ROUTE and wanted.address is not None:
                steering_route = self._steering.make_host_route(wanted.address, ifindex)
                if steering_route is not None:
                    yield FaultKind.STEERING, steering_route

    def remove_surplus(self, state: KernelState, expected: Set[FibEntry]) -> list[str]:
        """Remove the kernel state that belongs to no session: unexpected routes, IFBs with the gateway's name
        prefix, and redirects to such IFBs. `expected` are the routes of all sessions. Return the names of the
        removed routes and devices, for the log. If `state` was read before the last change of the
        configuration, remove nothing."""
        with self._lock:
            if state.revision != self._revision:
                return []
            surplus = routes.find_surplus(state.routes.own_routes, expected | self._list_common_routes())
            removed_routes = self._routes.remove(surplus)
            removed_devices = self._shaper.remove_surplus(state.links, state.qdiscs, self._owners.keys())
            return [*map(routes.format_destination, removed_routes), *removed_devices]

    def _list_pool_routes(self) -> set[FibEntry]:
        """Return the unreachable routes of pools in the main table. Return an empty set before the first
        `configure`."""
        if self.cgnat is None:
            return set()
        return set(routes.make_unreachable_routes(MAIN_TABLE, (*self.cgnat.source_ranges, *self.pools)))

    def _list_common_routes(self) -> set[FibEntry]:
        """Return the routes that belong to no session: the routes of pools and of steering."""
        return self._list_pool_routes() | self._steering.list_routes()

    def _make_state(
        self, todo: Sequence[tuple[WantedSession, bool]], known_routes: RouteState | None = None
    ) -> dict[int, Outcome]:
        """Create or change the whole kernel state of sessions. `todo` contains each session with a flag,
        which is True if the core must set the host route of the session. Routes in `known_routes` are not
        added again. Return the outcomes by session id. Sessions without a device are left out."""
        before = {wanted.session_id: self._applied.get(wanted.session_id) for wanted, _ in todo}
        self.assign_owners([wanted for wanted, _ in todo])
        moved = [
            former
            for wanted, _ in todo
            if (former := before[wanted.session_id]) is not None
            and (former.device, former.ifb) != (wanted.device, wanted.ifb)
        ]
        if moved:
            # First: both may have the same IFB.
            self._remove(moved)
        links = self._reader.find_links([wanted.device for wanted, _ in todo])
        works = [
            _SessionWork(wanted, link, before[wanted.session_id], sets_host_route)
            for (wanted, sets_host_route), link in zip(todo, links, strict=True)
            if link is not None
        ]
        self._shape(works)
        _set_ipv6_gateways([each for each in works if not each.is_gone])
        self._add_routes([each for each in works if not each.is_gone], known_routes)
        outcomes: dict[int, Outcome] = {}
        former_routes: list[FibEntry] = []
        for each in works:
            if each.is_gone:
                continue
            if each.before is not None and each.before.device == each.wanted.device:
                had, has = (
                    {route for _, route in self.list_routes(wanted, each.link.index)}
                    for wanted in (each.before, each.wanted)
                )
                former_routes += routes.find_surplus(had, has)
            self._applied[each.wanted.session_id] = each.wanted
            outcomes[each.wanted.session_id] = Outcome(tuple(each.changed), each.failed)
        if former_routes:
            self._routes.remove(former_routes)
        return outcomes

    def _shape(self, works: Iterable["_SessionWork"]) -> None:
        limits = [
            (each, Limits(each.link, wanted.ifb, wanted.rate_down, wanted.rate_up, wanted.profile))
            for each in works
            if not self._has_other_owner((wanted := each.wanted).device, wanted)
        ]
        directions = self._shaper.shape([limit for _, limit in limits])
        for (each, _), (down, up) in zip(limits, directions, strict=True):
            each.record_result(PlanePart(FaultKind.SHAPER, each.wanted.device), down.error, down.is_changed)
            each.record_result(PlanePart(FaultKind.IFB, each.wanted.ifb), up.error, up.is_changed)

    def _add_routes(self, works: Iterable["_SessionWork"], known_routes: RouteState | None) -> None:
        wanted = [
            (each, PlanePart(kind, routes.format_destination(route)), route)
            for each in works
            for kind, route in self.list_routes(each.wanted, each.link.index)
            if (each.sets_host_route or kind != FaultKind.HOST_ROUTE)
            and not (known_routes is not None and known_routes.has(route))
        ]
        codes = self._routes.add([route for _, _, route in wanted], known_routes)
        for (each, part, _), code in zip(wanted, codes, strict=True):
            step = f"add the route to {part.object} on {each.wanted.device}"
            each.record_result(part, KernelError.of(step, code) if code else None, code == 0)

    def _add_owners(self, wanted: Iterable[WantedSession]) -> None:
        for each in wanted:
            for key in each.list_keys():
                if self._owners.get(key, 0) <= each.session_id:
                    self._owners[key] = each.session_id

    def _release(self, wanted: WantedSession) -> None:
        for key in wanted.list_keys():
            if not self._has_other_owner(key, wanted):
                self._owners.pop(key, None)

    def _has_other_owner(self, key: object, wanted: WantedSession) -> bool:
        return self._owners.get(key, wanted.session_id) != wanted.session_id

    def _remove(self, wanted: Sequence[WantedSession]) -> None:
        links = zip(wanted, self._reader.find_links([each.device for each in wanted]), strict=True)
        # The kernel has removed the routes and addresses of a device that is gone.
        present = [(each, link.index) for each, link in links if link is not None]
        self._routes.remove(route for each, index in present for _, route in self.list_routes(each, index))
        try_changes(
            "remove the gateway's addresses in the prefixes of sessions",
            [
                delete_ipv6_gateway(index, each.ipv6_gateway)
                for each, index in present
                if each.ipv6_gateway is not None
            ],
        )
        self._shaper.stop_shaping(
            *((each.device, each.ifb) for each in wanted if not self._has_other_owner(each.device, each))
        )


@dataclass
class _SessionWork:
    """Work on the kernel state of one session: the wanted state, the device, the state that was applied
    before, and the results."""

    wanted: WantedSession
    link: Link
    before: WantedSession | None
    sets_host_route: bool
    changed: list[PlanePart] = field(default_factory=list)
    failed: dict[PlanePart, KernelError] = field(default_factory=dict)

    @property
    def is_gone(self) -> bool:
        """Flag that is True if the device of the session was removed during the work."""
        return any(isinstance(error, NoDevice) for error in self.failed.values())

    def record_result(self, part: PlanePart, error: KernelError | None, is_changed: bool) -> None:
        if error is not None:
            self.failed[part] = error
        elif is_changed:
            self.changed.append(part)


def _set_ipv6_gateways(works: Sequence[_SessionWork]) -> None:
    """Add the gateway's address in the IPv6 prefix of each session to the session's device, and remove the
    gateway's former address from the device."""
    former: list[KernelChange] = []
    added: list[tuple[_SessionWork, IPv6Address, KernelChange]] = []
    for each in works:
        address = each.wanted.ipv6_gateway
        if each.before is not None and each.before.ipv6_gateway not in (None, address):
            former.append(delete_ipv6_gateway(each.link.index, each.before.ipv6_gateway))
        if address is not None:
            added.append((each, address, add_ipv6_gateway(each.link.index, address)))
    # A former address may be gone with the former device.
    try_changes("remove the gateway's former addresses", former)
    codes = try_changes("add the gateway's addresses", [change for _, _, change in added])
    for (each, address, _), code in zip(added, codes, strict=True):
        if code not in (0, errno.EEXIST):
            part = PlanePart(FaultKind.DELEGATED_PREFIX, str(each.wanted.prefix))
            error = KernelError.of(f"add {address} to {each.wanted.device}", code)
            each.record_result(part, error, is_changed=False)
