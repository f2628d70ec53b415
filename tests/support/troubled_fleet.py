"""A fleet in trouble: real relays of simulated gateways, a cluster of three NATS servers, and the consumer of
the examples. Each can be killed, cut off, or put on a full disk. The gateways know the truth, and `check`
compares it with what the consumer has applied."""

import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig

from gateway_relay.messages import EVENT_HEADER
from tests.support.fleet_consumer import program
from tests.support.model_gateways import ModelGateway, Site
from tests.support.nats import STREAM, NatsServer, make_stream, running_cluster, use_jetstream
from tests.support.stack import PATIENCE, free_port, make_state, wait_for

#: Events of an hour: two for each second, as ten thousand subscribers have in a busy hour.
_ARRIVALS = 1.0
_SESSIONS = 300
_HOUR = 3600.0
_BURST_SECONDS = 900.0
#: Seconds of the gateways that pass in one second.
_SPEED = 20.0
_TICK_SECONDS = 0.1
#: Messages that a relay had on their way when it dropped them, and that were stored all the same.
_WINDOW = 500


class Link:
    """TCP connections of a relay to the NATS servers, which can be cut. `urls` are for the relay."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._is_cut = False
        self._sockets: set[socket.socket] = set()
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in ports]
        self.urls = [f"nats://127.0.0.1:{each.getsockname()[1]}" for each in self._listeners]
        for listener, port in zip(self._listeners, ports, strict=True):
            threading.Thread(target=self._accept, args=(listener, port), daemon=True).start()

    def cut(self) -> None:
        """Close the connections, and refuse others."""
        self._is_cut = True
        for each in list(self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def restore(self) -> None:
        self._is_cut = False

    def close(self) -> None:
        self.cut()
        for listener in self._listeners:
            # Wakes the thread that accepts.
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _accept(self, listener: socket.socket, port: int) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", port))
            except OSError:
                client.close()
                continue
            self._sockets |= {client, server}
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=pair, daemon=True).start()
            if self._is_cut:
                self.cut()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._sockets.discard(source)
        source.close()


class Program:
    """Program that runs again when it has ended, as a unit of systemd does, unless it was killed."""

    def __init__(self, command: Sequence[str | Path], log: Path) -> None:
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.restarts = 0

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def tend(self) -> None:
        """Start the program again if it has ended by itself."""
        process = self._process
        if process is not None and process.poll() is not None:
            self.restarts += 1
            self.start()


class Disk:
    """Small file system at `folder`, as root."""

    def __init__(self, folder: Path, mebibytes: int, stack: ExitStack) -> None:
        folder.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)]
        subprocess.run(command, check=True)
        stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=True)
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Leave no space."""
        with self._filler.open("wb", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                with suppress(OSError):
                    while file.write(b"\0" * size):
                        pass

    def free(self) -> None:
        self._filler.unlink()


class Row(NamedTuple):
    """Row of the consumer's log. An event has no reason; of a snapshot, `sequence` is the event that it
    follows."""

    number: int
    gateway: str
    boot: str
    sequence: int
    reason: str | None
    dropped: int


def find_leader(servers: Sequence[NatsServer]) -> NatsServer:
    """Return the server that leads the stream, when there is one."""
    leader: NatsServer = wait_for(
        "a leader of the stream", lambda: next((server for server in servers if _leads(server)), None)
    )
    return leader


def _leads(server: NatsServer) -> bool:
    """Return True if the server leads the stream, and its consumers have leaders, too."""
    accounts = server.ask("/jsz?consumers=true").get("account_details", [])
    streams = [stream for account in accounts for stream in account.get("stream_detail", [])]
    return any(
        stream["cluster"].get("leader") == server.name
        and all(each["cluster"].get("leader") for each in stream.get("consumer_detail", []))
        for stream in streams
    )


class Truth:
    """Comparison of the consumer's log with the gateways. `faults` are sentences about what must not be."""

    def __init__(self, gateways: Sequence[ModelGateway]) -> None:
        self._gateway_of = {gateway.name: gateway for gateway in gateways}
        self._last_of: dict[str, tuple[str, int]] = {}
        #: Events that were skipped since the last snapshot, by gateway.
        self._skipped: Counter[str] = Counter()
        self._number = 0
        self.faults: list[str] = []
        self.applied_events = 0
        self.snapshots: Counter[str] = Counter()
        self.lost_events: Counter[str] = Counter()

    def read(self, rows: Sequence[Any]) -> None:
        """Judge the rows of the log since the last call."""
        for row in map(Row._make, rows):
            self._number = row.number
            if row.reason is None:
                self._judge_event(row)
            else:
                self._judge_snapshot(row)
            self._last_of[row.gateway] = row.boot, row.sequence

    @property
    def number(self) -> int:
        """Number of the last row that was judged."""
        return self._number

    def _judge_event(self, row: Row) -> None:
        self.applied_events += 1
        boot, sequence = self._last_of.get(row.gateway, ("", 0))
        if boot != row.boot:
            self.faults.append(
                f"{row}: the first event of a boot without a snapshot, after {boot}-{sequence}"
            )
        elif row.sequence <= sequence:
            self.faults.append(f"{row}: applied twice, after {boot}-{sequence}")
        elif row.sequence > sequence + 1:
            # A snapshot must follow that announces it.
            self._skipped[row.gateway] += row.sequence - sequence - 1

    def _judge_snapshot(self, row: Row) -> None:
        gateway = self._gateway_of[row.gateway]
        boot, sequence = self._last_of.get(row.gateway, ("", 0))
        skipped = self._skipped.pop(row.gateway, 0)
        self.snapshots[str(row.reason)] += 1
        if row.reason == "first_contact":
            if boot:
                self.faults.append(f"{row}: a first contact after {boot}-{sequence}")
            return
        if row.reason == "gap":
            self._judge_gap(row, gateway, boot, sequence)
            if skipped:
                self.faults.append(f"{row}: {skipped} events are missing before it")
            return
        # Dropped: what the relay had received, and not what the gateway had lost already.
        boots = list(gateway.newest)
        between = boots[boots.index(boot) : boots.index(row.boot) + 1]
        known = {
            each: row.sequence if each == row.boot else gateway.received.get(each, 0) for each in between
        }
        known[boot] -= sequence
        for gap in gateway.gaps:
            if gap.boot in between and gap.after.startswith(gap.boot):
                first = max(int(gap.after.rpartition("-")[2]), sequence if gap.boot == boot else 0)
                last = min(gap.oldest - 1, row.sequence if gap.boot == row.boot else gap.oldest)
                known[gap.boot] -= max(0, last - first)
        missing = sum(known.values()) + skipped
        self.lost_events["spool_full"] += missing
        if not missing <= row.dropped <= missing + _WINDOW:
            self.faults.append(f"{row}: {missing} events are missing after {boot}-{sequence}")

    def _judge_gap(self, row: Row, gateway: ModelGateway, boot: str, sequence: int) -> None:
        after = f"{boot}-{sequence}"
        # `after` is that of a stream which was opened after the last applied event.
        if not any(
            (gap.after, gap.boot, gap.oldest - 1) == (after, row.boot, row.sequence) for gap in gateway.gaps
        ):
            self.faults.append(f"{row}: no stream has reported this gap after {after}")
        if boot != row.boot:
            self.lost_events["new_boot"] += gateway.newest[boot] - sequence + row.sequence
            if gateway.received.get(boot, 0) != sequence:
                self.faults.append(f"{row}: the relay had {boot}-{gateway.received.get(boot)}, after {after}")
        else:
            self.lost_events["journal_full"] += row.sequence - sequence


class TroubledFleet:
    """Fleet with a cluster of three servers. `chance` chooses what is troubled, and for how long. The last
    gateway has a spool of one MiB."""

    def __init__(self, folder: Path, chance: random.Random, stack: ExitStack, gateways: int = 5) -> None:
        self._chance = chance
        make_state(folder / "certificates")
        password = folder / "password"
        password.write_text("secret\n")
        self.disks = {f"store {name}": Disk(folder / name, 4096, stack) for name in ("n1", "n2", "n3")}
        self.servers = stack.enter_context(running_cluster(folder))
        self.urls = [server.url for server in self.servers]
        config = make_stream(num_replicas=3)
        use_jetstream(self.urls, lambda jetstream: jetstream.add_stream(config))
        self.gateways, self.sites, self.links, self.relays = [], [], [], []
        for number in range(1, gateways + 1):
            gateway = ModelGateway(
                f"bng{number}", chance.randrange(1 << 30), _SESSIONS, _ARRIVALS, time.time()
            )
            site = Site(gateway, folder / "certificates", free_port())
            stack.callback(site.close)
            link = Link([server.port for server in self.servers])
            stack.callback(link.close)
            self.disks[f"spool {gateway.name}"] = Disk(folder / gateway.name, 64, stack)
            servers = [word for url in link.urls for word in ("--nats", url)]
            relay = Program(
                [
                    *(sys.executable, "-m", "gateway_relay", *servers, "--name", gateway.name),
                    *("--url", site.url, "--ca", site.ca, "--user", "relay", "--password-file", password),
                    *("--state", folder / gateway.name),
                    *("--spool-mebibytes", "1" if number == gateways else "256"),
                ],
                folder / f"{gateway.name}.log",
            )
            stack.callback(relay.kill)
            relay.start()
            self.gateways.append(gateway)
            self.sites.append(site)
            self.links.append(link)
            self.relays.append(relay)
        self.disks["database"] = Disk(folder / "consumer", 256, stack)
        self.database = str(folder / "consumer" / "history.sqlite")
        servers = [word for url in self.urls for word in ("--nats", url)]
        self.consumer = Program(
            [
                *(sys.executable, "-m", "tests.support.fleet_consumer", "follow"),
                *(*servers, "--database", self.database),
            ],
            folder / "consumer.log",
        )
        stack.callback(self.consumer.kill)
        self.consumer.start()
        self.truth = Truth(self.gateways)
        self.counts: Counter[str] = Counter()
        #: Seconds from the end of each trouble until the consumer's table was right.
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)
        self._is_producing = threading.Event()
        self._has_ended = threading.Event()
        thread = threading.Thread(target=self._tend)
        stack.callback(thread.join)
        stack.callback(self._has_ended.set)
        thread.start()

    def _tend(self) -> None:
        """Let time pass at the gateways, and start what has ended."""
        while not self._has_ended.wait(_TICK_SECONDS):
            if self._is_producing.is_set():
                for gateway in self.gateways:
                    gateway.produce(_SPEED * _TICK_SECONDS, rate_changes=self._chance.random() < 0.1)
            for each in (*self.relays, self.consumer):
                each.tend()

    # What happens to it. Each method ends with what is troubled at work again.

    def kill_relay(self) -> None:
        relay = self._chance.choice(self.relays)
        relay.kill()
        self._pause(2)
        relay.start()

    def kill_core(self) -> None:
        site = self._chance.choice(self.sites)
        site.cut()
        self._pause(2)
        site.gateway.boot()
        site.restore()

    def kill_server(self) -> None:
        self._kill_server(self._chance.choice(self.servers))

    def kill_leader(self) -> None:
        self._kill_server(find_leader(self.servers))

    def kill_leader_and_core(self) -> None:
        """Kill the leader of the stream, and a core meanwhile: its snapshot finds no leader."""
        server, site = find_leader(self.servers), self._chance.choice(self.sites)
        server.kill()
        site.cut()
        site.gateway.boot()
        site.restore()
        self._pause(4)
        self._start_server(server)

    def kill_consumer(self) -> None:
        self.consumer.kill()
        self._pause(2)
        self.consumer.start()

    def cut_relay_from_nats(self) -> None:
        with self._cut(self._chance.choice(self.links)):
            self._pause(3)

    def cut_relay_from_gateway(self) -> None:
        with self._cut(self._chance.choice(self.sites)):
            self._pause(3)

    def cut_relay_from_nats_for_an_hour(self) -> None:
        number = self._chance.randrange(len(self.gateways))
        with self._cut(self.links[number]):
            self._pause(1)
            self.gateways[number].produce(_HOUR)
            self._wait_for_relay(number)

    def fill_spool(self) -> None:
        """Cut the relay with the small spool off for longer than its spool lasts."""
        with self._cut(self.links[-1]):
            self._pause(1)
            self.gateways[-1].produce(_HOUR)
            self._wait_for_relay(len(self.gateways) - 1)

    def cut_relay_from_gateway_for_an_hour(self) -> None:
        number = self._chance.randrange(len(self.gateways))
        with self._cut(self.sites[number]):
            self._pause(1)
            self.gateways[number].produce(_HOUR)
            self._pause(1)

    def fill_journal(self) -> None:
        """Cut a relay off from its gateway for longer than the core holds events."""
        number = self._chance.randrange(len(self.gateways))
        with self._cut(self.sites[number]):
            self.gateways[number].produce(19 * _HOUR)

    def fill_disk_of_spool(self) -> None:
        gateway = self._chance.choice(self.gateways)
        self._fill(f"spool {gateway.name}")

    def fill_disk_of_store(self) -> None:
        server = self._chance.choice(self.servers)
        self._fill(f"store {server.name}")
        # The remedy of the operator: a server without space has switched JetStream off.
        server.kill()
        self._start_server(server)

    def fill_disk_of_leader(self) -> None:
        server = find_leader(self.servers)
        self._fill(f"store {server.name}")
        server.kill()
        self._start_server(server)

    def fill_disk_of_database(self) -> None:
        self._fill("database")

    def _fill(self, name: str) -> None:
        self.disks[name].fill()
        self._pause(5)
        self.disks[name].free()

    def _kill_server(self, server: NatsServer) -> None:
        server.kill()
        self._pause(4)
        self._start_server(server)

    def _start_server(self, server: NatsServer) -> None:
        """Start a server, and wait until the cluster serves the stream."""
        server.start()
        find_leader(self.servers)

    @contextmanager
    def _cut(self, connection: Any) -> Iterator[None]:
        connection.cut()
        try:
            yield
        finally:
            connection.restore()

    def _wait_for_relay(self, number: int) -> None:
        """Wait until the relay has read all events of its gateway, or is away."""
        gateway, spool = self.gateways[number], Path(str(self.relays[number]._command[-3])) / "spool.sqlite"
        end = time.monotonic() + 20
        while time.monotonic() < end:
            with suppress(Exception):
                database = program.Database(str(spool))
                ((position,),) = database.execute(
                    "SELECT value FROM position WHERE name = 'events'"
                ).fetchall()
                database.connection.close()
                if position == f"{gateway.boot_id}-{gateway.newest[gateway.boot_id]}":
                    return
            time.sleep(0.2)

    def _pause(self, seconds: float) -> None:
        time.sleep(self._chance.uniform(0.1, 1) * seconds)

    # What must hold.

    def trouble(self, kind: str) -> None:
        """Do what the method `kind` does while events happen, then wait until the consumer has all."""
        self._is_producing.set()
        time.sleep(self._chance.uniform(0.2, 1))
        if self._chance.random() < 0.5:
            # Many messages are on their way.
            for gateway in self.gateways:
                gateway.produce(_BURST_SECONDS)
            time.sleep(self._chance.uniform(0, 0.5))
        act: Callable[[], None] = getattr(self, kind)
        act()
        self.counts[kind] += 1
        self.settle(kind)

    def settle(self, kind: str) -> None:
        """Stop the events, and wait until the consumer's table is right."""
        self._is_producing.clear()
        began = time.monotonic()
        time.sleep(2 * _TICK_SECONDS)
        try:
            wait_for("the consumer's table", self.is_equal, PATIENCE)
        except AssertionError as error:
            error.add_note(self.describe_difference())
            raise
        self.seconds[kind].append(time.monotonic() - began)
        self.check()

    def is_equal(self) -> bool:
        """Return True if the consumer's open sessions are those of the gateways, and no event is on its
        way."""
        with suppress(*program.DATABASE_ERRORS):
            return not self.describe_difference()
        return False

    def describe_difference(self) -> str:
        lines = []
        database = program.Database(self.database)
        try:
            states = dict(database.execute("SELECT name, state FROM gateway").fetchall())
            for gateway in self.gateways:
                rows = database.execute(
                    "SELECT id, username, ip_address FROM session WHERE gateway = :name"
                    " AND ended_at IS NULL AND ended_before IS NULL",
                    name=gateway.name,
                ).fetchall()
                state = json.loads(states.get(gateway.name, "{}"))
                has = f"{state.get('boot')}-{state.get('sequence')}"
                wanted = f"{gateway.boot_id}-{gateway.newest[gateway.boot_id]}"
                if has != wanted:
                    lines.append(f"{gateway.name}: stands at {has}, not at {wanted}")
                elif {id: (name, address) for id, name, address in rows} != gateway.list_open_sessions():
                    lines.append(f"{gateway.name}: other sessions: {len(rows)}")
                elif len(rows) != len({id for id, *_ in rows}):
                    lines.append(f"{gateway.name}: sessions twice")
        finally:
            database.connection.close()
        return "\n".join(lines)

    def check(self) -> None:
        """Fail if an event was lost or applied twice since the last check."""
        database = program.Database(self.database)
        rows = database.execute(
            "SELECT number, gateway, boot, sequence, reason, dropped FROM applied WHERE number > :number"
            " ORDER BY number",
            number=self.truth.number,
        ).fetchall()
        database.connection.close()
        self.truth.read(rows)
        assert not self.truth.faults, "\n".join(self.truth.faults[:20])

    def count_disorder(self) -> Counter[str]:
        """Return how many events the stream has, how many again, and how many after a later event."""

        async def count(jetstream: JetStreamContext) -> Counter[str]:
            config = ConsumerConfig(headers_only=True, ack_policy=AckPolicy.NONE)
            subscription = await jetstream.pull_subscribe("gw.*.events.>", stream=STREAM, config=config)
            remaining = (await subscription.consumer_info()).num_pending or 0
            seen: defaultdict[str, set[int]] = defaultdict(set)
            newest: Counter[str] = Counter()
            counts: Counter[str] = Counter()
            while remaining > 0:
                for message in await subscription.fetch(min(remaining, 1000), timeout=PATIENCE):
                    remaining -= 1
                    boot, _, number = (message.headers or {})[EVENT_HEADER].rpartition("-")
                    counts["events in the stream"] += 1
                    if int(number) in seen[boot]:
                        counts["stored again"] += 1
                    elif int(number) < newest[boot]:
                        counts["stored after a later one"] += 1
                    seen[boot].add(int(number))
                    newest[boot] = max(newest[boot], int(number))
            return counts

        return use_jetstream(self.urls, count)

    def count_log_lines(self) -> Counter[str]:
        """Return how often the programs have reported a full disk, and how often they were started again."""
        relays = "".join(relay.log for relay in self.relays)
        servers = "".join(server.log.lower() for server in self.servers)
        full = "disk is full"
        return Counter(
            {
                "full disks that relays report": relays.count("MiB free"),
                "full disks that the consumer reports": self.consumer.log.count(full),
                "full disks that servers report": servers.count("no space left"),
                "full spools": relays.count("the spool is full"),
                "ends of the consumer": self.consumer.restarts,
                "ends of relays": sum(relay.restarts for relay in self.relays),
            }
        )

    def report(self) -> str:
        """Return what has happened, line by line."""
        lines = [
            f"{kind}: {count} times, right after {max(self.seconds[kind]):.1f} s at most"
            for kind, count in sorted(self.counts.items())
        ]
        truth = self.truth
        return "\n".join(
            [
                *lines,
                f"events applied: {truth.applied_events}; snapshots: {dict(truth.snapshots)}; lost at the "
                f"gateway or dropped, and announced: {dict(truth.lost_events)}",
                str(dict(self.count_disorder())),
                str(dict(self.count_log_lines())),
            ]
        )


@contextmanager
def troubled_fleet(folder: Path, seed: int, gateways: int = 5) -> Iterator[TroubledFleet]:
    """Run a fleet until the end of the block."""
    with ExitStack() as stack:
        fleet = TroubledFleet(folder, random.Random(seed), stack, gateways)
        fleet.settle("start")
        yield fleet
