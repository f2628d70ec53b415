"""Who may call a view. Every view carries one of five marks, or the application doesn't start.

The check is made before anything of the request's body is read, so that nobody without the right to
change a thing has a parser of ours at his disposal.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

from flask import Flask, g, request

from gateway_api.auth.tokens import Claims
from gateway_api.base.errors import (
    CoreUnavailable,
    Disabled,
    GatewayApiError,
    NotAllowed,
    NotAuthenticated,
)
from gateway_api.daemon.commands import ApiAccess
from gateway_api.web.bearer import bearer_token
from gateway_api.web.context import identify, services

View = TypeVar("View", bound=Callable[..., Any])

_MARK = "__access__"


class Access(Enum):
    """`ALWAYS`: no token, even while the API is disabled. `STATIC`: no token, even while nobody can tell
    whether it is. `OPEN`: no token. `ANY_ROLE`: any user. `ADMIN`: users with the role admin."""

    ALWAYS = "always"
    STATIC = "static"
    OPEN = "open"
    ANY_ROLE = "any role"
    ADMIN = "admin"


class NoAccessMark(GatewayApiError):
    """A route was registered without saying who may use it."""


def _mark(access: Access) -> Callable[[View], View]:
    def decorate(view: View) -> View:
        setattr(view, _MARK, access)
        return view

    return decorate


always = _mark(Access.ALWAYS)
static = _mark(Access.STATIC)
open_to_all = _mark(Access.OPEN)
any_role = _mark(Access.ANY_ROLE)
admin = _mark(Access.ADMIN)


def access_of(view: Callable[..., Any]) -> Access | None:
    """The mark of a view."""
    mark: Access | None = getattr(view, _MARK, None)
    return mark


def install(app: Flask) -> None:
    """Has every request checked. To be called when all routes are registered. Raises NoAccessMark."""
    for endpoint, view in app.view_functions.items():
        if access_of(view) is None:
            raise NoAccessMark(f"the view {endpoint} doesn't say who may call it")

    @app.before_request
    def _check() -> None:
        view = app.view_functions.get(request.endpoint or "")
        # A path that doesn't exist is nobody's: it is refused as such, once the API is enabled.
        access = (view and access_of(view)) or Access.OPEN
        if access is Access.ALWAYS:
            return
        try:
            g.api_access = services().daemon.api_access()
        except CoreUnavailable:
            if view is None or access is Access.STATIC:
                return
            if access is not Access.OPEN:
                # Without a token that could hold it's 401, whatever the core does.
                _claims()
            raise
        if not g.api_access.enabled:
            raise Disabled
        if access in (Access.OPEN, Access.STATIC):
            return
        g.caller = _caller(g.api_access)
        identify(g.caller.sub, g.caller.role)
        if access is Access.ADMIN and g.caller.role != "admin":
            raise NotAllowed


def _caller(api_access: ApiAccess) -> Claims:
    claims = _claims()
    objection = services().standing.objection(claims, api_access)
    if objection is not None:
        raise NotAuthenticated(objection)
    return claims


def _claims() -> Claims:
    return services().tokens.read(bearer_token())
