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
    """The key of an IPv6 prefix or address: its length, then as many bytes as have a bit of it."""
    written, _, length = text.partition("/")
    return _key(int.from_bytes(socket.inet_pton(socket.AF_INET6, written)), int(length or _BITS))


def network_text(key: bytes) -> str:
    """An address, or a prefix with its length."""
    network = IPv6Network((key[1:].ljust(_BITS // 8, b"\0"), key[0]))
    return str(network.network_address if key[0] == _BITS else network)


def around(network: int) -> Iterator[bytes]:
    """The keys of an IPv6 network, which is as `ipv6.network` makes it, and of those that contain it."""
    length = network.bit_length() - 1
    first = (network ^ 1 << length) << _BITS - length
    return (_key(first, shorter) for shorter in range(length + 1))


def _key(number: int, length: int) -> bytes:
    masked = number >> _BITS - length << _BITS - length
    return bytes([length]) + masked.to_bytes(_BITS // 8)[: -(-length // 8)]


def inside(network: int) -> Iterator[tuple[bytes, bytes]]:
    """The first and the last key, by each length, of the IPv6 networks in a network, which is as
    `ipv6.network` makes it. The network itself is none of them."""
    length = network.bit_length() - 1
    first = (network ^ 1 << length) << _BITS - length
    last = first | (1 << _BITS - length) - 1
    return ((_key(first, longer), _key(last, longer)) for longer in range(length + 1, _BITS + 1))


#: A condition in SQL, and its values.
Condition = tuple[str, Sequence[Any]]


def any_of(conditions: Iterable[Condition]) -> Condition:
    """One condition of several; none of them is never true."""
    held = list(conditions)
    text = " OR ".join(condition for condition, _ in held) or "FALSE"
    return f"({text})", [value for _, values in held for value in values]


def having_name(connection: sqlite3.Connection, part: str, columns: Sequence[str]) -> Iterator[Condition]:
    """The condition that one of the columns, which have numbers of names, has a name with this part; none if
    there is no such name. The part is case-folded."""
    pattern = "%" + re.sub("([%_|])", r"|\1", part) + "%"
    # LIKE folds the case of ASCII. A name with other characters has its folded text beside it.
    return _among(connection, "coalesce(folded, text) LIKE ? ESCAPE '|'", [pattern], columns)


def having_mac(connection: sqlite3.Connection, part: str, column: str) -> Iterator[Condition]:
    """The condition that a column, which has numbers of MAC addresses, has one with this part, which is as
    `SearchText` has it; none if there is no such address."""
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
