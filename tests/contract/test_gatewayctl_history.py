"""The history of sessions with `gatewayctl`."""

import pytest

from tests.support.by_api import disconnect, with_a_name
from tests.support.desk import Desk
from tests.support.histories import failed, remember
from tests.support.pretender import Gateway
from tests.support.stack import wait_for

pytestmark = pytest.mark.slow

FAILED = 1


def test_why_a_subscriber_was_disconnected_is_in_the_history(admin: Desk) -> None:
    name = disconnect(admin.api)

    def ended() -> bool:
        found = admin.api.get("/subscribers/history", params={"username": name})["sessions"]
        return any(session["reason"] for session in found)

    wait_for("the end in the history", ended)
    (found,) = admin.json("subscribers", "history", name.partition("@")[0])
    assert (found["username"], found["reason"]) == (name, "admin_disconnect")
    assert "admin_disconnect" in admin.done("subscribers", "history", "--username", name)
    entries = admin.json("subscribers", "timeline", name)
    assert (entries[0]["event"], entries[0]["author"]) == ("session.down", "admin")
    assert entries[0]["message"] in admin.done("subscribers", "timeline", str(found["id"]))


def test_who_had_an_address_at_a_time_is_in_the_history(operator: Desk) -> None:
    (wanted,) = with_a_name(operator.api, 1)
    address, at = wanted["ip_address"], str(wanted["started_at"])
    (found,) = operator.json("subscribers", "history", "--ip", address, "--at", at)
    assert found["id"] == wanted["id"]
    ended = operator.run("subscribers", "history", "--ip", address, "--at", "2001-01-01T00:00:00Z")
    assert (ended.status, ended.err) == (FAILED, "gatewayctl: no session matches\n")


def test_a_time_without_its_offset_is_refused_with_the_rule(operator: Desk) -> None:
    ended = operator.run("subscribers", "history", "--at", "yesterday")
    assert ended.status == FAILED
    assert ended.err.startswith("gatewayctl: at: must be epoch seconds")


def test_flapping_subscribers_are_listed(operator: Desk) -> None:
    known = operator.api.get("/subscribers/flapping")["subscribers"]
    assert operator.json("subscribers", "flapping") == known


def test_why_a_subscriber_cannot_sign_on_is_told(operator: Desk, gateway: Gateway) -> None:
    (session,) = with_a_name(operator.api, 1)
    name, at = session["username"], session["started_at"] + 60
    wait_for(
        "the session", lambda: operator.api.get("/subscribers/history", params={"username": name})["count"]
    )
    remember(gateway.state / "history.sqlite", *(failed(at + 5 * n, username=name) for n in range(3)))
    (found,) = operator.json("subscribers", "failed-sign-ons", name.partition("@")[0])
    assert (found["username"], found["reason"], found["attempts"]) == (name, "rejected", 3)
    assert "rejected" in operator.done("subscribers", "failed-sign-ons", "--username", name)
    assert "failed, rejected, 3 times" in operator.done("subscribers", "timeline", name)
    ended = operator.run("subscribers", "failed-sign-ons", "--username", name, "--reason", "no_address")
    assert (ended.status, ended.err) == (FAILED, "gatewayctl: no failed sign-on matches\n")


def test_a_subscriber_without_a_past_has_no_timeline(operator: Desk) -> None:
    ended = operator.run("subscribers", "timeline", "nobody")
    assert (ended.status, ended.err) == (FAILED, "gatewayctl: the history has no session of nobody\n")
