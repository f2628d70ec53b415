"""Addresses as the database has them: short, and equal in every spelling; and the texts of searches, as
conditions in SQL."""

# ruff: noqa: S608 - values of requests are never in a text of SQL.

import re
import socket
import sqlite3
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from typing import Any

#: The number of a name, in SQL.
NUMBER = "(SELECT number FROM text WHERE text = ?)"
_BITS = 128
#: A text that means more names than these is compared with each row, instead of looked up.
_MOST_NAMES = 500
#: Digits of the least part of a MAC address.
_LEAST_DIGITS = 4


def of_ipv4(address: str) -> int:
    return int.from_bytes(socket.inet_aton(address))


def ipv4_text(key: int) -> str:
    return str(IPv4Address(key))


def of_mac(address: str) -> str:
    """Twelve digits, from a MAC address with colons."""
    return address.replace(":", "")


def mac_text(key: str) -> str:
    return bytes.fromhex(key).hex(":")


def of_network(text: str) -> bytes:
    """The key of an IPv6 prefix or address: its length, then as many bytes as have a bit of it."""
    written, _, length = text.partition("/")
    return _key(int.from_bytes(socket.inet_pton(socket.AF_INET6, written)), int(length or _BITS))


def network_text(key: bytes) -> str:
    """An address, or a prefix with its length."""
    network = IPv6Network((key[1:].ljust(_BITS // 8, b"\0"), key[0]))
    return str(network.network_address if key[0] == _BITS else network)


def around(address: str) -> Iterator[bytes]:
    """The keys of the IPv6 networks that contain an address, and of the address."""
    number = int.from_bytes(socket.inet_pton(socket.AF_INET6, address))
    return (_key(number, length) for length in range(_BITS + 1))


def _key(number: int, length: int) -> bytes:
    masked = number >> _BITS - length << _BITS - length
    return bytes([length]) + masked.to_bytes(_BITS // 8)[: -(-length // 8)]


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
