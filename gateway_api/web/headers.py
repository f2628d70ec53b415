"""What every answer has in its head, and what an answer becomes for a client who has it already."""

from flask import Flask, Response, request

from gateway_api.serving.headers import guards
from gateway_api.web import parse


def install(app: Flask) -> None:
    """Has every response carry them. To be called last: whoever counts or records an answer has to see what
    becomes of it."""

    @app.after_request
    def _guard(response: Response) -> Response:
        for name, value in guards(tls=request.is_secure).items():
            response.headers.setdefault(name, value)
        return response

    @app.after_request
    def _leave_out(response: Response) -> Response:
        may_be_left_out = response.status_code == 200 and request.method in ("GET", "HEAD")
        if may_be_left_out and parse.if_none_match(response.headers.get("ETag")):
            # RFC 9110 section 15.4.5. What its head may not have, werkzeug takes away.
            response.status_code = 304
        return response
