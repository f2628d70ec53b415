"""Every request has an id, which its answer and its log lines carry."""

import re
import uuid

from flask import Flask, Response, g, request

HEADER = "X-Request-ID"

# What can't break a log line or a header, whoever reads it.
_SANE = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)


def request_id() -> str:
    """The id of the request at hand: the caller's own if it is sane, else a new one."""
    if "request_id" not in g:
        given = request.headers.get(HEADER, "")
        g.request_id = given if _SANE.fullmatch(given) else uuid.uuid4().hex
    made: str = g.request_id
    return made


def install(app: Flask) -> None:
    """Has every response carry the id."""

    @app.after_request
    def _carry(response: Response) -> Response:
        response.headers[HEADER] = request_id()
        return response
