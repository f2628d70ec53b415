"""The traffic of all trunks over time: its recorder, its writer, and what was recorded."""

import math
import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import gevent

from gateway_api.history.database import Writer, in_use, require_room
from gateway_contract.base.errors import Invalid, Problem
from gateway_contract.base.process import ThreadPool, on_thread
from gateway_contract.contract import Page
from gateway_contract.core.network import InterfaceStats, InterfaceType, ListInterfaces
from gateway_contract.core.sessions import GetHealth
from gateway_contract.core_client import CoreClient
from gateway_contract.history import TrafficSample

#: Seconds between two samples of the recorder.
EVERY = 10
#: Samples of a response, without another `step`: the width of a chart. And at most.
_USUAL, MOST = 360, 10_000
#: Rows in one removal.
_AT_ONCE = 10_000
#: Seconds between two samples, after which their mean would say little about either time.
_APART = 3 * EVERY
#: Seconds by which the core's uptime, in whole seconds and read a moment later, may grow less than the time.
_ROUNDING = 2
#: The list has the trunks first, before all VLANs and sessions.
_FIRST = Page(256, None)
_SAMPLES = """
SELECT at / :step * :step AS began, avg(down), avg(up) FROM traffic
WHERE at >= :since AND at < :until GROUP BY began ORDER BY began
"""


class TrafficSpan(NamedTuple):
    """From `since` until before `until`, epoch seconds. One sample for each `step` seconds, None for as many
    as a chart shows."""

    since: float
    until: float
    step: int | None = None


class FoundTraffic(NamedTuple):
    """The oldest first."""

    samples: list[TrafficSample]
    step_seconds: int


def traffic(connection: sqlite3.Connection, span: TrafficSpan) -> FoundTraffic:
    """Return the mean of each step that has a sample. Raises Invalid for too small a step."""
    seconds = max(0.0, span.until - span.since)
    step = span.step or EVERY * max(1, math.ceil(seconds / _USUAL / EVERY))
    if seconds / step > MOST:
        raise Invalid(Problem("step", "invalid", f"must be larger: these are more than {MOST} steps"))
    values = {"step": step, "since": span.since, "until": span.until}
    rows = connection.execute(_SAMPLES, values)
    return FoundTraffic([TrafficSample(at, round(down), round(up)) for at, down, up in rows], step)


class TrafficStore(Writer):
    """A row for each sample, without those of times that nobody sampled."""

    def add(self, sample: TrafficSample) -> None:
        require_room(self._path)
        row = sample.at, sample.down_bps, sample.up_bps
        self._connection.execute("INSERT OR REPLACE INTO traffic VALUES (?, ?, ?)", row)
        self._bound_log()


def trim(connection: sqlite3.Connection, before: int, most: int) -> bool:
    """Remove some samples of before a time, and of those that are more than so many. True if there may be
    more of them."""
    oldest = connection.execute(
        "SELECT at FROM traffic ORDER BY at DESC LIMIT 1 OFFSET ?", (most - 1,)
    ).fetchone()
    until = before if oldest is None else max(before, oldest[0])
    rows = "SELECT at FROM traffic WHERE at < ? ORDER BY at LIMIT ?"
    removed = connection.execute(f"DELETE FROM traffic WHERE at IN ({rows})", (until, _AT_ONCE))  # noqa: S608
    return removed.rowcount == _AT_ONCE


class TrunkCounters(NamedTuple):
    """The counters of each trunk by name, and seconds on a clock that is never set. `uptime` is the
    core's."""

    steady: float
    uptime: int
    trunks: Mapping[str, InterfaceStats]

    def since(self, before: "TrunkCounters", at: int) -> TrafficSample | None:
        """Return the mean of the time between. None if it was too long, or counters began at 0 in it: all of
        them with a restart of the core, or those of one trunk."""
        seconds = self.steady - before.steady
        was_restarted = self.uptime - before.uptime < seconds - _ROUNDING
        if was_restarted or not 0 < seconds <= _APART:
            return None
        down = up = 0
        for name, stats in self.trunks.items():
            last = before.trunks.get(name)
            if last is None:
                continue
            if stats.tx_bytes < last.tx_bytes or stats.rx_bytes < last.rx_bytes:
                return None
            # A trunk transmits downstream.
            down += stats.tx_bytes - last.tx_bytes
            up += stats.rx_bytes - last.rx_bytes
        return TrafficSample(at, round(8 * down / seconds), round(8 * up / seconds))


class TrafficRecorder:
    """`clock` gives epoch seconds, `steady` those of a clock that is never set, `pause` takes seconds."""

    def __init__(
        self,
        core: CoreClient,
        path: Path,
        pool: ThreadPool,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = gevent.sleep,
    ) -> None:
        self._core = core
        self._path = path
        self._pool = pool
        self._clock = clock
        self._steady = steady
        self._pause = pause

    def record(self) -> None:
        """Record until the core is unavailable, or the file is replaced. Raises CoreUnavailable, OSError and
        sqlite3.Error."""
        with in_use(on_thread(self._pool, TrafficStore, self._path), self._pool) as store:
            before = self._counters()
            while store.is_current:
                self._pause(EVERY)
                now = self._counters()
                sample = now.since(before, int(self._clock()))
                before = now
                if sample is not None:
                    on_thread(self._pool, store.add, sample)

    def _counters(self) -> TrunkCounters:
        interfaces = self._core.call(ListInterfaces(page=_FIRST)).interfaces
        steady = self._steady()
        uptime = self._core.call(GetHealth()).uptime_seconds
        trunks = {one.name: one.stats for one in interfaces if one.type is InterfaceType.TRUNK}
        return TrunkCounters(steady, uptime, trunks)
