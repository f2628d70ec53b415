"""Handlers that turn exceptions into responses. No other module does this.

A response tells the client what the client can correct. The core's reasons and tracebacks go to the log, with
the id of the request.
"""

import logging
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from gateway_api.web import responses
from gateway_api.web.request import SAFE_METHODS, get_request, make_log_extra
from gateway_api.web.routes.pages import show_disabled
from gateway_contract.base import errors
from gateway_contract.base.logs import mask_text

_log = logging.getLogger(__name__)

_WEAK_TAG_MESSAGE = (
    "If-Match has a weak entity tag (W/), which never matches (RFC 9110 section 13.1.1); a proxy may have "
    "made it weak, for example to compress the response. Send the tag without W/"
)


def _make_challenge(detail: str) -> Callable[[errors.GatewayApiError], Response]:
    # RFC 6750 section 3: a 401 names the scheme.
    return lambda _: responses.make_json({"detail": detail}, 401, {"WWW-Authenticate": "Bearer"})


def _respond_with_text(status: int) -> Callable[[errors.GatewayApiError], Response]:
    return lambda error: responses.make_error(status, str(error))


def _report_stale(error: errors.Stale) -> Response:
    has_strong_tag = get_request().read_required_etags() != []
    response = responses.make_error(412, str(error) if has_strong_tag else _WEAK_TAG_MESSAGE)
    response.set_etag(error.etag)
    return response


def _ask_to_retry(status: int) -> Callable[[errors.TooMany | errors.SearchTooLong], Response]:
    return lambda error: responses.make_error(status, str(error), {"Retry-After": str(error.retry_after)})


def _report_busy(error: errors.CoreBusy) -> Response:
    """Respond with 503 because the core is too busy to send a list, and log the core's reason."""
    _log.warning("%s failed: %s", _format_request_line(), error, extra=make_log_extra())
    return _ask_to_retry(503)(errors.TooManyLists())


def _log_and_hide(
    message: Callable[[Any], str], log_text: Callable[[Any], str] = str, **more: Any
) -> Callable[[errors.GatewayApiError], Response]:
    """Return an exception handler that responds with 500 and the text that `message` returns for the
    exception. The handler logs the text that `log_text` returns, which the client does not see."""

    def respond(error: errors.GatewayApiError) -> Response:
        _log.error("%s failed: %s", _format_request_line(), log_text(error), extra=make_log_extra())
        return responses.make_error(500, message(error), **more)

    return respond


def _report_unanswered(error: errors.CoreUnanswered) -> Response:
    get_request().is_unanswered = True
    return _log_and_hide(lambda _: "Core daemon unreachable")(error)


_HANDLERS: dict[type[errors.GatewayApiError], Callable[[Any], Response]] = {
    errors.Invalid: lambda error: responses.make_error(400, str(error), errors=error.problems),
    errors.NotAuthenticated: _make_challenge("Could not validate credentials"),
    errors.WrongCredentials: _make_challenge("Incorrect username or password"),
    errors.NotAllowed: lambda _: responses.make_json({"detail": "Admin role required"}, 403),
    errors.NotFound: _respond_with_text(404),
    errors.Moved: lambda error: responses.make_error(308, str(error), {"Location": error.to}),
    errors.ListTooLarge: _respond_with_text(400),
    errors.Conflict: _respond_with_text(409),
    errors.Stale: _report_stale,
    errors.TooMany: _ask_to_retry(429),
    # All clients together cause this error, so the status is not 429.
    errors.TooManyLists: _ask_to_retry(503),
    errors.SearchTooLong: _ask_to_retry(503),
    errors.Disabled: lambda error: show_disabled(str(error)) or responses.make_error(503, str(error)),
    errors.StepFailed: _log_and_hide(attrgetter("sentence"), attrgetter("sentence")),
    errors.StillConnected: _log_and_hide(str),
    errors.CoreAbsent: _log_and_hide(lambda _: "Core daemon unreachable", hint=errors.CoreAbsent.HINT),
    errors.CoreBusy: _report_busy,
    errors.CoreUnanswered: _report_unanswered,
    errors.CoreLacksMethod: _respond_with_text(501),
    errors.CoreUnavailable: _log_and_hide(lambda _: "Core daemon unreachable"),
    errors.HubUnavailable: _log_and_hide(lambda _: "Webhook service unreachable"),
    errors.LedgerUnavailable: _log_and_hide(lambda error: error.message),
    errors.HistoryUnavailable: _log_and_hide(lambda _: "Cannot read the history"),
    errors.AuditUnavailable: _log_and_hide(lambda error: f"Cannot {error.verb} the audit log"),
}


def _report_http(error: HTTPException) -> Response:
    """Respond to an unknown path, a wrong method, or a body over the limit."""
    # Sorted, because werkzeug's order differs between processes.
    allowed = sorted(
        getattr(error, "valid_methods", None) or (), key=lambda method: (method not in SAFE_METHODS, method)
    )
    return responses.make_error(
        error.code or 500, error.name, {"Allow": ", ".join(allowed)} if allowed else None
    )


def _report_unexpected(_: Exception) -> Response:
    _log.exception("%s failed", _format_request_line(), extra=make_log_extra())
    return responses.make_error(500, "Internal error")


def _format_request_line() -> str:
    return f"{request.method} {mask_text(request.path)}"


def install(app: Flask) -> None:
    """Register the handler of each exception type."""
    for exception, respond in _HANDLERS.items():
        app.register_error_handler(exception, respond)
    app.register_error_handler(HTTPException, _report_http)
    app.register_error_handler(Exception, _report_unexpected)
