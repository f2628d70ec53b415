"""Measurement of relays and a consumer, for the documentation: `python -m tools.figures_of_fleet`.

Simulated gateways and their relays run in this process, and a NATS server and a consumer beside it. With
`--all`, the measurement takes 25 minutes.
"""

import argparse
import gc
import logging
import os
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.model_gateways import Fleet, ModelGateway
from tests.support.nats import NatsServer, make_stream, running_cluster, use_jetstream
from tests.support.postgresql import running_postgresql
from tools.figures_of_webhooks import read_cpu_seconds

_TICK_SECONDS = 0.05
_WARM_UP_SECONDS = 10
_SESSIONS = 300


class Run(NamedTuple):
    """Settings of a run: number of gateways, events per second in total, duration, number of NATS servers,
    and database of the consumer."""

    gateways: int
    rate: int
    seconds: int
    servers: int = 1
    database: str = "sqlite"


class Load:
    """Processor time that all processes of the machine have used since the start, and that of some of
    them."""

    def __init__(self, pids: dict[str, Sequence[int]]) -> None:
        self._pids = pids
        self._start = self._read(), time.monotonic(), _read_busy_seconds()

    def _read(self) -> dict[str, float]:
        return {name: sum(map(read_cpu_seconds, pids)) for name, pids in self._pids.items()}

    def measure(self) -> dict[str, float]:
        """Return the share of one processor that each process has used, and that of all others."""
        before, began, busy_before = self._start
        seconds = time.monotonic() - began
        shares = {name: (used - before[name]) / seconds for name, used in self._read().items()}
        busy = (_read_busy_seconds() - busy_before) / seconds
        return {**shares, "others": busy - sum(shares.values())}


def _read_busy_seconds() -> float:
    """Return the seconds that all processors were not idle (proc(5))."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running_servers(folder: Path, count: int) -> Iterator[list[NatsServer]]:
    """Run NATS servers with the stream until the end of the block: one with the settings of the package, or a
    cluster that syncs each write."""
    with ExitStack() as stack:
        if count == 1:
            servers = [NatsServer(folder / "n1", sync_interval="2m")]
            stack.callback(servers[0].kill)
            servers[0].start()
        else:
            servers = stack.enter_context(running_cluster(folder, count=count))
        use_jetstream(
            [each.url for each in servers],
            lambda jetstream: jetstream.add_stream(make_stream(num_replicas=count)),
        )
        yield servers


@contextmanager
def running_consumer(folder: Path, database: str, urls: Sequence[str]) -> Iterator[int]:
    """Run a consumer until the end of the block, and yield its process id."""
    command = [sys.executable, "-m", "tests.support.fleet_consumer", "follow", "--database", database]
    for url in urls:
        command += ["--nats", url]
    environment = {**os.environ, "FLEET_TIMES": str(folder / "times")}
    with (folder / "consumer.log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log, env=environment)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()
        sys.stderr.write((folder / "consumer.log").read_text())


def list_delays(gateways: Sequence[ModelGateway], times: Path, since: float) -> list[float]:
    """Return the seconds from each event to the commit of the consumer, in ascending order, for the events
    since a monotonic time."""
    of_gateway = {
        gateway.name: (gateway.boot_id, [n for _, n, _ in gateway.times], [at for *_, at in gateway.times])
        for gateway in gateways
    }
    delays = []
    for line in times.read_text().splitlines():
        subject, event, committed = line.split(" ")
        if event == "-":
            continue
        boot, numbers, moments = of_gateway[subject.split(".")[1]]
        id, _, number = event.rpartition("-")
        at = moments[bisect_left(numbers, int(number))]
        if id == boot and at >= since:
            delays.append(float(committed) - at)
    return sorted(delays)


def count_events(times: Path) -> int:
    """Return the number of different events that the consumer has applied."""
    lines = (line.split(" ") for line in times.read_text().splitlines())
    return len({event for _, event, _ in lines} - {"-"})


def measure(run: Run, folder: Path) -> str:
    """Return the row of a run in the table."""
    gateways = [
        ModelGateway(f"bng{number}", number, _SESSIONS, run.rate / run.gateways / 2, time.time())
        for number in range(run.gateways)
    ]
    began = 0.0
    shares: dict[str, float] = {}

    def produce() -> None:
        nonlocal began, shares
        time.sleep(2)
        before = time.monotonic()
        end = before + _WARM_UP_SECONDS + run.seconds
        load = None
        while before < end:
            if load is None and before > end - run.seconds:
                began, load = before, Load(pids)
            time.sleep(_TICK_SECONDS)
            now = time.monotonic()
            for gateway in gateways:
                gateway.produce(now - before)
            before = now
        assert load is not None
        shares = load.measure()
        # What is on its way arrives.
        time.sleep(10)

    with ExitStack() as stack:
        servers = stack.enter_context(running_servers(folder, run.servers))
        urls = [server.url for server in servers]
        database = run.database if run.database.startswith("postgresql") else str(folder / "history.sqlite")
        consumer = stack.enter_context(running_consumer(folder, database, urls))
        pids = {
            "relays": [os.getpid()],
            "nats": [each.process.pid for each in servers if each.process],
            "consumer": [consumer],
        }
        (folder / "spools").mkdir()
        gc.freeze()
        # A hundred relays share one interpreter here. On gateways, each has its own.
        sys.setswitchinterval(0.0002)
        Fleet(gateways, folder / "spools", urls).run(produce)
    delays = list_delays(gateways, folder / "times", began)
    p50, p99 = (delays[int(share * (len(delays) - 1))] for share in (0.5, 0.99))
    produced = sum(gateway.newest[gateway.boot_id] for gateway in gateways)
    arrived = f"{count_events(folder / 'times'):,} of {produced:,}"
    times = " | ".join(f"{1000 * delay:.0f}" for delay in (p50, p99, delays[-1]))
    used = " | ".join(f"{100 * shares[name]:.0f} %" for name in ("relays", "nats", "consumer", "others"))
    return (
        f"| {run.gateways} | {run.rate:,} | {run.servers} | {run.database.partition(':')[0]} | {arrived}"
        f" | {times} | {used} |"
    )


def list_runs(seconds: int, longest: int) -> list[Run]:
    """Return the runs of the documentation, of `seconds` each, and the last one of `longest`."""
    return [
        *(Run(gateways, 2000, seconds) for gateways in (10, 30, 100)),
        *(Run(gateways, 20 * gateways, seconds) for gateways in (10, 30)),
        *(Run(100, rate, seconds) for rate in (3000, 4000)),
        Run(100, 2000, seconds, database="postgresql"),
        Run(100, 2000, seconds, servers=3),
        Run(100, 2000, longest),
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in Run(100, 2000, 600)._asdict().items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    parser.add_argument("--all", action="store_true", help="the runs of the documentation")
    # Above the limit, relays say that messages wait.
    logging.disable(logging.WARNING)
    arguments = vars(parser.parse_args())
    runs = list_runs(60, 600) if arguments.pop("all") else [Run(**arguments)]
    titles = "gateways", "events/s", "servers", "database", "arrived", "p50 (ms)", "p99", "max"
    print("| " + " | ".join([*titles, "relays", "NATS", "consumer", "other programs"]) + " |")
    print("|---" * (len(titles) + 4) + "|")
    for run in runs:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            if run.database == "postgresql":
                url = stack.enter_context(running_postgresql())
                run = run._replace(database=url)
            print(measure(run, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
