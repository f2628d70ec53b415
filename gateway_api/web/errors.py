"""Exceptions become responses here, and nowhere else.

A client learns what it can do something about. Why the core failed, and a traceback of ours, go to
the log under the request's id.
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
    TooManyAttempts,
    TooManyLists,
    TooManyStreams,
    WrongCredentials,
)
from gateway_api.base.logs import masked_text
from gateway_api.web import notice, responses
from gateway_api.web.request_id import request_id

_log = logging.getLogger(__name__)


def _invalid(error: Invalid) -> Response:
    problems = [{"path": p.path, "code": p.code, "message": p.message} for p in error.problems]
    return responses.error(400, str(error), errors=problems)


def _not_authenticated(error: GatewayApiError) -> Response:
    return _challenge("Could not validate credentials")


def _wrong_credentials(error: GatewayApiError) -> Response:
    return _challenge("Incorrect username or password")


def _challenge(detail: str) -> Response:
    response = responses.bare({"detail": detail}, 401)
    # RFC 6750 section 3: a 401 names the scheme that would have worked.
    response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _not_allowed(error: NotAllowed) -> Response:
    return responses.bare({"detail": "Admin role required"}, 403)


def _not_found(error: NotFound) -> Response:
    return responses.error(404, str(error))


def _too_large(error: AnswerTooLarge) -> Response:
    return responses.error(400, str(error))


def _conflict(error: Conflict) -> Response:
    return responses.error(409, str(error))


def _stale(error: Stale) -> Response:
    response = responses.error(412, str(error))
    response.set_etag(error.etag)
    return response


def _not_done(error: NotDone) -> Response:
    _say(error)
    return responses.error(500, str(error))


def _too_many(error: TooMany) -> Response:
    response = responses.error(429, str(error))
    response.headers["Retry-After"] = str(error.retry_after)
    return response


def _too_many_lists(error: TooManyLists) -> Response:
    # Not the caller's doing, as it is with 429: others are asking.
    response = responses.error(503, str(error))
    response.headers["Retry-After"] = str(error.retry_after)
    return response


def _disabled(error: Disabled) -> Response:
    if notice.is_wanted():
        return notice.page(503, str(error))
    return responses.error(503, str(error))


def _core_unavailable(error: CoreUnavailable) -> Response:
    _say(error)
    return responses.error(500, "Core daemon unreachable")


def _core_absent(error: CoreAbsent) -> Response:
    _say(error)
    return responses.error(500, "Core daemon unreachable", hint=error.HINT)


def _hub_unavailable(error: HubUnavailable) -> Response:
    _say(error)
    return responses.error(500, "Webhook service unreachable")


def _audit_unavailable(error: AuditUnavailable) -> Response:
    _say(error)
    return responses.error(500, f"Cannot {error.verb} the audit log")


def _ledger_unavailable(error: LedgerUnavailable) -> Response:
    _say(error)
    return responses.error(500, error.message)


_RESPONSES: dict[type[GatewayApiError], Callable[[Any], Response]] = {
    Invalid: _invalid,
    NotAuthenticated: _not_authenticated,
    WrongCredentials: _wrong_credentials,
    NotAllowed: _not_allowed,
    NotFound: _not_found,
    AnswerTooLarge: _too_large,
    Conflict: _conflict,
    Stale: _stale,
    NotDone: _not_done,
    TooManyAttempts: _too_many,
    TooManyStreams: _too_many,
    TooManyLists: _too_many_lists,
    Disabled: _disabled,
    CoreAbsent: _core_absent,
    CoreUnavailable: _core_unavailable,
    HubUnavailable: _hub_unavailable,
    LedgerUnavailable: _ledger_unavailable,
    AuditUnavailable: _audit_unavailable,
}


def _http(error: HTTPException) -> Response:
    """werkzeug's own: an unknown path, a wrong method, a body over the limit."""
    response = responses.error(error.code or 500, error.name)
    for name, value in error.get_headers():
        if name == "Allow":
            response.headers[name] = value
    return response


def _ours(error: Exception) -> Response:
    where = f"{request.method} {masked_text(request.path)}"
    _log.exception("%s failed", where, extra=logs.extra(request_id=request_id()))
    return responses.error(500, "Internal error")


def _say(error: GatewayApiError) -> None:
    where = f"{request.method} {masked_text(request.path)}"
    _log.error("%s: %s", where, error, extra=logs.extra(request_id=request_id()))


def install(app: Flask) -> None:
    """Has the application answer with these."""
    for exception, respond in _RESPONSES.items():
        app.register_error_handler(exception, respond)
    app.register_error_handler(HTTPException, _http)
    app.register_error_handler(Exception, _ours)
