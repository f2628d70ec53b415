"""Exceptions become responses here, and nowhere else.

A client learns what it can correct. Why the core failed, and tracebacks, go to the log with the request's id.
"""

import logging
from collections.abc import Callable
from typing import Any

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from gateway_api.base import logs
from gateway_api.base.errors import (
    AnswerTooLarge,
    AuditUnavailable,
    Conflict,
    CoreAbsent,
    CoreUnavailable,
    Disabled,
    GatewayApiError,
    HubUnavailable,
    Invalid,
    LedgerUnavailable,
    NotAllowed,
    NotAuthenticated,
    NotDone,
    NotFound,
    Stale,
    TooMany,
    TooManyLists,
    WrongCredentials,
)
from gateway_api.base.logs import masked_text
from gateway_api.web import responses
from gateway_api.web.assets import disabled_page
from gateway_api.web.headers import request_id

_log = logging.getLogger(__name__)


def _invalid(error: Invalid) -> Response:
    problems = [{"path": p.path, "code": p.code, "message": p.message} for p in error.problems]
    return responses.error(400, str(error), errors=problems)


def _challenge(detail: str) -> Callable[[GatewayApiError], Response]:
    def respond(_: GatewayApiError) -> Response:
        response = responses.bare({"detail": detail}, 401)
        # RFC 6750 section 3: a 401 names the scheme.
        response.headers["WWW-Authenticate"] = "Bearer"
        return response

    return respond


def _not_allowed(_: NotAllowed) -> Response:
    return responses.bare({"detail": "Admin role required"}, 403)


def _with_text(status: int) -> Callable[[GatewayApiError], Response]:
    return lambda error: responses.error(status, str(error))


def _stale(error: Stale) -> Response:
    response = responses.error(412, str(error))
    response.set_etag(error.etag)
    return response


def _too_many(status: int) -> Callable[[TooMany], Response]:
    def respond(error: TooMany) -> Response:
        response = responses.error(status, str(error))
        response.headers["Retry-After"] = str(error.retry_after)
        return response

    return respond


def _failure(message: Callable[[Any], str], **more: Any) -> Callable[[GatewayApiError], Response]:
    """500, with the reason in the log."""

    def respond(error: GatewayApiError) -> Response:
        _log.error("%s: %s", _request_line(), error, extra=logs.extra(request_id=request_id()))
        return responses.error(500, message(error), **more)

    return respond


_RESPONSES: dict[type[GatewayApiError], Callable[[Any], Response]] = {
    Invalid: _invalid,
    NotAuthenticated: _challenge("Could not validate credentials"),
    WrongCredentials: _challenge("Incorrect username or password"),
    NotAllowed: _not_allowed,
    NotFound: _with_text(404),
    AnswerTooLarge: _with_text(400),
    Conflict: _with_text(409),
    Stale: _stale,
    TooMany: _too_many(429),
    # The requests of all clients cause it, not those of this one.
    TooManyLists: _too_many(503),
    Disabled: lambda error: disabled_page(str(error)) or responses.error(503, str(error)),
    NotDone: _failure(str),
    CoreAbsent: _failure(lambda _: "Core daemon unreachable", hint=CoreAbsent.HINT),
    CoreUnavailable: _failure(lambda _: "Core daemon unreachable"),
    HubUnavailable: _failure(lambda _: "Webhook service unreachable"),
    LedgerUnavailable: _failure(lambda error: error.message),
    AuditUnavailable: _failure(lambda error: f"Cannot {error.verb} the audit log"),
}


def _of_werkzeug(error: HTTPException) -> Response:
    """For an unknown path, a wrong method, or a body over the limit."""
    response = responses.error(error.code or 500, error.name)
    for name, value in error.get_headers():
        if name == "Allow":
            response.headers[name] = value
    return response


def _unexpected(_: Exception) -> Response:
    _log.exception("%s failed", _request_line(), extra=logs.extra(request_id=request_id()))
    return responses.error(500, "Internal error")


def _request_line() -> str:
    return f"{request.method} {masked_text(request.path)}"


def install(app: Flask) -> None:
    """Registers a handler for each exception."""
    for exception, respond in _RESPONSES.items():
        app.register_error_handler(exception, respond)
    app.register_error_handler(HTTPException, _of_werkzeug)
    app.register_error_handler(Exception, _unexpected)
