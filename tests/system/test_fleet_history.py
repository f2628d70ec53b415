"""The example consumer, which keeps the history of all gateways in SQLite or in PostgreSQL."""

import itertools
import json
import random
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gateway_relay.messages import EVENT_HEADER, ID_HEADER, Message, Reason, Snapshot, make_event, make_part
from tests.support.manual import steps
from tests.support.nats import NatsServer, running_nats
from tests.support.postgresql import running_postgresql
from tests.support.stack import PATIENCE, wait_for

PROGRAM = Path(__file__).parents[2] / "etc" / "examples" / "fleet_history.py"
ADMINISTRATION = PROGRAM.with_name("fleet_stream.py")
#: Noon of a day.
NOON = 1_795_262_400


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    with running_postgresql() as url:
        yield url


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with running_nats(tmp_path_factory.mktemp("nats")) as server:
        yield server


class Site:
    """A stream, and a consumer that writes its history to a database."""

    def __init__(self, nats: NatsServer, database: str, folder: Path) -> None:
        self.nats = nats
        self.database = database
        self.folder = folder
        self.consumer: subprocess.Popen[bytes] | None = None
        self._sent = 0

    def run(self, program: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, str(program), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)

    def create_stream(self) -> None:
        created = self.run(ADMINISTRATION, "create-stream", "--nats", self.nats.url, "--gibibytes", "1")
        assert (created.returncode, created.stderr) == (0, "")

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.consumer = subprocess.Popen(
                [sys.executable, PROGRAM, "follow", "--nats", self.nats.url, "--database", self.database],
                stderr=log,
            )

    def kill(self) -> None:
        if self.consumer is not None:
            self.consumer.kill()
            self.consumer.wait(PATIENCE)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def publish(self, *messages: Message, gateway: str = "bng1") -> None:
        """Publish messages of the relay of a gateway, in this order."""

        async def publish(jetstream: Any) -> None:
            for message in messages:
                # A relay that was away for long sends a message again after the duplicate window.
                self._sent += 1
                headers = {ID_HEADER: f"{self._sent}"}
                if message.event is not None:
                    headers[EVENT_HEADER] = message.event
                await jetstream.publish_async(
                    f"gw.{gateway}.{message.subject}", message.body, headers=headers
                )
            await jetstream.publish_async_completed()

        self.nats.use(publish)

    def query(self, query: str) -> list[tuple[Any, ...]]:
        if self.database.startswith("postgresql:"):
            with psycopg.connect(self.database) as connection:
                return connection.execute(query).fetchall()
        with closing(sqlite3.connect(self.database, timeout=PATIENCE)) as connection:
            return connection.execute(query).fetchall()

    def wait_until_read(self) -> None:
        """Wait until the consumer has read all messages."""
        last = self.nats.use(lambda jetstream: jetstream.stream_info("gateways")).state.last_seq

        def has_read() -> bool:
            assert self.consumer is not None
            assert self.consumer.poll() is None, self.log
            try:
                return self.query("SELECT sequence FROM place") == [(last,)]
            except (sqlite3.Error, psycopg.Error):
                return False

        wait_for("the history", has_read)

    def list_ends(self) -> list[tuple[Any, ...]]:
        return self.query(
            "SELECT id, started_at, ended_at, ended_after, ended_before FROM session ORDER BY 2, 1"
        )

    def find(self, address: str, *options: str) -> list[list[str]]:
        found = self.run(PROGRAM, "who", address, "--database", self.database, *options)
        assert found.returncode == (0 if found.stdout.count("\n") > 1 else 1), found.stderr
        return [line.split(maxsplit=5) for line in found.stdout.splitlines()[1:]]


@pytest.fixture(params=["sqlite", "postgresql"])
def site(request: pytest.FixtureRequest, nats: NatsServer, tmp_path: Path) -> Iterator[Site]:
    database = str(tmp_path / "history.sqlite")
    if request.param == "postgresql":
        database = request.getfixturevalue("postgresql")
        with psycopg.connect(database) as connection:
            connection.execute("DROP TABLE IF EXISTS session, gateway, place")
    site = Site(nats, database, tmp_path)
    site.create_stream()
    try:
        yield site
    finally:
        site.kill()
        nats.use(lambda jetstream: jetstream.delete_stream("gateways"))


def up(id: int, at: int, boot: str = "a", sequence: int | None = None, **more: Any) -> Message:
    data = {
        "id": id,
        "type": "PPPoE",
        "username": f"user{id}",
        "ip_address": f"100.64.0.{id % 250}",
        "at": at,
    }
    data |= {"mac_address": f"02:00:00:00:00:{id % 256:02x}", "access_interface": "trunk0.1000"}
    return make_event(f"{boot}-{sequence or id}", "session_up", data | more)


def down(id: int, at: int, started: int, boot: str = "a", sequence: int = 0) -> Message:
    data = {
        "id": id,
        "username": f"user{id}",
        "reason": "user_request",
        "at": at,
        "bytes_in": 1,
        "bytes_out": 2,
    }
    data |= {"mac_address": None, "access_interface": "trunk0.1000", "duration_seconds": at - started}
    return make_event(f"{boot}-{sequence}", "session_down", data)


def listed(id: int, started: int) -> dict[str, Any]:
    session = {"id": id, "username": f"user{id}", "ip_address": f"100.64.0.{id % 250}", "started_at": started}
    return session | {"mac_address": None, "access_interface": "trunk0.1000", "delegated_prefixes": []}


def part(
    after: str, sessions: list[dict[str, Any]], number: int = 1, attempt: str = "", last: bool = True
) -> Message:
    return make_part(Snapshot(Reason.GAP, after), attempt or f"after-{after}", number, sessions, is_last=last)


def test_each_event_counts_once_although_the_consumer_is_killed_and_events_come_twice_and_late(
    site: Site,
) -> None:
    chance = random.Random(1)
    events, sessions = [], {}
    for number in range(1, 501):
        started, ended = NOON + number, NOON + number + 300
        events += [up(number, started, sequence=2 * number - 1)]
        events += [down(number, ended, started, sequence=2 * number)]
        sessions[number] = (number, started, ended, None, None)
    site.publish(part("a-0", []))
    for first in range(0, len(events), 250):
        site.start()
        window = events[first : first + 250]
        again = chance.sample(window, 50)
        chance.shuffle(window)
        site.publish(*window, *again)
        # As far as it comes.
        time.sleep(chance.random())
        site.kill()
    site.start()
    site.wait_until_read()
    assert site.list_ends() == list(sessions.values())
    assert site.log == ""


def test_a_snapshot_tells_which_sessions_have_ended_and_a_later_event_tells_when(site: Site) -> None:
    site.start()
    site.publish(part("a-0", [listed(1, NOON), listed(2, NOON)]), up(3, NOON + 50, sequence=1))
    # The core has restarted: 1 has ended, 2 and 4 are up. 4 ends after the list was read.
    site.publish(part("b-7", [listed(2, NOON)], attempt="half", last=False))
    site.publish(part("b-7", [listed(2, NOON)], last=False), part("b-7", [listed(4, NOON + 90)], 2))
    site.publish(up(3, NOON + 50, sequence=1), down(4, NOON + 99, NOON + 90, "b", 8))
    site.wait_until_read()
    one, two, three, four = site.list_ends()
    assert (two[1:], four[1:]) == ((NOON, None, None, None), (NOON + 90, NOON + 99, None, None))
    now = time.time()
    for ended, started in ((one, NOON), (three, NOON + 50)):
        # The last event before the snapshot had the time NOON + 50.
        assert ended[1:4] == (started, None, NOON + 50)
        assert now - PATIENCE < ended[4] <= now
    # 1 was up when the core restarted, and ended before the list was read.
    site.publish(down(1, NOON + 80, NOON, "b", 9))
    site.wait_until_read()
    assert site.list_ends()[0] == (1, NOON, NOON + 80, None, None)


def test_a_snapshot_that_comes_again_or_in_part_changes_nothing(site: Site) -> None:
    site.start()
    listed_parts = [part("a-5", [listed(1, NOON)], last=False), part("a-5", [listed(2, NOON)], 2)]
    site.publish(*listed_parts, up(3, NOON + 9, sequence=6), down(2, NOON + 9, NOON, sequence=7))
    site.publish(*listed_parts)
    site.publish(part("a-7", [listed(3, NOON + 9)], 2, attempt="late"))
    site.publish(up(4, NOON + 10, sequence=8))
    site.wait_until_read()
    assert [(id, ended, before) for id, _, ended, _, before in site.list_ends()] == [
        (1, None, None),
        (2, NOON + 9, None),
        (3, None, None),
        (4, None, None),
    ]


def test_a_snapshot_of_a_former_run_that_comes_late_changes_nothing(site: Site) -> None:
    site.start()
    site.publish(part("a-5", [listed(1, NOON)]), part("b-0", [listed(2, NOON + 9)]))
    site.publish(part("a-5", [listed(1, NOON)], attempt="late"))
    site.publish(up(3, NOON + 10, "b", 1))
    site.wait_until_read()
    assert [(id, before is None) for id, *_, before in site.list_ends()] == [
        (1, False),
        (2, True),
        (3, True),
    ]


def test_a_session_keeps_one_row_if_the_list_has_an_earlier_start_than_its_event(site: Site) -> None:
    site.start()
    site.publish(part("a-0", []), up(1, NOON + 20, sequence=1))
    site.publish(part("b-0", [listed(1, NOON), listed(2, NOON)]))
    # 2 was announced before the list was read, and comes after it.
    site.publish(up(2, NOON + 20, "b", 1), down(2, NOON + 30, NOON, "b", 2))
    site.wait_until_read()
    assert site.list_ends() == [(1, NOON, None, None, None), (2, NOON, NOON + 30, None, None)]


def test_the_holders_of_an_address_are_found_on_all_gateways_at_a_time(site: Site) -> None:
    site.start()
    site.publish(part("a-0", []), up(1, NOON, sequence=1), down(1, NOON + 60, NOON, sequence=2))
    site.publish(part("c-0", [listed(1, NOON + 30)]), gateway="bng2")
    site.publish(up(251, NOON + 90, sequence=3))
    site.wait_until_read()
    start = ["2026-11-21T12:00:00Z", "2026-11-21T12:00:30Z", "2026-11-21T12:01:30Z"]
    mac_addresses = ["02:00:00:00:00:01", "-", "02:00:00:00:00:fb"]
    first = ["bng1", "1", "user1", mac_addresses[0], start[0], "2026-11-21T12:01:00Z"]
    second = ["bng2", "1", "user1", mac_addresses[1], start[1], "up"]
    third = ["bng1", "251", "user251", mac_addresses[2], start[2], "up"]
    assert site.find("100.64.0.1") == [third, second, first]
    assert site.find("100.64.0.1", "--at", "2026-11-21T12:00:45Z") == [second, first]
    assert site.find("100.64.0.1", "--at", str(NOON + 10)) == [first]
    assert site.find("100.64.0.1", "--at", str(NOON - 1)) == []
    site.publish(part("c-9", []), gateway="bng2")
    site.wait_until_read()
    assert site.find("100.64.0.1")[1][5].startswith("between 2026-")


@pytest.mark.parametrize("site", ["postgresql"], indirect=True)
def test_the_statement_of_the_page_removes_sessions_that_ended_long_ago(site: Site) -> None:
    now = int(time.time())
    ages = [days * 86_400 for days in (200, 181, 179)]
    site.start()
    site.publish(part("a-0", []))
    for id, age in enumerate(ages, 1):
        site.publish(up(id, now - age - 60, sequence=2 * id - 1))
        site.publish(down(id, now - age, now - age - 60, sequence=2 * id))
    site.publish(up(4, now - ages[0], sequence=7))
    site.wait_until_read()
    with psycopg.connect(site.database) as connection:
        connection.execute(steps("how-to/nats-cluster.md", "sql")["Keep the history"])
    assert [id for id, *_ in site.list_ends()] == [4, 3]


def test_messages_that_were_removed_before_they_were_read_are_named_and_new_ones_count(site: Site) -> None:
    site.start()
    site.publish(part("a-0", []), up(1, NOON, sequence=1))
    site.wait_until_read()
    site.kill()
    site.publish(up(2, NOON, sequence=2), up(3, NOON, sequence=3))
    site.nats.use(lambda jetstream: jetstream.purge_stream("gateways"))
    site.publish(up(4, NOON, sequence=4))
    site.start()
    site.wait_until_read()
    assert [row[0] for row in site.list_ends()] == [1, 4]
    assert "messages 3 to 4 were removed from the stream before they were read" in site.log


#: Values that no relay sends.
WRONG = (None, True, -1, 1.5, 1 << 70, 1 << 40, "\0", "\ud800", [], {}, False, [[]])


def check_others_grow(site: Site, *messages: Message) -> None:
    """Check that the rows of other gateways grow after these messages of the gateway `broken`."""
    site.start()
    site.publish(part("a-0", []))
    site.publish(*messages, gateway="broken")
    site.publish(up(7, NOON, sequence=1))
    site.wait_until_read()
    assert site.query("SELECT id FROM session WHERE gateway = 'bng1'") == [(7,)]
    assert "Traceback" not in site.log
    # What the gateway has sent can be shown.
    for id in (1, 5):
        site.find(f"100.64.0.{id}")


@pytest.mark.parametrize("good", [up(1, NOON), down(1, NOON, NOON - 9)], ids=lambda good: str(good.subject))
def test_events_with_wrong_values_harm_only_their_gateway(site: Site, good: Message) -> None:
    data = json.loads(good.body)
    bodies = [b"", b"{", b"[" * 100_000, b"[]", b"null", b"1", b'"id"', b"{}"]
    bodies += [json.dumps(data | {field: value}).encode() for field, value in itertools.product(data, WRONG)]
    messages = []
    for number, body in enumerate(bodies):
        # So that each of them is the next event.
        messages += [part(f"boot{number}-0", []), Message("", good.subject, body, f"boot{number}-1")]
    check_others_grow(site, *messages)
    assert f"ignored a message on gw.broken.{good.subject}" in site.log


def test_wrong_ids_of_events_harm_only_their_gateway(site: Site) -> None:
    ids = ("a\0a-1", None, "", "a", "a-b", "a-9" * 2000, "a-" + "9" * 4300, "a--1", "\u00e9-1")
    messages = [Message("", "events.session_up", up(1, NOON).body, each) for each in ids]
    listing = json.loads(part("a-0", [listed(1, NOON)]).body)
    for after in ("a\0a-1", "a-" + "9" * 900, "\ud800-1"):
        messages.append(Message("", "snapshot", json.dumps(listing | {"after": after}).encode()))
    check_others_grow(site, *messages)


def test_wrong_snapshots_harm_only_their_gateway(site: Site) -> None:
    messages = [
        Message("", subject, b"{}", "a-1") for subject in ("events", "events.other", "snapshot", "snapshot.x")
    ]
    session = listed(1, NOON)
    listing = json.loads(part("a-0", [session]).body)
    for number, (field, value) in enumerate(itertools.product(session, WRONG)):
        body = listing | {"after": f"boot{number}-0", "sessions": [session | {field: value}]}
        messages.append(Message("", "snapshot", json.dumps(body).encode()))
    for field, value in itertools.product(listing, (*WRONG, 7, "\0-1", [1], [{}])):
        messages.append(Message("", "snapshot", json.dumps(listing | {field: value}).encode()))
    check_others_grow(site, *messages)


def test_messages_that_look_like_a_status_of_the_server_harm_only_their_gateway(site: Site) -> None:
    async def publish(jetstream: Any) -> None:
        for status in ("408", "100", "500", "503"):
            headers = {ID_HEADER: f"status-{status}", "Status": status}
            await jetstream.publish("gw.broken.snapshot", b"", headers=headers)
            await jetstream.publish("gw.broken.commits", b"", headers={ID_HEADER: f"after-{status}"})

    # The first message of the stream is not number 1.
    site.publish(part("a-0", []))
    site.nats.use(lambda jetstream: jetstream.purge_stream("gateways"))
    site.nats.use(publish)
    site.start()
    site.publish(part("a-0", []), up(7, NOON, sequence=1))
    site.wait_until_read()
    site.nats.use(publish)
    site.publish(*(up(id, NOON, sequence=id - 6) for id in range(8, 60)))
    site.wait_until_read()
    assert len(site.list_ends()) == 53
    assert "ignored a message on gw.broken.snapshot that no relay sends" in site.log


def test_the_stream_refuses_subjects_that_no_relay_uses(site: Site) -> None:
    with socket.create_connection(("127.0.0.1", site.nats.port)) as connection:
        connection.sendall(b"CONNECT {}\r\nPUB gw.broken.\xff 2\r\n{}\r\nPING\r\n")
        with connection.makefile("rb") as replies:
            assert b"PONG\r\n" in iter(replies.readline, b"")
    check_others_grow(site)


def test_snapshots_that_contradict_each_other_harm_only_their_gateway(site: Site) -> None:
    check_others_grow(
        site,
        part("a-0", [listed(5, 100), listed(5, 130)]),
        part("b-0", [listed(5, 100)]),
        down(5, 200, 100, "b", 1),
        up(5, 190, "b", 2),
        part("c-0", [listed(5, 150)]),
        part("d-0", [listed(5, 100), listed(5, 100)]),
    )


def test_a_session_that_is_listed_again_keeps_its_row(site: Site) -> None:
    site.start()
    site.publish(part("a-0", []), up(1, NOON + 9, sequence=1), down(1, NOON + 20, NOON + 9, sequence=2))
    site.publish(part("b-0", [listed(1, NOON + 9)]))
    site.wait_until_read()
    assert site.list_ends() == [(1, NOON + 9, None, None, None)]


def test_an_event_that_never_comes_does_not_stop_its_gateway(site: Site) -> None:
    site.start()
    site.publish(part("a-0", []), up(1, NOON, sequence=1))
    site.publish(
        *(make_event(f"a-{number}", "session_rate", {"id": 1, "at": NOON}) for number in range(3, 5010))
    )
    site.publish(up(2, NOON, sequence=5010))
    site.wait_until_read()
    assert [row[0] for row in site.list_ends()] == [1, 2]
    assert "bng1: event 2 is missing, going on without it" in site.log


def test_a_second_consumer_of_the_same_database_ends_with_a_sentence(site: Site) -> None:
    site.start()
    site.publish(part("a-0", []))
    site.wait_until_read()
    second = Site(site.nats, site.database, site.folder)
    second.start()
    assert second.consumer is not None

    def has_ended() -> bool:
        site.publish(up(1, NOON))
        return None not in (site.consumer.poll(), second.consumer.poll()) or (
            "another process writes" in site.log
        )

    wait_for("one of the two to end", has_ended)
    second.kill()
    assert "Traceback" not in site.log
