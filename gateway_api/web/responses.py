"""The JSON of responses, and marks at views that describe their responses for the OpenAPI document."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from flask import Response

from gateway_api.core_client.calls import Listed

View = TypeVar("View", bound=Callable[..., Any])

JSON = "application/json"
EVENT_STREAM = "text/event-stream"
# Without it nginx, and proxies that follow its convention, hold events back until a buffer is full.
UNBUFFERED = {"X-Accel-Buffering": "no"}

_MARK = "__response__"
_Headers = dict[str, str] | None


def ok(data: Any = None, status: int = 200, *, etag: str | None = None) -> Response:
    """`{"status":"ok","data":...}`. `msgspec.Raw` in the data is not parsed again."""
    response = bare({"status": "ok", "data": data}, status)
    if etag is not None:
        response.set_etag(etag)
    return response


def listed(held: Listed) -> Response:
    """`ok` for a list."""
    pieces: list[bytes | memoryview] = [b'{"status":"ok","data":{"%s":[' % held.name.encode()]
    for number, array in enumerate(held.arrays):
        pieces += [b","] if number else []
        pieces.append(memoryview(array)[1:-1])
    others = memoryview(msgspec.json.encode(held.others))[1:]
    # One copy: a list of 100,000 sessions has 40 MB.
    return encoded(b"".join([*pieces, b"],", others, b"}"]))


def error(status: int, message: str, headers: _Headers = None, **more: Any) -> Response:
    """`{"status":"error","message":...}` and further members."""
    return bare({"status": "error", "message": message, **more}, status, headers)


def bare(document: Any, status: int = 200, headers: _Headers = None) -> Response:
    """JSON without the envelope."""
    return encoded(msgspec.json.encode(document), status, headers)


def encoded(body: bytes, status: int = 200, headers: _Headers = None, *, tag: str | None = None) -> Response:
    """JSON that is bytes already, with this entity tag."""
    response = Response(body, status, headers, mimetype=JSON)
    if tag is not None:
        response.headers["ETag"] = tag
    return response


def weak_tag(version: str) -> str:
    """The entity tag of what has a version: responses with the same tag may have other bytes."""
    return f'W/"{version}"'


def unchanged(tag: str | None) -> Response:
    """To a client that has the response with this tag."""
    return encoded(b"", 304, tag=tag)


@dataclass(frozen=True)
class ViewResponse:
    """The response of a view that succeeds.

    `records` are the possible structs of the envelope's data, or of the body if it is `bare`. Without any,
    the data is null, or the body any text. `preview` is the record of a dry run, with 200 instead of
    `status`. `events` are the structs of a stream's events, by event name; they have ids if it is
    `resumable`.
    `headers` are names besides those of every response; `optional` ones need not be there. `conditional`: a
    client that sends the ETag gets 304. `errors` are statuses besides those of every view with this access
    and request."""

    records: tuple[type[msgspec.Struct], ...] = ()
    preview: type[msgspec.Struct] | None = None
    status: int = 200
    media_type: str = JSON
    bare: bool = False
    events: Mapping[str, type[msgspec.Struct]] = field(default_factory=dict)
    resumable: bool = True
    headers: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    errors: tuple[int, ...] = ()
    conditional: bool = True

    def __call__(self, view: View) -> View:
        """Marks the view. The OpenAPI document leaves out views without a mark."""
        setattr(view, _MARK, self)
        return view


def data(*records: type[msgspec.Struct], **more: Any) -> ViewResponse:
    """Marks a view whose response is an envelope with one of the records."""
    return ViewResponse(records, **more)


def response_of(view: Callable[..., Any]) -> ViewResponse | None:
    """The mark of a view."""
    mark: ViewResponse | None = getattr(view, _MARK, None)
    return mark
