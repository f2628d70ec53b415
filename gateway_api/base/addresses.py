"""Addresses: in the one spelling that records have, and by the client that they belong to."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address

#: Six octets, or three groups of four digits, with one separator throughout; or twelve digits without any.
MAC_PATTERN = (
    "^([0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}|[0-9A-Fa-f]{2}(-[0-9A-Fa-f]{2}){5}"
    "|[0-9A-Fa-f]{4}([.][0-9A-Fa-f]{4}){2}|[0-9A-Fa-f]{4}(-[0-9A-Fa-f]{4}){2}|[0-9A-Fa-f]{12})$"
)

_MAC = re.compile(MAC_PATTERN.removesuffix("$") + r"\Z")


def mac_address(text: str) -> str:
    """In lower case, with colons. Raises ValueError with the rule."""
    if not _MAC.match(text):
        raise ValueError("must be a MAC address, such as 02:00:00:00:00:06 or 0200.0000.0006")
    digits = re.sub("[^0-9a-f]", "", text.lower())
    return ":".join(digits[at : at + 2] for at in range(0, 12, 2))


def ipv4_address(text: str) -> str:
    """As it is, if it is one. Raises ValueError with the rule."""
    try:
        return str(IPv4Address(text))
    except ValueError as error:
        raise ValueError("must be an IPv4 address, such as 100.64.0.5") from error


def client_network(address: str) -> str:
    """What stands for a client: its address, or in IPv6 its network of 64 bits, within which it may have any
    (RFC 4291 section 2.5.4). What is no address, as with a Unix socket's peer, stands for itself."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(IPv6Address(int(parsed) >> 64 << 64))
    return str(parsed)
