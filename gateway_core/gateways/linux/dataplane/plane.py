"""The data plane of all sessions: makes what each must have in the kernel, and tells what is missing."""

import errno
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Address, IPv6Network

from gateway_contract.configuration import Cgnat
from gateway_contract.core.health import FaultKind
from gateway_core.gateways.linux.dataplane.fault_register import Outcome, Place
from gateway_core.gateways.linux.dataplane.routes import (
    PoolRoutes,
    SessionRoutes,
    Steering,
    destination,
    surplus,
)
from gateway_core.gateways.linux.dataplane.shaping import Limits, Shaper
from gateway_core.gateways.linux.dataplane.wanted import NOT_READ, KernelState, RouteState, WantedSession
from gateway_core.gateways.linux.kernel.fib import FibEntry
from gateway_core.gateways.linux.kernel.links import Link, add_ipv6_gateway, delete_ipv6_gateway
from gateway_core.gateways.linux.kernel.netlink import KernelChange, KernelError, NoDevice, try_changes
from gateway_core.gateways.linux.kernel.reader import KernelReader
from gateway_core.gateways.linux.kernel.watcher import EVERYTHING, Changed

#: The parts of a session that limit its rates.
LIMITS = frozenset({FaultKind.SHAPER, FaultKind.IFB})


class DataPlane:
    """Any thread may call. Methods raise KernelError."""

    def __init__(self, reader: KernelReader) -> None:
        self._reader = reader
        self._shaper = Shaper(reader)
        self._routes = SessionRoutes(reader)
        self._pools = PoolRoutes()
        self._steering = Steering(reader)
        self._lock = threading.RLock()
        #: What `configure` had last; None before.
        self.cgnat: Cgnat | None = None
        self.pools: tuple[IPv4Network | IPv6Network, ...] = ()
        self._applied: dict[int, WantedSession] = {}
        #: By device or destination: of several sessions with one, the newest has it.
        self._owners: dict[object, int] = {}
        #: Counts configurations: a reading of before must not decide what is left over.
        self._revision = 0

    def configure(self, cgnat: Cgnat, pools: Sequence[IPv4Network | IPv6Network] = ()) -> None:
        """Has the pools and the steering of another configuration, with `pools` beside the source range: its
        routes and rule come first, then the former ones go. Raises the first refusal of the kernel, after all
        else was made: then the former ones stay, until a comparison finds what is missing, or another call. A
        device that is missing or down is no refusal: it may come, and a comparison finds that too."""
        with self._lock:
            self._revision += 1
            self.cgnat, self.pools = cgnat, tuple(pools)
            self._pools.configure(*cgnat.source_ranges, *pools)
            unused = self._steering.configure(cgnat)
            links = self._reader.read_link_entries()
            replaced = self._routes.replace(
                route
                for wanted in self._applied.values()
                if wanted.device in links
                for kind, route in self.routes(wanted, links[wanted.device].ifindex)
                if kind == FaultKind.STEERING
            )
            refused = [error for error in replaced if error.code != errno.ENETDOWN]
            own = self._routes.own()
            refused += self._pools.settle(own).failed.values()
            refused += self._steering.settle(self._reader.read_rules(), own).failed.values()
            for error in refused:
                if not isinstance(error, NoDevice):
                    raise error
            kept = self._routes_of_no_session()
            self._routes.remove(
                route
                for route in own
                if route.table == unused or (route.is_unreachable and route not in kept)
            )

    def apply(self, wanted: WantedSession) -> tuple[FaultKind, ...]:
        """Make all of a session, and return the kinds that were missing or different. Raises NoDevice when
        its device is gone. When the kernel refuses a limit, the session gets back what it had, or the rest if
        it is new, and the error is raised. A route that it refuses is a matter of the next comparison."""
        with self._lock:
            before = self._applied.get(wanted.session_id)
            (outcome,) = self._make([(wanted, wanted.sets_host_route)])
            if outcome is None:
                raise NoDevice(f"find the link {wanted.device}", "there is none", errno.ENODEV)
            for place, error in outcome.failed.items():
                if place.kind in LIMITS:
                    if before is not None:
                        self._make([(before, before.sets_host_route)])
                    raise error
        return tuple(dict.fromkeys(place.kind for place in outcome.changed))

    def repair(
        self,
        todo: Sequence[tuple[WantedSession, WantedSession | None]],
        known: RouteState | None = None,
    ) -> list[Outcome | None]:
        """Make all of sessions, each with what was applied. None for each of which something else was applied
        meanwhile, or whose device is gone. Routes that are `known` are not added: to ask for those on one
        device, the kernel goes through those of all."""
        with self._lock:
            current = [self._applied.get(wanted.session_id) == before for wanted, before in todo]
            made = iter(
                self._make(
                    [
                        (wanted, wanted.sets_host_route or wanted == before)
                        for (wanted, before), is_current in zip(todo, current, strict=True)
                        if is_current
                    ],
                    known,
                )
            )
            return [next(made) if is_current else None for is_current in current]

    def mark_applied(self, wanted: WantedSession) -> None:
        """Take a session as applied, which has all in the kernel."""
        with self._lock:
            self._applied.setdefault(wanted.session_id, wanted)
            self._set_owners([wanted])

    def remove(self, *wanted: WantedSession) -> None:
        """Remove what the kernel has for sessions. Devices may be gone, or belong to other sessions."""
        with self._lock:
            for each in wanted:
                self._applied.pop(each.session_id, None)
                self._free(each)
            self._remove(wanted)

    def applied(self) -> dict[int, WantedSession]:
        """Return the state that was made for each session."""
        with self._lock:
            return dict(self._applied)

    def set_owners(self, wanted: Iterable[WantedSession]) -> None:
        """Replace the sessions that compete for devices and addresses."""
        with self._lock:
            self._owners.clear()
            self._set_owners(wanted)

    def take_over(self, wanted: Sequence[WantedSession]) -> None:
        """Give devices and addresses to sessions, of which the newest gets them. What they had before is
        free."""
        with self._lock:
            self._take_over(wanted)

    def read(self, changed: frozenset[Changed] = EVERYTHING, before: KernelState = NOT_READ) -> KernelState:
        """Return the state of the kernel now, if only this changed since `before`, and the configuration did
        not."""
        with self._lock:
            state = before._replace(revision=self._revision)
        if state.revision != before.revision:
            changed = EVERYTHING
        if changed & {Changed.LINKS, Changed.IFBS}:
            state = state._replace(links=self._reader.read_link_entries())
        # Qdiscs and routes go with a link, without an event of their own.
        if changed & {Changed.QDISCS, Changed.LINKS, Changed.IFBS}:
            state = state._replace(qdiscs=frozenset(self._reader.read_qdisc_entries()))
        if changed & {Changed.ROUTES, Changed.LINKS, Changed.ADDRESSES}:
            state = state._replace(routes=self._routes.read())
        if Changed.RULES in changed:
            state = state._replace(rules=self._reader.read_rules())
        return state

    def settle(self, state: KernelState) -> Outcome | None:
        """Repair what belongs to no session: the route of the pool, the rule and the routes of steering. None
        for a reading of before the last configuration."""
        with self._lock:
            if state.revision != self._revision:
                return None
            pool = self._pools.settle(state.routes.own)
            steering = self._steering.settle(state.rules, state.routes.own)
            return Outcome(pool.changed + steering.changed, {**pool.failed, **steering.failed})

    def differs(self, wanted: WantedSession, state: KernelState, routes: Iterable[FibEntry]) -> bool:
        """Return True when something of a session with a device is missing or different, as far as `state`
        shows. These are its routes."""
        link, ifb = state.links[wanted.device], state.links.get(wanted.ifb)
        if self._has_other(wanted.device, wanted):
            return False
        down, up = self._shaper.entries(link.ifindex, 0 if ifb is None else ifb.ifindex)
        if not (state.qdiscs.issuperset(down) if wanted.rate_down else down[0] not in state.qdiscs):
            return True
        if wanted.rate_up:
            if ifb is None or not ifb.is_up or not state.qdiscs.issuperset(up):
                return True
        elif ifb is not None:
            return True
        return not all(map(state.routes.has, routes))

    def is_exact(self, wanted: WantedSession, state: KernelState) -> bool:
        """Return True when rates and redirect, too, are what they must be. It costs some questions."""
        if self._has_other(wanted.device, wanted):
            return True
        link, ifb = state.links[wanted.device], state.links.get(wanted.ifb)
        return self._shaper.is_exact(link, ifb, wanted.rate_down, wanted.rate_up, wanted.profile)

    def routes(self, wanted: WantedSession, ifindex: int) -> Iterator[tuple[FaultKind, FibEntry]]:
        """The routes of a session, without those that a newer session has."""
        host = wanted.host_route(ifindex)
        if host is not None and not self._has_other(host.destination, wanted):
            yield FaultKind.HOST_ROUTE, host
            steered = self._steered(wanted, ifindex)
            if steered is not None:
                yield FaultKind.STEERING, steered
        for route in wanted.prefix_routes(ifindex):
            if not self._has_other((route.destination, route.length), wanted):
                yield FaultKind.DELEGATED_PREFIX, route

    def remove_surplus(self, state: KernelState, expected: Set[FibEntry]) -> list[str]:
        """Remove what an earlier life left: routes that are not expected, IFBs named like ours, redirects to
        them. Return what was removed, as texts."""
        with self._lock:
            if state.revision != self._revision:
                return []
            routes = self._routes.remove(surplus(state.routes.own, expected | self._routes_of_no_session()))
            shaped = self._shaper.remove_surplus(state.links, state.qdiscs, self._owners.keys())
            return [*map(destination, routes), *shaped]

    def _routes_of_no_session(self) -> set[FibEntry]:
        return self._pools.routes() | self._steering.routes()

    def _make(
        self, todo: Sequence[tuple[WantedSession, bool]], known: RouteState | None = None
    ) -> list[Outcome | None]:
        """Make all of sessions, each with whether its host route is to be set. None for each whose device is
        gone."""
        before = {wanted.session_id: self._applied.get(wanted.session_id) for wanted, _ in todo}
        self._take_over([wanted for wanted, _ in todo])
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
        made = [
            _Made(wanted, link, sets_host_route)
            for (wanted, sets_host_route), link in zip(todo, links, strict=True)
        ]
        self._shape(made)
        _set_ipv6_gateways([each for each in made if not each.is_gone], before)
        self._route([each for each in made if not each.is_gone], known)
        former_routes: list[FibEntry] = []
        for each in made:
            if each.link is not None and not each.is_gone:
                former = before[each.wanted.session_id]
                if former is not None and former.device == each.wanted.device:
                    index = each.link.index
                    had = {route for _, route in self.routes(former, index)}
                    former_routes += surplus(had, {route for _, route in self.routes(each.wanted, index)})
                self._applied[each.wanted.session_id] = each.wanted
        if former_routes:
            self._routes.remove(former_routes)
        return [None if each.is_gone else Outcome(tuple(each.changed), each.failed) for each in made]

    def _shape(self, made: Iterable["_Made"]) -> None:
        limits = [
            (each, Limits(each.link, wanted.ifb, wanted.rate_down, wanted.rate_up, wanted.profile))
            for each in made
            if each.link is not None and not self._has_other((wanted := each.wanted).device, wanted)
        ]
        directions = self._shaper.shape([limit for _, limit in limits])
        for (each, _), (down, up) in zip(limits, directions, strict=True):
            each.note(Place(FaultKind.SHAPER, each.wanted.device), down.error, down.is_changed)
            each.note(Place(FaultKind.IFB, each.wanted.ifb), up.error, up.is_changed)

    def _route(self, made: Iterable["_Made"], known: RouteState | None) -> None:
        wanted = [
            (each, Place(kind, destination(route)), route)
            for each in made
            if each.link is not None
            for kind, route in self.routes(each.wanted, each.link.index)
            if (each.sets_host_route or kind != FaultKind.HOST_ROUTE)
            and not (known is not None and known.has(route))
        ]
        codes = self._routes.add([route for _, _, route in wanted], known)
        for (each, place, _), code in zip(wanted, codes, strict=True):
            step = f"add the route to {place.object} on {each.wanted.device}"
            each.note(place, KernelError.of(step, code) if code else None, code == 0)

    def _steered(self, wanted: WantedSession, ifindex: int) -> FibEntry | None:
        return None if wanted.address is None else self._steering.host_route(wanted.address, ifindex)

    def _set_owners(self, wanted: Iterable[WantedSession]) -> None:
        for each in wanted:
            for key in _keys(each):
                if self._owners.get(key, 0) <= each.session_id:
                    self._owners[key] = each.session_id

    def _take_over(self, wanted: Sequence[WantedSession]) -> None:
        for each in wanted:
            before = self._applied.get(each.session_id)
            if before is not None and before != each:
                self._free(before)
        self._set_owners(wanted)

    def _free(self, wanted: WantedSession) -> None:
        for key in _keys(wanted):
            if not self._has_other(key, wanted):
                self._owners.pop(key, None)

    def _has_other(self, key: object, wanted: WantedSession) -> bool:
        return self._owners.get(key, wanted.session_id) != wanted.session_id

    def _remove(self, wanted: Sequence[WantedSession]) -> None:
        links = self._reader.find_links([each.device for each in wanted])
        gone = [
            route
            for each, link in zip(wanted, links, strict=True)
            # The kernel has removed the routes of a device that is gone.
            if link is not None
            for _, route in self.routes(each, link.index)
        ]
        self._routes.remove(gone)
        try_changes(
            "remove the gateway's addresses in the prefixes of sessions",
            [
                delete_ipv6_gateway(link.index, each.ipv6_gateway)
                for each, link in zip(wanted, links, strict=True)
                if link is not None and each.ipv6_gateway is not None
            ],
        )
        self._shaper.unshape(
            *((each.device, each.ifb) for each in wanted if not self._has_other(each.device, each))
        )


@dataclass
class _Made:
    """A session while it is made."""

    wanted: WantedSession
    link: Link | None
    sets_host_route: bool
    changed: list[Place] = field(default_factory=list)
    failed: dict[Place, KernelError] = field(default_factory=dict)

    @property
    def is_gone(self) -> bool:
        """Its device does not exist, or was removed meanwhile."""
        return self.link is None or any(isinstance(error, NoDevice) for error in self.failed.values())

    def note(self, place: Place, error: KernelError | None, is_changed: bool) -> None:
        if error is not None:
            self.failed[place] = error
        elif is_changed:
            self.changed.append(place)


def _set_ipv6_gateways(made: Sequence[_Made], before: Mapping[int, WantedSession | None]) -> None:
    """The gateway's addresses in the prefixes of sessions, in place of those of before."""
    former: list[KernelChange] = []
    added: list[tuple[_Made, IPv6Address, KernelChange]] = []
    for each in made:
        earlier, address = before[each.wanted.session_id], each.wanted.ipv6_gateway
        if each.link is None:
            continue
        if earlier is not None and earlier.ipv6_gateway not in (None, address):
            former.append(delete_ipv6_gateway(each.link.index, earlier.ipv6_gateway))
        if address is not None:
            added.append((each, address, add_ipv6_gateway(each.link.index, address)))
    # It may be gone with the former device.
    try_changes("remove the gateway's former addresses", former)
    codes = try_changes("add the gateway's addresses", [change for _, _, change in added])
    for (each, address, _), code in zip(added, codes, strict=True):
        if code not in (0, errno.EEXIST):
            place = Place(FaultKind.DELEGATED_PREFIX, str(each.wanted.prefix))
            each.note(place, KernelError.of(f"add {address} to {each.wanted.device}", code), is_changed=False)


def _keys(wanted: WantedSession) -> Iterator[object]:
    """The things that only one session can have."""
    yield wanted.device
    yield wanted.ifb
    if wanted.address is not None:
        yield wanted.address.packed
    for each in wanted.prefixes():
        yield each.network_address.packed, each.prefixlen
