"""Headers of every response, and 304 for a client that has the response already."""

from flask import Flask, Response, request

from gateway_api.base.http import guards
from gateway_api.web import parse
from gateway_api.web.responses import response_of


def install(app: Flask) -> None:
    """To be called last: metrics and the audit log must see the final status."""

    @app.after_request
    def _guard(response: Response) -> Response:
        for name, value in guards(tls=request.is_secure).items():
            response.headers.setdefault(name, value)
        return response

    @app.after_request
    def _leave_out(response: Response) -> Response:
        is_read = response.status_code == 200 and request.method in ("GET", "HEAD")
        marked = response_of(app.view_functions[request.endpoint]) if request.endpoint else None
        may_be_left_out = is_read and (marked is None or marked.conditional)
        if may_be_left_out and parse.if_none_match(response.headers.get("ETag")):
            # RFC 9110 section 15.4.5. werkzeug removes the headers that it must not have.
            response.status_code = 304
        return response
