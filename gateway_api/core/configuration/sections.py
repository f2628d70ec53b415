"""The configuration as the core uses it: parsed, checked, unchangeable."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network


@dataclass(frozen=True)
class VlanRange:
    """VLAN ids from `first` to `last`, both included, 1 to 4094."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    def overlaps(self, other: "VlanRange") -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class System:
    hostname: str


@dataclass(frozen=True)
class Interfaces:
    """`trunks` carry subscribers, `uplinks` the rest of the network. Interface names."""

    trunks: tuple[str, ...]
    uplinks: tuple[str, ...]


@dataclass(frozen=True)
class Radius:
    server: IPv4Address | None
    authentication_port: int
    accounting_port: int
    secret: str | None


@dataclass(frozen=True)
class Cgnat:
    """Sessions with an address in `source_range` go through the VRF to `handoff_gateway`."""

    enabled: bool
    vrf_name: str
    vrf_table: int
    handoff_interface: str
    handoff_gateway: IPv4Address
    source_range: IPv4Network


@dataclass(frozen=True)
class Qos:
    """The rates of sessions for which nobody says otherwise, bits a second."""

    default_down: int
    default_up: int


@dataclass(frozen=True)
class VlanProfile:
    """`type` is pppoe or dhcp. With `outer_vlan_range` the VLANs are 802.1ad (QinQ)."""

    name: str
    type: str
    vlan_range: VlanRange
    outer_vlan_range: VlanRange | None
    overhead_profile: str

    def overlaps(self, other: "VlanProfile") -> bool:
        """True when a VLAN can belong to both: tagged once or twice, it's another VLAN."""
        one, two = self.outer_vlan_range, other.outer_vlan_range
        if one is None or two is None:
            return one is two and self.vlan_range.overlaps(other.vlan_range)
        return one.overlaps(two) and self.vlan_range.overlaps(other.vlan_range)


@dataclass(frozen=True)
class RateLimits:
    """How fast VLANs may appear: a bucket of `burst` VLANs that refills by `vlans_per_second`; and
    `max_vlans`, the most there may be at once."""

    vlans_per_second: int
    burst: int
    max_vlans: int


@dataclass(frozen=True)
class Demux:
    """`idle_timeout`: seconds a VLAN without sessions stays."""

    trunks: tuple[str, ...]
    vlan_profiles: tuple[VlanProfile, ...]
    rate_limits: RateLimits
    idle_timeout: int

    def profiles_of(self, session_type: str) -> Iterator[VlanProfile]:
        return (profile for profile in self.vlan_profiles if profile.type == session_type)


@dataclass(frozen=True)
class User:
    username: str
    password_hash: str
    role: str


@dataclass(frozen=True)
class Webhooks:
    """Nothing is delivered to an address in `denied_networks`."""

    denied_networks: tuple[IPv4Network | IPv6Network, ...]


@dataclass(frozen=True)
class Api:
    """`token_lifetime` in seconds. The last three are of the alternative profile, which is off without an
    `auth_token`."""

    enabled: bool
    token_lifetime: int
    users: tuple[User, ...]
    webhooks: Webhooks
    auth_token: str | None
    listen_address: IPv4Address | IPv6Address
    listen_port: int


@dataclass(frozen=True)
class Neighbor:
    address: IPv4Address
    remote_as: int
    description: str


@dataclass(frozen=True)
class Bgp:
    as_number: int
    router_id: IPv4Address
    neighbors: tuple[Neighbor, ...]


@dataclass(frozen=True)
class LocalSubscriber:
    """A subscriber for when no RADIUS server is asked. Without an `ip_address` it gets one of the pool."""

    username: str
    password: str
    ip_address: IPv4Address | None


@dataclass(frozen=True)
class Subscribers:
    local: tuple[LocalSubscriber, ...]


@dataclass(frozen=True)
class Configuration:
    system: System
    interfaces: Interfaces
    radius: Radius
    cgnat: Cgnat
    qos: Qos
    demux: Demux
    api: Api
    bgp: Bgp | None
    subscribers: Subscribers
