"""Three gateways with their cores and APIs, their relays, a cluster of three NATS servers and the consumer of
the examples, while all of them are killed."""

import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet_consumer import program
from tests.support.nats import make_stream, running_cluster, use_jetstream
from tests.support.relay import Relay
from tests.support.sse import master_of
from tests.support.stack import Api, core_of, running_stack, wait_for
from tests.support.troubled_fleet import Program, find_leader

KILLS = {"relay": 15, "core": 8, "API": 8, "server": 8, "leader": 8, "consumer": 8}
COMMITS = 12


def list_open_sessions(api: Api) -> dict[int, tuple[str, str]]:
    sessions = api.get("/subscribers", params={"limit": 2000})["sessions"]
    return {each["id"]: (each["username"], each["ip_address"]) for each in sessions}


def list_stored_sessions(database: Any, name: str) -> dict[int, tuple[str, str]]:
    rows = database.execute(
        "SELECT id, username, ip_address FROM session WHERE gateway = :name AND ended_at IS NULL"
        " AND ended_before IS NULL",
        name=name,
    ).fetchall()
    return {id: (username, address) for id, username, address in rows}


def check_log(rows: list[Any]) -> tuple[int, int]:
    """Return the numbers of events and snapshots in a consumer's log. Fails if an event of a gateway is
    missing or applied twice: a snapshot may leave out the events of an earlier boot only."""
    last: dict[str, tuple[str, int]] = {}
    snapshots = 0
    for gateway, boot, sequence, reason in rows:
        if reason is None:
            assert (boot, sequence - 1) == last[gateway], (gateway, boot, sequence, last[gateway])
        else:
            snapshots += 1
            assert reason == ("gap" if gateway in last else "first_contact")
            assert gateway not in last or last[gateway][0] != boot
        last[gateway] = boot, sequence
    return len(rows) - snapshots, snapshots


@pytest.mark.timeout(1800)
def test_a_consumer_has_what_real_gateways_have(tmp_path: Path) -> None:
    chance = random.Random(1)
    with ExitStack() as stack:
        servers = stack.enter_context(running_cluster(tmp_path / "nats"))
        urls = [server.url for server in servers]
        config = make_stream(num_replicas=3)
        use_jetstream(urls, lambda jetstream: jetstream.add_stream(config))
        options = tuple(word for url in urls[1:] for word in ("--nats", url))
        apis, gateways, relays = [], [], []
        for number in (1, 2, 3):
            api, process = stack.enter_context(
                running_stack(tmp_path / f"bng{number}", sessions=300, arrivals=1)
            )
            relay = Relay(tmp_path / f"relay{number}", api, servers[0], options, name=f"bng{number}")
            relay.start()
            stack.callback(lambda relay=relay: relay.end())
            apis.append(api)
            gateways.append(process)
            relays.append(relay)
        path = str(tmp_path / "history.sqlite")
        command = [sys.executable, "-m", "tests.support.fleet_consumer", "follow", "--database", path]
        consumer = Program(
            [*command, *(word for url in urls for word in ("--nats", url))], tmp_path / "consumer.log"
        )
        consumer.start()
        stack.callback(consumer.kill)
        wait_for("the consumer's database", lambda: Path(path).exists())
        time.sleep(1)
        database = program.Database(path)
        stack.callback(database.connection.close)

        def is_equal() -> bool:
            consumer.tend()
            for number, api in enumerate(apis, 1):
                try:
                    if list_open_sessions(api) != list_stored_sessions(database, f"bng{number}"):
                        return False
                except (OSError, AssertionError, *program.DATABASE_ERRORS):
                    return False
            return True

        def kill(kind: str) -> None:
            number = chance.randrange(3)
            if kind == "relay":
                relays[number].end()
                time.sleep(chance.random())
                relays[number].start()
            elif kind in ("core", "API"):
                find = core_of if kind == "core" else master_of
                # The starter runs it again.
                os.kill(find(gateways[number]), signal.SIGKILL)
            elif kind == "consumer":
                consumer.kill()
                time.sleep(chance.random())
                consumer.start()
            else:
                server = servers[number] if kind == "server" else find_leader(servers)
                server.kill()
                time.sleep(chance.uniform(0, 3))
                server.start()
                find_leader(servers)

        def commit(number: int) -> None:
            """Commit, with another host name each time."""
            api = apis[number % 3]
            edit = {"path": "system.hostname", "value": f"host{number}"}
            assert api.send("POST", "/system/config/set", json=edit).ok
            assert api.send("POST", "/system/config/commit", json={"comment": f"commit {number}"}).ok

        wait_for("the first snapshots", is_equal)
        kinds = [kind for kind, count in KILLS.items() for _ in range(count)]
        chance.shuffle(kinds)
        commit_after = set(chance.sample(range(len(kinds)), COMMITS))
        slowest: Counter[str] = Counter()
        for step, kind in enumerate(kinds):
            kill(kind)
            began = time.monotonic()
            wait_for(f"the consumer after the kill of a {kind}", is_equal)
            slowest[kind] = max(slowest[kind], time.monotonic() - began)
            if step in commit_after:
                commit(step)
        wait_for("the last commits", lambda: len(list_commits(servers)) >= COMMITS)
        assert Counter(list_commits(servers)) == Counter(f"commit {step}" for step in commit_after)
        rows = database.execute(
            "SELECT gateway, boot, sequence, reason FROM applied ORDER BY number"
        ).fetchall()
        events, snapshots = check_log(rows)
        print(f"{KILLS}: {events} events, {snapshots} snapshots, slowest {dict(slowest)}")


def list_commits(servers: Any) -> list[str]:
    return [message.data["comment"] for message in servers[0].list_messages("gw.*.commits")]
