"""The configuration, section by section: what is valid, and the typed values that the core uses."""

# ruff: noqa: RUF009 - the calls declare fields; none of them makes a default value.

import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from itertools import combinations

from marshmallow import validate
from marshmallow.fields import Nested

from gateway_api.base.texts import parse_rate
from gateway_api.core.configuration import fields
from gateway_api.core.configuration.fields import Section
from gateway_api.core.configuration.receivers import DeclaredReceiver
from gateway_api.wire.core.history import DEFAULT_LIMITS

#: Linux's own routing tables: default, main, local. Steering into one would take the gateway's own routes.
_NOT_OF_LINUX = validate.NoneOf((253, 254, 255), error="must not be one of Linux's own: 253, 254, 255")
_MOST_OUTER_VLANS = 65_536
NAME_OF_AN_INTERFACE = "must not be the name of an interface"


@dataclass(frozen=True)
class VlanRange:
    """VLAN ids from `first` to `last`, both included, 1 to 4094."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "VlanRange":
        match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", text, re.ASCII)
        if match:
            first, last = int(match[1]), int(match[2] or match[1])
            if 1 <= first <= last <= 4094:
                return cls(first, last)
        raise ValueError("must be VLAN ids from 1 to 4094, such as 100-499")

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    def overlaps(self, other: "VlanRange") -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class System(Section):
    hostname: str = fields.text(
        r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
        r"(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*",
        "must be a host name (RFC 1123)",
    )


@dataclass(frozen=True)
class Interfaces(Section):
    """`trunks` carry subscribers, `uplinks` lead to the rest of the network. Interface names."""

    trunks: tuple[str, ...] = fields.interface_names()
    uplinks: tuple[str, ...] = fields.interface_names()


@dataclass(frozen=True)
class Radius(Section):
    server: IPv4Address | None = fields.parsed(fields.host_address, load_default=None, allow_none=True)
    authentication_port: int = fields.port(1812)
    accounting_port: int = fields.port(1813)
    secret: str | None = fields.secret(strict=(fields.RADIUS_SECRET,), load_default=None, allow_none=True)

    def broken_rules(self) -> Iterator[tuple[str, str]]:
        if self.server is not None and self.secret is None:
            yield "secret", "is required with a server"


@dataclass(frozen=True)
class Cgnat(Section):
    """Sessions with an address in `source_range` go through the VRF to `handoff_gateway`."""

    enabled: bool = fields.flag()
    vrf_name: str = fields.interface_name(strict=(fields.NOT_A_VRF,))
    vrf_table: int = fields.whole(1, 4294967295, _NOT_OF_LINUX)
    handoff_interface: str = fields.interface_name(strict=(fields.NOT_A_NEXT_HOP,))
    handoff_gateway: IPv4Address = fields.parsed(fields.host_address)
    source_range: IPv4Network = fields.parsed(fields.network_of_hosts, strict=(fields.of_subscribers,))

    @property
    def subscriber_gateway(self) -> IPv4Address:
        """The gateway's address on each interface of a subscriber: the second one of the range. From the next
        one on, they are the subscribers'."""
        return self.source_range[1]


@dataclass(frozen=True)
class Qos(Section):
    """The default rates of sessions, in bits per second."""

    default_down: int = fields.parsed(parse_rate)
    default_up: int = fields.parsed(parse_rate)


@dataclass(frozen=True)
class VlanProfile(Section):
    """`type` is the session type. With `outer_vlan_range` the VLANs are 802.1ad (QinQ)."""

    key = "name"
    name: str = fields.text(r"[A-Za-z_][A-Za-z0-9_-]{0,31}", "must be a name of letters, digits, - and _")
    type: str = fields.choice(("pppoe", "dhcp"), "must be pppoe or dhcp")
    vlan_range: VlanRange = fields.parsed(VlanRange.parse)
    outer_vlan_range: VlanRange | None = fields.parsed(VlanRange.parse, allow_none=True)
    overhead_profile: str = fields.choice(tuple(sorted(fields.OVERHEAD_PROFILES)))

    def overlaps(self, other: "VlanProfile") -> bool:
        """True when a VLAN can belong to both. With one tag it is another VLAN than with two."""
        one, two = self.outer_vlan_range, other.outer_vlan_range
        if one is None or two is None:
            return one is two and self.vlan_range.overlaps(other.vlan_range)
        return one.overlaps(two) and self.vlan_range.overlaps(other.vlan_range)


@dataclass(frozen=True)
class RateLimits(Section):
    """How fast VLANs may appear: a bucket of `burst` VLANs that refills by `vlans_per_second`; and the most
    VLANs at once."""

    vlans_per_second: int = fields.whole(1, 100_000)
    burst: int = fields.whole(1, 100_000)
    max_vlans: int = fields.whole(1, 4094 * 4094)


@dataclass(frozen=True)
class Demux(Section):
    """`idle_timeout`: seconds until a VLAN without sessions is removed."""

    trunks: tuple[str, ...] = fields.interface_names()
    vlan_profiles: tuple[VlanProfile, ...] = fields.items(VlanProfile, most=256)
    rate_limits: RateLimits = fields.section(RateLimits)
    idle_timeout: int = fields.whole(1, 7 * 86400)

    def profiles_of(self, session_type: str) -> Iterator[VlanProfile]:
        return (profile for profile in self.vlan_profiles if profile.type == session_type)

    def broken_rules(self) -> Iterator[tuple[str, str]]:
        # Each one with a subscriber is a device.
        outer = sum(len(profile.outer_vlan_range or ()) for profile in self.vlan_profiles)
        if outer * len(self.trunks) > _MOST_OUTER_VLANS:
            yield "vlan_profiles", f"must have at most {_MOST_OUTER_VLANS} outer VLANs on all trunks together"
        # Else their order would decide which of two profiles a subscriber gets.
        for (_, one), (number, other) in combinations(enumerate(self.vlan_profiles), 2):
            if one.overlaps(other):
                yield f"vlan_profiles.{number}.vlan_range", f"must not overlap with the VLANs of {one.name}"
                return


@dataclass(frozen=True)
class User(Section):
    key = "username"
    username: str = fields.text(
        r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}", "must be 1 to 64 letters, digits and . _ @ -"
    )
    password_hash: str = fields.text(
        r"\$2[aby]\$(0[4-9]|1[0-4])\$[./A-Za-z0-9]{53}",
        "must be a bcrypt hash of cost 4 to 14; gateway-api hash-password makes one",
    )
    role: str = fields.choice(("admin", "operator"), "must be admin or operator")


@dataclass(frozen=True)
class Webhooks(Section):
    """Webhooks are not delivered to addresses in `denied_networks`. `receivers` always exist."""

    denied_networks: tuple[IPv4Network | IPv6Network, ...] = fields.networks()
    receivers: tuple[DeclaredReceiver, ...] = fields.items(DeclaredReceiver, most=100, load_default=())


@dataclass(frozen=True)
class Api(Section):
    """`token_lifetime` in seconds. The last three are of the alternative profile, which is off without an
    `auth_token`."""

    enabled: bool = fields.flag()
    token_lifetime: int = fields.whole(60, 86400, load_default=3600)
    users: tuple[User, ...] = fields.items(User, most=1000, load_default=())
    webhooks: Webhooks = fields.section(Webhooks, load_default=Webhooks((), ()))
    auth_token: str | None = fields.text(
        r"[!-~]{16,256}",
        "must be 16 to 256 printable ASCII characters without spaces",
        load_default=None,
        allow_none=True,
    )
    listen_address: IPv4Address | IPv6Address = fields.parsed(
        fields.listen_address, load_default=IPv4Address("127.0.0.1")
    )
    listen_port: int = fields.port(8080)

    def broken_rules(self) -> Iterator[tuple[str, str]]:
        if self.enabled and not any(user.role == "admin" for user in self.users):
            yield "users", "must hold an admin while the API is enabled"


@dataclass(frozen=True)
class Neighbor(Section):
    key = "address"
    address: IPv4Address = fields.parsed(fields.host_address)
    remote_as: int = fields.as_number()
    description: str = fields.text(
        r"([!-~]([ -~]{0,78}[!-~])?)?",
        "must be up to 80 printable ASCII characters",
        load_default="",
        strict=(
            validate.Regexp(r"(?!.*\| )", error="must not hold a | before a space: FRR takes it for a pipe"),
            validate.Regexp(r"(?!.*  )", error="must not hold two spaces in a row: FRR keeps one"),
        ),
    )


@dataclass(frozen=True)
class Bgp(Section):
    as_number: int = fields.as_number()
    router_id: IPv4Address = fields.parsed(fields.host_address)
    neighbors: tuple[Neighbor, ...] = fields.items(Neighbor, most=1000, load_default=())


@dataclass(frozen=True)
class LocalSubscriber(Section):
    """A subscriber when there is no RADIUS server. Without an `ip_address` it gets one of the pool."""

    key = "username"
    username: str = fields.text(
        r"[A-Za-z0-9_][A-Za-z0-9_.@/-]{0,63}", "must be 1 to 64 letters, digits and . _ @ / -"
    )
    password: str = fields.secret()
    ip_address: IPv4Address | None = fields.parsed(fields.host_address, load_default=None, allow_none=True)


@dataclass(frozen=True)
class Subscribers(Section):
    """`dns_servers` are told to all subscribers, the first one first."""

    local: tuple[LocalSubscriber, ...] = fields.items(LocalSubscriber, most=10_000, load_default=())
    # PPP knows two (RFC 1877).
    dns_servers: tuple[IPv4Address, ...] = fields.host_addresses(most=2)

    def broken_rules(self) -> Iterator[tuple[str, str]]:
        seen: set[IPv4Address | None] = set()
        for number, one in enumerate(self.local):
            if one.ip_address is not None and one.ip_address in seen:
                yield f"local.{number}.ip_address", "must not be that of another subscriber"
                return
            seen.add(one.ip_address)


@dataclass(frozen=True)
class History(Section):
    """How long the API keeps ended sessions, and in how much space. The oldest go first."""

    days: int = fields.whole(1, 3650, load_default=DEFAULT_LIMITS.days)
    mebibytes: int = fields.whole(16, 1_048_576, load_default=DEFAULT_LIMITS.mebibytes)


@dataclass(frozen=True)
class Configuration(Section):
    """The whole document, one attribute a section."""

    system: System = fields.section(System)
    interfaces: Interfaces = fields.section(Interfaces)
    radius: Radius = fields.section(Radius)
    cgnat: Cgnat = fields.section(Cgnat)
    qos: Qos = fields.section(Qos)
    demux: Demux = fields.section(Demux)
    api: Api = fields.section(Api)
    bgp: Bgp | None = fields.section(Bgp, load_default=None, allow_none=True)
    subscribers: Subscribers = fields.section(Subscribers, load_default=Subscribers((), ()))
    history: History = fields.section(History, load_default=History(90, 1024))

    def broken_rules(self) -> Iterator[tuple[str, str]]:
        trunks, uplinks, cgnat = set(self.interfaces.trunks), set(self.interfaces.uplinks), self.cgnat
        if "lo" in trunks:
            yield "interfaces.trunks", "must not hold the loopback"
        if (trunks | {"lo"}) & uplinks:
            yield "interfaces.uplinks", "must not hold trunks or the loopback"
        if set(self.demux.trunks) - trunks:
            yield "demux.trunks", "must be among interfaces.trunks"
        if cgnat.vrf_name in trunks | uplinks:
            yield "cgnat.vrf_name", NAME_OF_AN_INTERFACE
        if cgnat.enabled and cgnat.handoff_interface not in trunks | uplinks:
            yield "cgnat.handoff_interface", "must be among the interfaces"
        for number, profile in enumerate(self.demux.vlan_profiles):
            tags = [tag for tag in (profile.outer_vlan_range, profile.vlan_range) if tag is not None]
            names = [".".join([trunk, *(str(tag.last) for tag in tags)]) for trunk in self.demux.trunks]
            if too_long := [name for name in names if len(name) > fields.LONGEST_INTERFACE_NAME]:
                rule = f"must leave interface names short enough for Linux, {too_long[-1]} is not"
                yield f"demux.vlan_profiles.{number}.vlan_range", rule


#: The field of the whole document, from which the functions on documents know its shape.
ROOT = Nested(fields.schema_of(Configuration))
