"""The core's contract for sessions and for the state of the core: records, commands and events."""

from typing import Annotated, Self

import msgspec
from msgspec import Meta

from gateway_contract.base.texts import MAX_BPS
from gateway_contract.contract import (
    Command,
    Enumeration,
    Failure,
    ListReply,
    Method,
    PagedMethod,
    Parameters,
    Record,
    about,
    count,
    record_of,
)
from gateway_contract.core.health import (
    Fault,
    LimitDelays,
    PacketDrops,
    RefusalCount,
    RepairCount,
    SkippedEntries,
)
from gateway_contract.version import VERSION

_RATE = Meta(ge=1, le=MAX_BPS)

#: The longest time of a temporary rate, in seconds.
MAX_EXPIRY_SECONDS = 366 * 86_400
RateExpiresAt = Annotated[
    int | None,
    about(
        "When the former rates return, Unix epoch seconds; null unless the rates are temporary.",
        None,
        1795275113,
    ),
]
NewRateDown = Annotated[
    Annotated[int, _RATE] | None,
    about("Downstream rate, bits per second; as it is without. One of the two is required.", 250_000_000),
]
NewRateUp = Annotated[
    Annotated[int, _RATE] | None, about("Upstream rate, bits per second; as it is without.", 50_000_000)
]
ExpiresIn = Annotated[
    Annotated[int, Meta(ge=1, le=MAX_EXPIRY_SECONDS)] | None,
    about("Seconds until the former rates return; never without this and until.", 3600),
]
Until = Annotated[
    int | None,
    about("When the former rates return, Unix epoch seconds; instead of expires_in.", 1795275113),
]
_FORMER = "that returns, bits per second; null unless the rates are temporary."
FormerRateDown = Annotated[int | None, about(f"Downstream rate {_FORMER}", None, 100_000_000)]
FormerRateUp = Annotated[int | None, about(f"Upstream rate {_FORMER}", None, 20_000_000)]

MAC = r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$"
IPV4 = r"[0-9]{1,3}(\.[0-9]{1,3}){3}"
#: As inet_ntop(3) writes it.
IPV6 = r"[0-9a-f:.]{2,45}"
_IPV6_PREFIX = rf"^{IPV6}/[0-9]{{1,3}}$"


def about_ipv4(description: str, example: str | None) -> Meta:
    """Return the documentation of a field with an IPv4 address."""
    return about(description, example, format="ipv4", pattern=f"^{IPV4}$")


def about_vlan(description: str, *examples: int | None) -> Meta:
    """Return the documentation of a field with a VLAN id."""
    return about(description, *examples, minimum=1, maximum=4094)


class SessionType(Enumeration):
    """The protocol with which a subscriber connects."""

    PPPOE = "PPPoE", "PPP over Ethernet."
    DHCP = "DHCP", "IP over Ethernet, with an address from DHCP."


class SessionTypeFilter(Enumeration):
    """The type of the sessions to list."""

    PPPOE = "pppoe", "PPP over Ethernet."
    DHCP = "dhcp", "IP over Ethernet, with an address from DHCP."


class SessionState(Enumeration):
    """The state of a session."""

    ACTIVE = "active", "The subscriber can send and receive."
    STALE = "stale", "The source of the session does not reply: the session may have changed or ended."


class EventName(Enumeration):
    """The name of an event of a session."""

    UP = "session.up", "The session started."
    DOWN = "session.down", "The session ended."
    RATE = "session.rate", "The rates of the session changed."


Author = Annotated[str | None, about("User of the API that did it, null for another cause.", "admin")]
SessionId = Annotated[int, about("Session id.", 7)]
Type = Annotated[SessionType, about("Session type.", "PPPoE")]
State = Annotated[SessionState, about("Session state.", "active")]
Username = Annotated[str, about("Subscriber login.", "subscriber000006@lab.example")]
AssignedAddress = Annotated[str | None, about_ipv4("Assigned IPv4 address, null for none.", "100.64.0.5")]
Ipv6Address = Annotated[
    str | None,
    about("Assigned IPv6 address, null for none.", "2001:db8:0:6::2", format="ipv6", pattern=f"^{IPV6}$"),
]
Ipv6Prefix = Annotated[
    str | None,
    about(
        "IPv6 network on the session's interface, null for none.", "2001:db8:0:6::/64", pattern=_IPV6_PREFIX
    ),
]
DelegatedPrefixes = Annotated[
    tuple[Annotated[str, Meta(extra_json_schema={"pattern": _IPV6_PREFIX})], ...],
    about("Networks that DHCPv6 delegated (RFC 8415 section 6.3).", ["2001:db8:8000:600::/56"]),
]
SessionInterface = Annotated[str, about("Interface of the session.", "ppp5")]
MacAddress = Annotated[
    str | None, about("MAC address of the subscriber, null if unknown.", "02:00:00:00:00:06", pattern=MAC)
]
AccessInterface = Annotated[str, about("Interface that the session arrived on.", "trunk0.1001")]
OuterVlanId = Annotated[int | None, about_vlan("Outer VLAN id, null without QinQ.", None, 100)]
InnerVlanId = Annotated[int | None, about_vlan("VLAN id, the inner one of two; null without a VLAN.", 1001)]
SourceName = Annotated[
    str,
    about("What terminates the session: `lab`, `accel-ppp`, `pppoe-server` or `dnsmasq`.", "lab"),
]
StartedAt = Annotated[int, count("Start time, Unix epoch seconds.", 1795271513)]
RateDown = Annotated[int, count("Downstream rate, bits per second.", 100_000_000)]
RateUp = Annotated[int, count("Upstream rate, bits per second.", 20_000_000)]
ProfileName = Annotated[str, about("Name of the overhead profile.", "pppoe_ethernet")]
BytesIn = Annotated[int, count("Bytes from the subscriber (RFC 2866 Acct-Input-Octets).", 117155058)]
BytesOut = Annotated[int, count("Bytes to the subscriber.", 585775294)]
AllSessions = Annotated[int, count("All sessions.", 298)]
PppoeSessions = Annotated[int, count("PPPoE sessions.", 271)]
DhcpSessions = Annotated[int, count("DHCP sessions.", 27)]
SteeredSessions = Annotated[int, count("Sessions through the CGNAT VRF.", 219)]
PublicSessions = Annotated[
    int,
    count("Sessions with an IPv4 address that is neither RFC 6598's nor in the CGNAT's source_range.", 79),
]
StaleSessions = Annotated[int, count("Sessions whose source does not reply.", 0)]
UnavailableSources = Annotated[
    tuple[str, ...], about("Sources of sessions that do not reply now, by name.", ["accel-ppp"])
]
HappenedAt = Annotated[int, count("When it happened, Unix epoch seconds.", 1795271513)]
BootId = Annotated[
    str,
    Meta(pattern=r"^[0-9a-z]{1,64}$"),
    about("Name of this run of the core, 1 to 64 digits and small letters.", "84a7e8343baf37f9"),
]

SEARCH = about(
    "Part of a username in any case, or of a MAC address in any spelling; IPv4 or IPv6 address, its first "
    "parts, or prefix; interface, trunk, VLAN id, session id; beginning of an accounting id. `id:`, `user:`, "
    "`ip:` or `mac:` before the text says which is meant.",
    "000006",
    minLength=1,
    maxLength=256,
)
REASON = about(
    "Reason of the end: `user_request`, `admin_disconnect`, `session_timeout`, `idle_timeout`, `nas_reboot` "
    "(the gateway booted again), another Acct-Terminate-Cause of RFC 2866 in snake_case, or `unknown` (the "
    "source did not report a reason).",
    "user_request",
)
RECEIVED = count("Bytes from the subscriber.", 117155058)
SENT = count("Bytes to the subscriber.", 585775294)
PACKETS_RECEIVED = count("Packets from the subscriber.", 292887)
PACKETS_SENT = count("Packets to the subscriber.", 488146)
DURATION = count("How long it lasted, seconds.", 3600)


class Health(Record, frozen=True):
    """The uptime of the gateway, the number of its sessions, the sources of sessions that do not reply, and
    the name and version of the core."""

    uptime_seconds: Annotated[int, count("Seconds since the core daemon started.", 86400)]
    active_sessions: Annotated[int, count("Number of sessions.", 298)]
    stale_sessions: StaleSessions
    unavailable_sources: UnavailableSources
    product: Annotated[str, about("Name of the product.", "Subscriber Gateway")]
    version: Annotated[str, about("Version of the product.", VERSION)]


class GetHealth(Method[Health], frozen=True):
    """Return the uptime of the gateway, the number of its sessions, the sources of sessions that do not
    reply, and the name and version of the core."""

    at_once = True


class SessionStatistics(Record, frozen=True):
    """Numbers of sessions, all taken at the same moment."""

    active_sessions: AllSessions
    pppoe_sessions: PppoeSessions
    dhcp_sessions: DhcpSessions
    vrf_steered_sessions: SteeredSessions
    public_ip_sessions: PublicSessions
    qos_sessions: Annotated[int, count("Sessions that are shaped.", 298)]
    stale_sessions: StaleSessions


class Statistics(SessionStatistics, frozen=True):
    """Numbers of sessions, all taken at the same moment; numbers of faults, repairs, refusals of the demux,
    dropped packets and skipped entries; and the sources of sessions that do not reply."""

    unavailable_sources: UnavailableSources
    faults: Annotated[int, count("Faults of the data plane that are present.", 0)]
    repairs: Annotated[tuple[RepairCount, ...], about("One for each kind.")]
    demux_refusals: Annotated[tuple[RefusalCount, ...], about("One for each reason.")] = ()
    packet_drops: Annotated[
        tuple[PacketDrops, ...],
        about("One for each trunk and one for ppp. They continue over a restart of the core; none in a lab."),
    ] = ()
    limit_delays: Annotated[
        LimitDelays | None, about("How long new sessions had no limit; null in a lab.")
    ] = None
    skipped_entries: Annotated[
        tuple[SkippedEntries, ...],
        about("One for each kind of entries that the core reads; none in a lab."),
    ] = ()


class GetStatistics(Method[Statistics], frozen=True):
    """Return numbers of sessions, all taken at the same moment; numbers of faults, repairs, refusals of the
    demux, dropped packets and skipped entries; and the sources of sessions that do not reply."""

    at_once = True


# Sessions


class SessionFilter(Parameters, frozen=True):
    """Filter for sessions: all conditions must hold. Each condition is an exact match, except for IPv6
    addresses and the search text."""

    type: Annotated[SessionTypeFilter | None, about("Session type.", "pppoe")] = None
    username: Annotated[str | None, about("Subscriber login.", "subscriber000006@lab.example")] = None
    ip_address: Annotated[
        str | None,
        about(
            "Assigned IPv4 address; or IPv6 address, in any spelling, that is assigned or in a prefix of the "
            "session.",
            "100.64.0.5",
        ),
    ] = None
    mac_address: Annotated[
        str | None, about("MAC address in lower case, with colons.", "02:00:00:00:00:06")
    ] = None
    interface: Annotated[str | None, about("The session's own or its access interface.", "ppp5")] = None
    search: Annotated[str | None, SEARCH] = None


class SessionSummary(Record, frozen=True):
    """A session, as it appears in a list."""

    id: SessionId
    type: Type
    username: Username
    ip_address: AssignedAddress
    interface: SessionInterface
    rate_down: RateDown
    rate_up: RateUp
    state: State
    started_at: StartedAt
    mac_address: MacAddress
    access_interface: AccessInterface
    ipv6_address: Ipv6Address
    ipv6_prefix: Ipv6Prefix
    delegated_prefixes: DelegatedPrefixes
    outer_vlan_id: OuterVlanId
    inner_vlan_id: InnerVlanId
    source: SourceName


class SessionDetail(Record, frozen=True):
    """A session with all known details."""

    id: SessionId
    session_type: Type
    state: State
    username: Username
    mac_address: MacAddress
    ip_address: AssignedAddress
    gateway: Annotated[str | None, about_ipv4("Gateway address, null when there is none.", "100.64.0.1")]
    access_interface: AccessInterface
    ppp_interface: Annotated[str, about("PPP interface, empty for DHCP.", "ppp5")]
    rate_down_bps: RateDown
    rate_up_bps: RateUp
    overhead_profile: ProfileName
    vrf_steered: Annotated[bool, about("Whether it is steered through the CGNAT VRF.", True)]
    acct_session_id: Annotated[str, about("Accounting session id.", "ed2f89d94a2f20aa")]
    started_at: StartedAt
    bytes_in: BytesIn
    bytes_out: BytesOut
    packets_in: Annotated[int, PACKETS_RECEIVED]
    packets_out: Annotated[int, PACKETS_SENT]
    ipv6_address: Ipv6Address
    ipv6_prefix: Ipv6Prefix
    delegated_prefixes: DelegatedPrefixes
    outer_vlan_id: OuterVlanId
    inner_vlan_id: InnerVlanId
    source: SourceName
    faults: Annotated[tuple[Fault, ...], about("Faults of its data plane.")]
    rate_expires_at: RateExpiresAt = None
    former_rate_down_bps: FormerRateDown = None
    former_rate_up_bps: FormerRateUp = None


class AuditedFields(msgspec.Struct, frozen=True):
    """The fields of a record that the audit log stores. The class is not part of the varlink interface."""

    @classmethod
    def of(cls, record: Record) -> Self:
        return record_of(cls, record)


class SessionSnapshot(AuditedFields, frozen=True):
    """The fields of a SessionDetail that the audit log stores when one session changes."""

    id: SessionId
    session_type: Type
    username: Username
    ip_address: AssignedAddress
    access_interface: AccessInterface
    rate_down_bps: RateDown
    rate_up_bps: RateUp
    started_at: StartedAt


class SessionRates(AuditedFields, frozen=True, omit_defaults=True):
    """The fields of a SessionDetail that SetSessionRate changes."""

    rate_down_bps: RateDown
    rate_up_bps: RateUp
    rate_expires_at: RateExpiresAt = None


class EndedSession(AuditedFields, frozen=True):
    """The fields of a SessionSummary that the audit log stores when many sessions end."""

    id: SessionId
    username: Username
    ip_address: AssignedAddress


class SessionsReply(ListReply, frozen=True):
    """A list of sessions."""

    sessions: Annotated[tuple[SessionSummary, ...], about("The sessions.")]


class ListSessions(PagedMethod[SessionsReply], frozen=True):
    """List sessions."""

    filter: Annotated[SessionFilter | None, about("Which ones, all without.")] = None
    sort: Annotated[
        str | None,
        about("A field of SessionSummary, descending with - before it; by id without.", "-started_at"),
    ] = None

    @property
    def comes_at_once(self) -> bool:
        # Few sessions have an address. All of a provider may have one login, and one access interface.
        wanted = self.filter
        if wanted is None or (wanted.ip_address is None and wanted.mac_address is None):
            return False
        return wanted.username is None and wanted.interface is None and wanted.search is None


class SessionsVersionReply(Record, frozen=True):
    version: Annotated[
        str,
        Meta(pattern=r"^[0-9a-z-]{1,100}$(?!\n)"),
        about("Changes with each change of a session.", "84a7e8343baf37f9-57"),
    ]


class GetSessionsVersion(Method[SessionsVersionReply], frozen=True):
    """Return the version of the list of sessions. If the version has not changed since a client fetched the
    list, that list is up to date. The client must get the version first, then the list."""

    at_once = True


class SessionReply(Record, frozen=True):
    session: Annotated[SessionDetail, about("The session.")]


class GetSession(Method[SessionReply], frozen=True):
    """Return a session with all known details."""

    at_once = True

    id: SessionId


class DisconnectSession(Command[SessionReply], frozen=True):
    """Disconnect a session. When the reply arrives, no list contains the session. The reply contains the last
    record of the session."""

    id: SessionId
    author: Author = None


class DisconnectInterfaceReply(Record, frozen=True):
    sessions: Annotated[tuple[SessionSummary, ...], about("Sessions that ended or, in a dry run, would end.")]


class DisconnectInterface(Command[DisconnectInterfaceReply], frozen=True):
    """Disconnect all sessions of an access interface. The interface may have no sessions. Fails with
    InterfaceNotFound for an interface that the gateway does not have."""

    interface: Annotated[str, about("Name of the access interface.", "trunk0.1000")]
    dry_run: Annotated[bool, about("Lists the sessions, and ends none.", True)]
    author: Author = None


class SessionRateReply(Record, frozen=True):
    before: Annotated[SessionDetail, about("The session before the change.")]
    after: Annotated[SessionDetail, about("The session after the change.")]


class SetSessionRate(Command[SessionRateReply], frozen=True):
    """Change the rates of a session, on its egress device and on its IFB. When the reply arrives, lists show
    the new rates. An earlier temporary change ends. If the new change is temporary as well, the rates from
    before the earlier change return when the new change expires. Temporary rates survive a restart of the
    core."""

    id: SessionId
    rate_down_bps: NewRateDown = None
    rate_up_bps: NewRateUp = None
    expires_in: ExpiresIn = None
    until: Until = None
    author: Author = None


# Events


class SessionEvent(Record, frozen=True):
    """An event of a session. The fields from `reason` to `duration_seconds` are set for session.down. The
    fields after `duration_seconds`, up to `rate_expires_at`, are set for session.rate; `rate_expires_at` is
    null for permanent rates."""

    sequence: Annotated[int, about("Number of the event, from 1 on, without holes.", 57)]
    event: Annotated[EventName, about("Event name.", "session.up")]
    at: HappenedAt
    id: SessionId
    type: Type
    username: Username
    ip_address: AssignedAddress
    interface: SessionInterface
    mac_address: MacAddress
    access_interface: AccessInterface
    ipv6_address: Ipv6Address = None
    ipv6_prefix: Ipv6Prefix = None
    delegated_prefixes: DelegatedPrefixes = ()
    outer_vlan_id: OuterVlanId = None
    inner_vlan_id: InnerVlanId = None
    started_at: Annotated[int | None, count("Start time, Unix epoch seconds.", 1795271513)] = None
    reason: Annotated[str | None, REASON] = None
    bytes_in: Annotated[int | None, RECEIVED] = None
    bytes_out: Annotated[int | None, SENT] = None
    packets_in: Annotated[int | None, PACKETS_RECEIVED] = None
    packets_out: Annotated[int | None, PACKETS_SENT] = None
    duration_seconds: Annotated[int | None, DURATION] = None
    rate_down: Annotated[int | None, count("New downstream rate, bits per second.", 250_000_000)] = None
    rate_up: Annotated[int | None, count("New upstream rate, bits per second.", 50_000_000)] = None
    rate_expires_at: Annotated[
        int | None, count("When the former rates return, Unix epoch seconds.", 1795275113)
    ] = None
    author: Author = None


class EventsReply(Record, frozen=True):
    boot_id: BootId
    oldest: Annotated[int, about("The oldest event that is held; at least 65536 are.", 1)]
    newest: Annotated[int, about("The newest event that is held.", 57)]
    gap: Annotated[
        bool, about("Requested events are not held. This reply has none, the next continues after newest.")
    ]
    events: Annotated[tuple[SessionEvent, ...], about("The events.")]


class SubscribeEvents(Method[EventsReply], frozen=True):
    """Stream the events of sessions, from now on or after a given event. The call must have the flag `more`.
    A reply arrives at least every 15 seconds, with or without events. The core closes the connection of a
    client that reads too slowly; the client can subscribe again after its last event."""

    streams = True

    boot_id: Annotated[str | None, about("Run of the core that the event is of.", "84a7e8343baf37f9")] = None
    after_sequence: Annotated[Annotated[int, Meta(ge=0)] | None, about("Number of the event.", 57)] = None


class SessionNotFoundError(Failure, frozen=True):
    """Error about a session: no session has that id."""

    id: SessionId


class SessionsConnectedError(Failure, frozen=True):
    """Partial failure of a disconnection: some sessions are still connected. The other sessions of the call
    have ended."""

    connected: Annotated[int, count("Sessions that are still there.", 1)]
    ended: Annotated[tuple[EndedSession, ...], about("Sessions that have ended.")]
    reason: Annotated[str, about("Why, without secrets.", "accel-ppp does not reply")]


class InterfaceNotFoundError(Failure, frozen=True):
    """Error about an interface: no interface has that name."""

    interface: Annotated[str, about("The name.", "trunk9")]
