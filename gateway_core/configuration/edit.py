"""Changes to a candidate: values set and deleted at paths, or a whole document in its place.

The definition of the configuration tells the names that an object may have, and the lists whose items have
keys. A command line has only text, so text is read as its place requires. The rules of single values are
checked here. The commit finds what is missing, and what must match a value elsewhere.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, TypeAlias

import msgspec

from gateway_contract.base.errors import GatewayApiError, Invalid, NotFound, Problem
from gateway_contract.base.fields import MOST_PROBLEMS, decode_json, shown
from gateway_contract.base.logs import MASK
from gateway_contract.base.texts import Path, PathSegment, format_path, parse_duration, parse_path
from gateway_contract.configuration import (
    ROOT,
    Field,
    Flag,
    Leaf,
    ListOf,
    Object,
    Seconds,
    WholeNumber,
    field_at,
    mask_secrets,
    quotes_hint,
)
from gateway_contract.core.configuration import Edit, EditedValue
from gateway_core.configuration.documents import InvalidDocument, item_name, unmasked
from gateway_core.configuration.rules import broken_strict_rules, is_removable, meant_as_nothing

_FLAGS = {"true": True, "false": False}
_LONGEST_INTEGER = 20

#: The place of a value that does not exist; null is a value.
_ABSENT = object()

#: The path of a change, with the keys of items in place of their indexes; the value before, and after.
_Changed: TypeAlias = tuple[Path, Any, Any]


class AbsentPath(NotFound):
    """There is no value at the path, which has the keys of items in place of their indexes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"There is no {format_path(path)} in the candidate")


class OperationRefused(GatewayApiError):
    """One operation failed. No operation took effect."""

    def __init__(self, number: int, path: str, reason: Invalid | AbsentPath) -> None:
        #: Its position, from 0.
        self.number = number
        #: Its path, as given.
        self.path = path
        #: Invalid has the paths of the problems. AbsentPath: there is nothing to delete.
        self.reason = reason
        super().__init__(f"operation {number}: {reason}")


def edited(document: dict[str, Any], operations: Sequence[Edit]) -> tuple[dict[str, Any], list[EditedValue]]:
    """Return a copy of the document with all operations applied in their order, and what each one changed.
    Raises OperationRefused."""
    made, values = copy.deepcopy(document), []
    for number, operation in enumerate(operations):
        try:
            typed = _parsed(operation.path)
            path, *change = (
                _set(made, typed, operation.value) if operation.action == "set" else _delete(made, typed)
            )
        except (Invalid, AbsentPath) as error:
            raise OperationRefused(number, operation.path, error) from error
        # As JSON at once: a later operation may change a part of the same value.
        before, after = (_masked_json(path, value) for value in change)
        values.append(EditedValue(format_path(path), before, after))
    return made, values


def replaced(document: dict[str, Any], candidate: dict[str, Any]) -> dict[str, Any]:
    """Return a whole document to stage in place of the candidate, with the candidate's secrets where it has
    masks. Raises Invalid."""
    made = unmasked(document, candidate, "in the candidate")
    if problems := tuple(islice(_problems(ROOT, made, "", candidate), MOST_PROBLEMS)):
        raise InvalidDocument(made, problems)
    return made


def _masked_json(path: Path, value: Any) -> str | None:
    if value is _ABSENT:
        return None
    return msgspec.json.encode(mask_secrets(value, field_at(path))).decode()


def _parsed(text: str) -> Path:
    try:
        return parse_path(text)
    except ValueError as error:
        # The text is not the path of the problem: it is not a path, and may be long.
        raise Invalid(Problem("path", "invalid", str(error))) from error


def _set(holder: Any, path: Path, value: Any) -> _Changed:
    field = ROOT
    for depth in range(len(path) - 1):
        holder, field, segment = _entered(holder, field, path, depth)
        path = _resolved(path, depth, segment)
        if not isinstance(field.kind, ListOf | Object):
            raise _unknown(path)
    return _put(holder, field, path, value)


def _resolved(path: Path, depth: int, segment: PathSegment) -> Path:
    """Return the path with the segment at this depth."""
    return (*path[:depth], segment, *path[depth + 1 :])


def _entered(holder: Any, field: Field, path: Path, depth: int) -> tuple[Any, Field, PathSegment]:
    """Return the value at a segment of an object or a list, created if missing; its field; and the segment
    with the key of the item."""
    segment = path[depth]
    if isinstance(field.kind, Object):
        below = _named(field, segment, path)
        if holder.get(segment.text) is None:
            holder[segment.text] = [] if isinstance(below.kind, ListOf) else {}
        return holder[segment.text], below, segment
    key, place = field.key, _place(holder, field, path, depth)
    if place is None:
        if key is None or segment.index is not None:
            raise _unknown(path)
        here = format_path((*path[: depth + 1], PathSegment(key)))
        holder.append({key: _coerced(field.item.members[key], segment.text, here)})
        place = len(holder) - 1
    return holder[place], field.item, _named_by_key(holder, field, place, segment)


def _put(holder: Any, field: Field, path: Path, value: Any) -> _Changed:
    segment, here = path[-1], format_path(path)
    if isinstance(field.kind, Object):
        # A copy: a later operation may change a part of it. Only after the check, which limits its depth.
        made = copy.deepcopy(_coerced(_named(field, segment, path), value, here))
        if segment.text == field.own_key and holder.get(segment.text) not in (None, made):
            # It could be the key of a second item.
            raise Invalid(Problem(here, "invalid", "is the key of its item: delete that, and set another"))
        before = holder.get(segment.text, _ABSENT)
        holder[segment.text] = made
        return path, before, made
    key, place = field.key, _place(holder, field, path, len(path) - 1)
    if place is None and segment.index is None and key is None:
        raise Invalid(Problem(here, "invalid", "must end in an index"))
    if place is None and segment.index not in (None, len(holder)):
        raise Invalid(Problem(here, "invalid", f"must be an index up to {len(holder)}, which appends"))
    if place is not None:
        here = format_path(_resolved(path, len(path) - 1, _named_by_key(holder, field, place, segment)))
    made = copy.deepcopy(_coerced(field.item, value, here))
    if key is not None:
        if segment.index is None:
            made = {key: segment.text, **made}
        _check_item(holder, key, made, segment, place, here)
    before = _ABSENT if place is None else holder[place]
    if place is None:
        place = len(holder)
        holder.append(made)
    else:
        holder[place] = made
    return _resolved(path, len(path) - 1, _named_by_key(holder, field, place, segment)), before, made


def _check_item(
    holder: list[Any], key: str, made: dict[str, Any], segment: PathSegment, place: int | None, here: str
) -> None:
    if made.get(key) is None:
        raise Invalid(Problem(f"{here}.{key}", "missing", "is required"))
    if segment.index is None and made[key] != segment.text:
        raise Invalid(Problem(f"{here}.{key}", "invalid", "must be the key that the path names"))
    if any(item[key] == made[key] for number, item in enumerate(holder) if number != place):
        raise Invalid(Problem(f"{here}.{key}", "invalid", "must not be that of another item"))


def _delete(holder: Any, path: Path) -> _Changed:
    field = ROOT
    for depth in range(len(path) - 1):
        place, field, segment = _found(holder, field, path, depth)
        path, holder = _resolved(path, depth, segment), holder[place]
    place, _, segment = _found(holder, field, path, len(path) - 1)
    path = _resolved(path, len(path) - 1, segment)
    if field.own_key == path[-1].text:
        raise Invalid(Problem(format_path(path), "invalid", "is the key of its item: delete that"))
    return path, holder.pop(place), _ABSENT


def _found(holder: Any, field: Field, path: Path, depth: int) -> tuple[Any, Field, PathSegment]:
    """Return the key or index of a segment, the field of its value, and the segment with the key of the item.
    Raises AbsentPath."""
    segment = path[depth]
    if field.members and isinstance(holder, dict) and segment.text in holder:
        return segment.text, field.members[segment.text], segment
    if isinstance(field.kind, ListOf):
        place = _place(holder, field, path, depth)
        if place is not None:
            return place, field.item, _named_by_key(holder, field, place, segment)
    raise AbsentPath(path)


def _named(field: Field, segment: PathSegment, path: Path) -> Field:
    if segment.index is not None or segment.text not in field.members:
        raise _unknown(path)
    return field.members[segment.text]


def _unknown(path: Path) -> Invalid:
    return Invalid(Problem(format_path(path), "unknown", f"is not a known path{quotes_hint(path)}"))


def _place(holder: list[Any], field: Field, path: Path, depth: int) -> int | None:
    """Return the place of the item that an index, a key or, in a list of texts, the text itself names. Raises
    Invalid for an index that is also the key of an item, or a text of the list."""
    segment, key = path[depth], field.key
    texts = [item if key is None else item.get(key) for item in holder]
    if segment.index is None:
        return texts.index(segment.text) if segment.text in texts else None
    if segment.text in texts:
        raise Invalid(Problem(format_path(path), "invalid", _two_meanings(texts, path[: depth + 1])))
    return segment.index if segment.index < len(holder) else None


def _two_meanings(keys: Sequence[str], path: Path) -> str:
    """Return the rule for a path whose last segment is an index, and a key in the same list."""
    *above, segment = path
    by_key = format_path((*above, PathSegment(segment.text)))
    found = f"{segment.text} is an index here, and also the key of an item, {by_key}"
    if segment.index is not None and segment.index < len(keys):
        found += f"; at the index is {format_path((*above, PathSegment(keys[segment.index])))}"
    return f"{found}: write the key, in quotes; in a shell, put single quotes around the path"


def _named_by_key(holder: list[Any], field: Field, place: int, segment: PathSegment) -> PathSegment:
    """Return the segment of an item by its key; in a list without keys, the segment itself."""
    return segment if field.key is None else PathSegment(holder[place][field.key])


def _coerced(field: Field, value: Any, path: str) -> Any:
    """Return the JSON value to store in the document. Raises Invalid with the path of each problem."""
    if isinstance(value, str):
        if rule := meant_as_nothing(field, value):
            raise Invalid(Problem(path, "invalid", rule))
        value = _read(field, value)
    if problems := tuple(islice(_problems(field, value, path), MOST_PROBLEMS)):
        raise Invalid(*problems)
    return value


def _read(field: Field, text: str) -> Any:
    """Return the value of a text for a field; the text itself if it has none, so that its type is
    rejected."""
    kind = field.kind
    if field.nullable and text == "null" and not is_removable(field):
        return None
    if isinstance(kind, Flag):
        return _FLAGS.get(text.lower(), text)
    if isinstance(kind, Seconds):
        with suppress(ValueError):
            return parse_duration(text)
    if isinstance(kind, WholeNumber):
        digits = text.removeprefix("-")
        return int(text) if digits.isascii() and digits.isdigit() and len(text) <= _LONGEST_INTEGER else text
    if isinstance(kind, ListOf | Object):
        with suppress(msgspec.MsgspecError, RecursionError):
            return decode_json(text)
    return text


def _problems(field: Field, value: Any, path: str, known: Any = _ABSENT) -> Iterator[Problem]:
    """`known` is the value in the candidate: it may break a strict rule, which is newer."""
    kind = field.kind
    if value is None:
        if not field.nullable:
            yield Problem(path, "invalid", "must not be null")
    elif value == MASK:
        yield Problem(path, "invalid", "must be a value, not the mask that hides one")
    elif isinstance(kind, Object):
        yield from _problems_of_object(kind, value, path, known)
    elif isinstance(kind, ListOf):
        yield from _problems_of_list(kind, value, path, known)
    else:
        try:
            kind.load(value)
        except ValueError as error:
            yield from (Problem(path, "invalid", rule) for rule in error.args)
        if value != known:
            yield from (Problem(path, "invalid", rule) for rule in broken_strict_rules(field, value))


def _problems_of_object(kind: Object, value: Any, path: str, known: Any) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield Problem(path, "invalid", "must be an object, in JSON")
        return
    members = known if isinstance(known, dict) else {}
    for name, held in value.items():
        below = f"{path}.{shown(name)}" if path else shown(name)
        if name in kind.fields:
            yield from _problems(kind.fields[name], held, below, members.get(name, _ABSENT))
        else:
            # With the names of all sections, a response about twenty of them would be long.
            names = f"; known fields: {', '.join(kind.fields)}" if path else ""
            yield Problem(below, "unknown", f"is not a known field{names}")


def _problems_of_list(kind: ListOf, value: Any, path: str, known: Any) -> Iterator[Problem]:
    if not isinstance(value, list):
        yield Problem(path, "invalid", "must be a list, in JSON")
        return
    # The length first: the other rules need complete items.
    if kind.is_too_long(value):
        yield Problem(path, "invalid", kind.length_rule)
        return
    items = dict(_named_items(kind, known if isinstance(known, list) else []))
    problems = [
        problem
        for number, (name, item) in enumerate(_named_items(kind, value))
        for problem in _problems(kind.item, item, f"{path}.{number}", items.get(name, _ABSENT))
    ]
    yield from problems
    if isinstance(kind.kind, Leaf):
        if not problems:
            rules = kind.find_broken_rules([kind.kind.load(item) for item in value])
            yield from (Problem(path, "invalid", rule) for rule in rules)
        return
    # Without a key, no path could name the item.
    seen: set[str] = set()
    for number, item in enumerate(value):
        held = item.get(kind.key) if isinstance(item, dict) else None
        if held is None:
            yield Problem(f"{path}.{number}.{kind.key}", "missing", "is required")
        elif isinstance(held, str):
            if held in seen:
                yield Problem(f"{path}.{number}.{kind.key}", "invalid", "must not be that of another item")
            seen.add(held)


def _named_items(kind: ListOf, items: list[Any]) -> Iterator[tuple[str | int | None, Any]]:
    """The items with their keys or, in a list without keys, their numbers."""
    for number, item in enumerate(items):
        yield item_name(item, kind.key) if kind.key else number, item
