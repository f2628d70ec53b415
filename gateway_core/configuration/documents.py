"""Operations on configuration documents: compare, merge, unmask and edit.

A difference has one line for each value, by path, with secrets masked:

    - qos.default_down = "100mbit"
    + qos.default_down = "200mbit"
    - radius.secret = ********
    + radius.secret = ********

The items of keyed lists are compared by their keys; a change of the order of items has separate lines.

An edit checks the rules of single values. The commit finds missing values, and checks the rules between
values.
"""

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway_contract.base.errors import GatewayApiError, Invalid, NotFound, Problem
from gateway_contract.base.fields import MAX_PROBLEMS, decode_json
from gateway_contract.base.logs import MASK, is_secret
from gateway_contract.base.texts import PathSegment, Segments, format_path, parse_duration, parse_path
from gateway_contract.configuration import (
    ROOT,
    UNKNOWN,
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
from gateway_core.configuration.rules import ABSENT, check_staged, explain_removal, get_key, is_removable

_FLAG_VALUES = {"true": True, "false": False}
_MAX_INTEGER_LENGTH = 20


class InvalidDocument(Invalid):
    """Error of a whole document that is not valid. The paths of the problems identify list items by index."""

    def __init__(self, document: dict[str, Any], problems: Sequence[Problem]) -> None:
        super().__init__(*problems)
        self._document = document

    @property
    def problems_by_key(self) -> tuple[Problem, ...]:
        """Problems whose paths identify list items by key instead of by index."""
        return tuple(
            Problem(_replace_indexes(self._document, problem.path), problem.code, problem.message)
            for problem in self.problems
        )


def _replace_indexes(document: Any, text: str) -> str:
    """Return the path `text` with the keys of list items in place of their indexes. An index stays if the key
    of the item is not valid or not unique. Return any text that is not a path unchanged."""
    try:
        path = parse_path(text)
    except ValueError:
        return text
    field, value, segments = ROOT, document, list[PathSegment]()
    for segment in path:
        items = value if isinstance(value, list) else []
        keys = [get_key(item, field.key) for item in items]
        value = value.get(segment.text) if isinstance(value, dict) else None
        if segment.index is not None and segment.index < len(items):
            value, key = items[segment.index], keys[segment.index]
            if key is not None and keys.count(key) == 1 and _is_valid_key(field, key):
                segment = PathSegment(key)
        segments.append(segment)
        field = field.below(segment.text)
    return format_path(segments)


def _is_valid_key(field: Field, key: str) -> bool:
    kind = field.item.below(field.key or "").kind
    try:
        return isinstance(kind, Leaf) and kind.load(key) is not None
    except ValueError:
        return False


# Differences


@dataclass(frozen=True)
class Change:
    """Change of a value: the value before and after the change, as JSON. A missing value is None."""

    path: Segments
    before: str | None
    after: str | None


def compare(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """Return the changes of values between two documents, sorted by the text of their paths."""
    # Most sections are equal, and one section may have thousands of values.
    equal = {name for name in before.keys() & after.keys() if _encode(before[name]) == _encode(after[name])}
    (old, old_orders), (new, new_orders) = (
        _collect_values({name: value for name, value in document.items() if name not in equal})
        for document in (before, after)
    )
    for path, keys in new_orders.items():
        old_keys = old_orders.get(path, [])
        in_both = set(old_keys) & set(keys)
        if [key for key in old_keys if key in in_both] != [key for key in keys if key in in_both]:
            old[path], new[path] = _encode(old_keys), _encode(keys)
    paths = sorted((path for path in {**old, **new} if old.get(path) != new.get(path)), key=format_path)
    return [Change(path, old.get(path), new.get(path)) for path in paths]


def format_diff(changes: list[Change]) -> str:
    """Return the lines of a difference, each with a newline. Secrets are masked."""
    lines = []
    for change in changes:
        is_masked = field_at(change.path).secret or is_secret(change.path[-1].text)
        for sign, value in (("-", change.before), ("+", change.after)):
            if value is not None:
                displayed_value = MASK if is_masked and value != "null" else value
                lines.append(f"{sign} {format_path(change.path)} = {displayed_value}\n")
    return "".join(lines)


def _collect_values(document: dict[str, Any]) -> tuple[dict[Segments, str], dict[Segments, list[str]]]:
    """Return all values of a document that have their own paths, as JSON. Also return the keys of each keyed
    list, in the order of the list."""
    values: dict[Segments, str] = {}
    orders: dict[Segments, list[str]] = {}

    def collect(value: Any, field: Field, path: Segments) -> None:
        parts: list[tuple[str, Any, Field]] = []
        if isinstance(value, dict) and field.members:
            parts = [(name, member, field.below(name)) for name, member in value.items()]
        elif isinstance(value, list) and field.key is not None:
            parts = [(item[field.key], item, field.item) for item in value]
            if value:
                orders[path] = [key for key, _, _ in parts]
        for name, member, below in parts:
            collect(member, below, (*path, PathSegment(name)))
        if not parts and path:
            values[path] = _encode(value)

    collect(document, ROOT, ())
    return values, orders


def _encode(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


# Merged and unmasked documents


def merge(base: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """Return `theirs` with the changes from `base` to `ours`. If `ours` and `theirs` both changed a value,
    the result has the value of `ours`. The items of keyed lists are merged by their keys; any other list is
    merged as one value."""
    return _merge_members(base, ours, theirs, ROOT.members)


def _merge(base: Any, ours: Any, theirs: Any, field: Field) -> Any:
    if ours == base:
        return theirs
    if theirs in (base, ours):
        return ours
    sides = (base, ours, theirs)
    if field.members and all(isinstance(side, dict) for side in sides):
        return _merge_members(base, ours, theirs, field.members)
    key = field.key
    if key is not None and all(isinstance(side, list) for side in sides):
        base, ours, theirs = ({item[key]: item for item in side} for side in sides)
        fields = dict.fromkeys((*ours, *theirs), field.item)
        return list(_merge_members(base, ours, theirs, fields).values())
    return ours


def _merge_members(
    base: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any], fields: Mapping[str, Field]
) -> dict[str, Any]:
    merged = {}
    for name in dict.fromkeys((*ours, *theirs)):
        base_value, our_value, their_value = (side.get(name, ABSENT) for side in (base, ours, theirs))
        merged[name] = _merge(base_value, our_value, their_value, fields.get(name, UNKNOWN))
    return {name: value for name, value in merged.items() if value is not ABSENT}


def unmask(
    document: dict[str, Any], secret_source: dict[str, Any], where: str = "that runs here"
) -> dict[str, Any]:
    """Return a copy of a document in which each mask is replaced by the secret at the same path of
    `secret_source`. The items of keyed lists are found by their keys. `where` describes `secret_source` in
    the error text. Raises Invalid if `secret_source` has no secret for a mask, because a mask must never
    become a value."""
    missing: list[str] = []
    result: dict[str, Any] = _unmask(document, secret_source, ROOT, "", missing)
    if missing:
        rule = f"must be a value: the mask hides nothing {where}"
        raise InvalidDocument(document, [Problem(path, "invalid", rule) for path in missing[:MAX_PROBLEMS]])
    return result


def _unmask(value: Any, secret_source: Any, field: Field, path: str, missing: list[str]) -> Any:
    """Return a value with its masks replaced by secrets. `secret_source` is the same value in the document
    with the secrets, or None if that document does not have the value. The paths of masks without a secret
    are added to `missing`. Values that are not in the definition stay unchanged."""
    if field.members and isinstance(value, dict):
        members = secret_source if isinstance(secret_source, dict) else {}
        return {
            name: _unmask(member, members.get(name), field.below(name), f"{path}.{name}".lstrip("."), missing)
            for name, member in value.items()
        }
    if field.item is not UNKNOWN and isinstance(value, list):
        key = field.key
        items = {item[key]: item for item in secret_source or ()} if key else {}
        return [
            _unmask(item, items.get(get_key(item, key)), field.item, f"{path}.{number}", missing)
            for number, item in enumerate(value)
        ]
    if field is UNKNOWN or value != MASK:
        return value
    if isinstance(secret_source, str) and field.secret:
        return secret_source
    missing.append(path)
    return value


# Edits


class AbsentPath(NotFound):
    """Error of a path that has no value. The path identifies list items by key."""

    def __init__(self, path: Segments) -> None:
        self.path = path
        super().__init__(f"There is no {format_path(path)} in the candidate")


class OperationRefused(GatewayApiError):
    """Refusal of all operations of an edit, because one operation is invalid. Nothing was changed."""

    def __init__(self, number: int, path: str, reason: Invalid | AbsentPath) -> None:
        #: The position of the operation, from 0.
        self.number = number
        #: Invalid, or AbsentPath if there is nothing to delete.
        self.reason = reason
        super().__init__(f"operation {number} at {path}: {reason}")


def edit(document: dict[str, Any], operations: Sequence[Edit]) -> tuple[dict[str, Any], list[EditedValue]]:
    """Apply operations to a copy of the document, in order. Return the copy, and the change that each
    operation made. Raises OperationRefused if an operation is invalid or deletes a value that does not
    exist."""
    result, values = copy.deepcopy(document), []
    for number, operation in enumerate(operations):
        try:
            walk = _PathWalk(result, operation.path)
            before, after = (
                walk.set(operation.value) if operation.action == "set" else (walk.delete(), ABSENT)
            )
        except (Invalid, AbsentPath) as error:
            raise OperationRefused(number, operation.path, error) from error
        # As JSON at once: a later operation may change a part of the same value.
        values.append(
            EditedValue(walk.text, _encode_masked(walk.path, before), _encode_masked(walk.path, after))
        )
    return result, values


def prepare_replacement(document: dict[str, Any], candidate: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of `document` that can replace the candidate: each mask is replaced by the candidate's
    secret. Raises Invalid if the candidate has no secret for a mask, or if a value of the document is not
    valid."""
    result = unmask(document, candidate, "in the candidate")
    if problems := check_staged(ROOT, result, "", candidate):
        raise InvalidDocument(result, problems)
    return result


def _encode_masked(path: Sequence[PathSegment], value: Any) -> str | None:
    if value is ABSENT:
        return None
    return msgspec.json.encode(mask_secrets(value, field_at(tuple(path)))).decode()


class _PathWalk:
    """Walk along a path of a document to one value, which is then set or deleted. The walk replaces the
    indexes of list items in `path` by keys."""

    def __init__(self, document: dict[str, Any], path: str) -> None:
        try:
            self.path = list(parse_path(path))
        except ValueError as error:
            # Without the text: it is no path, and may be long.
            raise Invalid(Problem("path", "invalid", str(error))) from error
        #: The object or list with the value of the current segment, and its field.
        self._holder: Any = document
        self._field = ROOT
        self._depth = 0

    @property
    def text(self) -> str:
        return format_path(self.path)

    @property
    def _segment(self) -> PathSegment:
        return self.path[self._depth]

    def set(self, value: Any) -> tuple[Any, Any]:
        """Set the value at the end of the path. Create all missing objects and lists on the path. Return the
        value before and after the change. Raises Invalid if the path is unknown or the value is not valid."""
        while self._depth < len(self.path) - 1:
            if isinstance(self._field.kind, Object):
                name, below = self._find_member()
                if self._holder.get(name) is None:
                    self._holder[name] = [] if isinstance(below.kind, ListOf) else {}
                self._enter(name, below)
            else:
                place = self._find_item()
                self._enter(self._append_item() if place is None else place, self._field.item)
            if isinstance(self._field.kind, Leaf):
                raise self._make_unknown_error()
        return self._set_member(value) if isinstance(self._field.kind, Object) else self._set_item(value)

    def delete(self) -> Any:
        """Delete the value at the end of the path, and return the value. Raises AbsentPath if there is no
        such value, and Invalid if the value is the key of a list item."""
        while True:
            place, below = self._find()
            if self._depth == len(self.path) - 1:
                break
            self._enter(place, below)
        if self._field.own_key == self._segment.text:
            raise self._make_error("is the key of its item: delete that")
        return self._holder.pop(place)

    def _enter(self, place: str | int, below: Field) -> None:
        self._holder, self._field = self._holder[place], below
        self._depth += 1

    def _find(self) -> tuple[str | int, Field]:
        """Return the name or index of the value at the current path segment, and the field of the value.
        Raises AbsentPath if there is no such value."""
        name = self._segment.text
        if self._field.members and isinstance(self._holder, dict) and name in self._holder:
            return name, self._field.members[name]
        if isinstance(self._field.kind, ListOf) and (place := self._find_item()) is not None:
            return place, self._field.item
        raise AbsentPath(tuple(self.path))

    def _find_member(self) -> tuple[str, Field]:
        """Return the name and the field of the object member at the current path segment. The member may be
        missing in the document. Raises Invalid if the definition has no such member."""
        segment, members = self._segment, self._field.members
        if segment.index is not None or segment.text not in members:
            raise self._make_unknown_error()
        return segment.text, members[segment.text]

    def _find_item(self) -> int | None:
        """Return the index of the list item at the current path segment, or None if there is no such item.
        The segment is an index, the key of an item or, in a list of texts, the text itself. Raises Invalid if
        the segment is an index of the list and also the key of an item."""
        segment, key = self._segment, self._field.key
        texts = [item if key is None else item.get(key) for item in self._holder]
        if segment.index is not None and segment.text in texts:
            raise self._make_ambiguity_error(texts, segment.index)
        if segment.index is None:
            place = texts.index(segment.text) if segment.text in texts else None
        else:
            place = segment.index if segment.index < len(texts) else None
        if place is not None:
            self._name_item(place)
        return place

    def _name_item(self, place: int) -> None:
        """Replace the current path segment by the key of the item at index `place`."""
        if self._field.key is not None:
            self.path[self._depth] = PathSegment(self._holder[place][self._field.key])

    def _append_item(self) -> int:
        """Append an item that has only its key, which is the current path segment. Return the index of the
        item. Raises Invalid if the segment is an index or the key is not valid."""
        key, segment = self._field.key, self._segment
        if key is None or segment.index is not None:
            raise self._make_unknown_error()
        path = format_path((*self.path[: self._depth + 1], PathSegment(key)))
        self._holder.append({key: _convert(self._field.item.members[key], segment.text, path)})
        return len(self._holder) - 1

    def _set_member(self, value: Any) -> tuple[Any, Any]:
        name, below = self._find_member()
        # A copy: a later operation may change a part of it. After the check, which limits the depth of a
        # copy.
        result = copy.deepcopy(_convert(below, value, self.text))
        if name == self._field.own_key and self._holder.get(name) not in (None, result):
            # The new value could be the key of another item.
            raise self._make_error("is the key of its item: delete that, and set another")
        before = self._holder.get(name, ABSENT)
        self._holder[name] = result
        return before, result

    def _set_item(self, value: Any) -> tuple[Any, Any]:
        segment, key, place = self._segment, self._field.key, self._find_item()
        if place is None and segment.index is None and key is None:
            raise self._make_error("must end in an index")
        if place is None and segment.index not in (None, len(self._holder)):
            raise self._make_error(f"must be an index up to {len(self._holder)}, which appends")
        result = copy.deepcopy(_convert(self._field.item, value, self.text))
        if key is not None:
            if segment.index is None:
                result = {key: segment.text, **result}
            self._check_key(key, result, segment, place)
        before = ABSENT if place is None else self._holder[place]
        # An assignment to an empty slice at the end appends.
        place = len(self._holder) if place is None else place
        self._holder[place : place + 1] = [result]
        self._name_item(place)
        return before, result

    def _check_key(self, key: str, item: dict[str, Any], segment: PathSegment, place: int | None) -> None:
        path = f"{self.text}.{key}"
        if item.get(key) is None:
            raise Invalid(Problem(path, "missing", "is required"))
        if segment.index is None and item[key] != segment.text:
            raise Invalid(Problem(path, "invalid", "must be the key that the path names"))
        if any(other[key] == item[key] for number, other in enumerate(self._holder) if number != place):
            raise Invalid(Problem(path, "invalid", "must not be that of another item"))

    def _make_error(self, rule: str, code: str = "invalid") -> Invalid:
        return Invalid(Problem(self.text, code, rule))

    def _make_unknown_error(self) -> Invalid:
        return self._make_error(f"is not a known path{quotes_hint(tuple(self.path))}", "unknown")

    def _make_ambiguity_error(self, keys: Sequence[str], index: int) -> Invalid:
        """Return the error for a path segment that is an index of a list and also one of the `keys` of its
        items."""
        above, text = self.path[: self._depth], self._segment.text
        message = f"{text} is an index here, and also the key of an item, "
        message += format_path((*above, PathSegment(text)))
        if index < len(keys):
            message += f"; at the index is {format_path((*above, PathSegment(keys[index])))}"
        return self._make_error(
            f"{message}: write the key, in quotes; in a shell, put single quotes around the path"
        )


def _convert(field: Field, value: Any, path: str) -> Any:
    """Convert a new value to the JSON value that the document stores. Raises Invalid with the path of each
    problem if the value is not valid."""
    if isinstance(value, str):
        if rule := explain_removal(field, value):
            raise Invalid(Problem(path, "invalid", rule))
        value = _parse_text(field, value)
    if problems := check_staged(field, value, path):
        raise Invalid(*problems)
    return value


def _parse_text(field: Field, text: str) -> Any:
    """Convert a text to the JSON type of a field, because a command line can pass only texts. If the
    conversion fails, return the text unchanged; the check of the value then rejects the text."""
    kind = field.kind
    if field.nullable and text == "null" and not is_removable(field):
        return None
    if isinstance(kind, Flag):
        return _FLAG_VALUES.get(text.lower(), text)
    if isinstance(kind, Seconds):
        with suppress(ValueError):
            return parse_duration(text)
    if isinstance(kind, WholeNumber):
        digits = text.removeprefix("-")
        is_integer = digits.isascii() and digits.isdigit() and len(text) <= _MAX_INTEGER_LENGTH
        return int(text) if is_integer else text
    if isinstance(kind, ListOf | Object):
        with suppress(msgspec.MsgspecError, RecursionError):
            return decode_json(text)
    return text
