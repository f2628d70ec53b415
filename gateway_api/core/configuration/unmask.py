"""A whole configuration as somebody sends it who has read one: with the mask where the secrets were."""

from typing import Any

from marshmallow.fields import List, Nested

from gateway_api.base.errors import Invalid, Problem
from gateway_api.base.fields import MOST_PROBLEMS
from gateway_api.base.redact import MASK, is_secret
from gateway_api.core.configuration.fields import key_of
from gateway_api.core.configuration.schema import Configuration

_ROOT = Nested(Configuration)


def unmasked(document: dict[str, Any], running: dict[str, Any]) -> dict[str, Any]:
    """A copy of any JSON, in which a mask has become the secret that runs at its place; the items of keyed
    lists go by their keys. Raises Invalid where none does: a mask never becomes a value itself."""
    problems: list[Problem] = []
    made: dict[str, Any] = _unmasked(document, running, _ROOT, "", problems)
    if problems:
        raise Invalid(*problems[:MOST_PROBLEMS])
    return made


def _unmasked(value: Any, before: Any, field: Any, path: str, problems: list[Problem]) -> Any:
    """`before` is what runs at the place, None if nothing does. What the schema doesn't know stays."""
    if isinstance(field, Nested) and isinstance(value, dict):
        held = before if isinstance(before, dict) else {}
        fields = field.schema.fields
        return {
            name: _unmasked(below, held.get(name), fields.get(name), f"{path}.{name}".lstrip("."), problems)
            for name, below in value.items()
        }
    if isinstance(field, List) and isinstance(value, list):
        key = key_of(field)
        items = {item[key]: item for item in before or ()} if key else {}
        return [
            _unmasked(item, items.get(_text(item, key)), field.inner, f"{path}.{number}", problems)
            for number, item in enumerate(value)
        ]
    if field is None or value != MASK:
        return value
    if isinstance(before, str) and is_secret(path.rpartition(".")[2]):
        return before
    problems.append(Problem(path, "invalid", "must be a value: the mask hides nothing that runs here"))
    return value


def _text(item: Any, key: str | None) -> str | None:
    """The key of what may be an item."""
    held = item.get(key) if isinstance(item, dict) else None
    return held if isinstance(held, str) else None
