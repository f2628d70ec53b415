"""The traffic of sessions now: the difference of two samples of their counters. Without anybody who watches,
nothing is sampled and nothing is kept."""

import heapq
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import NamedTuple

from gateway_contract.base.idle_timer import IdleTimer
from gateway_contract.contract import record_of
from gateway_contract.core.interface import CORE
from gateway_contract.core.sessions import SessionNotFoundError
from gateway_contract.core.traffic import (
    ListTalkers,
    Talker,
    TalkerOrder,
    TalkersReply,
    TrafficReply,
    WatchTraffic,
)
from gateway_core.gateways.protocols import Gateway
from gateway_core.records.clock import Clock
from gateway_core.service.core import translate_errors
from gateway_core.sessions.session import Counters

#: Seconds between two samples of a session that is watched.
_EACH = 1.0
#: Seconds in which all lists share a sweep, and between the two sweeps of the first list.
_SHARED, _FIRST = 5.0, 1.0
#: Seconds after which a sweep is too old to compare with: its rates would not be those of now.
_OLD = 30.0

Sleep = Callable[[float], None]


class Throughput(NamedTuple):
    """Bits and packets per second."""

    down_bps: int
    up_bps: int
    down_pps: int
    up_pps: int


def throughput(before: Counters, after: Counters, seconds: float) -> Throughput:
    """A counter that is lower than before has begun anew: its rate is 0 until the next sample."""

    def rate(counted: int, per: int = 1) -> int:
        return max(0, round(counted * per / seconds))

    return Throughput(
        rate(after.bytes_out - before.bytes_out, 8),
        rate(after.bytes_in - before.bytes_in, 8),
        rate(after.packets_out - before.packets_out),
        rate(after.packets_in - before.packets_in),
    )


class _Sample(NamedTuple):
    """The counters of a session at a steady time; `reply` has the rates since the sample before."""

    at: float
    counters: Counters
    reply: TrafficReply | None = None


class _WatchedSession:
    """A session that somebody watches."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.watchers = 0
        #: None before the first one, and after the end of the session.
        self.sample: _Sample | None = None


class Watches:
    """The sessions that are watched: each is sampled once a second, however many watch it. The first watcher
    whose second is over takes the sample for all."""

    def __init__(self, gateway: Gateway, clock: Clock, sleep: Sleep = time.sleep) -> None:
        self._gateway = gateway
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._watched: dict[int, _WatchedSession] = {}

    def __len__(self) -> int:
        return len(self._watched)

    def watch(self, id: int) -> Iterator[TrafficReply]:
        """The traffic of a session until its end; what other watchers had last comes at once. Raises
        StepFailed."""
        with self._lock:
            watched = self._watched.setdefault(id, _WatchedSession())
            watched.watchers += 1
        try:
            yield from self._replies(id, watched)
        finally:
            with self._lock:
                watched.watchers -= 1
                if not watched.watchers:
                    del self._watched[id]

    def _replies(self, id: int, watched: _WatchedSession) -> Iterator[TrafficReply]:
        sample = self._next(id, watched, None)
        while sample is not None:
            if sample.reply is not None:
                yield sample.reply
            self._sleep(max(0.0, sample.at + _EACH - self._clock.steady()))
            sample = self._next(id, watched, sample)

    def _next(self, id: int, watched: _WatchedSession, last: _Sample | None) -> _Sample | None:
        """Return the sample after `last`, or the first one. None at the end of the session."""
        with watched.lock:
            if watched.sample is last:
                watched.sample = self._sampled(id, last)
            return watched.sample

    def _sampled(self, id: int, before: _Sample | None) -> _Sample | None:
        detail = self._gateway.detail(id)
        at = self._clock.steady()
        if detail is None:
            return None
        counters = Counters(detail.bytes_in, detail.bytes_out, detail.packets_in, detail.packets_out)
        if before is None:
            return _Sample(at, counters)
        seconds = at - before.at
        now = throughput(before.counters, counters, seconds)
        return _Sample(at, counters, TrafficReply(int(self._clock.wall()), round(seconds * 1000), *now))


class _Sweep(NamedTuple):
    """The counters of all sessions at a steady time."""

    at: float
    counters: Mapping[int, Counters]


class Talkers:
    """Sessions by traffic, from sweeps of all counters while somebody asks for them. Any thread may call."""

    def __init__(self, gateway: Gateway, clock: Clock, sleep: Sleep = time.sleep) -> None:
        self._gateway = gateway
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        #: The sweep before the last one, and the last one.
        self._sweeps: tuple[_Sweep, _Sweep] | None = None
        #: The sessions of each list since the last sweep, by id: of 200,000, to find them takes longest.
        self._found: dict[tuple[TalkerOrder, int], list[tuple[int, Throughput]]] = {}
        self._idle = IdleTimer(_OLD, self._forget)

    def top(self, order: TalkerOrder, limit: int) -> TalkersReply:
        """Raises StepFailed. A session that is newer than the first of the two sweeps is in the next list."""
        with self._lock:
            current = self._current()
            if current is not self._sweeps:
                self._sweeps, self._found = current, {}
            found = self._found.get((order, limit))
            if found is None:
                found = self._found[order, limit] = _chosen(*current, order, limit)
        self._idle.restart()
        before, after = current
        present = ((self._gateway.sessions.get(id), now) for id, now in found)
        talkers = tuple(record_of(Talker, each.summary, now) for each, now in present if each is not None)
        at = self._clock.wall() - (self._clock.steady() - after.at)
        return TalkersReply(talkers, len(talkers), int(at), round((after.at - before.at) * 1000))

    def _current(self) -> tuple[_Sweep, _Sweep]:
        now = self._clock.steady()
        if self._sweeps is not None and now - self._sweeps[1].at < _SHARED:
            return self._sweeps
        if self._sweeps is not None and now - self._sweeps[1].at < _OLD:
            return self._sweeps[1], self._sweep()
        before = self._sweep()
        self._sleep(_FIRST)
        return before, self._sweep()

    def _sweep(self) -> _Sweep:
        counters = self._gateway.counters()
        return _Sweep(self._clock.steady(), counters)

    def _forget(self) -> None:
        with self._lock:
            self._sweeps, self._found = None, {}


def _chosen(before: _Sweep, after: _Sweep, order: TalkerOrder, limit: int) -> list[tuple[int, Throughput]]:
    field = attrgetter("bytes_out" if order.removeprefix("-") == "down" else "bytes_in")
    earlier, later = before.counters, after.counters

    def moved(id: int) -> int:
        counted: int = field(later[id]) - field(earlier[id])
        return max(0, counted)

    choose = heapq.nlargest if order.startswith("-") else heapq.nsmallest
    ids = choose(limit, later.keys() & earlier.keys(), key=moved)
    return [(id, throughput(earlier[id], later[id], after.at - before.at)) for id in ids]


class TrafficService:
    """Serves the traffic of one gateway's sessions."""

    def __init__(self, gateway: Gateway, clock: Clock) -> None:
        self._watches = Watches(gateway, clock)
        self._talkers = Talkers(gateway, clock)

    def watch_traffic(self, call: WatchTraffic) -> Iterator[TrafficReply]:
        with translate_errors():
            yield from self._watches.watch(call.id)
        raise CORE.error(SessionNotFoundError(call.id))

    def list_talkers(self, call: ListTalkers) -> TalkersReply:
        with translate_errors():
            return self._talkers.top(call.sort, call.limit)
