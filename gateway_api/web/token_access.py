"""Who may call a view of the alternative profile: whoever has the token, and nobody else."""

from flask import Flask, request

from gateway_api.auth.static_token import AUTHOR, is_token
from gateway_api.base.errors import CoreUnavailable, Disabled, NotAuthenticated
from gateway_api.web.bearer import bearer_token
from gateway_api.web.context import daemon, identify

_NO_TOKEN = "The running configuration has no api.auth_token"  # noqa: S105 - a sentence


def install(app: Flask) -> None:
    """Has every request checked, before anything of its body is read. No view is open to all."""

    @app.before_request
    def _check() -> None:
        try:
            # Each time: a token that was taken away must let nobody in any more.
            access = daemon().token_access()
        except CoreUnavailable:
            # A path that doesn't exist is nobody's; without a token it's 401, whatever the core does.
            if request.endpoint is None:
                return
            bearer_token()
            raise
        if not access.enabled:
            raise Disabled
        if access.auth_token is None:
            raise Disabled(_NO_TOKEN)
        if request.endpoint is not None and not is_token(bearer_token(), access.auth_token):
            raise NotAuthenticated("another token")
        if request.endpoint is not None:
            identify(AUTHOR, "admin")
