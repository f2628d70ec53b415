"""Views of logins and logouts."""

from flask import Blueprint, request

from gateway_api.web import records
from gateway_api.web.access import ANY_ROLE, OPEN, find_claims, keep_in_browser
from gateway_api.web.operation import operation
from gateway_api.web.request import get_caller, get_request
from gateway_api.web.schemas import requests
from gateway_api.web.services import core, get_user_services
from gateway_contract.base.errors import NotAllowed
from gateway_contract.core.configuration import EndTokens

login = Blueprint("login", __name__, url_prefix="/api/v1/auth")


@login.post("/login")
@operation(OPEN, body=requests.LoginRequestSchema, bare=True, errors=(401, 429))
def log_in(body: requests.LoginRequest) -> records.Token:
    """Return a token for a user of the running configuration.

    With the header `X-Gateway-Page: 1`, which the live page sends, the browser stores the token in a
    cookie."""
    known, address = core().get_login(body.username), request.remote_addr or ""
    get_request().names_user = known.user is not None
    user = get_user_services().login.authenticate(known, body.username, body.password, address)
    get_request().identify(user.username, user.role)
    lifetime = known.token_lifetime
    token = get_user_services().tokens.issue(user.username, user.role, user.generation, lifetime)
    keep_in_browser(token)
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
    get_user_services().revocations.revoke(get_caller().jti, get_caller().exp)
    keep_in_browser(None)
    return records.Message("Logged out")


@login.post("/logout-everywhere")
@operation(ANY_ROLE, body=requests.LogoutEverywhereSchema, optional=True, errors=(403, 404, 501))
def log_out_everywhere(body: requests.LogoutEverywhere) -> records.Message:
    """Revoke all tokens of the caller; an admin may name another user. Event streams with these tokens
    end."""
    username = get_caller().sub if body.username is None else body.username
    if username != get_caller().sub and get_caller().role != "admin":
        raise NotAllowed
    core().call_raw(EndTokens(username))
    if username == get_caller().sub:
        keep_in_browser(None)
    return records.Message(f"Ended all tokens of {username}")
