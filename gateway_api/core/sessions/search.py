"""Sessions by what an operator knows of them: a part of a name or of an address, or a number.

A text may mean several of these. It finds a session by any of them.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv4Network
from itertools import compress
from operator import or_
from typing import Generic, NamedTuple, TypeVar

from gateway_api.core.records.orders import ByChunk, SortedSnapshot
from gateway_api.core.sessions import ipv6
from gateway_api.core.sessions.session import Session, ipv4_key

S = TypeVar("S", bound=Session)

#: A shorter text of digits is an id: as a part of a username or MAC address it would find most sessions.
_LEAST_DIGITS = 4
_BARE = re.compile(rf"[0-9a-f]{{{_LEAST_DIGITS},12}}", re.ASCII)
#: Bytes, the first and the last of which may be cut, such as `2:00:0`.
_BYTES = re.compile(r"[0-9a-f]{0,2}(?:[:-][0-9a-f]{2}){0,5}(?:[:-][0-9a-f]{0,2})?", re.ASCII)
#: Groups of four digits, at least one of them whole: no group of an IPv4 address is as long.
_GROUPS = re.compile(
    r"[0-9a-f]{4}\.[0-9a-f]{0,4}|[0-9a-f]{0,4}(?:\.[0-9a-f]{4}){1,2}(?:\.[0-9a-f]{0,4})?",
    re.ASCII,
)
#: Any interface, IPv4 address, number or accounting id, or the beginning of one.
_KEY = re.compile(r"[^\s@:]+")
#: Characters of the beginning of an accounting id: any that is shorter would be many.
_LEAST_OF_ACCOUNTING_ID = 4
#: Between the texts of two sessions. A username may have any other character.
_BETWEEN = "\0"
#: The value of a key that a session does not have.
_NONE = " "


class _Each(NamedTuple):
    """A text of each session of a chunk, and all of them as one: most chunks do not have what is wanted, and
    one look tells."""

    texts: list[str]
    all: str

    @classmethod
    def of(cls, texts: Iterable[str]) -> "_Each":
        each = list(texts)
        return cls(each, _BETWEEN.join(each))

    def having(self, part: str) -> list[bool]:
        """Whether the text of each session has this part; empty if none has."""
        return [part in text for text in self.texts] if part in self.all else []


class _Texts(NamedTuple):
    """The texts of the sessions of a chunk. Keys are between line feeds."""

    usernames: _Each
    keys: _Each
    macs: _Each
    #: IPv4 addresses as numbers, -1 for none.
    addresses: list[int]


class Search(Generic[S]):
    """Any thread may call."""

    def __init__(self) -> None:
        #: 450 bytes for each session.
        self._texts: ByChunk[S, _Texts] = ByChunk(_texts)

    def found(self, sessions: SortedSnapshot[S], text: str) -> list[S]:
        """The sessions that a text means, in the order of the snapshot, but for IPv6."""
        chosen = _chosen(text)
        return [
            session for chunk, texts in self._texts.of(sessions) for session in compress(chunk, chosen(texts))
        ]


#: Which sessions of a chunk are found. An empty list is none.
_Chosen = Callable[[_Texts], list[bool]]


def _chosen(text: str) -> _Chosen:
    by_text, in_network = _by_text(text.casefold()), _in_network(text)
    if in_network is None:
        return by_text
    return lambda texts: _either(by_text(texts), in_network(texts))


def _in_network(text: str) -> _Chosen | None:
    """For an IPv4 network in CIDR notation, None for any other text."""
    try:
        network = IPv4Network(text, strict=False) if "/" in text else None
    except ValueError:
        return None
    if network is None:
        return None
    first, last = int(network.network_address), int(network.broadcast_address)
    return lambda texts: [first <= address <= last for address in texts.addresses]


def _by_text(text: str) -> _Chosen:
    """For a text in lower case."""
    begins, whole = f"\n{text}", f"\n{text}\n"
    # A bare number is an id: thousands of addresses begin with 100.
    before_a_dot = whole if text.isdecimal() else f"\n{text.rstrip('.')}."
    accounting_id = f"\n\n{text}" if len(text) >= _LEAST_OF_ACCOUNTING_ID else whole
    may_be_name = not text.isdecimal() or len(text) >= _LEAST_DIGITS
    may_be_key, mac = bool(_KEY.fullmatch(text)), mac_part(text)

    def is_key(keys: str) -> bool:
        return whole in keys or before_a_dot in keys or accounting_id in keys

    def chosen(texts: _Texts) -> list[bool]:
        found = texts.usernames.having(text) if may_be_name else []
        if may_be_key and begins in texts.keys.all:
            found = _either(found, [begins in keys and is_key(keys) for keys in texts.keys.texts])
        return found if mac is None else _either(found, texts.macs.having(mac))

    return chosen


def _either(some: list[bool], others: list[bool]) -> list[bool]:
    """Whether one of two is true, for each session."""
    return list(map(or_, some, others)) if some and others else some or others


def mac_part(text: str) -> str | None:
    """The part of a MAC address, with colons or bare digits; None for a text that can be none. The text is in
    lower case."""
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


def ipv6_network(text: str) -> int | None:
    """As `ipv6.network` makes it: of an address, of a prefix, or of the first groups of one, such as
    `2001:db8:0:6`. None for any other text."""
    if ":" not in text:
        return None
    groups = text.rstrip(":").split(":")
    for spelled in (text, f"{':'.join(groups)}::/{16 * len(groups)}"):
        try:
            return ipv6.network(spelled)
        except (OSError, ValueError):
            if mac_part(text.casefold()) is not None:
                break
    return None


def _texts(sessions: Sequence[Session]) -> _Texts:
    return _Texts(
        _Each.of(session.summary.username.casefold() for session in sessions),
        _Each.of(_keys(session) for session in sessions),
        _Each.of(_mac(session.summary.mac_address) for session in sessions),
        [ipv4_key(session.summary.ip_address) for session in sessions],
    )


def _keys(session: Session) -> str:
    summary = session.summary
    keys = (
        summary.interface.casefold(),
        summary.access_interface.casefold(),
        summary.ip_address,
        summary.id,
        summary.outer_vlan_id,
        summary.inner_vlan_id,
    )
    # The accounting id is found by its beginning, so another line feed is before it.
    texts = (_NONE if key is None or key == "" else str(key) for key in keys)
    return "\n" + "\n".join(texts) + f"\n\n{session.acct_session_id.casefold() or _NONE}\n"


def _mac(address: str | None) -> str:
    """With colons, and as bare digits."""
    return f"{address} {address.replace(':', '')}" if address else ""
