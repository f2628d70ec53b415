"""The bench measures, in its short form, and the service keeps its distance to bare Flask.

The bounds are far below the goals: a busy machine disturbs both sides, but not to the same degree.
"""

import re
import subprocess
import sys
from pathlib import Path

from bench.goals import GOALS
from bench.peers.bare_flask import bare_flask

_ROW = re.compile(
    r"^\| (health|detail|list)\b.* \| bare Flask, same bytes: [\d.,]+/s \| ([\d.]+) \|", re.MULTILINE
)
#: The least ratio of rates.
_LEAST = {"health": 0.2, "detail": 0.15, "list": 0.25}


def short(*parts: str) -> str:
    """What the short form prints."""
    ended = subprocess.run(
        [sys.executable, "-m", "bench", "--short", *parts],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_short_bench_finds_health_detail_and_list_not_far_below_bare_flask() -> None:
    printed = short("requests", "lists")
    found = {work: float(ratio) for work, ratio in _ROW.findall(printed)}
    assert found.keys() == _LEAST.keys(), printed
    assert {work for work, ratio in found.items() if ratio < _LEAST[work]} == set(), printed


def test_the_short_bench_measures_each_goal_that_needs_no_peer() -> None:
    parts = ("tails", "logins", "memory", "starts")
    rows = [line for line in short(*parts).splitlines() if line.endswith(("| yes |", "| no |"))]
    assert len(rows) == sum(goal.part in parts for goal in GOALS), rows


def test_bare_flask_sends_the_bytes_of_the_service_over_tls(tmp_path: Path) -> None:
    with bare_flask(tmp_path / "bare", {"list": b"bytes"}) as bare:
        assert bare["list"].probe()[1] == b"bytes"
        assert bare["list"].certificate
