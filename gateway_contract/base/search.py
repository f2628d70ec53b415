"""Texts of searches: what an operator may mean by a text. The lists of sessions, the history and the failed
sign-ons share this reading.

A text may mean several things, and finds by each of them. `id:`, `user:`, `ip:` or `mac:` before it says
which.
"""

import re
from enum import StrEnum
from ipaddress import IPv4Network
from typing import NamedTuple

from gateway_contract.base import ipv6
from gateway_contract.base.texts import parse_numeric_id

#: A shorter text of digits is no part of a username or MAC address: it would find most sessions.
_LEAST_DIGITS = 4
_BARE = re.compile(rf"[0-9a-f]{{{_LEAST_DIGITS},12}}", re.ASCII)
#: Bytes, the first and the last of which may be cut, such as `2:00:0`.
_BYTES = re.compile(r"[0-9a-f]{0,2}(?:[:-][0-9a-f]{2}){0,5}(?:[:-][0-9a-f]{0,2})?", re.ASCII)
#: Groups of four digits, at least one of them whole: no group of an IPv4 address is as long.
_GROUPS = re.compile(
    r"[0-9a-f]{4}[.-][0-9a-f]{0,4}|[0-9a-f]{0,4}(?:[.-][0-9a-f]{4}){1,2}(?:[.-][0-9a-f]{0,4})?",
    re.ASCII,
)
_OCTETS = 4


class Kind(StrEnum):
    """A way to name a session: the word before a colon."""

    ID = "id"
    USER = "user"
    IP = "ip"
    MAC = "mac"


class SearchText(NamedTuple):
    """The meanings of a text. A field is None for a text that cannot mean it. Texts are case-folded."""

    #: A part of a username.
    name: str | None = None
    #: A whole username, or all of it before an `@`: a number with few digits.
    short_name: str | None = None
    #: Anything else that has a name or number, such as an interface.
    key: str | None = None
    #: The id of a session, and nothing else.
    id: int | None = None
    #: A part of a MAC address: bytes with colons between them, or digits from within bytes.
    mac: str | None = None
    #: The first and the last address of an IPv4 network.
    ipv4: tuple[int, int] | None = None
    #: A network as `ipv6.network` makes it.
    ipv6: int | None = None


def split_kind(text: str) -> tuple[Kind | None, str]:
    """Return the kind that a text says, or None, and the rest of the text."""
    word, colon, rest = text.partition(":")
    kind = next((each for each in Kind if colon and each == word), None)
    return kind, text if kind is None else rest


def parse_search(text: str) -> SearchText:
    """Read the text of a search. A text that cannot be of the kind that it says means nothing."""
    kind, rest = split_kind(text)
    folded = rest.casefold()
    match kind:
        case Kind.ID:
            return SearchText(id=_id(rest))
        case Kind.USER:
            return SearchText(name=folded or None)
        case Kind.IP:
            return SearchText(ipv4=_ipv4_range(rest), ipv6=_ipv6_network(rest))
        case Kind.MAC:
            return SearchText(mac=_mac_part(folded))
    is_short = folded.isdecimal() and len(folded) < _LEAST_DIGITS
    return SearchText(
        name=None if is_short else folded,
        short_name=folded if is_short else None,
        key=folded,
        mac=_mac_part(folded),
        ipv4=_ipv4_range(rest),
        ipv6=_ipv6_network(rest),
    )


def _id(text: str) -> int | None:
    try:
        return parse_numeric_id(text)
    except ValueError:
        return None


def _mac_part(text: str) -> str | None:
    """Return the part of a MAC address, with colons or bare digits; None for a text that cannot be one. The
    text is in lower case."""
    if _BARE.fullmatch(text):
        return text
    if not (_GROUPS.fullmatch(text) or _BYTES.fullmatch(text)) or len(text) < _LEAST_DIGITS:
        return None
    first, *others = re.split("[:.-]", text)
    digits = "".join([first, *others])
    # If the first group is cut, it lacks its beginning.
    start = len(first) % 2
    bytes = [digits[:start], *(digits[at : at + 2] for at in range(start, len(digits), 2))]
    return ":".join(filter(None, bytes))


def _ipv4_range(text: str) -> tuple[int, int] | None:
    """Return the network of an IPv4 address, of a prefix, or of the first parts of an address, such as
    `100.64.3`. A number alone is none: thousands of addresses begin with 100."""
    octets = text.rstrip(".").split(".")
    if "." in text and "/" not in text and len(octets) < _OCTETS:
        text = f"{'.'.join(octets)}{'.0' * (_OCTETS - len(octets))}/{8 * len(octets)}"
    try:
        network = IPv4Network(text, strict=False)
    except ValueError:
        return None
    return int(network.network_address), int(network.broadcast_address)


def _ipv6_network(text: str) -> int | None:
    """Return the network of an IPv6 address, of a prefix, or of the first groups of one, such as
    `2001:db8:0:6`; None for any other text."""
    if ":" not in text:
        return None
    groups = text.rstrip(":").split(":")
    for spelled in (text, f"{':'.join(groups)}::/{16 * len(groups)}"):
        try:
            return ipv6.network(spelled)
        except (OSError, ValueError):
            if _mac_part(text.casefold()) is not None:
                break
    return None
