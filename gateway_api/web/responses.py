"""Responses: their JSON, the pieces of streams, and the headers of all of them."""

from collections.abc import Callable, Iterable
from io import BytesIO
from typing import Any

import msgspec
from flask import Flask, Response, request

from gateway_api.base.http import REQUEST_ID, guards
from gateway_api.web.request import current
from gateway_contract.base.turns import give_way
from gateway_contract.core_client import ListParts

JSON = "application/json"
EVENT_STREAM = "text/event-stream"

# Without it nginx, and proxies that follow its convention, hold events back until a buffer is full.
_UNBUFFERED = {"X-Accel-Buffering": "no"}

_Headers = dict[str, str] | None


def listed(held: ListParts) -> bytes:
    """Return the envelope with a list. Others have their turns between its arrays: a list of 100,000 sessions
    has 40 MB."""
    # Without a copy of the whole: `getvalue` gives the bytes that it has.
    made = BytesIO()
    made.write(b'{"status":"ok","data":{"%s":[' % held.name.encode())
    for number, array in enumerate(held.arrays):
        if number:
            give_way()
            made.write(b",")
        made.write(memoryview(array)[1:-1])
    made.write(b"],")
    made.write(memoryview(msgspec.json.encode(held.others))[1:])
    made.write(b"}")
    return made.getvalue()


def error(status: int, message: str, headers: _Headers = None, **more: Any) -> Response:
    """`{"status":"error","message":...}` and further members."""
    return bare({"status": "error", "message": message, **more}, status, headers)


def bare(document: Any, status: int = 200, headers: _Headers = None) -> Response:
    """JSON without the envelope."""
    return encoded(msgspec.json.encode(document), status, headers)


def encoded(body: bytes, status: int = 200, headers: _Headers = None) -> Response:
    """JSON that is bytes already."""
    return Response(body, status, headers, content_type=JSON)


def stream(open: Callable[[str], Iterable[bytes]]) -> Response:
    """Return the pieces that `open` makes for a client with this address; none for HEAD. The worker gets
    them, and nothing around them that would live as long."""
    pieces = () if request.method == "HEAD" else open(request.remote_addr or "")
    return Response(pieces, mimetype=EVENT_STREAM, headers=_UNBUFFERED, direct_passthrough=True)


def install(app: Flask) -> None:
    """Complete every response. To be called last: the audit log and the metrics get the final status."""

    @app.after_request
    def _complete(response: Response) -> Response:
        """Add the headers of every response, and make it 304 if the client has the content."""
        request = current()
        headers = {REQUEST_ID: request.id, **guards(tls=request.is_secure)}
        if "Cache-Control" in response.headers:
            del headers["Cache-Control"]
        response.headers.extend(headers)
        is_read = response.status_code == 200 and request.method in ("GET", "HEAD")
        if is_read and request.is_conditional and request.has_current(response.get_etag()[0]):
            # werkzeug removes the headers that a 304 must not have (RFC 9110 section 15.4.5).
            response.status_code = 304
        return response
