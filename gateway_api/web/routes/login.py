"""Log in and out."""

from typing import Any

from flask import Blueprint, Response, request

from gateway_api.web import access, answers, envelope, parse
from gateway_api.web.context import api_access, caller, identify, services
from gateway_api.web.schemas.records import Message
from gateway_api.web.schemas.requests import LoginRequest
from gateway_api.web.schemas.system import Token

routes = Blueprint("login", __name__, url_prefix="/api/v1/auth")


@routes.post("/login")
@access.open_to_all
@answers.document(Token, errors=(401, 429))
@parse.body(LoginRequest)
def log_in(credentials: dict[str, Any]) -> Response:
    """A token for a user of the running configuration."""
    config, address = api_access(), request.remote_addr or ""
    user = services().login.authenticate(config, **credentials, address=address)
    identify(user.username, user.role)
    token = services().tokens.issue(user.username, user.role, config.token_lifetime)
    response = envelope.bare({"access_token": token, "token_type": "bearer"})
    # RFC 6749 section 5.1: no cache may keep a token.
    response.headers["Cache-Control"] = "no-store"
    return response


@routes.post("/logout")
@access.any_role
@answers.data(Message)
def log_out() -> Response:
    """Revokes the token that came with the request."""
    services().revocations.revoke(caller().jti, caller().exp)
    return envelope.ok({"message": "Logged out"})
