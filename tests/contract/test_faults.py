"""What an operator sees of a gateway with faults, stale sessions and sources that do not reply."""

from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway_api.wire.core.health import FaultKind, TriggerRefusal
from tests.support.faulty_core import FAULTS, REFUSALS, REPAIRS, SOURCES, STALE, faulty_gateway
from tests.support.prometheus import samples
from tests.support.stack import Api

ORDERED: list[dict[str, Any]] = sorted(msgspec.to_builtins(FAULTS), key=itemgetter("since", "object", "kind"))


@pytest.fixture(scope="module")
def faulty(api: Api, state: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with faulty_gateway(api, state, tmp_path_factory.mktemp("faulty")) as made:
        yield made


@pytest.mark.parametrize("role", ["admin", "operator"])
def test_faults_are_listed_with_the_oldest_first(faulty: Api, role: str) -> None:
    assert faulty.get("/system/faults", role) == {"faults": ORDERED, "count": len(ORDERED)}


def test_the_pages_of_faults_are_the_whole_list(faulty: Api) -> None:
    found: list[dict[str, Any]] = []
    query: dict[str, Any] = {"limit": 4}
    while query.get("cursor", "") is not None:
        page = faulty.get("/system/faults", params=query)
        assert (page["count"], page["total"]) == (len(page["faults"]), len(ORDERED))
        found += page["faults"]
        query["cursor"] = page["next_cursor"]
    assert found == ORDERED


def test_a_session_has_its_own_faults(faulty: Api) -> None:
    for id in (1, 2, 20):
        expected = [fault for fault in msgspec.to_builtins(FAULTS) if fault["session_id"] == id]
        assert faulty.get(f"/subscribers/{id}")["faults"] == expected


def test_a_session_whose_source_does_not_reply_is_stale_in_list_and_detail(faulty: Api) -> None:
    states = {item["id"]: item["state"] for item in faulty.get("/subscribers")["sessions"]}
    assert {id for id, state in states.items() if state == "stale"} == set(STALE)
    assert {faulty.get(f"/subscribers/{id}")["state"] for id in STALE} == {"stale"}


def test_the_audit_log_names_the_sessions_that_a_failed_disconnect_of_an_interface_ended(faulty: Api) -> None:
    interface = faulty.get("/subscribers/20")["access_interface"]
    sessions = faulty.get("/subscribers", params={"interface": interface})["sessions"]
    refused = faulty.send("POST", "/subscribers/disconnect-by-interface", json={"interface": interface})
    message = f"1 of {len(sessions) + 1} sessions are still connected: accel-ppp does not reply"
    assert (refused.status_code, refused.json()["message"]) == (500, message)
    record = faulty.get("/audit", "admin")["records"][0]
    ended = [{name: session[name] for name in ("id", "username", "ip_address")} for session in sessions]
    assert (record["result"], record["message"]) == ("failed", message)
    assert record["before"] == {"sessions": ended}


@pytest.mark.parametrize("path", ["/health", "/system/health"])
def test_health_names_sources_that_do_not_reply_and_is_still_200(faulty: Api, path: str) -> None:
    health = faulty.get(path, None)
    assert health["unavailable_sources"] == list(SOURCES)
    assert (health["stale_sessions"], health["active_sessions"]) == (len(STALE), 20)


def test_metrics_count_faults_repairs_stale_sessions_and_unavailable_sources(faulty: Api) -> None:
    found = samples(faulty)
    assert found["gateway_core_unavailable_sources"] == len(SOURCES)
    assert found["gateway_core_faults"] == len(FAULTS)
    assert found["gateway_sessions_stale"] == len(STALE)
    repaired = {kind: found[f'gateway_core_repairs_total{{kind="{kind}"}}'] for kind in FaultKind}
    assert repaired == REPAIRS


def test_metrics_count_the_frames_that_made_no_vlan_by_their_reason(faulty: Api) -> None:
    found = samples(faulty)
    name = "gateway_core_demux_refusals_total"
    assert {reason: found[f'{name}{{reason="{reason}"}}'] for reason in TriggerRefusal} == REFUSALS


def test_a_gateway_without_faults_says_so(api: Api) -> None:
    assert api.get("/system/faults") == {"faults": [], "count": 0}
    health = api.get("/system/health", None)
    assert (health["stale_sessions"], health["unavailable_sources"]) == (0, [])
    found = samples(api)
    for name in ("gateway_core_faults", "gateway_core_unavailable_sources", "gateway_sessions_stale"):
        assert found[name] == 0
    assert {found[f'gateway_core_repairs_total{{kind="{kind}"}}'] for kind in FaultKind} == {0}
