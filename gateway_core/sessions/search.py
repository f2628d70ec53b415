"""Sessions by what an operator knows of them: a part of a name or of an address, or a number."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from operator import or_
from typing import Generic, NamedTuple, TypeVar

from gateway_contract.base.search import SearchText
from gateway_core.records.orders import ByChunk, SortedSnapshot
from gateway_core.sessions.session import Session, ipv4_key

S = TypeVar("S", bound=Session)

#: Any interface, number or accounting id, or the beginning of one.
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
        return cls(each, _BETWEEN.join(["", *each, ""]))

    def having(self, part: str) -> list[bool]:
        """Return whether the text of each session has this part; empty if none has."""
        return [part in text for text in self.texts] if part in self.all else []

    def named(self, name: str) -> list[bool]:
        """Return True for each session whose text is this name, with or without a realm; an empty list if
        there is none."""
        with_realm = f"{name}@"
        if not any(f"{_BETWEEN}{name}{after}" in self.all for after in (_BETWEEN, "@")):
            return []
        return [text == name or text.startswith(with_realm) for text in self.texts]


class _Addresses(NamedTuple):
    """The IPv4 addresses of the sessions of a chunk as numbers, -1 for none: by session, and ascending, which
    tells at once that a chunk has none of a network."""

    each: list[int]
    ascending: list[int]

    @classmethod
    def of(cls, numbers: Iterable[int]) -> "_Addresses":
        each = list(numbers)
        return cls(each, sorted(each))

    def inside(self, first: int, last: int) -> list[bool]:
        """Return True for each session whose address is in this range; an empty list if there is none."""
        if bisect_left(self.ascending, first) == bisect_right(self.ascending, last):
            return []
        return [first <= number <= last for number in self.each]


class _Texts(NamedTuple):
    """The texts of the sessions of a chunk. Keys are between line feeds."""

    usernames: _Each
    keys: _Each
    macs: _Each
    addresses: _Addresses


class Search(Generic[S]):
    """Any thread may call."""

    def __init__(self) -> None:
        #: 450 bytes for each session.
        self._texts: ByChunk[S, _Texts] = ByChunk(_texts)

    def found(self, sessions: SortedSnapshot[S], wanted: SearchText) -> list[S]:
        """Return the sessions that a text means, in the order of the snapshot, but for those by id and
        IPv6."""
        choosers = list(_make_choosers(wanted))
        return [
            session
            for chunk, texts in self._texts.of(sessions)
            for session in compress(chunk, _any_of(choosers, texts))
        ]


#: Which sessions of a chunk are found. An empty list is none.
_Chosen = Callable[[_Texts], list[bool]]


def _any_of(choosers: Iterable[_Chosen], texts: _Texts) -> list[bool]:
    found: list[bool] = []
    for chosen in choosers:
        found = _either(found, chosen(texts))
    return found


def _make_choosers(wanted: SearchText) -> Iterator[_Chosen]:
    if (name := wanted.name) is not None:
        yield lambda texts: texts.usernames.having(name)
    if (number := wanted.short_name) is not None:
        yield lambda texts: texts.usernames.named(number)
    if wanted.key is not None and _KEY.fullmatch(wanted.key):
        yield _with_key(wanted.key)
    if (mac := wanted.mac) is not None:
        yield lambda texts: texts.macs.having(mac)
    if wanted.ipv4 is not None:
        first, last = wanted.ipv4
        yield lambda texts: texts.addresses.inside(first, last)


def _with_key(text: str) -> _Chosen:
    begins, whole = f"\n{text}", f"\n{text}\n"
    # A bare number is an id or a VLAN id, and never the beginning of a name.
    before_a_dot = whole if text.isdecimal() else f"\n{text.rstrip('.')}."
    accounting_id = f"\n\n{text}" if len(text) >= _LEAST_OF_ACCOUNTING_ID else whole

    def is_key(keys: str) -> bool:
        return whole in keys or before_a_dot in keys or accounting_id in keys

    def chosen(texts: _Texts) -> list[bool]:
        if begins not in texts.keys.all:
            return []
        return [begins in keys and is_key(keys) for keys in texts.keys.texts]

    return chosen


def _either(some: list[bool], others: list[bool]) -> list[bool]:
    """Return whether one of two is true, for each session."""
    return list(map(or_, some, others)) if some and others else some or others


def _texts(sessions: Sequence[Session]) -> _Texts:
    return _Texts(
        _Each.of(session.summary.username.casefold() for session in sessions),
        _Each.of(_keys(session) for session in sessions),
        _Each.of(_mac(session.summary.mac_address) for session in sessions),
        _Addresses.of(ipv4_key(session.summary.ip_address) for session in sessions),
    )


def _keys(session: Session) -> str:
    summary = session.summary
    keys = (
        summary.interface.casefold(),
        summary.access_interface.casefold(),
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
