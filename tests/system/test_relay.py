"""The relay: what happens on a gateway arrives in JetStream, each message once, with the body of the API."""

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.support.audit import RATES
from tests.support.nats import NatsServer, StoredMessage, running_nats
from tests.support.relay import Relay, running_relay
from tests.support.sse import Stream, master_of
from tests.support.stack import Api, core_of, running_stack, wait_for


class Site(NamedTuple):
    """A gateway, a NATS server, and the relay between them."""

    api: Api
    process: "subprocess.Popen[bytes]"
    nats: NatsServer
    relay: Relay


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A gateway with 1,200 sessions that stay, and the relay of an admin."""
    folder = tmp_path_factory.mktemp("relay")
    with (
        running_stack(folder / "state", sessions=1200) as (api, process),
        running_nats(folder / "nats") as nats,
    ):
        nats.add_stream()
        with running_relay(folder / "relay", api, nats) as relay:
            relay.wait_for_messages("snapshot", 3)
            relay.wait_for_messages("health")
            yield Site(api, process, nats, relay)


def list_ids(site: Site) -> list[int]:
    return [session["id"] for session in site.api.get("/subscribers?limit=2000")["sessions"]]


def disconnect(site: Site, count: int = 1) -> list[int]:
    """Disconnect sessions, and return their ids."""
    ids = list_ids(site)[:count]
    for id in ids:
        assert site.api.send("DELETE", f"/subscribers/{id}").ok
    return ids


def find_ends(site: Site, ids: list[int]) -> list[int]:
    """Return the number of messages about the end of each of these sessions."""
    messages = site.relay.list_messages("events.session_down")
    return [sum(message.data["id"] == id for message in messages) for id in ids]


def wait_for_ends(site: Site, ids: list[int]) -> None:
    wait_for("the ends of the sessions", lambda: all(find_ends(site, ids)))


def commit(site: Site, hostname: str) -> None:
    edit = {"path": "system.hostname", "value": hostname}
    assert site.api.send("POST", "/system/config/set", json=edit).ok
    assert site.api.send("POST", "/system/config/commit", json={"comment": "for the relay"}).ok


def find_numbers(messages: list[StoredMessage]) -> list[tuple[str, int]]:
    """Return boot and sequence number of the events, in their order in the stream."""
    ids = [message.headers["Gateway-Event"].rpartition("-") for message in messages]
    return [(boot, int(number)) for boot, _, number in ids]


def test_the_first_contact_is_a_snapshot_of_all_sessions(site: Site) -> None:
    parts = [message.data for message in site.relay.list_messages("snapshot")][:3]
    assert [(part["part"], part["is_last"], part["reason"]) for part in parts] == [
        (1, False, "first_contact"),
        (2, False, "first_contact"),
        (3, True, "first_contact"),
    ]
    assert len({(part["id"], part["after"]) for part in parts}) == 1
    sessions = {each["id"]: each for part in parts for each in part["sessions"]}
    assert len(sessions) == 1200
    for session in site.api.get("/subscribers?limit=20")["sessions"]:
        assert sessions[session["id"]].keys() == session.keys()
        assert sessions[session["id"]]["username"] == session["username"]


def test_session_events_have_the_data_of_the_event_stream(site: Site) -> None:
    query = "?events=session_up,session_down,session_rate"
    certificate, token = site.api.environment["GATEWAY_CA"], site.api.token("operator")
    with Stream(site.api.url, certificate, token, query) as stream:
        (id,) = list_ids(site)[-1:]
        assert site.api.send("PUT", f"/subscribers/{id}/rate", json=RATES).ok
        assert site.api.send("DELETE", f"/subscribers/{id}").ok
        of_api = stream.take(2)
    wait_for_ends(site, [id])
    assert [event.name for event in of_api] == ["session_rate", "session_down"]
    for event in of_api:
        (message,) = [
            message
            for message in site.relay.list_messages(f"events.{event.name}")
            if message.headers["Gateway-Event"] == event.id
        ]
        assert message.data == event.data
        assert message.headers["Nats-Msg-Id"].startswith(f"bng-1-{event.id}-")


def test_a_commit_is_the_record_of_the_archive_and_of_the_audit_log(site: Site) -> None:
    commit(site, "relayed")
    (message,) = site.relay.wait_for_messages("commits")
    running = site.api.get("/system/config/archive", "admin")["running"]
    assert message.data.items() <= running.items()
    assert message.data["comment"] == "for the relay"
    wait_for("the audit record", lambda: find_audit_records(site, "configuration.commit"))
    of_api = site.api.get("/audit", "admin", params={"action": "configuration.commit"})["records"]
    assert find_audit_records(site, "configuration.commit") == of_api


def find_audit_records(site: Site, action: str) -> list[Any]:
    messages = site.relay.list_messages("audit")
    return [message.data for message in messages if message.data["action"] == action]


def test_faults_and_health_are_those_of_the_api(site: Site) -> None:
    (faults,) = site.relay.wait_for_messages("faults")
    assert faults.data == site.api.get("/system/faults")
    health = site.relay.list_messages("health")[-1].data
    of_api = site.api.get("/system/health/detail")
    assert health.keys() == of_api.keys()
    assert health["state"] == of_api["state"]


def test_a_killed_relay_publishes_what_it_missed_once(site: Site) -> None:
    snapshots = len(site.relay.list_messages("snapshot"))
    site.relay.end(signal.SIGKILL)
    ids = disconnect(site, 5)
    site.relay.start()
    wait_for_ends(site, ids)
    assert find_ends(site, ids) == [1] * 5
    assert len(site.relay.list_messages("snapshot")) == snapshots
    numbers = find_numbers(site.relay.list_messages("events.*"))
    assert [number for _, number in numbers] == list(range(numbers[0][1], numbers[-1][1] + 1))


def test_sigterm_ends_the_relay_at_once(site: Site) -> None:
    assert site.relay.end(signal.SIGTERM) == -signal.SIGTERM
    site.relay.start()


@pytest.mark.parametrize("away", ["killed", "stopped"])
def test_messages_wait_while_nats_is_away(site: Site, away: str) -> None:
    if away == "killed":
        site.nats.kill()
    else:
        site.nats.signal(signal.SIGSTOP)
    ids = disconnect(site, 3)
    if away == "killed":
        site.relay.wait_for_log("Connect call failed")
        site.nats.start()
    else:
        site.nats.signal(signal.SIGCONT)
    wait_for_ends(site, ids)
    assert find_ends(site, ids) == [1] * 3


def test_the_relay_follows_the_api_after_its_restart(site: Site) -> None:
    before = len(site.relay.list_messages("snapshot"))
    os.kill(master_of(site.process), signal.SIGKILL)
    wait_for("the API", lambda: serves(site.api))
    ids = disconnect(site, 2)
    wait_for_ends(site, ids)
    assert find_ends(site, ids) == [1, 1]
    assert len(site.relay.list_messages("snapshot")) == before


def serves(api: Api) -> bool:
    try:
        return api.send("GET", "/subscribers/summary").ok
    except OSError:
        return False


def test_a_restart_of_the_core_is_a_gap_and_a_snapshot(site: Site) -> None:
    before = len(site.relay.list_messages("snapshot"))
    os.kill(core_of(site.process), signal.SIGKILL)
    parts = site.relay.wait_for_messages("snapshot", before + 1)[before:]
    wait_for("the core", lambda: serves(site.api))
    ids = disconnect(site, 2)
    wait_for_ends(site, ids)
    events = find_numbers(site.relay.list_messages("events.*"))
    boot, _, number = parts[0].data["after"].rpartition("-")
    assert {part.data["reason"] for part in parts} == {"gap"}
    assert (boot, int(number) + 1) in events
    assert boot != events[0][0]
