"""Lists of records, as operations. Requests for the same whole list of the core share one response body."""

from collections.abc import Callable
from functools import partial, wraps
from operator import attrgetter
from typing import Any, TypeVar, cast

import msgspec
from flask import Response, request

from gateway_api.web import responses
from gateway_api.web.access import ANY_ROLE
from gateway_api.web.compression import Body, add_coding_headers, choose_coding
from gateway_api.web.operation import View, operation
from gateway_api.web.records import make_list_record
from gateway_api.web.request import get_request
from gateway_api.web.schemas.queries import ListQuery, ListSelection, make_list_query
from gateway_api.web.services import get_services
from gateway_contract.contract import Method, PagedMethod, Record, list_field
from gateway_contract.core_client import ListParts

R = TypeVar("R", bound=Record)


def list_operation(
    method: type[PagedMethod[Any]],
    schema: type[ListQuery] | None = None,
    *,
    version: Callable[[], str | None] = lambda: None,
    encode: Callable[[ListParts], bytes] = responses.encode_list,
    **more: Any,
) -> Callable[[Callable[[ListSelection], ListParts]], View]:
    """Make a view of a function that gets a list of the core. `more` is as for `operation`. Without a schema,
    clients select records by all fields that have one value.

    Equal requests for a whole list at the same time share one response body. `version` returns the version of
    the list, or None if that is unknown: requests share the body until there is another version, and a client
    that has this version gets 304."""
    query_schema = cast(type[ListQuery], schema or make_list_query(method))

    def decorate(get_list: Callable[[ListSelection], ListParts]) -> View:
        @wraps(get_list)
        def view(query: ListSelection) -> Response:
            if query.page is not None or query_schema.short_filters & query.filter.keys():
                return responses.make_response(encode(get_list(query)))
            # Nobody repeats a search.
            is_search = "search" in query.filter
            return _respond_with_whole(
                query, lambda: encode(get_list(query)), None if is_search else version()
            )

        return operation(
            ANY_ROLE, query=query_schema, data=(make_list_record(method),), compressed=True, **more
        )(view)

    return decorate


def _respond_with_whole(query: ListSelection, fetch: Callable[[], bytes], version: str | None) -> Response:
    """Respond with a whole list. The version was read before the list, which may be newer."""
    # Weak: responses with the same version may have other bytes.
    etag = None if version is None else {"ETag": f'W/"{version}"'}
    if get_request().has_current(version):
        return responses.make_response(b"", 304, etag)
    coding = choose_coding()
    # The list is compressed once for all clients with this coding.
    key = (request.endpoint, msgspec.json.encode(query, order="sorted"), coding)
    compress = partial(get_services().compressor.encode, coding=coding)
    body, sent = get_services().whole_lists.take(key, lambda: Body(fetch()), version, compress)
    response = add_coding_headers(responses.make_response(body.data, headers=etag), body.coding)
    response.call_on_close(sent)
    return response


def select_records(method: type[Method[R]], reply: R, query: ListSelection) -> R:
    """Return the reply with the records that the query selects, for a list of at most some hundred records,
    which comes whole. In ascending order null comes first."""
    name, sort = list_field(method), query.sort
    records = [
        record
        for record in getattr(reply, name)
        if all(getattr(record, field) == value for field, value in query.filter.items())
    ]
    if sort is not None:
        value_of = attrgetter(sort.removeprefix("-"))
        # None is not comparable.
        records.sort(key=lambda each: (value_of(each) is not None, value_of(each)), reverse=sort[0] == "-")
    return msgspec.structs.replace(reply, **{name: tuple(records), "count": len(records)})
