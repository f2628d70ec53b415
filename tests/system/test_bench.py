"""The bench measures, in its short form, and the service keeps its distance to bare Flask.

The bounds are far below the goals: a busy machine disturbs both sides, but not to the same degree.
"""

import re
import subprocess
import sys
from pathlib import Path

_ROW = re.compile(
    r"^\| (health|detail|list)\b.* \| bare Flask, same bytes: [\d.,]+/s \| ([\d.]+) \|", re.MULTILINE
)
#: The least ratio of rates.
_LEAST = {"health": 0.2, "detail": 0.15, "list": 0.25}


def test_the_short_bench_finds_health_detail_and_list_not_far_below_bare_flask() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.bench", "--short", "requests", "lists"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = {work: float(ratio) for work, ratio in _ROW.findall(ended.stdout)}
    assert found.keys() == _LEAST.keys(), ended.stdout
    assert {work for work, ratio in found.items() if ratio < _LEAST[work]} == set(), ended.stdout
