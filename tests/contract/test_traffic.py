"""Traffic as a client sees it: of a session each second, of those that have most, and of all over time."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.stack import Api, core_of, running_stack, wait_for


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, int]]:
    """A gateway whose sessions stay, and the process of its core."""
    with running_stack(tmp_path_factory.mktemp("traffic"), sessions=100) as (api, process):
        yield api, core_of(process)


@contextmanager
def watching(api: Api, id: int, **more: Any) -> Iterator[Iterator[tuple[str, dict[str, Any]]]]:
    """The events of a stream, each as its name and its data."""
    with closing(api.send("GET", f"/subscribers/{id}/traffic", stream=True, **more)) as answer:
        assert answer.status_code == 200, answer.text
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert answer.headers["X-Accel-Buffering"] == "no"
        assert answer.headers["Connection"] == "close"
        yield events_of(answer)


def events_of(answer: requests.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    name = ""
    for line in answer.iter_lines(chunk_size=None, decode_unicode=True):
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))
        else:
            assert line in ("", ":")


def counters(api: Api, id: int) -> tuple[int, int]:
    detail = api.get(f"/subscribers/{id}")
    return detail["bytes_out"], detail["bytes_in"]


def test_a_stream_has_the_rates_that_the_counters_have(stack: tuple[Api, int]) -> None:
    api, _ = stack
    before = counters(api, 7)
    with watching(api, 7) as events:
        found = [next(events) for _ in range(4)]
    after = counters(api, 7)
    assert {name for name, _ in found} == {"traffic"}
    assert all(data["interval_ms"] >= 990 for _, data in found)
    for field, first, last in zip(("down_bps", "up_bps"), before, after, strict=True):
        counted = sum(data[field] * data["interval_ms"] / 8000 for _, data in found)
        # All samples are between the two records. Rates are whole bits, and intervals whole milliseconds.
        assert 0 < counted <= (last - first) * 1.01 + 10


def test_the_last_event_says_that_the_session_has_ended(stack: tuple[Api, int]) -> None:
    api, _ = stack
    with watching(api, 8) as events:
        assert next(events)[0] == "traffic"
        assert api.send("DELETE", "/subscribers/8").ok
        *_, last = events
    assert last == ("ended", {"id": 8})
    refused = api.send("GET", "/subscribers/8/traffic")
    assert (refused.status_code, refused.json()["message"]) == (404, "No such session")


def test_a_stream_ends_with_its_token(stack: tuple[Api, int]) -> None:
    api, _ = stack
    token = api.new_token("operator")
    with watching(api, 9, token=token) as events:
        assert next(events)[0] == "traffic"
        assert api.send("POST", "/auth/logout", token=token).ok
        assert {name for name, _ in events} <= {"traffic"}


def test_many_watchers_of_a_session_are_one_call_of_each_worker(stack: tuple[Api, int]) -> None:
    api, core = stack

    def connections() -> int:
        return sum(
            "socket:" in link
            for path in Path(f"/proc/{core}/fd").iterdir()
            if (link := _target(path)) is not None
        )

    # Every worker has its stream of events, and connections for requests.
    for _ in range(20):
        api.get("/subscribers/10")
    before = connections()
    answers = [api.send("GET", "/subscribers/10/traffic", stream=True) for _ in range(20)]
    try:
        streams = [events_of(answer) for answer in answers]
        for stream in streams:
            assert next(stream)[0] == "traffic"
        # Two workers; and some requests at the same time.
        assert connections() - before < 10
        # All of a worker get the same events.
        seen = [[next(stream)[1] for _ in range(4)] for stream in streams]
        assert len({json.dumps(events[-1]) for events in seen}) < 10
    finally:
        for answer in answers:
            answer.close()


def _target(path: Path) -> str | None:
    try:
        return str(path.readlink())
    except OSError:
        return None


def test_without_watchers_the_core_is_not_called(stack: tuple[Api, int]) -> None:
    api, core = stack

    def threads() -> int:
        return len(list(Path(f"/proc/{core}/task").iterdir()))

    before = threads()
    with watching(api, 11) as events:
        assert next(events)
    wait_for("the end of the watch", lambda: threads() <= before)


def test_the_sessions_with_the_most_traffic_come_first(stack: tuple[Api, int]) -> None:
    api, _ = stack
    data = api.get("/subscribers/traffic", params={"limit": "10"})
    down = [session["down_bps"] for session in data["sessions"]]
    assert (len(down), data["count"]) == (10, 10)
    assert down == sorted(down, reverse=True)
    assert down[0] > 0
    assert data["interval_ms"] >= 990
    for session in data["sessions"]:
        detail = api.get(f"/subscribers/{session['id']}")
        assert session["username"] == detail["username"]
        assert session["down_bps"] <= session["rate_down"] == detail["rate_down_bps"]
    up = [one["up_bps"] for one in api.get("/subscribers/traffic", params={"sort": "up"})["sessions"]]
    assert (len(up), up) == (20, sorted(up))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"sort": "total"}, "must be one of -down, -up, down, up"),
        ({"limit": "0"}, "must be an integer from 1 to 1000"),
        ({"limit": "1001"}, "must be an integer from 1 to 1000"),
        ({"cursor": "x"}, "is not a known field"),
    ],
)
def test_a_wrong_query_is_refused(stack: tuple[Api, int], query: dict[str, str], message: str) -> None:
    api, _ = stack
    answer = api.send("GET", "/subscribers/traffic", params=query)
    assert answer.status_code == 400
    (problem,) = answer.json()["errors"]
    assert (problem["path"], problem["message"]) == (next(iter(query)), message)


def test_the_traffic_of_all_trunks_is_kept(stack: tuple[Api, int]) -> None:
    api, _ = stack
    found = wait_for("a sample", lambda: api.get("/interfaces/traffic")["samples"])
    trunks = [one["stats"] for one in api.get("/interfaces", params={"type": "trunk"})["interfaces"]]
    # The lab's subscribers receive more than they send, in each ten seconds.
    assert all(0 < one["up_bps"] < one["down_bps"] for one in found)
    assert found[-1]["down_bps"] * 10 / 8 <= sum(stats["tx_bytes"] for stats in trunks)


def test_the_traffic_of_a_time_without_a_sample_is_empty(stack: tuple[Api, int]) -> None:
    api, _ = stack
    found = api.get("/interfaces/traffic", params={"until": "2026-03-01T18:00:00Z", "since": "1771000000"})
    assert (found["samples"], found["count"]) == ([], 0)


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ({"step": "0"}, "step: must be an integer from 1 to 86400"),
        ({"since": "946684800", "step": "1"}, "step: must be larger: these are more than 10000 steps"),
        ({"since": "yesterday"}, "since: must be epoch seconds, or a time "),
    ],
)
def test_a_query_of_the_traffic_that_breaks_a_rule_gets_the_field_and_the_rule(
    stack: tuple[Api, int], query: dict[str, str], problem: str
) -> None:
    api, _ = stack
    answer = api.send("GET", "/interfaces/traffic", "operator", params=query)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith(problem)
