"""Addresses as the database has them: short, and equal in every spelling; and what a search means, as
conditions in SQL."""

# ruff: noqa: S608 - values of requests are never in a text of SQL.

import re
import socket
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv6Network
from typing import Any

#: The number of a name, in SQL.
NUMBER = "(SELECT number FROM text WHERE text = ?)"
_BITS = 128
#: A text that means more names than these is compared with each row, instead of looked up.
_MOST_NAMES = 500
_MAC_DIGITS = 12


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
    """Return the key of an IPv6 prefix or address: its length, then as many bytes as have a bit of it."""
    written, _, length = text.partition("/")
    return _key(int.from_bytes(socket.inet_pton(socket.AF_INET6, written)), int(length or _BITS))


def network_text(key: bytes) -> str:
    """Return an address, or a prefix with its length."""
    network = IPv6Network((key[1:].ljust(_BITS // 8, b"\0"), key[0]))
    return str(network.network_address if key[0] == _BITS else network)


def around(network: int) -> Iterator[bytes]:
    """Return the keys of an IPv6 network and of those that contain it. The network is as `ipv6.network` makes
    it."""
    length = network.bit_length() - 1
    first = (network ^ 1 << length) << _BITS - length
    return (_key(first, shorter) for shorter in range(length + 1))


def _key(number: int, length: int) -> bytes:
    masked = number >> _BITS - length << _BITS - length
    return bytes([length]) + masked.to_bytes(_BITS // 8)[: -(-length // 8)]


def inside(network: int) -> Iterator[tuple[bytes, bytes]]:
    """Return the first and the last key, for each length of prefix, of the smaller networks in an IPv6
    network. The network is as `ipv6.network` makes it."""
    length = network.bit_length() - 1
    first = (network ^ 1 << length) << _BITS - length
    last = first | (1 << _BITS - length) - 1
    return ((_key(first, longer), _key(last, longer)) for longer in range(length + 1, _BITS + 1))


#: A condition in SQL, and its values.
Condition = tuple[str, Sequence[Any]]


def join_any(conditions: Iterable[Condition]) -> Condition:
    """Return the condition that one of several holds. Without any, it never holds."""
    held = list(conditions)
    text = " OR ".join(condition for condition, _ in held) or "FALSE"
    return f"({text})", [value for _, values in held for value in values]


def match_names(connection: sqlite3.Connection, part: str, columns: Sequence[str]) -> Iterator[Condition]:
    """Yield conditions, of which one holds if a column has a name with this part. The columns have numbers of
    names. None if there is no such name. The part is case-folded."""
    pattern = "%" + re.sub("([%_|])", r"|\1", part) + "%"
    # LIKE folds the case of ASCII. A name with other characters has its folded text beside it.
    return _among(connection, "coalesce(folded, text) LIKE ? ESCAPE '|'", [pattern], columns)


def match_macs(connection: sqlite3.Connection, part: str, column: str) -> Iterator[Condition]:
    """Yield the condition that a column, which has numbers of MAC addresses, has one with this part. None if
    there is no such address. The part is as `SearchText` has it."""
    digits = of_mac(part)
    if digits == part:
        patterns = [f"*{digits}*"]
    else:
        # Whole bytes, unless the first one is cut.
        begin = len(part.partition(":")[0]) % 2
        patterns = [f"{'?' * at}{digits}*" for at in range(begin, _MAC_DIGITS - len(digits) + 1, 2)]
    wanted = f"length(text) = {_MAC_DIGITS} AND ({' OR '.join(len(patterns) * ['text GLOB ?'])})"
    return _among(connection, wanted, patterns, [column])


def _among(
    connection: sqlite3.Connection, wanted: str, values: Sequence[Any], columns: Sequence[str]
) -> Iterator[Condition]:
    names = f"SELECT number FROM text WHERE {wanted}"
    found = [number for (number,) in connection.execute(f"{names} LIMIT {_MOST_NAMES + 1}", values)]
    if len(found) > _MOST_NAMES:
        # The plus keeps SQLite from collecting most rows by an index before it sorts them.
        yield from ((f"+{column} IN ({names})", values) for column in columns)
    elif found:
        yield from ((f"{column} IN ({', '.join(map(str, found))})", ()) for column in columns)
