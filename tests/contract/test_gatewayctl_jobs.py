"""`gatewayctl` changes rates for a time, and works on all sessions that match as jobs of the gateway."""

import pytest

from tests.support.by_api import rates, sessions, with_a_name
from tests.support.shell import Shell

pytestmark = pytest.mark.slow

FAILED, USAGE = 1, 2


def test_a_rate_is_for_a_time_and_of_one_direction(admin: Shell) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    up = rates(admin.api, chosen)[1]
    admin.done("subscribers", "rate", chosen["username"], "--down", "9mbit", "--for", "1h")
    assert rates(admin.api, chosen) == (9_000_000, up)
    ended = admin.run("subscribers", "rate", chosen["username"], "--down", "9mbit", "--for", "soon")
    assert ended.status == USAGE
    assert "must be a number with s, m, h or d" in ended.err


def test_all_that_match_get_a_rate_as_a_job(admin: Shell) -> None:
    vlan = with_a_name(admin.api, 1)[0]["access_interface"]
    there = sessions(admin.api, interface=vlan)
    where = ("subscribers", "rate", "--where", f"interface={vlan}", "--up", "4mbit")
    assert f"{len(there)} session" in admin.done(*where, "--dry-run")
    assert admin.run(*where).status == USAGE
    ended = admin.run(*where, "--yes")
    assert ended.status == 0
    assert f"{len(there)} done, 0 gone, 0 failed" in ended.out
    assert {rates(admin.api, each)[1] for each in there} == {4_000_000}
    job = admin.json("jobs", "list")[0]
    assert (job["state"], job["total"]) == ("done", len(there))
    assert admin.json("jobs", "show", str(job["id"])) == job
    assert admin.run("jobs", "cancel", str(job["id"])).status == FAILED


def test_all_that_match_are_disconnected(admin: Shell) -> None:
    vlan = with_a_name(admin.api, 1)[0]["access_interface"]
    admin.done("subscribers", "disconnect", "--where", f"interface={vlan}", "--yes")
    assert sessions(admin.api, interface=vlan) == []


def test_a_filter_that_is_none_changes_nothing(admin: Shell) -> None:
    ended = admin.run("subscribers", "disconnect", "--where", "color=red", "--yes")
    assert (ended.status, ended.err) == (
        FAILED,
        "gatewayctl: --where color: is not a known field; known fields: type, username, ip_address, "
        "mac_address, interface, search\n",
    )
    assert admin.run("subscribers", "disconnect", "--where", "red", "--yes").status == USAGE
