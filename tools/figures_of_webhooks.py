"""The figures of webhooks of the documentation: `python -m tools.figures_of_webhooks`.

It takes six minutes.
"""

import tempfile
from pathlib import Path
from statistics import median

from tests.torture.test_webhooks import NO_FAULTS, beside_refusing, faults

_SECONDS = 120
_RATE = 1000


def row(refusing: int) -> str:
    with tempfile.TemporaryDirectory() as state:
        found = beside_refusing(Path(state), refusing, _RATE, _SECONDS)
    whole = "all, in order" if faults(found.ids) == NO_FAULTS else "NOT ALL"
    late = f"{1000 * median(found.late):.0f} ms (at most {1000 * max(found.late):.0f})"
    return f"| {refusing} | {len(found.ids):,}: {whole} | {late} | {100 * found.processor:.0f} % |"


if __name__ == "__main__":
    print("| receivers that refuse | the other one got | how late | the arbiter, of one processor |")
    print("|---|---|---|---|")
    for refusing in (0, 99):
        print(row(refusing), flush=True)
