"""Log in and out."""

from typing import Any

from flask import request

from gateway_api.base.errors import NotAllowed
from gateway_api.web import page_token
from gateway_api.web.access import signed_in
from gateway_api.web.operation import ANY_ROLE, GET, OPEN, POST, Routes
from gateway_api.web.records import Message, SignedIn, Token, User
from gateway_api.web.request import caller, current
from gateway_api.web.schemas.requests import LoginRequest, LogoutEverywhere
from gateway_api.web.services import daemon, services
from gateway_api.wire.core.configuration import EndTokens


def log_in(body: dict[str, Any]) -> Token:
    """Returns a token for a user of the running configuration.

    With the header `X-Gateway-Page: 1`, as the live page sends it, the browser keeps the token in a cookie.
    """
    known, address = daemon().login(body["username"]), request.remote_addr or ""
    current().names_user = known.user is not None
    user = services().login.authenticate(known, **body, address=address)
    current().identify(user.username, user.role)
    lifetime = known.token_lifetime
    token = services().tokens.issue(user.username, user.role, user.generation, lifetime)
    page_token.keep(token)
    return Token(token, "bearer", lifetime)


def token_user() -> SignedIn:
    """The user of the token that came with the request."""
    claims = signed_in()
    return SignedIn(User(claims.sub, claims.role, claims.exp) if claims else None)


def log_out() -> Message:
    """Revokes the token that came with the request."""
    services().revocations.revoke(caller().jti, caller().exp)
    page_token.forget()
    return Message("Logged out")


def log_out_everywhere(body: dict[str, Any]) -> Message:
    """Ends all tokens of the caller; an admin may name another user. Event streams with these tokens end."""
    username = body.get("username", caller().sub)
    if username != caller().sub and caller().role != "admin":
        raise NotAllowed
    daemon().raw(EndTokens(username))
    if username == caller().sub:
        page_token.forget()
    return Message(f"Ended all tokens of {username}")


routes = Routes(
    "login",
    "/api/v1/auth",
    POST("/login", log_in, OPEN, body=LoginRequest, bare=True, errors=(401, 429)),
    GET("/token", token_user, OPEN),
    POST("/logout", log_out, ANY_ROLE),
    POST(
        "/logout-everywhere",
        log_out_everywhere,
        ANY_ROLE,
        body=LogoutEverywhere,
        optional=True,
        errors=(403, 404, 501),
    ),
)
