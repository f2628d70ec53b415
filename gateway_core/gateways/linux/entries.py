"""Reading of entries in lists of sources, daemons and the kernel. An entry is a line of a file, a row of a
table, or a message.

An unreadable entry is skipped, logged and counted, and the other entries are still read: a subscriber who has
caused an unreadable entry must not harm other subscribers. An incomplete list, such as a file whose last line
has no line end, is not read: the reader raises an error, and nothing changes.
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
    """Failure to parse an entry. The text of the error is for the log and contains no data that a subscriber
    sent."""


def _return_entry(entry: Any) -> Any:
    return entry


class EntryReader:
    """Reader of the entries of one kind. Thread-safe. Each reader must be a constant of a module, because the
    function `count_skipped` keeps a reference to every reader.

    `source` and `kind` are labels of the metric. `entries` and `consequence` are parts of the log line:
    `entries` is a plural with its owner, such as `the lines of FILE`; `consequence` is a sentence without
    full stop.
    """

    def __init__(self, source: str, kind: str, entries: str, consequence: str) -> None:
        self._source = source
        self._kind = kind
        self._entries = entries
        self._consequence = consequence
        self._lock = threading.Lock()
        self._skipped_count = 0
        #: Names of the entries that the last reading skipped, by place. Places without such entries are
        #: absent.
        self._unreadable_names: dict[Hashable, set[Hashable]] = {}
        _all_readers.append(self)

    def read(
        self,
        entries: Iterable[E],
        parse: Callable[[E], T],
        *,
        instead: Callable[[E], T | None] = lambda _: None,
        name: Callable[[E], Hashable] = _return_entry,
        place: Hashable = None,
    ) -> list[T]:
        """Parse entries, and return the values. An entry is unreadable if `parse` raises UnreadableEntry.

        `instead` returns the value for an unreadable entry, or None to skip the entry. `name` identifies an
        entry: an unreadable entry with the same name in consecutive readings is counted once. `place`
        identifies a list, such as a file: unreadable entries are logged for each place.
        """
        values: list[T] = []
        unreadable: set[Hashable] = set()
        reason: UnreadableEntry | None = None
        for entry in entries:
            try:
                values.append(parse(entry))
            except UnreadableEntry as error:
                reason = reason or error
                unreadable.add(name(entry))
                value = instead(entry)
                if value is not None:
                    values.append(value)
        self._record_unreadable(place, unreadable, reason)
        return values

    def count_skipped(self) -> SkippedEntries:
        """Return the number of unreadable entries since the start."""
        with self._lock:
            return SkippedEntries(self._source, self._kind, self._skipped_count)

    def _record_unreadable(
        self, place: Hashable, unreadable: set[Hashable], reason: UnreadableEntry | None
    ) -> None:
        with self._lock:
            before = self._unreadable_names.pop(place, set())
            if not unreadable:
                return
            self._unreadable_names[place] = unreadable
            self._skipped_count += len(unreadable - before)
        if not before:
            unreadable_count = len(unreadable)
            _log.warning(
                "cannot read %d of %s: %s; %s", unreadable_count, self._entries, reason, self._consequence
            )


_all_readers: list[EntryReader] = []


def count_skipped() -> tuple[SkippedEntries, ...]:
    """Return the number of unreadable entries of each reader since the start of the core."""
    return tuple(reader.count_skipped() for reader in _all_readers)
