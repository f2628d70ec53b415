"""Which configurations are valid: a document of plain JSON in, the typed sections out."""

import re
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from typing import Any

from marshmallow import ValidationError, post_load, validate, validates_schema
from marshmallow.fields import List, Nested

from gateway_api.core.configuration import sections
from gateway_api.core.overhead import OVERHEAD_PROFILES
from gateway_api.rates import parse_rate
from gateway_api.validation import Flag, Parsed, Schema, Text, Whole

# Linux: IFNAMSIZ is 16 with the closing NUL; no slash, no colon, no white space; not "." or "..".
LONGEST_INTERFACE_NAME = 15
_INTERFACE_NAME = validate.Regexp(
    rf"(?!\.{{1,2}}\Z)[!-.0-9;-~]{{1,{LONGEST_INTERFACE_NAME}}}\Z",
    error="must be an interface name: up to 15 characters, no slash, colon or white space",
)
_PORT = validate.Range(1, 65535, error="must be a port, 1 to 65535")
_AS_NUMBER = validate.Range(1, 4294967295, error="must be an AS number, 1 to 4294967295")


def _address(text: str) -> IPv4Address:
    try:
        return IPv4Address(text)
    except AddressValueError as error:
        raise ValueError("must be an IPv4 address") from error


def _network(text: str) -> IPv4Network:
    try:
        # Not whatever IPv4Network takes: it knows netmasks, too.
        if re.fullmatch(r"[0-9.]+/[0-9]{1,2}", text, re.ASCII) and int(text.partition("/")[2]) <= 30:
            return IPv4Network(text)
    except ValueError:
        pass
    raise ValueError("must be an IPv4 network of /30 or larger without host bits, such as 100.64.0.0/10")


def _vlan_ids(text: str) -> sections.VlanRange:
    match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", text, re.ASCII)
    if match:
        first, last = int(match[1]), int(match[2] or match[1])
        if 1 <= first <= last <= 4094:
            return sections.VlanRange(first, last)
    raise ValueError("must be VLAN ids from 1 to 4094, such as 100-499")


def _interface_name() -> Text:
    return Text(required=True, validate=_INTERFACE_NAME)


def _interface_names() -> List[str]:
    name = Text(validate=_INTERFACE_NAME)
    return List(name, required=True, validate=_unique(lambda item: item))


def _unique(key: Any) -> Any:
    def check(items: list[Any]) -> None:
        if len({key(item) for item in items}) < len(items):
            raise ValidationError("must not name the same thing twice")

    return check


class _Section(Schema):
    """A schema whose fields are those of one class in `sections`."""

    made_of: type

    @post_load
    def _make(self, data: dict[str, Any], **_: Any) -> Any:
        return self.made_of(
            **{key: tuple(held) if isinstance(held, list) else held for key, held in data.items()}
        )


class System(_Section):
    made_of = sections.System
    hostname = Text(
        required=True,
        validate=validate.Regexp(
            r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
            r"(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*\Z",
            error="must be a host name (RFC 1123)",
        ),
    )


class Interfaces(_Section):
    made_of = sections.Interfaces
    trunks = _interface_names()
    uplinks = _interface_names()


class Radius(_Section):
    made_of = sections.Radius
    server = Parsed(_address, load_default=None, allow_none=True)
    authentication_port = Whole(load_default=1812, validate=_PORT)
    accounting_port = Whole(load_default=1813, validate=_PORT)
    secret = Text(load_default=None, allow_none=True, validate=validate.Length(min=1))


class Cgnat(_Section):
    made_of = sections.Cgnat
    enabled = Flag(required=True)
    vrf_name = _interface_name()
    vrf_table = Whole(required=True, validate=validate.Range(1, 4294967295, error="must be 1 to 4294967295"))
    handoff_interface = _interface_name()
    handoff_gateway = Parsed(_address, required=True)
    source_range = Parsed(_network, required=True)


class Qos(_Section):
    made_of = sections.Qos
    default_down = Parsed(parse_rate, required=True)
    default_up = Parsed(parse_rate, required=True)


class VlanProfile(_Section):
    made_of = sections.VlanProfile
    name = Text(
        required=True,
        validate=validate.Regexp(
            r"[A-Za-z_][A-Za-z0-9_-]{0,31}\Z", error="must be a name of letters, digits, - and _"
        ),
    )
    type = Text(required=True, validate=validate.OneOf(("pppoe", "dhcp"), error="must be pppoe or dhcp"))
    vlan_range = Parsed(_vlan_ids, required=True)
    outer_vlan_range = Parsed(_vlan_ids, required=True, allow_none=True)
    overhead_profile = Text(
        required=True,
        validate=validate.OneOf(sorted(OVERHEAD_PROFILES), error="must be one of {choices}"),
    )


class RateLimits(_Section):
    made_of = sections.RateLimits
    vlans_per_second = Whole(required=True, validate=validate.Range(1, 100_000))
    burst = Whole(required=True, validate=validate.Range(1, 100_000))
    max_vlans = Whole(required=True, validate=validate.Range(1, 4094 * 4094))


class Demux(_Section):
    made_of = sections.Demux
    trunks = _interface_names()
    vlan_profiles = List(Nested(VlanProfile), required=True, validate=_unique(lambda profile: profile.name))
    rate_limits = Nested(RateLimits, required=True)
    idle_timeout = Whole(required=True, validate=validate.Range(1, 7 * 86400))


class User(_Section):
    made_of = sections.User
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


class Api(_Section):
    made_of = sections.Api
    enabled = Flag(required=True)
    token_lifetime = Whole(load_default=3600, validate=validate.Range(60, 86400))
    users = List(Nested(User), load_default=(), validate=_unique(lambda user: user.username))

    @validates_schema
    def _someone_can_administer(self, data: dict[str, Any], **_: Any) -> None:
        if data["enabled"] and not any(user.role == "admin" for user in data["users"]):
            raise ValidationError("must hold an admin while the API is enabled", "users")


class Neighbor(_Section):
    made_of = sections.Neighbor
    address = Parsed(_address, required=True)
    remote_as = Whole(required=True, validate=_AS_NUMBER)
    description = Text(load_default="", validate=validate.Length(max=80))


class Bgp(_Section):
    made_of = sections.Bgp
    as_number = Whole(required=True, validate=_AS_NUMBER)
    router_id = Parsed(_address, required=True)
    neighbors = List(Nested(Neighbor), load_default=(), validate=_unique(lambda neighbor: neighbor.address))


class Configuration(_Section):
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

    @validates_schema
    def _names_refer_to_interfaces(self, data: dict[str, Any], **_: Any) -> None:
        interfaces: sections.Interfaces = data["interfaces"]
        trunks, uplinks = set(interfaces.trunks), set(interfaces.uplinks)
        cgnat: sections.Cgnat = data["cgnat"]
        broken: dict[str, Any] = {
            "interfaces.trunks": "lo" in trunks and "must not hold the loopback",
            "interfaces.uplinks": (trunks | {"lo"}) & uplinks and "must not hold trunks or the loopback",
            "demux.trunks": set(data["demux"].trunks) - trunks and "must be among interfaces.trunks",
            "cgnat.vrf_name": cgnat.vrf_name in trunks | uplinks | {"lo"}
            and "must not be the name of an interface",
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
