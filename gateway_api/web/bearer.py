"""The token of a request."""

from flask import request

from gateway_api.base.errors import NotAuthenticated


def bearer_token() -> str:
    """Raises NotAuthenticated when there is none."""
    # RFC 6750 section 2.1. Not request.authorization: it decodes other schemes, and fails on their data.
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise NotAuthenticated("no bearer token")
    return token.strip()
