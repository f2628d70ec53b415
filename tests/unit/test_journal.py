"""Events on their way: ring, journal, the core's method, those who follow it, and the bytes of an event."""

import json
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from gateway_api.base.errors import CoreUnavailable
from gateway_api.base.ring import Ring
from gateway_api.core import journal as journals
from gateway_api.core.journal import HELD, Journal
from gateway_api.daemon.calls import INTERFACE
from gateway_api.daemon.events import Batch, Event, Events
from gateway_api.events import sse
from gateway_api.wire.core import EventsReply, SessionSummary, SubscribeEventsCall
from gateway_api.wire.varlink.client import Client
from gateway_api.wire.varlink.dispatcher import Dispatcher, Identity, Interface, Method
from gateway_api.wire.varlink.message import Call, ErrorReply, MessageBuffer, encode
from gateway_api.wire.varlink.server import Server
from tests.support.stack import running_core, wait_for

METHOD = f"{INTERFACE}.SubscribeEvents"


def session(id: int, **fields: Any) -> SessionSummary:
    return SessionSummary(
        **{
            "id": id,
            "type": "PPPoE",
            "username": f"user{id}",
            "ip_address": "100.64.0.7",
            "interface": "ppp6",
            "rate_down": 1000,
            "rate_up": 2000,
            "state": "active",
            "started_at": 3,
            "mac_address": "02:00:00:00:00:07",
            "access_interface": "trunk0.7",
            **fields,
        }
    )


def grow(journal: Journal, number: int) -> None:
    for id in range(number):
        journal.session_up(session(id + 1), 1.0)


def sequences(reply: EventsReply) -> list[int]:
    return [msgspec.json.decode(event)["sequence"] for event in reply.events]


# The ring


def test_an_empty_ring_gives_what_comes_after_nothing() -> None:
    ring: Ring[str] = Ring(3)
    assert (ring.oldest, ring.newest) == (1, 0)
    assert ring.after(0, 10) == []
    assert ring.after(1, 10) is None
    assert ring.after(-1, 10) is None


def test_a_ring_counts_on_from_where_it_is_told() -> None:
    ring: Ring[str] = Ring(3, newest=41)
    assert (ring.oldest, ring.newest) == (42, 41)
    ring.add("a")
    assert (ring.oldest, ring.newest) == (42, 42)
    assert ring.after(41, 10) == ["a"]
    assert ring.after(40, 10) is None


def test_a_full_ring_lets_the_oldest_go() -> None:
    ring: Ring[str] = Ring(3)
    for item in "abcd":
        ring.add(item)
    assert (ring.oldest, ring.newest) == (2, 4)
    assert ring.after(1, 10) == ["b", "c", "d"]
    assert ring.after(0, 10) is None


def test_a_ring_gives_at_most_so_many() -> None:
    ring: Ring[str] = Ring(3)
    for item in "abcd":
        ring.add(item)
    assert ring.after(1, 2) == ["b", "c"]
    assert ring.after(4, 2) == []
    assert ring.after(5, 2) is None
    assert ring.after(2, 0) == []


@given(
    held=some.integers(1, 7),
    newest=some.integers(0, 20),
    added=some.integers(0, 30),
    number=some.integers(-3, 60),
    most=some.integers(0, 9),
)
def test_a_ring_is_a_numbered_queue_of_limited_length(
    held: int, newest: int, added: int, number: int, most: int
) -> None:
    ring: Ring[int] = Ring(held, newest)
    model: deque[int] = deque(maxlen=held)
    for item in range(newest + 1, newest + added + 1):
        ring.add(item)
        model.append(item)
    oldest = model[0] if model else newest + 1
    assert (ring.oldest, ring.newest) == (oldest, newest + added)
    if oldest - 1 <= number <= newest + added:
        assert ring.after(number, most) == [item for item in model if item > number][:most]
    else:
        assert ring.after(number, most) is None


# The journal


def test_a_journal_holds_as_many_events_as_the_interface_promises() -> None:
    assert HELD >= 65_536


def test_an_event_has_all_that_its_readers_need() -> None:
    journal = Journal("life")
    journal.session_up(session(7), 12.9)
    journal.session_down(session(7), "user_request", 13.1, bytes_in=1200, bytes_out=34000)
    (reply,) = islice(journal.follow("life", 0), 1)
    common = {
        "id": 7,
        "type": "PPPoE",
        "username": "user7",
        "ip_address": "100.64.0.7",
        "interface": "ppp6",
        "mac_address": "02:00:00:00:00:07",
        "access_interface": "trunk0.7",
    }
    nothing = {"bytes_in": None, "bytes_out": None, "duration_seconds": None}
    ended = {"bytes_in": 1200, "bytes_out": 34000, "duration_seconds": 10}
    assert [msgspec.json.decode(event) for event in reply.events] == [
        {"sequence": 1, "event": "session.up", "at": 12, **common, "reason": None, **nothing},
        {"sequence": 2, "event": "session.down", "at": 13, **common, "reason": "user_request", **ended},
    ]


def test_no_session_lasted_less_than_no_time_where_the_clock_went_back() -> None:
    journal = Journal("life")
    journal.session_down(session(7, started_at=20), "user_request", 13.1, bytes_in=0, bytes_out=0)
    (reply,) = islice(journal.follow("life", 0), 1)
    assert msgspec.json.decode(reply.events[0])["duration_seconds"] == 0


def test_who_follows_from_now_on_first_hears_where_that_is() -> None:
    journal = Journal("life")
    grow(journal, 3)
    with closing(journal.follow(None, None)) as replies:
        first = next(replies)
        assert (first.boot_id, first.oldest, first.newest, first.gap, first.events) == (
            "life",
            1,
            3,
            False,
            [],
        )
        grow(journal, 2)
        assert sequences(next(replies)) == [4, 5]


@pytest.mark.parametrize(
    ("boot_id", "after", "expected"),
    [("life", 0, [1, 2, 3]), ("life", 2, [3]), ("life", 3, []), (None, 1, [2, 3]), ("life", None, [1, 2, 3])],
)
def test_who_comes_back_gets_what_came_after(
    boot_id: str | None, after: int | None, expected: list[int]
) -> None:
    journal = Journal("life")
    grow(journal, 3)
    reply = next(journal.follow(boot_id, after))
    assert (reply.gap, sequences(reply)) == (False, expected)


@pytest.mark.parametrize(
    ("boot_id", "after"),
    [("other", 2), ("other", None), ("other", 0), ("life", 4), ("life", 1 << 62), (None, 9)],
)
def test_what_was_never_there_is_a_gap_and_then_it_goes_on(boot_id: str | None, after: int | None) -> None:
    journal = Journal("life")
    grow(journal, 3)
    replies = journal.follow(boot_id, after)
    gap = next(replies)
    assert (gap.boot_id, gap.oldest, gap.newest, gap.gap, gap.events) == ("life", 1, 3, True, [])
    grow(journal, 2)
    following = next(replies)
    assert (following.gap, sequences(following)) == (False, [4, 5])


def test_what_is_held_no_more_is_a_gap() -> None:
    journal = Journal("life", held=4)
    grow(journal, 10)
    gap = next(journal.follow("life", 5))
    assert (gap.oldest, gap.newest, gap.gap, gap.events) == (7, 10, True, [])
    assert sequences(next(journal.follow("life", 6))) == [7, 8, 9, 10]


def test_a_follower_that_falls_behind_what_is_held_hears_of_it() -> None:
    journal = Journal("life", held=4)
    replies = journal.follow(None, None)
    next(replies)
    grow(journal, 10)
    gap = next(replies)
    assert (gap.newest, gap.gap, gap.events) == (10, True, [])
    grow(journal, 1)
    assert sequences(next(replies)) == [11]


def test_many_events_come_in_several_replies() -> None:
    journal = Journal("life")
    grow(journal, 2500)
    replies = list(islice(journal.follow("life", 0), 3))
    assert [len(reply.events) for reply in replies] == [1000, 1000, 500]
    assert [number for reply in replies for number in sequences(reply)] == list(range(1, 2501))
    assert {reply.newest for reply in replies} == {2500}


def test_a_follower_hears_of_silence_after_15_looks_at_whether_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journals, "_LOOK", 0.001)
    journal = Journal("life")
    grow(journal, 2)
    found = list(islice(journal.follow(None, None), 33))
    assert [reply is None for reply in found] == ([False] + [True] * 15) * 2 + [False]
    for reply in found:
        assert reply is None or (reply.newest, reply.gap, reply.events) == (2, False, [])


def test_every_follower_gets_every_event_of_several_writers() -> None:
    journal, writers, each = Journal("life"), 4, 500
    found: list[list[int]] = []

    def read() -> None:
        seen: list[int] = []
        for reply in journal.follow("life", 0):
            seen += sequences(reply)
            if len(seen) >= writers * each:
                break
        found.append(seen)

    threads = [threading.Thread(target=read) for _ in range(4)]
    threads += [threading.Thread(target=grow, args=(journal, each)) for _ in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == [list(range(1, writers * each + 1))] * 4


# The bytes of an event


def event(**fields: Any) -> Event:
    return Event(
        **{
            "sequence": 57,
            "event": "session.up",
            "at": 1_772_366_400,
            "id": 217,
            "type": "PPPoE",
            "username": "alice",
            "ip_address": "100.64.0.60",
            "interface": "ppp216",
            "mac_address": "02:00:00:00:00:d8",
            "access_interface": "trunk0.1003",
            **fields,
        }
    )


def test_a_session_that_comes_is_written_to_the_letter() -> None:
    assert sse.block("84a7e8343baf37f9", event()) == (
        b"id: 84a7e8343baf37f9-57\nevent: session_up\n"
        b'data: {"id":217,"type":"PPPoE","username":"alice","ip_address":"100.64.0.60","at":1772366400,'
        b'"mac_address":"02:00:00:00:00:d8","access_interface":"trunk0.1003"}\n\n'
    )


def test_a_session_that_goes_is_written_to_the_letter() -> None:
    ended = {"bytes_in": 1200, "bytes_out": 34000, "duration_seconds": 61}
    gone = event(event="session.down", sequence=58, reason="user_request", **ended)
    assert sse.block("84a7e8343baf37f9", gone) == (
        b"id: 84a7e8343baf37f9-58\nevent: session_down\n"
        b'data: {"id":217,"username":"alice","reason":"user_request","at":1772366400,'
        b'"mac_address":"02:00:00:00:00:d8","access_interface":"trunk0.1003",'
        b'"bytes_in":1200,"bytes_out":34000,"duration_seconds":61}\n\n'
    )


def test_a_gap_is_written_to_the_letter() -> None:
    assert sse.gap("life", 3, 9) == (
        b'id: life-9\nevent: gap\ndata: {"oldest":"life-3","newest":"life-9"}\n\n'
    )


def test_a_heartbeat_is_a_comment_without_a_blank_line() -> None:
    assert sse.HEARTBEAT == b":\n"


@pytest.mark.parametrize(
    "username", ["a\nb", "a\r\n\r\nevent: x", "\x00", "\u2028\u2029\x85", "\ufeffa", '"\\']
)
def test_no_username_breaks_out_of_its_line(username: str) -> None:
    block = sse.block("life", event(username=username))
    _, _, data, *rest = block.split(b"\n")
    assert rest == [b"", b""]
    assert b"\r" not in block and b"\x00" not in block
    assert json.loads(data.removeprefix(b"data: "))["username"] == username


@pytest.mark.parametrize("text", ["84a7e8343baf37f9-57", "a-0", "0-1", f"{'f' * 64}-{'9' * 18}"])
def test_an_id_is_read_as_it_was_written(text: str) -> None:
    assert str(sse.parse_id(text)) == text


def test_what_is_no_id_is_refused() -> None:
    for text in (
        *("", "-", "a-", "-1", "a-01", "a--1", "a-+1", "a-1 ", " a-1", "a-1\n", "A-1", "a-1-2", "a-1.0"),
        *("a-\u0661", "\u00e9-1", f"{'f' * 65}-1", f"a-{'9' * 19}", "a_1", "a-1\x00"),
    ):
        with pytest.raises(ValueError, match="id of an event"):
            sse.parse_id(text)


# The side of the API, before a core that can be taken away


class Core:
    """The journal of a life behind a real socket; remembers where followers wanted to begin."""

    def __init__(self, path: Path, journal: Journal) -> None:
        self.asked: list[tuple[str | None, int | None]] = []
        self._journal = journal
        interface = Interface(
            f"interface {INTERFACE}\n",
            {"SubscribeEvents": Method(SubscribeEventsCall, self._follow, streams=True)},
        )
        self.server = Server(path, Dispatcher(Identity("v", "p", "1", "urn:example"), [interface]))

    def _follow(self, call: SubscribeEventsCall) -> Iterator[EventsReply]:
        self.asked.append((call.boot_id, call.after_sequence))
        return self._journal.follow(call.boot_id, call.after_sequence)


@contextmanager
def serving(path: Path, journal: Journal) -> Iterator[Core]:
    core = Core(path, journal)
    thread = threading.Thread(target=core.server.serve_forever)
    thread.start()
    try:
        yield core
    finally:
        core.server.close()
        thread.join(10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "core.sock"


@pytest.fixture
def events(path: Path) -> Iterator[Events]:
    client = Client(path, timeout=5)
    yield Events(client)
    client.close()


def numbers(batches: list[Batch]) -> list[int]:
    return [event.sequence for batch in batches for event in batch.events]


def no_pause(_: float) -> None:
    """A follower's pause between a break and the next try."""


def test_events_after_an_event_come_as_they_happened(path: Path, events: Events) -> None:
    journal = Journal("life")
    with serving(path, journal):
        journal.session_up(session(7), 12.0)
        journal.session_down(session(7, type="DHCP"), "lost_carrier", 13.0, bytes_in=1, bytes_out=2)
        with closing(events.after("life", 0)) as batches:
            batch = next(batches)
    common = {"id": 7, "username": "user7", "ip_address": "100.64.0.7", "interface": "ppp6"}
    common |= {"mac_address": "02:00:00:00:00:07", "access_interface": "trunk0.7"}
    ended = {"bytes_in": 1, "bytes_out": 2, "duration_seconds": 10}
    assert batch.events == [
        Event(sequence=1, event="session.up", at=12, type="PPPoE", **common),
        Event(sequence=2, event="session.down", at=13, type="DHCP", reason="lost_carrier", **common, **ended),
    ]
    assert (batch.boot_id, batch.oldest, batch.newest, batch.gap) == ("life", 1, 2, False)


def test_without_a_core_there_are_no_events(events: Events) -> None:
    with pytest.raises(CoreUnavailable):
        next(events.after("life", 0))


def test_a_core_that_ends_ends_the_events(path: Path, events: Events) -> None:
    with closing(events.after("life", 0)) as batches:
        with serving(path, Journal("life")):
            next(batches)
        with pytest.raises(CoreUnavailable):
            next(batches)


def test_who_follows_for_ever_goes_on_behind_the_last_event_after_a_break(path: Path, events: Events) -> None:
    journal = Journal("life")
    with closing(events.for_ever(no_pause)) as batches:
        with serving(path, journal):
            next(batches)
            grow(journal, 3)
            found = [next(batches)]
        # Nobody is there when these happen.
        grow(journal, 4)
        with serving(path, journal) as core:
            found += islice(batches, 1)
            grow(journal, 1)
            found += islice(batches, 1)
    assert core.asked == [("life", 3)]
    assert numbers(found) == list(range(1, 9))
    assert not any(batch.gap for batch in found)


def test_who_follows_for_ever_goes_on_where_it_began_when_nothing_had_happened(
    path: Path, events: Events
) -> None:
    journal = Journal("life")
    grow(journal, 5)
    with closing(events.for_ever(no_pause)) as batches:
        with serving(path, journal):
            next(batches)
        grow(journal, 2)
        with serving(path, journal) as core:
            found = [next(batches)]
    assert core.asked == [("life", 5)]
    assert numbers(found) == [6, 7]


def test_who_follows_for_ever_is_told_of_another_life_once(path: Path, events: Events) -> None:
    with closing(events.for_ever(no_pause)) as batches:
        first, second = Journal("first"), Journal("second")
        with serving(path, first):
            next(batches)
            grow(first, 9)
            assert numbers([next(batches)]) == list(range(1, 10))
        grow(second, 2)
        with serving(path, second):
            gap = next(batches)
            assert (gap.boot_id, gap.newest, gap.gap, gap.events) == ("second", 2, True, [])
            grow(second, 1)
            following = next(batches)
            assert (following.gap, numbers([following])) == (False, [3])
        with serving(path, second) as core:
            grow(second, 1)
            found = next(batches)
            assert not found.gap
    assert core.asked == [("second", 3)]


def test_who_follows_for_ever_pauses_before_each_try(path: Path, events: Events) -> None:
    class Enough(Exception):
        """Ends the follower."""

    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise Enough

    with pytest.raises(Enough):
        next(events.for_ever(pause))
    assert all(0 < seconds <= 1 for seconds in pauses)


# The core as a process


@contextmanager
def core(tmp_path: Path, document: dict[str, Any], *arguments: str) -> Iterator[Path]:
    (tmp_path / "factory.json").write_text(json.dumps(document))
    socket_path = tmp_path / "core.sock"
    with running_core(socket_path, tmp_path / "factory.json", *arguments):
        yield socket_path


@contextmanager
def followed(path: Path, boot_id: str | None, after: int | None) -> Iterator[Iterator[dict[str, Any]]]:
    client = Client(path, timeout=5)
    wanted = {"boot_id": boot_id, "after_sequence": after}
    with closing(client.stream(METHOD, wanted, silence=20)) as replies:
        yield (msgspec.json.decode(reply) for reply in replies)


def collected(replies: Iterator[dict[str, Any]], number: int) -> list[int]:
    """Sequences of at least so many events; none of the replies may tell of a gap."""
    found: list[int] = []
    while len(found) < number:
        reply = next(replies)
        assert not reply["gap"]
        found += (event["sequence"] for event in reply["events"])
    return found


def test_a_core_s_events_can_be_resumed_exactly(tmp_path: Path, document: dict[str, Any]) -> None:
    with core(tmp_path, document, "--arrivals", "300") as path:
        with followed(path, None, None) as replies:
            boot_id = next(replies)["boot_id"]
            found = collected(replies, 200)
        with followed(path, boot_id, found[-1]) as replies:
            found += collected(replies, 200)
        with followed(path, boot_id, 0) as replies:
            everything = collected(replies, found[-1])
    assert found == list(range(found[0], found[0] + len(found)))
    assert everything == list(range(1, len(everything) + 1))


@pytest.mark.parametrize("after", [3, 0, None])
def test_a_core_says_that_it_had_no_such_life(
    tmp_path: Path, document: dict[str, Any], after: int | None
) -> None:
    with (
        core(tmp_path, document, "--arrivals", "300") as path,
        followed(path, "another", after) as replies,
    ):
        gap = next(replies)
        assert (gap["gap"], gap["events"]) == (True, [])
        assert collected(replies, 20)[0] == gap["newest"] + 1


def test_every_life_of_a_core_has_another_name(tmp_path: Path, document: dict[str, Any]) -> None:
    names = set()
    for _ in range(2):
        with core(tmp_path, document) as path, followed(path, None, None) as replies:
            names.add(next(replies)["boot_id"])
    assert len(names) == 2


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"after_sequence": -1}, "after_sequence"),
        ({"after_sequence": "1"}, "after_sequence"),
        ({"boot_id": 1}, "boot_id"),
        ({"since": 1}, "since"),
    ],
)
def test_a_place_that_cannot_be_is_refused_and_named(
    tmp_path: Path, document: dict[str, Any], parameters: dict[str, Any], named: str
) -> None:
    with core(tmp_path, document) as path, pytest.raises(ErrorReply) as refusal:
        next(Client(path, timeout=5).stream(METHOD, parameters, silence=5))
    assert refusal.value.name == "org.varlink.service.InvalidParameter"
    assert msgspec.json.decode(refusal.value.parameters) == {"parameter": named}


def test_who_does_not_ask_for_more_is_refused(tmp_path: Path, document: dict[str, Any]) -> None:
    with (
        core(tmp_path, document) as path,
        closing(Client(path, timeout=5)) as client,
        pytest.raises(ErrorReply) as refusal,
    ):
        client.call(METHOD, {})
    assert refusal.value.name == "org.varlink.service.ExpectedMore"


def test_the_core_lets_followers_who_have_left_go_though_nothing_happens(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    path, factory = tmp_path / "core.sock", tmp_path / "factory.json"
    factory.write_text(json.dumps(document))
    with running_core(path, factory, "--sessions", "5", "--arrivals", "0") as process:
        threads = Path(f"/proc/{process.pid}/task")
        before = len(list(threads.iterdir()))
        with ExitStack() as stack:
            for _ in range(20):
                next(stack.enter_context(followed(path, None, None)))
            assert len(list(threads.iterdir())) == before + 20
        wait_for("their threads to end", lambda: len(list(threads.iterdir())) == before, 3)


def test_who_does_not_read_is_cut_off_and_delays_nobody(tmp_path: Path, document: dict[str, Any]) -> None:
    # It takes up to 25 s until who doesn't read is cut off. At 1,000 a second, what happens by then
    # fits into the ring: it can still ask for the rest.
    with (
        core(tmp_path, document, "--sessions", "500", "--arrivals", "1000") as path,
        followed(path, None, None) as replies,
        socket.socket(socket.AF_UNIX) as idle,
    ):
        idle.connect(str(path))
        idle.sendall(encode(Call(method=METHOD, parameters=msgspec.Raw(b"{}"), more=True)))
        end = select.poll()
        end.register(idle, select.POLLHUP)
        next(replies)
        found: list[int] = []
        slowest, began = 0.0, time.monotonic()
        while not end.poll(0):
            asked = time.monotonic()
            assert asked - began < 100
            found += collected(replies, 100)
            slowest = max(slowest, time.monotonic() - asked)
        # Less than who never reads is waited for.
        assert slowest < 5
        assert found == list(range(found[0], found[0] + len(found)))
        # What reached it is whole up to where it was cut, and the rest comes when it asks.
        buffer, seen = MessageBuffer(64 << 20), []
        idle.settimeout(60)
        while data := idle.recv(1 << 16):
            buffer.feed(data)
            while (message := buffer.next_message()) is not None:
                reply = json.loads(message)["parameters"]
                seen += [event["sequence"] for event in reply["events"]]
        assert seen == list(range(seen[0], seen[0] + len(seen)))
        with followed(path, reply["boot_id"], seen[-1]) as again:
            assert collected(again, 100)[0] == seen[-1] + 1
