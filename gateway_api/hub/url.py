"""URLs of receivers: which ones are taken at all."""

import re
from ipaddress import IPv6Address
from urllib.parse import urlsplit

from gateway_api.hub.addresses import Address, Denied, check, literal

LONGEST = 2048
#: What JSON Schema can say of the rules below.
PATTERN = (
    r"^[hH][tT][tT][pP][sS]?://(?:[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?|\[[0-9A-Fa-f:.]+\])"
    r"(?::[0-9]{0,5})?(?:[/?][!\x22\x24-\x5b\x5d-~]*)?$"
)

_AUTHORITY = re.compile(r"(?:\[(?P<literal>[^\[\]]*)\]|(?P<name>[^:\[\]]*))(?::(?P<port>[^:\[\]]*))?")
_BRACKETS = "must have an IPv6 address in brackets, and nothing else"


def check_url(text: str) -> None:
    """Raises ValueError with the rule. A name is looked up when it is connected to; what no name server and
    no library would ever take is refused here."""
    if len(text) > LONGEST:
        raise ValueError(f"must have at most {LONGEST} characters")
    # Browsers take a backslash for a slash, libraries don't: what is before it would be two hosts.
    if not re.fullmatch(r"[!-~]+", text, re.ASCII) or "\\" in text:
        raise ValueError("must be printable ASCII without spaces and backslashes")
    try:
        parts = urlsplit(text)
    except ValueError as error:
        # Brackets: it looks at nothing else so early.
        raise ValueError(_BRACKETS) from error
    if parts.scheme not in ("http", "https"):
        raise ValueError("must begin with http:// or https://")
    if "@" in parts.netloc:
        raise ValueError("must not hold a user or a password")
    if "#" in text:
        raise ValueError("must not have a fragment")
    match = _AUTHORITY.fullmatch(parts.netloc)
    if match is None:
        raise ValueError(_BRACKETS if "[" in parts.netloc else "must name a host, and at most one port")
    port = match["port"]
    if port and not (port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535):
        raise ValueError("must have a port from 1 to 65535, or none")
    if match["literal"] is not None:
        _check_ipv6(match["literal"])
    else:
        _check_name(match["name"])


def _check_ipv6(text: str) -> None:
    try:
        address = IPv6Address(text.partition("%")[0])
    except ValueError as error:
        raise ValueError(_BRACKETS) from error
    _check_address(address)
    if "%" in text:
        # RFC 4007 section 6: only link-local addresses need one, and to those nothing is delivered.
        raise ValueError("must not have a zone")


def _check_name(text: str) -> None:
    if not text:
        raise ValueError("must name a host")
    if "%" in text:
        raise ValueError("must not have a percent-encoded host")
    if not re.fullmatch(r"[A-Za-z0-9._-]+", text):
        raise ValueError("must name a host in letters, digits, hyphens, underscores and dots")
    address = literal(text)
    if address is not None:
        _check_address(address)
        return
    # RFC 1035 section 2.3.4; the dot of the root doesn't count.
    labels = text.removesuffix(".").split(".")
    if not all(1 <= len(label) <= 63 for label in labels):
        raise ValueError("must name a host whose labels have 1 to 63 characters")
    if len(".".join(labels)) > 253:
        raise ValueError("must name a host in at most 253 characters")
    # RFC 1123 section 2.1: so that it can be told from an address.
    if re.fullmatch(r"[0-9]+|0[xX][0-9A-Fa-f]*", labels[-1]):
        raise ValueError("must name a host: this ends in a number, and is no IPv4 address")


def _check_address(address: Address) -> None:
    try:
        check(address)
    except Denied as error:
        raise ValueError("must not be a link-local, unspecified, multicast or broadcast address") from error
