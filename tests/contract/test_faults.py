"""What an operator sees of a gateway with faults, stale sessions and sources that do not reply."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from gateway_contract.core.health import FaultKind, PacketDrops, TriggerRefusal
from tests.support.prometheus import samples
from tests.support.running_gateway import (
    DELAYS,
    DROPS,
    FAULTS,
    PROGRAM,
    REFUSALS,
    REPAIRS,
    SKIPPED,
    SOURCES,
    STALE,
    faulty_gateway,
    held,
)
from tests.support.stack import Api, running_api, running_core

ORDERED: list[dict[str, Any]] = sorted(msgspec.to_builtins(FAULTS), key=itemgetter("since", "object", "kind"))


@pytest.fixture(scope="module")
def faulty(api: Api, state: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with faulty_gateway(api, state, tmp_path_factory.mktemp("faulty")) as made:
        yield made


def test_faults_are_listed_with_the_oldest_first_whole_and_by_pages(faulty: Api) -> None:
    assert faulty.get("/system/faults") == {"faults": ORDERED, "count": len(ORDERED)}
    found: list[dict[str, Any]] = []
    query: dict[str, Any] = {"limit": 4}
    while query.get("cursor", "") is not None:
        page = faulty.get("/system/faults", params=query)
        assert (page["count"], page["total"]) == (len(page["faults"]), len(ORDERED))
        found += page["faults"]
        query["cursor"] = page["next_cursor"]
    assert found == ORDERED


def test_a_session_has_its_own_faults_and_is_stale_while_its_source_does_not_reply(faulty: Api) -> None:
    listed = {item["id"]: item["state"] for item in faulty.get("/subscribers")["sessions"]}
    assert {id for id, state in listed.items() if state == "stale"} == set(STALE)
    for id in (1, 2, 20):
        session = faulty.get(f"/subscribers/{id}")
        expected = [fault for fault in msgspec.to_builtins(FAULTS) if fault["session_id"] == id]
        assert (session["faults"], session["state"]) == (expected, listed[id])


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


def test_health_names_sources_that_do_not_reply_and_is_still_200(faulty: Api) -> None:
    for path in ("/health", "/system/health"):
        health = faulty.get(path, None)
        assert health["unavailable_sources"] == list(SOURCES)
        assert (health["stale_sessions"], health["active_sessions"]) == (len(STALE), 20)


def test_metrics_count_what_goes_wrong(faulty: Api) -> None:
    found = samples(faulty)

    def of(name: str, **labels: object) -> float:
        text = ",".join(f'{label}="{value}"' for label, value in labels.items())
        return found[f"gateway_{name}{{{text}}}" if text else f"gateway_{name}"]

    assert of("core_unavailable_sources") == len(SOURCES)
    assert of("core_faults") == len(FAULTS)
    assert of("sessions_stale") == len(STALE)
    assert {kind: of("core_repairs_total", kind=kind) for kind in FaultKind} == REPAIRS
    reasons = {reason: of("core_demux_refusals_total", reason=reason) for reason in TriggerRefusal}
    assert reasons == REFUSALS
    drops = ("core_spoofed_packets_total", "core_blocked_packets_total")
    for each in DROPS:
        assert PacketDrops(each.trunk, *(of(name, trunk=each.trunk) for name in drops)) == each
    skipped = [of("core_skipped_entries_total", kind=each.kind, source=each.source) for each in SKIPPED]
    assert skipped == [3, 0]
    delay = "core_limit_delay_seconds"
    within = [of(f"{delay}_bucket", le=each.seconds) for each in DELAYS.counts]
    assert within == [each.sessions for each in DELAYS.counts]
    assert of(f"{delay}_bucket", le="+Inf") == of(f"{delay}_count") == DELAYS.sessions
    assert of(f"{delay}_sum") == DELAYS.seconds


def test_the_demux_state_has_the_refusals_by_their_reason(faulty: Api) -> None:
    state = faulty.get("/demux/state")
    assert {each["reason"]: each["frames"] for each in state["refusals"]} == REFUSALS
    by_limits = ("rate_limited", "outer_vlan_rate_limited", "full", "outer_vlan_full")
    assert state["rate_limited_total"] == sum(REFUSALS[TriggerRefusal(reason)] for reason in by_limits)


def test_a_gateway_without_faults_says_so(api: Api) -> None:
    assert api.get("/system/faults") == {"faults": [], "count": 0}
    health = api.get("/system/health", None)
    assert (health["stale_sessions"], health["unavailable_sources"]) == (0, [])
    found = samples(api)
    for name in ("gateway_core_faults", "gateway_core_unavailable_sources", "gateway_sessions_stale"):
        assert found[name] == 0
    assert {found[f'gateway_core_repairs_total{{kind="{kind}"}}'] for kind in FaultKind} == {0}
    # No session of a lab has a time without a limit.
    assert not any(name.startswith("gateway_core_limit_delay_seconds") for name in found)


UNREACHABLE = {"status": "error", "message": "Core daemon unreachable"}
TOO_MANY = {"status": "error", "message": "Too many whole lists at a time, try again in 1 s"}


class Holding(NamedTuple):
    """A gateway of one worker, and the socket of its core."""

    api: Api
    socket: Path

    @contextmanager
    def holding(self, method: str) -> Iterator[None]:
        """The core does not reply to calls that need this method."""
        file = held(self.socket, method)
        file.touch()
        try:
            yield
        finally:
            file.unlink()

    @contextmanager
    def requesting(self, path: str) -> Iterator[None]:
        """Another client has this path all the time."""
        ended, first = threading.Event(), threading.Event()
        statuses: set[int] = set()

        def request() -> None:
            while not ended.is_set():
                statuses.add(self.api.send("GET", path).status_code)
                first.set()

        client = threading.Thread(target=request)
        client.start()
        try:
            assert first.wait(10)
            yield
        finally:
            ended.set()
            client.join()
        assert statuses == {200}


@pytest.fixture(scope="module")
def holding(api: Api, state: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Holding]:
    folder = tmp_path_factory.mktemp("holding")
    socket = folder / "core.sock"
    with (
        running_core(socket, state / "factory.json", "--sessions", "20", module=PROGRAM),
        # Another runtime folder: `faulty` may still run.
        running_api(socket, state, workers=1, GATEWAY_API_RUNTIME=str(folder)) as url,
    ):
        yield Holding(Api({**api.environment, "GATEWAY_URL": url}), socket)


@pytest.mark.parametrize("path", ["/system/faults", "/system/faults?limit=2"])
def test_a_list_that_is_late_while_the_core_replies_to_others_gets_503(holding: Holding, path: str) -> None:
    with holding.holding("faults"), holding.requesting("/subscribers/20"):
        late = holding.api.send("GET", path)
    assert (late.status_code, late.json()) == (503, TOO_MANY)
    assert late.headers["Retry-After"] == "1"
    assert holding.api.send("GET", path).status_code == 200


def test_a_list_that_is_late_while_nobody_else_asks_gets_500(holding: Holding) -> None:
    with holding.holding("faults"):
        late = holding.api.send("GET", "/system/faults")
    assert (late.status_code, late.json()) == (500, UNREACHABLE)


def test_a_session_that_is_late_while_the_core_replies_to_others_gets_500(holding: Holding) -> None:
    with holding.holding("detail"), holding.requesting("/system/faults"):
        late = holding.api.send("GET", "/subscribers/20")
    assert (late.status_code, late.json()) == (500, UNREACHABLE)
