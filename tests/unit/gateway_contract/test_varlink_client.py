"""The varlink client against faulty peers: they hang, cut, or reply with nonsense."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway_contract.varlink import client as varlink_client
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
    monkeypatch.setattr(varlink_client, "_MAX_REPLIES", 1000)
    replies = b'{"parameters":{}}\0' + b'{"parameters":{"a":"%s"},"continues":true}\0' % (b"x" * 30) * 4
    error = _replying(path, replies, ask_for_more)
    assert isinstance(error, Unreachable) and "over 1000 bytes" in str(error)


def test_a_second_reply_that_comes_late_is_no_answer_to_the_next_call(path: Path, client: Client) -> None:
    with peer(path, "late"):
        answer(client, id=1)
        wait_for("the late reply", lambda: not client._idle[0].is_quiet())
        assert answer(client, id=2) == {"id": 2}
