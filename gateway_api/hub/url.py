"""URLs of receivers: which ones are taken at all."""

import re
from urllib.parse import urlsplit

from gateway_api.hub.addresses import Denied, check, literal

LONGEST = 2048


def check_url(text: str) -> None:
    """Raises ValueError with the rule. A name is looked at when it is connected to."""
    if len(text) > LONGEST:
        raise ValueError(f"must have at most {LONGEST} characters")
    # Browsers take a backslash for a slash, libraries don't: what is before it would be two hosts.
    if not re.fullmatch(r"[!-~]+", text, re.ASCII) or "\\" in text:
        raise ValueError("must be printable ASCII without spaces and backslashes")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ValueError("must be a URL") from error
    if parts.scheme not in ("http", "https"):
        raise ValueError("must begin with http:// or https://")
    if "@" in parts.netloc:
        raise ValueError("must not hold a user or a password")
    if "#" in text:
        raise ValueError("must not have a fragment")
    host = parts.hostname or ""
    # A name, an IPv4 address, or an IPv6 address with its zone.
    if not re.fullmatch(r"[\w.:%-]+", host, re.ASCII) or port == 0:
        raise ValueError("must name a host")
    address = literal(host)
    if address is not None:
        try:
            check(address)
        except Denied as error:
            raise ValueError(
                "must not be a link-local, unspecified, multicast or broadcast address"
            ) from error
