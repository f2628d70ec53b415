"""The varlink client against faulty peers: they hang, cut, or reply with nonsense."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway_api.wire.varlink import client as varlink_client
from gateway_api.wire.varlink.client import Client, Unreachable
from gateway_api.wire.varlink.protocol import REQUEST_CAP, CallMessage, ErrorReply, encode
from tests.support.faulty_peer import PAUSE
from tests.support.measuring import within
from tests.support.stack import PATIENCE, wait_for

METHOD = "org.example.Echo"
DEADLINE = 1.0
#: A machine under load; far less than any of the waits that a client could fall into.
MARGIN = 1.0

FAULTS = (
    "refuse", "cut", "hangup", "hang", "half", "garbage", "text", "array", "list_of_parameters", "badutf8",
    "twice", "endless", "trickle", "full",
)  # fmt: skip


@contextmanager
def peer(
    path: Path, mode: str, count: Path | None = None, *options: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """A peer in a process of its own, until the end of the block."""
    path.unlink(missing_ok=True)
    script = str(Path(__file__).parents[1] / "support" / "faulty_peer.py")
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


def assert_unreachable_within(seconds: float, call: Callable[[], object]) -> None:
    def end() -> None:
        with pytest.raises(Unreachable):
            call()

    within(seconds, end)


def answer(client: Client, **parameters: Any) -> Any:
    return msgspec.json.decode(client.call(METHOD, parameters))


def test_a_call_gets_the_parameters_of_the_reply(path: Path, client: Client) -> None:
    with peer(path, "echo"):
        assert answer(client, id=7) == {"id": 7}


def test_a_call_without_parameters_is_answered(path: Path, client: Client) -> None:
    with peer(path, "echo"):
        assert bytes(client.call(METHOD)) == b"{}"


@pytest.mark.parametrize("mode", FAULTS)
def test_a_call_to_a_faulty_peer_ends_as_unreachable_by_its_deadline(
    path: Path, client: Client, mode: str
) -> None:
    # More than a socket holds, so that a peer can hang up while it is being sent.
    parameters = {"text": "x" * 900_000}
    with peer(path, mode):
        assert_unreachable_within(
            DEADLINE + MARGIN, lambda: client.call(METHOD, parameters, timeout=DEADLINE)
        )


@pytest.mark.parametrize("mode", FAULTS)
def test_after_a_faulty_peer_the_next_call_to_a_healthy_one_is_answered(
    path: Path, client: Client, mode: str
) -> None:
    with peer(path, mode), pytest.raises(Unreachable):
        client.call(METHOD, timeout=0.3)
    with peer(path, "echo"):
        assert answer(client, id=7) == {"id": 7}


def test_after_a_hung_call_the_same_peer_gets_a_fresh_connection(path: Path) -> None:
    with _listener(path) as listener:
        client = Client(path, timeout=0.2)
        with pytest.raises(Unreachable):
            client.call(METHOD)
        first, _ = listener.accept()
        with pytest.raises(Unreachable):
            client.call(METHOD)
        second, _ = listener.accept()
        first.close()
        second.close()


def test_a_call_to_a_path_where_nothing_is_ends_as_unreachable(client: Client) -> None:
    with pytest.raises(Unreachable):
        client.call(METHOD)


def test_a_call_to_a_socket_that_nobody_serves_ends_as_unreachable(path: Path, client: Client) -> None:
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    with pytest.raises(Unreachable):
        client.call(METHOD)


def test_a_path_that_is_too_long_for_a_socket_ends_as_unreachable(tmp_path: Path) -> None:
    with pytest.raises(Unreachable):
        Client(tmp_path / ("x" * 200), timeout=DEADLINE).call(METHOD)


def test_a_call_has_a_deadline_of_its_own_where_it_asks_for_one(path: Path, client: Client) -> None:
    with peer(path, "hang"):
        assert_unreachable_within(DEADLINE, lambda: client.call(METHOD, timeout=0.1))


def test_a_peer_that_was_killed_and_started_again_between_two_calls_is_not_noticed(
    path: Path, client: Client
) -> None:
    with peer(path, "echo"):
        assert answer(client, id=1) == {"id": 1}
    with peer(path, "echo"):
        assert answer(client, id=2) == {"id": 2}


def test_many_stale_connections_do_not_fail_a_call(path: Path, client: Client) -> None:
    with peer(path, "echo"), ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: answer(client, id=number), range(100)))
    with peer(path, "echo"):
        assert answer(client, id=2) == {"id": 2}


def test_a_call_that_was_read_and_not_answered_is_not_sent_again(
    path: Path, client: Client, tmp_path: Path
) -> None:
    count = tmp_path / "count"
    with peer(path, "hangup", count):
        with pytest.raises(Unreachable):
            client.call(METHOD)
        assert count.read_bytes().count(b"\n") == 1


def test_a_call_that_was_read_on_a_pooled_connection_and_not_answered_is_not_sent_again(
    path: Path, client: Client, tmp_path: Path
) -> None:
    count = tmp_path / "count"
    with peer(path, "once", count):
        client.call(METHOD)
        with pytest.raises(Unreachable):
            client.call(METHOD)
        assert count.read_bytes().count(b"\n") == 2


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
        connection.sendall(b'{"error":"org.example.No"}\0')
        connection.sendall(b'{"parameters":{"id":2}}\0')
        first, second = under_way.result(5)
        with pytest.raises(ErrorReply):
            first.result()
        assert bytes(second.result()) == b'{"id":2}'
        connection.close()


def test_more_threads_than_connections_all_get_their_own_answers(path: Path) -> None:
    client = Client(path, timeout=20, connections=3)
    with peer(path, "echo"):

        def ask(number: int) -> bool:
            return all(answer(client, id=[number, turn]) == {"id": [number, turn]} for turn in range(50))

        with ThreadPoolExecutor(20) as pool:
            assert all(pool.map(ask, range(20)))
    client.close()


def test_a_call_that_finds_no_free_connection_in_time_ends_as_unreachable(path: Path) -> None:
    client = Client(path, timeout=PATIENCE, connections=1)
    with peer(path, "hang") as process, ThreadPoolExecutor(1) as pool:
        hung = pool.submit(client.call, METHOD)
        assert_unreachable_within(DEADLINE, lambda: client.call(METHOD, timeout=0.2))
        process.kill()
        assert isinstance(hung.exception(10), Unreachable)


def test_failed_calls_give_their_connections_back(path: Path) -> None:
    client = Client(path, timeout=PATIENCE, connections=1)
    with peer(path, "refuse"):
        for _ in range(3):
            with pytest.raises(Unreachable):
                client.call(METHOD)
    with peer(path, "echo"):
        assert answer(client, id=7) == {"id": 7}
    client.close()


def text_for(size: int) -> dict[str, str]:
    """Parameters that make a call of so many bytes."""
    empty = len(encode(CallMessage(METHOD, msgspec.Raw(b'{"text":""}'))))
    return {"text": "x" * (size - empty)}


def test_a_request_of_exactly_the_cap_is_answered(path: Path) -> None:
    client = Client(path, timeout=10)
    with peer(path, "echo"):
        assert answer(client, **text_for(REQUEST_CAP)) == text_for(REQUEST_CAP)
    client.close()


def test_a_request_over_the_cap_is_refused_and_not_sent(path: Path, client: Client, tmp_path: Path) -> None:
    count = tmp_path / "count"
    with peer(path, "echo", count):
        with pytest.raises(Unreachable):
            client.call(METHOD, text_for(REQUEST_CAP + 1))
        answer(client, id=7)
        assert count.read_bytes().count(b"\n") == 1


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


def test_an_error_reply_is_raised_with_its_fields(path: Path) -> None:
    error = _replying(path, b'{"error":"org.example.NotFound","parameters":{"id":7}}\0')
    assert isinstance(error, ErrorReply)
    assert (error.name, bytes(error.parameters)) == ("org.example.NotFound", b'{"id":7}')


def test_a_reply_that_announces_another_one_is_no_answer_to_a_plain_call(path: Path) -> None:
    assert isinstance(_replying(path, b'{"continues":true,"parameters":{}}\0'), Unreachable)


def ask_for_more(client: Client) -> list[bytes]:
    replies = client.exchange((METHOD, None), (METHOD, None), more=True)
    return [bytes(reply.result()) for reply in replies]


def test_a_call_for_more_gets_all_its_replies(path: Path) -> None:
    replies = b'{"parameters":{"id":%d}}\0{"parameters":{"id":2},"continues":true}\0{"parameters":{"id":3}}\0'
    assert _replying(path, replies % 1, ask_for_more) == [b'{"id":1}', b'{"id":2}', b'{"id":3}']


def test_replies_that_each_come_in_time_may_take_longer_together(path: Path) -> None:
    # More than a pause of a busy machine.
    deadline = 4 * DEADLINE
    client = Client(path, timeout=deadline)
    with _listener(path) as listener, ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(ask_for_more, client)
        connection, _ = listener.accept()
        with connection:
            _read_call(connection)
            connection.sendall(b'{"parameters":{}}\0')
            for _ in range(4):
                connection.sendall(b'{"parameters":{},"continues":true}\0')
                time.sleep(deadline * 0.3)
            connection.sendall(b'{"parameters":{}}\0')
            assert len(under_way.result(10)) == 6
    client.close()


def test_replies_do_not_come_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlink_client, "_ALL", 0.2)
    client = Client(path, timeout=DEADLINE)
    with _listener(path) as listener, ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(ask_for_more, client)
        connection, _ = listener.accept()
        with connection:
            _read_call(connection)
            connection.sendall(b'{"parameters":{}}\0')
            while not under_way.done():
                with suppress(BrokenPipeError):
                    connection.sendall(b'{"parameters":{},"continues":true}\0')
                time.sleep(0.05)
            assert isinstance(under_way.exception(), Unreachable)
    client.close()


def test_only_the_last_call_of_an_exchange_is_for_more(path: Path) -> None:
    replies = b'{"parameters":{},"continues":true}\0' * 2 + b'{"parameters":{}}\0'
    assert isinstance(_replying(path, replies, ask_for_more), Unreachable)


@pytest.mark.parametrize("end", [b"", b'{"parameters":{"id'])
def test_replies_that_break_off_end_as_unreachable(path: Path, end: bytes) -> None:
    replies = b'{"parameters":{}}\0{"parameters":{},"continues":true}\0' + end
    assert isinstance(_replying(path, replies, ask_for_more, DEADLINE), Unreachable)


def test_replies_over_the_cap_end_as_unreachable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # All of them, and none alone.
    monkeypatch.setattr(varlink_client, "_MOST", 1000)
    replies = b'{"parameters":{}}\0' + b'{"parameters":{"a":"%s"},"continues":true}\0' % (b"x" * 30) * 4
    error = _replying(path, replies, ask_for_more)
    assert isinstance(error, Unreachable)
    assert "over 1000 bytes" in str(error)


def test_a_second_reply_that_comes_late_is_not_taken_for_the_answer_to_the_next_call(
    path: Path, client: Client
) -> None:
    with peer(path, "late"):
        answer(client, id=1)
        time.sleep(5 * PAUSE)
        assert answer(client, id=2) == {"id": 2}
