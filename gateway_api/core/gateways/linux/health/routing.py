"""Whether FRR replies, and has its BGP neighbours."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gateway_api.core.configuration.sections import Bgp
from gateway_api.core.gateways.linux.daemons.frr import REMEDY, Frr, RoutingUnavailable, shown
from gateway_api.wire.core.dependencies import Dependency, DependencyState


class _Neighbour(msgspec.Struct, frozen=True):
    state: str = ""


class _Family(msgspec.Struct, frozen=True):
    peers: dict[str, _Neighbour] = {}


def frr(configured: Bgp | None, daemon: Frr, foreign: Sequence[str] = ()) -> Dependency:
    """The dependency. `foreign` lines keep FRR from running by the configuration. Ends by the deadline of
    `daemon`."""
    if configured is None or not configured.neighbors:
        kept = f" FRR keeps a configuration that is not the gateway's: {shown(foreign)}." if foreign else ""
        message = f"The configuration has no BGP neighbours.{kept}"
        return Dependency("frr", DependencyState.UNUSED, message)
    if foreign:
        reason = f"FRR has a configuration that is not the gateway's: {shown(foreign)}"
        message = f"Routing is not managed: {reason}. {REMEDY}."
        return Dependency("frr", DependencyState.FAILED, message)
    try:
        established = _established(daemon.bgp_summary())
    except RoutingUnavailable as error:
        return Dependency("frr", DependencyState.FAILED, f"FRR gave no BGP summary: {error.reason}.")
    except msgspec.ValidationError:
        return Dependency("frr", DependencyState.UNKNOWN, "FRR gave a BGP summary that is not as expected.")
    all_of_them = [str(neighbour.address) for neighbour in configured.neighbors]
    missing = [address for address in all_of_them if address not in established]
    if not missing:
        return Dependency("frr", DependencyState.OK, f"All BGP sessions are established: {len(all_of_them)}.")
    state = DependencyState.DEGRADED if len(missing) < len(all_of_them) else DependencyState.FAILED
    message = f"{len(missing)} of {len(all_of_them)} BGP sessions are not established: {_some(missing)}."
    return Dependency("frr", state, message)


def _established(summary: dict[str, Any]) -> set[str]:
    """The addresses of the neighbours whose session is up. Raises msgspec.ValidationError."""
    families = msgspec.convert(summary, dict[str, _Family])
    return {
        address
        for family in families.values()
        for address, neighbour in family.peers.items()
        if neighbour.state == "Established"
    }


def _some(addresses: list[str]) -> str:
    shown = ", ".join(addresses[:3])
    return shown if len(addresses) <= 3 else f"{shown} and {len(addresses) - 3} more"
