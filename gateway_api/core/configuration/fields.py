"""The kinds of value that a configuration holds, and what its sections and items are made of.

A section is a dataclass. Each attribute is declared with its rules, by the functions here, and `schema_of`
derives the marshmallow schema: so each section is defined once.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
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
from marshmallow.fields import Field, List, Nested

from gateway_api.base.fields import Flag, Parsed, Schema, Text, Whole
from gateway_api.wire.core.network import OverheadProfile

# Linux: IFNAMSIZ is 16 with the closing NUL; not "." or "..". Of the characters, those that need no
# quotes in any service's file.
LONGEST_INTERFACE_NAME = 15
_INTERFACE_NAME = validate.Regexp(
    rf"(?!\.{{1,2}}\Z)[A-Za-z0-9._@][A-Za-z0-9._@+-]{{0,{LONGEST_INTERFACE_NAME - 1}}}\Z",
    error="must be an interface name: up to 15 letters, digits and . _ @ + -",
)
NOT_A_VRF = validate.Regexp(
    # To FRR, default is what isn't in a VRF, and all is every one of them; so they are to Linux in
    # net.ipv4.conf. Other systems keep mgmt for their own management.
    r"(?!(?i:default|all|mgmt|lo)\Z|(ppp|ipoe|ifb-?)[0-9]+\Z|ifb-)",
    error="must not be default, all, mgmt or lo, nor be named like the devices of sessions, as ppp0",
)
NOT_A_NEXT_HOP = validate.Regexp(
    # What follows a gateway in FRR's `ip route`: FRR reads any beginning of Null0 as that, in any case.
    r"(?!(?i:n|nu|nul|null|null0.*|blackhole|reject|[0-9]+)\Z)",
    error="must not be a number, Null0, blackhole or reject: FRR takes it for something else in a route",
)
_MOST_INTERFACES = 64
_STRICT = "strict"
#: The characters that all services' files can hold without an escape: see the templates.
_SECRET = (
    validate.Length(1, 128, error="must have 1 to 128 characters"),
    validate.Regexp(
        # To pppd, a secret that begins with @ is the name of a file.
        r"(?!@)[!$-&(-+\--\[\]-~]*\Z",
        error="must be printable ASCII characters without spaces, quotes, commas, # and \\, not @ first",
    ),
)
#: MAX_SECRET_LENGTH in pppd's RADIUS plugin, which silently drops the rest of a longer secret.
RADIUS_SECRET = validate.Length(max=48, error="must be at most 48 characters: pppd keeps no more")

#: RFC 6890 section 2.2.2: this network, loopback, link-local; and what is multicast or reserved.
_NOT_OF_SUBSCRIBERS = tuple(map(IPv4Network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3")))
_NETWORK_OF_SUBSCRIBERS = (
    "must be an IPv4 network of hosts, of /30 or larger without host bits, such as 100.64.0.0/10; not of "
    "loopback, link-local, multicast or reserved addresses"
)

# What an access line adds to each IP packet, as the `overhead` and `mpu` of tc(8): preamble 8, Ethernet
# header 14, checksum 4 and inter-frame gap 12 make 38; a VLAN tag is 4, PPPoE with PPP is 8 (RFC 2516). The
# least frame, with preamble and gap, takes 84 bytes of the line.
_ETHERNET, _VLAN, _PPPOE, _LEAST = 38, 4, 8, 84

OVERHEAD_PROFILES = {
    name: OverheadProfile(name, overhead, mpu, description)
    for name, overhead, mpu, description in (
        ("none", 0, 0, "IP packets as they are"),
        ("pppoe_ethernet", _ETHERNET + _VLAN + _PPPOE, _LEAST, "PPPoE over Ethernet with one VLAN tag"),
        ("pppoe_qinq", _ETHERNET + 2 * _VLAN + _PPPOE, _LEAST, "PPPoE over Ethernet with two VLAN tags"),
        ("ipoe_ethernet", _ETHERNET + _VLAN, _LEAST, "IP over Ethernet with one VLAN tag"),
        ("ipoe_qinq", _ETHERNET + 2 * _VLAN, _LEAST, "IP over Ethernet with two VLAN tags"),
    )
}


class Section:
    """A frozen dataclass of the configuration, parsed and checked."""

    #: The attribute that identifies an item of a list; None for a section.
    key: ClassVar[str | None] = None

    def broken_rules(self) -> Iterator[tuple[str, str]]:
        """For each broken rule that needs several values: its path, which no other has, and the rule. A
        candidate may break them until it is committed; a rule for one value is checked when the value is
        set."""
        return iter(())


class SectionSchema(Schema):
    made_of: ClassVar[type[Section]]

    @post_load
    def _make(self, data: dict[str, Any], **_: Any) -> Section:
        made = self.made_of(
            **{key: tuple(held) if isinstance(held, list) else held for key, held in data.items()}
        )
        if messages := {path: [rule] for path, rule in made.broken_rules()}:
            raise ValidationError(messages)
        return made


def schema_of(section: type[Section]) -> type[SectionSchema]:
    class Derived(SectionSchema):
        made_of = section

        class Meta(SectionSchema.Meta):
            # A section is a dataclass, which no type can express.
            include = {held.name: held.metadata["field"] for held in dataclasses.fields(section)}  # type: ignore[arg-type]

    return Derived


def key_of(field: Any) -> str | None:
    """The key of the items in a list; None for any other field."""
    return item_key(field.inner) if isinstance(field, List) else None


def item_key(field: Any) -> str | None:
    """The attribute that identifies an item; None for any other field."""
    schema = getattr(field, "schema", None)
    return schema.made_of.key if isinstance(schema, SectionSchema) else None


def strict_rules(field: Field[Any]) -> Sequence[Callable[[Any], Any]]:
    """Validators of new values alone.

    A rule that comes with a new version must be strict: values that an older version stored must load.
    """
    return field.metadata.get(_STRICT, ())  # type: ignore[no-any-return]


def broken_rules(field: Field[Any], value: Any) -> Iterator[str]:
    """The strict rules that a value breaks; none where the field cannot load it."""
    rules = strict_rules(field)
    if not rules or value is None:
        return
    try:
        loaded = field.deserialize(value)
    except ValidationError:
        return
    for rule in rules:
        try:
            rule(loaded)
        except ValidationError as error:
            yield from map(str, error.messages)


# Attributes of sections. Each is required unless it has a `load_default`.


def _held(kind: type[Field[Any]], *arguments: Any, strict: Any = (), **more: Any) -> Any:
    required = "load_default" not in more
    field = kind(*arguments, required=required, metadata={_STRICT: strict}, **more)
    return dataclasses.field(metadata={"field": field})


def section(made_of: type[Section], **more: Any) -> Any:
    return _held(Nested, schema_of(made_of), **more)


def items(made_of: type[Section], *, most: int, **more: Any) -> Any:
    """A list of objects, no two with the same key."""
    rules = (_at_most(most), _unique(lambda item: getattr(item, str(made_of.key))))
    return _held(List, Nested(schema_of(made_of)), validate=rules, **more)


def text(pattern: str, error: str, **more: Any) -> Any:
    """`pattern` matches the whole text."""
    return _held(Text, validate=validate.Regexp(rf"(?:{pattern})\Z", error=error), **more)


def choice(choices: tuple[str, ...], error: str = "must be one of {choices}") -> Any:
    return _held(Text, validate=validate.OneOf(choices, error=error))


def some_of(choices: tuple[str, ...], older: tuple[str, ...] = ()) -> Any:
    """A list of one choice or more, each once. An older version also took those that are `older`."""
    rules = (validate.Length(1, error="must not be empty"), _unique(lambda item: item))
    error = f"must be one of {', '.join(choices)}"
    item = Text(
        validate=validate.OneOf((*choices, *older), error=error),
        metadata={_STRICT: (validate.OneOf(choices, error=error),)},
    )
    return _held(List, item, validate=rules)


def flag() -> Any:
    return _held(Flag)


def whole(first: int, last: int, *rules: Any, kind: str = "", **more: Any) -> Any:
    error = f"must be {kind}{first} to {last}"
    return _held(Whole, validate=(validate.Range(first, last, error=error), *rules), **more)


def port(default: int) -> Any:
    return whole(1, 65535, kind="a port, ", load_default=default)


def as_number() -> Any:
    return whole(1, 4294967295, kind="an AS number, ")


def parsed(parse: Callable[[str], Any], **more: Any) -> Any:
    return _held(Parsed, parse, **more)


def networks() -> Any:
    return _held(List, Parsed(_any_network), load_default=())


def host_addresses(*, most: int) -> Any:
    rules = (_at_most(most), _unique(lambda item: item))
    return _held(List, Parsed(host_address), validate=rules, load_default=())


def interface_name(**more: Any) -> Any:
    return _held(Text, validate=_INTERFACE_NAME, **more)


def interface_names() -> Any:
    rules = (_at_most(_MOST_INTERFACES), _unique(lambda item: item))
    return _held(List, Text(validate=_INTERFACE_NAME), validate=rules)


def secret(**more: Any) -> Any:
    """A secret in the services' files."""
    return _held(Text, validate=_SECRET, **more)


# Parsers: each raises ValueError with the rule.


def host_address(text: str) -> IPv4Address:
    try:
        made = IPv4Address(text)
    except AddressValueError as error:
        raise ValueError("must be an IPv4 address") from error
    if made.is_unspecified or made.is_multicast or made.is_reserved:
        raise ValueError("must be an address that one host can have")
    return made


def listen_address(text: str) -> IPv4Address | IPv6Address:
    with suppress(ValueError):
        made = ip_address(text)
        # A zone is the name of an interface, which may not exist yet.
        if not made.is_multicast and "%" not in text:
            return made
    raise ValueError("must be an IPv4 or IPv6 address, such as 127.0.0.1 or ::1")


def of_subscribers(network: IPv4Network) -> None:
    if any(network.overlaps(other) for other in _NOT_OF_SUBSCRIBERS):
        raise ValidationError(_NETWORK_OF_SUBSCRIBERS)


def network_of_hosts(text: str) -> IPv4Network:
    with suppress(ValueError):
        # The pattern excludes netmasks, which IPv4Network accepts, too.
        if re.fullmatch(r"[0-9.]+/[0-9]{1,2}", text, re.ASCII) and int(text.partition("/")[2]) <= 30:
            made = IPv4Network(text)
            if not (made.is_multicast or made.is_reserved or made.network_address.is_unspecified):
                return made
    raise ValueError(_NETWORK_OF_SUBSCRIBERS)


def _any_network(text: str) -> IPv4Network | IPv6Network:
    with suppress(ValueError):
        if "/" in text:
            return ip_network(text)
    raise ValueError("must be a network without host bits, such as 192.0.2.0/24 or 2001:db8::/32")


def _at_most(number: int) -> Callable[[list[Any]], Any]:
    return validate.Length(max=number, error=f"must hold at most {number}")


def _unique(key: Callable[[Any], Any]) -> Callable[[list[Any]], None]:
    def check(items: list[Any]) -> None:
        if len({key(item) for item in items}) < len(items):
            raise ValidationError("must not name the same thing twice")

    return check
