"""Construction of responses: JSON bodies, event streams, and the headers of every response."""

from collections.abc import Callable, Iterable
from io import BytesIO
from typing import Any

import msgspec
from flask import Flask, Response, request

from gateway_api.base.http import REQUEST_ID_HEADER, make_security_headers
from gateway_api.web.request import get_request
from gateway_contract.base.turns import give_way
from gateway_contract.core_client import ListParts

JSON = "application/json"
EVENT_STREAM = "text/event-stream"

#: Without this header, nginx and proxies with the same convention delay events until a buffer is full.
_UNBUFFERED_HEADERS = {"X-Accel-Buffering": "no"}

_Headers = dict[str, str] | None


def encode_list(parts: ListParts) -> bytes:
    """Return the JSON envelope of a list. The envelope may have 40 MB, so the function lets other requests
    run between the arrays of the list."""
    # Without a copy of the whole list: `getvalue` returns the bytes of the buffer itself.
    buffer = BytesIO()
    buffer.write(b'{"status":"ok","data":{"%s":[' % parts.name.encode())
    for number, array in enumerate(parts.arrays):
        if number:
            give_way()
            buffer.write(b",")
        buffer.write(memoryview(array)[1:-1])
    buffer.write(b"],")
    buffer.write(memoryview(msgspec.json.encode(parts.others))[1:])
    buffer.write(b"}")
    return buffer.getvalue()


def make_error(status: int, message: str, headers: _Headers = None, **more: Any) -> Response:
    """Return the error response `{"status":"error","message":...}`. `more` are additional members of the JSON
    object."""
    return make_json({"status": "error", "message": message, **more}, status, headers)


def make_json(document: Any, status: int = 200, headers: _Headers = None) -> Response:
    """Return a response whose body is the document as JSON, without an envelope."""
    return make_response(msgspec.json.encode(document), status, headers)


def make_response(body: bytes, status: int = 200, headers: _Headers = None) -> Response:
    """Return a response with the given body, which must be JSON."""
    return Response(body, status, headers, content_type=JSON)


def make_stream(open: Callable[[str], Iterable[bytes]]) -> Response:
    """Return an event stream. `open` gets the address of the client and returns the pieces of the stream. The
    response to a HEAD request has no pieces. The worker gets the pieces without another object around them,
    because such an object would stay in memory as long as the stream."""
    pieces = () if request.method == "HEAD" else open(request.remote_addr or "")
    return Response(pieces, mimetype=EVENT_STREAM, headers=_UNBUFFERED_HEADERS, direct_passthrough=True)


def install(app: Flask) -> None:
    """Register the hook that completes every response. Must be called last, so that the audit log and the
    metrics get the final status."""

    @app.after_request
    def _complete_response(response: Response) -> Response:
        """Add the common headers to the response. If the client already has the content, change the status of
        the response to 304."""
        request = get_request()
        headers = {REQUEST_ID_HEADER: request.id, **make_security_headers(tls=request.is_secure)}
        if "Cache-Control" in response.headers:
            del headers["Cache-Control"]
        response.headers.extend(headers)
        is_read = response.status_code == 200 and request.method in ("GET", "HEAD")
        if is_read and request.is_conditional and request.has_current(response.get_etag()[0]):
            # werkzeug removes the headers that a 304 must not have (RFC 9110 section 15.4.5).
            response.status_code = 304
        return response
