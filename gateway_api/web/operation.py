"""Operations of the API: `operation` turns a function into a view, and a blueprint gives the view its route.

A request passes these steps in order: access, the query, the body, the path variables, the function, the
response. No line of the function runs before the caller has access, and a caller without access learns
nothing about the rest of the request. Exceptions become responses in `web/errors.py`. The OpenAPI document
and the list of routes are generated from the operations. Requests for the same whole list of the core share
one response body.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, partial, wraps
from itertools import chain
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Generic, TypeVar, Union, cast, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec
from flask import Flask, Response
from werkzeug.routing import RequestRedirect

from gateway_api.web import responses
from gateway_api.web.access import ANY_ROLE, Access, require_access
from gateway_api.web.compression import Body, add_coding_headers, choose_coding
from gateway_api.web.parse import SessionIdConverter, parse_body, parse_query, parse_variables
from gateway_api.web.records import make_list_record
from gateway_api.web.request import SAFE_METHODS, ApiRequest, get_request
from gateway_api.web.responses import JSON
from gateway_api.web.schemas.queries import ListQuery, ListSelection, make_list_query
from gateway_api.web.services import get_services
from gateway_contract.base.errors import Moved
from gateway_contract.base.fields import Schema
from gateway_contract.contract import Method, PagedMethod, Record, get_list_field
from gateway_contract.core_client import ListParts

R = TypeVar("R", bound=Record)
T = TypeVar("T")

_VARIABLE_PATTERN = re.compile(r"<(?:\w+:)?(\w+)>")


@dataclass(frozen=True)
class RawJson(Generic[T]):
    """Value of type `T` as JSON. The JSON goes into the response without being parsed."""

    json: msgspec.Raw | Mapping[str, object]


def cast_records(raw: Iterable[msgspec.Raw], record: type[T]) -> tuple[T, ...]:
    """Return JSON records with the type of the struct `record`. The records are not parsed: only the JSON
    encoder may read them."""
    return cast(tuple[T, ...], tuple(raw))


@dataclass(frozen=True)
class WithETag(Generic[T]):
    """Value of type `T` with the entity tag of the value."""

    data: T
    etag: str


@dataclass(frozen=True)
class Created(Generic[T]):
    """New record of type `T` with the path of the record in the API."""

    data: T
    location: str


#: Headers that come with what a view returns.
_HEADERS_BY_TYPE: Mapping[Any, tuple[str, ...]] = {WithETag: ("ETag",), Created: ("Location",)}


@dataclass(frozen=True)
class ApiOperation:
    """Operation of the API: the required access, the arguments of its function in `web/routes/`, and the type
    that the function returns: a struct, None, or a whole Response."""

    function: Callable[..., Any]
    access: Access
    #: Text for the OpenAPI document in place of the function's docstring.
    description: str = ""
    #: Schemas of the query and the body. The function gets the loaded objects as its arguments `query` and
    #: `body`, and the path variables as further arguments. If the body has a struct instead of a schema, the
    #: body is a whole configuration.
    query: type[Schema] | None = None
    body: type[Schema] | type[msgspec.Struct] | None = None
    #: Whether the body may be left out.
    is_body_optional: bool = False
    #: Whether a user whose token is not revoked has access while the core does not reply.
    without_core: bool = False
    #: Possible structs of the envelope's data; by default the structs that the function returns.
    data: tuple[type[msgspec.Struct], ...] | None = None
    #: Struct of the response to a dry run, whose status is 200 instead of `status`.
    preview: type[msgspec.Struct] | None = None
    status: int = 200
    media_type: str = JSON
    #: Whether the data has no envelope.
    is_bare: bool = False
    #: Structs of a stream's events by event name. Events of a resumable stream have ids.
    events: Mapping[str, type[msgspec.Struct]] = field(default_factory=dict)
    is_resumable: bool = True
    #: Response headers that neither every response nor the returned type has, and headers that only some
    #: responses of the operation have.
    extra_headers: tuple[str, ...] = ()
    optional_headers: tuple[str, ...] = ()
    #: Error statuses that do not follow from the access and the request of the operation.
    errors: tuple[int, ...] = ()
    #: Whether a client that sends the current ETag gets 304.
    is_conditional: bool = True
    #: Whether the response may be compressed, because it contains no secret (`web/compression.py`).
    is_compressible: bool = False

    @cached_property
    def records(self) -> tuple[type[msgspec.Struct], ...] | None:
        """Structs that a response may contain. An empty tuple if the data is null or the response is text;
        None if the OpenAPI document leaves the operation out."""
        if self.data is not None:
            return self.data
        if self._return_types == [Response]:
            return None if self.media_type == JSON else ()
        return tuple(
            kind for kind in map(_unwrap, self._return_types) if kind not in (NoneType, self.preview)
        )

    @cached_property
    def headers(self) -> tuple[str, ...]:
        """Names of the response headers that this operation adds to the common headers."""
        return tuple(
            chain(
                self.extra_headers,
                *(_HEADERS_BY_TYPE.get(get_origin(kind), ()) for kind in self._return_types),
            )
        )

    @cached_property
    def _return_types(self) -> list[Any]:
        """Types that the operation's function may return."""
        result = get_type_hints(self.function)["return"]
        return list(get_args(result) if get_origin(result) in (Union, UnionType) else [result])

    @cached_property
    def text(self) -> str:
        """Description of the operation in the OpenAPI document."""
        return inspect.cleandoc(self.description or self.function.__doc__ or "")

    def ignores_query(self, method: str) -> bool:
        """Return True if the query of a request with this method is ignored. Monitors add a query to the
        paths that need no token, to bypass caches."""
        is_open = self.access in (Access.ALWAYS, Access.STATIC, Access.OPEN)
        return is_open and method in SAFE_METHODS and self.query is None


View = Callable[..., Response]


def operation(access: Access, description: str = "", **more: Any) -> Callable[[Callable[..., Any]], View]:
    """Return a decorator that turns a function into a view for the route of a blueprint. `more` are fields of
    ApiOperation:

    @subscribers.get("/<session:id>")
    @operation(ANY_ROLE)
    def show(id: int) -> Passed[SessionDetail]: ...
    """

    def decorate(function: Callable[..., Any]) -> View:
        api_operation = ApiOperation(function, access, description, **more)

        @wraps(function)
        def view(**variables: str) -> Response:
            return _respond(api_operation, variables)

        view.operation = api_operation  # type: ignore[attr-defined]
        return view

    return decorate


def _respond(operation: ApiOperation, variables: dict[str, str]) -> Response:
    request = get_request()
    require_access(operation.access, without_core=operation.without_core)
    if operation.access is Access.ADMIN and request.method not in SAFE_METHODS:
        # While the audit log is unavailable, changes are refused.
        get_services().audit.check()
    arguments = _load_arguments(request, operation, variables)
    response = _make_response(operation, operation.function(**arguments))
    return get_services().compressor.compress(response) if operation.is_compressible else response


def _load_arguments(
    request: ApiRequest, operation: ApiOperation, variables: dict[str, str]
) -> dict[str, Any]:
    """Return the arguments for the operation's function, parsed from the request. `variables` are the
    variables of the path. Raises Invalid if the query or the body is invalid, and NotFound if a variable is
    not a valid number."""
    arguments = {}
    if not operation.ignores_query(request.method):
        query = parse_query(request, operation.query)
        if operation.query is not None:
            arguments["query"] = query
    if operation.body is not None:
        arguments["body"] = parse_body(request, operation.body, optional=operation.is_body_optional)
    return arguments | parse_variables(variables)


def _make_response(operation: ApiOperation, result: Any) -> Response:
    """Return the response for the return value of the operation's function."""
    if isinstance(result, Response):
        return result
    data = result.data if isinstance(result, (WithETag, Created)) else result
    data = data.json if isinstance(data, RawJson) else data
    is_preview = operation.preview is not None and isinstance(data, operation.preview)
    status = 200 if is_preview else operation.status
    response = responses.make_json(data if operation.is_bare else {"status": "ok", "data": data}, status)
    if isinstance(result, WithETag):
        response.set_etag(result.etag)
    if isinstance(result, Created):
        response.headers["Location"] = result.location
    return response


def install(app: Flask) -> None:
    """Register the URL converter of session ids, and a hook that rejects requests for unknown paths."""
    app.url_map.converters["session"] = SessionIdConverter

    @app.before_request
    def _require_route() -> None:
        request = get_request()
        routing_error = request.routing_exception
        if routing_error is None:
            request.is_conditional = _find_operation(app, request.endpoint or "").is_conditional
            return
        # An unknown path is 404 for every caller, once the API is enabled: Flask raises NotFound later.
        require_access(Access.STATIC)
        if isinstance(routing_error, RequestRedirect):
            # Werkzeug's response would contain the Host that the client sent, and a body in HTML.
            raise Moved(urlsplit(routing_error.new_url)._replace(scheme="", netloc="").geturl())


def require_operations(app: Flask) -> None:
    """Check that each view of the application has an operation. Raises RuntimeError for a view without an
    operation."""
    for endpoint in app.view_functions:
        _find_operation(app, endpoint)


def _find_operation(app: Flask, endpoint: str) -> ApiOperation:
    """Return the operation of an endpoint. Raises RuntimeError for a view without an operation."""
    api_operation = getattr(app.view_functions[endpoint], "operation", None)
    if not isinstance(api_operation, ApiOperation):
        raise RuntimeError(f"the view {endpoint} has no operation")
    return api_operation


@dataclass(frozen=True)
class Route:
    """Operation with the method and the OpenAPI path of the operation. `name` is the endpoint,
    `<blueprint>.<view>`."""

    name: str
    method: str
    path: str
    operation: ApiOperation

    @property
    def resource(self) -> str:
        return self.name.partition(".")[0]


def find_routes(app: Flask) -> Iterator[Route]:
    """Yield the routes of the application in the order of their registration. Raises RuntimeError for a view
    without an operation."""
    for rule in app.url_map.iter_rules():
        (method,) = (rule.methods or set()) - SAFE_METHODS or {"GET"}
        yield Route(rule.endpoint, method, make_path_template(rule.rule), _find_operation(app, rule.endpoint))


@cache
def make_path_template(rule: str) -> str:
    """Return the OpenAPI path template of a werkzeug rule: `/subscribers/{id}` for
    `/subscribers/<session:id>` (OpenAPI 3.1 section 4.8.8)."""
    return _VARIABLE_PATTERN.sub(r"{\1}", rule)


def _unwrap(result: Any) -> type[msgspec.Struct]:
    """Return the struct of a return type, without the generic types `RawJson`, `WithETag` and `Created`
    around the struct."""
    while get_origin(result) in (RawJson, *_HEADERS_BY_TYPE):
        (result,) = get_args(result)
    kind: type[msgspec.Struct] = result
    return kind


# Lists


def list_operation(
    method: type[PagedMethod[Any]],
    schema: type[ListQuery] | None = None,
    *,
    version: Callable[[], str | None] = lambda: None,
    encode: Callable[[ListParts], bytes] = responses.encode_list,
    **more: Any,
) -> Callable[[Callable[[ListSelection], ListParts]], View]:
    """Return a decorator that turns a function into a view of a list of the core. `method` is the core's
    method for the list, and `schema` is the schema of the query. By default, clients can filter by each field
    that has a single value. `version` returns the version of the list, or None if the version is unknown.
    `encode` turns the list into JSON. `more` are arguments of `operation`.

    Simultaneous requests for the same whole list share one response body. Later requests also share the body
    until the version changes, and a client that has the current version gets 304."""
    query_schema = cast(type[ListQuery], schema or make_list_query(method))

    def decorate(get_list: Callable[[ListSelection], ListParts]) -> View:
        @wraps(get_list)
        def view(query: ListSelection) -> Response:
            if query.page is not None or query_schema.short_filters & query.filter.keys():
                return responses.make_response(encode(get_list(query)))
            # Searches are rarely repeated, so they are not cached.
            is_search = "search" in query.filter
            return _respond_with_whole_list(
                query, lambda: encode(get_list(query)), None if is_search else version()
            )

        return operation(
            ANY_ROLE, query=query_schema, data=(make_list_record(method),), is_compressible=True, **more
        )(view)

    return decorate


def _respond_with_whole_list(
    query: ListSelection, fetch: Callable[[], bytes], version: str | None
) -> Response:
    """Return the response with the whole list that `fetch` returns as JSON, or a 304 if the client has the
    current version. The version was read before the list, so the list may be newer than the version."""
    # Weak: responses with the same version may have other bytes.
    etag = None if version is None else {"ETag": f'W/"{version}"'}
    if get_request().has_current(version):
        return responses.make_response(b"", 304, etag)
    coding = choose_coding()
    # The list is compressed once for all clients with this coding.
    key = (get_request().endpoint, msgspec.json.encode(query, order="sorted"), coding)
    compress = partial(get_services().compressor.encode, coding=coding)
    body, release = get_services().whole_lists.take(key, lambda: Body(fetch()), version, compress)
    response = add_coding_headers(responses.make_response(body.data, headers=etag), body.coding)
    response.call_on_close(release)
    return response


def select_records(method: type[Method[R]], reply: R, query: ListSelection) -> R:
    """Return the reply with only the records that the query selects, in the order of the query. The reply
    must contain the complete list, so this function is only for lists of at most some hundred records. In
    ascending order, null comes first."""
    name, sort = get_list_field(method), query.sort
    records = [
        record
        for record in getattr(reply, name)
        if all(getattr(record, field) == value for field, value in query.filter.items())
    ]
    if sort is not None:
        get_value = attrgetter(sort.removeprefix("-"))
        # None is not comparable.
        records.sort(key=lambda each: (get_value(each) is not None, get_value(each)), reverse=sort[0] == "-")
    return msgspec.structs.replace(reply, **{name: tuple(records), "count": len(records)})
