"""Access checks of operations, which run before any other part of a request is read.

The live page keeps its token in a cookie (RFC 6265), which survives a reload and which no script can read. A
browser may add the cookie to a request that a page of another origin has started. So the cookie counts only
together with a header that such a page cannot send: the browser would first ask this API (Fetch Standard,
section 4.8), and the API allows the header to no other origin.
"""

import re
from contextlib import suppress
from enum import Enum
from typing import Any

from flask import Response, after_this_request, request

from gateway_api.auth.tokens import STATIC_AUTHOR, Claims, is_static_token
from gateway_api.base.settings import USERS
from gateway_api.web.request import ApiRequest, get_request
from gateway_api.web.services import get_services, get_user_services
from gateway_contract.base.errors import CoreUnavailable, Disabled, NotAllowed, NotAuthenticated

_ADMIN = "admin"
_NO_TOKEN_MESSAGE = "The running configuration has no api.auth_token"  # noqa: S105 - a sentence
#: Seconds to wait for the core's reply if a caller has access without the core.
_SHORT_TIMEOUT_SECONDS = 0.2
#: Header in each request of the live page, and its value.
_PAGE_HEADER, _PAGE_VALUE = "X-Gateway-Page", "1"
#: Start of the cookie's name: no other host and no plain HTTP can set it (RFC 6265bis section 4.1.3.2).
_COOKIE_PREFIX = "__Host-gateway"
_COOKIE_ATTRIBUTES: dict[str, Any] = {"secure": True, "httponly": True, "samesite": "Strict"}
_HOST_PORT_PATTERN = re.compile(r":([0-9]+)$")


class Access(Enum):
    """Access that an operation requires. The holder of the static token counts as an admin."""

    #: No token, even while the API is disabled.
    ALWAYS = "always"
    #: No token, even while the core is unavailable.
    STATIC = "static"
    #: No token.
    OPEN = "open"
    ANY_ROLE = "any role"
    ADMIN = "admin"


ALWAYS, STATIC, OPEN, ANY_ROLE, ADMIN = Access


def require_access(access: Access, *, without_core: bool = False) -> None:
    """Require that the caller of the current request has the given access, and record the caller in the
    request. Raises Disabled while the API is disabled, NotAuthenticated without a valid token, NotAllowed if
    the role of the caller is insufficient, and CoreUnavailable if the core does not reply. With
    `without_core`, a user whose token is not revoked has access even if the core does not reply."""
    match access:
        case Access.ALWAYS:
            return
        case Access.STATIC:
            with suppress(CoreUnavailable):
                _require_enabled()
        case Access.OPEN:
            _require_enabled()
        case Access.ANY_ROLE | Access.ADMIN:
            role = _identify_caller(without_core)
            if access is Access.ADMIN and role != _ADMIN:
                raise NotAllowed


def find_claims() -> Claims | None:
    """Return the claims of the request's token, or None if the request has no valid token. Used by views that
    do not require a token. Raises Disabled while the API is disabled, and CoreUnavailable if the core does
    not reply."""
    with suppress(NotAuthenticated):
        _identify_user(without_core=False)
        return get_request().claims
    return None


def set_token_cookie(token: str | None) -> None:
    """Store the token in a cookie that the browser keeps until it is closed. With None, delete the cookie.
    Requests that do not come from the live page get no cookie."""

    def set_cookie(response: Response) -> Response:
        if token is None:
            response.delete_cookie(_make_cookie_name(), **_COOKIE_ATTRIBUTES)
        else:
            response.set_cookie(_make_cookie_name(), token, **_COOKIE_ATTRIBUTES)
        return response

    if _is_page_request():
        after_this_request(set_cookie)


def _identify_caller(without_core: bool) -> str:
    """Record the caller in the request, and return the role of the caller. With `without_core`, a user whose
    token is not revoked is accepted even if the core does not reply."""
    try:
        return _identify_user(without_core) if _is_users_profile() else _identify_token_holder()
    except NotAuthenticated:
        # All callers get the same response while the API is disabled.
        with suppress(CoreUnavailable):
            _require_enabled()
        raise


def _require_enabled() -> None:
    if not _is_users_profile():
        _read_static_token()
    elif not get_services().access.get_access(None).enabled:
        raise Disabled


def _read_static_token() -> str:
    """Return the static token of the running configuration. Raises Disabled if the configuration has no
    static token or the API is disabled."""
    settings = get_services().access.get_settings()
    if not settings.enabled:
        raise Disabled
    if settings.auth_token is None:
        raise Disabled(_NO_TOKEN_MESSAGE)
    return settings.auth_token


def _is_users_profile() -> bool:
    return get_services().profile is USERS


def _identify_user(without_core: bool) -> str:
    """Record the user of the request's token in the request, and return the role of the user. With
    `without_core`, a user whose token is not revoked is accepted even if the core does not reply."""
    request = get_request()
    claims = get_user_services().tokens.read(_read_user_token(request))
    timeout = _SHORT_TIMEOUT_SECONDS if without_core else None
    try:
        settings = get_services().access.get_access(claims.sub, timeout=timeout)
    except CoreUnavailable:
        if not without_core:
            raise
        # Without the core, it is unknown whether the user was changed since the login.
        settings = None
    if settings is not None and not settings.enabled:
        raise Disabled
    rejection = get_user_services().authorization.find_rejection(claims, settings)
    if rejection is not None:
        raise NotAuthenticated(rejection)
    request.claims = claims
    request.set_caller(claims.sub, claims.role)
    return claims.role


def _identify_token_holder() -> str:
    """Record the holder of the static token in the request, and return the role admin. Raises
    NotAuthenticated if the request has another token."""
    request = get_request()
    if not is_static_token(_read_bearer_token(request), _read_static_token()):
        raise NotAuthenticated("another token")
    request.set_caller(STATIC_AUTHOR, _ADMIN)
    return _ADMIN


def _read_user_token(request: ApiRequest) -> str:
    """Return the token in the header Authorization. If the request has no such header, return the token in
    the cookie. Raises NotAuthenticated if there is no token in the header or the cookie."""
    # A wrong header is an error, even if there is a valid cookie.
    if "HTTP_AUTHORIZATION" in request.environ:
        return _read_bearer_token(request)
    token = request.cookies.get(_make_cookie_name()) if _is_page_request() else None
    if not token:
        raise NotAuthenticated("no token")
    return token


def _read_bearer_token(request: ApiRequest) -> str:
    """Return the token in the header Authorization. Raises NotAuthenticated if the header has no bearer
    token."""
    # RFC 6750 section 2.1. Not request.authorization: it decodes other schemes, and fails on their data.
    scheme, _, token = request.environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise NotAuthenticated("no bearer token")
    return str(token.strip())


def _is_page_request() -> bool:
    return request.headers.get(_PAGE_HEADER) == _PAGE_VALUE


def _make_cookie_name() -> str:
    # A browser shares the cookies of a host between all ports. Behind tunnels, several gateways have the same
    # host name.
    port = _HOST_PORT_PATTERN.search(request.host)
    return f"{_COOKIE_PREFIX}-{port[1] if port else 443}"
