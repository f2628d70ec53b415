"""Access of callers to operations: decided before anything else of a request is read."""

from contextlib import suppress
from enum import Enum

from gateway_api.auth.tokens import AUTHOR, Claims, is_token
from gateway_api.base.settings import USERS
from gateway_api.web import page_token
from gateway_api.web.request import ApiRequest, current
from gateway_api.web.services import services, user_services
from gateway_contract.base.errors import CoreUnavailable, Disabled, NotAllowed, NotAuthenticated

_ADMIN = "admin"
_NO_TOKEN = "The running configuration has no api.auth_token"  # noqa: S105 - a sentence
#: Seconds for the core's reply where a caller has access without it.
_SHORT_TIMEOUT = 0.2


class Access(Enum):
    """Required to call an operation. The static token has the role admin."""

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
    """Return if the caller of the current request has this access, and note who the caller is. Otherwise
    raise Disabled, NotAuthenticated, NotAllowed or CoreUnavailable. `without_core`: a user whose token is not
    revoked has access while the core hangs."""
    match access:
        case Access.ALWAYS:
            return
        case Access.STATIC:
            with suppress(CoreUnavailable):
                _require_enabled()
        case Access.OPEN:
            _require_enabled()
        case Access.ANY_ROLE | Access.ADMIN:
            role = _identify(without_core)
            if access is Access.ADMIN and role != _ADMIN:
                raise NotAllowed


def signed_in() -> Claims | None:
    """Return the claims of the request's token, None without a valid one. In views that require no token."""
    with suppress(NotAuthenticated):
        _identify_user(without_core=False)
        return current().claims
    return None


def _identify(without_core: bool) -> str:
    """Note who the caller is, and return the caller's role."""
    try:
        return _identify_user(without_core) if _has_users() else _identify_holder_of_static_token()
    except NotAuthenticated:
        # All callers get the same response while the API is disabled.
        with suppress(CoreUnavailable):
            _require_enabled()
        raise


def _require_enabled() -> None:
    if not _has_users():
        _static_token()
    elif not services().access.of_user(None).enabled:
        raise Disabled


def _static_token() -> str:
    """Return the token of the running configuration. Raises Disabled without one."""
    settings = services().access.of_api()
    if not settings.enabled:
        raise Disabled
    if settings.auth_token is None:
        raise Disabled(_NO_TOKEN)
    return settings.auth_token


def _has_users() -> bool:
    return services().profile is USERS


def _identify_user(without_core: bool) -> str:
    """The caller has a token that a login returned."""
    request = current()
    claims = user_services().tokens.read(_user_token(request))
    timeout = _SHORT_TIMEOUT if without_core else None
    try:
        settings = services().access.of_user(claims.sub, timeout=timeout)
    except CoreUnavailable:
        if not without_core:
            raise
        # The core may hang: nobody knows whether the user was changed since the login.
        settings = None
    if settings is not None and not settings.enabled:
        raise Disabled
    rejection = user_services().authorization.rejection(claims, settings)
    if rejection is not None:
        raise NotAuthenticated(rejection)
    request.claims = claims
    request.identify(claims.sub, claims.role)
    return claims.role


def _identify_holder_of_static_token() -> str:
    request = current()
    if not is_token(_bearer_token(request), _static_token()):
        raise NotAuthenticated("another token")
    request.identify(AUTHOR, _ADMIN)
    return _ADMIN


def _user_token(request: ApiRequest) -> str:
    """Raises NotAuthenticated when there is none."""
    # The cookie never stands in for a header that is wrong.
    return _bearer_token(request) if "HTTP_AUTHORIZATION" in request.environ else page_token.presented()


def _bearer_token(request: ApiRequest) -> str:
    """Raises NotAuthenticated when there is none."""
    # RFC 6750 section 2.1. Not request.authorization: it decodes other schemes, and fails on their data.
    scheme, _, token = request.environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise NotAuthenticated("no bearer token")
    return str(token.strip())
