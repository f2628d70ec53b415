"""Lists of records. Requests for the same whole list of the core share one."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec
from flask import Response, request

from gateway_api.core_client.calls import Listed
from gateway_api.core_client.commands import Daemon
from gateway_api.web import headers, responses
from gateway_api.web.compression import Body, marked, wanted
from gateway_api.web.operation import ANY_ROLE, GET, ApiOperation
from gateway_api.web.records import listing
from gateway_api.web.schemas.queries import ListQuery, list_query
from gateway_api.web.services import daemon, parts
from gateway_api.wire.contract import Method, Record, SelectingMethod, list_field

R = TypeVar("R", bound=Record)
_Query = dict[str, Any]


def listed(path: str, method: type[SelectingMethod[Any]], text: str, **more: Any) -> ApiOperation:
    """Lists the records of a method, by queries that select them by their fields."""

    def make(core: Daemon, query: _Query) -> Listed:
        return core.listed(method(**query))

    return shared(path, list_query(method), make, text, data=(listing(method),), **more)


def shared(
    path: str,
    query: type[ListQuery],
    make: Callable[[Daemon, _Query], Listed],
    text: str,
    *,
    name: str = "index",
    version: Callable[[Daemon], str | None] | None = None,
    encode: Callable[[Listed], bytes] = responses.listed,
    **more: Any,
) -> ApiOperation:
    """Lists what `make` gets from the core. Equal requests without a page at the same time share one response
    body. `version` asks the core for the version of the list: requests share the body until there is another
    version, and a client that has it gets 304. It may return None for "not known"."""

    def is_part(wanted: _Query) -> bool:
        return wanted["page"] is not None or query.is_short(wanted["filter"])

    def read(core: Daemon, query: _Query) -> Listed | str | None:
        """A part of the list, or the version of the whole one."""
        if is_part(query):
            return make(core, query)
        # Nobody repeats a search.
        if version is None or "search" in query["filter"]:
            return None
        # Before the list: one that is newer than its version does no harm.
        return version(core)

    def view(found: Listed | str | None, query: _Query) -> Response:
        if isinstance(found, Listed):
            return responses.encoded(encode(found))
        tag = None if found is None else responses.weak_tag(found)
        if headers.if_none_match(tag):
            return responses.unchanged(tag)
        coding = wanted()
        # The list is compressed once for all clients with this coding.
        key = (request.endpoint, msgspec.json.encode(query, order="sorted"), coding)
        body, sent = parts().whole_lists.take(
            key,
            lambda: Body(encode(make(daemon(), query))),
            tag,
            partial(parts().compressor.encode, coding=coding),
        )
        response = marked(responses.encoded(body.data, tag=tag), body.coding)
        response.call_on_close(sent)
        return response

    return GET(path, view, ANY_ROLE, name, text, query=query, read=read, compressed=True, **more)


def selected(method: type[Method[R]], reply: R, filter: Mapping[str, Any], sort: str | None) -> R:
    """The reply with the records that have these values in these fields: of a list of at most some hundred
    records, which comes whole. `sort` is a field, with - before it for descending; null comes first in
    ascending order."""
    name = list_field(method)
    wanted = filter.items()
    records = [each for each in getattr(reply, name) if all(getattr(each, f) == v for f, v in wanted)]
    if sort is not None:
        field = sort.removeprefix("-")
        records.sort(key=lambda each: _key(getattr(each, field)), reverse=field != sort)
    return msgspec.structs.replace(reply, **{name: tuple(records), "count": len(records)})


def _key(value: Any) -> tuple[Any, ...]:
    return (False,) if value is None else (True, value)
