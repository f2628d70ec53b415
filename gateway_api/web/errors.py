"""Exceptions become responses here, and nowhere else.

A client learns what it can correct. Why the core failed, and tracebacks, go to the log with the request's id.
"""

import logging
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from gateway_api.web import responses
from gateway_api.web.request import SAFE_METHODS, current
from gateway_api.web.routes.pages import show_disabled
from gateway_contract.base import errors, logs
from gateway_contract.base.logs import masked_text

_log = logging.getLogger(__name__)

_WEAK_TAG = (
    "If-Match has a weak entity tag (W/), which never matches (RFC 9110 section 13.1.1); a proxy may have "
    "made it weak, for example to compress the response. Send the tag without W/"
)


def _challenge(detail: str) -> Callable[[errors.GatewayApiError], Response]:
    # RFC 6750 section 3: a 401 names the scheme.
    return lambda _: responses.bare({"detail": detail}, 401, {"WWW-Authenticate": "Bearer"})


def _with_text(status: int) -> Callable[[errors.GatewayApiError], Response]:
    return lambda error: responses.error(status, str(error))


def _stale(error: errors.Stale) -> Response:
    has_strong_tag = current().required_etags() != []
    response = responses.error(412, str(error) if has_strong_tag else _WEAK_TAG)
    response.set_etag(error.etag)
    return response


def _too_many(status: int) -> Callable[[errors.TooMany | errors.SearchTooLong], Response]:
    return lambda error: responses.error(status, str(error), {"Retry-After": str(error.retry_after)})


def _busy(error: errors.CoreBusy) -> Response:
    """As when the worker has no room for the list: for a client it is the same."""
    _log.warning("%s: %s", _request_line(), error, extra=logs.extra(request_id=current().id))
    return _too_many(503)(errors.TooManyLists())


def _failure(
    message: Callable[[Any], str], logged: Callable[[Any], str] = str, **more: Any
) -> Callable[[errors.GatewayApiError], Response]:
    """500, with the reason in the log."""

    def respond(error: errors.GatewayApiError) -> Response:
        _log.error("%s: %s", _request_line(), logged(error), extra=logs.extra(request_id=current().id))
        return responses.error(500, message(error), **more)

    return respond


def _unanswered(error: errors.CoreUnanswered) -> Response:
    current().is_unanswered = True
    return _failure(lambda _: "Core daemon unreachable")(error)


_RESPONSES: dict[type[errors.GatewayApiError], Callable[[Any], Response]] = {
    errors.Invalid: lambda error: responses.error(400, str(error), errors=error.problems),
    errors.NotAuthenticated: _challenge("Could not validate credentials"),
    errors.WrongCredentials: _challenge("Incorrect username or password"),
    errors.NotAllowed: lambda _: responses.bare({"detail": "Admin role required"}, 403),
    errors.NotFound: _with_text(404),
    errors.Moved: lambda error: responses.error(308, str(error), {"Location": error.to}),
    errors.ListTooLarge: _with_text(400),
    errors.Conflict: _with_text(409),
    errors.Stale: _stale,
    errors.TooMany: _too_many(429),
    # The requests of all clients cause it, not those of this one.
    errors.TooManyLists: _too_many(503),
    errors.SearchTooLong: _too_many(503),
    errors.Disabled: lambda error: show_disabled(str(error)) or responses.error(503, str(error)),
    errors.StepFailed: _failure(attrgetter("sentence"), attrgetter("sentence")),
    errors.StillConnected: _failure(str),
    errors.CoreAbsent: _failure(lambda _: "Core daemon unreachable", hint=errors.CoreAbsent.HINT),
    errors.CoreBusy: _busy,
    errors.CoreUnanswered: _unanswered,
    errors.CoreLacksMethod: _with_text(501),
    errors.CoreUnavailable: _failure(lambda _: "Core daemon unreachable"),
    errors.HubUnavailable: _failure(lambda _: "Webhook service unreachable"),
    errors.LedgerUnavailable: _failure(lambda error: error.message),
    errors.HistoryUnavailable: _failure(lambda _: "Cannot read the history"),
    errors.AuditUnavailable: _failure(lambda error: f"Cannot {error.verb} the audit log"),
}


def _of_werkzeug(error: HTTPException) -> Response:
    """For an unknown path, a wrong method, or a body over the limit."""
    # In a fixed order: that of werkzeug changes with each process.
    allowed = sorted(
        getattr(error, "valid_methods", None) or (), key=lambda method: (method not in SAFE_METHODS, method)
    )
    return responses.error(error.code or 500, error.name, {"Allow": ", ".join(allowed)} if allowed else None)


def _unexpected(_: Exception) -> Response:
    _log.exception("%s failed", _request_line(), extra=logs.extra(request_id=current().id))
    return responses.error(500, "Internal error")


def _request_line() -> str:
    return f"{request.method} {masked_text(request.path)}"


def install(app: Flask) -> None:
    """Register a handler for each exception."""
    for exception, respond in _RESPONSES.items():
        app.register_error_handler(exception, respond)
    app.register_error_handler(HTTPException, _of_werkzeug)
    app.register_error_handler(Exception, _unexpected)
