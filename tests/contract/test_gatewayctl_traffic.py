"""The traffic, with `gatewayctl`."""

import json
from itertools import pairwise

import pytest

from tests.support.by_api import with_a_name
from tests.support.desk import Desk
from tests.support.stack import wait_for

pytestmark = pytest.mark.slow

FAILED = 1


def test_the_sessions_with_the_most_traffic_are_listed(operator: Desk) -> None:
    found = operator.json("subscribers", "top", "--sort", "-up", "--limit", "5")
    assert len(found) == 5
    ups = [session["up_bps"] for session in found]
    assert ups == sorted(ups, reverse=True)
    assert len(operator.done("subscribers", "top").splitlines()) == 21


def test_the_traffic_of_a_session_is_watched_until_its_end(admin: Desk) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    with admin.started("-o", "json", "subscribers", "watch", chosen["username"]) as running:
        running.wait_for("down_bps", 2)
        assert admin.api.send("DELETE", f"/subscribers/{chosen['id']}").status_code == 200
        assert running.wait() == 0
    assert running.err == f"gatewayctl: session {chosen['id']} has ended\n"
    samples = [json.loads(line) for line in running.out.splitlines()]
    assert all(after["at"] >= before["at"] for before, after in pairwise(samples))


def test_a_session_that_does_not_exist_cannot_be_watched(operator: Desk) -> None:
    assert operator.run("subscribers", "watch", "999999999") == (FAILED, "", "gatewayctl: No such session\n")


def test_the_traffic_of_all_trunks_over_time_is_listed(operator: Desk) -> None:
    wait_for("a sample", lambda: operator.api.get("/interfaces/traffic")["samples"])
    first, *_ = operator.json("traffic", "--since", "1771000000", "--step", "86400")
    assert set(first) == {"at", "down_bps", "up_bps"}
    assert operator.done("traffic").splitlines()[0].split() == ["TIME", "DOWN", "UP"]
