"""`python -m bench [PART ...]`: measures all parts, or these, and prints the table of goals.

With `--short` it measures for seconds only. Otherwise it keeps the figures, and writes docs/performance.md
after each part. A goal that is not reached is no failure: the table says so. A goal is "not measured" if its
part never ran, or its peer is not installed.
"""

import argparse
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import documents, table
from bench.goals import GOALS, PARTS
from bench.load import Failed
from bench.pairs import Effort
from bench.parts.measurements import MEASUREMENTS
from bench.parts.plan import Plan
from bench.processes import raise_descriptor_limit
from bench.results import Results


def main() -> int:
    """Exit status 1 if a part could not be measured to its end."""
    options, failed = _options(), False
    raise_descriptor_limit()
    results = Results() if options.short else Results.read()
    if options.short:
        say("With fewer sessions and clients than the goals name.")
    for part in options.parts or PARTS:
        began, figures, failure = time.monotonic(), {}, ""
        with TemporaryDirectory(prefix="bench-") as folder:
            try:
                for key, figure in MEASUREMENTS[part](_plan(Path(folder), options.short)):
                    figures[key] = figure
            except (Failed, OSError, AssertionError, subprocess.SubprocessError) as error:
                # The other parts are still worth their time.
                failure = f": {error}"
                failed = True
        seconds = time.monotonic() - began
        results.put(part, figures, datetime.now(UTC), seconds)
        say(f"\n{part}, {seconds:.0f} s{failure}")
        goals = [goal for goal in GOALS if goal.part == part]
        say("\n".join(table.rows(goals, results) if goals else table.growth(results)))
        if not options.short:
            results.write()
            documents.write(results)
    return int(failed)


def _plan(folder: Path, short: bool) -> Plan:
    if short:
        return Plan(folder, Effort(1, 3), many=1_000, very_many=5_000, clients=100, messages=200)
    return Plan(folder, Effort(4, 5), many=10_000, very_many=100_000, clients=5_000, messages=2_000)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures the goals of speed.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--short", action="store_true", help="a few seconds a pair; writes no file")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    return options


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
