"""Search texts and their meanings, for the list of sessions, the history and the failed sign-ons.

A search text may have several meanings, and finds the records that match any of these meanings. A prefix
(`id:`, `user:`, `ip:` or `mac:`) selects one meaning.
"""

import re
from enum import StrEnum
from ipaddress import IPv4Network
from typing import NamedTuple

from gateway_contract.base import ipv6
from gateway_contract.base.texts import parse_numeric_id

#: A shorter text of digits is no part of a username or MAC address: it would find most sessions.
_MIN_DIGITS = 4
#: Patterns of a part of a MAC address: bare digits;
_BARE_DIGITS_PATTERN = re.compile(rf"[0-9a-f]{{{_MIN_DIGITS},12}}", re.ASCII)
#: bytes, the first and the last of which may be cut, such as `2:00:0`;
_MAC_BYTES_PATTERN = re.compile(r"[0-9a-f]{0,2}(?:[:-][0-9a-f]{2}){0,5}(?:[:-][0-9a-f]{0,2})?", re.ASCII)
#: groups of four digits, at least one of them whole, as no group of an IPv4 address is as long.
_MAC_GROUPS_PATTERN = re.compile(
    r"[0-9a-f]{4}[.-][0-9a-f]{0,4}|[0-9a-f]{0,4}(?:[.-][0-9a-f]{4}){1,2}(?:[.-][0-9a-f]{0,4})?",
    re.ASCII,
)
_OCTET_COUNT = 4


class Kind(StrEnum):
    """Prefix of a search text, which selects the meaning of the text."""

    ID = "id"
    USER = "user"
    IP = "ip"
    MAC = "mac"


class SearchText(NamedTuple):
    """Meanings of a search text, case-folded. The field of a meaning is None if the text does not have this
    meaning."""

    #: A part of a username.
    name: str | None = None
    #: A whole username, or all of it before an `@`; for a number with few digits.
    short_name: str | None = None
    #: A name or number of anything else, such as an interface.
    key: str | None = None
    #: The id of a session, and nothing else.
    id: int | None = None
    #: A part of a MAC address: bytes with colons between them, or bare digits.
    mac: str | None = None
    #: The first and the last address of an IPv4 network.
    ipv4: tuple[int, int] | None = None
    #: A number of `ipv6.parse_network`.
    ipv6: int | None = None


def split_prefix(text: str) -> tuple[Kind | None, str]:
    """Return the prefix of a search text and the rest of the text. Without a known prefix, return None and
    the whole text."""
    prefix, colon, rest = text.partition(":")
    kind = next((each for each in Kind if colon and each == prefix), None)
    return kind, text if kind is None else rest


def parse_search(text: str) -> SearchText:
    """Return the meanings of a search text. A text that does not fit its prefix has no meaning."""
    kind, rest = split_prefix(text)
    folded_text = rest.casefold()
    match kind:
        case Kind.ID:
            return SearchText(id=_parse_id(rest))
        case Kind.USER:
            return SearchText(name=folded_text or None)
        case Kind.IP:
            return SearchText(ipv4=_parse_ipv4_network(rest), ipv6=_parse_ipv6_network(rest))
        case Kind.MAC:
            return SearchText(mac=_parse_mac_part(folded_text))
    is_short = folded_text.isdecimal() and len(folded_text) < _MIN_DIGITS
    return SearchText(
        name=None if is_short else folded_text,
        short_name=folded_text if is_short else None,
        key=folded_text,
        mac=_parse_mac_part(folded_text),
        ipv4=_parse_ipv4_network(rest),
        ipv6=_parse_ipv6_network(rest),
    )


def _parse_id(text: str) -> int | None:
    try:
        return parse_numeric_id(text)
    except ValueError:
        return None


def _parse_mac_part(text: str) -> str | None:
    """Return a part of a MAC address, with colons or as bare digits. Return None if the text is not such a
    part. The text must be in lower case."""
    if _BARE_DIGITS_PATTERN.fullmatch(text):
        return text
    if (
        not (_MAC_GROUPS_PATTERN.fullmatch(text) or _MAC_BYTES_PATTERN.fullmatch(text))
        or len(text) < _MIN_DIGITS
    ):
        return None
    first, *others = re.split("[:.-]", text)
    digits = "".join([first, *others])
    # A cut first group lacks its beginning.
    start = len(first) % 2
    bytes = [digits[:start], *(digits[at : at + 2] for at in range(start, len(digits), 2))]
    return ":".join(filter(None, bytes))


def _parse_ipv4_network(text: str) -> tuple[int, int] | None:
    """Return the first and the last address of an IPv4 network. The text is an address, a prefix, or the
    first parts of an address, such as `100.64.3`. Return None for any other text, and for a single number:
    thousands of addresses begin with 100."""
    octets = text.rstrip(".").split(".")
    if "." in text and "/" not in text and len(octets) < _OCTET_COUNT:
        text = f"{'.'.join(octets)}{'.0' * (_OCTET_COUNT - len(octets))}/{8 * len(octets)}"
    try:
        network = IPv4Network(text, strict=False)
    except ValueError:
        return None
    return int(network.network_address), int(network.broadcast_address)


def _parse_ipv6_network(text: str) -> int | None:
    """Return the number of an IPv6 network. The text is an address, a prefix, or the first groups of an
    address, such as `2001:db8:0:6`. Return None for any other text."""
    if ":" not in text:
        return None
    groups = text.rstrip(":").split(":")
    for spelling in (text, f"{':'.join(groups)}::/{16 * len(groups)}"):
        try:
            return ipv6.parse_network(spelling)
        except (OSError, ValueError):
            if _parse_mac_part(text.casefold()) is not None:
                break
    return None
