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

_SECONDS = 120
_RATE = 1000


def processor_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used, in user mode and in the kernel (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def row(state: Path, refusing: int) -> str:
    """Return a row of the table: the number of events that one receiver got while `refusing` other receivers
    refused, and the delay of the last event of each second."""
    with ExitStack() as stack:
        fast = stack.enter_context(Fast(state / "ids", "--times"))
        nobody = stack.enter_context(socket.socket())
        # Bound, and nobody listens: each connection is refused.
        nobody.bind(("127.0.0.1", 0))
        # As many leave as come.
        api, process = stack.enter_context(running_stack(state, sessions=20_000, arrivals=_RATE / 2))
        register(api, fast.url, BOTH)
        for _ in range(refusing):
            register(api, f"http://127.0.0.1:{nobody.getsockname()[1]}/", BOTH)
        wait_for("an event", lambda: fast.ids)
        arbiter = master_of(process)
        before, began = processor_seconds(arbiter), time.monotonic()
        time.sleep(_SECONDS)
        wait_for("the pauses", lambda: metrics(api).get("_paused") == refusing)
        spent = (processor_seconds(arbiter) - before) / (time.monotonic() - began)
        came = [(id, float(at), int(happened)) for id, at, happened in map(str.split, fast.lines)]
    # The last event of a second happened at its end, or hardly before. After the very last, others may come.
    last_of = {happened: at for _, at, happened in came}
    late = [1000 * (at - (happened + 1)) for happened, at in last_of.items()][:-1]
    ids = [id for id, _, __ in came]
    whole = "all, in order" if faults(ids) == NO_FAULTS else "NOT ALL"
    how_late = f"{median(late):.0f} ms (at most {max(late):.0f})"
    return f"| {refusing} | {len(ids):,}: {whole} | {how_late} | {100 * spent:.0f} % |"


if __name__ == "__main__":
    print("| receivers that refuse | the other one got | how late | the arbiter, of one processor |")
    print("|---|---|---|---|")
    for refusing in (0, 99):
        with tempfile.TemporaryDirectory() as state:
            print(row(Path(state), refusing), flush=True)
