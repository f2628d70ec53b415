"""The writer of the traffic over time: a row for each sample, without those of times that nobody sampled."""

import sqlite3
from pathlib import Path

from gateway_api.history import database
from gateway_api.history.record import TrafficSample
from gateway_api.history.writer import Writer

#: Rows in one removal.
_AT_ONCE = 10_000


class TrafficStore(Writer):
    """As `Writer`. A damaged file is left to the writer of sessions."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, *database.open_beside(path))

    def add(self, sample: TrafficSample) -> None:
        database.require_room(self._path)
        row = sample.at, sample.down_bps, sample.up_bps
        self._connection.execute("INSERT OR REPLACE INTO traffic VALUES (?, ?, ?)", row)


def trim(connection: sqlite3.Connection, before: int, most: int) -> bool:
    """Removes some samples of before a time, and of those that are more than so many. True if there may be
    more of them."""
    oldest = connection.execute(
        "SELECT at FROM traffic ORDER BY at DESC LIMIT 1 OFFSET ?", (most - 1,)
    ).fetchone()
    until = before if oldest is None else max(before, oldest[0])
    rows = "SELECT at FROM traffic WHERE at < ? ORDER BY at LIMIT ?"
    removed = connection.execute(f"DELETE FROM traffic WHERE at IN ({rows})", (until, _AT_ONCE))  # noqa: S608
    return removed.rowcount == _AT_ONCE
