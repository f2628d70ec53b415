"""The temporary rates of the lab's sessions on disk. After a restart with the same seed, the first sessions
are there again, with the same accounting ids."""

import logging
import sqlite3
from pathlib import Path

import msgspec

from gateway_contract.base.databases import Database
from gateway_contract.base.errors import StepFailed
from gateway_contract.contract import Record
from gateway_core.configuration.store import disk_step
from gateway_core.records.clock import Expiry

_SCHEMA = "CREATE TABLE IF NOT EXISTS rate (acct_session_id TEXT PRIMARY KEY, rate TEXT NOT NULL)"
_PUT = "INSERT OR {} INTO rate VALUES (?, ?)"
_FORGET = "DELETE FROM rate WHERE acct_session_id = ?"
#: Seconds to wait for a backup that reads the database.
_PATIENCE = 1.0
_STEP = "store temporary rates"


_log = logging.getLogger(__name__)


class KeptRate(Record, frozen=True):
    """Rates in force, in bits per second, until their expiry."""

    down_bps: int
    up_bps: int
    expiry: Expiry


class KeptRates:
    """The rates in a folder, by accounting id. For one thread at a time. Raises StepFailed."""

    def __init__(self, folder: Path) -> None:
        #: As on disk.
        self._rates: dict[str, str] = {}
        self._database = Database(
            folder / "rates.sqlite", "store of temporary rates", self._prepare, _PATIENCE
        )
        with disk_step(_STEP):
            self._rates = dict(self._database.open().execute("SELECT acct_session_id, rate FROM rate"))

    def all(self) -> dict[str, KeptRate]:
        return {id: msgspec.json.decode(text, type=KeptRate) for id, text in self._rates.items()}

    def put(self, acct_session_id: str, rate: KeptRate) -> None:
        row = acct_session_id, msgspec.json.encode(rate).decode()
        with disk_step(_STEP):
            self._database.use(lambda connection: connection.execute(_PUT.format("REPLACE"), row))
        self._rates[acct_session_id] = row[1]

    def forget(self, acct_session_id: str) -> None:
        """A failure is only logged: the session has ended, or has other rates."""
        self._rates.pop(acct_session_id, None)
        try:
            with disk_step(_STEP):
                self._database.use(lambda connection: connection.execute(_FORGET, (acct_session_id,)))
        except StepFailed as error:
            _log.error("a temporary rate may come back after a restart: %s", error.sentence)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # After a commit, a power cut must not bring the journal back.
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute(_SCHEMA)
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_PUT.format("IGNORE"), self._rates.items())
