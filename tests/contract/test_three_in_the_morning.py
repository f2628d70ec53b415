"""What an operator asks at three in the morning, one command each."""

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.by_api import commit, disconnect, rates, set_value, with_a_name
from tests.support.faulty_core import DEPENDENCIES, faulty_gateway
from tests.support.histories import down, failed, remember, remember_failures
from tests.support.shell import Shell
from tests.support.stack import Api, wait_for

pytestmark = pytest.mark.slow

FAILED = 1
DAY = 86400


@pytest.fixture
def shell(api: Api, tmp_path: Path) -> Shell:
    """At the gateway that most tests share."""
    return Shell(api, tmp_path)


@pytest.fixture
def somebody(api: Api) -> dict[str, Any]:
    """The session of a subscriber."""
    (chosen,) = with_a_name(api, 1)
    return chosen


@pytest.fixture(scope="module")
def faulty(api: Api, state: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with faulty_gateway(api, state, tmp_path_factory.mktemp("faulty")) as made:
        yield made


def iso(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


# Who


def test_whose_username_has_this_part(operator: Shell, somebody: dict[str, Any]) -> None:
    part = somebody["username"].partition("@")[0].upper()
    assert [one["id"] for one in operator.json("subscribers", "find", part)] == [somebody["id"]]


def test_whose_mac_address_stands_on_this_label(operator: Shell, somebody: dict[str, Any]) -> None:
    label = somebody["mac_address"].upper().replace(":", "-")
    assert [one["id"] for one in operator.json("subscribers", "find", label)] == [somebody["id"]]


def test_who_had_this_address_then(operator: Shell, state: Path) -> None:
    yesterday = int(time.time()) - DAY
    ended = down(800_001, yesterday - 600, yesterday, username="yves", ip_address="203.0.113.7")
    remember(state / "history.sqlite", ended)
    asked = ("subscribers", "history", "--ip", "203.0.113.7", "--at")
    (found,) = operator.json(*asked, iso(yesterday - 300))
    assert found["username"] == "yves"
    assert operator.run(*asked, iso(yesterday + 1)) == (FAILED, "", "gatewayctl: no session matches\n")


# Why


def test_why_a_subscriber_dropped_yesterday(operator: Shell, state: Path) -> None:
    yesterday = int(time.time()) - DAY
    name = "zoe@lab.example"
    remember(
        state / "history.sqlite", down(800_002, yesterday - 600, yesterday, "lost_carrier", username=name)
    )
    since = iso(yesterday - DAY // 2)
    (found,) = operator.json("subscribers", "history", "zoe", "--since", since)
    assert (found["reason"], found["ended_at"]) == ("lost_carrier", yesterday)
    assert "lost_carrier" in operator.done("subscribers", "timeline", name)


def test_who_disconnected_a_subscriber(admin: Shell) -> None:
    name = disconnect(admin.api)

    def ended() -> bool:
        found = admin.api.get("/subscribers/history", params={"username": name})["sessions"]
        return any(session["reason"] for session in found)

    wait_for("the end in the history", ended)
    (found,) = admin.json("subscribers", "history", "--username", name, "--limit", "1")
    assert (found["username"], found["reason"]) == (name, "admin_disconnect")
    entries = admin.json("subscribers", "timeline", name)
    assert (entries[0]["event"], entries[0]["author"]) == ("session.down", "admin")
    assert entries[0]["message"] in admin.done("subscribers", "timeline", str(found["id"]))
    records = admin.json("audit", "--action", "subscribers.disconnect")
    assert name in {(record["before"] or {}).get("username") for record in records}


def test_why_a_subscriber_cannot_sign_on(operator: Shell, state: Path, somebody: dict[str, Any]) -> None:
    name, at = somebody["username"], somebody["started_at"] + 60
    wait_for(
        "the session", lambda: operator.api.get("/subscribers/history", params={"username": name})["count"]
    )
    failures = (failed(at + 5 * n, username=name) for n in range(3))
    remember_failures(state / "history.sqlite", *failures)
    (found,) = operator.json("subscribers", "failed-sign-ons", name.partition("@")[0])
    assert (found["username"], found["reason"], found["attempts"]) == (name, "rejected", 3)
    assert "rejected" in operator.done("subscribers", "failed-sign-ons", "--username", name)
    assert "failed, rejected, 3 times" in operator.done("subscribers", "timeline", name)
    ended = operator.run("subscribers", "failed-sign-ons", "--username", name, "--reason", "no_address")
    assert (ended.status, ended.err) == (FAILED, "gatewayctl: no failed sign-on matches\n")


# How fast


def test_how_much_traffic_a_subscriber_has_now(operator: Shell, somebody: dict[str, Any]) -> None:
    before = int(time.time())
    with operator.started("-o", "json", "subscribers", "watch", somebody["username"]) as running:
        running.wait_for("down_bps")
    first = json.loads(running.out.splitlines()[0])
    assert before <= first["at"] <= time.time()
    assert {"down_bps", "up_bps"} < set(first)


def test_who_has_the_most_traffic(operator: Shell) -> None:
    downs = [one["down_bps"] for one in operator.json("subscribers", "top", "--limit", "5")]
    assert len(downs) == 5
    assert downs[0] > 0
    assert downs == sorted(downs, reverse=True)


def test_faster_for_one_hour(admin: Shell, somebody: dict[str, Any]) -> None:
    _, up = rates(admin.api, somebody)
    before = int(time.time())
    admin.done("subscribers", "rate", somebody["username"], "--down", "900mbit", "--for", "1h")
    assert rates(admin.api, somebody) == (900_000_000, up)
    expires = admin.json("subscribers", "show", somebody["username"])["rate_expires_at"]
    assert before + 3600 <= expires <= time.time() + 3601


# Is it well


def test_whether_radius_is_well(faulty: Api, operator: Shell) -> None:
    operator.has(faulty.new_token("operator"), url=faulty.url)
    operator.environment["GATEWAY_URL"] = faulty.url
    ended = operator.run("-o", "json", "health", "--detail")
    assert ended.status == FAILED
    radius = next(each for each in json.loads(ended.out) if each["name"] == "radius")
    (told,) = (each for each in DEPENDENCIES if each.name == "radius")
    assert (radius["state"], radius["message"]) == (told.state, told.message)


def test_all_that_is_not_well_is_on_one_screen(faulty: Api, shell: Shell) -> None:
    shell.has(faulty.new_token("admin"), url=faulty.url)
    shell.environment["GATEWAY_URL"] = faulty.url
    shell.environment["NO_COLOR"] = "1"
    terminal = shell.at_terminal("status", columns=80, lines=24)
    assert terminal.end() == FAILED
    assert len(terminal.shown.splitlines()) < 24
    text = " ".join(terminal.shown.split())
    assert "accel-ppp failed: accel-ppp has not replied since 2026-03-01T12:00:00Z." in text
    found = json.loads(shell.run("-o", "json", "status").out)
    assert found["faults"] == faulty.get("/system/faults")["count"] > 0
    assert (found["total"], found["unavailable"]) == (20, [])


def test_what_an_operator_may_not_see_is_named_in_the_status(operator: Shell) -> None:
    shown = operator.done("status")
    assert "/system/config/compare: Admin role required" in shown
    assert operator.json("status")["is_staged"] is None


def test_a_commit_that_waits_is_in_the_status(shell: Shell, api: Api) -> None:
    shell.has(api.token("admin"))
    assert "no changes" in shell.done("status")
    set_value(api, "qos.default_up", "21mbit")
    assert re.search(r"(?m)^Candidate +has changes that are not committed$", shell.done("status"))
    assert api.send("POST", "/system/config/discard").status_code == 200


# What now


def test_the_last_commit_is_undone(admin: Shell) -> None:
    before = admin.done("config", "show", "system.hostname")
    set_value(admin.api, "system.hostname", "night")
    commit(admin.api)
    admin.done("config", "rollback", "1")
    admin.done("config", "commit", "--yes")
    assert admin.done("config", "show", "system.hostname") == before
