"""Keeps the history of the sessions of many gateways, and answers who had an address at a time.

Each gateway has a relay, which publishes what happens to a stream of NATS JetStream. This program reads the
stream, and writes a row for each session to SQLite or PostgreSQL:

    python3 fleet_history.py follow --nats tls://nats1.example.net:4222
    python3 fleet_history.py who 100.64.0.5 --at 2026-11-20T18:00:00Z

--help lists the options. The program requires nats-py[nkeys], and psycopg for PostgreSQL. fleet_stream.py
creates the stream.

Each event counts once: the rows, the position in the stream, and the last event of each gateway are written
in one transaction. A relay may publish an event twice, or after later events, which then wait here.
"""

import argparse
import asyncio
import json
import logging
import os
import re
import sqlite3
import ssl
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

try:
    import psycopg
except ImportError:
    psycopg = None

STREAM = "gateways"
SCHEMA = """
CREATE TABLE IF NOT EXISTS session (
    gateway TEXT, id BIGINT, started_at BIGINT, ended_at BIGINT, ended_after BIGINT, ended_before BIGINT,
    reason TEXT, username TEXT, ip_address TEXT, mac_address TEXT, access_interface TEXT, bytes_in BIGINT,
    bytes_out BIGINT, boot TEXT, snapshot TEXT, PRIMARY KEY (gateway, id, started_at));
CREATE INDEX IF NOT EXISTS session_address ON session (ip_address, started_at);
CREATE INDEX IF NOT EXISTS session_up ON session (gateway) WHERE ended_at IS NULL AND ended_before IS NULL;
CREATE TABLE IF NOT EXISTS gateway (name TEXT PRIMARY KEY, state TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS place (stream TEXT NOT NULL, sequence BIGINT NOT NULL)
"""
SAVE_GATEWAY = """INSERT INTO gateway VALUES (:name, :state)
    ON CONFLICT (name) DO UPDATE SET state = excluded.state"""
SAVE_PLACE = "UPDATE place SET sequence = :after WHERE stream = :stream AND sequence = :before"
# A snapshot may have brought the session before.
ADD_STARTED = """INSERT INTO session
    (gateway, boot, id, started_at, username, ip_address, mac_address, access_interface)
    SELECT :gateway, :boot, :id, :at, :username, :ip_address, :mac_address, :access_interface
    WHERE NOT EXISTS (SELECT 1 FROM session WHERE gateway = :gateway AND boot = :boot AND id = :id
        AND started_at BETWEEN :earliest AND :at)
    ON CONFLICT DO NOTHING"""
END = """UPDATE session SET ended_at = :at, ended_after = NULL, ended_before = NULL, reason = :reason,
    bytes_in = :bytes_in, bytes_out = :bytes_out
    WHERE gateway = :gateway AND id = :id AND started_at = (SELECT min(started_at) FROM session
        WHERE gateway = :gateway AND id = :id AND ended_at IS NULL
        AND started_at >= :started_at)"""
# Without an address: the start was before this program read the stream.
ADD_ENDED = """INSERT INTO session (gateway, boot, id, started_at, username, mac_address, access_interface,
        ended_at, reason, bytes_in, bytes_out)
    VALUES (:gateway, :boot, :id, :started_at, :username, :mac_address, :access_interface,
        :at, :reason, :bytes_in, :bytes_out)
    ON CONFLICT DO NOTHING"""
# An event may have brought the session before, with a later start.
LIST_KNOWN = """UPDATE session SET started_at = :started_at, ip_address = :ip_address, boot = :boot,
    snapshot = :snapshot, ended_at = NULL, ended_after = NULL, ended_before = NULL, reason = NULL
    WHERE gateway = :gateway AND id = :id AND started_at = (SELECT min(started_at) FROM session
        WHERE gateway = :gateway AND id = :id AND (started_at = :started_at OR username = :username
            AND ended_at IS NULL AND started_at BETWEEN :started_at AND :latest))"""
ADD_LISTED = """INSERT INTO session
    (gateway, boot, snapshot, id, started_at, username, ip_address, mac_address, access_interface)
    VALUES (:gateway, :boot, :snapshot, :id, :started_at, :username, :ip_address, :mac_address,
        :access_interface)"""
END_UNLISTED = """UPDATE session SET ended_before = :at,
    ended_after = CASE WHEN started_at > :seen_at THEN started_at ELSE :seen_at END
    WHERE gateway = :gateway AND ended_at IS NULL AND ended_before IS NULL
        AND (snapshot IS NULL OR snapshot <> :snapshot)"""
FIND_HOLDERS = """SELECT gateway, id, username, mac_address, started_at, ended_at, ended_after, ended_before
    FROM session WHERE ip_address = :address AND started_at <= :until
        AND (ended_at >= :since OR ended_at IS NULL AND (ended_before IS NULL OR ended_before >= :since))
    ORDER BY started_at DESC LIMIT 50"""
# A gateway announces a session at most this long after its start.
ANNOUNCED_SECONDS = 60
# Messages of one transaction. The first one waits at most this long for others.
BATCH_MESSAGES, BATCH_SECONDS = 500, 0.2
# Events that wait for an earlier event of their gateway. A relay has at most 500 messages on their way.
MAX_EARLY_EVENTS = 5000
# Fields that are read.
_START = "id", "at", "username", "ip_address", "mac_address", "access_interface"
_END = "id", "at", "username", "mac_address", "access_interface", "reason", "bytes_in", "bytes_out"
FIELDS = {
    "session_up": _START,
    "session_down": (*_END, "duration_seconds"),
    "session_rate": ("id", "at"),
    "listed": (*_START[:1], "started_at", *_START[2:]),
}
NUMBERS = {"id", "bytes_in", "bytes_out"}
SECONDS = {"at", "started_at", "duration_seconds"}

DATABASE_ERRORS = (sqlite3.Error, psycopg.Error) if psycopg else (sqlite3.Error,)

log = logging.getLogger("fleet_history")


class Database:
    """Database at a path (SQLite), or at a URL that begins with postgresql:// (PostgreSQL)."""

    def __init__(self, url: str) -> None:
        self.connection: Any
        self.is_postgresql = url.startswith("postgresql://")
        if self.is_postgresql:
            if psycopg is None:
                sys.exit("PostgreSQL requires psycopg: pip install 'psycopg[binary]'")
            self.connection = psycopg.connect(url)
        else:
            self.connection = sqlite3.connect(url, timeout=30)
            self.connection.execute("PRAGMA journal_mode = WAL")

    def execute(self, query: str, **values: Any) -> Any:
        if self.is_postgresql:
            query = re.sub(r":(\w+)", r"%(\1)s", query)
        return self.connection.execute(query, values)


@dataclass
class Gateway:
    """State of reading one gateway: the last event, `early` events by their sequence, and how many parts of
    which snapshot have arrived. `seen_at` is the time of the last event or snapshot, in epoch seconds, and
    `former_boots` are the runs of the core before `boot`."""

    boot: str
    sequence: int
    seen_at: int = 0
    snapshot: str = ""
    parts: int = 0
    early: dict[str, Any] = field(default_factory=dict)
    former_boots: list[str] = field(default_factory=list)


class History:
    """History in a database. The caller adds all messages in the order of the stream."""

    def __init__(self, database: Database) -> None:
        self.execute, self.commit = database.execute, database.connection.commit
        for statement in SCHEMA.split(";"):
            self.execute(statement)
        self.commit()
        rows = self.execute("SELECT name, state FROM gateway").fetchall()
        self.gateways = {name: Gateway(**json.loads(state)) for name, state in rows}
        self.stream: str
        self.position: int
        self.stream, self.position = self.execute("SELECT stream, sequence FROM place").fetchone() or ("", 0)

    def open_stream(self, created: str) -> None:
        """Continue in the stream that was created at this time, or begin to read a new stream."""
        if created != self.stream:
            self.execute("DELETE FROM place")
            self.execute("INSERT INTO place VALUES (:created, 0)", created=created)
            self.commit()
            self.stream, self.position = created, 0

    def add(self, messages: list[Msg]) -> None:
        """Add messages in one transaction. Raises RuntimeError if another process has added messages."""
        before, changed = self.position, set()
        for message in messages:
            sequence = message.metadata.sequence.stream
            if sequence > self.position:
                self._move_to(sequence)
                changed.add(self._add(message))
        for name in changed & self.gateways.keys():
            self.execute(SAVE_GATEWAY, name=name, state=json.dumps(asdict(self.gateways[name])))
        saved = self.execute(SAVE_PLACE, after=self.position, stream=self.stream, before=before)
        if saved.rowcount != 1:
            raise RuntimeError("another process writes to this database; stop one of the two")
        self.commit()

    def skip_message(self, sequence: int) -> None:
        """Go on after this message of the stream."""
        before = self.position
        self._move_to(sequence)
        self.execute(SAVE_PLACE, after=sequence, stream=self.stream, before=before)
        self.commit()

    def _move_to(self, sequence: int) -> None:
        if self.position and sequence > self.position + 1:
            log.error(
                "messages %d to %d were removed from the stream before they were read: sessions may be "
                "missing until the next snapshots; to get them, stop the relays, delete their spools, and "
                "start them",
                *(self.position + 1, sequence - 1),
            )
            self.gateways.clear()
            self.execute("DELETE FROM gateway")
        self.position = sequence

    def _add(self, message: Msg) -> str:
        """Add a message, and return the name of its gateway."""
        # The servers check the subject. Everything else can be wrong if somebody broke into the gateway.
        _, name, kind, *event = [*message.subject.split("."), "", ""]
        headers = message.headers or {}
        try:
            if "Nats-Msg-Id" not in headers:
                raise ValueError("no Nats-Msg-Id")
            if kind == "events":
                boot, sequence = parse_event_id(headers["Gateway-Event"])
                self._add_event(name, boot, sequence, event[0], parse(event[0], json.loads(message.data)))
            elif kind == "snapshot":
                self._add_part(name, json.loads(message.data), int(message.metadata.timestamp.timestamp()))
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            log.error("ignored a message on %s that no relay sends: %r", message.subject, error)
        return name

    def _add_event(self, name: str, boot: str, sequence: int, kind: str, values: dict[str, Any]) -> None:
        gateway = self.gateways.setdefault(name, Gateway(boot, sequence - 1))
        # A known sequence: a duplicate. Another boot: a duplicate, too, from before a snapshot.
        if boot == gateway.boot and sequence > gateway.sequence:
            gateway.early[str(sequence)] = kind, values
            self._add_events(name, gateway)
        if len(gateway.early) > MAX_EARLY_EVENTS:
            log.error("%s: event %d is missing, going on without it", name, gateway.sequence + 1)
            gateway.sequence = min(map(int, gateway.early)) - 1
            self._add_events(name, gateway)

    def _add_events(self, name: str, gateway: Gateway) -> None:
        """Add the events that follow the last one without a hole."""
        while event := gateway.early.pop(str(gateway.sequence + 1), None):
            kind, values = event[0], event[1] | {"gateway": name, "boot": gateway.boot}
            gateway.sequence += 1
            gateway.seen_at = values["at"]
            if kind == "session_up":
                self.execute(ADD_STARTED, earliest=values["at"] - ANNOUNCED_SECONDS, **values)
            elif kind == "session_down":
                values["started_at"] = values["at"] - values["duration_seconds"]
                if self.execute(END, **values).rowcount == 0:
                    self.execute(ADD_ENDED, **values)

    def _add_part(self, name: str, part: dict[str, Any], at: int) -> None:
        (boot, sequence), id = parse_event_id(part["after"]), check_text(part["id"])
        gateway = self.gateways.setdefault(name, Gateway(boot, sequence))
        if boot == gateway.boot and sequence < gateway.sequence:
            return  # After a power cut, a relay may publish an old snapshot again.
        if boot in gateway.former_boots:
            return  # A server that hung has stored an old snapshot late.
        if part["part"] == 1:
            # A relay sends a snapshot after everything before it: events that are missing now were dropped.
            for early in sorted(map(int, gateway.early)):
                gateway.sequence = max(gateway.sequence, early - 1)
                self._add_events(name, gateway)
            gateway.snapshot, gateway.parts = id, 0
        if (gateway.snapshot, gateway.parts) != (id, part["part"] - 1):
            return  # The first parts are not in the stream any more.
        gateway.parts += 1
        for session in part["sessions"]:
            values = parse("listed", session) | {"gateway": name, "boot": boot, "snapshot": id}
            latest = values["started_at"] + ANNOUNCED_SECONDS
            if self.execute(LIST_KNOWN, latest=latest, **values).rowcount == 0:
                self.execute(ADD_LISTED, **values)
        if part["is_last"]:
            self.execute(END_UNLISTED, gateway=name, snapshot=id, seen_at=gateway.seen_at, at=at)
            former_boots = [each for each in [*gateway.former_boots, gateway.boot] if each != boot]
            self.gateways[name] = Gateway(boot, sequence, at, former_boots=former_boots[-100:])


def parse(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that are read. Raises KeyError, TypeError or ValueError for wrong ones."""
    values = {name: data[name] for name in FIELDS[kind]}
    for name, value in values.items():
        if name in NUMBERS:
            check_number(value, 1 << 60)
        elif name in SECONDS:
            check_number(value, 1 << 35)
        elif value is not None:
            check_text(value)
    return values


def parse_event_id(text: Any) -> tuple[str, int]:
    """Return the run of the core, and the sequence. Raises TypeError or ValueError for a wrong ID."""
    boot, _, sequence = check_text(text).rpartition("-")
    return boot, check_number(int(sequence), 1 << 60)


def check_number(number: Any, end: int) -> int:
    """Return an integer. Raises ValueError if it is not between 0 and `end`, which excludes True, 1.5 and
    dates that Python cannot show."""
    if type(number) is not int or not 0 <= number < end:
        raise ValueError("wrong number")
    return number


def check_text(text: Any) -> str:
    """Return a text. Raises TypeError or ValueError for anything that a database cannot store as text."""
    if not isinstance(text, str):
        raise TypeError("not a text")
    if len(text.encode()) > 1000 or "\0" in text:
        raise ValueError("wrong text")
    return text


async def follow(options: argparse.Namespace) -> None:
    history = History(Database(options.database))
    jetstream = (await connect(options)).jetstream(timeout=2)
    while True:
        try:
            await read(jetstream, options.consumer, history)
        except (nats.errors.Error, TimeoutError) as error:
            log.warning("cannot read from NATS, trying again: %r", error)
            await asyncio.sleep(1)


async def read(jetstream: JetStreamContext, name: str, history: History) -> None:
    """Read the stream. Return if messages were lost on their way: then they have to be read again."""
    info = await jetstream.stream_info(STREAM)
    history.open_stream(str(info.created))
    sequence = max(history.position + 1, info.state.first_seq)
    with suppress(NotFoundError):
        while "Status" in ((message := await jetstream.get_msg(STREAM, sequence)).headers or {}):
            # fetch() would take it for a status of the server.
            log.error("ignored a message on %s that no relay sends: it has a status", message.subject)
            history.skip_message(sequence)
            sequence += 1
    with suppress(NotFoundError):
        await jetstream.delete_consumer(STREAM, name)
    await jetstream.add_consumer(
        STREAM,
        ConsumerConfig(
            durable_name=name,
            # The position is in the database. The acknowledgements show the server how far it is.
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=history.position + 1,
            ack_policy=AckPolicy.ALL,
            ack_wait=10,
        ),
    )
    subscription = await jetstream.pull_subscribe_bind(name, STREAM)
    delivered, size = 0, 1
    while True:
        try:
            messages = await subscription.fetch(size, timeout=BATCH_SECONDS)
        except TimeoutError:
            continue
        except KeyError:
            return  # nats-py requires a description of a status.
        # If a fetch fails again and again, the smaller ones before it come closer to the cause.
        size = min(2 * size, BATCH_MESSAGES)
        numbers = [message.metadata.sequence.consumer for message in messages]
        if numbers != list(range(delivered + 1, delivered + 1 + len(messages))):
            await subscription.unsubscribe()
            return
        delivered += len(messages)
        if messages:
            history.add(messages)
            await messages[-1].ack()


def show_holders(options: argparse.Namespace) -> int:
    """Print the sessions that had an address, the newest first. Return the exit status: 1 without any."""
    since, until = (0, 1 << 40) if options.at is None else (options.at, options.at)
    database = Database(options.database)
    holders = database.execute(FIND_HOLDERS, address=options.address, since=since, until=until).fetchall()
    print(f"{'GATEWAY':<10} {'ID':>6}  {'USERNAME':<28}  {'MAC ADDRESS':<17}  {'START':<20}  END")
    for gateway, id, username, mac_address, started_at, ended_at, after, before in holders:
        end = f"between {format_time(after)} and {format_time(before)}" if before else "up"
        end = format_time(ended_at) if ended_at else end
        start, username = format_time(started_at), re.sub(r"[^ -~]", "?", username or "-")
        print(f"{gateway:<10} {id:>6}  {username:<28}  {mac_address or '-':<17}  {start:<20}  {end}")
    return 0 if holders else 1


def format_time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> int:
    return int(text) if text.isdecimal() else int(datetime.fromisoformat(text).timestamp())


async def log_error(error: Exception) -> None:
    log.warning("NATS: %s", error)


async def connect(options: argparse.Namespace) -> Client:
    """Connect to the servers of these options, and go on trying when they are away."""
    has_tls = all(url.startswith("tls://") for url in options.nats)
    return await nats.connect(
        options.nats,
        tls=ssl.create_default_context(cafile=options.ca) if has_tls else None,
        tls_handshake_first=has_tls,
        nkeys_seed_str=Path(options.nkey).read_text().strip() if options.nkey else None,
        inbox_prefix="_INBOX.history",
        max_reconnect_attempts=-1,
        reconnect_time_wait=1,
        error_cb=log_error,
    )


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nats", action="append", required=True, metavar="URL", help="tls://HOST:PORT")
    parser.add_argument("--ca", metavar="FILE", help="CA certificate of the servers, in PEM")
    parser.add_argument("--nkey", metavar="FILE", help="seed of an NKey")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    follow_parser = commands.add_parser("follow", help="write the history until Ctrl-C")
    add_connection_options(follow_parser)
    follow_parser.add_argument("--consumer", default="history", help="name of the consumer at the server")
    follow_parser.set_defaults(work=lambda options: asyncio.run(follow(options)))
    who_parser = commands.add_parser("who", help="list the sessions that had an IPv4 address")
    who_parser.add_argument("address")
    who_parser.add_argument("--at", type=parse_time, metavar="TIME", help="ISO 8601, or epoch seconds")
    who_parser.set_defaults(work=show_holders)
    for command in (follow_parser, who_parser):
        command.add_argument(
            *("--database", "-d"),
            metavar="URL",
            help="path, or postgresql://USER@HOST/NAME",
            default=os.environ.get("FLEET_DATABASE", "fleet.sqlite"),
        )
    options = parser.parse_args()
    logging.basicConfig(format="%(levelname)s %(message)s")
    try:
        return int(options.work(options))
    except KeyboardInterrupt:
        return 0
    except (*DATABASE_ERRORS, nats.errors.Error, OSError, RuntimeError) as error:
        log.error("%s", error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
