"""Jobs as a client sees them: many sessions at a time, with progress and an end."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.stack import Api, wait_for


@pytest.fixture(scope="module")
def vlans(api: Api) -> Iterator[str]:
    """Access interfaces to spend, each with several sessions."""
    listed = api.get("/interfaces/vlans", params={"sort": "-session_count", "limit": "20"})["vlans"]
    return iter([vlan["name"] for vlan in listed[2:] if vlan["session_count"] > 3])


def on(api: Api, vlan: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get("/subscribers", params={"interface": vlan})["sessions"]
    return found


def started(api: Api, what: str, **body: Any) -> dict[str, Any]:
    answer = api.send("POST", f"/subscribers/{what}", json=body)
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()["data"]
    assert answer.headers["Location"] == f"/api/v1/subscribers/jobs/{job['id']}"
    return job


def ended(api: Api, job: dict[str, Any]) -> dict[str, Any]:
    path = f"/subscribers/jobs/{job['id']}"
    wait_for("the end of the job", lambda: api.get(path)["state"] != "running")
    found: dict[str, Any] = api.get(path)
    return found


def test_a_job_changes_the_rates_of_all_that_match_and_of_nobody_else(api: Api, vlans: Iterator[str]) -> None:
    vlan, other = next(vlans), next(vlans)
    before, others = on(api, vlan), on(api, other)
    job = started(api, "rate", filter={"interface": vlan}, rate_up="7mbit", expires_in=3600)
    assert job["kind"] == "rate"
    assert (job["filter"], job["author"], job["total"]) == ({"interface": vlan}, "admin", len(before))
    done = ended(api, job)
    assert (done["state"], done["done"], done["gone"], done["failed"]) == ("done", len(before), 0, 0)
    assert done["finished_at"] >= done["started_at"]
    assert on(api, vlan) == [{**session, "rate_up": 7_000_000} for session in before]
    assert on(api, other) == others
    assert all(api.get(f"/subscribers/{session['id']}")["rate_expires_at"] for session in before)


def test_a_job_disconnects_all_that_match_and_counts_who_ended_meanwhile_as_gone(
    api: Api, vlans: Iterator[str]
) -> None:
    vlan = next(vlans)
    *_, last = on(api, vlan)
    # Long before the last one is due.
    job = started(api, "disconnect", filter={"interface": vlan}, per_second=5)
    assert api.send("DELETE", f"/subscribers/{last['id']}").ok
    found = ended(api, job)
    assert (found["kind"], found["state"], found["gone"]) == ("disconnect", "done", 1)
    assert found["done"] == found["total"] - 1
    assert on(api, vlan) == []


@pytest.mark.parametrize(
    ("what", "more", "would"),
    [("rate", {"rate_down": "1g"}, "would get other rates"), ("disconnect", {}, "would be disconnected")],
)
def test_a_dry_run_counts_and_changes_nothing(api: Api, what: str, more: dict[str, Any], would: str) -> None:
    jobs, before = api.get("/subscribers/jobs"), api.get("/subscribers", params={"type": "pppoe"})
    body = {"filter": {"type": "pppoe"}, "dry_run": True, **more}
    answer = api.send("POST", f"/subscribers/{what}", json=body)
    assert answer.status_code == 200
    data = answer.json()["data"]
    assert (data["count"], data["message"]) == (before["count"], f"{before['count']} sessions {would}")
    assert data["sessions"] == before["sessions"][:100]
    assert api.get("/subscribers/jobs") == jobs
    assert api.get("/subscribers", params={"type": "pppoe"}) == before


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"filter": {}}, "filter"),
        ({"filter": {}, "dry_run": True}, "filter"),
        ({"filter": {"vlan": "5"}}, "filter.vlan"),
        ({"filter": {"mac_address": "nonsense"}}, "filter.mac_address"),
        ({"per_second": 10_001}, "per_second"),
        ({"expires_in": 60, "until": "2030-01-01T00:00:00Z"}, "until"),
        ({"until": "2020-01-01T00:00:00Z"}, "until"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused(api: Api, more: dict[str, Any], path: str) -> None:
    jobs = api.get("/subscribers/jobs")
    body = {"filter": {"username": "nobody"}, "rate_down": "1g", **more}
    answer = api.send("POST", "/subscribers/rate", json=body)
    assert answer.status_code == 400
    (problem,) = answer.json()["errors"]
    assert problem["path"] == path
    assert path != "filter" or problem["message"] == "must have at least one condition"
    assert api.get("/subscribers/jobs") == jobs


def test_a_job_is_cancelled_once(api: Api, vlans: Iterator[str]) -> None:
    vlan = next(vlans)
    before = on(api, vlan)
    job = started(api, "disconnect", filter={"interface": vlan}, per_second=1)
    path = f"/subscribers/jobs/{job['id']}"
    cancelled = api.send("DELETE", path).json()["data"]
    assert (cancelled["state"], cancelled["finished_at"] is None) == ("cancelled", False)
    assert len(on(api, vlan)) >= len(before) - 2
    again = api.send("DELETE", path)
    assert (again.status_code, again.json()["message"]) == (409, "The job has ended")


def test_more_jobs_than_allowed_at_a_time_are_refused(api: Api, vlans: Iterator[str]) -> None:
    body = {"filter": {"interface": next(vlans)}, "rate_down": "1g", "per_second": 1}
    jobs = [started(api, "rate", **body) for _ in range(4)]
    refused = api.send("POST", "/subscribers/rate", json=body)
    for job in jobs:
        api.send("DELETE", f"/subscribers/jobs/{job['id']}")
    assert refused.status_code == 409
    assert refused.json()["message"] == "4 jobs run already; wait, or cancel one"


def test_a_job_is_recorded_and_no_operator_starts_one(api: Api) -> None:
    filter = {"username": "nobody"}
    job = started(api, "disconnect", filter=filter)
    record = api.get("/audit", "admin", params={"action": "jobs.disconnect"})["records"][0]
    assert (record["user"], record["body"]["filter"]) == ("admin", filter)
    assert record["after"] == {"id": job["id"], "total": 0}
    assert record["path"] == "/api/v1/subscribers/disconnect"
    assert api.send("GET", "/subscribers/jobs", "operator").ok
    body = {"filter": filter}
    assert api.send("POST", "/subscribers/disconnect", "operator", json=body).status_code == 403
