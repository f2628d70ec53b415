"""Entries that sources, daemons and the kernel list: lines of a file, rows of a table, messages.

An unreadable entry is skipped, logged and counted, and the others are read all the same: a subscriber may
have caused it, and must not harm the others. A list that is not whole, such as a file without its last line
end, has no entries yet: its reader raises an error, and nothing changes.
"""

import logging
import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

from gateway_contract.base.errors import GatewayApiError
from gateway_contract.core.health import SkippedEntries

E = TypeVar("E")
T = TypeVar("T")

_log = logging.getLogger(__name__)


class UnreadableEntry(GatewayApiError):
    """Failure to parse an entry. The text is for the log, and has nothing that a subscriber sent."""


def _return_entry(entry: Any) -> Any:
    return entry


class EntryReader:
    """Reader of the entries of one kind, a constant of its module: `count_skipped` counts all readers.
    Thread-safe.

    `source` and `kind` are labels of the metric. In the log line, `entries` is a plural with its owner, such
    as `the lines of FILE`, and `consequence` a sentence without its end.
    """

    def __init__(self, source: str, kind: str, entries: str, consequence: str) -> None:
        self._source = source
        self._kind = kind
        self._entries = entries
        self._consequence = consequence
        self._lock = threading.Lock()
        self._skipped = 0
        #: The names of the entries that the last reading skipped, by place, if there were any.
        self._unreadable: dict[Hashable, set[Hashable]] = {}
        _readers.append(self)

    def read(
        self,
        entries: Iterable[E],
        parse: Callable[[E], T],
        *,
        instead: Callable[[E], T | None] = lambda _: None,
        name: Callable[[E], Hashable] = _return_entry,
        place: Hashable = None,
    ) -> list[T]:
        """Return the values of all entries for which `parse` does not raise UnreadableEntry.

        `instead` returns the value of an unreadable entry, or None to skip it. An entry that is read again
        counts once, by its `name`. Each `place` of entries has log lines of its own.
        """
        found: list[T] = []
        unreadable: set[Hashable] = set()
        reason: UnreadableEntry | None = None
        for entry in entries:
            try:
                found.append(parse(entry))
            except UnreadableEntry as error:
                reason = reason or error
                unreadable.add(name(entry))
                value = instead(entry)
                if value is not None:
                    found.append(value)
        self._note(place, unreadable, reason)
        return found

    def count_skipped(self) -> SkippedEntries:
        """Return the number of entries that were skipped since the start."""
        with self._lock:
            return SkippedEntries(self._source, self._kind, self._skipped)

    def _note(self, place: Hashable, unreadable: set[Hashable], reason: UnreadableEntry | None) -> None:
        with self._lock:
            before = self._unreadable.pop(place, set())
            if not unreadable:
                return
            self._unreadable[place] = unreadable
            self._skipped += len(unreadable - before)
        if not before:
            number = len(unreadable)
            _log.warning("cannot read %d of %s: %s; %s", number, self._entries, reason, self._consequence)


_readers: list[EntryReader] = []


def count_skipped() -> tuple[SkippedEntries, ...]:
    """Return the numbers of all readers."""
    return tuple(reader.count_skipped() for reader in _readers)
