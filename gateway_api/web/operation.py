"""An operation of the API is a row: its path, the access it requires, what it takes and returns, its view.

The route table, the OpenAPI document and the way of a request (`web/endpoint.py`) read the rows.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, cached_property, partial
from itertools import chain
from types import NoneType, UnionType
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import msgspec
from flask import Response

from gateway_api.base.fields import Schema
from gateway_api.core_client.commands import Daemon

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

JSON = "application/json"
EVENT_STREAM = "text/event-stream"

_VARIABLE = re.compile(r"<(?:\w+:)?(\w+)>")


class Access(Enum):
    """Required to call an operation. The static token has the role admin."""

    #: No token, even while the API is disabled.
    ALWAYS = "always"
    #: No token, even while the core is unavailable.
    STATIC = "static"
    #: No token.
    OPEN = "open"
    ANY_ROLE = "any role"
    ADMIN = "admin"


ALWAYS, STATIC, OPEN, ANY_ROLE, ADMIN = Access


@dataclass(frozen=True)
class Passed(Generic[T]):
    """A `T` as JSON, which passes through unparsed."""

    json: msgspec.Raw | Mapping[str, object]


def passed(raw: Iterable[msgspec.Raw], record: type[T]) -> tuple[T, ...]:
    """Such records in a struct, as JSON that passes through unparsed: only the encoder may read them."""
    return cast(tuple[T, ...], tuple(raw))


@dataclass(frozen=True)
class Tagged(Generic[T]):
    """A `T` with its entity tag."""

    data: T
    etag: str


@dataclass(frozen=True)
class Located(Generic[T]):
    """A `T` that is new, with its path."""

    data: T
    location: str


#: Headers that come with what a view returns.
_HEADERS: Mapping[Any, tuple[str, ...]] = {Tagged: ("ETag",), Located: ("Location",)}


@dataclass(frozen=True)
class ApiOperation:
    """The view gets what a request has in its path and, if there are schemas, `body` or `query`. It returns a
    struct, None, or a whole Response. Its docstring is the operation's.

    `read` makes the one call of the core that a view needs, a read. It gets the core, and all that the view
    gets; the view gets its result first. The access check goes to the core in the same exchange, for a caller
    with a token of ours. What the core replies is read only if the caller has access. `without_core`: a
    caller whose token is not revoked has access while the core hangs.

    `name` is that of the view, if not given. A `body` with a struct in place of a schema is any object, which
    the core checks. A body may be `optional`: it is an empty object then.

    `data` are the possible structs of the envelope's data, or of the body if it is `bare`; by default those
    that the view returns. `preview` is the one of a dry run, with 200 instead of `status`. `events` are the
    structs of a stream's events, by event name; they have ids if it is `resumable`.
    `more_headers` are names besides those of every response and of what the view returns; those of `may_have`
    need not be there. `conditional`: a client that sends the ETag gets 304. `errors` are statuses besides
    those of every operation with this access and request. A response that is `compressed` for a client that
    accepts it has no secret (`web/compression.py`)."""

    method: str
    path: str
    view: Callable[..., Any]
    access: Access
    name: str = ""
    text: str = ""
    query: type[Schema] | None = None
    body: type[Schema] | type[msgspec.Struct] | None = None
    optional: bool = False
    read: Callable[..., Any] | None = None
    without_core: bool = False
    data: tuple[type[msgspec.Struct], ...] | None = None
    preview: type[msgspec.Struct] | None = None
    status: int = 200
    media_type: str = JSON
    bare: bool = False
    events: Mapping[str, type[msgspec.Struct]] = field(default_factory=dict)
    resumable: bool = True
    more_headers: tuple[str, ...] = ()
    may_have: tuple[str, ...] = ()
    errors: tuple[int, ...] = ()
    conditional: bool = True
    compressed: bool = False

    @cached_property
    def records(self) -> tuple[type[msgspec.Struct], ...] | None:
        """The possible structs of a response, () for the data null or any text. None for an operation that
        the OpenAPI document leaves out."""
        if self.data is not None:
            return self.data
        if self._returned == [Response]:
            return None if self.media_type == JSON else ()
        return tuple(kind for kind in map(_struct, self._returned) if kind not in (NoneType, self.preview))

    @cached_property
    def headers(self) -> tuple[str, ...]:
        """Names of headers besides those of every response."""
        return tuple(
            chain(self.more_headers, *(_HEADERS.get(get_origin(kind), ()) for kind in self._returned))
        )

    @cached_property
    def _returned(self) -> list[Any]:
        """The types that the view may return."""
        returned = get_type_hints(self.view)["return"]
        return list(get_args(returned) if get_origin(returned) in (Union, UnionType) else [returned])

    @cached_property
    def description(self) -> str:
        return inspect.cleandoc(self.text or self.view.__doc__ or "")

    @cached_property
    def query_loader(self) -> Schema | None:
        return self.query() if self.query else None

    @cached_property
    def body_loader(self) -> Schema | None:
        return self.body() if self.body and issubclass(self.body, Schema) else None

    @property
    def ignores_query(self) -> bool:
        """True if any query is ignored: monitors add a query to open paths, so that no cache replies."""
        return self.method == "GET" and self.query is None and self.access in (ALWAYS, STATIC, OPEN)

    @property
    def is_audited_change(self) -> bool:
        """Whether it is unavailable while the audit log is."""
        return self.access is Access.ADMIN and self.method != "GET"


POST, PUT, DELETE = (partial(ApiOperation, method) for method in ("POST", "PUT", "DELETE"))


@overload
def GET(
    path: str,
    view: Callable[..., Any],
    access: Access,
    name: str = ...,
    text: str = ...,
    *,
    read: None = ...,
    **more: Any,
) -> ApiOperation: ...


@overload
def GET(
    path: str,
    view: Callable[Concatenate[R, P], Any],
    access: Access,
    name: str = ...,
    text: str = ...,
    *,
    read: Callable[Concatenate[Daemon, P], R],
    **more: Any,
) -> ApiOperation: ...


def GET(*row: Any, **more: Any) -> ApiOperation:
    """An operation that changes nothing. If it has a read, the view's first parameter is what that returns,
    and the others are the same."""
    return ApiOperation("GET", *row, **more)


class Routes:
    """The operations of one resource, whose paths begin with `prefix`."""

    def __init__(self, name: str, prefix: str, *operations: ApiOperation) -> None:
        self.name = name
        self.prefix = prefix
        self.operations = operations

    def rows(self) -> Iterator[tuple[str, str, ApiOperation]]:
        """The name, which the audit log and the document have, and the whole path of each operation."""
        for each in self.operations:
            yield f"{self.name}.{each.name or each.view.__name__}", f"{self.prefix}{each.path}", each


def variables(path: str) -> list[str]:
    """The names of the variable parts of werkzeug's path."""
    return _VARIABLE.findall(path)


@cache
def template(rule: str) -> str:
    """werkzeug's `/subscribers/<session:id>` as OpenAPI's `/subscribers/{id}` (OpenAPI 3.1 section 4.8.8)."""
    return _VARIABLE.sub(r"{\1}", rule)


def _struct(returned: Any) -> type[msgspec.Struct]:
    """The struct that a view returns, without what is around it."""
    while get_origin(returned) in (Passed, *_HEADERS):
        (returned,) = get_args(returned)
    kind: type[msgspec.Struct] = returned
    return kind
