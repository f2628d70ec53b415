"""The rules of single values in a candidate, as far as they need no other value.

A command line has only text, so text is read as the schema requires at its place. The commit finds what is
missing, and what must match a value elsewhere.

Some rules are strict: new values must keep them, stored values may break them. They reject what a service
would misread. A version that adds one must still load, run and restore what an older version stored.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec
from marshmallow import ValidationError
from marshmallow.fields import Boolean, Field, Integer, List, Nested
from marshmallow.validate import Length

from gateway_api.base.errors import Invalid, Problem
from gateway_api.base.fields import MOST_PROBLEMS, Text, decode_json, shown
from gateway_api.base.logs import MASK
from gateway_api.core.configuration.fields import key_of, strict_rules
from gateway_api.core.configuration.sections import NAME_OF_AN_INTERFACE, ROOT, Configuration

_FLAGS = {"true": True, "false": False}
_LONGEST_INTEGER = 20


@dataclass(frozen=True)
class Violation:
    """A broken strict rule. Two documents have the same one where all three attributes are equal."""

    #: The names in the path of the value, with the keys of items: an item may move in its list.
    place: tuple[str, ...]
    value: str
    rule: str


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


def violations(document: Any, sections: Configuration | None) -> dict[Violation, Problem]:
    """All of a document, with their problems. `sections` are its typed values, None if it is invalid."""
    found = dict(_violations(ROOT, document, (), ""))
    if sections is not None:
        # A VLAN interface of that name may appear later, with its first session.
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


def coerced(field: Field[Any], value: Any, path: str) -> Any:
    """The JSON value to store in the document. Raises Invalid with the path of each problem."""
    if isinstance(value, str):
        value = _read(field, value)
    problems = list(islice(_problems(field, value, path), MOST_PROBLEMS))
    if problems:
        raise Invalid(*problems)
    return value


def _read(field: Field[Any], text: str) -> Any:
    """The value of a text for a field; the text itself if it has none, so that its type is rejected."""
    if field.allow_none and text == "null" and not isinstance(field, Text):
        return None
    if isinstance(field, Boolean):
        return _FLAGS.get(text.lower(), text)
    if isinstance(field, Integer):
        digits = text.removeprefix("-")
        return int(text) if digits.isascii() and digits.isdigit() and len(text) <= _LONGEST_INTEGER else text
    if isinstance(field, List | Nested):
        try:
            return decode_json(text)
        except (msgspec.MsgspecError, RecursionError):
            return text
    return text


def _problems(field: Field[Any], value: Any, path: str) -> Iterator[Problem]:
    if value is None:
        if not field.allow_none:
            yield Problem(path, "invalid", "must not be null")
    elif value == MASK:
        yield Problem(path, "invalid", "must be a value, not the mask that hides one")
    elif isinstance(field, Nested):
        yield from _problems_of_object(field, value, path)
    elif isinstance(field, List):
        yield from _problems_of_list(field, value, path)
    else:
        yield from _broken_rules(field, value, path)


def _problems_of_object(field: Nested, value: Any, path: str) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield Problem(path, "invalid", "must be an object, in JSON")
        return
    for name, held in value.items():
        below = f"{path}.{shown(name)}"
        if name in field.schema.fields:
            yield from _problems(field.schema.fields[name], held, below)
        else:
            yield Problem(below, "unknown", "is not a known field")


def _problems_of_list(field: List[Any], value: Any, path: str) -> Iterator[Problem]:
    if not isinstance(value, list):
        yield Problem(path, "invalid", "must be a list, in JSON")
        return
    # The length first: the other rules need complete items.
    for rule in field.validators:
        if isinstance(rule, Length) and rule.max is not None and len(value) > rule.max:
            yield Problem(path, "invalid", str(rule.error))
            return
    broken = False
    for number, item in enumerate(value):
        for problem in _problems(field.inner, item, f"{path}.{number}"):
            broken = True
            yield problem
    key = key_of(field)
    if key is None:
        if not broken:
            yield from _broken_rules(field, value, path)
        return
    # Without a key, no path could name the item.
    seen: set[str] = set()
    for number, item in enumerate(value):
        held = item.get(key) if isinstance(item, dict) else None
        if held is None:
            yield Problem(f"{path}.{number}.{key}", "missing", "is required")
        elif isinstance(held, str):
            if held in seen:
                yield Problem(f"{path}.{number}.{key}", "invalid", "must not be that of another item")
            seen.add(held)


def _broken_rules(field: Field[Any], value: Any, path: str) -> Iterator[Problem]:
    try:
        field.deserialize(value)
    except ValidationError as error:
        yield from (Problem(path, "invalid", str(message)) for message in error.messages)
    yield from (Problem(path, "invalid", rule) for rule in broken_rules(field, value))
