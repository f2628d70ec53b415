"""Lists of records. Requests for the same whole list of the core share one."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar, cast

import msgspec
from flask import Response, request

from gateway_api.web import responses
from gateway_api.web.access import ANY_ROLE
from gateway_api.web.compression import Body, marked, wanted
from gateway_api.web.operation import View, operation
from gateway_api.web.records import listing
from gateway_api.web.request import current
from gateway_api.web.schemas.queries import ListQuery, ListSelection, make_list_query
from gateway_api.web.services import services
from gateway_contract.contract import Method, PagedMethod, Record, list_field
from gateway_contract.core_client import ListParts

R = TypeVar("R", bound=Record)


def list_operation(
    method: type[PagedMethod[Any]],
    schema: type[ListQuery] | None = None,
    *,
    version: Callable[[], str | None] = lambda: None,
    encode: Callable[[ListParts], bytes] = responses.listed,
    **more: Any,
) -> Callable[[Callable[[ListSelection], ListParts]], View]:
    """Decorate a function that gets a list of the core: the view responds with the list. `more` is as for
    `operation`. Without a schema, clients select records by all fields that have one value.

    Equal requests for a whole list at the same time share one response body. `version` returns the version of
    the list, or None if it is unknown: requests share the body until there is another version, and a client
    that has it gets 304."""
    query_schema = cast(type[ListQuery], schema or make_list_query(method))

    def decorate(get_list: Callable[[ListSelection], ListParts]) -> View:
        @wraps(get_list)
        def view(query: ListSelection) -> Response:
            if query.page is not None or query_schema.is_short(query.filter):
                return responses.encoded(encode(get_list(query)))
            # Nobody repeats a search.
            is_search = "search" in query.filter
            return _whole(query, lambda: encode(get_list(query)), None if is_search else version())

        return operation(ANY_ROLE, query=query_schema, data=(listing(method),), compressed=True, **more)(view)

    return decorate


def _whole(query: ListSelection, make: Callable[[], bytes], version: str | None) -> Response:
    """Respond with a whole list. Its version was read before the list: a list that is newer than its version
    does no harm."""
    # Weak: responses with the same version may have other bytes.
    etag = None if version is None else {"ETag": f'W/"{version}"'}
    if current().has_current(version):
        return responses.encoded(b"", 304, etag)
    coding = wanted()
    # The list is compressed once for all clients with this coding.
    key = (request.endpoint, msgspec.json.encode(query, order="sorted"), coding)
    compress = partial(services().compressor.encode, coding=coding)
    body, sent = services().whole_lists.take(key, lambda: Body(make()), version, compress)
    response = marked(responses.encoded(body.data, headers=etag), body.coding)
    response.call_on_close(sent)
    return response


def select_records(method: type[Method[R]], reply: R, query: ListSelection) -> R:
    """Return the reply with the records that the query selects: of a list of at most some hundred records,
    which comes whole. In ascending order null comes first."""
    name, sort = list_field(method), query.sort
    wanted = query.filter.items()
    records = [each for each in getattr(reply, name) if all(getattr(each, f) == v for f, v in wanted)]
    if sort is not None:
        field = sort.removeprefix("-")
        # None is not comparable.
        records.sort(
            key=lambda each: (getattr(each, field) is not None, getattr(each, field)), reverse=field != sort
        )
    return msgspec.structs.replace(reply, **{name: tuple(records), "count": len(records)})
