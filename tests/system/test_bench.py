"""The bench measures, in its short form: what it finds on a busy machine means nothing."""

import re
import subprocess
import sys
from pathlib import Path

_RATES = re.compile(r"^\| (health|detail), .* \| [\d.,]+/s \| bare Flask, same bytes: [\d.,]+/s \|")


def test_the_short_bench_compares_health_and_detail_with_bare_flask() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.bench", "--short", "requests"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found = [match[1] for line in ended.stdout.splitlines() if (match := _RATES.match(line))]
    assert found == ["health", "detail"]
