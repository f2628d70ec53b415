"""Partial configurations: JSON merge patches (RFC 7396) over the configuration of a gateway.

Objects merge, null deletes, and any other value replaces, also a whole list. Where the configuration has a
list whose items have keys, an object merges the items by their keys, as in the paths of the API. A secret
cannot be compared, because a gateway shows a mask in its place.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from gateway_client.errors import ExitStatus
from gateway_client.gateway import Record
from gateway_contract.base.logs import MASK
from gateway_contract.base.texts import PathSegment, Segments, format_path, parse_duration, parse_path
from gateway_contract.configuration import ROOT, Field, Leaf, ListOf, Object, Seconds, mask_secrets
from gatewayctl.errors import CommandError


class Absent:
    """Type of `ABSENT`, the value of a path that a configuration does not have."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent()


class Change(NamedTuple):
    """Value of a configuration that differs from a patch, or that has secrets. `expected` is the value after
    the patch, and `actual` the present value with masked secrets; both may be ABSENT."""

    path: Segments
    field: Field
    expected: Any
    actual: Any

    @property
    def operation(self) -> Record:
        """Operation of an edit that makes the change."""
        path = format_path(self.path)
        if self.expected is ABSENT:
            return {"op": "delete", "path": path}
        return {"op": "set", "path": path, "value": self.expected}

    @property
    def masked_expected(self) -> Any:
        """`expected` with masked secrets."""
        return self.expected if self.expected is ABSENT else mask_secrets(self.expected, self.field)

    @property
    def is_visible(self) -> bool:
        """True if the values differ. False if only secrets may differ, which cannot be compared."""
        return bool(normalize(self.masked_expected, self.field) != normalize(self.actual, self.field))


def compare(patch: Record, document: Record) -> list[Change]:
    """Return the changes that a patch makes to the configuration `document`, whose secrets are masked. A
    value with secrets is always among the changes. Raises CommandError if the patch has a mask as a value, or
    a name that cannot be part of a path."""
    _check(patch, ())
    return list(_compare(patch, document, ROOT, ()))


def _compare(patch: Any, actual: Any, field: Field, path: Segments) -> Iterator[Change]:
    if patch is None:
        is_null = field.nullable and field.required
        if actual not in (ABSENT, None):
            yield Change(path, field, None if is_null else ABSENT, actual)
    elif isinstance(patch, dict) and field.key is not None:
        items = {item[field.key]: item for item in actual or ()} if isinstance(actual, list) else {}
        for name, member in patch.items():
            below = (*path, PathSegment(name))
            if isinstance(member, dict) and name not in items:
                yield Change(below, field.item, _create_item(member, field, name), ABSENT)
            else:
                yield from _compare(member, items.get(name, ABSENT), field.item, below)
    elif isinstance(patch, dict) and not isinstance(field.kind, ListOf):
        members = actual if isinstance(actual, dict) else {}
        for name, member in patch.items():
            below = (*path, PathSegment(name))
            yield from _compare(member, members.get(name, ABSENT), field.below(name), below)
    elif not _is_same(patch, actual, field):
        yield Change(path, field, patch, actual)


def _create_item(patch: Record, field: Field, key: str) -> Record:
    """Return a new item of the list `field`. A null member of the patch stays null if the member is required,
    and is left out otherwise."""
    members = {
        name: member
        for name, member in patch.items()
        if member is not None or field.item.below(name).required
    }
    return {str(field.key): key, **members}


def _check(value: Any, path: Segments) -> None:
    """Raise CommandError if a value of a patch has a mask, or a name that cannot be part of a path."""
    try:
        if path:
            parse_path(format_path(path))
    except ValueError as error:
        raise CommandError(ExitStatus.USAGE, f"{format_path(path)}: {error}") from error
    if value == MASK:
        reason = f"{format_path(path)}: must be a value, not the mask that hides one"
        raise CommandError(ExitStatus.USAGE, reason)
    if isinstance(value, dict):
        for name, member in value.items():
            _check(member, (*path, PathSegment(name)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check(item, (*path, PathSegment(str(index), index)))


def _is_same(expected: Any, actual: Any, field: Field) -> bool:
    """Return True if a value without secrets is the present value, or the default of a missing value."""
    if mask_secrets(expected, field) != expected:
        return False
    wanted = normalize(expected, field)
    if actual is not ABSENT:
        return bool(wanted == normalize(actual, field))
    if field.required or isinstance(field.kind, Object):
        return False
    return bool(wanted == (list(field.default) if isinstance(field.default, tuple) else field.default))


def normalize(value: Any, field: Field) -> Any:
    """Return a value of the configuration in a form in which equal values are equal: 5m is 300 seconds, and
    100mbit is 100 Mbit/s."""
    if isinstance(value, dict):
        return {name: normalize(member, field.below(name)) for name, member in value.items()}
    if isinstance(value, list):
        return [normalize(item, field.item) for item in value]
    if value is None or value is ABSENT or value == MASK or not isinstance(field.kind, Leaf):
        return value
    try:
        is_duration = isinstance(field.kind, Seconds) and isinstance(value, str)
        return field.kind.load(parse_duration(value) if is_duration else value)
    except ValueError:
        # In a tuple, so that a value of the wrong type, such as true, is not equal to another value, 1.
        return ("invalid", value)
