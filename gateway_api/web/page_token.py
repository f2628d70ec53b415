"""The token of the live page, in a cookie (RFC 6265): it survives a reload, and no script can read it.

A browser may add the cookie to a request that another page has caused. So the cookie counts only with a
header that a page of another origin cannot send: the browser would first ask this API (Fetch Standard,
section 4.8), which allows it to nobody.
"""

import re

from flask import Response, after_this_request, request

from gateway_contract.base.errors import NotAuthenticated

#: In each request of the live page.
HEADER = "X-Gateway-Page"
_PRESENT = "1"
#: `__Host-`: no other host and no plain HTTP can set it (RFC 6265bis, section 4.1.3.2).
_NAME = "__Host-gateway"
_PORT = re.compile(r":([0-9]+)$")


def is_page() -> bool:
    """Return whether the live page sent the current request."""
    return request.headers.get(HEADER) == _PRESENT


def presented() -> str:
    """Return the token in the cookie of the current request. Raises NotAuthenticated without one that
    counts."""
    token = request.cookies.get(_name()) if is_page() else None
    if not token:
        raise NotAuthenticated("no token")
    return token


def keep(token: str) -> None:
    """Give the browser the token until it is closed, with the response to the live page."""

    def set_cookie(response: Response) -> Response:
        response.set_cookie(_name(), token, secure=True, httponly=True, samesite="Strict")
        return response

    if is_page():
        after_this_request(set_cookie)


def forget() -> None:
    """Remove the token from the browser, with the response to the live page."""

    def delete_cookie(response: Response) -> Response:
        response.delete_cookie(_name(), secure=True, httponly=True, samesite="Strict")
        return response

    if is_page():
        after_this_request(delete_cookie)


def _name() -> str:
    # A host's cookies are the same at all of its ports. Several gateways have one host name behind tunnels.
    port = _PORT.search(request.host)
    return f"{_NAME}-{port[1] if port else 443}"
