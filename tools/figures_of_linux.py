"""Part of `make figures` that runs on the Linux gateway: the costs of a core with many sessions of accel-ppp.

accel-ppp is simulated, and the devices of the sessions are veths. Together with the IFBs, there are three
links per session, as with PPPoE on VLANs. The times of requests are measured for this core, and for
comparison for the core of a lab with the same number of sessions. The program needs root.
"""

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from gateway_contract.core.interface import CORE
from gateway_contract.varlink.client import Client
from gateway_core.gateways.linux.kernel.reader import KernelReader
from tests.support.documents import valid_document
from tests.support.linux_core import LinuxCore, add_devices, go, running_linux_core, subscriber
from tests.support.stack import PATIENCE, running_core, wait_for

SESSION_COUNT = 10_000
#: Seconds at rest, and between two polls of a source.
REST_SECONDS, SWEEP_SECONDS = 60.0, 5.0
CHANGE_COUNT = 50
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
#: Seconds for all sessions to be shaped, on a busy machine.
_SHAPING_TIMEOUT_SECONDS = 1800.0


def main() -> None:
    """Run the measurements, and print the figures as a Markdown table."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else SESSION_COUNT
    print_line(f"| Linux gateway, {number:,} sessions | |")
    print_line("|---|---|")
    with tempfile.TemporaryDirectory() as folder, running_linux_core(Path(folder)) as core:
        # The kernel's own work for IPv6 on so many veths is not what is measured.
        Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
        list_seconds, shaping_seconds, cpu_seconds = fill(core, number)
        print_line(
            f"| all in the table / shaped | {list_seconds:.1f} s / {shaping_seconds:.1f} s"
            f" ({cpu_seconds:.1f} s of CPU) |"
        )
        at_rest = measure_cpu(core.process.pid, REST_SECONDS)
        print_line(f"| CPU at rest | {at_rest * 100:.1f} % of one processor |")
        print_line(
            f"| CPU of a sweep of sessions, counters and data plane | {at_rest * SWEEP_SECONDS:.2f} s |"
        )
        for name, delays in measure_delays(core, number).items():
            p99 = quantiles(delays, n=100)[98]
            print_line(
                f"| from {name} at accel-ppp to the event | {median(delays):.2f} s (p99 {p99:.2f} s) |"
            )
        core_times = measure_requests(core.client)
    with tempfile.TemporaryDirectory() as folder:
        socket, factory = Path(folder) / "core.sock", Path(folder) / "factory.json"
        factory.write_text(json.dumps(valid_document()))
        with running_core(socket, factory, "--sessions", str(number)):
            lab_times = measure_requests(Client(socket, timeout=PATIENCE))
    for name, seconds in core_times.items():
        ratio = seconds / lab_times[name]
        print_line(f"| {name} | {seconds * 1000:.2f} ms, {ratio:.2f} times that of the lab |")


def fill(core: LinuxCore, number: int) -> tuple[float, float, float]:
    """Sign `number` subscribers on. Return three figures: the seconds until all sessions are in the table,
    the seconds until all sessions are shaped, and the CPU seconds of the core for this work."""
    peers = [subscriber(each) for each in range(number)]
    add_devices(peers)
    start_time, before = time.monotonic(), read_cpu_seconds(core.process.pid)
    core.accel.up(*peers)
    wait_for("the sessions", lambda: _count_sessions(core) == number, _SHAPING_TIMEOUT_SECONDS)
    list_seconds = time.monotonic() - start_time
    wait_for("their shapers", lambda: _pause() and count_shapers() >= 2 * number, _SHAPING_TIMEOUT_SECONDS)
    shaping_seconds, cpu_seconds = time.monotonic() - start_time, read_cpu_seconds(core.process.pid) - before
    wait_until_settled(core)
    return list_seconds, shaping_seconds, cpu_seconds


def count_shapers() -> int:
    """Return the number of TBF qdiscs in the kernel. Each session has two of them."""
    return sum(qdisc.kind == "tbf" for qdisc in KernelReader().read_qdisc_entries())


def wait_until_settled(core: LinuxCore) -> None:
    """Wait until the core has no more work to repair the state of the kernel. The core then uses less than
    half of a processor."""
    while measure_cpu(core.process.pid, 2 * SWEEP_SECONDS) > 0.5:
        pass


def measure_cpu(pid: int, seconds: float) -> float:
    """Return the share of one processor that the process `pid` uses during the next `seconds`."""
    before, start_time = read_cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return (read_cpu_seconds(pid) - before) / (time.monotonic() - start_time)


def read_cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def measure_delays(core: LinuxCore, first: int) -> dict[str, list[float]]:
    """Start and end sessions at accel-ppp, one after the other. Return the delays from each start and each
    end to its event, in seconds. The numbers of the subscribers begin with `first`."""
    arrival_times: dict[tuple[str, str], float] = {}

    def listen() -> None:
        for reply in core.follow():
            now = time.monotonic()
            for event in reply["events"]:
                arrival_times[event["event"], event["username"]] = now
            if all(("session.down", f"user{first + each}") in arrival_times for each in range(CHANGE_COUNT)):
                return

    listener = threading.Thread(target=listen)
    listener.start()
    delays: dict[str, list[float]] = {"a start": [], "an end": []}
    for each in range(CHANGE_COUNT):
        peer = subscriber(first + each)
        start_time = time.monotonic()
        core.accel.up(peer)
        # Its device is up at the same moment, as with ppp.
        add_devices([peer])
        key = "session.up", peer.username
        delays["a start"].append(wait_for("the start", lambda key=key: arrival_times.get(key)) - start_time)
        time.sleep(0.5)
        start_time = time.monotonic()
        go(core, peer)
        key = "session.down", peer.username
        delays["an end"].append(wait_for("the end", lambda key=key: arrival_times.get(key)) - start_time)
        time.sleep(0.5)
    listener.join()
    return delays


def measure_requests(client: Client) -> dict[str, float]:
    """Return a map from request to the median duration of the request, in seconds."""
    calls: dict[str, tuple[int, dict[str, Any]]] = {
        "ListSessions": (20, {}),
        "ListSessions, a page of 100": (100, {"page": {"limit": 100}}),
        "GetSession": (200, {"id": 7}),
    }
    return {
        name: median(
            measure_seconds(lambda: client.call(f"{CORE.name}.{name.partition(',')[0]}", call))
            for _ in range(runs)
        )
        for name, (runs, call) in calls.items()
    }


def measure_seconds(act: Callable[[], object]) -> float:
    start_time = time.perf_counter()
    act()
    return time.perf_counter() - start_time


def _count_sessions(core: LinuxCore) -> int:
    count: int = core.call("GetStatistics")["active_sessions"]
    return count


def _pause() -> bool:
    """Wait one second before a request that takes long, and return True."""
    time.sleep(1)
    return True


def print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
