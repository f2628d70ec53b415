"""The core's contract for the data plane: its faults, and what the core repaired."""

from typing import Annotated

from gateway_api.wire.contract import Enumeration, ListReply, Record, SelectingMethod, about, count


class FaultKind(Enumeration):
    """A part of the data plane that the core compares with what it must be, and repairs."""

    SHAPER = "shaper", "The downstream shaper, on the device of a session."
    IFB = "ifb", "The IFB of a session, its upstream shaper, and the redirection of packets to it."
    HOST_ROUTE = "host_route", "The route to the address of a session."
    DELEGATED_PREFIX = "delegated_prefix", "The route to an IPv6 prefix that is delegated to a session."
    STEERING = "steering", "The rule and the routes that steer sessions through the CGNAT VRF."
    POOL = "pool", "The unreachable route to the addresses of subscribers, for those without a session."
    VLAN = "vlan", "A VLAN sub-interface of a trunk."


Kind = Annotated[FaultKind, about("Part of the data plane.", "shaper")]


class Fault(Record, frozen=True):
    """A part of the data plane that is not what it must be, and that the core could not repair. The core
    tries again until it succeeds."""

    kind: Kind
    object: Annotated[str, about("Name of the device or VLAN, or destination of the route.", "ppp5")]
    session_id: Annotated[int | None, about("Session that it belongs to, null for none.", 7)]
    reason: Annotated[
        str, about("Why the repair failed, for people. Has no path and no secret.", "No space left on device")
    ]
    since: Annotated[int, count("When the core found it, Unix epoch seconds.", 1795271513)]


class FaultsReply(ListReply, frozen=True):
    """A list of faults."""

    faults: Annotated[tuple[Fault, ...], about("The faults.")]


class ListFaults(SelectingMethod[FaultsReply], frozen=True):
    """Lists the faults that are present, the oldest first."""


class RepairCount(Record, frozen=True):
    """The repairs of one part of the data plane."""

    kind: Kind
    repairs: Annotated[int, count("Successful repairs since the core daemon started.", 2)]
