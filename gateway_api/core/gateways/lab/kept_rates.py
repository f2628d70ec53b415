"""The temporary rates of the lab's sessions on disk. After a restart with the same seed, the first sessions
are there again, with the same accounting ids."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gateway_api.base import durable
from gateway_api.base.errors import NotDone
from gateway_api.core.expiry import Expiry
from gateway_api.wire.contract import Record

_SCHEMA = "CREATE TABLE IF NOT EXISTS rate (acct_session_id TEXT PRIMARY KEY, rate TEXT NOT NULL)"
#: Seconds to wait for a backup that reads the database.
_PATIENCE = 1.0


_log = logging.getLogger(__name__)


class KeptRate(Record, frozen=True):
    """Rates in force, in bits per second, until their expiry."""

    down_bps: int
    up_bps: int
    expiry: Expiry


class KeptRates:
    """The rates in a folder, by accounting id. For one thread at a time. Raises NotDone."""

    def __init__(self, folder: Path) -> None:
        with _not_done():
            durable.make_folder(folder)
            path = folder / "rates.sqlite"
            if not durable.is_whole(path):
                durable.set_aside(path)
            self._connection = durable.database(path, timeout=_PATIENCE)
            # After a commit, a power cut must not bring the journal back.
            self._connection.execute("PRAGMA synchronous = EXTRA")
            self._connection.execute(_SCHEMA)

    def all(self) -> dict[str, KeptRate]:
        with _not_done():
            rows = self._connection.execute("SELECT acct_session_id, rate FROM rate").fetchall()
        return {id: msgspec.json.decode(text, type=KeptRate) for id, text in rows}

    def put(self, acct_session_id: str, rate: KeptRate) -> None:
        with _not_done():
            row = acct_session_id, msgspec.json.encode(rate).decode()
            self._connection.execute("INSERT OR REPLACE INTO rate VALUES (?, ?)", row)

    def forget(self, acct_session_id: str) -> None:
        """A failure is only logged: the session has ended, or has other rates."""
        try:
            with _not_done():
                self._connection.execute("DELETE FROM rate WHERE acct_session_id = ?", (acct_session_id,))
        except NotDone as error:
            _log.error("a temporary rate may come back after a restart: %s", error)


@contextmanager
def _not_done() -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise NotDone("store temporary rates", reason or "unknown") from error
