"""The sections of the configuration, field by field: what a value means, its range, and its default. The core
checks the values."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway_api.wire.contract import Record, about
from gateway_api.wire.core.configuration import Role
from gateway_api.wire.events import WebhookEvent


def _unless_given(default: Any, description: str, example: Any, **schema: Any) -> Meta:
    """As `about`, for a field that may be left out."""
    return about(f"{description} Default: {msgspec.json.encode(default).decode()}.", example, **schema)


_PORT = {"minimum": 1, "maximum": 65535}
_AS_NUMBER = {"minimum": 1, "maximum": 4294967295}
_INTERFACES = {"maxItems": 64}


class SystemConfiguration(Record, frozen=True):
    """The gateway itself."""

    hostname: Annotated[str, about("Name of the gateway (RFC 1123).", "bng1")]


class InterfacesConfiguration(Record, frozen=True):
    """The interfaces: `trunks` carry subscribers, `uplinks` the rest of the network."""

    trunks: Annotated[
        tuple[str, ...], about("Interfaces that carry subscribers.", ["trunk0", "trunk1"], **_INTERFACES)
    ]
    uplinks: Annotated[
        tuple[str, ...],
        about("Interfaces that lead to the rest of the network.", ["uplink0", "cgnat0"], **_INTERFACES),
    ]


class RadiusConfiguration(Record, frozen=True):
    """The RADIUS server that authorizes subscribers; its secret is masked."""

    server: Annotated[
        str | UnsetType | None,
        _unless_given(None, "IPv4 address of the server; null without RADIUS.", "192.0.2.10"),
    ] = UNSET
    authentication_port: Annotated[
        int | UnsetType, _unless_given(1812, "UDP port for authentication (RFC 2865).", 1812, **_PORT)
    ] = UNSET
    accounting_port: Annotated[
        int | UnsetType, _unless_given(1813, "UDP port for accounting (RFC 2866).", 1813, **_PORT)
    ] = UNSET
    secret: Annotated[
        str | UnsetType | None,
        _unless_given(
            None, "Secret shared with the server, at most 48 characters; required with a server.", "********"
        ),
    ] = UNSET


class CgnatConfiguration(Record, frozen=True):
    """Steering to the CGNAT appliance."""

    enabled: Annotated[bool, about("Whether sessions are steered to the appliance.", True)]
    vrf_name: Annotated[str, about("Name of the VRF in which steered sessions are.", "cgnat")]
    vrf_table: Annotated[
        int,
        about("Routing table of the VRF; not 253 to 255.", 100, minimum=1, maximum=4294967295),
    ]
    handoff_interface: Annotated[str, about("Interface that leads to the appliance.", "cgnat0")]
    handoff_gateway: Annotated[
        str, about("IPv4 address of the appliance, the next hop of steered traffic.", "10.255.1.2")
    ]
    source_range: Annotated[
        str, about("Network in CIDR: sessions with an address in it are steered.", "100.64.0.0/10")
    ]


class QosConfiguration(Record, frozen=True):
    """Rates of sessions without rates of their own, as text with a unit."""

    default_down: Annotated[
        str,
        about(
            "Downstream rate of sessions without one of their own: a number and a unit of bits per second.",
            "100mbit",
        ),
    ]
    default_up: Annotated[
        str,
        about(
            "Upstream rate of sessions without one of their own: a number and a unit of bits per second.",
            "20mbit",
        ),
    ]


class VlanProfile(Record, frozen=True):
    """The treatment of a range of VLANs."""

    name: Annotated[str, about("Name of the profile.", "ipoe")]
    type: Annotated[Literal["pppoe", "dhcp"], about("Type of its sessions.", "dhcp", type="string")]
    vlan_range: Annotated[str, about("VLAN ids, 1 to 4094, the inner ones of two.", "100-999")]
    outer_vlan_range: Annotated[str | None, about("Outer VLAN ids, null without QinQ.", "100-999")]
    overhead_profile: Annotated[
        str, about("Name of the overhead profile: GET /qos/profiles lists them.", "ipoe_qinq")
    ]


class RateLimits(Record, frozen=True):
    """The limits of new VLANs."""

    vlans_per_second: Annotated[int, about("New VLANs a second.", 200, minimum=1, maximum=100_000)]
    burst: Annotated[int, about("New VLANs at once.", 1000, minimum=1, maximum=100_000)]
    max_vlans: Annotated[int, about("VLANs in all.", 16384, minimum=1, maximum=4094 * 4094)]


class DemuxConfiguration(Record, frozen=True):
    """The creation of VLANs for subscribers."""

    trunks: Annotated[
        tuple[str, ...],
        about("Interfaces on which VLANs are created.", ["trunk0", "trunk1"], **_INTERFACES),
    ]
    vlan_profiles: Annotated[tuple[VlanProfile, ...], about("Profiles of VLANs.", maxItems=256)]
    rate_limits: RateLimits
    idle_timeout: Annotated[
        int, about("Seconds that a VLAN without sessions stays.", 300, minimum=1, maximum=604_800)
    ]


class ConfiguredUser(Record, frozen=True):
    """A user of the API."""

    username: Annotated[str, about("Login: 1 to 64 letters, digits and . _ @ -", "alice")]
    password_hash: Annotated[
        str,
        about("bcrypt hash of cost 4 to 14; gateway-api hash-password makes one. It is masked.", "********"),
    ]
    role: Annotated[Role, about("What the user may do.", "operator")]


class ConfiguredReceiver(Record, frozen=True):
    """A webhook that exists while the configuration has it."""

    url: Annotated[str, about("HTTP or HTTPS URL of the deliveries.", "https://noc.example/hook")]
    events: Annotated[tuple[WebhookEvent, ...], about("Names of the events to deliver.", ["session.up"])]
    secret: Annotated[
        str | UnsetType | None,
        _unless_given(None, "Secret that signs the deliveries; null for no signature.", "********"),
    ] = UNSET


class WebhooksConfiguration(Record, frozen=True):
    """Where webhooks are delivered, and where not."""

    denied_networks: Annotated[
        tuple[str, ...] | UnsetType,
        _unless_given([], "Networks in CIDR to which nothing is delivered.", ["192.0.2.0/24"]),
    ] = UNSET
    receivers: Annotated[
        tuple[ConfiguredReceiver, ...] | UnsetType,
        _unless_given([], "Webhooks that are there after each start and commit.", [], maxItems=100),
    ] = UNSET


class ApiConfiguration(Record, frozen=True):
    """This API. The last three fields are of the alternative profile."""

    enabled: Annotated[bool, about("Whether the API serves requests.", True)]
    token_lifetime: Annotated[
        int | UnsetType,
        _unless_given(3600, "Lifetime of tokens, in seconds.", 3600, minimum=60, maximum=86400),
    ] = UNSET
    users: Annotated[
        tuple[ConfiguredUser, ...] | UnsetType,
        _unless_given([], "Users of the API; one at least is an admin.", [], maxItems=1000),
    ] = UNSET
    webhooks: WebhooksConfiguration | UnsetType = UNSET
    auth_token: Annotated[
        str | UnsetType | None,
        _unless_given(
            None,
            "Token of the alternative profile, 16 to 256 printable ASCII characters; null turns it off.",
            "********",
        ),
    ] = UNSET
    listen_address: Annotated[
        str | UnsetType,
        _unless_given("127.0.0.1", "IPv4 or IPv6 address of the alternative profile.", "127.0.0.1"),
    ] = UNSET
    listen_port: Annotated[
        int | UnsetType, _unless_given(8080, "TCP port of the alternative profile.", 8080, **_PORT)
    ] = UNSET


class BgpNeighbor(Record, frozen=True):
    """A BGP neighbour."""

    address: Annotated[str, about("IPv4 address of the neighbour.", "10.255.0.2")]
    remote_as: Annotated[int, about("AS number of the neighbour.", 64513, **_AS_NUMBER)]
    description: Annotated[
        str | UnsetType, _unless_given("", "Up to 80 printable ASCII characters.", "core1")
    ] = UNSET


class BgpConfiguration(Record, frozen=True):
    """The gateway's own AS and its neighbours; null or missing without BGP."""

    as_number: Annotated[int, about("AS number of the gateway.", 64512, **_AS_NUMBER)]
    router_id: Annotated[str, about("Router id, written as an IPv4 address.", "10.255.0.1")]
    neighbors: Annotated[
        tuple[BgpNeighbor, ...] | UnsetType, _unless_given([], "The neighbours.", [], maxItems=1000)
    ] = UNSET


class LocalSubscriber(Record, frozen=True):
    """A subscriber that is authorized without a RADIUS server."""

    username: Annotated[str, about("Login: 1 to 64 letters, digits and . _ @ / -", "alice@example.net")]
    password: Annotated[str, about("Password, at most 128 characters. It is masked.", "********")]
    ip_address: Annotated[
        str | UnsetType | None,
        _unless_given(None, "IPv4 address of the session; null for one of the pool.", "100.64.3.7"),
    ] = UNSET


class SubscribersConfiguration(Record, frozen=True):
    """Subscribers that are authorized without a RADIUS server, and the DNS servers of all subscribers."""

    local: Annotated[
        tuple[LocalSubscriber, ...] | UnsetType,
        _unless_given([], "Subscribers that are authorized without a RADIUS server.", [], maxItems=10_000),
    ] = UNSET
    dns_servers: Annotated[
        tuple[str, ...] | UnsetType,
        _unless_given([], "IPv4 addresses of DNS servers, the first one first.", ["192.0.2.53"], maxItems=2),
    ] = UNSET


class HistoryConfiguration(Record, frozen=True):
    """How long the API keeps ended sessions, and in how much space. The oldest go first."""

    days: Annotated[
        int | UnsetType, _unless_given(90, "Days that an ended session is kept.", 90, minimum=1, maximum=3650)
    ] = UNSET
    mebibytes: Annotated[
        int | UnsetType,
        _unless_given(1024, "Most space of the history, in MiB.", 1024, minimum=16, maximum=1_048_576),
    ] = UNSET


class Configuration(Record, frozen=True):
    """The running configuration, one object for each section. Some sections may be left out."""

    system: SystemConfiguration
    interfaces: InterfacesConfiguration
    radius: RadiusConfiguration
    cgnat: CgnatConfiguration
    qos: QosConfiguration
    demux: DemuxConfiguration
    api: ApiConfiguration
    bgp: Annotated[
        BgpConfiguration | UnsetType | None,
        _unless_given(None, "The gateway's own AS and its neighbours; null without BGP.", None),
    ] = UNSET
    subscribers: SubscribersConfiguration | UnsetType = UNSET
    history: HistoryConfiguration | UnsetType = UNSET
