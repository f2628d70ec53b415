"""Which configurations are valid: a document of plain JSON in, the typed sections out.

What holds for one value alone is refused as soon as somebody sets it; `validates_schema` marks the
rules that need several, which a candidate may break until it is committed. What only new values must keep
is in the fields' metadata, and in `strict`.
"""

from ipaddress import IPv4Address
from itertools import combinations
from typing import Any

from marshmallow import ValidationError, validate, validates_schema
from marshmallow.fields import List, Nested

from gateway_api.base.fields import Flag, Parsed, Text, Whole
from gateway_api.base.rates import parse_rate
from gateway_api.core.configuration import sections
from gateway_api.core.configuration.fields import (
    LONGEST_INTERFACE_NAME,
    OVERHEAD_PROFILES,
    Item,
    Section,
    address,
    address_to_listen_at,
    any_network,
    as_number,
    interface_names,
    items,
    network_of_subscribers,
    next_hop_interface,
    port,
    radius_secret,
    secret,
    strict,
    vlan_ids,
    vrf_name,
)

#: Linux's own routing tables: default, main, local. Steering into one would take the gateway's own routes.
_TABLES_OF_LINUX = (253, 254, 255)
_MOST_OUTER_VLANS = 65_536
NAME_OF_AN_INTERFACE = "must not be the name of an interface"


class System(Section):
    made_of = sections.System
    hostname = Text(
        required=True,
        validate=validate.Regexp(
            r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
            r"(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*\Z",
            error="must be a host name (RFC 1123)",
        ),
    )


class Interfaces(Section):
    made_of = sections.Interfaces
    trunks = interface_names()
    uplinks = interface_names()


class Radius(Section):
    made_of = sections.Radius
    server = Parsed(address, load_default=None, allow_none=True)
    authentication_port = port(1812)
    accounting_port = port(1813)
    secret = radius_secret()

    @validates_schema
    def _server_has_a_secret(self, data: dict[str, Any], **_: Any) -> None:
        if data["server"] is not None and data["secret"] is None:
            raise ValidationError("is required with a server", "secret")


class Cgnat(Section):
    made_of = sections.Cgnat
    enabled = Flag(required=True)
    vrf_name = vrf_name()
    vrf_table = Whole(
        required=True,
        validate=[
            validate.Range(1, 4294967295, error="must be 1 to 4294967295"),
            validate.NoneOf(_TABLES_OF_LINUX, error="must not be one of Linux's own: 253, 254, 255"),
        ],
    )
    handoff_interface = next_hop_interface()
    handoff_gateway = Parsed(address, required=True)
    source_range = network_of_subscribers()


class Qos(Section):
    made_of = sections.Qos
    default_down = Parsed(parse_rate, required=True)
    default_up = Parsed(parse_rate, required=True)


class VlanProfile(Item):
    made_of = sections.VlanProfile
    key = "name"
    name = Text(
        required=True,
        validate=validate.Regexp(
            r"[A-Za-z_][A-Za-z0-9_-]{0,31}\Z", error="must be a name of letters, digits, - and _"
        ),
    )
    type = Text(required=True, validate=validate.OneOf(("pppoe", "dhcp"), error="must be pppoe or dhcp"))
    vlan_range = Parsed(vlan_ids, required=True)
    outer_vlan_range = Parsed(vlan_ids, required=True, allow_none=True)
    overhead_profile = Text(
        required=True,
        validate=validate.OneOf(sorted(OVERHEAD_PROFILES), error="must be one of {choices}"),
    )


class RateLimits(Section):
    made_of = sections.RateLimits
    vlans_per_second = Whole(required=True, validate=validate.Range(1, 100_000, error="must be 1 to 100000"))
    burst = Whole(required=True, validate=validate.Range(1, 100_000, error="must be 1 to 100000"))
    max_vlans = Whole(required=True, validate=validate.Range(1, 4094 * 4094, error="must be 1 to 16760836"))


class Demux(Section):
    made_of = sections.Demux
    trunks = interface_names()
    vlan_profiles = items(VlanProfile, most=256, required=True)
    rate_limits = Nested(RateLimits, required=True)
    idle_timeout = Whole(required=True, validate=validate.Range(1, 7 * 86400, error="must be 1 to 604800"))

    @validates_schema
    def _outer_vlans_can_be_watched(self, data: dict[str, Any], **_: Any) -> None:
        # accel-ppp is told of each one.
        outer = sum(len(one.outer_vlan_range or ()) for one in data["vlan_profiles"])
        if outer * len(data["trunks"]) > _MOST_OUTER_VLANS:
            rule = f"must have at most {_MOST_OUTER_VLANS} outer VLANs on all trunks together"
            raise ValidationError(rule, "vlan_profiles")

    @validates_schema
    def _ranges_do_not_overlap(self, data: dict[str, Any], **_: Any) -> None:
        # Or it would depend on their order which of two profiles a subscriber gets.
        for (_n, one), (number, other) in combinations(enumerate(data["vlan_profiles"]), 2):
            if one.overlaps(other):
                rule = f"must not overlap with the VLANs of {one.name}"
                raise ValidationError({f"vlan_profiles.{number}.vlan_range": [rule]})


class User(Item):
    made_of = sections.User
    key = "username"
    username = Text(
        required=True,
        validate=validate.Regexp(
            r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}\Z",
            error="must be 1 to 64 letters, digits and . _ @ -",
        ),
    )
    password_hash = Text(
        required=True,
        validate=validate.Regexp(
            r"\$2[aby]\$(0[4-9]|1[0-4])\$[./A-Za-z0-9]{53}\Z",
            error="must be a bcrypt hash of cost 4 to 14; gateway-api hash-password makes one",
        ),
    )
    role = Text(
        required=True,
        validate=validate.OneOf(("admin", "operator"), error="must be admin or operator"),
    )


class Webhooks(Section):
    made_of = sections.Webhooks
    denied_networks = List(Parsed(any_network), load_default=())


class Api(Section):
    made_of = sections.Api
    enabled = Flag(required=True)
    token_lifetime = Whole(load_default=3600, validate=validate.Range(60, 86400, error="must be 60 to 86400"))
    users = items(User, most=1000, load_default=())
    webhooks = Nested(Webhooks, load_default=sections.Webhooks(()))
    auth_token = Text(
        load_default=None,
        allow_none=True,
        validate=validate.Regexp(
            r"[!-~]{16,256}\Z", error="must be 16 to 256 printable ASCII characters without spaces"
        ),
    )
    listen_address = Parsed(address_to_listen_at, load_default=IPv4Address("127.0.0.1"))
    listen_port = port(8080)

    @validates_schema
    def _someone_can_administer(self, data: dict[str, Any], **_: Any) -> None:
        if data["enabled"] and not any(user.role == "admin" for user in data["users"]):
            raise ValidationError("must hold an admin while the API is enabled", "users")


class Neighbor(Item):
    made_of = sections.Neighbor
    key = "address"
    address = Parsed(address, required=True)
    remote_as = as_number()
    description = Text(
        load_default="",
        validate=validate.Regexp(
            r"([!-~]([ -~]{0,78}[!-~])?)?\Z", error="must be up to 80 printable ASCII characters"
        ),
        metadata=strict(
            validate.Regexp(r"(?!.*\| )", error="must not hold a | before a space: FRR takes it for a pipe"),
            validate.Regexp(r"(?!.*  )", error="must not hold two spaces in a row: FRR keeps one"),
        ),
    )


class Bgp(Section):
    made_of = sections.Bgp
    as_number = as_number()
    router_id = Parsed(address, required=True)
    neighbors = items(Neighbor, most=1000, load_default=())


class LocalSubscriber(Item):
    made_of = sections.LocalSubscriber
    key = "username"
    username = Text(
        required=True,
        validate=validate.Regexp(
            r"[A-Za-z0-9_][A-Za-z0-9_.@/-]{0,63}\Z",
            error="must be 1 to 64 letters, digits and . _ @ / -",
        ),
    )
    password = secret(required=True)
    ip_address = Parsed(address, load_default=None, allow_none=True)


class Subscribers(Section):
    made_of = sections.Subscribers
    local = items(LocalSubscriber, most=10_000, load_default=())

    @validates_schema
    def _addresses_are_given_once(self, data: dict[str, Any], **_: Any) -> None:
        seen: set[Any] = set()
        for number, one in enumerate(data["local"]):
            if one.ip_address is not None and one.ip_address in seen:
                raise ValidationError(
                    {f"local.{number}.ip_address": ["must not be that of another subscriber"]}
                )
            seen.add(one.ip_address)


class Configuration(Section):
    """The whole document, one field a section."""

    made_of = sections.Configuration
    system = Nested(System, required=True)
    interfaces = Nested(Interfaces, required=True)
    radius = Nested(Radius, required=True)
    cgnat = Nested(Cgnat, required=True)
    qos = Nested(Qos, required=True)
    demux = Nested(Demux, required=True)
    api = Nested(Api, required=True)
    bgp = Nested(Bgp, load_default=None, allow_none=True)
    subscribers = Nested(Subscribers, load_default=sections.Subscribers(()))

    @validates_schema
    def _names_refer_to_interfaces(self, data: dict[str, Any], **_: Any) -> None:
        interfaces: sections.Interfaces = data["interfaces"]
        trunks, uplinks = set(interfaces.trunks), set(interfaces.uplinks)
        cgnat: sections.Cgnat = data["cgnat"]
        broken: dict[str, Any] = {
            "interfaces.trunks": "lo" in trunks and "must not hold the loopback",
            "interfaces.uplinks": (trunks | {"lo"}) & uplinks and "must not hold trunks or the loopback",
            "demux.trunks": set(data["demux"].trunks) - trunks and "must be among interfaces.trunks",
            "cgnat.vrf_name": cgnat.vrf_name in trunks | uplinks and NAME_OF_AN_INTERFACE,
            "cgnat.handoff_interface": cgnat.enabled
            and cgnat.handoff_interface not in trunks | uplinks
            and "must be among the interfaces",
        }
        for number, profile in enumerate(data["demux"].vlan_profiles):
            for trunk in data["demux"].trunks:
                tags = (profile.outer_vlan_range, profile.vlan_range)
                name = ".".join([trunk, *(str(tag.last) for tag in tags if tag is not None)])
                if len(name) > LONGEST_INTERFACE_NAME:
                    path = f"demux.vlan_profiles.{number}.vlan_range"
                    broken[path] = f"must leave interface names short enough for Linux, {name} is not"
        messages = {path: [rule] for path, rule in broken.items() if rule}
        if messages:
            raise ValidationError(messages)
