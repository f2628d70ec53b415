"""The types of the interface file, as structs: what goes over the wire, and nothing else.

Fields, units and their meaning are commented in `org.gatewayapi.core.varlink`; a test holds the two
together. Long lists are encoded piece by piece into a Raw, see `paging.py`.
"""

from typing import Any, Literal, Self

import msgspec

SessionType = Literal["PPPoE", "DHCP"]


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record of a reply."""


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record of a call: what it doesn't know, it refuses."""


class Page(Parameters, frozen=True):
    limit: int
    cursor: str | None = None


class SessionFilter(Parameters, frozen=True):
    type: Literal["pppoe", "dhcp"] | None = None
    username: str | None = None
    ip_address: str | None = None
    mac_address: str | None = None
    interface: str | None = None


class SessionSummary(Record, frozen=True):
    id: int
    type: SessionType
    username: str
    ip_address: str
    interface: str
    rate_down: int
    rate_up: int
    state: str
    started_at: int
    mac_address: str
    access_interface: str


class SessionDetail(Record, frozen=True):
    id: int
    session_type: SessionType
    state: str
    username: str
    mac_address: str
    ip_address: str
    gateway: str | None
    access_interface: str
    ppp_interface: str
    rate_down_bps: int
    rate_up_bps: int
    overhead_profile: str
    vrf_steered: bool
    acct_session_id: str
    started_at: int
    bytes_in: int
    bytes_out: int
    packets_in: int
    packets_out: int


class Excerpt(msgspec.Struct, frozen=True):
    """The fields of a record that the record of a change keeps. No type of the interface."""

    @classmethod
    def of(cls, record: Record) -> Self:
        """The same fields of a whole record."""
        return msgspec.convert(record, cls, from_attributes=True)


class SessionSnapshot(Excerpt, frozen=True):
    """Of a SessionDetail."""

    id: int
    session_type: SessionType
    username: str
    ip_address: str
    access_interface: str
    rate_down_bps: int
    rate_up_bps: int
    started_at: int


class SessionRates(Excerpt, frozen=True):
    """Of a SessionDetail: the fields that SetSessionRate changes."""

    rate_down_bps: int
    rate_up_bps: int


class EndedSession(Excerpt, frozen=True):
    """Of a SessionSummary, where there are many."""

    id: int
    username: str
    ip_address: str


class SessionEvent(Record, frozen=True):
    sequence: int
    event: Literal["session.up", "session.down"]
    at: int
    id: int
    type: SessionType
    username: str
    ip_address: str
    interface: str
    mac_address: str
    access_interface: str
    reason: str | None
    bytes_in: int | None
    bytes_out: int | None
    duration_seconds: int | None


class InterfaceAddress(Record, frozen=True):
    family: Literal["inet", "inet6"]
    address: str
    prefix_length: int


class InterfaceStats(Record, frozen=True):
    rx_bytes: int = 0
    rx_packets: int = 0
    rx_errors: int = 0
    rx_dropped: int = 0
    tx_bytes: int = 0
    tx_packets: int = 0
    tx_errors: int = 0
    tx_dropped: int = 0


class Interface(Record, frozen=True):
    ifindex: int
    name: str
    type: Literal["trunk", "loopback", "vlan", "ppp", "ifb", "vrf", "other"]
    mac_address: str | None
    mtu: int
    admin_state: Literal["up", "down"]
    oper_state: str
    parent: str | None
    master: str | None
    addresses: tuple[InterfaceAddress, ...]
    stats: InterfaceStats


class Vlan(Record, frozen=True):
    name: str
    trunk: str
    vlan_id: int
    outer_vlan_id: int | None
    protocol: Literal["802.1Q", "802.1ad"]
    oper_state: str
    session_count: int
    created_at: int


class DemuxVlan(Vlan, frozen=True):
    state: Literal["active", "idle"]


class SessionQos(Record, frozen=True):
    session_id: int
    username: str
    interface: str
    ifb_device: str | None
    rate_down_bps: int
    rate_up_bps: int
    overhead_profile: str
    overhead: int
    mpu: int
    qdisc: str


class OverheadProfile(Record, frozen=True):
    name: str
    overhead: int
    mpu: int
    description: str


class Route(Record, frozen=True):
    dst: str
    gateway: str | None
    dev: str
    protocol: str
    scope: str
    type: str
    table: str
    metric: int | None
    prefsrc: str | None
    session_id: int | None


class CgnatSession(Record, frozen=True):
    id: int
    type: SessionType
    username: str
    ip_address: str
    interface: str
    vrf_name: str
    vrf_table: int
    handoff_interface: str
    handoff_gateway: str
    started_at: int


class Health(Record, frozen=True):
    uptime_seconds: int
    active_sessions: int
    product: str
    version: str


class Statistics(Record, frozen=True):
    active_sessions: int
    pppoe_sessions: int
    dhcp_sessions: int
    vrf_steered_sessions: int
    public_ip_sessions: int
    qos_sessions: int


class ListCall(Parameters, frozen=True):
    page: Page | None = None


class ListSessionsCall(Parameters, frozen=True):
    filter: SessionFilter | None = None
    sort: str | None = None
    page: Page | None = None


class SessionCall(Parameters, frozen=True):
    id: int


class DisconnectInterfaceCall(Parameters, frozen=True):
    interface: str
    dry_run: bool
    request_id: str | None = None


class DisconnectSessionCall(Parameters, frozen=True):
    id: int
    request_id: str | None = None


class SubscribeEventsCall(Parameters, frozen=True):
    boot_id: str | None = None
    after_sequence: int | None = None


class EventsReply(Record, frozen=True):
    boot_id: str
    oldest: int
    newest: int
    gap: bool
    events: tuple[SessionEvent, ...]


class SetSessionRateCall(Parameters, frozen=True):
    id: int
    rate_down_bps: int
    rate_up_bps: int
    request_id: str | None = None


class ListChangesCall(Parameters, frozen=True):
    log: str | None = None
    after_sequence: int | None = None


class Change(Record, frozen=True):
    sequence: int
    at: int
    action: str
    user: str
    process: int | None
    author: str | None
    comment: str | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class ChangesReply(Record, frozen=True):
    log: str
    oldest: int
    newest: int
    changes: tuple[Change, ...]
