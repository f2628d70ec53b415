"""The traffic over time, as it was recorded."""

import math
import sqlite3
from typing import NamedTuple

from gateway_api.base.errors import Invalid, Problem
from gateway_api.history.record import TrafficSample

#: Seconds between two samples of the recorder.
EVERY = 10
#: Samples of a response, without another `step`: the width of a chart. And at most.
_USUAL, MOST = 360, 10_000
_SAMPLES = """
SELECT at / :step * :step AS began, avg(down), avg(up) FROM traffic
WHERE at >= :since AND at < :until GROUP BY began ORDER BY began
"""


class TrafficSpan(NamedTuple):
    """From `since` until before `until`, epoch seconds. One sample for each `step` seconds, None for as many
    as a chart shows."""

    since: float
    until: float
    step: int | None = None


class FoundTraffic(NamedTuple):
    """The oldest first."""

    samples: list[TrafficSample]
    step_seconds: int


def traffic(connection: sqlite3.Connection, span: TrafficSpan) -> FoundTraffic:
    """The mean of each step that has a sample. Raises Invalid for too small a step."""
    seconds = max(0.0, span.until - span.since)
    step = span.step or EVERY * max(1, math.ceil(seconds / _USUAL / EVERY))
    if seconds / step > MOST:
        raise Invalid(Problem("step", "invalid", f"must be larger: these are more than {MOST} steps"))
    values = {"step": step, "since": span.since, "until": span.until}
    rows = connection.execute(_SAMPLES, values)
    return FoundTraffic([TrafficSample(at, round(down), round(up)) for at, down, up in rows], step)
