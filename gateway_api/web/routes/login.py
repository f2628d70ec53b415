"""Log in and out."""

from typing import Any

from flask import Blueprint, Response, request

from gateway_api.base.errors import NotAllowed
from gateway_api.web import access, audit, page_token, parse, responses
from gateway_api.web.records import Message, SignedIn, Token, User
from gateway_api.web.schemas.requests import LoginRequest, LogoutEverywhere
from gateway_api.web.services import caller, daemon, identify, services
from gateway_api.wire.core.configuration import EndTokens

routes = Blueprint("login", __name__, url_prefix="/api/v1/auth")


@routes.post("/login")
@access.open_to_all
@responses.ViewResponse((Token,), bare=True, errors=(401, 429))
@parse.body(LoginRequest)
def log_in(credentials: dict[str, Any]) -> Response:
    """Returns a token for a user of the running configuration.

    With the header `X-Gateway-Page: 1`, as the live page sends it, the browser keeps the token in a cookie.
    """
    known, address = daemon().login(credentials["username"]), request.remote_addr or ""
    audit.names_user(exists=known.user is not None)
    user = services().login.authenticate(known, **credentials, address=address)
    identify(user.username, user.role)
    lifetime = known.token_lifetime
    token = services().tokens.issue(user.username, user.role, user.generation, lifetime)
    response = responses.bare(Token(token, "bearer", lifetime))
    if page_token.is_page():
        page_token.keep(response, token)
    return response


@routes.get("/token")
@access.open_to_all
@responses.data(SignedIn)
def token_user() -> Response:
    """The user of the token that came with the request."""
    claims = access.signed_in()
    return responses.ok(SignedIn(User(claims.sub, claims.role, claims.exp) if claims else None))


@routes.post("/logout")
@access.any_role
@responses.data(Message)
def log_out() -> Response:
    """Revokes the token that came with the request."""
    services().revocations.revoke(caller().jti, caller().exp)
    return _without_cookie(responses.ok(Message("Logged out")))


@routes.post("/logout-everywhere")
@access.any_role
@responses.data(Message, errors=(403, 404, 501))
@parse.body(LogoutEverywhere, optional=True)
def log_out_everywhere(body: dict[str, Any]) -> Response:
    """Ends all tokens of the caller; an admin may name another user. Event streams with these tokens end."""
    username = body.get("username", caller().sub)
    if username != caller().sub and caller().role != "admin":
        raise NotAllowed
    daemon().raw(EndTokens(username))
    ended = responses.ok(Message(f"Ended all tokens of {username}"))
    return _without_cookie(ended) if username == caller().sub else ended


def _without_cookie(response: Response) -> Response:
    if page_token.is_page():
        page_token.forget(response)
    return response
