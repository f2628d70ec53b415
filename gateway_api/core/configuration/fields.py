"""The kinds of value that a configuration holds, and what its sections and items are made of."""

import re
from collections.abc import Callable
from ipaddress import (
    AddressValueError,
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Any, ClassVar

from marshmallow import ValidationError, post_load, validate
from marshmallow.fields import List, Nested

from gateway_api.base.fields import Parsed, Schema, Text, Whole
from gateway_api.core.configuration.sections import VlanRange
from gateway_api.wire.core.gateway import OverheadProfile

# Linux: IFNAMSIZ is 16 with the closing NUL; not "." or "..". Of the characters, those that need no
# quotes in any service's file.
LONGEST_INTERFACE_NAME = 15
_INTERFACE_NAME = validate.Regexp(
    rf"(?!\.{{1,2}}\Z)[A-Za-z0-9._@][A-Za-z0-9._@+-]{{0,{LONGEST_INTERFACE_NAME - 1}}}\Z",
    error="must be an interface name: up to 15 letters, digits and . _ @ + -",
)
_NOT_A_VRF = validate.Regexp(
    # To FRR, default is what isn't in a VRF, and all is every one of them; so they are to Linux in
    # net.ipv4.conf. Other systems keep mgmt for their own management.
    r"(?!(?i:default|all|mgmt|lo)\Z|(ppp|ipoe|ifb-?)[0-9]+\Z|ifb-)",
    error="must not be default, all, mgmt or lo, nor be named like the devices of sessions, as ppp0",
)
_NOT_A_NEXT_HOP = validate.Regexp(
    # What follows a gateway in FRR's `ip route`: it takes any beginning of Null0 for that, in any case.
    r"(?!(?i:n|nu|nul|null|null0.*|blackhole|reject|[0-9]+)\Z)",
    error="must not be a number, Null0, blackhole or reject: FRR takes it for something else in a route",
)
_MOST_INTERFACES = 64
_STRICT = "strict"
#: What all of the services' files can hold without an escape: see the templates.
_SECRET = validate.Regexp(
    # To pppd, a secret that begins with @ is the name of a file.
    r"(?!@)[!$-&(-+\--\[\]-~]{1,128}\Z",
    error="must be 1 to 128 printable ASCII characters without spaces, quotes, commas, # and \\, not @ first",
)


#: RFC 6890 section 2.2.2: this network, loopback, link-local; and what is multicast or reserved.
_NOT_OF_SUBSCRIBERS = tuple(map(IPv4Network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3")))
_NETWORK_OF_SUBSCRIBERS = (
    "must be an IPv4 network of hosts, of /30 or larger without host bits, such as 100.64.0.0/10; not of "
    "loopback, link-local, multicast or reserved addresses"
)


# What an access line adds to each IP packet, as the `overhead` and `mpu` of tc(8): preamble 8, Ethernet
# header 14, checksum 4 and inter-frame gap 12 make 38; a VLAN tag is 4, PPPoE with PPP is 8 (RFC 2516). The
# least frame, with preamble and gap, takes 84 bytes of the line.
_ETHERNET = 38
_VLAN = 4
_PPPOE = 8
_LEAST = 84

OVERHEAD_PROFILES = {
    profile.name: profile
    for profile in (
        OverheadProfile("none", 0, 0, "IP packets as they are"),
        OverheadProfile(
            "pppoe_ethernet",
            _ETHERNET + _VLAN + _PPPOE,
            _LEAST,
            "PPPoE over Ethernet with one VLAN tag",
        ),
        OverheadProfile(
            "pppoe_qinq",
            _ETHERNET + 2 * _VLAN + _PPPOE,
            _LEAST,
            "PPPoE over Ethernet with two VLAN tags",
        ),
        OverheadProfile("ipoe_ethernet", _ETHERNET + _VLAN, _LEAST, "IP over Ethernet with one VLAN tag"),
        OverheadProfile("ipoe_qinq", _ETHERNET + 2 * _VLAN, _LEAST, "IP over Ethernet with two VLAN tags"),
    )
}


class Section(Schema):
    """A schema whose fields are those of one class in `sections`."""

    made_of: type

    @post_load
    def _make(self, data: dict[str, Any], **_: Any) -> Any:
        return self.made_of(
            **{key: tuple(held) if isinstance(held, list) else held for key, held in data.items()}
        )


class Item(Section):
    """An object of a list in which each is known by its `key`, the name of a text field."""

    key: ClassVar[str]


def items(schema: type[Item], *, most: int, **more: Any) -> List[Any]:
    """A list of objects, no two with the same key."""
    rules = (_at_most(most), _unique(lambda item: getattr(item, schema.key)))
    return List(Nested(schema), validate=rules, **more)


def key_of(field: Any) -> str | None:
    """The name of the field by which the objects of a list are known; None for any other field."""
    if isinstance(field, List) and isinstance(field.inner, Nested) and isinstance(field.inner.schema, Item):
        return field.inner.schema.key
    return None


def strict(*rules: Callable[[Any], Any]) -> dict[str, Any]:
    """The metadata of a field with rules that only new values must keep. Each takes a loaded value and raises
    ValidationError.

    A rule that comes with a new version belongs here: what an older version stored must load.
    """
    return {_STRICT: rules}


def strict_rules(field: Any) -> tuple[Callable[[Any], Any], ...]:
    """Those of a field."""
    rules: tuple[Callable[[Any], Any], ...] = field.metadata.get(_STRICT, ())
    return rules


def vrf_name() -> Text:
    """That of a network device, as a VRF is one on Linux."""
    return Text(required=True, validate=_INTERFACE_NAME, metadata=strict(_NOT_A_VRF))


def next_hop_interface() -> Text:
    return Text(required=True, validate=_INTERFACE_NAME, metadata=strict(_NOT_A_NEXT_HOP))


def interface_names() -> List[str]:
    rules = (_at_most(_MOST_INTERFACES), _unique(lambda item: item))
    return List(Text(validate=_INTERFACE_NAME), required=True, validate=rules)


def port(default: int) -> Whole:
    return Whole(load_default=default, validate=validate.Range(1, 65535, error="must be a port, 1 to 65535"))


def as_number() -> Whole:
    error = "must be an AS number, 1 to 4294967295"
    return Whole(required=True, validate=validate.Range(1, 4294967295, error=error))


def secret(**more: Any) -> Text:
    """Something that services are told and nobody else."""
    return Text(validate=_SECRET, **more)


def radius_secret() -> Text:
    # MAX_SECRET_LENGTH in pppd's RADIUS plugin: the rest of a longer one would be lost without a word.
    rule = validate.Length(max=48, error="must be at most 48 characters: pppd keeps no more")
    return Text(validate=_SECRET, metadata=strict(rule), load_default=None, allow_none=True)


def address(text: str) -> IPv4Address:
    """Raises ValueError with the rule, as all of these."""
    try:
        made = IPv4Address(text)
    except AddressValueError as error:
        raise ValueError("must be an IPv4 address") from error
    if made.is_unspecified or made.is_multicast or made.is_reserved:
        raise ValueError("must be an address that one host can have")
    return made


def address_to_listen_at(text: str) -> IPv4Address | IPv6Address:
    try:
        made = ip_address(text)
        # A zone is the name of an interface, which may not be there yet.
        if not made.is_multicast and "%" not in text:
            return made
    except ValueError:
        pass
    raise ValueError("must be an IPv4 or IPv6 address, such as 127.0.0.1 or ::1")


def network_of_subscribers() -> Parsed:
    return Parsed(_network_of_hosts, required=True, metadata=strict(_of_subscribers))


def _of_subscribers(network: IPv4Network) -> None:
    if any(network.overlaps(other) for other in _NOT_OF_SUBSCRIBERS):
        raise ValidationError(_NETWORK_OF_SUBSCRIBERS)


def _network_of_hosts(text: str) -> IPv4Network:
    try:
        # Not whatever IPv4Network takes: it knows netmasks, too.
        if re.fullmatch(r"[0-9.]+/[0-9]{1,2}", text, re.ASCII) and int(text.partition("/")[2]) <= 30:
            made = IPv4Network(text)
            if not (made.is_multicast or made.is_reserved or made.network_address.is_unspecified):
                return made
    except ValueError:
        pass
    raise ValueError(_NETWORK_OF_SUBSCRIBERS)


def any_network(text: str) -> IPv4Network | IPv6Network:
    try:
        if "/" in text:
            return ip_network(text)
    except ValueError:
        pass
    raise ValueError("must be a network without host bits, such as 192.0.2.0/24 or 2001:db8::/32")


def vlan_ids(text: str) -> VlanRange:
    match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", text, re.ASCII)
    if match:
        first, last = int(match[1]), int(match[2] or match[1])
        if 1 <= first <= last <= 4094:
            return VlanRange(first, last)
    raise ValueError("must be VLAN ids from 1 to 4094, such as 100-499")


def _at_most(number: int) -> Callable[[list[Any]], Any]:
    return validate.Length(max=number, error=f"must hold at most {number}")


def _unique(key: Callable[[Any], Any]) -> Callable[[list[Any]], None]:
    def check(items: list[Any]) -> None:
        if len({key(item) for item in items}) < len(items):
            raise ValidationError("must not name the same thing twice")

    return check
