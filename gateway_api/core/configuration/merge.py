"""Three configurations as one: what two sides have made of a common one."""

from typing import Any

from marshmallow.fields import Nested

from gateway_api.core.configuration.fields import key_of
from gateway_api.core.configuration.schema import Configuration

_ROOT = Nested(Configuration)
_NOTHING = object()


def merged(base: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """`theirs`, with all that `ours` has other than `base`. Where both have changed a value, ours counts.
    Items of keyed lists are told apart by their keys; any other list is one value."""
    made: dict[str, Any] = _merged(base, ours, theirs, _ROOT)
    return made


def _merged(base: Any, ours: Any, theirs: Any, field: Any) -> Any:
    if ours == base:
        return theirs
    if theirs in (base, ours):
        return ours
    sides = (base, ours, theirs)
    if isinstance(field, Nested) and all(isinstance(side, dict) for side in sides):
        return _members(base, ours, theirs, field.schema.fields)
    key = key_of(field)
    if key is not None and all(isinstance(side, list) for side in sides):
        was, mine, other = ({item[key]: item for item in side} for side in sides)
        return list(_members(was, mine, other, dict.fromkeys((*mine, *other), field.inner)).values())
    return ours


def _members(
    base: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any], fields: dict[str, Any]
) -> dict[str, Any]:
    made = {}
    for name in dict.fromkeys((*ours, *theirs)):
        was, mine, other = (side.get(name, _NOTHING) for side in (base, ours, theirs))
        made[name] = _merged(was, mine, other, fields.get(name))
    return {name: value for name, value in made.items() if value is not _NOTHING}
