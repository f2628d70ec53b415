"""Lists of at most some hundred records, which come whole: they are filtered and sorted here."""

from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from gateway_api.wire.contract import Method, Record, list_field

R = TypeVar("R", bound=Record)


def selected(method: type[Method[R]], reply: R, filter: Mapping[str, Any], sort: str | None) -> R:
    """The reply with the records that have these values in these fields. `sort` is a field, with - before it
    for descending; null comes first in ascending order."""
    name = list_field(method)
    wanted = filter.items()
    records = [each for each in getattr(reply, name) if all(getattr(each, f) == v for f, v in wanted)]
    if sort is not None:
        field = sort.removeprefix("-")
        records.sort(key=lambda each: _key(getattr(each, field)), reverse=field != sort)
    return replace(reply, **{name: tuple(records), "count": len(records)})


def _key(value: Any) -> tuple[Any, ...]:
    return (False,) if value is None else (True, value)
