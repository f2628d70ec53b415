"""Traffic as a client sees it: of a session each second, of those that have most, and of all over time."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import requests

from tests.support.stack import Api, running_stack, wait_for


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A gateway whose sessions stay."""
    with running_stack(tmp_path_factory.mktemp("traffic"), sessions=100) as (api, _):
        yield api


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


def test_a_stream_has_the_rates_that_the_counters_have(gateway: Api) -> None:
    before = counters(gateway, 7)
    with watching(gateway, 7) as events:
        found = [next(events) for _ in range(4)]
    after = counters(gateway, 7)
    assert {name for name, _ in found} == {"traffic"}
    assert all(data["interval_ms"] >= 990 for _, data in found)
    for field, first, last in zip(("down_bps", "up_bps"), before, after, strict=True):
        counted = sum(data[field] * data["interval_ms"] / 8000 for _, data in found)
        # All samples are between the two records. Rates are whole bits, and intervals whole milliseconds.
        assert 0 < counted <= (last - first) * 1.01 + 10


def test_the_last_event_says_that_the_session_has_ended(gateway: Api) -> None:
    with watching(gateway, 8) as events:
        assert next(events)[0] == "traffic"
        assert gateway.send("DELETE", "/subscribers/8").ok
        *_, last = events
    assert last == ("ended", {"id": 8})
    refused = gateway.send("GET", "/subscribers/8/traffic")
    assert (refused.status_code, refused.json()["message"]) == (404, "No such session")


def test_a_stream_ends_with_its_token(gateway: Api) -> None:
    token = gateway.new_token("operator")
    with watching(gateway, 9, token=token) as events:
        assert next(events)[0] == "traffic"
        assert gateway.send("POST", "/auth/logout", token=token).ok
        assert {name for name, _ in events} <= {"traffic"}


def test_the_sessions_with_the_most_traffic_come_first(gateway: Api) -> None:
    data = gateway.get("/subscribers/traffic", params={"limit": "10"})
    down = [session["down_bps"] for session in data["sessions"]]
    assert (len(down), data["count"]) == (10, 10)
    assert down == sorted(down, reverse=True)
    assert down[0] > 0
    assert data["interval_ms"] >= 990
    for session in data["sessions"]:
        detail = gateway.get(f"/subscribers/{session['id']}")
        assert session["username"] == detail["username"]
        assert session["down_bps"] <= session["rate_down"] == detail["rate_down_bps"]
    up = [one["up_bps"] for one in gateway.get("/subscribers/traffic", params={"sort": "up"})["sessions"]]
    assert (len(up), up) == (20, sorted(up))


def test_the_traffic_of_all_trunks_is_kept(gateway: Api) -> None:
    found = wait_for("a sample", lambda: gateway.get("/interfaces/traffic")["samples"])
    trunks = [one["stats"] for one in gateway.get("/interfaces", params={"type": "trunk"})["interfaces"]]
    # The lab's subscribers receive more than they send, in each ten seconds.
    assert all(0 < one["up_bps"] < one["down_bps"] for one in found)
    assert found[-1]["down_bps"] * 10 / 8 <= sum(stats["tx_bytes"] for stats in trunks)
    long_ago = {"until": "2026-03-01T18:00:00Z", "since": "1771000000"}
    empty = gateway.get("/interfaces/traffic", params=long_ago)
    assert (empty["samples"], empty["count"]) == ([], 0)
