"""The fields by which a list can be filtered and sorted: those of its records that have one value."""

from collections.abc import Mapping, Sequence
from functools import cache
from types import NoneType
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from msgspec import Meta

from gateway_api.wire.contract import Enumeration, Method, list_field, reply_of


class Column(NamedTuple):
    """A field of a record. `type` is int, str or an Enumeration; null has none of them."""

    type: type[Any]
    description: str
    examples: Sequence[Any]


@cache
def columns(method: type[Method[Any]]) -> Mapping[str, Column]:
    """By name, of the records that a method lists."""
    (record, _) = get_args(get_type_hints(reply_of(method))[list_field(method)])
    hints = get_type_hints(record, include_extras=True)
    found = {name: _column(hints[name]) for name in record.__struct_fields__}
    return {name: column for name, column in found.items() if column is not None}


def _column(hint: Any) -> Column | None:
    kind, *metas = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    values = [each for each in get_args(kind) or (kind,) if each is not NoneType]
    if len(values) != 1 or not _is_plain(values[0]):
        return None
    meta: Meta = metas[-1]
    return Column(
        values[0], meta.description or "", [each for each in meta.examples or () if each is not None]
    )


def _is_plain(kind: Any) -> bool:
    return kind in (int, str) or (isinstance(kind, type) and issubclass(kind, Enumeration))
