"""A text of a search, as conditions in SQL."""

# ruff: noqa: S608 - values of requests are never in a text of SQL.

import re
import sqlite3
from collections.abc import Sequence
from ipaddress import IPv4Network
from typing import Any

#: A text that means more names than these is compared with each row, instead of looked up.
_MOST_NAMES = 500
#: Digits of the least part of a MAC address.
_LEAST_DIGITS = 4


def ipv4_network(text: str) -> IPv4Network | None:
    """The network of an IPv4 address or a prefix; None for any other text."""
    try:
        return IPv4Network(text, strict=False)
    except ValueError:
        return None


def among_names(connection: sqlite3.Connection, text: str, columns: Sequence[str]) -> list[Any]:
    """The condition that one of the columns, which have numbers of names, has a name with this part; and its
    values."""
    digits = re.sub("[:.-]", "", text)
    parts = [text]
    if digits != text and len(digits) >= _LEAST_DIGITS and re.fullmatch("[0-9A-Fa-f]{,12}", digits):
        parts.append(digits)
    like = " OR ".join(len(parts) * ["text LIKE ? ESCAPE '|'"])
    names = f"SELECT number FROM text WHERE {like}"
    patterns = ["%" + re.sub("([%_|])", r"|\1", part) + "%" for part in parts]
    found = [number for (number,) in connection.execute(f"{names} LIMIT {_MOST_NAMES + 1}", patterns)]
    if len(found) <= _MOST_NAMES:
        among = f"IN ({', '.join(map(str, found))})"
        return [" OR ".join(f"{column} {among}" for column in columns).join("()")]
    # The plus keeps SQLite from collecting most rows by an index before it sorts them.
    condition = " OR ".join(f"+{column} IN ({names})" for column in columns)
    return [f"({condition})", *len(columns) * patterns]
