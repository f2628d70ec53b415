"""A document checked: its typed values, by the definition of the configuration, and the rules of the core.

A strict rule is for new values alone: a rule that comes with a new version must be strict, as values that an
older version stored must load. A rule between values is checked at the commit, and a candidate may break it
until then.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import singledispatch
from ipaddress import IPv4Address, IPv4Network
from itertools import combinations
from typing import Any, NamedTuple

from gateway_contract.base.errors import Invalid, Problem
from gateway_contract.base.fields import MOST_PROBLEMS, shown
from gateway_contract.base.texts import MIN_BPS, explain_minimum, format_rate
from gateway_contract.base.vlan_names import needs_short_name, short_name
from gateway_contract.configuration import (
    NETWORK_OF_SUBSCRIBERS,
    ROOT,
    AddressPool,
    Api,
    BgpNeighbor,
    Cgnat,
    Configuration,
    Demux,
    Field,
    ListOf,
    Object,
    Radius,
    RadiusServer,
    Rate,
    Section,
    Subscribers,
)

NAME_OF_AN_INTERFACE = "must not be the name of an interface"
_MOST_OUTER_VLANS = 65_536


def load(document: dict[str, Any]) -> Configuration:
    """Return the typed values of a document. Raises Invalid, with the path of each problem."""
    made: Configuration = _loaded(ROOT, document, "")
    return made


def load_section(name: str, value: Any) -> Any:
    """Return the typed values of one section of a document. Raises Invalid."""
    return _loaded(ROOT.members[name], value, name)


def _loaded(field: Field, value: Any, path: str) -> Any:
    problems: list[Problem] = []
    made = _load(field, value, path, problems)
    if problems:
        raise Invalid(*problems[:MOST_PROBLEMS])
    return made


def _load(field: Field, value: Any, path: str, problems: list[Problem]) -> Any:
    """Return the typed value, or any after a problem."""
    made: Any = None
    before = len(problems)
    if value is None:
        if not field.nullable:
            problems.append(Problem(path, "invalid", "must not be null"))
        return None
    match field.kind:
        case Object() as kind:
            if not isinstance(value, dict):
                problems.append(Problem(path, "invalid", "must be an object"))
                return None
            held = _load_members(kind, value, path, problems)
            if len(problems) > before:
                return None
            made = kind.section(**held)
            broken = [(_below(path, where), rule) for where, rule in broken_rules(made)]
        case ListOf() as kind:
            if not isinstance(value, list):
                problems.append(Problem(path, "invalid", "Not a valid list."))
                return None
            made = tuple(_load(kind.item, each, f"{path}.{n}", problems) for n, each in enumerate(value))
            broken = (
                [(path, rule) for rule in kind.find_broken_rules(made)] if len(problems) == before else []
            )
        case kind:
            try:
                return kind.load(value)
            except ValueError as error:
                broken = [(path, rule) for rule in error.args]
    problems += [Problem(where, "invalid", rule) for where, rule in broken]
    return made


def _load_members(kind: Object, value: dict[str, Any], path: str, problems: list[Problem]) -> dict[str, Any]:
    made = {}
    for name, held in value.items():
        below = _below(path, shown(name))
        if name in kind.fields:
            made[name] = _load(kind.fields[name], held, below, problems)
        else:
            problems.append(Problem(below, "unknown", "is not a known field"))
    missing = (name for name, field in kind.fields.items() if field.required and name not in value)
    problems += [Problem(_below(path, name), "missing", "is required") for name in missing]
    return made


def _below(path: str, name: str) -> str:
    return f"{path}.{name}".lstrip(".")


# Strict rules


class _Strict(NamedTuple):
    """A rule, which `keeps` tells of a typed value, and `text`, the error of a value that breaks it."""

    error: str
    keeps: Callable[[Any], object]
    text: Callable[[Any], str] | None = None

    def error_of(self, loaded: Any) -> str:
        return self.error if self.text is None else self.text(loaded)


def _pattern(pattern: str, error: str) -> _Strict:
    return _Strict(error, re.compile(pattern).match)


#: RFC 6890 section 2.2.2: this network, loopback, link-local; and what is multicast or reserved.
_NOT_OF_SUBSCRIBERS = tuple(map(IPv4Network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3")))


def _is_of_subscribers(network: IPv4Network) -> bool:
    return not any(network.overlaps(other) for other in _NOT_OF_SUBSCRIBERS)


# MAX_SECRET_LENGTH in pppd's RADIUS plugin, which silently drops the rest of a longer secret.
_SECRET_OF_RADIUS = _Strict(
    "must be at most 48 characters: pppd keeps no more", lambda secret: len(secret) <= 48
)

_SLOWEST_RATE = _Strict(
    f"must be at least {format_rate(MIN_BPS)}", lambda bps: bps >= MIN_BPS, explain_minimum
)

_STRICT: Mapping[tuple[type[Section], str], tuple[_Strict, ...]] = {
    (Radius, "secret"): (_SECRET_OF_RADIUS,),
    (RadiusServer, "secret"): (_SECRET_OF_RADIUS,),
    # To FRR, default is what isn't in a VRF, and all is every one of them; so they are to Linux in
    # net.ipv4.conf. Other systems keep mgmt for their own management.
    (Cgnat, "vrf_name"): (
        _pattern(
            r"(?!(?i:default|all|mgmt|lo)\Z|(ppp|ipoe|ifb-?)[0-9]+\Z|ifb-)",
            "must not be default, all, mgmt or lo, nor be named like the devices of sessions, as ppp0",
        ),
    ),
    # What follows a gateway in FRR's `ip route`: FRR reads any beginning of Null0 as that, in any case.
    (Cgnat, "handoff_interface"): (
        _pattern(
            r"(?!(?i:n|nu|nul|null|null0.*|blackhole|reject|[0-9]+)\Z)",
            "must not be a number, Null0, blackhole or reject: FRR takes it for something else in a route",
        ),
    ),
    (Cgnat, "source_range"): (_Strict(NETWORK_OF_SUBSCRIBERS, _is_of_subscribers),),
    (AddressPool, "network"): (_Strict(NETWORK_OF_SUBSCRIBERS, _is_of_subscribers),),
    (BgpNeighbor, "description"): (
        _pattern(r"(?!.*\| )", "must not hold a | before a space: FRR takes it for a pipe"),
        _pattern(r"(?!.*  )", "must not hold two spaces in a row: FRR keeps one"),
    ),
}
_STRICT_OF_FIELDS = {Object(section).fields[name]: rules for (section, name), rules in _STRICT.items()}


def strict_rules(field: Field) -> tuple[_Strict, ...]:
    if isinstance(field.kind, Rate):
        return (_SLOWEST_RATE,)
    return _STRICT_OF_FIELDS.get(field, ())


#: Texts that people write for no value.
_NOTHING = frozenset(("", "null", "none", "~"))


def is_removable(field: Field) -> bool:
    """Return True for a leaf that may be absent."""
    return not field.required and not isinstance(field.kind, Object | ListOf)


def meant_as_nothing(field: Field, value: Any) -> str | None:
    """Return the strict rule that a text such as `null` breaks in a leaf that may be absent: as a secret,
    nobody would see it. None for other values."""
    if not isinstance(value, str) or value.strip().lower() not in _NOTHING or not is_removable(field):
        return None
    return f"must not be {f'the text {value.strip()}' if value.strip() else 'empty'}: delete removes it"


def broken_strict_rules(field: Field, value: Any) -> Iterator[str]:
    """The strict rules that a value in JSON breaks; none where it has no typed value."""
    rules, nothing = strict_rules(field), meant_as_nothing(field, value)
    if not (rules or nothing) or value is None or isinstance(field.kind, Object | ListOf):
        return
    try:
        loaded = field.kind.load(value)
    except ValueError:
        return
    if nothing and value != field.default:
        yield nothing
    yield from (rule.error_of(loaded) for rule in rules if not rule.keeps(loaded))


# Rules between values


@singledispatch
def broken_rules(section: Section) -> Iterator[tuple[str, str]]:
    """For each broken rule that needs several values of a section: its path, which no other has, and the
    rule."""
    return iter(())


@broken_rules.register
def _(radius: Radius) -> Iterator[tuple[str, str]]:
    if radius.server is not None and radius.secret is None:
        yield "secret", "is required with a server"
    if radius.servers and radius.server is None:
        yield "servers", "must be empty without a server"
    for number, further in enumerate(radius.servers):
        # Each address has one secret.
        if further.address == radius.server:
            yield f"servers.{number}.address", "must not be that of server"


@broken_rules.register
def _(demux: Demux) -> Iterator[tuple[str, str]]:
    # Each one with a subscriber is a device.
    outer = sum(len(profile.outer_vlan_range or ()) for profile in demux.vlan_profiles)
    if outer * len(demux.trunks) > _MOST_OUTER_VLANS:
        yield "vlan_profiles", f"must have at most {_MOST_OUTER_VLANS} outer VLANs on all trunks together"
    # Else their order would decide which of two profiles a subscriber gets.
    for (_, one), (number, other) in combinations(enumerate(demux.vlan_profiles), 2):
        if one.overlaps(other):
            yield f"vlan_profiles.{number}.vlan_range", f"must not overlap with the VLANs of {one.name}"
            return


@broken_rules.register
def _(api: Api) -> Iterator[tuple[str, str]]:
    if api.enabled and not any(user.role == "admin" for user in api.users):
        yield "users", "must hold an admin while the API is enabled"


@broken_rules.register
def _(neighbor: BgpNeighbor) -> Iterator[tuple[str, str]]:
    if neighbor.address.version == 6 and "ipv4" in neighbor.families:
        yield "families", "must be ipv6 alone for an IPv6 neighbour"


@broken_rules.register
def _(subscribers: Subscribers) -> Iterator[tuple[str, str]]:
    seen: set[IPv4Address | None] = set()
    for number, one in enumerate(subscribers.local):
        if one.ip_address is not None and one.ip_address in seen:
            yield f"local.{number}.ip_address", "must not be that of another subscriber"
            return
        seen.add(one.ip_address)
    delegated = subscribers.delegated_range
    if delegated is None:
        return
    if delegated.prefixlen >= subscribers.delegated_length:
        yield "delegated_length", "must be more than that of delegated_range"
    if subscribers.ipv6_range is not None and delegated.overlaps(subscribers.ipv6_range):
        yield "delegated_range", "must not overlap with ipv6_range"


@broken_rules.register
def _(configuration: Configuration) -> Iterator[tuple[str, str]]:
    interfaces, cgnat, demux = configuration.interfaces, configuration.cgnat, configuration.demux
    trunks, uplinks = set(interfaces.trunks), set(interfaces.uplinks)
    if "lo" in trunks:
        yield "interfaces.trunks", "must not hold the loopback"
    if (trunks | {"lo"}) & uplinks:
        yield "interfaces.uplinks", "must not hold trunks or the loopback"
    if set(demux.trunks) - trunks:
        yield "demux.trunks", "must be among interfaces.trunks"
    if cgnat.vrf_name in trunks | uplinks:
        yield "cgnat.vrf_name", NAME_OF_AN_INTERFACE
    if cgnat.enabled and cgnat.handoff_interface not in trunks | uplinks:
        yield "cgnat.handoff_interface", "must be among the interfaces"
    networks = [cgnat.source_range]
    for number, pool in enumerate(configuration.subscribers.pools):
        if any(pool.network.overlaps(network) for network in networks):
            yield (
                f"subscribers.pools.{number}.network",
                "must not overlap with cgnat.source_range or another pool",
            )
        networks.append(pool.network)
    others = [*interfaces.trunks, *interfaces.uplinks, cgnat.vrf_name]
    for number, profile in enumerate(demux.vlan_profiles):
        for trunk in demux.trunks:
            if not needs_short_name(trunk, profile.last_tags):
                continue
            short, rest = short_name(trunk), [other for other in others if other != trunk]
            if short in rest or short in map(short_name, rest):
                yield (
                    f"demux.vlan_profiles.{number}.vlan_range",
                    f"must leave interface names short enough for Linux: those on {trunk} would begin with "
                    f"{short}, as those of another interface",
                )
                break
