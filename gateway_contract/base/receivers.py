"""Receivers of webhooks: the accepted URLs, the denied addresses, and the secrets that sign messages. And the
receivers of the audit log.

The address of a receiver is checked again at each connection, because a host name can resolve to another
address later.
"""

import base64
import re
import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from gateway_contract.base.errors import GatewayApiError

Address = IPv4Address | IPv6Address

#: Always denied: cloud metadata and other link-local services, multicast and broadcast, and the unspecified
#: address. Private addresses are not: receivers are in the operator's own network.
_ALWAYS_DENIED = tuple(
    ip_network(text)
    for text in (
        *("0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32"),
        *("::/128", "fe80::/10", "ff00::/8", "fd00:ec2::254/128"),
    )
)
#: RFC 6052, RFC 6145 and RFC 8215: in these networks, the last 32 bits are an IPv4 address.
_IPV4_IN_LAST_32_BITS = tuple(
    map(IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48"))
)
_WITHOUT_IPV4 = (IPv6Address("::"), IPv6Address("::1"))


#: The destination of the audit log that stands for systemd's journal.
JOURNAL = "journal"
#: RFC 5425 section 4.1.
SYSLOG_TLS_PORT = 6514


class Denied(GatewayApiError):
    """Refusal to deliver messages to an address."""


def _extract_ipv4(address: Address) -> Address:
    """Return the IPv4 address that is embedded in an IPv6 address. Return any other address unchanged."""
    if isinstance(address, IPv6Address) and address not in _WITHOUT_IPV4:
        if any(address in network for network in _IPV4_IN_LAST_32_BITS):
            return IPv4Address(int(address) & 0xFFFFFFFF)
        if address.sixtofour is not None:
            return address.sixtofour
    return address


def check_address(address: Address, denied: Iterable[str] = ()) -> None:
    """Check that messages may be delivered to an address. `denied` contains networks in CIDR notation, in
    addition to the networks that are always denied. Raises Denied if the address is in one of these
    networks."""
    plain = _extract_ipv4(address)
    if any(plain in network or address in network for network in _ALWAYS_DENIED):
        raise Denied(f"{address} is no address to deliver to")
    if any(plain in network or address in network for network in map(ip_network, denied)):
        raise Denied(f"{address} is no address to deliver to: api.webhooks.denied_networks has it")


def parse_literal(host: str) -> Address | None:
    """Return the IP address in the host of a URL, in any spelling that the system accepts. Return None if the
    host is a name."""
    try:
        return ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        pass
    try:
        # inet_aton(3) accepts 2852039166, 0xa9.0xfe.0xa9.0xfe and 0251.254.169.254, too.
        return IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


MAX_URL_LENGTH = 2048
#: The rules of `check_url`, as far as JSON Schema can express them.
URL_PATTERN = (
    r"^[hH][tT][tT][pP][sS]?://(?:[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?|\[[0-9A-Fa-f:.]+\])"
    r"(?::[0-9]{0,5})?(?:[/?][!\x22\x24-\x5b\x5d-~]*)?$"
)

_AUTHORITY_PATTERN = re.compile(r"(?:\[(?P<literal>[^\[\]]*)\]|(?P<name>[^:\[\]]*))(?::(?P<port>[^:\[\]]*))?")
_BRACKETS_RULE = "must have an IPv6 address in brackets, and nothing else"


def check_url(text: str) -> str:
    """Check the URL of a receiver, and return the URL. Only the form of a host name is checked: the name is
    resolved at each connection. Raises ValueError with the broken rule if the URL is not valid."""
    if len(text) > MAX_URL_LENGTH:
        raise ValueError(f"must have at most {MAX_URL_LENGTH} characters")
    # Browsers read a backslash as a slash, libraries do not: they would disagree about the host.
    if not re.fullmatch(r"[!-~]+", text, re.ASCII) or "\\" in text:
        raise ValueError("must be printable ASCII without spaces and backslashes")
    try:
        parts = urlsplit(text)
    except ValueError as error:
        # urlsplit checks only brackets.
        raise ValueError(_BRACKETS_RULE) from error
    if parts.scheme not in ("http", "https"):
        raise ValueError("must begin with http:// or https://")
    if "@" in parts.netloc:
        raise ValueError("must not hold a user or a password")
    if "#" in text:
        raise ValueError("must not have a fragment")
    match = _AUTHORITY_PATTERN.fullmatch(parts.netloc)
    if match is None:
        raise ValueError(_BRACKETS_RULE if "[" in parts.netloc else "must name a host, and at most one port")
    port = match["port"]
    if port and not (port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535):
        raise ValueError("must have a port from 1 to 65535, or none")
    if match["literal"] is not None:
        _check_ipv6(match["literal"])
    else:
        _check_name(match["name"])
    return text


def check_audit_receiver(text: str) -> str:
    """Check a destination of the audit log, and return the destination: `journal`, or `tls://HOST:PORT`,
    where the port is optional. Raises ValueError with the broken rule if the destination is not valid."""
    scheme, _, authority = text.partition("://")
    if text != JOURNAL and (scheme != "tls" or re.search("[/?#]", authority)):
        raise ValueError("must be journal, or tls:// with a host and a port, such as tls://logs.example:6514")
    if text != JOURNAL:
        check_url(f"https://{authority}")
    return text


def _check_ipv6(text: str) -> None:
    try:
        address = IPv6Address(text.partition("%")[0])
    except ValueError as error:
        raise ValueError(_BRACKETS_RULE) from error
    _check_url_address(address)
    if "%" in text:
        # RFC 4007 section 6: only link-local addresses need a zone, and these are denied.
        raise ValueError("must not have a zone")


def _check_name(text: str) -> None:
    if not text:
        raise ValueError("must name a host")
    if "%" in text:
        raise ValueError("must not have a percent-encoded host")
    if not re.fullmatch(r"[A-Za-z0-9._-]+", text):
        raise ValueError("must name a host in letters, digits, hyphens, underscores and dots")
    address = parse_literal(text)
    if address is not None:
        _check_url_address(address)
        return
    # RFC 1035 section 2.3.4. The dot of the root does not count.
    labels = text.removesuffix(".").split(".")
    if not all(1 <= len(label) <= 63 for label in labels):
        raise ValueError("must name a host whose labels have 1 to 63 characters")
    if len(".".join(labels)) > 253:
        raise ValueError("must name a host in at most 253 characters")
    # RFC 1123 section 2.1: otherwise it could be read as an address.
    if re.fullmatch(r"[0-9]+|0[xX][0-9A-Fa-f]*", labels[-1]):
        raise ValueError("must name a host: this ends in a number, and is no IPv4 address")


def _check_url_address(address: Address) -> None:
    try:
        check_address(address)
    except Denied as error:
        raise ValueError("must not be a link-local, unspecified, multicast or broadcast address") from error


def check_secret(text: str) -> str:
    """Check the secret of a receiver, and return the secret. Raises ValueError with the broken rule if the
    secret is not valid."""
    decode_secret(text)
    return text


def decode_secret(secret: str) -> bytes:
    """Return the key that a secret encodes. Raises ValueError with the broken rule if the secret is not
    valid."""
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except ValueError:
        key = b""
    if not 24 <= len(key) <= 64:
        raise ValueError("must be base64 of 24 to 64 bytes, with whsec_ before it or without")
    return key
