"""The routes of the kernel as a list."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from gateway_api.core.gateways.linux.kernel.fib import MAIN_TABLE, NextHop, RouteEntry
from gateway_api.core.records.paging import Chained, Rows, Sorted
from gateway_api.core.sessions.session import Session
from gateway_api.wire.core.network import Route


def route_rows(
    entries: Sequence[RouteEntry], devices: Mapping[int, str], sessions: Collection[Session]
) -> Rows:
    """Route, one for each next hop: those of the network, then those of the sessions by id. `devices` are the
    names of the links."""
    by_destination = {destination: each for each in sessions for destination in _destinations(each)}
    # Several DHCP sessions may share a VLAN: its other routes are those of none.
    by_device = {each.interface: each for each in sessions if each.interface != each.access_interface}
    network: list[Route] = []
    owned: list[tuple[int, Route]] = []
    for entry in entries:
        for hop in entry.next_hops or (NextHop(None, None),):
            device = devices.get(hop.ifindex or 0, "")
            session = by_destination.get(entry.destination) or by_device.get(device)
            route = _route(entry, hop, device, session)
            if session is None:
                network.append(route)
            else:
                owned.append((session.id, route))
    owned.sort(key=lambda each: each[0])
    return Chained(
        Sorted(list(enumerate(network)), lambda each: (0, each[0], 0), lambda each: each[1]),
        Sorted(
            [(id, number, route) for number, (id, route) in enumerate(owned)],
            lambda each: (1, each[0], each[1]),
            lambda each: each[2],
        ),
    )


def _destinations(session: Session) -> Iterator[str]:
    summary = session.summary
    if summary.ip_address is not None:
        yield f"{summary.ip_address}/32"
    if summary.ipv6_address is not None:
        yield f"{summary.ipv6_address}/128"
    if summary.ipv6_prefix is not None:
        yield summary.ipv6_prefix
    yield from summary.delegated_prefixes


def _route(entry: RouteEntry, hop: NextHop, device: str, session: Session | None) -> Route:
    return Route(
        dst=entry.destination,
        gateway=hop.gateway,
        dev=device,
        protocol=entry.protocol,
        scope=entry.scope,
        type=entry.type,
        table="main" if entry.table == MAIN_TABLE else str(entry.table),
        metric=entry.metric,
        prefsrc=entry.source,
        session_id=None if session is None else session.id,
    )
