"""The request that is being served."""

import re
import time
import uuid
from typing import Any, cast

import msgspec
from flask import g, request

from gateway_api.auth.tokens import Claims
from gateway_api.base import http
from gateway_api.web.operation import Operation
from gateway_api.wire.core.configuration import AccessReply

REQUEST_ID = "X-Request-ID"

# Safe in log lines and headers.
_SAFE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)


class Call(msgspec.Struct, gc=False):
    """A request, as far as it is known. `id` is the client's if it is safe, else a new one; `began` is the
    time of `time.perf_counter`. `operation` is None for an unknown path or method."""

    id: str
    began: float
    operation: Operation | None = None
    #: Of the caller's token, which is of ours and in its time. The caller has access once a view runs.
    claims: Claims | None = None
    #: The reply to the access check.
    access: AccessReply | None = None
    #: As it was sent, once it matches its schema.
    body: dict[str, Any] | None = None
    #: The values before and after the change, for the audit log.
    before: Any = None
    after: Any = None
    #: Whether the username in the body is a user's, once that is known.
    names_user: bool | None = None
    #: Whether it is in the audit log.
    is_recorded: bool = False


def current() -> Call:
    """The call of the current request."""
    if "call" not in g:
        given = request.headers.get(REQUEST_ID, "")
        id = given if _SAFE_ID.fullmatch(given) else uuid.uuid4().hex
        g.call = Call(id, time.perf_counter())
    return cast(Call, g.call)


def caller() -> Claims:
    """The caller of this request. In views that require a user's token."""
    return cast(Claims, current().claims)


def author() -> str | None:
    """The user of this request, as the log names it; None before its access check."""
    return cast(str | None, request.environ.get(http.USER))


def identify(username: str, role: str) -> None:
    """Gives the log lines of the current request its user."""
    request.environ |= {http.USER: username, http.ROLE: role}
