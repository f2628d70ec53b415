"""Measurement of the history: `python -m tools.figures_of_history [SESSIONS]`, by default ten million
sessions."""

import random
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gateway_api.history.reader import Reader
from gateway_api.history.sessions import FeedPlace, HistoryFilter, SessionWriter, find_flapping, find_sessions
from gateway_contract.contract import Page
from tests.support.histories import BOOT, down, up
from tests.support.pools import Here

_SUBSCRIBERS = 200_000
_NOW = 1_700_000_000
_DAYS = 90
_SEARCHES = 1000
_EVENTS, _BATCH = 200_000, 1000
_ROW = """
INSERT INTO session (id, type, username, mac, ip, interface, access, outer_vlan, inner_vlan, started, ended,
    reason, bytes_in, bytes_out, packets_in, packets_out)
VALUES (?, 'PPPoE', ?, ?, ?, ?, ?, NULL, 1001, ?, ?, 'user_request', ?, ?, ?, ?)
"""


def of_subscriber(number: int) -> dict[str, Any]:
    return {
        "username": f"subscriber{number:06}@lab.example",
        "mac_address": (0x020000000000 + number).to_bytes(6).hex(":"),
        "ip_address": str(IPv4Address("100.64.0.0") + number),
        "interface": f"ppp{number}",
        "access_interface": f"trunk0.{1000 + number % 100}",
    }


def make_rows(
    connection: sqlite3.Connection, sessions: int, dice: random.Random
) -> Iterator[tuple[Any, ...]]:
    """Yield rows of sessions in the order of their starts. The sessions of one subscriber do not overlap."""
    texts = {text: number for number, text in connection.execute("SELECT number, text FROM text")}
    begin, step = _NOW - _DAYS * 86_400, _DAYS * 86_400 / sessions
    lasts = _SUBSCRIBERS * step * 0.9
    for id in range(1, sessions + 1):
        number = id % _SUBSCRIBERS
        one = of_subscriber(number)
        started = int(begin + id * step)
        name, mac = texts[one["username"]], texts[one["mac_address"].replace(":", "")]
        own, access = texts[one["interface"]], texts[one["access_interface"]]
        address = int(IPv4Address("100.64.0.0")) + (number + id // _SUBSCRIBERS) % _SUBSCRIBERS
        ended = int(started + lasts * dice.random())
        traffic = [dice.randrange(1 << 34) for _ in range(2)]
        yield (
            id,
            name,
            mac,
            address,
            own,
            access,
            started,
            ended,
            *traffic,
            *(each // 900 for each in traffic),
        )


def fill(path: Path, sessions: int) -> None:
    """Fill a history database with sessions, directly and faster than the API would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -1000000")
        connection.execute("BEGIN")
        for number in range(_SUBSCRIBERS):
            one = of_subscriber(number)
            texts = (
                one["username"],
                one["mac_address"].replace(":", ""),
                one["interface"],
                one["access_interface"],
            )
            connection.executemany(
                "INSERT OR IGNORE INTO text (text) VALUES (?)", [(text,) for text in texts]
            )
        connection.executemany(_ROW, make_rows(connection, sessions, random.Random(7)))
        connection.execute("COMMIT")


def times(search: Callable[[], Any]) -> str:
    taken = []
    for _ in range(_SEARCHES):
        began = time.perf_counter()
        search()
        taken.append(1000 * (time.perf_counter() - began))
    taken.sort()
    return f"{taken[len(taken) // 2]:.1f} ms at the median, {taken[len(taken) * 99 // 100]:.1f} ms at p99"


def search(reader: Reader, wanted: Callable[[], HistoryFilter]) -> None:
    reader.search(find_sessions, wanted(), Page(100, None))


def insert_events(store: SessionWriter) -> float:
    """Insert events in batches of the core's size, and return the number of inserted events per second."""
    events = []
    for each in range(_EVENTS // 2):
        one, id = of_subscriber(each), (1 << 40) + each
        events += [up(id, _NOW + each, **one), down(id, _NOW + each, _NOW + each + 60, **one)]
    began = time.perf_counter()
    for first in range(0, _EVENTS, _BATCH):
        store.add(events[first : first + _BATCH], FeedPlace(BOOT, first, _NOW))
    return _EVENTS / (time.perf_counter() - began)


def measure(path: Path, sessions: int) -> None:
    store = SessionWriter(path)
    fill(path, sessions)
    print(
        f"{sessions} sessions of {_SUBSCRIBERS} subscribers: {path.stat().st_size / sessions:.0f} bytes each"
    )
    print(f"inserted: {insert_events(store):.0f} events a second")
    dice, reader = random.Random(8), Reader(path, Here())

    def one() -> dict[str, Any]:
        return of_subscriber(dice.randrange(_SUBSCRIBERS))

    def moment() -> int:
        return _NOW - dice.randrange(_DAYS * 86_400)

    searches: dict[str, Callable[[], HistoryFilter]] = {
        "address at a time": lambda: HistoryFilter(ip_address=one()["ip_address"], at=moment()),
        "username": lambda: HistoryFilter(username=one()["username"]),
        "part of a username": lambda: HistoryFilter(search=one()["username"][4:16]),
        "all at a time": lambda: HistoryFilter(at=moment()),
    }
    for name, wanted in searches.items():
        print(f"{name}: {times(partial(search, reader, wanted))}")
    began = time.perf_counter()
    reader.search(find_flapping, _NOW - 86_400, _NOW, 20)
    print(f"flapping in a day: {1000 * (time.perf_counter() - began):.0f} ms")
    store.close()


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        measure(Path(folder) / "history.sqlite", int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)
