"""Documents compared, merged and unmasked, by the definition of the configuration.

A difference has one line a value, by path, secrets masked:

    - qos.default_down = "100mbit"
    + qos.default_down = "200mbit"
    - radius.secret = ********
    + radius.secret = ********

The items of keyed lists are compared by their keys. Where their order changed, it has lines of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway_contract.base.errors import Invalid, Problem
from gateway_contract.base.fields import MOST_PROBLEMS
from gateway_contract.base.logs import MASK, is_secret
from gateway_contract.base.texts import Path, PathSegment, format_path, parse_path
from gateway_contract.configuration import ROOT, UNKNOWN, Field, Leaf, field_at

_NOTHING = object()

#: JSON by path, and keys by the path of their list.
_Values = dict[Path, str]
_Orders = dict[Path, list[str]]


class InvalidDocument(Invalid):
    """A whole document is not valid. The paths of the problems have the indexes of items."""

    def __init__(self, document: dict[str, Any], problems: Sequence[Problem]) -> None:
        super().__init__(*problems)
        self._document = document

    @property
    def problems_by_key(self) -> tuple[Problem, ...]:
        """The problems with the keys of items in their paths, in place of indexes."""
        return tuple(
            Problem(_keyed_path(self._document, problem.path), problem.code, problem.message)
            for problem in self.problems
        )


@dataclass(frozen=True)
class Change:
    """A value before and after, as JSON; None without a value."""

    path: Path
    before: str | None
    after: str | None

    def lines(self) -> Iterator[str]:
        secret = field_at(self.path).secret or is_secret(self.path[-1].text)
        for sign, value in (("-", self.before), ("+", self.after)):
            if value is not None:
                shown = MASK if secret and value != "null" else value
                yield f"{sign} {format_path(self.path)} = {shown}"


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """Return the changed values, in the order of the paths' text."""
    old, new, orders, new_orders = _Values(), _Values(), _Orders(), _Orders()
    # Most sections are equal, and one may have thousands of values.
    equal = {name for name in before.keys() & after.keys() if _json(before[name]) == _json(after[name])}
    for document, values, keys in ((before, old, orders), (after, new, new_orders)):
        for segment, held, field in _below(document, ROOT):
            if segment.text not in equal:
                _collect(held, field, (segment,), values, keys)
    for path, now in new_orders.items():
        was = orders.get(path, [])
        in_both = set(was) & set(now)
        if [key for key in was if key in in_both] != [key for key in now if key in in_both]:
            old[path], new[path] = _json(was), _json(now)
    paths = sorted((path for path in {**old, **new} if old.get(path) != new.get(path)), key=format_path)
    return [Change(path, old.get(path), new.get(path)) for path in paths]


def _keyed_path(document: Any, text: str) -> str:
    """Return a path into a document with the keys of items in place of indexes. An item whose key is not
    valid, or that of another item, keeps its index; so does a text that is no path."""
    try:
        path = parse_path(text)
    except ValueError:
        return text
    field, value, made = ROOT, document, list[PathSegment]()
    for segment in path:
        items = value if isinstance(value, list) else []
        names = [item_name(item, field.key) for item in items]
        value = value.get(segment.text) if isinstance(value, dict) else None
        if segment.index is not None and segment.index < len(items):
            value, name = items[segment.index], names[segment.index]
            if name is not None and names.count(name) == 1 and _is_valid_key(field, name):
                segment = PathSegment(name)
        made.append(segment)
        field = field.below(segment.text)
    return format_path(made)


def _is_valid_key(field: Field, name: str) -> bool:
    kind = field.item.below(field.key or "").kind
    try:
        return isinstance(kind, Leaf) and kind.load(name) is not None
    except ValueError:
        return False


def diff_text(found: list[Change]) -> str:
    """Return the lines, each ended by a newline."""
    return "".join(f"{line}\n" for change in found for line in change.lines())


def _collect(value: Any, field: Field, path: Path, values: _Values, orders: _Orders) -> None:
    """Add the values that have paths of their own, and the keys of each keyed list in their order."""
    key = field.key
    if key is not None and value:
        orders[path] = [item[key] for item in value]
    below = list(_below(value, field))
    for segment, held, its_field in below:
        _collect(held, its_field, (*path, segment), values, orders)
    if not below:
        values[path] = _json(value)


def _below(value: Any, field: Field) -> Iterator[tuple[PathSegment, Any, Field]]:
    """The parts of a value that have paths of their own, with their fields."""
    if isinstance(value, dict) and field.members:
        for name, held in value.items():
            yield PathSegment(name), held, field.below(name)
    elif isinstance(value, list) and field.key is not None:
        for item in value:
            yield PathSegment(item[field.key]), item, field.item


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def merged(base: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """`theirs` with the changes from `base` to `ours`. Where both changed a value, `ours` counts. The items
    of keyed lists are merged by their keys; any other list is one value."""
    return _members(base, ours, theirs, ROOT.members)


def _merged(base: Any, ours: Any, theirs: Any, field: Field) -> Any:
    if ours == base:
        return theirs
    if theirs in (base, ours):
        return ours
    sides = (base, ours, theirs)
    if field.members and all(isinstance(side, dict) for side in sides):
        return _members(base, ours, theirs, field.members)
    key = field.key
    if key is not None and all(isinstance(side, list) for side in sides):
        was, mine, other = ({item[key]: item for item in side} for side in sides)
        return list(_members(was, mine, other, dict.fromkeys((*mine, *other), field.item)).values())
    return ours


def _members(
    base: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any], fields: Mapping[str, Field]
) -> dict[str, Any]:
    made = {}
    for name in dict.fromkeys((*ours, *theirs)):
        was, mine, other = (side.get(name, _NOTHING) for side in (base, ours, theirs))
        made[name] = _merged(was, mine, other, fields.get(name, UNKNOWN))
    return {name: value for name, value in made.items() if value is not _NOTHING}


def unmasked(
    document: dict[str, Any], known: dict[str, Any], where: str = "that runs here"
) -> dict[str, Any]:
    """Return a copy of any JSON, with the secrets of the `known` document in the place of masks. The items of
    keyed lists are found by their keys. Raises Invalid for a mask without such a secret: a mask never becomes
    a value. `where` names the known document in the message."""
    missing: list[str] = []
    made: dict[str, Any] = _unmasked(document, known, ROOT, "", missing)
    if missing:
        rule = f"must be a value: the mask hides nothing {where}"
        problems = [Problem(path, "invalid", rule) for path in missing[:MOST_PROBLEMS]]
        raise InvalidDocument(document, problems)
    return made


def _unmasked(value: Any, known: Any, field: Field, path: str, missing: list[str]) -> Any:
    """`known` is None without such a value. Values that the definition does not know stay."""
    if field.members and isinstance(value, dict):
        held = known if isinstance(known, dict) else {}
        return {
            name: _unmasked(below, held.get(name), field.below(name), f"{path}.{name}".lstrip("."), missing)
            for name, below in value.items()
        }
    if field.item is not UNKNOWN and isinstance(value, list):
        key = field.key
        items = {item[key]: item for item in known or ()} if key else {}
        return [
            _unmasked(item, items.get(item_name(item, key)), field.item, f"{path}.{number}", missing)
            for number, item in enumerate(value)
        ]
    if field is UNKNOWN or value != MASK:
        return value
    if isinstance(known, str) and field.secret:
        return known
    missing.append(path)
    return value


def item_name(item: Any, key: str | None) -> str | None:
    """Return the key of a value in a list, None if it has none."""
    held = item.get(key) if isinstance(item, dict) else None
    return held if isinstance(held, str) else None
