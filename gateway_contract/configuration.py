"""The definition of the configuration. For each leaf, the definition contains the type, the range, the
default, a description with the unit, whether the leaf is secret, and the effect of a commit on sessions. For
each list, the definition contains the key of the items.

The core validates configurations by this definition and gets typed values. The OpenAPI document, the
reference, `gatewayctl` and the live page also use this definition. An attribute of a section has this form:

    name: Annotated[type of the value, kind in JSON, about(...), Effect(...)] = default

An attribute without a default is required. A new leaf needs a default, because stored configurations lack the
leaf. Rules of services, and rules that involve several values, are in `gateway_core/configuration/rules.py`.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from ipaddress import (
    AddressValueError,
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from gateway_contract.base.logs import MASK, is_secret, mask_text
from gateway_contract.base.receivers import check_audit_receiver, check_secret, check_url
from gateway_contract.base.texts import Segments, format_path, parse_path, parse_rate
from gateway_contract.base.vlan_names import MAX_INTERFACE_NAME_LENGTH, list_name_prefixes
from gateway_contract.contract import about
from gateway_contract.core.configuration import Role
from gateway_contract.core.network import OVERHEAD_PROFILES
from gateway_contract.core.sessions import EventName

_MAX_INTERFACES = 64
_REQUIRED = object()
#: The keyword of JSON Schema for a masked value.
_MASKED = "x-secret"


class Section:
    """An object of the configuration: a frozen dataclass of typed values. Clients see the docstring."""

    #: The attribute that identifies an item of a list; None for a section.
    key: ClassVar[str | None] = None


class Effect(str):
    """A sentence for operators: how a commit that changes the value affects sessions."""


# Kinds of values in JSON. `load` returns the typed value of JSON that is not null, and raises ValueError with
# the broken rules as its arguments.


class Leaf:
    """A value without members: a string, a number or a boolean."""

    #: The type in JSON.
    type: Any = str

    def load(self, value: Any) -> Any:
        """Convert a JSON value to the typed value. Raises ValueError with the broken rules if the JSON value
        is not valid."""
        if type(value) is not str:
            raise ValueError("must be a string")
        return value


@dataclass(frozen=True)
class Text(Leaf):
    """A string. `rules` are pairs of a pattern that the whole string must match, and the error text for a
    string that does not match."""

    rules: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, pattern: str, error: str) -> "Text":
        return cls(((pattern, error),))

    def load(self, value: Any) -> str:
        text: str = super().load(value)
        if broken := [error for pattern, error in self.rules if not re.fullmatch(pattern, text)]:
            raise ValueError(*broken)
        return text


@dataclass(frozen=True)
class ParsedText(Leaf):
    """A string that the function `parse` converts to a typed value."""

    parse: Callable[[str], Any]

    def load(self, value: Any) -> Any:
        text = super().load(value)
        try:
            return self.parse(text)
        except ValueError as error:
            raise ValueError(str(error)) from error


class Rate(Leaf):
    """A rate as a string with a unit; the typed value is in bits per second. Stored configurations may
    contain rates below the minimum for new values."""

    def load(self, value: Any) -> int:
        return parse_rate(super().load(value), min_bps=1)


@dataclass(frozen=True)
class Choice(Leaf):
    """A string that must be a value of an enumeration or of a Literal."""

    type: Any
    error: str = ""

    @property
    def choices(self) -> tuple[str, ...]:
        return get_args(self.type) or tuple(self.type)

    @property
    def rule(self) -> str:
        return self.error or f"must be one of {', '.join(self.choices)}"

    def load(self, value: Any) -> str:
        text: str = super().load(value)
        if text not in self.choices:
            raise ValueError(self.rule)
        return text


@dataclass(frozen=True)
class WholeNumber(Leaf):
    """An integer from `first` to `last`. `noun` begins the range in the error text. The integers in
    `reserved` are not allowed, because they are reserved for the purpose `reserved_for`."""

    first: int
    last: int
    noun: str = ""
    reserved: tuple[int, ...] = ()
    reserved_for: str = ""
    type = int

    def load(self, value: Any) -> int:
        if type(value) is not int:
            raise ValueError("must be an integer")
        if not self.first <= value <= self.last:
            raise ValueError(f"must be {self.noun}{self.first} to {self.last}")
        if value in self.reserved:
            raise ValueError(f"must not be one of {self.reserved_for}: {', '.join(map(str, self.reserved))}")
        return value


class Seconds(WholeNumber):
    """A number of seconds."""


class Flag(Leaf):
    """A boolean."""

    type = bool

    def load(self, value: Any) -> bool:
        if type(value) is not bool:
            raise ValueError("must be true or false")
        return value


@dataclass(frozen=True)
class Object:
    """A JSON object with the attributes of a section."""

    section: type[Section]

    @property
    def fields(self) -> "Mapping[str, Field]":
        """The fields of the object by name, in the order of the section."""
        return _read_fields(self.section)  # type: ignore[arg-type]  # mypy takes the hash of an instance for it


@dataclass(frozen=True)
class ListOf:
    """A list of values of `kind`. If `kind` is None, the items are the sections in the type annotation. In a
    `unique` list, no two items are equal or have the same key."""

    kind: Leaf | Object | None = None
    max_items: int | None = None
    min_items: int = 0
    unique: bool = True

    @cached_property
    def item(self) -> "Field":
        return Field(self.kind or Leaf())

    @property
    def key(self) -> str | None:
        """Name of the attribute that identifies an item; None for a list of leaves."""
        return self.kind.section.key if isinstance(self.kind, Object) else None

    @property
    def length_rule(self) -> str:
        return f"must hold at most {self.max_items}"

    def is_too_long(self, items: Sequence[Any]) -> bool:
        return self.max_items is not None and len(items) > self.max_items

    def find_broken_rules(self, items: Sequence[Any]) -> Iterator[str]:
        """Yield the text of each rule that the items of a list break. `items` are already converted to Python
        types."""
        if len(items) < self.min_items:
            yield "must not be empty"
        if self.is_too_long(items):
            yield self.length_rule
        known = {item if self.key is None else getattr(item, self.key) for item in items}
        if self.unique and len(known) < len(items):
            yield "must not name the same thing twice"


@dataclass(frozen=True, eq=False)
class Field:
    """The definition of a value of the configuration. `sample` is an example of a section as a candidate may
    contain the section, with missing members."""

    kind: Leaf | Object | ListOf
    nullable: bool = False
    default: Any = _REQUIRED
    documented: Meta | None = None
    sample: Any = None
    effect: str | None = None

    @property
    def required(self) -> bool:
        return self.default is _REQUIRED

    @cached_property
    def members(self) -> "Mapping[str, Field]":
        """The fields of the members of an object, by name, in the order of the section. Empty for a value
        that is not an object."""
        return self.kind.fields if isinstance(self.kind, Object) else {}

    @cached_property
    def item(self) -> "Field":
        """The field of each item of a list. UNKNOWN for a value that is not a list."""
        return self.kind.item if isinstance(self.kind, ListOf) else UNKNOWN

    @cached_property
    def key(self) -> str | None:
        """The name of the attribute that identifies an item of this list. None for a value that is not a
        list, and for a list of leaves."""
        return self.kind.key if isinstance(self.kind, ListOf) else None

    @property
    def own_key(self) -> str | None:
        """The name of the attribute that identifies this list item. None for a value that is not an item of a
        keyed list."""
        return self.kind.section.key if isinstance(self.kind, Object) else None

    def below(self, name: str) -> "Field":
        """Return the field of the member `name`. For a list, return the field that all items share. Return
        UNKNOWN if there is no such field."""
        return self.item if isinstance(self.kind, ListOf) else self.members.get(name, UNKNOWN)

    @property
    def meaning(self) -> str:
        """The description of the value, with the unit if there is one."""
        return (self.documented and self.documented.description) or self.section_text

    @property
    def section_text(self) -> str:
        """The docstring of a section on one line. Empty for a value that is not a section."""
        text = self.kind.section.__doc__ if isinstance(self.kind, Object) else None
        return " ".join((text or "").split())

    @property
    def default_json(self) -> str:
        """The default value as JSON. Empty for a required value."""
        return "" if self.required else msgspec.json.encode(self.default, enc_hook=str).decode()

    @cached_property
    def secret(self) -> bool:
        """True if the value is declared secret. Clients then see a mask instead of the value."""
        return bool(((self.documented and self.documented.extra_json_schema) or {}).get(_MASKED))


#: The field of a value that the definition does not have.
UNKNOWN = Field(Leaf())


def walk(field: Field, path: str = "") -> Iterator[tuple[str, Field]]:
    """Yield the field and all fields below this field, each with its path. In a path, a segment in capital
    letters stands for the key of a list item."""
    yield path, field
    inner = path if field.key is None else f"{path}.{field.key.upper()}"
    for name, below in (field.members or field.item.members).items():
        yield from walk(below, f"{inner}.{name}".lstrip("."))


@cache
def _read_fields(section: type[Section]) -> Mapping[str, Field]:
    hints = get_type_hints(section, include_extras=True)
    defaults = {field.name: field.default for field in dataclasses.fields(section)}  # type: ignore[arg-type]
    return {
        name: _parse_field(hints[name], _REQUIRED if default is dataclasses.MISSING else default)
        for name, default in defaults.items()
    }


def _parse_field(hint: Any, default: Any) -> Field:
    more: Sequence[Any] = ()
    if get_origin(hint) is Annotated:
        hint, *more = get_args(hint)
    documented, sample, effect = None, None, None
    kind: Any = None
    for each in more:
        if isinstance(each, Effect):
            effect = str(each)
        elif not isinstance(each, Meta):
            kind = each
        elif each.description is None:
            (sample,) = each.examples or (None,)
        else:
            documented = each
    nullable = type(None) in get_args(hint)
    if isinstance(kind, ListOf) and kind.kind is None:
        kind = dataclasses.replace(kind, kind=Object(get_args(hint)[0]))
    elif kind is None:
        (section,) = {*get_args(hint), hint} & {*Section.__subclasses__()}
        kind = Object(section)
    return Field(kind, nullable, default, documented, sample, effect)


def _about_secret(description: str) -> Meta:
    """Return the documentation of a secret field. Clients see a mask instead of the value."""
    return about(description, MASK, **{_MASKED: True})


def _about_sample(**values: Any) -> Meta:
    """Return the documentation of a section that has only an example: `values` as a candidate may contain
    them."""
    return Meta(examples=[values])


# Values


@dataclass(frozen=True)
class VlanRange:
    """A range of VLAN ids, from `first` to `last` inclusive, within 1 to 4094."""

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


def _parse_host_address(text: str) -> IPv4Address:
    try:
        address = IPv4Address(text)
    except AddressValueError as error:
        raise ValueError("must be an IPv4 address") from error
    if address.is_unspecified or address.is_multicast or address.is_reserved:
        raise ValueError("must be an address that one host can have")
    return address


def _parse_neighbor_address(text: str) -> IPv4Address | IPv6Address:
    with suppress(ValueError):
        if ":" not in text:
            return _parse_host_address(text)
        address = IPv6Address(text)
        # A link-local address needs an interface. In Python 3.13, an IPv6 address that maps an IPv4 address
        # is reserved if the IPv4 address is.
        is_shared = (
            address.is_unspecified or address.is_multicast or address.is_reserved or address.is_link_local
        )
        if not (is_shared or address.ipv4_mapped):
            return address
    raise ValueError("must be an IPv4 or IPv6 address that one host can have, not a link-local one of IPv6")


def _parse_listen_address(text: str) -> IPv4Address | IPv6Address:
    with suppress(ValueError):
        address = ip_address(text)
        # The zone of an IPv6 address names an interface, which may not exist yet.
        if not address.is_multicast and "%" not in text:
            return address
    raise ValueError("must be an IPv4 or IPv6 address, such as 127.0.0.1 or ::1")


IPV4_NETWORK_RULE = (
    "must be an IPv4 network of hosts, of /30 or larger without host bits, such as 100.64.0.0/10; not of "
    "loopback, link-local, multicast or reserved addresses"
)


def _parse_ipv4_network(text: str) -> IPv4Network:
    with suppress(ValueError):
        # The pattern excludes netmasks, which IPv4Network also accepts.
        if re.fullmatch(r"[0-9.]+/[0-9]{1,2}", text, re.ASCII) and int(text.partition("/")[2]) <= 30:
            network = IPv4Network(text)
            if not (network.is_multicast or network.is_reserved or network.network_address.is_unspecified):
                return network
    raise ValueError(IPV4_NETWORK_RULE)


#: Global unicast (RFC 4291 section 2.4) and unique local addresses (RFC 4193).
_UNICAST_IPV6_NETWORKS = tuple(map(IPv6Network, ("2000::/3", "fc00::/7")))


def _parse_ipv6_network(text: str) -> IPv6Network:
    with suppress(ValueError):
        # The pattern excludes zones, which IPv6Network also accepts.
        if re.fullmatch(r"[0-9A-Fa-f:.]+/[0-9]{2}", text, re.ASCII):
            network = IPv6Network(text)
            if 16 <= network.prefixlen <= 63 and any(
                network.subnet_of(unicast) for unicast in _UNICAST_IPV6_NETWORKS
            ):
                return network
    raise ValueError(
        "must be an IPv6 network of /16 to /63 without host bits, of global or unique local addresses, such "
        "as 2001:db8:100::/40"
    )


def _parse_ipv6_host(text: str) -> IPv6Address:
    with suppress(ValueError):
        address = IPv6Address(text)
        if "%" not in text and any(address in network for network in _UNICAST_IPV6_NETWORKS):
            return address
    raise ValueError("must be a global or unique local IPv6 address, such as 2001:db8::53")


def _parse_network(text: str) -> IPv4Network | IPv6Network:
    with suppress(ValueError):
        if "/" in text:
            return ip_network(text)
    raise ValueError("must be a network without host bits, such as 192.0.2.0/24 or 2001:db8::/32")


def _parse_subscriber_network(text: str) -> IPv4Network | IPv6Network:
    network = _parse_network(text)
    if not network.prefixlen:
        raise ValueError("must not be a default route")
    return network


def _parse_receiver_url(text: str) -> str:
    check_url(text)
    if '"' in text:
        raise ValueError("must not hold a quotation mark, which ends a segment of a path")
    return text


#: Linux does not allow "." and "..". The pattern has the characters that need no quotes in the file of any
#: service.
_INTERFACE = Text.of(
    rf"(?!\.{{1,2}}\Z)[A-Za-z0-9._@][A-Za-z0-9._@+-]{{0,{MAX_INTERFACE_NAME_LENGTH - 1}}}",
    "must be an interface name: up to 15 letters, digits and . _ @ + -",
)
_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOSTNAME = Text.of(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*", "must be a host name (RFC 1123)")
#: The characters that need no escape in the file of any service: see the templates. pppd takes a secret that
#: begins with @ for the name of a file.
_SECRET_CHARACTERS = (
    r"(?!@)[!$-&(-+\--\[\]-~]*",
    "must be printable ASCII characters without spaces, quotes, commas, # and \\, not @ first",
)
_SECRET_TEXT = Text((("(?s:.{1,128})", "must have 1 to 128 characters"), _SECRET_CHARACTERS))
#: The length is TCP_MD5SIG_MAXKEYLEN of Linux.
_NEIGHBOR_PASSWORD = Text((("(?s:.{1,80})", "must have 1 to 80 characters"), _SECRET_CHARACTERS))
_NAME = Text.of("[A-Za-z_][A-Za-z0-9_-]{0,31}", "must be a name of letters, digits, - and _")
_HOST = ParsedText(_parse_host_address)
_IPV6_HOST = ParsedText(_parse_ipv6_host)
_IPV6_RANGE = ParsedText(_parse_ipv6_network)
_RATE = Rate()
#: The unit that the live page shows.
_BIT_UNIT = {"x-unit": "bit/s"}
_VLANS = ParsedText(VlanRange.parse)
_PORT = WholeNumber(1, 65535, "a port, ")
_AS_NUMBER = WholeNumber(1, 4294967295, "an AS number, ")
_LOOPBACK = IPv4Address("127.0.0.1")
_DEFAULT_ROUTES = (IPv4Network("0.0.0.0/0"), IPv6Network("::/0"))
_OVERHEAD_PROFILES = sorted(OVERHEAD_PROFILES)
_AuthenticationPort = Annotated[int, _PORT, about("UDP port for authentication (RFC 2865).", 1812)]
_AccountingPort = Annotated[int, _PORT, about("UDP port for accounting (RFC 2866).", 1813)]


# Sections


@dataclass(frozen=True)
class System(Section):
    """The gateway itself."""

    hostname: Annotated[str, _HOSTNAME, about("Name of the gateway (RFC 1123).", "bng1")]


@dataclass(frozen=True)
class Interfaces(Section):
    """Interfaces of the gateway: `trunks` carry subscribers, `uplinks` lead to the rest of the network."""

    trunks: Annotated[
        tuple[str, ...],
        ListOf(_INTERFACE, _MAX_INTERFACES),
        about("Interfaces that carry subscribers.", ["trunk0", "trunk1"]),
    ]
    uplinks: Annotated[
        tuple[str, ...],
        ListOf(_INTERFACE, _MAX_INTERFACES),
        about("Interfaces that lead to the rest of the network.", ["uplink0", "cgnat0"]),
    ]


@dataclass(frozen=True)
class RadiusServer(Section):
    """A further RADIUS server. Its secret is masked."""

    key = "address"
    address: Annotated[IPv4Address, _HOST, about("IPv4 address of the server.", "192.0.2.11")]
    secret: Annotated[
        str, _SECRET_TEXT, _about_secret("Secret shared with the server, at most 48 characters.")
    ]
    authentication_port: _AuthenticationPort = 1812
    accounting_port: _AccountingPort = 1813


@dataclass(frozen=True)
class Radius(Section):
    """RADIUS servers that authorize subscribers. Responses mask the secrets of these servers."""

    server: Annotated[
        IPv4Address | None, _HOST, about("IPv4 address of the server; null without RADIUS.", "192.0.2.10")
    ] = None
    authentication_port: _AuthenticationPort = 1812
    accounting_port: _AccountingPort = 1813
    secret: Annotated[
        str | None,
        _SECRET_TEXT,
        _about_secret("Secret shared with the server, at most 48 characters; required with a server."),
    ] = None
    # pppd accepts eight servers in all.
    servers: Annotated[
        tuple[RadiusServer, ...],
        ListOf(max_items=7),
        about("Further servers, which get a request when the servers before them do not reply.", []),
    ] = ()
    timeout: Annotated[
        int, Seconds(1, 30), about("Seconds that a request waits for its reply before it is sent again.", 3)
    ] = 3
    max_try: Annotated[int, WholeNumber(1, 10), about("How often a request is sent to one server.", 3)] = 3
    dead_time: Annotated[
        int,
        Seconds(0, 3600),
        about(
            "Seconds that a server which did not reply gets no request while there are other servers "
            "(accel-ppp); 0 for none.",
            30,
        ),
    ] = 30
    nas_ip_address: Annotated[
        IPv4Address | None,
        _HOST,
        about("NAS-IP-Address in the requests of accel-ppp (RFC 2865); null for none.", "10.255.0.1"),
    ] = None
    bind: Annotated[
        IPv4Address | None,
        _HOST,
        about("Source address of the requests; null for that of the route to the server.", "10.255.0.1"),
    ] = None


@dataclass(frozen=True)
class Cgnat(Section):
    """Steering of sessions to the CGNAT appliance."""

    enabled: Annotated[
        bool,
        Flag(),
        about("Whether sessions are steered to the appliance.", True),
        Effect("sessions of the range are steered, or no longer"),
    ]
    vrf_name: Annotated[str, _INTERFACE, about("Name of the VRF in which steered sessions are.", "cgnat")]
    # Linux's tables: default, main, local. Steering into one would take the gateway's own routes.
    vrf_table: Annotated[
        int,
        WholeNumber(1, 4294967295, reserved=(253, 254, 255), reserved_for="Linux's own"),
        about("Routing table of the VRF; not 253 to 255.", 100),
    ]
    handoff_interface: Annotated[str, _INTERFACE, about("Interface that leads to the appliance.", "cgnat0")]
    handoff_gateway: Annotated[
        IPv4Address,
        _HOST,
        about("IPv4 address of the appliance, the next hop of steered traffic.", "10.255.1.2"),
    ]
    source_range: Annotated[
        IPv4Network,
        ParsedText(_parse_ipv4_network),
        about("Network in CIDR: sessions with an address in it are steered.", "100.64.0.0/10"),
        Effect(
            "sessions outside the new network end, and those of dnsmasq and pppoe-server in the share of the "
            "other type; all others keep their addresses. Sessions of dnsmasq in the former network end only "
            "when a commit with a deadline is confirmed"
        ),
    ]

    @property
    def subscriber_gateway(self) -> IPv4Address:
        """The gateway's address on each access interface: the second address of `source_range`. The addresses
        after the second address are for subscribers."""
        return self.source_range[1]

    @property
    def source_ranges(self) -> tuple[IPv4Network, ...]:
        """The networks whose sessions are steered: `source_range`, and until a commit is confirmed, the
        `source_range` of the former configuration."""
        return (self.source_range,)


@dataclass(frozen=True)
class Qos(Section):
    """Default rates of sessions, as text with a unit."""

    default_down: Annotated[
        int,
        _RATE,
        about(
            "Downstream rate of sessions without one of their own: a number and a unit of bits per second.",
            "100mbit",
            **_BIT_UNIT,
        ),
    ]
    default_up: Annotated[
        int,
        _RATE,
        about(
            "Upstream rate of sessions without one of their own: a number and a unit of bits per second.",
            "20mbit",
            **_BIT_UNIT,
        ),
    ]


@dataclass(frozen=True)
class VlanProfile(Section):
    """Settings for a range of VLANs."""

    key = "name"
    name: Annotated[
        str,
        _NAME,
        about("Name of the profile.", "ipoe"),
    ]
    type: Annotated[
        str,
        Choice(Literal["pppoe", "dhcp"], "must be pppoe or dhcp"),
        about("Type of its sessions.", "dhcp", type="string"),
    ]
    vlan_range: Annotated[VlanRange, _VLANS, about("VLAN ids, 1 to 4094, the inner ones of two.", "100-999")]
    outer_vlan_range: Annotated[
        VlanRange | None, _VLANS, about("Outer VLAN ids, null without QinQ.", "100-999")
    ]
    overhead_profile: Annotated[
        str,
        Text.of("|".join(_OVERHEAD_PROFILES), f"must be one of {', '.join(_OVERHEAD_PROFILES)}"),
        about("Name of the overhead profile: GET /qos/profiles lists them.", "ipoe_qinq"),
    ]

    @property
    def last_tags(self) -> tuple[int, ...]:
        """The highest VLAN ids of the profile, the outer id first."""
        ranges = (self.outer_vlan_range, self.vlan_range)
        return tuple(tags.last for tags in ranges if tags is not None)

    def overlaps(self, other: "VlanProfile") -> bool:
        """Return True if a VLAN can belong to both profiles. A VLAN with one tag is never the same as a VLAN
        with two tags."""
        one, two = self.outer_vlan_range, other.outer_vlan_range
        if one is None or two is None:
            return one is two and self.vlan_range.overlaps(other.vlan_range)
        return one.overlaps(two) and self.vlan_range.overlaps(other.vlan_range)


@dataclass(frozen=True)
class RateLimits(Section):
    """Limits for new VLANs."""

    vlans_per_second: Annotated[int, WholeNumber(1, 100_000), about("New VLANs a second.", 200)]
    burst: Annotated[int, WholeNumber(1, 100_000), about("New VLANs at once.", 1000)]
    max_vlans: Annotated[int, WholeNumber(1, 4094 * 4094), about("VLANs in all.", 16384)]
    outer_vlan_share: Annotated[
        int,
        WholeNumber(1, 100),
        about(
            "Percent of each of these limits that one outer VLAN can have; for VLANs with one tag, one "
            "trunk. Where there is only one, it has all.",
            75,
        ),
    ] = 75


@dataclass(frozen=True)
class Demux(Section):
    """Automatic creation of VLANs for subscribers."""

    trunks: Annotated[
        tuple[str, ...],
        ListOf(_INTERFACE, _MAX_INTERFACES),
        about("Interfaces on which VLANs are created.", ["trunk0", "trunk1"]),
        Effect("sessions on a removed trunk end"),
    ]
    vlan_profiles: Annotated[
        tuple[VlanProfile, ...],
        ListOf(max_items=256),
        about("Profiles of VLANs."),
        Effect("sessions on VLANs that no profile of their type has any longer end"),
    ]
    rate_limits: RateLimits
    idle_timeout: Annotated[
        int, Seconds(1, 7 * 86400), about("Seconds that a VLAN without sessions stays.", 300)
    ]
    max_leases_per_vlan: Annotated[
        int, WholeNumber(1, 65_535), about("DHCP leases that dnsmasq gives to one VLAN.", 16)
    ] = 16
    mac_moves: Annotated[
        bool,
        Flag(),
        about(
            "Whether a MAC address with a DHCP session on one VLAN can sign on on another, which ends the "
            "first session. If not, dnsmasq does not get its requests there.",
            False,
        ),
    ] = False

    def list_name_prefixes(self, trunk: str, profiles: Iterable[VlanProfile] | None = None) -> Iterator[str]:
        """Return the name prefixes of a trunk's VLAN devices (the parts before the tags) for the given
        profiles. None means all profiles."""
        chosen = self.vlan_profiles if profiles is None else profiles
        return list_name_prefixes(trunk, [profile.last_tags for profile in chosen])

    def profiles_of(self, session_type: str) -> Iterator[VlanProfile]:
        return (profile for profile in self.vlan_profiles if profile.type == session_type)


@dataclass(frozen=True)
class ConfiguredUser(Section):
    """A user of the API."""

    key = "username"
    username: Annotated[
        str,
        Text.of("[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}", "must be 1 to 64 letters, digits and . _ @ -"),
        about("Login: 1 to 64 letters, digits and . _ @ -", "alice"),
    ]
    password_hash: Annotated[
        str,
        Text.of(
            r"\$2[aby]\$(0[4-9]|1[0-4])\$[./A-Za-z0-9]{53}",
            "must be a bcrypt hash of cost 4 to 14; gateway-api hash-password makes one",
        ),
        _about_secret("bcrypt hash of cost 4 to 14; gateway-api hash-password makes one. It is masked."),
    ]
    role: Annotated[
        str, Choice(Role, "must be admin or operator"), about("What the user may do.", "operator")
    ]


@dataclass(frozen=True)
class ConfiguredReceiver(Section):
    """A webhook that the configuration declares."""

    key = "url"
    url: Annotated[
        str,
        ParsedText(_parse_receiver_url),
        about("HTTP or HTTPS URL of the deliveries.", "https://noc.example/hook"),
    ]
    events: Annotated[
        tuple[str, ...],
        ListOf(Choice(EventName), min_items=1),
        about("Names of the events to deliver.", ["session.up"]),
    ]
    secret: Annotated[
        str | None,
        ParsedText(check_secret),
        _about_secret("Secret that signs the deliveries; null for no signature."),
    ] = None


@dataclass(frozen=True)
class WebhooksConfiguration(Section):
    """Declared webhooks, and networks to which no webhook is delivered."""

    denied_networks: Annotated[
        tuple[IPv4Network | IPv6Network, ...],
        ListOf(ParsedText(_parse_network), unique=False),
        about("Networks in CIDR to which nothing is delivered.", ["192.0.2.0/24"]),
    ] = ()
    receivers: Annotated[
        tuple[ConfiguredReceiver, ...],
        ListOf(max_items=100),
        about("Webhooks that are there after each start and commit.", []),
    ] = ()


@dataclass(frozen=True)
class AuditConfiguration(Section):
    """Where the records of the audit log go."""

    forward: Annotated[
        str | None,
        ParsedText(check_audit_receiver),
        about(
            "Receiver of each new record: journal, or tls://HOST:PORT for syslog over TLS (RFC 5425); null "
            "for none. The default port is 6514.",
            "tls://logs.example:6514",
        ),
    ] = None


@dataclass(frozen=True)
class Api(Section):
    """Settings of the API. The last three fields apply to the alternative profile."""

    enabled: Annotated[bool, Flag(), about("Whether the API serves requests.", True)]
    token_lifetime: Annotated[int, Seconds(60, 86400), about("Lifetime of tokens, in seconds.", 3600)] = 3600
    users: Annotated[
        tuple[ConfiguredUser, ...],
        ListOf(max_items=1000),
        about("Users of the API; one at least is an admin.", []),
    ] = ()
    webhooks: WebhooksConfiguration = WebhooksConfiguration()
    audit: AuditConfiguration = AuditConfiguration()
    auth_token: Annotated[
        str | None,
        Text.of("[!-~]{16,256}", "must be 16 to 256 printable ASCII characters without spaces"),
        _about_secret(
            "Token of the alternative profile, 16 to 256 printable ASCII characters; null turns it off."
        ),
    ] = None
    listen_address: Annotated[
        IPv4Address | IPv6Address,
        ParsedText(_parse_listen_address),
        about("IPv4 or IPv6 address of the alternative profile.", "127.0.0.1"),
    ] = _LOOPBACK
    listen_port: Annotated[int, _PORT, about("TCP port of the alternative profile.", 8080)] = 8080


@dataclass(frozen=True)
class BgpNeighbor(Section):
    """A BGP neighbour."""

    key = "address"
    address: Annotated[
        IPv4Address | IPv6Address,
        ParsedText(_parse_neighbor_address),
        about("IPv4 or IPv6 address of the neighbour.", "10.255.0.2"),
    ]
    remote_as: Annotated[int, _AS_NUMBER, about("AS number of the neighbour.", 64513)]
    description: Annotated[
        str,
        Text.of("([!-~]([ -~]{0,78}[!-~])?)?", "must be up to 80 printable ASCII characters"),
        about("Up to 80 printable ASCII characters.", "core1"),
    ] = ""
    families: Annotated[
        tuple[str, ...],
        ListOf(Choice(Literal["ipv4", "ipv6"], "must be ipv4 or ipv6")),
        about(
            "Address families; by default, both with an IPv4 neighbour, and ipv6 with an IPv6 neighbour.",
            ["ipv4"],
        ),
    ] = ()
    password: Annotated[
        str | None,
        _NEIGHBOR_PASSWORD,
        _about_secret("Password of the session (TCP MD5, RFC 2385), at most 80 characters. It is masked."),
    ] = None
    bfd: Annotated[
        bool, Flag(), about("Whether BFD (RFC 5880) watches the neighbour; FRR needs bfdd.", True)
    ] = False
    maximum_prefixes: Annotated[
        int | None,
        WholeNumber(1, 4294967295),
        about("More accepted prefixes than this, in one family, end the session; null for no limit.", 1000),
    ] = None

    @property
    def used_families(self) -> tuple[str, ...]:
        return self.families or (("ipv4", "ipv6") if self.address.version == 4 else ("ipv6",))


@dataclass(frozen=True)
class Bgp(Section):
    """The gateway's own AS and its neighbours. Without BGP, the section is null or missing."""

    as_number: Annotated[int, _AS_NUMBER, about("AS number of the gateway.", 64512)]
    router_id: Annotated[IPv4Address, _HOST, about("Router id, written as an IPv4 address.", "10.255.0.1")]
    neighbors: Annotated[tuple[BgpNeighbor, ...], ListOf(max_items=1000), about("The neighbours.", [])] = ()
    announce: Annotated[
        str,
        Choice(Literal["aggregates", "hosts"], "must be aggregates or hosts"),
        about(
            "What neighbours are told of the networks of subscribers: the networks, always, or the routes of "
            "sessions in them.",
            "aggregates",
            type="string",
        ),
    ] = "aggregates"
    networks: Annotated[
        tuple[IPv4Network | IPv6Network, ...],
        ListOf(ParsedText(_parse_subscriber_network), 100),
        about("Networks of subscribers in CIDR, besides `cgnat.source_range`.", ["2001:db8:100::/40"]),
    ] = ()
    accept: Annotated[
        tuple[IPv4Network | IPv6Network, ...],
        ListOf(ParsedText(_parse_network), 1000),
        about(
            "What is accepted from neighbours: a default route, or a network in CIDR with all in it. "
            "Nothing in networks of subscribers is.",
            ["0.0.0.0/0", "::/0"],
        ),
    ] = _DEFAULT_ROUTES


@dataclass(frozen=True)
class LocalSubscriber(Section):
    """A subscriber that is authorized without a RADIUS server."""

    key = "username"
    username: Annotated[
        str,
        Text.of("[A-Za-z0-9_][A-Za-z0-9_.@/-]{0,63}", "must be 1 to 64 letters, digits and . _ @ / -"),
        about("Login: 1 to 64 letters, digits and . _ @ / -", "alice@example.net"),
    ]
    password: Annotated[str, _SECRET_TEXT, _about_secret("Password, at most 128 characters. It is masked.")]
    ip_address: Annotated[
        IPv4Address | None,
        _HOST,
        about("IPv4 address of the session; null for one of the pool.", "100.64.3.7"),
    ] = None


@dataclass(frozen=True)
class AddressPool(Section):
    """Further addresses, for subscribers whose RADIUS reply names the pool (Framed-Pool, RFC 2869)."""

    key = "name"
    name: Annotated[
        str,
        _NAME,
        about("Name of the pool.", "business"),
    ]
    network: Annotated[
        IPv4Network,
        ParsedText(_parse_ipv4_network),
        about("Network in CIDR: sessions with an address in it are not steered.", "203.0.113.0/24"),
    ]


@dataclass(frozen=True)
class Subscribers(Section):
    """Subscribers that are authorized without a RADIUS server, and settings for all subscribers."""

    local: Annotated[
        tuple[LocalSubscriber, ...],
        ListOf(max_items=10_000),
        about("Subscribers that are authorized without a RADIUS server.", []),
    ] = ()
    # PPP knows two (RFC 1877).
    dns_servers: Annotated[
        tuple[IPv4Address, ...],
        ListOf(_HOST, 2),
        about("IPv4 addresses of DNS servers, the first one first.", ["192.0.2.53"]),
    ] = ()
    ipv6_dns_servers: Annotated[
        tuple[IPv6Address, ...],
        ListOf(_IPV6_HOST, 2),
        about("IPv6 addresses of DNS servers, the first one first.", ["2001:db8::53"]),
    ] = ()
    ipv6_range: Annotated[
        IPv6Network | None,
        _IPV6_RANGE,
        about("IPv6 network, of which each session gets a /64; null for none.", "2001:db8:100::/40"),
    ] = None
    delegated_range: Annotated[
        IPv6Network | None,
        _IPV6_RANGE,
        about(
            "IPv6 network, of which each session may have a prefix delegated (RFC 8415); null for none.",
            "2001:db8:8000::/36",
        ),
    ] = None
    delegated_length: Annotated[int, WholeNumber(32, 64), about("Length of each delegated prefix.", 56)] = 56
    pools: Annotated[
        tuple[AddressPool, ...],
        ListOf(max_items=64),
        about("Addresses beside cgnat.source_range, for PPPoE subscribers of accel-ppp.", []),
        Effect("sessions with an address of a removed one end; all others keep theirs"),
    ] = ()
    max_starting: Annotated[
        int,
        WholeNumber(1, 100_000),
        about("Most sign-ons under way at once, the others have to ask again (accel-ppp).", 1000),
    ] = 1000
    pado_delay: Annotated[
        int,
        WholeNumber(0, 10_000),
        about(
            "Milliseconds until a PPPoE client gets an offer: of several gateways, it takes the first "
            "(accel-ppp).",
            0,
        ),
    ] = 0

    @property
    def pool_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """The networks of subscribers outside `cgnat.source_range`."""
        return (*(pool.network for pool in self.pools), *self.ipv6_networks)

    @property
    def ipv6_networks(self) -> tuple[IPv6Network, ...]:
        """The IPv6 networks from which sessions receive prefixes."""
        ranges = (self.ipv6_range, self.delegated_range)
        return tuple(network for network in ranges if network is not None)


@dataclass(frozen=True)
class History(Section):
    """Limits of the age and the size of the history. The API removes the oldest sessions first."""

    days: Annotated[int, WholeNumber(1, 3650), about("Days that an ended session is kept.", 90)] = 90
    mebibytes: Annotated[
        int, WholeNumber(16, 1_048_576), about("Most space of the history, in MiB.", 1024)
    ] = 1024


@dataclass(frozen=True)
class Configuration(Section):
    """The running configuration, with one object for each section. Optional sections may be missing."""

    system: Annotated[System, _about_sample(hostname="bng1")]
    interfaces: Annotated[
        Interfaces, _about_sample(trunks=["trunk0", "trunk1"], uplinks=["uplink0", "cgnat0"])
    ]
    radius: Annotated[Radius, _about_sample(server=None, secret=MASK)]
    cgnat: Annotated[Cgnat, _about_sample(enabled=True, vrf_name="cgnat", vrf_table=100)]
    qos: Annotated[
        Qos,
        _about_sample(default_down="100mbit", default_up="20mbit"),
        Effect("sessions that start from then on have these rates; sessions that are up keep theirs"),
    ]
    demux: Annotated[Demux, _about_sample(trunks=["trunk0"], idle_timeout=300)]
    api: Annotated[Api, _about_sample(enabled=True, token_lifetime=3600)]
    bgp: Annotated[
        Bgp | None,
        about("The gateway's own AS and its neighbours; null without BGP.", None),
        _about_sample(as_number=64512, router_id="10.255.0.1"),
    ] = None
    subscribers: Annotated[Subscribers, _about_sample(local=[], dns_servers=["192.0.2.53"])] = Subscribers()
    history: Annotated[History, _about_sample(days=90)] = History()


#: The whole configuration.
ROOT = Field(Object(Configuration))

#: The fields that identify the items of lists. An item has no other field with one of these names.
KEYS = frozenset(field.key for _, field in walk(ROOT) if field.key is not None)


def field_at(path: Segments) -> Field:
    """Return the field of the value at a path. Return UNKNOWN if the definition has no such value."""
    field = ROOT
    for segment in path:
        field = field.below(segment.text)
    return field


def mask_secrets(value: Any, field: Field = ROOT) -> Any:
    """Return a copy of a JSON value in which `MASK` replaces each secret. A value is a secret if its
    definition says so, or if its name is a word for a secret. Null values stay null."""
    if field.secret and value is not None:
        return MASK
    if isinstance(value, dict):
        return {
            name: MASK if is_secret(name) and held is not None else mask_secrets(held, field.below(name))
            for name, held in value.items()
        }
    if isinstance(value, list):
        return [mask_secrets(item, field.item) for item in value]
    return value


def mask_path(path: str) -> str:
    """Return a path of the configuration without the segments after the name of a secret: a client may have
    written the secret itself as the next segment."""
    try:
        parts = parse_path(path)
    except ValueError:
        return MASK
    secrets = (n for n in range(1, len(parts)) if field_at(parts[:n]).secret or is_secret(parts[n - 1].text))
    secret = next(secrets, len(parts))
    return mask_text(path if secret == len(parts) else f"{format_path(parts[:secret])}.{MASK}")


def quotes_hint(path: Segments) -> str:
    """Return a hint for the error text about a path that does not exist: the shell may have removed the
    quotes of a key, as in `api.users.j.doe` or `subscribers.local.7`. Return an empty text if the path does
    not lead into a list."""
    field, above, keys = ROOT, "", path
    for number, segment in enumerate(path):
        if isinstance(field.kind, ListOf) and not above:
            above, keys = mask_path(format_path(path[:number])), path[number:]
        field = field.below(segment.text)
    if not above or not (field is UNKNOWN or any(segment.index is not None for segment in keys)):
        return ""
    return f"; a key with dots or digits needs quotes, and a shell removes them: '{above}.\"KEY\"'"
