"""The core's contract for health: the faults and repairs of the data plane, and the dependencies that a
gateway needs to serve its subscribers and the API."""

from collections.abc import Iterable
from typing import Annotated

from gateway_contract.contract import Enumeration, ListReply, Method, Record, SelectingMethod, about, count


class FaultKind(Enumeration):
    """Kind of a fault: the part of the data plane that has the fault. The core checks and repairs these
    parts."""

    SHAPER = "shaper", "The downstream shaper, on the device of a session."
    IFB = "ifb", "The IFB of a session, its upstream shaper, and the redirection of packets to it."
    HOST_ROUTE = "host_route", "The route to the address of a session."
    DELEGATED_PREFIX = "delegated_prefix", "The route to an IPv6 prefix that is delegated to a session."
    STEERING = "steering", "The rule and the routes that steer sessions through the CGNAT VRF."
    POOL = "pool", "The unreachable route to the addresses of subscribers, for those without a session."
    VLAN = "vlan", "A VLAN sub-interface of a trunk."
    FIREWALL = "firewall", "A table of nftables that drops packets of subscribers."


Kind = Annotated[FaultKind, about("Part of the data plane.", "shaper")]


class Fault(Record, frozen=True):
    """A part of the data plane that is not in the wanted state because a repair failed. The core tries again
    until the repair succeeds."""

    kind: Kind
    object: Annotated[str, about("Name of the device, VLAN or table, or destination of the route.", "ppp5")]
    session_id: Annotated[int | None, about("Session that it belongs to, null for none.", 7)]
    reason: Annotated[
        str, about("Why the repair failed, for people. Has no path and no secret.", "No space left on device")
    ]
    since: Annotated[int, count("When the core found it, Unix epoch seconds.", 1795271513)]


class FaultsReply(ListReply, frozen=True):
    """A list of faults."""

    faults: Annotated[tuple[Fault, ...], about("The faults.")]


class ListFaults(SelectingMethod[FaultsReply], frozen=True):
    """List the present faults, oldest first."""


class RepairCount(Record, frozen=True):
    """The number of repairs of one part of the data plane."""

    kind: Kind
    repairs: Annotated[int, count("Successful repairs since the core daemon started.", 2)]


class DelayCount(Record, frozen=True):
    """The number of new sessions whose rates were limited within a certain time."""

    seconds: Annotated[float, about("The longest time, seconds.", 0.5)]
    sessions: Annotated[int, count("Sessions with this time or a shorter one.", 298)]


class LimitDelays(Record, frozen=True):
    """Delays from the moment at which the core finds a new session until the kernel limits its rates, since
    the core daemon started."""

    counts: Annotated[tuple[DelayCount, ...], about("By ascending times.")]
    sessions: Annotated[int, count("All sessions, those with longer times too.", 300)]
    seconds: Annotated[float, about("The sum of all times, seconds.", 12.5)]


class TriggerRefusal(Enumeration):
    """The reason why a subscriber's first frame created no VLAN, or why a DHCP request was dropped."""

    SERVED = "served", "The VLAN exists."
    UNDER_WAY = "under_way", "The VLAN is being made or removed."
    NO_PROFILE = "no_profile", "No profile of the configuration has the VLAN."
    OTHER_KIND = "other_kind", "The profile has the other session type."
    OTHER_PROTOCOL = (
        "other_protocol",
        "The first of two tags is not 802.1ad (0x88a8), or the only one is not 802.1Q (0x8100).",
    )
    HELD_OFF = "held_off", "The VLAN could not be made a moment ago."
    RATE_LIMITED = "rate_limited", "There were too many new VLANs per second."
    OUTER_VLAN_RATE_LIMITED = (
        "outer_vlan_rate_limited",
        "The outer VLAN, or the trunk for one tag, had its share of new VLANs per second, or waiting.",
    )
    FULL = "full", "As many VLANs exist as max_vlans allows."
    OUTER_VLAN_FULL = (
        "outer_vlan_full",
        "The outer VLAN, or the trunk for one tag, has its share of max_vlans.",
    )
    DROPPED = "dropped", "The kernel dropped the frame, because its buffer was full."
    MAC_ELSEWHERE = "mac_elsewhere", "DHCP: the MAC address has a session on another VLAN."
    LEASES_FULL = "leases_full", "DHCP: the VLAN has as many leases as max_leases_per_vlan allows."
    LEASES_RATE_LIMITED = (
        "leases_rate_limited",
        "DHCP: the VLAN sent too many requests of new MAC addresses per second.",
    )


class RefusalCount(Record, frozen=True):
    """The number of first frames that created no VLAN, or of DHCP requests that were dropped, for one
    reason."""

    reason: Annotated[TriggerRefusal, about("Why they made none.", "no_profile")]
    frames: Annotated[int, count("Frames since the core daemon started.", 2)]


class PacketDrops(Record, frozen=True):
    """The numbers of subscribers' packets on one trunk that the nftables rules dropped."""

    trunk: Annotated[str, about("Name of the trunk; ppp for the sessions of PPPoE on all trunks.", "trunk0")]
    spoofed: Annotated[int, count("Packets whose source belongs to no session of their device.", 2)]
    blocked: Annotated[
        int, count("Packets to services of the gateway that are not for subscribers, and of DHCP servers.", 3)
    ]


class SkippedEntries(Record, frozen=True):
    """The number of unreadable entries of one kind that the core skipped: lines of a file, rows of a table,
    messages of the kernel."""

    source: Annotated[str, about("Where they come from.", "dnsmasq")]
    kind: Annotated[str, about("What they are.", "lease")]
    entries: Annotated[int, count("Entries since the core daemon started. One that stays counts once.", 1)]


class DependencyState(Enumeration):
    """The health of a dependency. The best state is first."""

    UNUSED = "unused", "The gateway does not use it."
    OK = "ok", "It does its work."
    UNKNOWN = "unknown", "Nothing tells whether it does its work."
    DEGRADED = "degraded", "It does a part of its work, or will soon fail."
    FAILED = "failed", "It does not do its work."

    @property
    def severity(self) -> int:
        """The severity of the state: 0 for ok and unused, 1 for unknown, 2 for degraded, 3 for failed."""
        return max(list(DependencyState).index(self) - 1, 0)


class Dependency(Record, frozen=True):
    """A program, service or resource that the gateway needs to do its work."""

    name: Annotated[str, about("Name of the dependency.", "radius")]
    state: Annotated[DependencyState, about("Its health.", "degraded")]
    message: Annotated[
        str,
        about(
            "A sentence about it, for people. Has no path, no secret, and nothing that a subscriber sent.",
            "2 requests timed out in the last 5 minutes.",
        ),
    ]


def find_worst_state(dependencies: Iterable[Dependency]) -> DependencyState:
    """Return the worst state of these dependencies; `ok` if there are none."""
    return max(
        (one.state for one in dependencies), key=lambda state: state.severity, default=DependencyState.OK
    )


class DependenciesReply(Record, frozen=True):
    dependencies: Annotated[tuple[Dependency, ...], about("Those that the core knows of.")]


class GetDependencies(Method[DependenciesReply], frozen=True):
    """Return the health of the core's dependencies: each source of sessions by its name, and radius, frr and
    clock. The core checks the dependencies periodically and replies at once, so a dependency that hangs does
    not delay the reply."""
