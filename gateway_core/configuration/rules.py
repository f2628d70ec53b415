"""Rules of the configuration: checks of a document, which return its typed values.

A strict rule applies only to new values. A rule that a new version adds must be strict, because values that
an older version stored must still load. A rule between several values is checked at the commit; the candidate
may break such a rule.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import singledispatch
from ipaddress import IPv4Address, IPv4Network
from itertools import combinations
from typing import Any, NamedTuple

from gateway_contract import configuration as definition
from gateway_contract.base.errors import Invalid, Problem
from gateway_contract.base.fields import MAX_PROBLEMS, shorten_name
from gateway_contract.base.logs import MASK
from gateway_contract.base.texts import MIN_BPS, explain_minimum, format_rate
from gateway_contract.base.vlan_names import needs_short_name, short_name
from gateway_contract.configuration import ROOT, Configuration, Field, ListOf, Object

INTERFACE_NAME_RULE = "must not be the name of an interface"
_MAX_OUTER_VLANS = 65_536

#: Stands for a value that does not exist; null is a value.
ABSENT = object()


# Checks


def load(document: dict[str, Any]) -> Configuration:
    """Check a document, and return its typed values. Raises Invalid with the path of each problem if the
    document is not valid."""
    configuration, _ = load_with_violations(document)
    return configuration


def load_section(name: str, value: Any) -> Any:
    """Check one section of a document, and return its typed values. Raises Invalid with the path of each
    problem if the section is not valid."""
    check = _ValueCheck()
    typed_value = check.load(ROOT.members[name], value, name)
    check.raise_problems()
    return typed_value


def load_with_violations(document: dict[str, Any]) -> tuple[Configuration, list[Problem]]:
    """Check a document. Return its typed values, and the strict rules that the document breaks. Raises
    Invalid if the document has any other problem."""
    check = _ValueCheck()
    configuration = check.load(ROOT, document, "")
    check.raise_problems()
    return configuration, check.violations


def find_problems(
    document: dict[str, Any], present_value: Any = ABSENT
) -> tuple[Configuration | None, list[Problem]]:
    """Check a new document. Return its typed values (None if they are not valid) and its problems. The
    document may break a strict rule by a value that the document `present_value` also contains."""
    check = _ValueCheck()
    configuration = check.load(ROOT, document, "", present_value)
    return configuration, check.problems + check.violations


def check_staged(field: Field, value: Any, path: str, present_value: Any = ABSENT) -> list[Problem]:
    """Return the problems of a value that is to be staged. Until the commit, fields may be missing, and rules
    between values may be broken. `present_value` is the present value in the candidate: an equal new value
    may break a strict rule."""
    check = _ValueCheck(is_staged=True)
    check.load(field, value, path, present_value)
    return (check.problems + check.violations)[:MAX_PROBLEMS]


class _ValueCheck:
    """Check of one JSON value. The check collects the `problems` of the value, and as `violations` the strict
    rules that the value breaks."""

    def __init__(self, is_staged: bool = False) -> None:
        self._is_staged = is_staged
        self.problems: list[Problem] = []
        self.violations: list[Problem] = []

    def raise_problems(self) -> None:
        if self.problems:
            raise Invalid(*self.problems[:MAX_PROBLEMS])

    def load(self, field: Field, value: Any, path: str, present_value: Any = ABSENT) -> Any:
        """Check a value, and return the typed value. If the check finds a problem, the returned value must
        not be used."""
        if value is None:
            if not field.nullable:
                self._add(path, "must not be null")
            return None
        if self._is_staged and value == MASK:
            return self._add(path, "must be a value, not the mask that hides one")
        if isinstance(field.kind, Object):
            return self._load_object(field.kind, value, path, present_value)
        if isinstance(field.kind, ListOf):
            return self._load_list(field.kind, value, path, present_value)
        typed_value = None
        try:
            typed_value = field.kind.load(value)
        except ValueError as error:
            self._add(path, *error.args)
        if value != present_value:
            self.violations += [Problem(path, "invalid", rule) for rule in _find_violations(field, value)]
        return typed_value

    def _load_object(self, kind: Object, value: Any, path: str, present_value: Any) -> Any:
        if not isinstance(value, dict):
            return self._add(path, "must be an object, in JSON")
        problem_count, present_value = (
            len(self.problems),
            present_value if isinstance(present_value, dict) else {},
        )
        members = {}
        for name, member_value in value.items():
            below = _join(path, shorten_name(name))
            if name in kind.fields:
                members[name] = self.load(
                    kind.fields[name], member_value, below, present_value.get(name, ABSENT)
                )
            else:
                # With the names of all sections, a response about twenty of them would be long.
                names = f"; known fields: {', '.join(kind.fields)}" if path else ""
                self._add(below, f"is not a known field{names}", code="unknown")
        if self._is_staged:
            return None
        for name, field in kind.fields.items():
            if field.required and name not in value:
                self._add(_join(path, name), "is required", code="missing")
        if len(self.problems) > problem_count:
            return None
        section = kind.section(**members)
        for where, rule in find_broken_rules(section):
            self._add(_join(path, where), rule)
        return section

    def _load_list(self, kind: ListOf, value: Any, path: str, present_value: Any) -> Any:
        if not isinstance(value, list):
            return self._add(path, "must be a list, in JSON")
        # The length first: the other rules need complete items.
        if kind.is_too_long(value):
            return self._add(path, kind.length_rule)
        problem_count, present_items = len(self.problems), dict(_name_items(kind, present_value))
        items = tuple(
            self.load(kind.item, item, f"{path}.{number}", present_items.get(name, ABSENT))
            for number, (name, item) in enumerate(_name_items(kind, value))
        )
        if self._is_staged and kind.key is not None:
            self._check_keys(kind.key, value, path)
        elif len(self.problems) == problem_count:
            self._add(path, *kind.find_broken_rules(items))
        return items

    def _check_keys(self, key: str, items: list[Any], path: str) -> None:
        """Check that each list item has a unique key, because a path identifies an item by its key."""
        seen: set[str] = set()
        for number, item in enumerate(items):
            key_value = item.get(key) if isinstance(item, dict) else None
            if key_value is None:
                self._add(f"{path}.{number}.{key}", "is required", code="missing")
            elif isinstance(key_value, str):
                if key_value in seen:
                    self._add(f"{path}.{number}.{key}", "must not be that of another item")
                seen.add(key_value)

    def _add(self, path: str, *rules: str, code: str = "invalid") -> None:
        self.problems += [Problem(path, code, rule) for rule in rules]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def get_key(item: Any, key: str | None) -> str | None:
    """Return the key of a list item, or None if the item has no key."""
    member_value = item.get(key) if isinstance(item, dict) else None
    return member_value if isinstance(member_value, str) else None


def _name_items(kind: ListOf, items: Any) -> Iterator[tuple[str | int | None, Any]]:
    """Yield each item of a list with its key. If the list has no keys, yield each item with its index."""
    for number, item in enumerate(items if isinstance(items, list) else []):
        yield get_key(item, kind.key) if kind.key else number, item


# Strict rules


class StrictRule(NamedTuple):
    """Rule for a typed value. `is_kept` returns True if the value keeps the rule. The message for a value
    that breaks the rule is the result of `explain`, or `error` without `explain`."""

    error: str
    is_kept: Callable[[Any], object]
    explain: Callable[[Any], str] | None = None

    def get_error(self, value: Any) -> str:
        return self.error if self.explain is None else self.explain(value)


def _make_pattern_rule(pattern: str, error: str) -> StrictRule:
    return StrictRule(error, re.compile(pattern).match)


#: RFC 6890 section 2.2.2: this network, loopback, link-local; multicast and reserved addresses.
_SPECIAL_NETWORKS = tuple(map(IPv4Network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3")))


def _is_for_subscribers(network: IPv4Network) -> bool:
    return not any(network.overlaps(other) for other in _SPECIAL_NETWORKS)


# MAX_SECRET_LENGTH in pppd's RADIUS plugin, which silently drops the rest of a longer secret.
_RADIUS_SECRET_RULE = StrictRule(
    "must be at most 48 characters: pppd keeps no more", lambda secret: len(secret) <= 48
)

_MIN_RATE_RULE = StrictRule(
    f"must be at least {format_rate(MIN_BPS)}", lambda bps: bps >= MIN_BPS, explain_minimum
)

_STRICT_RULES: Mapping[tuple[type[definition.Section], str], tuple[StrictRule, ...]] = {
    (definition.Radius, "secret"): (_RADIUS_SECRET_RULE,),
    (definition.RadiusServer, "secret"): (_RADIUS_SECRET_RULE,),
    # FRR and Linux (in net.ipv4.conf) call everything outside of VRFs default, and all of it all. Other
    # systems keep mgmt for their own management.
    (definition.Cgnat, "vrf_name"): (
        _make_pattern_rule(
            r"(?!(?i:default|all|mgmt|lo)\Z|(ppp|ipoe|ifb-?)[0-9]+\Z|ifb-)",
            "must not be default, all, mgmt or lo, nor be named like the devices of sessions, as ppp0",
        ),
    ),
    # Words that FRR's `ip route` takes after a gateway. FRR reads any beginning of Null0 as Null0, in any
    # case.
    (definition.Cgnat, "handoff_interface"): (
        _make_pattern_rule(
            r"(?!(?i:n|nu|nul|null|null0.*|blackhole|reject|[0-9]+)\Z)",
            "must not be a number, Null0, blackhole or reject: FRR takes it for something else in a route",
        ),
    ),
    (definition.Cgnat, "source_range"): (StrictRule(definition.IPV4_NETWORK_RULE, _is_for_subscribers),),
    (definition.AddressPool, "network"): (StrictRule(definition.IPV4_NETWORK_RULE, _is_for_subscribers),),
    (definition.BgpNeighbor, "description"): (
        _make_pattern_rule(r"(?!.*\| )", "must not hold a | before a space: FRR takes it for a pipe"),
        _make_pattern_rule(r"(?!.*  )", "must not hold two spaces in a row: FRR keeps one"),
    ),
}
_STRICT_RULES_BY_FIELD = {
    Object(section).fields[name]: rules for (section, name), rules in _STRICT_RULES.items()
}


def get_strict_rules(field: Field) -> tuple[StrictRule, ...]:
    if isinstance(field.kind, definition.Rate):
        return (_MIN_RATE_RULE,)
    return _STRICT_RULES_BY_FIELD.get(field, ())


#: Texts that users write for no value.
_NO_VALUE_TEXTS = frozenset(("", "null", "none", "~"))


def is_removable(field: Field) -> bool:
    """Return True if the field is a leaf that may be absent."""
    return not field.required and not isinstance(field.kind, Object | ListOf)


def explain_removal(field: Field, value: Any) -> str | None:
    """Return the error text for a value such as `null` or an empty text in a leaf that may be absent: the
    user probably wants to delete the leaf. Return None for any other value."""
    if not isinstance(value, str) or value.strip().lower() not in _NO_VALUE_TEXTS or not is_removable(field):
        return None
    return f"must not be {f'the text {value.strip()}' if value.strip() else 'empty'}: delete removes it"


def _find_violations(field: Field, value: Any) -> Iterator[str]:
    """Yield the error text of each strict rule that a JSON value breaks. Yield nothing if the value cannot be
    converted to its type."""
    rules, removal = get_strict_rules(field), explain_removal(field, value)
    if not (rules or removal) or value is None or isinstance(field.kind, Object | ListOf):
        return
    try:
        typed_value = field.kind.load(value)
    except ValueError:
        return
    if removal and value != field.default:
        yield removal
    yield from (rule.get_error(typed_value) for rule in rules if not rule.is_kept(typed_value))


# Rules between values


@singledispatch
def find_broken_rules(section: definition.Section) -> Iterator[tuple[str, str]]:
    """Yield the rules between the values of a section that are broken: for each rule, the path of a value in
    the section, and the error text."""
    return iter(())


@find_broken_rules.register
def _check_radius(radius: definition.Radius) -> Iterator[tuple[str, str]]:
    if radius.server is not None and radius.secret is None:
        yield "secret", "is required with a server"
    if radius.servers and radius.server is None:
        yield "servers", "must be empty without a server"
    for number, further in enumerate(radius.servers):
        # An address has one secret.
        if further.address == radius.server:
            yield f"servers.{number}.address", "must not be that of server"


@find_broken_rules.register
def _check_demux(demux: definition.Demux) -> Iterator[tuple[str, str]]:
    # Each outer VLAN with a subscriber is a device.
    outer_vlan_count = sum(len(profile.outer_vlan_range or ()) for profile in demux.vlan_profiles)
    if outer_vlan_count * len(demux.trunks) > _MAX_OUTER_VLANS:
        yield "vlan_profiles", f"must have at most {_MAX_OUTER_VLANS} outer VLANs on all trunks together"
    # With an overlap, the order of the profiles would decide which one a subscriber gets.
    for (_, one), (number, other) in combinations(enumerate(demux.vlan_profiles), 2):
        if one.overlaps(other):
            yield f"vlan_profiles.{number}.vlan_range", f"must not overlap with the VLANs of {one.name}"
            return


@find_broken_rules.register
def _check_api(api: definition.Api) -> Iterator[tuple[str, str]]:
    if api.enabled and not any(user.role == "admin" for user in api.users):
        yield "users", "must hold an admin while the API is enabled"


@find_broken_rules.register
def _check_neighbor(neighbor: definition.BgpNeighbor) -> Iterator[tuple[str, str]]:
    if neighbor.address.version == 6 and "ipv4" in neighbor.families:
        yield "families", "must be ipv6 alone for an IPv6 neighbour"


@find_broken_rules.register
def _check_subscribers(subscribers: definition.Subscribers) -> Iterator[tuple[str, str]]:
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


@find_broken_rules.register
def _check_configuration(configuration: Configuration) -> Iterator[tuple[str, str]]:
    interfaces, cgnat, demux = configuration.interfaces, configuration.cgnat, configuration.demux
    trunks, uplinks = set(interfaces.trunks), set(interfaces.uplinks)
    if "lo" in trunks:
        yield "interfaces.trunks", "must not hold the loopback"
    if (trunks | {"lo"}) & uplinks:
        yield "interfaces.uplinks", "must not hold trunks or the loopback"
    if set(demux.trunks) - trunks:
        yield "demux.trunks", "must be among interfaces.trunks"
    if cgnat.vrf_name in trunks | uplinks:
        yield "cgnat.vrf_name", INTERFACE_NAME_RULE
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
