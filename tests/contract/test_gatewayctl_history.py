"""`gatewayctl` shows the past of subscribers, and all that is not well."""

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.by_api import disconnect, set_value, with_a_name
from tests.support.histories import down, failed, remember, remember_failures
from tests.support.running_gateway import DEPENDENCIES, faulty_gateway
from tests.support.shell import Shell
from tests.support.stack import Api, wait_for

FAILED = 1
DAY = 86400


@pytest.fixture
def shell(api: Api, tmp_path: Path) -> Shell:
    """At the gateway that most tests share."""
    return Shell(api, tmp_path)


@pytest.fixture(scope="module")
def faulty(api: Api, state: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with faulty_gateway(api, state, tmp_path_factory.mktemp("faulty")) as made:
        yield made


def iso(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def test_a_session_of_the_past_is_found_by_its_address_and_a_part_of_its_name(
    operator: Shell, state: Path
) -> None:
    yesterday = int(time.time()) - DAY
    names = {"username": "zoe@lab.example", "ip_address": "203.0.113.7"}
    remember(state / "history.sqlite", down(800_001, yesterday - 600, yesterday, "lost_carrier", **names))
    asked = ("subscribers", "history", "--ip", "203.0.113.7", "--at")
    (found,) = operator.json(*asked, iso(yesterday - 300))
    assert (found["username"], found["reason"]) == ("zoe@lab.example", "lost_carrier")
    assert operator.run(*asked, iso(yesterday + 1)) == (FAILED, "", "gatewayctl: no session matches\n")
    since = iso(yesterday - DAY // 2)
    assert operator.json("subscribers", "history", "zoe", "--since", since) == [found]
    assert "lost_carrier" in operator.done("subscribers", "timeline", "zoe@lab.example")


def test_a_timeline_says_which_user_disconnected_the_subscriber(admin: Shell) -> None:
    name = disconnect(admin.api)

    def ended() -> bool:
        found = admin.api.get("/subscribers/history", params={"username": name})["sessions"]
        return any(session["reason"] for session in found)

    wait_for("the end in the history", ended)
    entry, *_ = admin.json("subscribers", "timeline", name)
    assert (entry["event"], entry["author"]) == ("session.down", "admin")
    assert entry["message"] in admin.done("subscribers", "timeline", name)
    records = admin.json("audit", "--action", "subscribers.disconnect")
    assert name in {(record["before"] or {}).get("username") for record in records}


def test_failed_sign_ons_are_listed_and_stand_in_the_timeline(operator: Shell, state: Path) -> None:
    (somebody,) = with_a_name(operator.api, 1)
    name, at = somebody["username"], somebody["started_at"] + 60
    query = {"username": name}
    wait_for("the session", lambda: operator.api.get("/subscribers/history", params=query)["count"])
    remember_failures(state / "history.sqlite", *(failed(at + 5 * n, username=name) for n in range(3)))
    command = ("subscribers", "failed-sign-ons")
    (found,) = operator.json(*command, name.partition("@")[0])
    assert (found["username"], found["reason"], found["attempts"]) == (name, "rejected", 3)
    assert operator.json(*command, "--username", name) == [found]
    assert "failed, rejected, 3 times" in operator.done("subscribers", "timeline", name)
    ended = operator.run(*command, "--username", name, "--reason", "no_address")
    assert ended == (FAILED, "", "gatewayctl: no failed sign-on matches\n")


def test_all_that_is_not_well_is_on_one_screen(faulty: Api, shell: Shell) -> None:
    shell.has(faulty.new_token("admin"), url=faulty.url)
    shell.environment |= {"GATEWAY_URL": faulty.url, "NO_COLOR": "1"}
    terminal = shell.at_terminal("status", columns=80, lines=24)
    assert terminal.end() == FAILED
    assert len(terminal.shown.splitlines()) < 24
    text = " ".join(terminal.shown.split())
    assert "accel-ppp failed: accel-ppp has not replied since 2026-03-01T12:00:00Z." in text
    found = json.loads(shell.run("-o", "json", "status").out)
    assert found["faults"] == faulty.get("/system/faults")["count"] > 0
    assert (found["total"], found["unavailable"]) == (20, [])
    ended = shell.run("-o", "json", "health", "--detail")
    assert ended.status == FAILED
    states = {each["name"]: (each["state"], each["message"]) for each in json.loads(ended.out)}
    assert {each.name: (each.state, each.message) for each in DEPENDENCIES}.items() <= states.items()


def test_the_status_names_staged_changes_and_what_the_role_does_not_allow(shell: Shell, api: Api) -> None:
    shell.has(api.token("operator"))
    assert "/system/config/compare: Admin role required" in shell.done("status")
    assert shell.json("status")["is_staged"] is None
    shell.has(api.token("admin"))
    assert "no changes" in shell.done("status")
    set_value(api, "qos.default_up", "21mbit")
    assert re.search(r"(?m)^Candidate +has changes that are not committed$", shell.done("status"))
    assert api.send("POST", "/system/config/discard").status_code == 200
