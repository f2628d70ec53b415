"""Views of logins and logouts."""

from flask import Blueprint, request

from gateway_api.web import records
from gateway_api.web.access import ANY_ROLE, OPEN, find_claims, set_token_cookie
from gateway_api.web.operation import operation
from gateway_api.web.request import get_caller_claims, get_request
from gateway_api.web.schemas import requests
from gateway_api.web.services import core, get_user_services
from gateway_contract.base.errors import NotAllowed
from gateway_contract.core.configuration import EndTokens

login = Blueprint("login", __name__, url_prefix="/api/v1/auth")


@login.post("/login")
@operation(OPEN, body=requests.LoginRequestSchema, is_bare=True, errors=(401, 429))
def log_in(body: requests.LoginRequest) -> records.Token:
    """Return a token for a user of the running configuration.

    With the header `X-Gateway-Page: 1`, which the live page sends, the browser stores the token in a
    cookie."""
    login_settings, address = core().get_login(body.username), request.remote_addr or ""
    get_request().has_known_username = login_settings.user is not None
    user = get_user_services().login.authenticate(login_settings, body.username, body.password, address)
    get_request().set_caller(user.username, user.role)
    lifetime = login_settings.token_lifetime
    token = get_user_services().tokens.issue(user.username, user.role, user.generation, lifetime)
    set_token_cookie(token)
    return records.Token(token, "bearer", lifetime)


@login.get("/token", endpoint="token_user")
@operation(OPEN)
def show_user() -> records.SignedIn:
    """Return the user of the token that came with the request."""
    claims = find_claims()
    return records.SignedIn(records.User(claims.sub, claims.role, claims.exp) if claims else None)


@login.post("/logout")
@operation(ANY_ROLE)
def log_out() -> records.Message:
    """Revoke the token that came with the request."""
    get_user_services().revocations.revoke(get_caller_claims().jti, get_caller_claims().exp)
    set_token_cookie(None)
    return records.Message("Logged out")


@login.post("/logout-everywhere")
@operation(ANY_ROLE, body=requests.LogoutEverywhereSchema, is_body_optional=True, errors=(403, 404, 501))
def log_out_everywhere(body: requests.LogoutEverywhere) -> records.Message:
    """Revoke all tokens of the caller; an admin may name another user. Event streams with these tokens
    end."""
    username = get_caller_claims().sub if body.username is None else body.username
    if username != get_caller_claims().sub and get_caller_claims().role != "admin":
        raise NotAllowed
    core().call_raw(EndTokens(username))
    if username == get_caller_claims().sub:
        set_token_cookie(None)
    return records.Message(f"Ended all tokens of {username}")
