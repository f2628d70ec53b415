"""Addresses as people type them, in the one spelling that records have."""

import re
from ipaddress import IPv4Address

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
