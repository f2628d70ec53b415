"""The request that is being served."""

import random
import re
import secrets
from functools import cached_property
from typing import Any, cast

import flask

from gateway_api.auth.tokens import Claims
from gateway_api.base import http

#: Methods that change nothing (RFC 9110 section 9.2.1).
SAFE = {"GET", "HEAD", "OPTIONS"}
# Safe in log lines and headers.
_SAFE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)


class ApiRequest(flask.Request):
    """A request, with what is known of it so far."""

    #: Whether a client that has the response gets 304.
    is_conditional = True
    #: Of the caller's token, once it has access.
    claims: Claims | None = None
    #: As it was sent, once it matches its schema.
    body: dict[str, Any] | None = None
    #: The values before and after the change, for the audit log.
    before: Any = None
    after: Any = None
    #: Whether the username in the body is a user's, once that is known.
    names_user: bool | None = None
    #: The id of its last call of the core that changes something.
    call_id: str | None = None
    #: Whether the reply to that call was lost.
    is_unanswered = False
    #: Whether it is in the audit log.
    is_recorded = False

    @cached_property
    def id(self) -> str:
        """The client's id if it is safe, else a new one."""
        given = self.environ.get("HTTP_X_REQUEST_ID", "")
        return given if _SAFE_ID.fullmatch(given) else f"{random.getrandbits(128):032x}"

    def new_call_id(self) -> str:
        """Make an id for the next call of the core. Clients may repeat that of a request."""
        self.call_id = secrets.token_hex(16)
        return self.call_id

    @property
    def user(self) -> str | None:
        """The user, as the log names it; None before the access check."""
        return self.environ.get(http.USER)

    def identify(self, username: str, role: str) -> None:
        """Give the log lines of this request its user."""
        self.environ[http.USER], self.environ[http.ROLE] = username, role


def current() -> ApiRequest:
    """Return the current request. `flask.request` stands for it, and looks it up with each use."""
    return cast(ApiRequest, flask.request._get_current_object())  # type: ignore[attr-defined]


def caller() -> Claims:
    """Return the caller of this request. In views that require a user's token."""
    return cast(Claims, current().claims)
