"""The relay: what happens on a gateway arrives in JetStream, each message once, with the body of the API."""

import json
import os
import signal
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest
from nats.aio.client import RawCredentials

from tests.support.audit import RATES
from tests.support.manual import ROOT
from tests.support.nats import (
    NatsServer,
    StoredMessage,
    find_public_key,
    make_jwt_users,
    make_seed,
    running_nats,
)
from tests.support.relay import Relay, running_relay
from tests.support.sse import Stream, master_of
from tests.support.stack import (
    PATIENCE,
    Api,
    core_of,
    descendants,
    free_port,
    make_state,
    running_stack,
    wait_for,
)


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
    master = master_of(site.process)
    former = [master, *descendants(master)]
    os.kill(master, signal.SIGKILL)
    # Its workers serve until they notice.
    wait_for("the end of the API", lambda: not any(Path(f"/proc/{pid}").exists() for pid in former))
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


def test_the_relay_logs_in_again_after_the_end_of_its_tokens(site: Site) -> None:
    assert site.api.send("POST", "/auth/logout-everywhere").ok
    site.api.forget_tokens()
    ids = disconnect(site, 2)
    wait_for_ends(site, ids)
    assert find_ends(site, ids) == [1, 1]
    commit(site, "after-the-tokens")
    comments = [message.data["comment"] for message in site.relay.wait_for_messages("commits", 2)]
    assert comments == ["for the relay"] * 2
    assert "trying again in 60 s" not in site.relay.log


def test_a_restart_of_the_core_is_a_gap_and_a_snapshot(site: Site) -> None:
    before = len(site.relay.list_messages("snapshot"))
    os.kill(core_of(site.process), signal.SIGKILL)
    parts = site.relay.wait_for_messages("snapshot", before + 1)[before:]
    wait_for("the core", lambda: serves(site.api))
    before_gap = find_numbers(site.relay.list_messages("events.*"))[0]
    boot, _, number = parts[0].data["after"].rpartition("-")
    disconnect(site, 2)
    wait_for("the next event", lambda: holds(site.relay, f"{boot}-{int(number) + 1}"))
    assert {part.data["reason"] for part in parts} == {"gap"}
    assert boot != before_gap[0]


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    """The schemas of the AsyncAPI document."""
    document: dict[str, Any] = json.loads((ROOT / "etc" / "asyncapi.json").read_text())
    return document


def test_each_message_has_the_schema_of_its_channel(site: Site, schemas: dict[str, Any]) -> None:
    names = set()
    for name, channel in schemas["channels"].items():
        (message,) = channel["messages"]
        schema = {
            "$ref": schemas["components"]["messages"][message]["payload"]["$ref"],
            "components": schemas["components"],
        }
        stored = site.relay.list_messages(channel["address"].removeprefix("gw.{gateway}."))
        for each in stored:
            jsonschema.validate(each.data, schema)
            assert each.headers.keys() >= set(
                schemas["components"]["messages"][message]["headers"]["required"]
            )
        if stored:
            names.add(name)
    assert names == schemas["channels"].keys() - {"session_up"}


# Relays of their own


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    with running_nats(tmp_path / "nats") as server:
        server.add_stream()
        yield server


def test_a_relay_without_the_role_admin_publishes_everything_but_audit_records(
    api: Api, nats: NatsServer, tmp_path: Path
) -> None:
    with running_relay(tmp_path / "relay", api, nats, role="operator") as relay:
        relay.wait_for_messages("health")
        assert api.send("DELETE", "/subscribers/999999").status_code == 404
        relay.wait_for_log("the user has the role operator: audit records are not published")
        relay.wait_for_messages("snapshot")
        time.sleep(3)
        assert relay.list_messages("audit") == []


def test_a_refused_user_is_an_error_that_is_logged_and_tried_again_after_a_minute(
    api: Api, nats: NatsServer, tmp_path: Path
) -> None:
    relay = Relay(tmp_path / "relay", api, nats)
    relay.write_password("another")
    relay.start()
    try:
        relay.wait_for_log("cannot follow the gateway's events, trying again in 60 s: ")
        relay.wait_for_log("audit records, trying again in 60 s: ")
        time.sleep(3)
        assert relay.log.count("\n") < 6
    finally:
        relay.end()


def test_the_relay_waits_for_a_gateway_that_is_not_there_yet(nats: NatsServer, tmp_path: Path) -> None:
    port = free_port()
    with running_stack(tmp_path / "state", sessions=20, PORT=port) as (api, _):
        pass
    with running_relay(tmp_path / "relay", api, nats) as relay:
        relay.wait_for_log("Connection refused")
        with running_stack(tmp_path / "state", sessions=20, PORT=port):
            relay.wait_for_messages("snapshot")
        assert relay.log.count("Connection refused") <= 6
        assert "Traceback" not in relay.log


def test_events_are_dropped_for_a_snapshot_when_the_spool_is_full(tmp_path: Path) -> None:
    with (
        running_stack(tmp_path / "state", sessions=300, arrivals=1000) as (api, _),
        running_nats(tmp_path / "nats") as nats,
    ):
        nats.add_stream()
        with running_relay(tmp_path / "relay", api, nats, "--spool-mebibytes", "1") as relay:
            began = int(relay.wait_for_messages("snapshot")[0].data["after"].rpartition("-")[2])
            nats.kill()
            relay.wait_for_log("the spool is full: dropped its ")
            nats.start()

            def find_snapshot() -> Any:
                parts = [message.data for message in relay.list_messages("snapshot")]
                return [part for part in parts if part["reason"] == "spool_full" and part["is_last"]]

            first = wait_for("the snapshot", find_snapshot)[0]
            boot, _, after = first["after"].rpartition("-")
            wait_for("the next event", lambda: holds(relay, f"{boot}-{int(after) + 1}"))
            numbers = {number for _, number in find_numbers(relay.list_messages("events.*"))}
            # What was dropped, and nothing else, is missing.
            missing = set(range(began + 1, int(after) + 1)) - numbers
            assert missing
            assert missing <= set(range(int(after) - first["dropped_events"] + 1, int(after) + 1))


def holds(relay: Relay, event: str) -> bool:
    return any(message.headers["Gateway-Event"] == event for message in relay.list_messages("events.*"))


# Connections


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NatsServer, Path]]:
    """A NATS server with TLS and a certificate for localhost, and the file of the certificate."""
    folder = tmp_path_factory.mktemp("tls")
    make_state(folder / "state")
    certificate = folder / "state" / "certificate.pem"
    text = f'tls {{ cert_file: "{certificate}", key_file: "{folder}/state/key.pem", handshake_first: true }}'
    login = {"tls": ssl.create_default_context(cafile=certificate), "tls_handshake_first": True}
    with running_nats(folder / "nats", text, login, scheme="tls") as nats:
        nats.add_stream()
        yield nats, certificate


def test_the_relay_connects_with_tls_to_a_server_with_the_pinned_certificate(
    api: Api, tls: tuple[NatsServer, Path], tmp_path: Path
) -> None:
    nats, certificate = tls
    with running_relay(tmp_path, api, nats, "--nats-ca", str(certificate), name="pinned") as relay:
        relay.wait_for_messages("snapshot")


def test_the_relay_sends_nothing_to_a_server_with_another_certificate(
    api: Api, tls: tuple[NatsServer, Path], tmp_path: Path
) -> None:
    with running_relay(tmp_path, api, tls[0], name="unpinned") as relay:
        relay.wait_for_log("certificate verify failed")
        assert relay.list_messages(">") == []


def test_the_relay_sends_nothing_to_a_server_that_does_not_ask_for_tls(
    api: Api, nats: NatsServer, tmp_path: Path
) -> None:
    nats.scheme = "tls"
    relay = Relay(tmp_path / "relay", api, nats)
    relay.start()
    nats.scheme = "nats"
    try:
        relay.wait_for_log("WRONG_VERSION_NUMBER")
        time.sleep(2)
        assert nats.list_messages() == []
        assert "connected to NATS" not in relay.log
    finally:
        relay.end()


def test_the_relay_logs_in_with_an_nkey(api: Api, tmp_path: Path) -> None:
    seed = make_seed()
    (tmp_path / "nkey").write_text(seed)
    users = f"authorization {{ users: [ {{ nkey: {find_public_key(seed)} }} ] }}"
    with running_nats(tmp_path / "nats", users, {"nkeys_seed_str": seed}) as nats:
        nats.add_stream()
        with running_relay(tmp_path / "relay", api, nats, "--nkey", str(tmp_path / "nkey")) as relay:
            relay.wait_for_messages("snapshot")


def test_the_relay_logs_in_with_a_credentials_file(api: Api, tmp_path: Path) -> None:
    permissions = {"pub": {"allow": ["gw.bng-1.>"]}, "sub": {"allow": ["_INBOX.bng-1.>"]}}
    configuration, (of_tests, of_relay) = make_jwt_users({}, permissions)
    (tmp_path / "relay.creds").write_text(of_relay)
    login = {"user_credentials": RawCredentials(of_tests)}
    with running_nats(tmp_path / "nats", configuration, login) as nats:
        nats.add_stream()
        options = ("--credentials", str(tmp_path / "relay.creds"))
        with running_relay(tmp_path / "relay", api, nats, *options) as relay:
            relay.wait_for_messages("snapshot")


def test_the_relay_ends_with_its_jwt_so_that_systemd_starts_it_with_the_next_one(
    api: Api, tmp_path: Path
) -> None:
    configuration, (of_tests, of_relay) = make_jwt_users({}, {"exp": round(time.time()) + 15})
    (tmp_path / "relay.creds").write_text(of_relay)
    with running_nats(
        tmp_path / "nats", configuration, {"user_credentials": RawCredentials(of_tests)}
    ) as nats:
        nats.add_stream()
        options = ("--credentials", str(tmp_path / "relay.creds"))
        with running_relay(tmp_path / "relay", api, nats, *options) as relay:
            relay.wait_for_log("closed the connection for good")
            assert relay.process is not None
            assert relay.process.wait(PATIENCE) == 1


def test_a_refused_relay_logs_each_error_once_and_continues_when_it_is_permitted(
    api: Api, tmp_path: Path
) -> None:
    administrator, seed = make_seed(), make_seed()
    (tmp_path / "nkey").write_text(seed)
    user = (
        f'{{ nkey: {find_public_key(seed)}, permissions: {{ publish: none, subscribe: "_INBOX.bng-1.>" }} }}'
    )
    users = f"authorization {{ users: [ {{ nkey: {find_public_key(administrator)} }}, {user} ] }}"
    with running_nats(tmp_path / "nats", users, {"nkeys_seed_str": administrator}) as nats:
        nats.add_stream()
        with running_relay(tmp_path / "relay", api, nats, "--nkey", str(tmp_path / "nkey")) as relay:
            relay.wait_for_log("check the stream, and the permissions for gw.bng-1.>")
            configuration = nats.folder / "nats.conf"
            text = configuration.read_text()
            configuration.write_text(text.replace(user, ""))
            nats.signal(signal.SIGHUP)
            relay.wait_for_log("Authorization Violation")
            time.sleep(2)
            assert relay.log.count("permissions violation for publish") == 1
            assert relay.log.count("Authorization Violation") == 1
            configuration.write_text(text.replace("publish: none", 'publish: "gw.bng-1.>"'))
            nats.signal(signal.SIGHUP)
            relay.wait_for_messages("snapshot")
