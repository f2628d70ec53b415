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
from gateway_api.history.sessions import (
    EventPosition,
    HistoryFilter,
    SessionWriter,
    find_flapping,
    find_sessions,
)
from gateway_contract.contract import Page
from tests.support.histories import BOOT, down, up
from tests.support.pools import Here

_SUBSCRIBER_COUNT = 200_000
_NOW_SECONDS = 1_700_000_000
_DAYS = 90
_SEARCH_COUNT = 1000
_EVENT_COUNT, _BATCH_SIZE = 200_000, 1000
_INSERT_SESSION = """
INSERT INTO session (id, type, username, mac, ip, interface, access, outer_vlan, inner_vlan, started, ended,
    reason, bytes_in, bytes_out, packets_in, packets_out)
VALUES (?, 'PPPoE', ?, ?, ?, ?, ?, NULL, 1001, ?, ?, 'user_request', ?, ?, ?, ?)
"""


def create_subscriber(number: int) -> dict[str, Any]:
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
    """Yield the given number of rows of sessions, in the order in which the sessions started. The sessions of
    one subscriber do not overlap. `dice` is the source of randomness."""
    texts = {text: number for number, text in connection.execute("SELECT number, text FROM text")}
    begin, step = _NOW_SECONDS - _DAYS * 86_400, _DAYS * 86_400 / sessions
    max_duration = _SUBSCRIBER_COUNT * step * 0.9
    for id in range(1, sessions + 1):
        number = id % _SUBSCRIBER_COUNT
        subscriber = create_subscriber(number)
        started_at = int(begin + id * step)
        name, mac = texts[subscriber["username"]], texts[subscriber["mac_address"].replace(":", "")]
        interface, access = texts[subscriber["interface"]], texts[subscriber["access_interface"]]
        address = int(IPv4Address("100.64.0.0")) + (number + id // _SUBSCRIBER_COUNT) % _SUBSCRIBER_COUNT
        ended_at = int(started_at + max_duration * dice.random())
        traffic = [dice.randrange(1 << 34) for _ in range(2)]
        yield (
            id,
            name,
            mac,
            address,
            interface,
            access,
            started_at,
            ended_at,
            *traffic,
            *(each // 900 for each in traffic),
        )


def fill(path: Path, sessions: int) -> None:
    """Insert sessions into a history database without the API, because the API would take longer."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -1000000")
        connection.execute("BEGIN")
        for number in range(_SUBSCRIBER_COUNT):
            subscriber = create_subscriber(number)
            texts = (
                subscriber["username"],
                subscriber["mac_address"].replace(":", ""),
                subscriber["interface"],
                subscriber["access_interface"],
            )
            connection.executemany(
                "INSERT OR IGNORE INTO text (text) VALUES (?)", [(text,) for text in texts]
            )
        connection.executemany(_INSERT_SESSION, make_rows(connection, sessions, random.Random(7)))
        connection.execute("COMMIT")


def measure_times(run_search: Callable[[], Any]) -> str:
    durations_ms = []
    for _ in range(_SEARCH_COUNT):
        start_time = time.perf_counter()
        run_search()
        durations_ms.append(1000 * (time.perf_counter() - start_time))
    durations_ms.sort()
    p50, p99 = (durations_ms[int(_SEARCH_COUNT * part)] for part in (0.5, 0.99))
    return f"{p50:.1f} ms at the median, {p99:.1f} ms at p99"


def run_search(reader: Reader, create_filter: Callable[[], HistoryFilter]) -> None:
    reader.search(find_sessions, create_filter(), Page(100, None))


def insert_events(store: SessionWriter) -> float:
    """Insert events in batches as large as the core's batches. Return the number of events that were inserted
    per second."""
    events = []
    for each in range(_EVENT_COUNT // 2):
        subscriber, id = create_subscriber(each), (1 << 40) + each
        events += [
            up(id, _NOW_SECONDS + each, **subscriber),
            down(id, _NOW_SECONDS + each, _NOW_SECONDS + each + 60, **subscriber),
        ]
    start_time = time.perf_counter()
    for first in range(0, _EVENT_COUNT, _BATCH_SIZE):
        store.add(events[first : first + _BATCH_SIZE], EventPosition(BOOT, first, _NOW_SECONDS))
    return _EVENT_COUNT / (time.perf_counter() - start_time)


def measure(path: Path, sessions: int) -> None:
    store = SessionWriter(path)
    fill(path, sessions)
    print(
        f"{sessions} sessions of {_SUBSCRIBER_COUNT} subscribers:"
        f" {path.stat().st_size / sessions:.0f} bytes each"
    )
    print(f"inserted: {insert_events(store):.0f} events a second")
    dice, reader = random.Random(8), Reader(path, Here())

    def draw_subscriber() -> dict[str, Any]:
        return create_subscriber(dice.randrange(_SUBSCRIBER_COUNT))

    def draw_time() -> int:
        return _NOW_SECONDS - dice.randrange(_DAYS * 86_400)

    searches: dict[str, Callable[[], HistoryFilter]] = {
        "address at a time": lambda: HistoryFilter(
            ip_address=draw_subscriber()["ip_address"], at=draw_time()
        ),
        "username": lambda: HistoryFilter(username=draw_subscriber()["username"]),
        "part of a username": lambda: HistoryFilter(search=draw_subscriber()["username"][4:16]),
        "all at a time": lambda: HistoryFilter(at=draw_time()),
    }
    for name, create_filter in searches.items():
        print(f"{name}: {measure_times(partial(run_search, reader, create_filter))}")
    start_time = time.perf_counter()
    reader.search(find_flapping, _NOW_SECONDS - 86_400, _NOW_SECONDS, 20)
    print(f"flapping in a day: {1000 * (time.perf_counter() - start_time):.0f} ms")
    store.close()


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        measure(Path(folder) / "history.sqlite", int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)
