"""Takes over the records of versions before the database: files of JSON lines."""

import logging
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec

_log = logging.getLogger("gunicorn.error")

_INSERT = "INSERT OR IGNORE INTO record (number, record) SELECT ?1, ?2 WHERE json_valid(?2)"
_NEWEST_CHANGE = """
SELECT json_extract(record, '$.request_id') FROM record
WHERE json_extract(record, '$.role') = 'system' ORDER BY number DESC LIMIT 1
"""


class _Place(msgspec.Struct, frozen=True):
    """The last change of the core that is recorded."""

    log: str
    sequence: int


def take_over(connection: sqlite3.Connection, database: Path) -> None:
    """Moves the records of the files beside a database into it. A record keeps its number, which was the
    position of its line. So a second import, after a crash before the files were removed, changes nothing.
    Raises OSError and sqlite3.Error."""
    names = re.compile(rf"{database.stem}-\d{{20}}\.jsonl", re.ASCII)
    files = sorted(path for path in database.parent.iterdir() if names.fullmatch(path.name))
    if not files:
        return
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(_INSERT, (line for path in files for line in _lines(path)))
    hint = database.with_name("core-changes")
    if place := _place(connection, hint):
        connection.execute("INSERT OR IGNORE INTO place VALUES (1, ?, ?)", (place.log, place.sequence))
    connection.execute("COMMIT")
    for path in files:
        path.unlink()
    if database.stem == "known":
        hint.unlink(missing_ok=True)
    _log.info("took %d files of the audit log over into %s", len(files), database)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    position = int(path.stem.rpartition("-")[2])
    with path.open("rb") as file:
        for line in file:
            # The writer of a line without an end was killed.
            if line.endswith(b"\n") and line.isascii():
                yield position, line[:-1].decode()
            position += len(line)


def _place(connection: sqlite3.Connection, hint: Path) -> _Place | None:
    """From the request id of the newest record of a change, or else from the file beside the records."""
    (id,) = connection.execute(_NEWEST_CHANGE).fetchone() or ("",)
    try:
        if id:
            _, log, sequence = id.split("-")
            return _Place(log, int(sequence))
        return msgspec.json.decode(hint.read_bytes(), type=_Place)
    except (OSError, ValueError) as error:
        _log.info("no change of the core was recorded before: %s", error)
        return None
