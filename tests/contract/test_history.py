"""What happened to subscribers, as a client sees it."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway_api.web.records import (
    FailedSignOnsList,
    FlappingSubscriberList,
    PastSessionList,
    TimelineEntryList,
)
from tests.support.histories import down, failed, remember, remember_failures, up
from tests.support.records import assert_is
from tests.support.stack import Api, wait_for


@pytest.fixture(scope="module")
def ended(api: Api) -> Iterator[dict[str, Any]]:
    """The detail of a session that an admin has ended."""
    newest = api.get("/subscribers", params={"sort": "-id", "limit": 100})["sessions"]
    id = next(session["id"] for session in newest if session["ipv6_address"] and session["ip_address"])
    detail = api.get(f"/subscribers/{id}")
    assert api.send("DELETE", f"/subscribers/{id}").ok
    name = detail["username"]
    wait_for(
        "the end of a session in the history",
        lambda: any(each["ended_at"] for each in history(api, username=name, limit=1)),
    )
    yield detail


def history(api: Api, **query: Any) -> list[dict[str, Any]]:
    found = api.get("/subscribers/history", params=query)
    assert_is(PastSessionList, found)
    return list(found["sessions"])


def past(api: Api, detail: dict[str, Any]) -> dict[str, Any]:
    """The newest session of the same subscriber."""
    return history(api, username=detail["username"], limit=1)[0]


def test_an_ended_session_is_there_with_all_that_was_known_of_it(api: Api, ended: dict[str, Any]) -> None:
    found = past(api, ended)
    same = (
        *("id", "username", "mac_address", "ip_address", "ipv6_address", "ipv6_prefix", "delegated_prefixes"),
        *("access_interface", "outer_vlan_id", "inner_vlan_id", "started_at"),
    )
    assert {name: found[name] for name in same} == {name: ended[name] for name in same}
    assert found["reason"] == "admin_disconnect"
    assert found["duration_seconds"] == found["ended_at"] - found["started_at"]
    assert found["bytes_in"] >= ended["bytes_in"]
    assert found["packets_out"] >= ended["packets_out"]
    # An address and a time tell whose address it was, and a MAC address is found in any spelling.
    for wanted in (
        {"ip_address": ended["ip_address"], "at": ended["started_at"]},
        {"ip_address": ended["ipv6_address"], "at": ended["started_at"]},
        {"mac_address": ended["mac_address"].upper().replace(":", "-"), "limit": 1},
    ):
        (same_one,) = history(api, **wanted)
        assert same_one["username"] == ended["username"]


def test_the_timeline_tells_who_changed_a_rate_and_who_ended_the_session(api: Api) -> None:
    id = api.get("/subscribers", params={"limit": 1})["sessions"][0]["id"]
    rates = {"rate_down": "1 Gbit", "rate_up": "2 Mbit"}
    assert api.send("PUT", f"/subscribers/{id}/rate", json=rates).ok
    assert api.send("DELETE", f"/subscribers/{id}").ok
    admin = api.environment["ADMIN_USER"]

    def entries() -> list[dict[str, Any]]:
        found = api.get(f"/subscribers/{id}/timeline")
        assert_is(TimelineEntryList, found)
        return list(found["entries"])

    wait_for("the end in the timeline", lambda: entries()[0]["event"] == "session.down")
    # Other tests may have changed the rate before.
    ended, changed, *_, started = entries()
    assert (ended["reason"], ended["author"]) == ("admin_disconnect", admin)
    assert (changed["event"], changed["author"]) == ("session.rate", admin)
    assert (changed["rate_down"], changed["rate_up"]) == (1_000_000_000, 2_000_000)
    assert (started["event"], started["session_id"]) == ("session.up", id)


def test_pages_have_each_session_once_and_those_that_are_up(api: Api) -> None:
    whole = [session["id"] for session in history(api)]
    listed = {session["id"] for session in api.get("/subscribers")["sessions"]}
    wait_for("all sessions", lambda: listed <= {session["id"] for session in history(api, since=time.time())})
    paged, cursor = [], None
    while True:
        query = {"limit": 70, **({} if cursor is None else {"cursor": cursor})}
        page = api.get("/subscribers/history", params=query)
        assert_is(PastSessionList, page)
        paged += [session["id"] for session in page["sessions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert paged == whole


def test_milliseconds_are_refused_as_a_time_of_each_query_that_takes_one(api: Api) -> None:
    yesterday = (int(time.time()) - 86_400) * 1000
    paths = api.send("GET", "/openapi.json", None).json()["paths"]
    found = [
        (path.removeprefix("/api/v1"), parameter["name"])
        for path, item in paths.items()
        for parameter in item.get("get", {}).get("parameters", ())
        if parameter["name"] in ("at", "since", "until") and parameter["schema"]["type"] == "string"
    ]
    assert ("/subscribers/history", "at") in found
    assert ("/audit", "until") in found
    for path, name in found:
        refused = api.send("GET", path, "admin", params={name: yesterday})
        assert refused.status_code == 400, (path, name)
        (problem,) = refused.json()["errors"]
        assert problem["path"] == name
        assert problem["message"].endswith(": milliseconds?")


@pytest.fixture(scope="module")
def locked_out(api: Api, state: Path) -> dict[str, Any]:
    """The session of a subscriber after two more attempts to sign on, with a wrong password."""
    session: dict[str, Any] = api.get("/subscribers", params={"sort": "-id", "limit": 1})["sessions"][0]
    wait_for("the session in the history", lambda: history(api, username=session["username"]))
    same = {name: session[name] for name in ("type", "username", "mac_address", "access_interface")}
    # After all that other modules did to it.
    at = int(time.time()) + 1
    remember_failures(state / "history.sqlite", failed(at, **same), failed(at + 5, **same))
    return session


def failures(api: Api, **query: Any) -> list[dict[str, Any]]:
    found = api.get("/subscribers/failed-sign-ons", params=query)
    assert_is(FailedSignOnsList, found)
    return list(found["failures"])


def test_each_filter_of_failed_sign_ons_is_for_what_it_says(api: Api, locked_out: dict[str, Any]) -> None:
    (found,) = failures(api, username=locked_out["username"])
    assert (found["reason"], found["attempts"]) == ("rejected", 2)
    assert found["last_at"] == found["first_at"] + 5
    assert found["access_interface"] == locked_out["access_interface"]
    timeline = api.get(f"/subscribers/{locked_out['id']}/timeline")
    assert_is(TimelineEntryList, timeline)
    entry = timeline["entries"][0]
    assert (entry["event"], entry["session_id"], entry["reason"]) == ("sign_on.failed", None, "rejected")
    matching = {
        "mac_address": found["mac_address"].upper().replace(":", "-"),
        "interface": found["access_interface"],
        "type": found["type"].lower(),
        "reason": "rejected",
        "search": found["username"][2:],
        "since": found["last_at"],
        "until": found["first_at"] + 1,
    }
    assert failures(api, **matching) == [found]
    other = {"mac_address": "020000000000", "interface": "lo", "reason": "no_address", "search": "nobody"}
    for name, value in {**other, "since": found["last_at"] + 1, "until": found["first_at"]}.items():
        assert failures(api, **{**matching, name: value}) == [], name


def test_a_session_of_a_clock_that_was_ahead_is_found_by_its_name_and_with_a_mark(
    api: Api, state: Path
) -> None:
    path, now = state / "history.sqlite", int(time.time())
    times = now + 86_400, now + 86_460
    remember(path, up(10**9, times[0], username="early"), down(10**9, *times, username="early"))
    with closing(sqlite3.connect(path, timeout=30)) as connection, connection:
        connection.execute(
            "INSERT INTO clock_step (session, failure, at) SELECT max(number), 0, ? FROM session", (now,)
        )
    assert "early" not in {session["username"] for session in history(api)}
    found = api.get("/subscribers/flapping", params={"until": "2000-01-02T00:00:00Z"})
    assert_is(FlappingSubscriberList, found)
    assert found == {"subscribers": [], "count": 0}
    assert [session["clock"] for session in history(api, username="early")] == ["unset"]
