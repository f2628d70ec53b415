"""Rules that new values must keep, and stored ones may break.

They refuse what a service would misread. A version that adds one must still load, run and return to what an
older version stored.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from marshmallow import ValidationError
from marshmallow.fields import Field, List, Nested

from gateway_api.base.errors import Problem
from gateway_api.core.configuration.fields import key_of, strict_rules
from gateway_api.core.configuration.schema import NAME_OF_AN_INTERFACE
from gateway_api.core.configuration.schema import Configuration as ConfigurationSchema
from gateway_api.core.configuration.sections import Configuration

_ROOT = Nested(ConfigurationSchema)


@dataclass(frozen=True)
class Violation:
    """A rule that the value at a place breaks. Of two documents, it is the same where all three are equal."""

    #: The names on the way to the value, with the keys of items: an item may move in its list.
    place: tuple[str, ...]
    value: str
    rule: str


def broken_rules(field: Field[Any], value: Any) -> Iterator[str]:
    """Those that a value breaks in a field; none where the field can't load it."""
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


def violations(document: Any, sections: Configuration | None) -> dict[Violation, Problem]:
    """All of them in a document, and where they are. `sections` is what the schema made of it, None if it is
    invalid."""
    found = dict(_violations(_ROOT, document, (), ""))
    if sections is not None:
        # Or it would be the name of a VLAN interface, once its first session comes.
        name = sections.cgnat.vrf_name
        if any(re.fullmatch(rf"{re.escape(one)}(\.[0-9]+)+", name) for one in sections.interfaces.trunks):
            found.update([_violation(("cgnat", "vrf_name"), "cgnat.vrf_name", name, NAME_OF_AN_INTERFACE)])
    return found


def _violations(
    field: Field[Any], value: Any, place: tuple[str, ...], path: str
) -> Iterator[tuple[Violation, Problem]]:
    if isinstance(field, Nested) and isinstance(value, dict):
        for name, below in field.schema.fields.items():
            yield from _violations(below, value.get(name), (*place, name), f"{path}.{name}".lstrip("."))
    elif isinstance(field, List) and isinstance(value, list):
        key = key_of(field)
        for number, item in enumerate(value):
            known = item.get(key) if key is not None and isinstance(item, dict) else number
            yield from _violations(field.inner, item, (*place, str(known)), f"{path}.{number}")
    else:
        for rule in broken_rules(field, value):
            yield _violation(place, path, value, rule)


def _violation(place: tuple[str, ...], path: str, value: str, rule: str) -> tuple[Violation, Problem]:
    return Violation(place, value, rule), Problem(path, "invalid", rule)
