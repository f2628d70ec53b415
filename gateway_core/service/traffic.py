"""Current traffic of sessions: the difference between two samples of their counters. Counters are sampled and
stored only while a client watches."""

import heapq
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import NamedTuple

from gateway_contract.base.idle_timer import IdleTimer
from gateway_contract.contract import record_of
from gateway_contract.core import traffic as wire
from gateway_contract.core.interface import CORE
from gateway_contract.core.sessions import SessionNotFoundError
from gateway_contract.core.traffic import TalkerOrder, TalkersReply, TrafficReply
from gateway_core.gateways.protocols import Gateway
from gateway_core.records.clock import Clock
from gateway_core.sessions.session import Counters

#: Seconds between two samples of a watched session.
_SAMPLE_SECONDS = 1.0
#: Seconds for which all lists share a sweep.
_SWEEP_LIFETIME_SECONDS = 5.0
#: Seconds between the two sweeps of the first list.
_FIRST_SWEEP_PAUSE_SECONDS = 1.0
#: Maximum age of the older of two compared sweeps, in seconds: the rates must be current.
_MAX_SWEEP_AGE_SECONDS = 30.0

Sleep = Callable[[float], None]


class Throughput(NamedTuple):
    """Throughput of a session, in bits and packets per second."""

    down_bps: int
    up_bps: int
    down_pps: int
    up_pps: int


def compute_throughput(before: Counters, after: Counters, seconds: float) -> Throughput:
    """Return the throughput between two samples of the counters, which are `seconds` apart. If a counter is
    lower in the second sample, the counter was reset, and its rate is 0."""

    def rate(difference: int, unit: int = 1) -> int:
        return max(0, round(difference * unit / seconds))

    return Throughput(
        rate(after.bytes_out - before.bytes_out, 8),
        rate(after.bytes_in - before.bytes_in, 8),
        rate(after.packets_out - before.packets_out),
        rate(after.packets_in - before.packets_in),
    )


class _Sample(NamedTuple):
    """Counters of a session at a time of the steady clock. `reply` contains the rates since the previous
    sample; None in the first sample."""

    at: float
    counters: Counters
    reply: TrafficReply | None = None


class _SessionWatch:
    """State of a session that at least one client watches."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.watchers = 0
        #: None before the first sample, and after the end of the session.
        self.sample: _Sample | None = None


class TrafficWatcher:
    """Watcher of the traffic of sessions. A session is sampled once a second, even if several clients watch
    the session: the first client whose second is over takes the sample for all clients. Thread-safe."""

    def __init__(self, gateway: Gateway, clock: Clock, sleep: Sleep = time.sleep) -> None:
        self._gateway = gateway
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._session_watches: dict[int, _SessionWatch] = {}

    def __len__(self) -> int:
        return len(self._session_watches)

    def watch_traffic(self, call: wire.WatchTraffic) -> Iterator[TrafficReply]:
        yield from self.watch(call.id)
        raise CORE.make_error(SessionNotFoundError(call.id))

    def watch(self, id: int) -> Iterator[TrafficReply]:
        """Yield the traffic of a session each second until the session ends. If other clients already watch
        the session, yield the first reply at once. Raises StepFailed if the counters cannot be read."""
        with self._lock:
            session_watch = self._session_watches.setdefault(id, _SessionWatch())
            session_watch.watchers += 1
        try:
            yield from self._iterate_replies(id, session_watch)
        finally:
            with self._lock:
                session_watch.watchers -= 1
                if not session_watch.watchers:
                    del self._session_watches[id]

    def _iterate_replies(self, id: int, session_watch: _SessionWatch) -> Iterator[TrafficReply]:
        sample = self._wait_for_sample(id, session_watch, None)
        while sample is not None:
            if sample.reply is not None:
                yield sample.reply
            self._sleep(max(0.0, sample.at + _SAMPLE_SECONDS - self._clock.steady()))
            sample = self._wait_for_sample(id, session_watch, sample)

    def _wait_for_sample(self, id: int, session_watch: _SessionWatch, last: _Sample | None) -> _Sample | None:
        """Return the sample after `last`, or the first sample if `last` is None. Return None if the session
        has ended."""
        with session_watch.lock:
            if session_watch.sample is last:
                session_watch.sample = self._take_sample(id, last)
            return session_watch.sample

    def _take_sample(self, id: int, before: _Sample | None) -> _Sample | None:
        detail = self._gateway.read_detail(id)
        at = self._clock.steady()
        if detail is None:
            return None
        counters = Counters(detail.bytes_in, detail.bytes_out, detail.packets_in, detail.packets_out)
        if before is None:
            return _Sample(at, counters)
        seconds = at - before.at
        rates = compute_throughput(before.counters, counters, seconds)
        return _Sample(at, counters, TrafficReply(int(self._clock.wall()), round(seconds * 1000), *rates))


class _Sweep(NamedTuple):
    """Counters of all sessions at a time of the steady clock."""

    at: float
    counters: Mapping[int, Counters]


class TopTalkers:
    """Lists of the sessions with the most or the least traffic. The traffic of a session is the difference
    between two sweeps, which read the counters of all sessions. Thread-safe."""

    def __init__(self, gateway: Gateway, clock: Clock, sleep: Sleep = time.sleep) -> None:
        self._gateway = gateway
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        #: The last two sweeps, the older one first.
        self._sweeps: tuple[_Sweep, _Sweep] | None = None
        #: The lists since the last sweep, because finding their sessions among 200,000 sessions takes long.
        self._top_lists: dict[tuple[TalkerOrder, int], list[tuple[int, Throughput]]] = {}
        self._idle_timer = IdleTimer(_MAX_SWEEP_AGE_SECONDS, self._forget)

    def list_talkers(self, call: wire.ListTalkers) -> TalkersReply:
        return self.list_top(call.sort, call.limit)

    def list_top(self, order: TalkerOrder, limit: int) -> TalkersReply:
        """Return the first `limit` sessions in the given order. A session that started after the first of the
        two sweeps is not included. Raises StepFailed if the counters cannot be read."""
        with self._lock:
            sweeps = self._take_sweeps()
            if sweeps is not self._sweeps:
                self._sweeps, self._top_lists = sweeps, {}
            top_list = self._top_lists.get((order, limit))
            if top_list is None:
                top_list = self._top_lists[order, limit] = _choose_top(*sweeps, order, limit)
        self._idle_timer.restart()
        before, after = sweeps
        sessions = ((self._gateway.sessions.get(id), rates) for id, rates in top_list)
        talkers = tuple(
            record_of(wire.Talker, session.summary, rates)
            for session, rates in sessions
            if session is not None
        )
        at = self._clock.wall() - (self._clock.steady() - after.at)
        return TalkersReply(talkers, len(talkers), int(at), round((after.at - before.at) * 1000))

    def _take_sweeps(self) -> tuple[_Sweep, _Sweep]:
        now = self._clock.steady()
        if self._sweeps is not None and now - self._sweeps[1].at < _SWEEP_LIFETIME_SECONDS:
            return self._sweeps
        if self._sweeps is not None and now - self._sweeps[1].at < _MAX_SWEEP_AGE_SECONDS:
            return self._sweeps[1], self._sweep()
        before = self._sweep()
        self._sleep(_FIRST_SWEEP_PAUSE_SECONDS)
        return before, self._sweep()

    def _sweep(self) -> _Sweep:
        counters = self._gateway.read_counters()
        return _Sweep(self._clock.steady(), counters)

    def _forget(self) -> None:
        with self._lock:
            self._sweeps, self._top_lists = None, {}


def _choose_top(
    before: _Sweep, after: _Sweep, order: TalkerOrder, limit: int
) -> list[tuple[int, Throughput]]:
    """Return the ids of the first `limit` sessions in the given order, each with its rates."""
    field = attrgetter("bytes_out" if order.removeprefix("-") == "down" else "bytes_in")
    earlier, later = before.counters, after.counters

    def count_bytes(id: int) -> int:
        difference: int = field(later[id]) - field(earlier[id])
        return max(0, difference)

    select = heapq.nlargest if order.startswith("-") else heapq.nsmallest
    ids = select(limit, later.keys() & earlier.keys(), key=count_bytes)
    return [(id, compute_throughput(earlier[id], later[id], after.at - before.at)) for id in ids]
