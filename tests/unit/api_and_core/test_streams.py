"""What one worker makes of the core's events: those who follow the core, and the streams of clients.

Greenlets on a core in this process, whose replies come when the test says so; or threads on a real socket.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from typing import Any

import gevent
import msgspec
import pytest
from gevent.event import Event as Signal

from gateway_api.base.core_events import Events
from gateway_api.events import (
    MAX_HELD_EVENTS,
    Broadcast,
    EncodedEvent,
    EventId,
    Span,
    StreamFilter,
    Streams,
    StreamTimes,
    encode_events,
    encode_gap,
    parse_id,
)
from gateway_contract.base.errors import CoreUnavailable, TooManyStreams
from gateway_contract.core.sessions import EventsReply
from gateway_contract.core_client import CoreClient
from gateway_core.sessions.journal import Journal
from gateway_core.sessions.session import Counters
from tests.support.clocks import SteppedClock
from tests.support.journal import InProcessCore, grow
from tests.support.records import session
from tests.support.sse import Message, messages_in
from tests.support.stack import PATIENCE

#: The first connection of a worker looks how far back it may begin, the second one follows.
BROADCAST = 1
UP = frozenset({"session_up"})
DOWN = frozenset({"session_down"})


# A worker


class Worker:
    """The streams of a worker. Each bearer may listen who isn't `refused`."""

    def __init__(self, **limits: int) -> None:
        self.journal = Journal("life")
        self.core = InProcessCore(self.journal)
        self.times = StreamTimes()
        self.streams = Streams(
            Events(CoreClient(self.core)),  # type: ignore[arg-type]
            self._still_allowed,
            times=self.times,
            **limits,  # type: ignore[arg-type]
        )
        self.refused: set[str] = set()
        #: Whom the last sweep asked for.
        self.asked: list[str] = []
        self.sweeps = 0
        self.in_a_sweep: Callable[[], None] = lambda: None

    def client(
        self,
        resume: int | EventId | None = None,
        bearer: str = "alice",
        address: str = "192.0.2.1",
        **wanted: Any,
    ) -> "Reader":
        """A listener for what comes after an event of this life, or of another one, or from now on."""
        after = EventId("life", resume) if isinstance(resume, int) else resume
        return Reader(self.streams, bearer, address, StreamFilter(resume=after, **wanted))

    def listener(self, resume: int | EventId | None = None, bearer: str = "alice", **wanted: Any) -> "Reader":
        """The same, when it has got its headers."""
        made = self.client(resume, bearer, **wanted)
        until("the headers", lambda: made.pieces)
        return made

    def reach(self, sequence: int) -> None:
        """Returns when the worker has an event."""
        if not self.core.asked:
            self.listener()
        until(f"event {sequence}", lambda: self.core.reached[BROADCAST] >= sequence)

    def sweep(self) -> None:
        """Returns after two more sweeps: at least the second one saw all that was before."""
        enough = self.sweeps + 3
        until("two sweeps", lambda: self.sweeps >= enough)

    def _still_allowed(self, bearers: list[str]) -> list[bool]:
        self.sweeps += 1
        self.asked = bearers
        allowed = [bearer not in self.refused for bearer in bearers]
        self.in_a_sweep()
        return allowed


class Reader:
    """A client at the other end of a stream, and the greenlet that serves it. While it doesn't take, what is
    sent to it is under way."""

    def __init__(self, streams: Streams, bearer: str, address: str, wanted: StreamFilter) -> None:
        self.pieces: list[bytes] = []
        self.takes = Signal()
        self.takes.set()
        #: How it ended: "properly", "cut", or what was raised.
        self.end: Any = None
        self.was_opened = False
        self.greenlet = gevent.spawn(self._run, streams, bearer, address, wanted)

    @property
    def messages(self) -> list[Message]:
        buffer = bytearray(b"".join(self.pieces))
        found = messages_in(buffer)
        assert not buffer
        return found

    @property
    def sequences(self) -> list[int]:
        return [message.sequence for message in self.messages]

    @property
    def names(self) -> list[tuple[str, int]]:
        return [(message.name, message.sequence) for message in self.messages]

    def has(self, sequence: int) -> bool:
        """Whether it got that far."""
        return any(b"-%d\n" % sequence in piece for piece in reversed(self.pieces))

    def wait_for(self, sequence: int) -> list[Message]:
        until(f"event {sequence}", lambda: self.has(sequence))
        return self.messages

    def _run(self, streams: Streams, bearer: str, address: str, wanted: StreamFilter) -> None:
        try:
            stream = streams.open(bearer, address, wanted)
            self.was_opened = True
            with closing(stream):
                for piece in stream:
                    self.pieces.append(piece)
                    self.takes.wait()
            self.end = "properly"
        except gevent.GreenletExit:
            self.end = "cut"
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.end = error


#: Seconds that are enough even on a busy machine, and less than those until a heartbeat.
SOON = 10.0


def until(what: str, ready: Callable[[], Any], timeout: float = PATIENCE) -> Any:
    """As wait_for, and lets greenlets work meanwhile."""
    deadline = time.monotonic() + timeout
    while not (value := ready()):
        assert time.monotonic() < deadline, f"waited {timeout:g} s for {what}"
        gevent.sleep(0.002)
    return value


@pytest.fixture
def worker(greenlets: None) -> Iterator[Worker]:
    """One that doesn't take pytest with it when it ends."""
    ends: list[Any] = []
    made = Worker()
    made.streams.on_failure = ends.append
    yield made
    assert not ends


@pytest.fixture
def short(worker: Worker) -> None:
    """A worker begins with the last 5 events, so that it takes few to be behind those."""
    worker.times.past_events = 5


@pytest.fixture
def sweeping(worker: Worker) -> SteppedClock:
    """Sweeps follow each other quickly, on a clock that stands."""
    clock = SteppedClock()
    worker.times.sweep, worker.times.clock = 0.01, clock
    return clock


# From now on


def test_who_listens_from_now_on_gets_its_headers_and_nothing_of_what_a_worker_began_with(
    worker: Worker,
) -> None:
    grow(worker.journal, 300)
    client = worker.listener()
    assert client.pieces == [b""]
    assert worker.core.asked == [(None, None), ("life", 0)]
    grow(worker.journal, 2)
    client.wait_for(302)
    assert client.sequences == [301, 302]


def test_who_comes_while_a_worker_is_on_its_way_to_now_gets_nothing_of_before(worker: Worker) -> None:
    grow(worker.journal, 2500)
    core = worker.core
    core.holds = lambda number: number == BROADCAST and core.given[number] == 1
    client = worker.client()
    until("a part of the events", lambda: core.given[BROADCAST] == 1)
    core.holds = lambda _: False
    until("the headers", lambda: client.pieces)
    grow(worker.journal, 1)
    client.wait_for(2501)
    assert client.sequences == [2501]


def test_nothing_is_sent_twice_at_most_1000_events_at_a_time(worker: Worker) -> None:
    client = worker.listener()
    client.takes.clear()
    grow(worker.journal, 2501)
    worker.listener(resume=0).wait_for(2501)
    client.takes.set()
    client.wait_for(2501)
    assert [piece.count(b"\nevent: ") for piece in client.pieces if piece] == [1000, 1000, 501]


@pytest.mark.parametrize(("behind", "ends"), [(10_000, False), (10_001, True)])
def test_a_client_further_behind_than_10000_events_is_ended_and_can_come_back_for_the_rest(
    worker: Worker, behind: int, ends: bool
) -> None:
    client = worker.listener()
    client.takes.clear()
    grow(worker.journal, 1)
    # It has one, and doesn't come for the next.
    client.wait_for(1)
    grow(worker.journal, behind)
    worker.reach(behind + 1)
    client.takes.set()
    if ends:
        until("its end", lambda: client.end)
        assert (client.end, client.sequences) == ("properly", [1])
        client = worker.listener(resume=0)
    client.wait_for(behind + 1)
    assert client.sequences == list(range(1, behind + 2))


@pytest.mark.parametrize(
    ("limits", "own", "next_own", "another"),
    [
        ({"max_streams": 2}, ["192.0.2.1"] * 2, "192.0.2.9", None),
        ({"max_streams_of_client": 2}, ["2001:db8::1", "2001:db8::2"], "2001:db8::9", "2001:db8:0:1::"),
    ],
    ids=["of all", "of a client in its network"],
)
def test_there_are_so_many_streams_at_a_time_from_their_begin_to_their_end(
    greenlets: None, limits: dict[str, int], own: list[str], next_own: str, another: str | None
) -> None:
    worker = Worker(**limits)
    # One that is never read is none.
    worker.streams.open("alice", own[0], StreamFilter()).close()
    clients = [worker.listener(address=address) for address in own]
    assert len(worker.streams) == 2
    with pytest.raises(TooManyStreams, match="event streams"):
        worker.streams.open("alice", next_own, StreamFilter())
    if another is not None:
        worker.listener(address=another)
    clients[0].greenlet.kill()
    worker.listener(address=next_own)
    with pytest.raises(TooManyStreams):
        worker.streams.open("alice", own[0], StreamFilter())


# Filters


def test_a_client_gets_the_names_and_the_type_that_it_wants(worker: Worker) -> None:
    filters: list[tuple[dict[str, Any], list[int]]] = [
        ({"names": UP}, [1, 2]),
        ({"names": UP | DOWN, "type": "pppoe"}, [1, 3]),
        ({"names": DOWN, "type": "dhcp"}, [4]),
    ]
    clients = [
        (worker.listener(resume, **wanted), expected)
        for wanted, expected in filters
        for resume in (None, 0, EventId("other", 7))
    ]
    for id, type in enumerate(("PPPoE", "DHCP"), 1):
        worker.journal.add_session_up(session(id, type=type), 1.0)
    for id, type in enumerate(("PPPoE", "DHCP"), 1):
        worker.journal.add_session_down(session(id, type=type), "user_request", 2.0, Counters(1, 2, 1, 2))
    for client, expected in clients:
        client.wait_for(expected[-1])
        assert [message.sequence for message in client.messages if message.name != "gap"] == expected


# Coming back


def test_a_client_that_comes_back_to_a_worker_that_holds_the_rest_gets_exactly_that_and_the_core_is_not_asked(
    worker: Worker,
) -> None:
    grow(worker.journal, 50)
    clients = {after: worker.listener(resume=after) for after in (20, 50)}
    grow(worker.journal, 5)
    for after, client in clients.items():
        client.wait_for(55)
        assert client.sequences == list(range(after + 1, 56))
    assert worker.core.asked == [(None, None), ("life", 0)]


@pytest.mark.parametrize(("after", "asks"), [(45, []), (44, [("life", 44)])])
def test_the_core_is_asked_for_what_a_worker_does_not_hold_and_followed_no_further(
    worker: Worker, short: None, after: int, asks: list[tuple[str, int]]
) -> None:
    grow(worker.journal, 50)
    client = worker.listener(resume=after)
    client.wait_for(50)
    assert worker.core.asked[2:] == asks
    until("its connection to be closed", lambda: worker.core.open == {BROADCAST})
    grow(worker.journal, 3)
    client.wait_for(53)
    assert client.sequences == list(range(after + 1, 54))


def test_who_is_quicker_than_a_worker_that_stands_still_goes_on_with_the_core(
    worker: Worker, short: None
) -> None:
    grow(worker.journal, 50)
    worker.listener()
    worker.times.core_timeout = 0.05
    core = worker.core
    core.holds = lambda number: number == BROADCAST
    grow(worker.journal, 7)
    client = worker.listener(resume=0)
    for sequence in (57, 60, 63):
        client.wait_for(sequence)
        grow(worker.journal, 3)
    client.wait_for(66)
    core.holds = lambda _: False
    until("its connection to be closed", lambda: core.open == {BROADCAST})
    grow(worker.journal, 1)
    client.wait_for(67)
    assert client.sequences == list(range(1, 68))


@pytest.mark.parametrize("id", [EventId("other", 3), EventId("unknown", 0), EventId("life", 51)])
def test_an_event_that_nobody_knows_is_one_gap_and_then_it_goes_on(worker: Worker, id: EventId) -> None:
    grow(worker.journal, 50)
    client = worker.listener(resume=id)
    client.wait_for(50)
    grow(worker.journal, 2)
    client.wait_for(52)
    assert b"".join(client.pieces).startswith(encode_gap("life", 1, 50))
    assert [message.name for message in client.messages] == ["gap", "session_up", "session_up"]
    assert client.sequences == [50, 51, 52]


def test_a_client_that_catches_up_with_a_core_that_goes_away_ends_and_may_come_back(
    worker: Worker, short: None
) -> None:
    grow(worker.journal, 1500)
    core = worker.core
    core.holds = lambda number: number > BROADCAST and core.given[number] == 1
    client = worker.listener(resume=0)
    client.wait_for(1000)
    core.journal = None
    core.holds = lambda _: False
    until("its end", lambda: client.end)
    assert (client.end, len(worker.streams)) == ("properly", 0)
    assert client.sequences == list(range(1, 1001))


# Silence


def test_silence_is_broken_by_heartbeats_for_who_wants_nothing_of_what_happens_too(worker: Worker) -> None:
    def happens() -> bool:
        grow(worker.journal, 3)
        return len(picky.pieces) >= 5

    worker.times.heartbeat = 0.05
    client, picky = worker.listener(), worker.listener(names=DOWN)
    until("heartbeats", lambda: len(client.pieces) == 3)
    until("heartbeats", happens)
    assert client.pieces[:3] == [b"", b":\n", b":\n"]
    assert picky.pieces[:5] == [b"", *[b":\n"] * 4]


# A gap for all


def test_another_life_of_the_core_is_one_gap_for_everybody_and_then_it_goes_on(worker: Worker) -> None:
    grow(worker.journal, 20)
    clients = [worker.listener(), worker.listener(resume=20), worker.listener(names=DOWN, type="dhcp")]
    second = Journal("second")
    grow(second, 3)
    worker.core.journal = second
    for client in clients:
        client.wait_for(3)
    # Who comes after the gap hears of it where it knows only the former life.
    clients.append(worker.listener(resume=20))
    late = [worker.listener(), worker.listener(resume=EventId("second", 3))]
    second.add_session_down(session(1, type="DHCP"), "lost_carrier", 2.0, Counters(1, 2, 1, 2))
    for client in clients:
        client.wait_for(4)
        assert client.names == [("gap", 3), ("session_down", 4)]
        assert b"".join(client.pieces).startswith(encode_gap("second", 1, 3))
    for client in late:
        client.wait_for(4)
        assert client.sequences == [4]


def test_a_worker_that_the_core_left_behind_tells_everybody_what_is_held(worker: Worker) -> None:
    worker.core.journal = worker.journal = Journal("life", size=4)
    clients = [worker.listener(), worker.listener(names=DOWN)]
    worker.core.holds = lambda _: True
    grow(worker.journal, 10)
    worker.core.holds = lambda _: False
    for client in clients:
        client.wait_for(10)
        assert b"".join(client.pieces) == encode_gap("life", 7, 10)


def test_who_knows_of_events_before_the_gap_of_the_worker_gets_all_of_them(
    worker: Worker, short: None
) -> None:
    grow(worker.journal, 50)
    worker.listener()
    worker.times.core_timeout = 0.1
    second = Journal("second")
    grow(second, 3)
    worker.core.holds = lambda number: number == BROADCAST
    worker.core.journal = second
    client = worker.listener(resume=20)
    client.wait_for(3)
    # These are before the worker's gap, and after the client's.
    grow(second, 2)
    worker.core.holds = lambda _: False
    client.wait_for(5)
    grow(second, 2)
    client.wait_for(7)
    assert client.names == [("gap", 3), *(("session_up", sequence) for sequence in range(4, 8))]


# Without a core


def test_without_events_nothing_is_opened_and_the_next_client_may_listen(worker: Worker) -> None:
    worker.times.core_timeout = 0.05
    worker.core.journal = None
    client = worker.client()
    until("a refusal", lambda: client.end)
    assert isinstance(client.end, CoreUnavailable)
    assert (client.was_opened, len(worker.streams)) == (False, 0)
    # A core that comes late is waited for.
    worker.times.core_timeout = PATIENCE
    client, tries = worker.client(), len(worker.core.asked)
    until("a try", lambda: len(worker.core.asked) > tries)
    worker.core.journal = worker.journal
    until("the headers", lambda: client.pieces)
    grow(worker.journal, 1)
    assert client.wait_for(1)


# Who may go on


def test_a_stream_ends_when_its_bearer_may_listen_no_more_and_others_go_on(
    worker: Worker, sweeping: SteppedClock
) -> None:
    alice, bob, hanging = worker.listener(), worker.listener(bearer="bob"), worker.client()
    hanging.takes.clear()
    until("the headers", lambda: hanging.pieces)
    worker.refused = {"alice"}
    until("both ends", lambda: alice.end and hanging.end)
    assert (alice.end, hanging.end, len(worker.streams)) == ("properly", "cut", 1)
    worker.sweep()
    grow(worker.journal, 1)
    bob.wait_for(1)
    assert (bob.end, alice.sequences) == (None, [])
    # All bearers are asked for at once.
    worker.listener(bearer="carol")
    worker.sweep()
    assert sorted(worker.asked) == ["bob", "carol"]


def test_a_surprise_ends_neither_the_sweep_nor_a_stream_but_who_does_not_read(
    worker: Worker, sweeping: SteppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ValueError("a surprise")

    client, stuck = worker.listener(), worker.listener(bearer="bob")
    worker.in_a_sweep = fail
    stuck.takes.clear()
    grow(worker.journal, 1)
    stuck.wait_for(1)
    sweeping.now += 10.1
    until("its end", lambda: stuck.end)
    worker.sweep()
    assert client.end is None
    assert "a surprise" in caplog.text
    worker.in_a_sweep = lambda: None
    worker.refused = {"alice"}
    until("the end", lambda: client.end)


def test_a_client_has_10_seconds_to_take_what_was_sent(worker: Worker, sweeping: SteppedClock) -> None:
    headers, stuck, other = worker.client(), worker.listener(), worker.listener()
    headers.takes.clear()
    until("the headers", lambda: headers.pieces)
    stuck.takes.clear()
    grow(worker.journal, 1)
    stuck.wait_for(1)
    other.wait_for(1)
    sweeping.now += 10.0
    worker.sweep()
    assert (headers.end, stuck.end) == (None, None)
    sweeping.now += 0.1
    until("their ends", lambda: headers.end and stuck.end)
    worker.sweep()
    assert (headers.end, stuck.end, other.end, len(worker.streams)) == ("cut", "cut", None, 1)


def test_16_clients_at_a_time_are_caught_up_and_the_next_waits_as_long_as_it_takes(
    worker: Worker, short: None, sweeping: SteppedClock
) -> None:
    grow(worker.journal, 50)
    core = worker.core
    core.holds = lambda number: number > BROADCAST
    worker.times.heartbeat = 0.1
    clients = [worker.listener(resume=0) for _ in range(17)]
    last = clients.pop()
    # They delay no client that has caught up.
    live = worker.listener()
    grow(worker.journal, 1)
    live.wait_for(51)
    until("a heartbeat", lambda: b":\n" in last.pieces)
    sweeping.now += 10.1
    worker.sweep()
    # Those before it have waited for the core too long, each in its turn.
    assert ([client.end for client in clients], last.end) == (["cut"] * 16, None)
    core.holds = lambda _: False
    last.wait_for(51)
    assert last.sequences == list(range(1, 52))
    assert core.most == 17


def test_the_core_has_10_seconds_after_each_piece_that_a_client_took(
    worker: Worker, short: None, sweeping: SteppedClock
) -> None:
    grow(worker.journal, 1500)
    core = worker.core
    core.holds = lambda number: number > BROADCAST
    client = worker.listener(resume=0)
    client.takes.clear()
    core.holds = lambda number: number > BROADCAST and core.given[number] == 1
    client.wait_for(1000)
    sweeping.now += 9.0
    worker.sweep()
    client.takes.set()
    until("the core to be waited for", lambda: core.reached[2] == 1000)
    sweeping.now += 9.0
    worker.sweep()
    assert client.end is None
    core.holds = lambda _: False
    client.wait_for(1500)
    assert client.sequences == list(range(1, 1501))


# Ends


def test_close_ends_all_streams(worker: Worker, short: None) -> None:
    grow(worker.journal, 50)
    worker.core.holds = lambda number: number > BROADCAST
    # The core lets 16 wait, and the last one waits until one of them is caught up.
    clients = [worker.listener(resume=0) for _ in range(17)]
    live = [worker.listener(), worker.listener(resume=50), worker.listener(names=DOWN)]
    stuck = worker.listener()
    stuck.takes.clear()
    grow(worker.journal, 1)
    stuck.wait_for(51)
    worker.streams.close()
    for client in (*clients, *live, stuck):
        until("its end", lambda client=client: client.end, SOON)
    assert ([client.end for client in live], len(worker.streams)) == (["properly"] * 3, 0)


def test_a_stream_that_begins_after_the_close_ends_at_once(worker: Worker) -> None:
    grow(worker.journal, 5)
    worker.listener()
    worker.streams.close()
    for resume in (None, 5, EventId("another", 1)):
        client = worker.listener(resume=resume)
        until("its end", lambda client=client: client.end, SOON)
        assert (client.end, client.sequences) == ("properly", [])


@pytest.mark.parametrize("lost", ["events", "sweep"])
def test_a_worker_that_follows_the_core_no_more_ends(greenlets: None, lost: str) -> None:
    def fail() -> None:
        # No error that a sweep lives through.
        raise BaseException("a surprise")

    ends: list[Any] = []
    worker = Worker()
    worker.streams.on_failure = ends.append
    worker.times.sweep = 0.01
    worker.listener()
    if lost == "events":
        worker.core.surprise = RuntimeError("a surprise")
    else:
        worker.in_a_sweep = fail
    until("its end", lambda: ends)


def test_the_end_of_a_worker_is_logged_and_ends_its_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    codes: list[int] = []
    monkeypatch.setattr("gateway_api.events.os._exit", codes.append)
    Streams(Events(CoreClient(InProcessCore(None))), lambda _: []).on_failure(gevent.Greenlet())  # type: ignore[arg-type]
    assert codes == [1]
    assert "the events of this worker have stopped" in caplog.text


def test_a_span_holds_what_came_after_events_of_its_life_from_where_it_began() -> None:
    span = Span("life", 10, 1, held=3)
    assert [span.holds(EventId("life", number)) for number in (9, 10, 11)] == [False, True, False]
    for _ in range(4):
        span.ring.add(EncodedEvent("session_up", "pppoe", b""))
    assert [span.holds(EventId("life", number)) for number in (10, 11, 14, 15)] == [False, True, True, False]
    assert not span.holds(EventId("other", 12))


def test_a_span_tells_of_the_gap_before_it() -> None:
    assert Span("life", 10, 3).encode_gap() == encode_gap("life", 3, 10)


def test_a_worker_begins_with_the_last_10000_events_and_holds_as_many() -> None:
    assert (StreamTimes().past_events, MAX_HELD_EVENTS) == (10_000, 10_000)


def test_there_is_no_span_until_the_core_has_told_of_one() -> None:
    with pytest.raises(CoreUnavailable):
        _ = Broadcast(Events(CoreClient(InProcessCore(None))), StreamTimes(core_timeout=0.02)).span  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("id", "there"),
    [("life-7", True), ("life-10", True), ("life-11", False), ("other-7", False)],
)
def test_an_event_that_does_not_come_is_not_waited_for_for_ever(
    greenlets: None, id: str, there: bool
) -> None:
    journal = Journal("life")
    grow(journal, 10)
    times = StreamTimes()
    broadcast = Broadcast(Events(CoreClient(InProcessCore(journal))), times)  # type: ignore[arg-type]
    gevent.spawn(broadcast.run)
    span = broadcast.span
    times.core_timeout = 0.05
    assert broadcast.wait_for_span(parse_id(id)) == (span if there else None)


def test_an_event_on_its_way_is_waited_for(greenlets: None) -> None:
    journal = Journal("life")
    broadcast = Broadcast(Events(CoreClient(InProcessCore(journal))), StreamTimes())  # type: ignore[arg-type]
    gevent.spawn(broadcast.run)
    waits = gevent.spawn(broadcast.wait_for_span, EventId("life", 3))
    for _ in range(3):
        assert broadcast.span
        assert not waits.dead
        grow(journal, 1)
    assert waits.get(timeout=5) is broadcast.span


def test_each_event_of_the_core_has_a_name_and_bytes() -> None:
    journal = Journal("life")
    grow(journal, 1)
    journal.add_rate_change(session(1), 2.0, None, "admin")
    journal.add_session_down(session(1), "user_request", 3.0, Counters(0, 0, 0, 0))
    (reply,) = islice(journal.follow("life", 0), 1)
    held = msgspec.json.decode(msgspec.json.encode(reply), type=EventsReply)
    found = list(encode_events("life", held.events))
    assert [entry.name for entry in found] == ["session_up", "session_rate", "session_down"]
    assert all(b"event: %s\n" % entry.name.encode() in entry.block for entry in found)
