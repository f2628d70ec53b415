"""The varlink client and its batches: with good peers, and with ones that hang, cut, or reply nonsense."""

import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway_contract.base.errors import CoreUnavailable
from gateway_contract.contract import Page
from gateway_contract.core_client import CoreClient
from gateway_contract.varlink import batches
from gateway_contract.varlink import client as varlink_client
from gateway_contract.varlink.batches import MAX_BYTES, MAX_READS, MAX_WAIT_SECONDS
from gateway_contract.varlink.client import Client, NoSocket, NotSent, TooLarge, Unreachable
from gateway_contract.varlink.protocol import MAX_CALL_BYTES, CallMessage, ErrorReply, encode
from tests.support.stack import PATIENCE, wait_for

METHOD = "org.example.Echo"
#: Seconds that are enough for any call with a deadline of its own, and far less than the client's own.
MARGIN = 60.0

FAULTS = ("refuse", "cut", "hang", "half", "garbage", "twice", "endless", "trickle", "full")


@contextmanager
def peer(
    path: Path, mode: str, count: Path | None = None, *options: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """A peer in a process of its own, until the end of the block."""
    path.unlink(missing_ok=True)
    script = str(Path(__file__).parents[2] / "support" / "faulty_peer.py")
    counting = ["--count", str(count)] if count else []
    process = subprocess.Popen([sys.executable, script, str(path), "--mode", mode, *counting, *options])

    def ready() -> bool:
        assert process.poll() is None
        return path.exists()

    try:
        wait_for("the peer's socket", ready)
        yield process
    finally:
        process.kill()
        process.wait(10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "peer.sock"


@pytest.fixture
def client(path: Path) -> Iterator[Client]:
    made = Client(path, timeout=PATIENCE)
    yield made
    made.close()


def answer(client: Client, **parameters: Any) -> Any:
    return msgspec.json.decode(client.call(METHOD, parameters))


@contextmanager
def _listener(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(10)
        listener.bind(str(path))
        listener.listen()
        yield listener


def _read_call(connection: socket.socket) -> None:
    connection.settimeout(10)
    while not connection.recv(1 << 16).endswith(b"\0"):
        pass


@pytest.mark.parametrize("mode", FAULTS)
def test_a_call_to_a_faulty_peer_ends_by_its_deadline_and_the_next_one_is_answered(
    path: Path, client: Client, mode: str
) -> None:
    # More than a socket holds, so that a peer can hang up while it is being sent.
    parameters = {"text": "x" * 900_000}
    began = time.monotonic()
    with peer(path, mode), pytest.raises(Unreachable):
        client.call(METHOD, parameters, timeout=0.5)
    assert time.monotonic() - began < MARGIN
    with peer(path, "echo"):
        assert answer(client, id=7) == {"id": 7}
        assert bytes(client.call(METHOD)) == b"{}"


def test_after_a_hung_call_the_same_peer_gets_a_fresh_connection(path: Path) -> None:
    client = Client(path, timeout=0.2)
    with _listener(path) as listener:
        for _ in range(2):
            with pytest.raises(Unreachable):
                client.call(METHOD)
            listener.accept()[0].close()


def test_a_call_to_a_path_where_nobody_listens_is_not_sent(path: Path, client: Client) -> None:
    with pytest.raises(NoSocket):
        client.call(METHOD)
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    with pytest.raises(NotSent) as refused:
        client.call(METHOD)
    assert not isinstance(refused.value, NoSocket)
    with pytest.raises(Unreachable):
        Client(path / ("x" * 200), timeout=PATIENCE).call(METHOD)


def test_more_threads_than_connections_get_their_own_answers_and_stale_ones_fail_no_call(path: Path) -> None:
    client = Client(path, timeout=PATIENCE, connections=3)
    with peer(path, "echo"), ThreadPoolExecutor(20) as pool:
        assert list(pool.map(lambda number: answer(client, id=number)["id"], range(200))) == [*range(200)]
    with peer(path, "echo"):
        assert answer(client, id=2) == {"id": 2}
    client.close()


@pytest.mark.parametrize(("mode", "served"), [("hangup", 0), ("once", 1)])
def test_a_call_that_was_read_and_not_answered_is_not_sent_again(
    path: Path, client: Client, tmp_path: Path, mode: str, served: int
) -> None:
    # On a fresh connection, and on a pooled one.
    count = tmp_path / "count"
    with peer(path, mode, count):
        for _ in range(served):
            client.call(METHOD)
        with pytest.raises(Unreachable):
            client.call(METHOD)
        assert count.read_bytes().count(b"\n") == served + 1


def test_calls_one_after_another_share_a_connection(path: Path, client: Client) -> None:
    with _listener(path) as listener, ThreadPoolExecutor(1) as pool:
        accepted = []
        for number in range(3):
            under_way = pool.submit(answer, client, id=number)
            if not accepted:
                accepted.append(listener.accept()[0])
            _read_call(accepted[0])
            accepted[0].sendall(b"{}\0")
            assert under_way.result(5) == {}
        accepted[0].close()


def test_two_calls_in_one_exchange_get_their_own_replies(path: Path, client: Client) -> None:
    with _listener(path) as listener, ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(client.exchange, (METHOD, {"id": 1}), (METHOD, {"id": 2}))
        connection = listener.accept()[0]
        # Both are sent before the first reply.
        both = b"".join(encode(CallMessage(METHOD, msgspec.Raw(b'{"id":%d}' % id))) for id in (1, 2))
        assert connection.recv(len(both), socket.MSG_WAITALL) == both
        connection.sendall(b'{"error":"org.example.No","parameters":{"id":7}}\0')
        connection.sendall(b'{"parameters":{"id":2}}\0')
        first, second = under_way.result(5)
        with pytest.raises(ErrorReply) as error:
            first.result()
        assert (error.value.name, bytes(error.value.parameters)) == ("org.example.No", b'{"id":7}')
        assert bytes(second.result()) == b'{"id":2}'
        connection.close()


def test_a_call_waits_for_a_free_connection_until_its_deadline(path: Path) -> None:
    client = Client(path, timeout=PATIENCE, connections=1)
    with peer(path, "hang") as process, ThreadPoolExecutor(1) as pool:
        hung = pool.submit(client.call, METHOD)
        wait_for("the first call", lambda: client._free._value == 0)
        with pytest.raises(Unreachable, match="no connection came free in time"):
            client.call(METHOD, timeout=0.2)
        process.kill()
        assert isinstance(hung.exception(10), Unreachable)
    # A failed call has given its connection back.
    with peer(path, "echo"):
        assert answer(client, id=7) == {"id": 7}
    client.close()


def test_a_request_over_the_cap_is_refused_and_not_sent(path: Path, client: Client, tmp_path: Path) -> None:
    count = tmp_path / "count"
    longest = "x" * (MAX_CALL_BYTES - len(encode(CallMessage(METHOD, msgspec.Raw(b'{"text":""}')))))
    with peer(path, "echo", count):
        with pytest.raises(TooLarge):
            client.call(METHOD, {"text": longest + "x"})
        assert answer(client, text=longest) == {"text": longest}
        assert count.read_bytes().count(b"\n") == 1


def _replying(
    path: Path,
    reply: bytes,
    ask: Callable[[Client], Any] = lambda client: client.call(METHOD),
    timeout: float = PATIENCE,
) -> Any:
    """What a client makes of this reply: its parameters, or the exception."""
    client = Client(path, timeout=timeout)
    with _listener(path) as listener, ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(ask, client)
        connection, _ = listener.accept()
        with connection:
            _read_call(connection)
            connection.sendall(reply)
            error = under_way.exception(10)
    client.close()
    return error or under_way.result()


def ask_for_more(client: Client) -> list[bytes]:
    replies = client.exchange((METHOD, None), (METHOD, None), more=True)
    return [bytes(reply.result()) for reply in replies]


def test_a_call_for_more_alone_gets_several_replies(path: Path) -> None:
    assert isinstance(_replying(path, b'{"continues":true,"parameters":{}}\0'), Unreachable)
    path.unlink()
    replies = b'{"parameters":{"id":%d}}\0{"parameters":{"id":2},"continues":true}\0{"parameters":{"id":3}}\0'
    assert _replying(path, replies % 1, ask_for_more) == [b'{"id":1}', b'{"id":2}', b'{"id":3}']


@pytest.mark.parametrize(("until_next", "until_last", "expected"), [(100, 1000, 100), (1000, 100, 130)])
def test_each_of_several_replies_has_a_limit_of_its_own_and_all_have_one(
    path: Path, monkeypatch: pytest.MonkeyPatch, until_next: float, until_last: float, expected: float
) -> None:
    def receive(connection: Any, deadline: float) -> Any:
        limits.append(deadline - began)
        return receive_in_time(connection, deadline)

    limits: list[float] = []
    receive_in_time = varlink_client._Connection.receive
    monkeypatch.setattr(varlink_client._Connection, "receive", receive)
    monkeypatch.setattr(varlink_client, "_NEXT_REPLY_SECONDS", until_next)
    monkeypatch.setattr(varlink_client, "_ALL_REPLIES_SECONDS", until_last)
    replies = b'{"parameters":{}}\0{"parameters":{},"continues":true}\0{"parameters":{}}\0'
    began = time.monotonic()
    assert len(_replying(path, replies, ask_for_more, 30)) == 3
    assert all(30 <= limit < 50 for limit in limits[:2])
    assert expected <= limits[2] < expected + 20


@pytest.mark.parametrize(
    "replies",
    [
        # Only the last call of an exchange is for more.
        b'{"parameters":{},"continues":true}\0' * 2 + b'{"parameters":{}}\0',
        b'{"parameters":{}}\0{"parameters":{},"continues":true}\0',
        b'{"parameters":{}}\0{"parameters":{},"continues":true}\0{"parameters":{"id',
    ],
)
def test_replies_that_break_off_or_are_too_many_end_as_unreachable(
    path: Path, monkeypatch: pytest.MonkeyPatch, replies: bytes
) -> None:
    monkeypatch.setattr(varlink_client, "_NEXT_REPLY_SECONDS", 0.2)
    assert isinstance(_replying(path, replies, ask_for_more, 0.2), Unreachable)


def test_replies_over_the_cap_end_as_unreachable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # All of them, and none alone.
    monkeypatch.setattr(varlink_client, "_MAX_REPLIES_BYTES", 1000)
    replies = b'{"parameters":{}}\0' + b'{"parameters":{"a":"%s"},"continues":true}\0' % (b"x" * 30) * 4
    error = _replying(path, replies, ask_for_more)
    assert isinstance(error, Unreachable) and "over 1000 bytes" in str(error)


def test_a_second_reply_that_comes_late_is_no_answer_to_the_next_call(path: Path, client: Client) -> None:
    with peer(path, "late"):
        answer(client, id=1)
        wait_for("the late reply", lambda: not client._idle[0].is_quiet())
        assert answer(client, id=2) == {"id": 2}


# Reads in batches.


EIGHT = range(8)


class Reads:
    """Reads of threads by one client, which begin one after another. The first of a batch gives way until
    as many as `expected` are in it, or it is full."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(batches, "give_way", self._give_way)
        self.client = Client(path, timeout=PATIENCE, batches=True)
        assert self.client._batches is not None
        self._batches = self.client._batches
        self.expected = 1
        self._pool = ThreadPoolExecutor(40)

    def _give_way(self) -> None:
        # None once another batch was opened and sent meanwhile.
        batch = self._batches._open
        while batch is not None and batch is self._batches._open and batch.reads < self.expected:
            time.sleep(0.001)

    def start(self, ask: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        """Starts a read. If its batch waits for more, the read is in the batch when this returns."""
        before = self._reads()
        read = self._pool.submit(ask, *arguments)
        if before + 1 < self.expected:
            wait_for("the read to be in a batch", lambda: self._reads() != before)
        return read

    def _reads(self) -> int:
        """The reads of the batch that waits for more."""
        batch = self._batches._open
        return 0 if batch is None else batch.reads

    def together(self, ids: Iterable[int], timeout: float | None = None) -> "list[Future[Any]]":
        """Reads in one batch, if it has room."""
        ids = list(ids)
        self.expected = len(ids)
        return [self.start(self.read, id, timeout) for id in ids]

    def read(self, id: Any, timeout: float | None = None) -> Any:
        (reply,) = self.client.exchange((METHOD, {"id": id}), at_once=True, timeout=timeout)
        return msgspec.json.decode(reply.result())["id"]

    def close(self) -> None:
        self._pool.shutdown()
        self.client.close()


@pytest.fixture
def reads(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reads]:
    with closing(Reads(path, monkeypatch)) as made:
        yield made


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine under load, reads take long to start: none of them goes out alone meanwhile."""
    monkeypatch.setattr(batches, "MAX_WAIT_SECONDS", PATIENCE)


def accepted(listener: socket.socket) -> socket.socket:
    connection = listener.accept()[0]
    connection.settimeout(PATIENCE)
    return connection


@pytest.fixture
def listener(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as made:
        made.settimeout(PATIENCE)
        made.bind(str(path))
        made.listen()
        yield made


def calls_in(connection: socket.socket) -> list[bytes]:
    """The calls of one exchange."""
    data = b""
    while not data.endswith(b"\0"):
        data += connection.recv(1 << 16)
    return data.split(b"\0")[:-1]


def echo(connection: socket.socket, calls: list[bytes]) -> None:
    for call in calls:
        parameters = msgspec.json.encode(msgspec.json.decode(call)["parameters"])
        connection.sendall(b'{"parameters":%s}\0' % parameters)


def ids_of(calls: list[bytes]) -> list[int]:
    return [msgspec.json.decode(call)["parameters"]["id"] for call in calls]


@pytest.mark.parametrize(("ids", "most"), [(range(20), MAX_READS), (range(10**500, 10**500 + 8), 3)])
@pytest.mark.usefixtures("patient")
def test_reads_that_begin_while_the_first_gives_way_go_out_together_as_many_as_a_batch_may_have(
    listener: socket.socket, reads: Reads, ids: range, most: int
) -> None:
    under_way = reads.together(ids[:most])
    with accepted(listener) as connection:
        shared = calls_in(connection)
        assert sum(len(call) + 1 for call in shared) <= MAX_BYTES
        assert ids_of(shared) == list(ids[:most])
        # They do not wait for the batch that is under way.
        under_way += reads.together(ids[most : most + 1])
        with accepted(listener) as another:
            echo(another, calls_in(another))
            assert under_way[-1].result() == ids[most]
        echo(connection, shared)
        assert [read.result() for read in under_way] == list(ids[: most + 1])


@pytest.mark.usefixtures("patient")
def test_a_batch_gives_way_while_that_brings_reads(
    listener: socket.socket, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    later, reads.expected = iter([1, 2]), 99
    monkeypatch.setattr(batches, "give_way", lambda: [reads.start(reads.read, id) for id in islice(later, 1)])
    first = reads.start(reads.read, 0)
    with accepted(listener) as connection:
        shared = calls_in(connection)
        echo(connection, shared)
        assert (ids_of(shared), first.result()) == ([0, 1, 2], 0)


@pytest.mark.usefixtures("patient")
def test_a_read_that_a_batch_has_no_room_for_begins_another(listener: socket.socket, reads: Reads) -> None:
    reads.expected = 99
    under_way = [reads.start(reads.read, id) for id in range(MAX_READS + 1)]
    reads.expected = 1
    with accepted(listener) as one, accepted(listener) as another:
        shared = {connection: calls_in(connection) for connection in (one, another)}
        for connection, calls in shared.items():
            echo(connection, calls)
        assert sorted(map(len, shared.values())) == [1, MAX_READS]
        assert [read.result() for read in under_way] == list(range(MAX_READS + 1))


HALF = (METHOD, {"id": "x" * (MAX_BYTES // 2)})


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.exchange(HALF, HALF, at_once=True),
        # It is not answered at once.
        lambda client: client.call(METHOD, {"id": 2}),
    ],
    ids=["more bytes than a batch may have", "a plain call"],
)
def test_a_call_that_is_for_no_batch_gives_way_to_nobody(
    listener: socket.socket, reads: Reads, ask: Callable[[Client], object]
) -> None:
    reads.expected = 99
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(ask, reads.client)
        with accepted(listener) as connection:
            echo(connection, calls_in(connection))
            assert under_way.result()


@pytest.mark.parametrize("fault", ["refuse", "garbage", "hang", "last_late"])
def test_when_a_batch_fails_each_read_is_sent_once_more_alone(
    path: Path, reads: Reads, tmp_path: Path, fault: str
) -> None:
    count = tmp_path / "count"
    with peer(path, fault, count, "--alone"):
        assert [read.result() for read in reads.together(EIGHT)] == list(EIGHT)
        sent = Counter(re.findall(rb'"id":(\d+)', count.read_bytes()))
        assert max(sent.values()) <= 2


@pytest.mark.parametrize("fault", ["hang", "full"])
def test_each_of_eight_reads_to_a_faulty_peer_ends_by_its_deadline_with_its_own_error(
    path: Path, reads: Reads, fault: str
) -> None:
    began = time.monotonic()
    with peer(path, fault):
        errors = [read.exception() for read in reads.together(EIGHT, 2 * MAX_WAIT_SECONDS)]
    assert time.monotonic() - began < MARGIN
    assert all(isinstance(error, Unreachable) for error in errors)
    assert len(set(map(id, errors))) == 8


def test_a_read_alone_is_sent_once(path: Path, reads: Reads, tmp_path: Path) -> None:
    with peer(path, "hangup", count := tmp_path / "count"):
        assert isinstance(reads.start(reads.read, 1).exception(), Unreachable)
        assert count.read_bytes().count(b"\n") == 1


@pytest.mark.usefixtures("patient")
def test_an_error_reply_is_that_of_its_own_call(listener: socket.socket, reads: Reads) -> None:
    # The same call of several reads goes out once, and its error is one of each.
    under_way = reads.together((*EIGHT, 3))
    with accepted(listener) as connection:
        for id in ids_of(calls_in(connection)):
            reply = b'{"error":"org.example.No"}\0' if id == 3 else b'{"parameters":{"id":%d}}\0' % id
            connection.sendall(reply)
        errors = [under_way.pop(id).exception() for id in (8, 3)]
    assert all(isinstance(error, ErrorReply) for error in errors)
    assert errors[0] is not errors[1]
    assert [read.result() for read in under_way] == [id for id in EIGHT if id != 3]


@pytest.mark.usefixtures("patient")
def test_reads_of_two_calls_each_may_have_one_in_common(listener: socket.socket, reads: Reads) -> None:
    def read(id: int) -> list[int]:
        replies = reads.client.exchange((METHOD, {"id": 100}), (METHOD, {"id": id}), at_once=True)
        return [msgspec.json.decode(reply.result())["id"] for reply in replies]

    reads.expected = 8
    under_way = [reads.start(read, id) for id in EIGHT]
    with accepted(listener) as connection:
        shared = calls_in(connection)
        assert ids_of(shared) == [100, *EIGHT]
        echo(connection, shared)
        assert [read.result() for read in under_way] == [[100, id] for id in EIGHT]


@pytest.mark.usefixtures("patient")
def test_a_read_of_a_session_never_takes_the_reply_to_another(listener: socket.socket, reads: Reads) -> None:
    reads.expected = 8
    first, *others = [reads.start(CoreClient(reads.client).get_session, id) for id in EIGHT]
    with accepted(listener) as connection:
        # One reply to each call, as it must be, but shifted by one.
        ids = ids_of(calls_in(connection))
        for id in (ids[0], *ids[:-1]):
            connection.sendall(b'{"parameters":{"session":{"id":%d}}}\0' % id)
        assert bytes(first.result()) == b'{"id":0}'
        assert all(isinstance(read.exception(), CoreUnavailable) for read in others)


class Noting:
    """A client that notes how a call is sent, and sends none."""

    def exchange(self, *_: object, more: bool, at_once: bool, timeout: float | None) -> Any:
        self.sent = more, at_once
        raise Unreachable("it is only noted")


@pytest.mark.parametrize(
    ("filter", "page", "more", "at_once"),
    [
        ({"ip_address": "100.64.0.5"}, None, False, True),
        ({"mac_address": "02:00:00:00:00:06"}, Page(100), False, True),
        ({}, None, True, False),
        ({"username": "alice"}, None, True, False),
        ({"ip_address": "100.64.0.5", "search": "a"}, None, True, False),
    ],
)
def test_a_search_by_address_may_be_in_a_batch_and_no_list_that_may_be_long(
    filter: dict[str, str], page: Page | None, more: bool, at_once: bool
) -> None:
    client: Any = Noting()
    with pytest.raises(CoreUnavailable):
        CoreClient(client).list_sessions(filter, None, page)
    assert client.sent == (more, at_once)


def test_a_read_with_little_time_depends_on_others_for_half_of_it(
    listener: socket.socket, reads: Reads
) -> None:
    reads.expected = 99
    first, other = reads.start(reads.read, 0), reads.start(reads.read, 1, MAX_WAIT_SECONDS)
    with accepted(listener) as connection:
        echo(connection, calls_in(connection))
        assert other.result() == 1
        reads.expected = 1
        with accepted(listener) as another:
            # Their batch is late for one of the two: nobody waits for it.
            echo(another, calls_in(another))
            assert first.result() == 0
