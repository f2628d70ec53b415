"""Reads of the varlink client in batches, with good peers and faulty ones."""

import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway_contract.base.errors import CoreUnavailable
from gateway_contract.contract import Page
from gateway_contract.core_client import CoreClient
from gateway_contract.varlink import batches
from gateway_contract.varlink.batches import MAX_BYTES, MAX_READS, MAX_WAIT_SECONDS
from gateway_contract.varlink.client import Client, Unreachable
from gateway_contract.varlink.protocol import ErrorReply
from tests.support.stack import PATIENCE, wait_for
from tests.unit.gateway_contract.test_varlink_client import MARGIN, METHOD, peer

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
        batch = self._batches._open
        assert batch is not None
        while batch is self._batches._open and batch.reads < self.expected:
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
def path(tmp_path: Path) -> Path:
    return tmp_path / "peer.sock"


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
