"""The request that is being served."""

import random
import re
import secrets
from functools import cached_property
from typing import Any, cast

import flask

from gateway_api.auth.tokens import Claims
from gateway_api.base import http
from gateway_api.events import EventId, parse_id
from gateway_contract.base import logs
from gateway_contract.base.errors import Invalid, Problem

#: Methods that change nothing (RFC 9110 section 9.2.1).
SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}
#: An id that is safe in log lines and headers.
_SAFE_ID_PATTERN = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)
#: An entity tag (RFC 9110 section 8.8.3), and a list of at least one (section 5.6.1).
_ENTITY_TAG_PATTERN = r'(?:W/)?"[!#-~\x80-\xff]*"'
ENTITY_TAGS_PATTERN = rf"[ \t,]*{_ENTITY_TAG_PATTERN}(?:[ \t]*,[ \t,]*{_ENTITY_TAG_PATTERN})*[ \t,]*"


class ApiRequest(flask.Request):
    """HTTP request with the caller, and with the values that the audit record of the request needs."""

    #: Whether a client that sends the current entity tag gets 304.
    is_conditional = True
    #: Claims of the caller's token; None before the access check.
    claims: Claims | None = None
    #: Body from the client, after it has passed its schema.
    body: dict[str, Any] | None = None
    #: Values before and after the change, for the audit log.
    before: Any = None
    after: Any = None
    #: Whether a user with the username in the body exists; None while unknown.
    has_known_username: bool | None = None
    #: Id of the last call of the core that changes something.
    call_id: str | None = None
    #: Whether the core's reply to that call was lost.
    is_unanswered = False
    #: Whether the request is in the audit log.
    is_recorded = False

    @cached_property
    def id(self) -> str:
        """Id of the request: the client's id if it is safe, otherwise a new random id."""
        client_id = self.environ.get("HTTP_X_REQUEST_ID", "")
        return client_id if _SAFE_ID_PATTERN.fullmatch(client_id) else f"{random.getrandbits(128):032x}"

    def make_call_id(self) -> str:
        """Return a new id for the next call of the core. The request's own id is not used, because clients
        may send the same id again."""
        self.call_id = secrets.token_hex(16)
        return self.call_id

    @property
    def user(self) -> str | None:
        """Name of the caller; None before the access check."""
        return self.environ.get(http.USER_KEY)

    def set_caller(self, username: str, role: str) -> None:
        """Record the name and the role of the caller, for the log lines of this request."""
        self.environ[http.USER_KEY], self.environ[http.ROLE_KEY] = username, role

    def read_last_event_id(self) -> EventId | None:
        """Return the id of the last event that the client received, from the header Last-Event-ID; None
        without the header. An invalid id counts as the id of an event that the core no longer holds: after an
        error response, the client's event source would never connect again."""
        text = self.headers.get("Last-Event-ID", "")
        try:
            return parse_id(text) if text else None
        except ValueError:
            return EventId("unknown", 0)

    def read_required_etags(self) -> list[str] | None:
        """Return the strong entity tags of the header If-Match, one of which must be current. Return None if
        any entity tag is allowed (RFC 9110 section 13.1.1). Raises Invalid if the header is malformed,
        because such a header would never match."""
        text = self.headers.get("If-Match", "*").strip()
        if text == "*":
            return None
        if not re.fullmatch(ENTITY_TAGS_PATTERN, text):
            raise Invalid(Problem("If-Match", "invalid", "must be entity tags in double quotes, or *"))
        return [tag.strip('"') for tag in re.findall(_ENTITY_TAG_PATTERN, text) if not tag.startswith("W/")]

    def has_current(self, etag: str | None) -> bool:
        """Return True if the client already has the content with this entity tag (RFC 9110 section
        13.1.2)."""
        return etag is not None and self.if_none_match.contains_weak(etag)


def get_request() -> ApiRequest:
    """Return the current request. `flask.request` is a proxy, which looks up the request at each use."""
    return cast(ApiRequest, flask.request._get_current_object())  # type: ignore[attr-defined]


def make_log_extra() -> dict[str, Any]:
    """Return the argument `extra` for a log line about the current request."""
    return logs.make_extra(request_id=get_request().id)


def get_caller_claims() -> Claims:
    """Return the claims of the caller's token. Only for views that require a user's token."""
    return cast(Claims, get_request().claims)
