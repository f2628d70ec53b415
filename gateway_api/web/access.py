"""Access to views. Every view of either profile has one of five marks, or the application does not start.

The check comes before the request's body is read: a caller without access must not cause any parsing. Where a
view only reads, a token that may be valid lets the view begin: see `together`.
"""

from collections.abc import Callable
from enum import Enum
from functools import partial, wraps
from typing import Any

from flask import Flask, g, request

from gateway_api.auth.tokens import AUTHOR, Claims, is_token
from gateway_api.base.errors import (
    CoreUnavailable,
    Disabled,
    GatewayApiError,
    NotAllowed,
    NotAuthenticated,
)
from gateway_api.base.settings import Authentication, Profile
from gateway_api.core_client.commands import access_question
from gateway_api.web import page_token
from gateway_api.web.responses import View
from gateway_api.web.services import daemon, identify, services, settle

_MARK = "__access__"
_TOGETHER = "__together__"
_WITHOUT_CORE = "__without_core__"
_ADMIN = "admin"
_NO_TOKEN = "The running configuration has no api.auth_token"  # noqa: S105 - a sentence


class Access(Enum):
    """Required to call a view. The static token has the role admin."""

    #: No token, even while the API is disabled.
    ALWAYS = "always"
    #: No token, even while the core is unavailable.
    STATIC = "static"
    #: No token.
    OPEN = "open"
    ANY_ROLE = "any role"
    ADMIN = "admin"

    def __call__(self, view: View) -> View:
        """Marks the view."""
        setattr(view, _MARK, self)
        return view


always, static, open_to_all = Access.ALWAYS, Access.STATIC, Access.OPEN
any_role, admin = Access.ANY_ROLE, Access.ADMIN


class NoAccessMark(GatewayApiError):
    """A view has no access mark."""


def access_of(view: Callable[..., Any] | None) -> Access | None:
    """The mark of a view."""
    mark: Access | None = getattr(view, _MARK, None)
    return mark


def together(view: View) -> View:
    """Marks a view with one call of the core, a read: the question whether the caller has access goes along
    with it, in one exchange. The caller gets nothing of the view before the answer."""
    setattr(view, _TOGETHER, True)
    return view


def without_core(view: View) -> View:
    """Marks a view that is `together` and responds while the core is unavailable. Then a valid token that was
    not revoked is enough: nobody knows whether its user was changed since the login."""
    setattr(view, _WITHOUT_CORE, True)
    return view


class _UserToken:
    def require_enabled(self) -> None:
        try:
            usernames = [self.plausible().sub]
        except NotAuthenticated:
            # Raised again where the view requires a token.
            usernames = []
        g.access = services().daemon.access(g.get("question") or access_question(*usernames))
        if not g.access.enabled:
            raise Disabled

    def may_wait(self) -> bool:
        """True for a token that may be valid. The next call of the core takes the question along."""
        try:
            g.question = access_question(self.plausible().sub)
        except NotAuthenticated:
            return False
        return True

    def plausible(self) -> Claims:
        if "claims" not in g:
            g.claims = services().tokens.read(_user_token())
        claims: Claims = g.claims
        return claims

    def without_core(self) -> None:
        claims = self.plausible()
        if services().revocations.is_revoked(claims.jti):
            raise NotAuthenticated("the token was revoked")
        g.caller = claims
        identify(claims.sub, claims.role)

    def role(self) -> str:
        claims = self.plausible()
        rejection = services().authorization.rejection(claims, g.access)
        if rejection is not None:
            raise NotAuthenticated(rejection)
        g.caller = claims
        identify(claims.sub, claims.role)
        return claims.role


class _StaticToken:
    def require_enabled(self) -> None:
        access = daemon().token_access()
        if not access.enabled:
            raise Disabled
        if access.auth_token is None:
            raise Disabled(_NO_TOKEN)
        g.auth_token = access.auth_token

    def may_wait(self) -> bool:
        return False

    def plausible(self) -> str:
        return _bearer_token()

    def without_core(self) -> None:
        raise NotAuthenticated("only the core knows the token")

    def role(self) -> str:
        if not is_token(_bearer_token(), g.auth_token):
            raise NotAuthenticated("another token")
        identify(AUTHOR, _ADMIN)
        return _ADMIN


# `require_enabled` calls the core each time, so that a commit counts on the next request. `plausible` raises
# NotAuthenticated, without the core, for a token that cannot be valid. `role` comes last, or `without_core`
# instead of it.
_CHECKS: dict[Authentication, _UserToken | _StaticToken] = {
    Authentication.USER_TOKEN: _UserToken(),
    Authentication.STATIC_TOKEN: _StaticToken(),
}


def install(app: Flask, profile: Profile) -> None:
    """Checks every request. To be called when all routes are registered. Raises NoAccessMark."""
    for endpoint, view in app.view_functions.items():
        if access_of(view) is None:
            raise NoAccessMark(f"the view {endpoint} has no access mark")
    check = _CHECKS[profile.authentication]

    def complete(access: Access, view: View | None = None) -> None:
        question = g.get("question")
        if hasattr(view, _WITHOUT_CORE) and question is not None and question.reply is None:
            check.without_core()
            return
        check.require_enabled()
        if check.role() != _ADMIN and access is Access.ADMIN:
            raise NotAllowed

    @app.before_request
    def _check() -> None:
        view = app.view_functions.get(request.endpoint or "")
        # An unknown path is 404 for every caller, once the API is enabled.
        access = access_of(view) or Access.OPEN
        if access is Access.ALWAYS:
            return
        if hasattr(view, _TOGETHER) and check.may_wait():
            g.settle = partial(complete, access, view)
            return
        try:
            if access in (Access.OPEN, Access.STATIC):
                check.require_enabled()
            else:
                complete(access)
        except CoreUnavailable:
            if view is None or access is Access.STATIC:
                return
            if access is not Access.OPEN:
                check.plausible()
            raise

    for endpoint, view in app.view_functions.items():
        if hasattr(view, _TOGETHER):
            app.view_functions[endpoint] = _settled(view)


def _settled(view: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(view)
    def settled(**segments: Any) -> Any:
        try:
            response = view(**segments)
        except CoreUnavailable:
            question = g.get("question")
            # Or the check would fail for the same reason, after another wait.
            if question is not None and question.reply is not None:
                settle()
            raise
        except Exception:
            settle()
            raise
        settle()
        return response

    return settled


def signed_in() -> Claims | None:
    """The claims of the request's token, None without a valid one. In views that require no token."""
    try:
        _CHECKS[Authentication.USER_TOKEN].role()
    except NotAuthenticated:
        return None
    claims: Claims = g.caller
    return claims


def _user_token() -> str:
    """Raises NotAuthenticated when there is none."""
    # The cookie never stands in for a header that is wrong.
    return _bearer_token() if "Authorization" in request.headers else page_token.presented()


def _bearer_token() -> str:
    """Raises NotAuthenticated when there is none."""
    # RFC 6750 section 2.1. Not request.authorization: it decodes other schemes, and fails on their data.
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise NotAuthenticated("no bearer token")
    return token.strip()
