"""The id of a request, in its response and its log lines."""

import re
import uuid

from flask import Flask, Response, g, request

HEADER = "X-Request-ID"

# Safe in log lines and headers.
_SANE = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)


def request_id() -> str:
    """The id of the request at hand: the client's own if it is safe, else a new one."""
    if "request_id" not in g:
        given = request.headers.get(HEADER, "")
        g.request_id = given if _SANE.fullmatch(given) else uuid.uuid4().hex
    made: str = g.request_id
    return made


def install(app: Flask) -> None:
    """Adds the id to every response."""

    @app.after_request
    def _carry(response: Response) -> Response:
        response.headers[HEADER] = request_id()
        return response
