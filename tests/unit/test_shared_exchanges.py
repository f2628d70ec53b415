"""Reads that share exchanges of the varlink client, with good peers and faulty ones."""

import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway_api.base.errors import CoreUnavailable
from gateway_api.core_client.commands import Daemon
from gateway_api.wire.contract import Page
from gateway_api.wire.varlink import shared as shared_exchanges
from gateway_api.wire.varlink.client import Client, Unreachable
from gateway_api.wire.varlink.protocol import ErrorReply
from gateway_api.wire.varlink.shared import LONGEST, MOST_BYTES, MOST_READS
from tests.support.stack import PATIENCE, wait_for
from tests.unit.test_varlink_client import MARGIN, METHOD, peer

EIGHT = range(8)


class Reads:
    """Reads of threads by one client. A leader waits until as many as `expected` wait behind it, and no
    longer than these wait: under load some may start after that."""

    def __init__(self, path: Path) -> None:
        self.client = Client(path, timeout=PATIENCE, gather=self._gather)
        self.expected = 0
        self._pool = ThreadPoolExecutor(40)

    def waiting(self) -> int:
        assert self.client._shared is not None
        return len(self.client._shared._waiting)

    def _gather(self, _: bool) -> bool:
        until = time.monotonic() + shared_exchanges.LONGEST / 2
        while self.waiting() < self.expected and time.monotonic() < until:
            time.sleep(0.001)
        return False

    def start(self, id: Any, timeout: float | None = None) -> "Future[Any]":
        return self._pool.submit(self._read, id, timeout)

    def start_behind(self, ids: range) -> "list[Future[Any]]":
        """Reads that wait, in the order of their ids."""
        started = []
        for id in ids:
            before = self.waiting()
            started.append(self.start(id))
            wait_for("the read to wait", lambda before=before: self.waiting() > before)
        return started

    def together(self, ids: range, timeout: float | None = None) -> "list[Future[Any]]":
        """Reads in one exchange, which is the first."""
        self.expected = len(ids) - 1
        return [self.start(id, timeout) for id in ids]

    def _read(self, id: Any, timeout: float | None) -> Any:
        (reply,) = self.client.exchange((METHOD, {"id": id}), at_once=True, timeout=timeout)
        return msgspec.json.decode(reply.result())["id"]

    def close(self) -> None:
        self._pool.shutdown()
        self.client.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "peer.sock"


@pytest.fixture
def reads(path: Path) -> Iterator[Reads]:
    made = Reads(path)
    yield made
    made.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine under load, reads take long to start: none of them goes out alone meanwhile."""
    monkeypatch.setattr(shared_exchanges, "LONGEST", PATIENCE)


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


@pytest.fixture
def hung(listener: socket.socket, reads: Reads) -> Iterator[None]:
    """A read whose exchange is under way until the end of the test."""
    read = reads.start(100)
    with accepted(listener) as connection:
        calls = calls_in(connection)
        yield
        echo(connection, calls)
        assert read.result() == 100


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


@pytest.mark.parametrize(("ids", "most"), [(range(20), MOST_READS), (range(10**500, 10**500 + 8), 3)])
@pytest.mark.usefixtures("patient")
def test_reads_that_come_during_an_exchange_go_out_together_after_it_as_many_as_it_may_have(
    listener: socket.socket, reads: Reads, ids: range, most: int
) -> None:
    first = reads.start(1)
    with accepted(listener) as connection:
        alone = calls_in(connection)
        others = reads.start_behind(ids)
        echo(connection, alone)
        left, sizes = list(ids), []
        while left:
            shared = calls_in(connection)
            assert sum(len(call) + 1 for call in shared) <= MOST_BYTES
            assert ids_of(shared) == left[: len(shared)]
            sizes.append(len(shared))
            del left[: len(shared)]
            echo(connection, shared)
        assert sizes[0] == max(sizes) == most
        assert [read.result() for read in (first, *others)] == [1, *ids]


HALF = (METHOD, {"id": "x" * (MOST_BYTES // 2)})


@pytest.mark.usefixtures("hung")
@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.exchange(HALF, HALF, at_once=True),
        # It is not answered at once.
        lambda client: client.call(METHOD, {"id": 2}),
    ],
    ids=["more bytes than an exchange may have", "a plain call"],
)
def test_a_call_that_no_other_can_share_waits_for_none(
    listener: socket.socket, reads: Reads, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Client], object]
) -> None:
    # Far longer than the listener waits for a connection.
    monkeypatch.setattr(shared_exchanges, "LONGEST", 2 * PATIENCE)
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(ask, reads.client)
        with accepted(listener) as connection:
            echo(connection, calls_in(connection))
            assert under_way.result()


@pytest.mark.parametrize("fault", ["refuse", "garbage", "hang", "last_late"])
def test_when_a_shared_exchange_fails_each_read_is_sent_once_more_alone(
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
        errors = [read.exception() for read in reads.together(EIGHT, 2 * LONGEST)]
    assert time.monotonic() - began < MARGIN
    assert all(isinstance(error, Unreachable) for error in errors)
    assert len(set(map(id, errors))) == 8


def test_a_read_alone_is_sent_once(path: Path, reads: Reads, tmp_path: Path) -> None:
    with peer(path, "hangup", count := tmp_path / "count"):
        assert isinstance(reads.start(1).exception(), Unreachable)
        assert count.read_bytes().count(b"\n") == 1


@pytest.mark.usefixtures("patient")
def test_an_error_reply_is_that_of_its_own_call(listener: socket.socket, reads: Reads) -> None:
    # The same call of several reads goes out once, and its error is one of each.
    reads.expected = 8
    under_way = [reads.start(id) for id in (*EIGHT, 3)]
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

    reads.expected = 7
    with ThreadPoolExecutor(8) as pool:
        under_way = [pool.submit(read, id) for id in EIGHT]
        with accepted(listener) as connection:
            shared = calls_in(connection)
            assert sorted(ids_of(shared)) == [*EIGHT, 100]
            echo(connection, shared)
            assert [read.result() for read in under_way] == [[100, id] for id in EIGHT]


@pytest.mark.usefixtures("patient")
def test_a_read_of_a_session_never_takes_the_reply_to_another(listener: socket.socket, reads: Reads) -> None:
    with ThreadPoolExecutor(8) as pool:
        reads.expected = 7
        under_way = [pool.submit(Daemon(reads.client).session, id) for id in EIGHT]
        with accepted(listener) as connection:
            # One reply to each call, as it must be, but shifted by one.
            ids = ids_of(calls_in(connection))
            for id in (ids[0], *ids[:-1]):
                connection.sendall(b'{"parameters":{"session":{"id":%d}}}\0' % id)
            for id, read in enumerate(under_way):
                if id == ids[0]:
                    assert bytes(read.result()) == b'{"id":%d}' % id
                else:
                    assert isinstance(read.exception(), CoreUnavailable)


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
def test_a_search_by_address_may_share_an_exchange_and_no_list_that_may_be_long(
    filter: dict[str, str], page: Page | None, more: bool, at_once: bool
) -> None:
    client: Any = Noting()
    with pytest.raises(CoreUnavailable):
        Daemon(client).list_sessions(filter, None, page)
    assert client.sent == (more, at_once)


@pytest.mark.usefixtures("hung")
def test_reads_behind_one_that_hangs_go_out_alone(
    listener: socket.socket, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    (behind,) = reads.start_behind(range(1))
    with accepted(listener) as connection:
        echo(connection, calls_in(connection))
        assert behind.result() == 0
        # The next ones do not wait for it: the connection has no longer time.
        monkeypatch.setattr(shared_exchanges, "LONGEST", 2 * PATIENCE)
        later = reads.start(1)
        echo(connection, calls_in(connection))
        assert later.result() == 1


@pytest.mark.usefixtures("hung")
def test_a_read_with_little_time_waits_for_others_half_of_that(listener: socket.socket, reads: Reads) -> None:
    under_way = reads.start(1, timeout=LONGEST)
    with accepted(listener) as connection:
        echo(connection, calls_in(connection))
        assert under_way.result() == 1
