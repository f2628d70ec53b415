"""Measurement of webhooks, for the documentation: `python -m tools.figures_of_webhooks`.

The measurement takes six minutes.
"""

import os
import socket
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from tests.support.receivers import Fast
from tests.support.sse import master_of
from tests.support.stack import running_stack, wait_for
from tests.support.webhooks import BOTH, metrics, register
from tests.torture.test_webhooks import NO_FAULTS, faults

_RUN_SECONDS = 120
_EVENTS_PER_SECOND = 1000


def read_cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used, in user mode and in the kernel (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_row(state: Path, refusing: int) -> str:
    """Return a row of the table: the number of events that one receiver got while `refusing` other receivers
    refused all events, and the delay of the last event of each second."""
    with ExitStack() as stack:
        receiver = stack.enter_context(Fast(state / "ids", "--times"))
        refusing_socket = stack.enter_context(socket.socket())
        # Bound, and nobody listens: each connection is refused.
        refusing_socket.bind(("127.0.0.1", 0))
        # As many leave as come.
        api, process = stack.enter_context(
            running_stack(state, sessions=20_000, arrivals=_EVENTS_PER_SECOND / 2)
        )
        register(api, receiver.url, BOTH)
        for _ in range(refusing):
            register(api, f"http://127.0.0.1:{refusing_socket.getsockname()[1]}/", BOTH)
        wait_for("an event", lambda: receiver.ids)
        arbiter = master_of(process)
        before, start_time = read_cpu_seconds(arbiter), time.monotonic()
        time.sleep(_RUN_SECONDS)
        wait_for("the pauses", lambda: metrics(api).get("_paused") == refusing)
        cpu_share = (read_cpu_seconds(arbiter) - before) / (time.monotonic() - start_time)
        deliveries = [(id, float(at), int(happened)) for id, at, happened in map(str.split, receiver.lines)]
    # The last event of a second happened at its end, or hardly before. After the very last, others may come.
    last_times = {happened: at for _, at, happened in deliveries}
    delays_ms = [1000 * (at - (happened + 1)) for happened, at in last_times.items()][:-1]
    ids = [id for id, _, __ in deliveries]
    completeness = "all, in order" if faults(ids) == NO_FAULTS else "NOT ALL"
    delay_text = f"{median(delays_ms):.0f} ms (at most {max(delays_ms):.0f})"
    return f"| {refusing} | {len(ids):,}: {completeness} | {delay_text} | {100 * cpu_share:.0f} % |"


if __name__ == "__main__":
    print("| receivers that refuse | the other one got | how late | the arbiter, of one processor |")
    print("|---|---|---|---|")
    for refusing in (0, 99):
        with tempfile.TemporaryDirectory() as state:
            print(measure_row(Path(state), refusing), flush=True)
