"""Many who ask for whole lists at a time: all get the whole, or 503 and when to come back."""

import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import requests

from gateway_api.daemon.whole import WholeLists
from gateway_api.errors import TooManyLists
from tests.stack import Api, core_of, running_stack

SESSIONS = 200_000
READERS = 32
#: MB that the core may take beside them, who took it to 1,900 before. What it has by itself is 480.
MOST_OF_CORE = 1_100


def test_a_turn_comes_when_another_ends() -> None:
    lists = WholeLists(at_once=1, patience=10)
    had = threading.Event()

    def wait() -> None:
        with lists.turn():
            had.set()

    with lists.turn():
        thread = threading.Thread(target=wait)
        thread.start()
        assert not had.wait(0.1)
    assert had.wait(10)
    thread.join()


def test_without_a_turn_in_time_it_is_too_many() -> None:
    lists = WholeLists(at_once=1, patience=0.01)
    with lists.turn():
        with pytest.raises(TooManyLists) as refused, lists.turn():
            pass
        assert refused.value.retry_after == 1
    with lists.turn():
        pass


def test_a_turn_that_fails_is_given_back() -> None:
    lists = WholeLists(at_once=1, patience=0.01)
    with pytest.raises(OSError, match="core"), lists.turn():
        raise OSError("core")
    with lists.turn():
        pass


def most_memory(pid: int) -> float:
    """MB, of all its life."""
    (line,) = [
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:")
    ]
    return int(line.split()[1]) / 1024


def read_all(api: Api, token: str, seen: Counter[int], over: threading.Event) -> None:
    """Reads the whole list until it is over, as a client that does what a 503 says."""
    with requests.Session() as session:
        session.trust_env = False
        headers = {"Authorization": f"Bearer {token}"}
        while not over.is_set():
            answer = session.get(
                f"{api.url}/api/v1/subscribers",
                verify=api.environment["GATEWAY_CA"],
                headers=headers,
                timeout=60,
            )
            seen[answer.status_code] += 1
            if answer.status_code == 200:
                assert answer.content.count(b'"started_at":') == SESSIONS
                assert answer.content.endswith(b'"count":%d}}' % SESSIONS)
            else:
                assert answer.json()["message"] == "Too many whole lists at a time, try again in 1 s"
                over.wait(int(answer.headers["Retry-After"]))


@pytest.mark.slow
def test_32_readers_of_200000_sessions_get_the_whole_or_503_and_leave_time_for_health(tmp_path: Path) -> None:
    with running_stack(tmp_path / "state", sessions=SESSIONS) as (api, process):
        token, seen, over = api.token("operator"), Counter[int](), threading.Event()
        failures: list[BaseException] = []

        def read() -> None:
            try:
                read_all(api, token, seen, over)
            except BaseException as error:
                failures.append(error)
                raise

        threads = [threading.Thread(target=read) for _ in range(READERS)]
        for thread in threads:
            thread.start()
        health = []
        until = time.monotonic() + 15
        while time.monotonic() < until:
            began = time.monotonic()
            assert api.send("GET", "/health", None).status_code == 200
            health.append(time.monotonic() - began)
        over.set()
        for thread in threads:
            thread.join()
        memory = most_memory(core_of(process))
        health.sort()
        p50, p99 = health[len(health) // 2], health[int(len(health) * 0.99)]
        print(f"{dict(seen)}, core {memory:.0f} MB, health {p50:.3f} s, p99 {p99:.3f} s of {len(health)}")
        assert failures == []
        assert set(seen) == {200, 503}
        assert memory < MOST_OF_CORE
        assert p50 < 0.5
