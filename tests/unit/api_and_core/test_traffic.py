"""The traffic of sessions now: rates between two samples, however many watch."""

import threading
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import gevent
import gevent.queue
import pytest

from gateway_api.events import Feeds, Stream
from gateway_contract.base.errors import CoreUnavailable, NotFound, TooManyStreams
from gateway_contract.core.sessions import SessionDetail
from gateway_contract.core.traffic import TalkerOrder, TrafficReply, WatchTraffic
from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.lab.gateway import LabGateway
from gateway_core.gateways.lab.population import Population
from gateway_core.service.traffic import Throughput, TopTalkers, TrafficWatcher, compute_throughput
from gateway_core.sessions.journal import Journal
from gateway_core.sessions.session import Counters
from tests.support.clocks import NOW
from tests.support.core_clock import StillClock
from tests.support.stack import PATIENCE

DOWN, UP = 100_000_000, 20_000_000


class CountingLab(LabGateway):
    """Knows when sessions were sampled, and counts the sweeps."""

    samples: list[float]
    sweeps = 0

    def read_detail(self, id: int) -> SessionDetail | None:
        self.samples.append(self._clock.steady())
        return super().read_detail(id)

    def read_counters(self) -> dict[int, Counters]:
        self.sweeps += 1
        return super().read_counters()


class Core:
    """A lab of five sessions that use all of their rates."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.clock = StillClock()
        configuration = RunningConfiguration.of(document).sections
        self.gateway = CountingLab(configuration, Population(5, 0.0, 1), Journal("life"), self.clock)
        self.gateway.samples = []
        self.watches = TrafficWatcher(self.gateway, self.clock, self.sleep)
        self.talkers = TopTalkers(self.gateway, self.clock, self.sleep)
        #: Seconds that a sleep takes longer than it was told.
        self.late = 0.0

        self._lock = threading.Lock()

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.clock.now += seconds + self.late


@pytest.fixture
def core(document: dict[str, Any]) -> Core:
    return Core(document)


def test_rates_are_bits_and_packets_per_second() -> None:
    before, after = Counters(1000, 2000, 10, 20), Counters(3000, 12000, 30, 60)
    assert compute_throughput(before, after, 2.0) == Throughput(
        down_bps=40_000, up_bps=8000, down_pps=20, up_pps=10
    )
    # A counter that began anew is no traffic.
    assert compute_throughput(before, Counters(5, 5, 1, 1), 1.0) == Throughput(0, 0, 0, 0)


# Of one session


def test_a_session_that_is_watched_has_its_rates_each_second(core: Core) -> None:
    replies = list(islice(core.watches.watch(2), 3))
    assert [(reply.at, reply.interval_ms) for reply in replies] == [(NOW + n, 1000) for n in (1, 2, 3)]
    assert {(reply.down_bps, reply.up_bps) for reply in replies} == {(DOWN, UP)}
    # Packets have 1200 bytes down and 400 up, and only whole ones count.
    assert all(abs(reply.down_pps - 10_417) <= 1 and abs(reply.up_pps - 6250) <= 1 for reply in replies)
    # They go by the time between the samples, and not by what it should be.
    core.late = 1.5
    (reply,) = islice(core.watches.watch(2), 1)
    assert (reply.interval_ms, reply.down_bps, reply.up_bps) == (2500, DOWN, UP)


def test_the_watch_ends_with_the_session(core: Core) -> None:
    watch = core.watches.watch(2)
    assert next(watch)
    core.gateway.disconnect([2])
    assert list(watch) == []
    assert list(core.watches.watch(2)) == []
    assert len(core.watches) == 0


def test_all_watchers_of_a_session_share_its_samples(core: Core) -> None:
    first, others = core.watches.watch(2), [core.watches.watch(2) for _ in range(9)]
    replies = [next(first)]
    # They get the last rates at once.
    for other in others:
        assert next(other) == replies[0]
    replies.append(next(first))
    for other in others:
        assert next(other) == replies[1]
    assert len(core.gateway.samples) == 3
    for watch in (first, *others):
        watch.close()  # type: ignore[attr-defined]
    assert len(core.watches) == 0


# Top talkers


def talkers(core: Core, order: str = "-down", limit: int = 20) -> list[tuple[int, int, int]]:
    found = core.talkers.list_top(TalkerOrder(order), limit)
    return [(each.id, each.down_bps, each.up_bps) for each in found.sessions]


def test_sessions_come_by_their_traffic_now(core: Core) -> None:
    for id in (1, 2, 3, 4, 5):
        core.gateway.set_rate(id, id * 1_000_000, (6 - id) * 100_000)
    assert talkers(core, "-down", 2) == [(5, 5_000_000, 100_000), (4, 4_000_000, 200_000)]
    assert [id for id, *_ in talkers(core, "-up")] == [1, 2, 3, 4, 5]
    assert [id for id, *_ in talkers(core, "down", 2)] == [1, 2]
    assert [id for id, *_ in talkers(core, "up", 1)] == [5]


def test_all_lists_within_five_seconds_share_a_sweep(core: Core) -> None:
    first = core.talkers.list_top(TalkerOrder.MOST_DOWN, 20)
    # The first one takes a second, and is of that second.
    assert core.clock.now - NOW == 1
    assert (first.at, first.interval_ms, first.count) == (NOW + 1, 1000, 5)
    core.clock.now += 4.9
    assert core.talkers.list_top(TalkerOrder.MOST_DOWN, 20) == first
    assert core.gateway.sweeps == 2
    core.clock.now += 0.2
    later = core.talkers.list_top(TalkerOrder.MOST_DOWN, 20)
    assert (core.gateway.sweeps, later.at, later.interval_ms) == (3, NOW + 6, 5100)
    # With a sweep of long ago none is compared.
    core.clock.now += 3600
    assert core.talkers.list_top(TalkerOrder.MOST_DOWN, 20).interval_ms == 1000


def test_a_session_that_is_gone_is_in_no_list(core: Core) -> None:
    talkers(core)
    core.gateway.disconnect([3])
    assert [id for id, *_ in talkers(core, "down")] == [1, 2, 4, 5]
    core.clock.now += 6
    assert [id for id, *_ in talkers(core, "down")] == [1, 2, 4, 5]


# The streams of a worker


class InProcessTraffic:
    """The core's traffic, which comes when the test says so."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.open = 0
        self.queue: gevent.queue.Queue[Any] = gevent.queue.Queue()

    def follow(self, call: WatchTraffic) -> Iterator[TrafficReply]:
        self.calls.append(call.id)
        self.open += 1
        try:
            while True:
                item = self.queue.get()
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.open -= 1


def reply(number: int) -> TrafficReply:
    return TrafficReply(NOW + number, 1000, number, 0, 0, 0)


class Client:
    """A client of a feed."""

    def __init__(self, feeds: Feeds, id: int) -> None:
        follow = partial(feeds.follow, id=id)
        self.stream = Stream(None, "alice", "192.0.2.1", follow)  # type: ignore[arg-type]
        self.pieces: list[bytes] = []
        self.end: Any = None
        self.greenlet = gevent.spawn(self._run)

    def _run(self) -> None:
        try:
            for piece in self.stream._pieces:
                self.pieces.append(piece)
            self.end = "properly"
        except CoreUnavailable as error:
            self.end = error

    def got(self, number: int) -> bool:
        return any(b'"down_bps":%d,' % number in piece for piece in self.pieces)


def until(what: str, ready: Any) -> None:
    with gevent.Timeout(PATIENCE):
        while not ready():
            gevent.sleep(0.001)


@pytest.fixture
def traffic(greenlets: None) -> InProcessTraffic:
    return InProcessTraffic()


@pytest.fixture
def feeds(traffic: InProcessTraffic) -> Feeds:
    return Feeds(traffic, max_watched=2)  # type: ignore[arg-type]


def test_all_clients_of_a_worker_share_one_call_of_the_core_which_ends_with_the_last(
    traffic: InProcessTraffic, feeds: Feeds
) -> None:
    clients = [Client(feeds, 7) for _ in range(20)]
    until("the call", lambda: traffic.calls)
    for number in (1, 2):
        traffic.queue.put(reply(number))
        until("the event", lambda number=number: all(client.got(number) for client in clients))
    assert traffic.calls == [7]
    late = Client(feeds, 7)
    until("the last event", lambda: late.got(2))
    assert traffic.calls == [7]
    for client in (*clients, late):
        assert traffic.open == 1
        client.stream.is_ended = True
        client.stream.wake()
        until("the end of the client", lambda client=client: client.end)
    until("the end of the call", lambda: not traffic.open)
    assert len(feeds) == 0


@pytest.mark.parametrize(
    ("error", "last"),
    [
        (NotFound("No such session"), [b'event: ended\ndata: {"id":7}\n\n']),
        (CoreUnavailable("hung up"), []),
    ],
)
def test_the_last_event_says_that_the_session_ended_but_not_when_the_core_goes(
    traffic: InProcessTraffic, feeds: Feeds, error: Exception, last: list[bytes]
) -> None:
    client = Client(feeds, 7)
    traffic.queue.put(error)
    until("the end", lambda: client.end)
    assert (client.end, client.pieces) == ("properly" if last else error, last)


def test_a_worker_watches_only_so_many_sessions(traffic: InProcessTraffic, feeds: Feeds) -> None:
    for id in (1, 2):
        feeds.check(id)
        Client(feeds, id)
    until("the calls", lambda: len(traffic.calls) == 2)
    feeds.check(2)
    with pytest.raises(TooManyStreams):
        feeds.check(3)
