"""Audit records of requests: each change and each rejected request is recorded before the response is sent.

A change is a request with a method that is not safe, such as POST. While the audit log cannot be written,
changes by admins are refused. A completed change is reported to the client even if its record could not be
written. Requests without a valid token are only counted, and their responses do not wait for the disk.
"""

import logging
import time
from typing import Any

import msgspec
from flask import Flask, Response

from gateway_api.audit.record import AuditEntry, derive_result, describe_session, mask_secrets
from gateway_api.base import http
from gateway_api.web.operation import make_path_template
from gateway_api.web.request import SAFE_METHODS, ApiRequest, get_request
from gateway_api.web.services import get_services
from gateway_contract.base import logs
from gateway_contract.base.errors import AuditUnavailable, GatewayApiError
from gateway_contract.base.logs import MASK, mask_text

_log = logging.getLogger(__name__)

_REJECTION_STATUSES = {401, 403, 429}


def note(*, before: Any = None, after: Any = None) -> None:
    """Add the values before and after the change to the audit record of the current request. The values are
    structs or JSON values. Secrets are masked in the record."""
    request = get_request()
    request.before, request.after = msgspec.to_builtins((before, after))


def install(app: Flask) -> None:
    """Register hooks that record every change and every rejected request."""

    @app.after_request
    def _record_response(response: Response) -> Response:
        request = get_request()
        if _is_change(request) or response.status_code in _REJECTION_STATUSES:
            _write_record(request, response.status_code, _read_message(response))
        return response

    @app.teardown_request
    def _record_failure(error: BaseException | None) -> None:
        request = get_request()
        if _is_change(request) and not request.is_recorded:
            _write_record(request, None, None)


def _is_change(request: ApiRequest) -> bool:
    return request.method not in SAFE_METHODS and request.url_rule is not None


def _write_record(request: ApiRequest, status: int | None, message: str | None) -> None:
    request.is_recorded = True
    role = request.environ.get(http.ROLE_KEY)
    result = "unanswered" if request.is_unanswered else derive_result(status)
    values = mask_secrets({"before": request.before, "after": request.after})
    record = AuditEntry(
        at=round(time.time(), 3),
        user=request.user or _find_claimed_user(request),
        role=role,
        address=request.remote_addr,
        request_id=request.id,
        method=request.method,
        action=request.endpoint or "",
        route=make_path_template(request.url_rule.rule) if request.url_rule else None,
        path=mask_text(request.path),
        status=status,
        result=result,
        message=None if message is None else message + describe_session(**values),
        body=_mask_body(request, refused=result != "done"),
        call_id=request.call_id if result == "unanswered" else None,
        **values,
    )
    try:
        get_services().audit.add(record)
    except AuditUnavailable as error:
        extra = logs.make_extra(request_id=request.id, **{logs.RECORD: record.text()})
        _log.critical(
            "a change is not in the audit log, only this log line has its record: %s",
            error,
            extra=extra,
        )


def _find_claimed_user(request: ApiRequest) -> str | None:
    """Return the username in the body of the request if a user with this name exists; otherwise return None,
    because the text may be a password."""
    name = (request.body or {}).get("username")
    if not isinstance(name, str):
        return None
    if request.has_known_username is None:
        try:
            request.has_known_username = get_services().core.check_access([name]).user(name) is not None
        except GatewayApiError:
            request.has_known_username = False
    return name if request.has_known_username else None


def _mask_body(request: ApiRequest, *, refused: bool) -> Any:
    raw_body = request.body
    if raw_body is None:
        # A body that does not match its schema may have a secret anywhere.
        return None
    body = mask_secrets(raw_body, refused=refused)
    if "username" in body:
        body["username"] = _find_claimed_user(request) or MASK
    return body


def _read_message(response: Response) -> str | None:
    if not response.is_json:
        return None
    body = msgspec.json.decode(response.get_data())
    if "errors" in body:
        # Only the rules: paths may have names that the client gave.
        return "; ".join(dict.fromkeys(error["message"] for error in body["errors"]))
    text = body.get("message") or body.get("detail") or (body.get("data") or {}).get("message")
    return mask_text(text) if text else None
