"""The writer of failed sign-ons.

Routers try again for as long as they are on, so attempts that follow one another are one row. As for
sessions, a batch and the place of its last failure are one commit.
"""

# ruff: noqa: S608 - the texts of SQL have no values.

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gateway_api.history import database, keys
from gateway_api.history.writer import Writer
from gateway_api.wire.core.sign_ons import FailedSignOn

#: Seconds after the last attempt of a row in which another one still belongs to it.
_TOGETHER = 900
_AGAIN = f"""
UPDATE failed_sign_on SET last = max(last, :at), attempts = attempts + 1 WHERE number = (
    SELECT number FROM failed_sign_on
    WHERE username IS :username AND mac IS :mac AND access = :access AND reason = :reason
        AND began <= :at AND last >= :at - {_TOGETHER}
    ORDER BY began DESC LIMIT 1
)
"""
_FIRST = """
INSERT INTO failed_sign_on
    (type, username, mac, access, outer_vlan, inner_vlan, source, reason, began, last, attempts)
VALUES (:type, :username, :mac, :access, :outer_vlan, :inner_vlan, :source, :reason, :at, :at, 1)
"""


class SignOnPlace(NamedTuple):
    """The last failure at the core that is in the history."""

    boot_id: str
    sequence: int


class SignOnStore(Writer):
    """As `Writer`. A damaged file is left to the writer of sessions, which sets it aside: two would set the
    new one aside, too."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, *database.open_beside(path))

    def place(self) -> SignOnPlace | None:
        row = self._connection.execute("SELECT boot_id, sequence FROM sign_on_place").fetchone()
        return SignOnPlace(*row) if row else None

    def add(self, failures: Sequence[FailedSignOn], place: SignOnPlace) -> None:
        """All of them, or none."""
        database.require_room(self._path)
        with self._transaction():
            for failure in failures:
                self._add(failure)
            self._connection.execute("INSERT OR REPLACE INTO sign_on_place VALUES (1, ?, ?)", place)

    def _add(self, failure: FailedSignOn) -> None:
        mac = failure.mac_address
        values = {
            "type": str(failure.type),
            "username": None if failure.username is None else self._text(failure.username),
            "mac": None if mac is None else self._text(keys.of_mac(mac)),
            "access": self._text(failure.access_interface),
            "outer_vlan": failure.outer_vlan_id,
            "inner_vlan": failure.inner_vlan_id,
            "source": failure.source,
            "reason": failure.reason,
            "at": failure.at,
        }
        if not self._connection.execute(_AGAIN, values).rowcount:
            self._connection.execute(_FIRST, values)


def trim(connection: sqlite3.Connection, before: int, most: int) -> list[tuple[int | None, ...]]:
    """Removes some of the rows whose last attempt was before a time, and of those that are more than so many.
    Returns the numbers of their names."""
    removed = []
    for rows in _OLD, _TOO_MANY:
        removed += connection.execute(
            f"DELETE FROM failed_sign_on WHERE number IN ({rows}) RETURNING username, mac, access",
            {"before": before, "most": most},
        ).fetchall()
    return removed


_OLD = """
SELECT number FROM failed_sign_on WHERE began < :before AND last < :before ORDER BY began LIMIT 1000
"""
_TOO_MANY = """
SELECT number FROM failed_sign_on WHERE number <= (SELECT max(number) FROM failed_sign_on) - :most
ORDER BY number LIMIT 1000
"""
