"""Every change of a user, and every rejection of one, is in the audit log before the response is sent.

A change is a request with any other method than GET. A view for admins is unavailable while the audit log
cannot be written. After the change, the response reports it even if the record could not be written. Requests
without a valid token are counted, and their responses wait for no disk.
"""

import logging
import time
from typing import Any

import msgspec
from flask import Flask, Response, request

from gateway_api.audit.record import AuditEntry, masked, of_session, result_of
from gateway_api.base import http, logs
from gateway_api.base.errors import AuditUnavailable, GatewayApiError
from gateway_api.base.logs import MASK, masked_text
from gateway_api.base.shares import pause
from gateway_api.web.call import current
from gateway_api.web.operation import template
from gateway_api.web.services import parts

_log = logging.getLogger(__name__)

_SAFE = {"GET", "HEAD", "OPTIONS"}
_REJECTIONS = {401, 403, 429}


def note(*, before: Any = None, after: Any = None) -> None:
    """Adds the values before and after the change to the record of the current request: structs, or any JSON.
    Secrets in them are masked."""
    call = current()
    call.before, call.after = msgspec.to_builtins((before, after))


def names_user(*, exists: bool) -> None:
    """Tells whether the username in the body of the current request is a user's."""
    current().names_user = exists


def install(app: Flask) -> None:
    """Records every change and every rejection."""

    @app.after_request
    def _responded(response: Response) -> Response:
        if _is_change() or response.status_code in _REJECTIONS:
            _record(response.status_code, _message(response))
        return response

    @app.teardown_request
    def _broken_off(error: BaseException | None) -> None:
        if _is_change() and not current().is_recorded:
            _record(None, None)


def _is_change() -> bool:
    return request.method not in _SAFE and request.url_rule is not None


def _record(status: int | None, message: str | None) -> None:
    call = current()
    call.is_recorded = True
    role = request.environ.get(http.ROLE)
    result = result_of(status)
    noted = masked({"before": call.before, "after": call.after})
    record = AuditEntry(
        at=round(time.time(), 3),
        user=request.environ.get(http.USER) or _claimed(),
        role=role,
        address=request.remote_addr,
        request_id=call.id,
        method=request.method,
        action=request.endpoint or "",
        route=template(request.url_rule.rule) if request.url_rule else None,
        path=masked_text(request.path),
        status=status,
        result=result,
        message=None if message is None else message + of_session(**noted),
        body=_body(refused=result != "done"),
        **noted,
    )
    try:
        parts().audit.add(record)
    except AuditUnavailable as error:
        more = logs.extra(request_id=call.id, **{logs.RECORD: record.text()})
        _log.critical("not in the audit log: %s", error, extra=more)
    pause()


def _claimed() -> str | None:
    """The username in the body, if there is such a user: any other text may be a password."""
    call = current()
    name = (call.body or {}).get("username")
    if not isinstance(name, str):
        return None
    if call.names_user is None:
        try:
            names_user(exists=parts().daemon.check_access([name]).user(name) is not None)
        except GatewayApiError:
            names_user(exists=False)
    return name if call.names_user else None


def _body(*, refused: bool) -> Any:
    sent = current().body
    if sent is None:
        # A body that does not match its schema may have a secret anywhere.
        return None
    body = masked(sent, refused=refused)
    if "username" in body:
        body["username"] = _claimed() or MASK
    return body


class _Text(msgspec.Struct):
    message: str | None = None


class _Body(_Text):
    """The messages of a response: one of these, or none."""

    detail: str | None = None
    data: _Text | None = None
    errors: list[_Text] = []


def _message(response: Response) -> str | None:
    if not response.is_json:
        return None
    body = msgspec.json.decode(response.get_data(), type=_Body)
    if body.errors:
        # Only the rules: the paths may have names that the client gave.
        return "; ".join(dict.fromkeys(error.message or "" for error in body.errors))
    text = body.message or body.detail or (body.data and body.data.message)
    return masked_text(text) if text else None
