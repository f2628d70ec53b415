"""Whole lists: clients that request the same one share it, too many wait, and others get turns meanwhile."""

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gevent
import msgspec
import pytest

from gateway_api.web import responses
from gateway_api.web.routes import token_profile
from gateway_api.web.whole_lists import WholeLists
from gateway_contract.base.errors import TooManyLists
from gateway_contract.core_client import ListParts
from tests.support.stack import PATIENCE, wait_for


class Key:
    """What all readers ask for. It counts its look-ups: three by each reader."""

    def __init__(self) -> None:
        self.looked_up = 0

    def __hash__(self) -> int:
        self.looked_up += 1
        return 1


class Maker:
    """Makes lists that are numbered from 1, each when it may."""

    def __init__(self) -> None:
        self.made = 0
        self.begun, self.may = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self) -> bytes:
        self.made += 1
        number = self.made
        self.begun.release()
        assert self.may.acquire(timeout=60)
        return b"%d" % number


def taken(lists: WholeLists, key: Hashable, make: Callable[[], bytes], version: str | None = None) -> bytes:
    """The body, which is sent at once."""
    body, sent = lists.take(key, make, version)
    sent()
    return body


def test_all_who_ask_while_a_list_is_made_share_the_next_one() -> None:
    lists, key, make = WholeLists(wait=60), Key(), Maker()
    with ThreadPoolExecutor(6) as readers:
        first = readers.submit(taken, lists, key, make)
        assert make.begun.acquire(timeout=60)
        before = key.looked_up
        others = [readers.submit(taken, lists, key, make) for _ in range(5)]
        wait_for("all to have asked", lambda: key.looked_up == before + 3 * 5)
        make.may.release(2)
        assert first.result(PATIENCE) == b"1"
        bodies = [other.result(PATIENCE) for other in others]
    assert bodies == [b"2"] * 5
    # One in memory, too.
    assert all(body is bodies[0] for body in bodies)
    assert make.made == 2


def test_a_list_that_has_to_wait_too_long_is_one_too_many() -> None:
    lists, make = WholeLists(wait=0.01), Maker()
    with ThreadPoolExecutor(1) as readers:
        first = readers.submit(taken, lists, "all", make)
        assert make.begun.acquire(timeout=60)
        with pytest.raises(TooManyLists) as refused:
            taken(lists, "all", make)
        assert refused.value.retry_after == 1
        make.may.release(2)
        assert first.result(PATIENCE) == b"1"
    assert taken(lists, "all", make) == b"2"


def test_a_list_that_fails_fails_for_all_who_share_it_and_for_no_other() -> None:
    lists, key, make = WholeLists(wait=60), Key(), Maker()

    def fail() -> bytes:
        raise OSError("core")

    with ThreadPoolExecutor(4) as readers:
        first = readers.submit(taken, lists, "other", make)
        assert make.begun.acquire(timeout=60)
        failing = [readers.submit(taken, lists, key, fail) for _ in range(3)]
        wait_for("all to have asked", lambda: key.looked_up == 3 * 3)
        make.may.release()
        assert first.result(PATIENCE) == b"1"
        for one in failing:
            with pytest.raises(OSError, match="core"):
                one.result(PATIENCE)
    make.may.release()
    assert taken(lists, "all", make) == b"2"


def test_a_list_is_sent_when_all_who_share_it_have_sent_it() -> None:
    lists, key, make = WholeLists(wait=1, most=100), Key(), Maker()
    with ThreadPoolExecutor(3) as readers:
        first = readers.submit(lists.take, "other", make)
        assert make.begun.acquire(timeout=60)
        shared = [readers.submit(lists.take, key, lambda: bytes(100)) for _ in range(2)]
        wait_for("both to have asked", lambda: key.looked_up == 3 * 2)
        make.may.release()
        first.result(PATIENCE)
        one_sent, last_sent = (reader.result(PATIENCE)[1] for reader in shared)
    one_sent()
    with pytest.raises(TooManyLists):
        lists.take("c", bytes)
    last_sent()
    assert taken(lists, "c", bytes) == b""


def test_slow_readers_keep_no_list_back_for_longer_than_30_seconds() -> None:
    now = 0.0
    lists = WholeLists(wait=0.01, most=100, clock=lambda: now)
    lists.take("a", lambda: bytes(100))
    now = 29.9
    with pytest.raises(TooManyLists):
        lists.take("c", bytes)
    now = 30.0
    assert taken(lists, "c", bytes) == b""
    # A kept list counts from its last reader on.
    lists = WholeLists(wait=0.01, most=100, kept=60, clock=lambda: now)
    lists.take("a", lambda: bytes(100), "v")
    now = 50.0
    taken(lists, "a", bytes, "v")
    now = 60.0
    assert taken(lists, "c", bytes) == b""


def test_a_list_is_made_once_for_its_version() -> None:
    lists = WholeLists(kept=60)
    made = [taken(lists, "all", lambda number=number: b"%d" % number, "v") for number in range(3)]
    assert made == [b"0"] * 3
    assert taken(lists, "all", lambda: b"new", "w") == b"new"
    assert taken(lists, "other", lambda: b"another", "w") == b"another"
    # One that fails is not kept.
    with pytest.raises(ZeroDivisionError):
        lists.take("failing", lambda: b"%d" % (1 // 0), "w")
    assert taken(lists, "failing", lambda: b"made", "w") == b"made"
    # Without a version it is made for each request.
    assert [taken(lists, "all", lambda body=body: body) for body in (b"1", b"2")] == [b"1", b"2"]


def test_the_next_list_does_not_wait_until_another_is_finished() -> None:
    lists, begun, may_end = WholeLists[bytes](wait=0.01), threading.Event(), threading.Event()

    def finish(body: bytes) -> bytes:
        begun.set()
        assert may_end.wait(60)
        return body.upper()

    with ThreadPoolExecutor(1) as readers:
        first = readers.submit(lists.take, "a", lambda: b"first", None, finish)
        assert begun.wait(60)
        assert taken(lists, "a", lambda: b"next") == b"next"
        may_end.set()
        assert first.result(PATIENCE)[0] == b"FIRST"


def test_a_list_that_is_kept_is_finished_once() -> None:
    lists, finished = WholeLists[bytes](kept=60), list[bytes]()

    def finish(body: bytes) -> bytes:
        finished.append(body)
        return body + b" finished"

    bodies = [lists.take("a", lambda: b"list", "v", finish)[0] for _ in range(3)]
    assert (bodies, finished) == ([b"list finished"] * 3, [b"list"])


def test_a_list_that_cannot_be_finished_keeps_none_back() -> None:
    lists = WholeLists[bytes](wait=0.01, most=100)

    def fail(body: bytes) -> bytes:
        raise OSError("no memory")

    with pytest.raises(OSError, match="no memory"):
        lists.take("a", lambda: bytes(1000), None, fail)
    # Its size is the one that is sent.
    lists.take("b", lambda: bytes(1000), None, lambda body: body[:99])
    assert taken(lists, "c", bytes) == b""


def test_only_the_last_lists_of_one_version_that_fit_are_kept() -> None:
    lists, made = WholeLists[bytes](most=100, kept=60), list[str]()

    def take(key: str, size: int = 40, version: str = "v") -> None:
        def make() -> bytes:
            made.append(key)
            return bytes(size)

        taken(lists, key, make, version)

    for key in "abcbda":
        take(key)
    assert made == ["a", "b", "c", "d", "a"]
    take("e", 1000)
    take("e", 1000)
    take("a")
    assert made[5:] == ["e", "a"]
    take("b", version="w")
    take("a")
    assert made[7:] == ["b", "a"]


def test_a_list_that_nobody_requests_is_forgotten() -> None:
    lists = WholeLists[bytes](kept=0.001)
    assert taken(lists, "a", lambda: b"first", "v") == b"first"
    wait_for("it to be forgotten", lambda: taken(lists, "a", lambda: b"second", "v") == b"second")


#: As the core sends them.
ARRAYS, SESSIONS = 8, 1000


def found(session: dict[str, Any]) -> ListParts:
    array = msgspec.Raw(msgspec.json.encode([session] * SESSIONS))
    return ListParts("sessions", [array] * ARRAYS, {"count": msgspec.Raw(b"%d" % (ARRAYS * SESSIONS))})


def turns_during(work: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> int:
    """Turns that another greenlet has until the work is done."""

    def other() -> None:
        nonlocal turns
        while not worker.ready():
            turns += 1
            gevent.sleep(1e-9)

    # As in a worker.
    monkeypatch.setattr(time, "sleep", gevent.sleep)
    turns = 0
    worker = gevent.spawn(work)
    gevent.joinall([worker, gevent.spawn(other)], raise_error=True)
    return turns


def test_others_have_turns_between_the_arrays_of_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of a list of 100,000, an array has 430 KB.
    long = found({"username": "x" * 400})
    assert turns_during(lambda: responses.encode_list(long), monkeypatch) >= ARRAYS - 1


def test_others_have_turns_while_a_list_gets_the_form_of_the_alternative_profile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = {
        "id": 1,
        "username": "subscriber",
        "ip_address": "192.0.2.1",
        "interface": "ppp0",
        "rate_down": 1000,
        "rate_up": 1000,
        "started_at": 1,
    }
    assert turns_during(lambda: token_profile.encode_list(found(session)), monkeypatch) >= 3 * ARRAYS


def test_the_arrays_of_a_list_are_one_in_its_body() -> None:
    body = msgspec.json.decode(responses.encode_list(found({"id": 1})))
    assert body["data"] == {"sessions": [{"id": 1}] * (ARRAYS * SESSIONS), "count": ARRAYS * SESSIONS}
