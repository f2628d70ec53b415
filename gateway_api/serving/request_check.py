"""What HTTP asks of the head of a request, and neither of gunicorn's parsers looks at."""

import re
from ipaddress import IPv6Address
from typing import Any

from gunicorn.http.errors import InvalidHeader, UnsupportedTransferCoding

#: RFC 3986 section 3.2: a name or an IPv4 address, or an IPv6 address in brackets; and perhaps a port.
_HOST = re.compile(
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)(?::(?P<port>[0-9]{0,5}))?"
)
_MAX_PORT = 65535


def check(request: Any) -> None:
    """Raises gunicorn's InvalidHeader and UnsupportedTransferCoding."""
    hosts = [value for name, value in request.headers if name == "HOST"]
    # RFC 9112 section 3.2. HTTP/1.0 had no such header.
    if len(hosts) > 1 or (not hosts and request.version >= (1, 1)):
        raise InvalidHeader("HOST", req=request)
    if not all(map(_is_host, hosts)):
        raise InvalidHeader("HOST", req=request)
    for name, value in request.headers:
        # RFC 9112 section 6.1. gunicorn takes compressed bodies, and gives them on as they are.
        if name == "TRANSFER-ENCODING" and value.strip(" \t").lower() != "chunked":
            raise UnsupportedTransferCoding(value)


def _is_host(text: str) -> bool:
    match = _HOST.fullmatch(text)
    if match is None or int(match["port"] or 0) > _MAX_PORT:
        return False
    if match["ipv6"] is None:
        return True
    try:
        IPv6Address(match["ipv6"])
    except ValueError:
        return False
    return True
