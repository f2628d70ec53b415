"""Total traffic of all trunks in the history: writer, recorder, and samples over time."""

import math
import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import gevent

from gateway_api.history.database import HistoryWriter, use_writer
from gateway_contract.base.errors import Invalid, Problem
from gateway_contract.base.process import ThreadPool, run_on_thread
from gateway_contract.contract import Page
from gateway_contract.core.network import InterfaceStats, InterfaceType, ListInterfaces
from gateway_contract.core.sessions import GetHealth
from gateway_contract.core_client import CoreClient
from gateway_contract.history import TrafficSample

#: Seconds between two samples of the recorder.
SAMPLE_SECONDS = 10
#: Samples of a response without a `step`: the width of a chart; and of any response.
_DEFAULT_SAMPLES, MAX_SAMPLES = 360, 10_000
#: Rows in one removal.
_MAX_REMOVED_ROWS = 10_000
#: Seconds between two readings of the counters, after which a mean would say little about either time.
_MAX_SAMPLE_DISTANCE_SECONDS = 3 * SAMPLE_SECONDS
#: Seconds by which the core's uptime, in whole seconds and read a moment later, may grow less than the time.
_UPTIME_ROUNDING_SECONDS = 2
#: The list has the trunks first, before all VLANs and sessions.
_TRUNKS_PAGE = Page(256, None)
_SELECT_SAMPLES = """
SELECT at / :step * :step AS began, avg(down), avg(up) FROM traffic
WHERE at >= :since AND at < :until GROUP BY began ORDER BY began
"""


class TrafficSpan(NamedTuple):
    """Time span from `since` to `until`, in epoch seconds; `until` is excluded. One sample is returned for
    each `step` seconds. A step of None returns as many samples as a chart shows."""

    since: float
    until: float
    step: int | None = None


class TrafficSamples(NamedTuple):
    """Samples of a time span, oldest first. Each sample is the mean traffic over `step_seconds`."""

    samples: list[TrafficSample]
    step_seconds: int


def read_traffic(connection: sqlite3.Connection, span: TrafficSpan) -> TrafficSamples:
    """Return the mean traffic of each step, without the steps that have no sample. Raises Invalid if the time
    span has more than `MAX_SAMPLES` steps."""
    seconds = max(0.0, span.until - span.since)
    step = span.step or SAMPLE_SECONDS * max(1, math.ceil(seconds / _DEFAULT_SAMPLES / SAMPLE_SECONDS))
    if seconds / step > MAX_SAMPLES:
        raise Invalid(Problem("step", "invalid", f"must be larger: these are more than {MAX_SAMPLES} steps"))
    values = {"step": step, "since": span.since, "until": span.until}
    rows = connection.execute(_SELECT_SAMPLES, values)
    return TrafficSamples([TrafficSample(at, round(down), round(up)) for at, down, up in rows], step)


class TrafficWriter(HistoryWriter):
    """Writer of traffic samples. Times without a sample have no row."""

    def add(self, sample: TrafficSample) -> None:
        """Insert a sample, or replace the sample of the same second."""
        self._require_room()
        row = sample.at, sample.down_bps, sample.up_bps
        with self._write():
            self._connection.execute("INSERT OR REPLACE INTO traffic VALUES (?, ?, ?)", row)


def trim(connection: sqlite3.Connection, before: int, max_samples: int) -> bool:
    """Remove some of the samples before `before`, in epoch seconds, and some of the oldest samples if there
    are more than `max_samples`. Return True if more samples may have to be removed."""
    oldest_kept = connection.execute(
        "SELECT at FROM traffic ORDER BY at DESC LIMIT 1 OFFSET ?", (max_samples - 1,)
    ).fetchone()
    until = before if oldest_kept is None else max(before, oldest_kept[0])
    rows = "SELECT at FROM traffic WHERE at < ? ORDER BY at LIMIT ?"
    deletion = connection.execute(f"DELETE FROM traffic WHERE at IN ({rows})", (until, _MAX_REMOVED_ROWS))  # noqa: S608
    return deletion.rowcount == _MAX_REMOVED_ROWS


class TrunkCounters(NamedTuple):
    """Traffic counters of all trunks. `trunks` maps the name of each trunk to its counters. `steady` is the
    time of the reading on a clock that is never set, and `uptime` is the core's uptime, both in seconds."""

    steady: float
    uptime: int
    trunks: Mapping[str, InterfaceStats]

    def make_sample(self, before: "TrunkCounters", at: int) -> TrafficSample | None:
        """Return the mean traffic since the earlier counters `before`, as a sample for the time `at`, in
        epoch seconds. Return None if too much time has passed since `before`, or if counters restarted from
        0: the counters of one trunk, or all counters after a restart of the core."""
        seconds = self.steady - before.steady
        was_restarted = self.uptime - before.uptime < seconds - _UPTIME_ROUNDING_SECONDS
        if was_restarted or not 0 < seconds <= _MAX_SAMPLE_DISTANCE_SECONDS:
            return None
        down = up = 0
        for name, stats in self.trunks.items():
            last = before.trunks.get(name)
            if last is None:
                continue
            if stats.tx_bytes < last.tx_bytes or stats.rx_bytes < last.rx_bytes:
                return None
            # Traffic that a trunk transmits is downstream.
            down += stats.tx_bytes - last.tx_bytes
            up += stats.rx_bytes - last.rx_bytes
        return TrafficSample(at, round(8 * down / seconds), round(8 * up / seconds))


class TrafficRecorder:
    """Recorder of the traffic, which polls the core. `clock` returns epoch seconds, `steady` returns the
    seconds of a clock that is never set, and `pause` waits for a number of seconds."""

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
        """Record samples until the file is replaced. Raises CoreUnavailable if the core is unavailable, and
        OSError or sqlite3.Error if the history cannot be written."""
        with use_writer(TrafficWriter, self._path, self._pool) as writer:
            before = self._read_counters()
            while writer.is_current:
                self._pause(SAMPLE_SECONDS)
                now = self._read_counters()
                sample = now.make_sample(before, int(self._clock()))
                before = now
                if sample is not None:
                    run_on_thread(self._pool, writer.add, sample)

    def _read_counters(self) -> TrunkCounters:
        interfaces = self._core.call(ListInterfaces(page=_TRUNKS_PAGE)).interfaces
        steady = self._steady()
        uptime = self._core.call(GetHealth()).uptime_seconds
        trunks = {one.name: one.stats for one in interfaces if one.type is InterfaceType.TRUNK}
        return TrunkCounters(steady, uptime, trunks)
