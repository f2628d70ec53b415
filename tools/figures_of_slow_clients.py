"""Measurement of slow clients, for the documentation: `python -m tools.figures_of_slow_clients`."""

import tempfile
from pathlib import Path
from statistics import median

from tests.torture.test_slow_clients import EACH, Held, measured, p99


def format_rows(held: Held) -> list[str]:
    def format_delay(seconds: list[float]) -> str:
        return f"{1000 * median(seconds):.0f} ms (p99 {1000 * p99(seconds):.0f})"

    return [
        f"| connections held | none | {held.held[0]:,} of {EACH * len(held.lived):,} |",
        f"| health | {format_delay(held.before)} | {format_delay(held.meanwhile)} |",
        f"| memory of the API | {held.memory_before:.0f} MB | at most {held.memory:.0f} MB |",
    ] + [
        f"| {kind}: closed | deadline {deadline:.0f} s | after {min(ends):.0f} to {max(ends):.0f} s |"
        for (kind, lived), deadline in zip(held.lived.items(), held.deadlines.values(), strict=True)
        if (ends := [one for one in lived if one is not None])
    ]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as state:
        print("\n".join(format_rows(measured(Path(state)))))
