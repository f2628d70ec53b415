"""The traffic over time: what counters tell, what the store keeps, and what a reader finds."""

from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway_api.history.reader import Reader
from gateway_api.history.sessions import SessionWriter
from gateway_api.history.traffic import (
    TrafficRecorder,
    TrafficSpan,
    TrafficWriter,
    TrunkCounters,
    read_traffic,
)
from gateway_contract.base.errors import CoreUnavailable, Invalid
from gateway_contract.core.configuration import HistoryLimits
from gateway_contract.core.network import InterfaceStats, InterfaceType
from gateway_contract.history import TrafficSample
from tests.support.pools import Here


def counters(steady: float, uptime: int = 100, **trunks: tuple[int, int]) -> TrunkCounters:
    """Bytes from and to subscribers, by trunk."""
    stats = {name: InterfaceStats(rx_bytes=rx, tx_bytes=tx) for name, (rx, tx) in trunks.items()}
    return TrunkCounters(steady, uptime, stats)


def sample(at: int, down: int = 800, up: int = 80) -> TrafficSample:
    return TrafficSample(at, down, up)


class Kept:
    """What a store at `path` keeps of some samples."""

    def __init__(self, path: Path, *samples: TrafficSample) -> None:
        self.path = path
        with closing(TrafficWriter(path)) as store:
            for one in samples:
                store.add(one)

    def found(self, since: float, until: float, step: int | None = 10) -> list[TrafficSample]:
        return Reader(self.path, Here()).search(read_traffic, TrafficSpan(since, until, step)).samples

    def step(self, since: float, until: float) -> int:
        return Reader(self.path, Here()).search(read_traffic, TrafficSpan(since, until, None)).step_seconds

    def trim(self, now: int, **limits: Any) -> None:
        with closing(SessionWriter(self.path)) as store:
            while store.trim(HistoryLimits(**{"days": 90, "mebibytes": 1024, **limits}), now):
                pass


def test_a_sample_is_the_mean_of_all_trunks_since_the_last() -> None:
    before = counters(5.0, trunk0=(1000, 5000), trunk1=(0, 0))
    after = counters(15.0, 110, trunk0=(2000, 8000), trunk1=(500, 2000))
    assert after.make_sample(before, 1795271510) == TrafficSample(1795271510, down_bps=4000, up_bps=1200)


def test_a_trunk_that_is_new_counts_from_its_second_sample() -> None:
    before, after = counters(0.0, trunk0=(0, 0)), counters(10.4, 109, trunk0=(0, 1040), trunk1=(0, 10**9))
    # An uptime in whole seconds may seem to grow less.
    assert after.make_sample(before, 1) == sample(1, 800, 0)


@pytest.mark.parametrize(
    "after", [{"trunk0": (100, 0)}, {"trunk0": (0, 10**9 + 5)}], ids=["bytes sent", "bytes received"]
)
def test_there_is_no_sample_where_a_counter_began_again(after: dict[str, tuple[int, int]]) -> None:
    before = counters(0.0, trunk0=(50, 10**9))
    assert counters(10.0, 110, **after).make_sample(before, 1) is None


@pytest.mark.parametrize(
    ("steady", "uptime"),
    [(10.0, 107), (31.0, 131), (0.0, 100)],
    ids=["core restarted", "long ago", "no time"],
)
def test_there_is_no_sample_without_a_mean(steady: float, uptime: int) -> None:
    before, after = counters(0.0, trunk0=(0, 0)), counters(steady, uptime, trunk0=(9, 9))
    assert after.make_sample(before, 1) is None


def test_a_step_is_the_mean_of_its_samples(tmp_path: Path) -> None:
    samples = (sample(1190), sample(1200, 100, 10), sample(1230, 300, 30), sample(1380, 500, 50))
    # One without a sample is missing. The span begins at its start, and ends before its end.
    kept = Kept(tmp_path / "h", *samples, sample(1440))
    assert kept.found(1200, 1440, 60) == [sample(1200, 200, 20), sample(1380, 500, 50)]


@pytest.mark.parametrize(("seconds", "step"), [(0, 10), (3600, 10), (3601, 20), (86_400, 240)])
def test_without_a_step_there_are_at_most_360(tmp_path: Path, seconds: int, step: int) -> None:
    assert Kept(tmp_path / "h").step(1000, 1000 + seconds) == step


def test_more_steps_than_a_response_has_are_refused(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "h")
    assert kept.found(0, 100_000) == []
    with pytest.raises(Invalid) as refused:
        kept.found(0, 100_001)
    assert refused.value.problems[0].path == "step"


def test_a_sample_is_taken_after_each_pause(tmp_path: Path) -> None:
    pauses: list[float] = []

    class Core:
        """A core of which a trunk sends 1000 bytes a second."""

        def call(self, _: Any) -> Any:
            stats = InterfaceStats(tx_bytes=1000 * round(sum(pauses)))
            trunk = SimpleNamespace(name="trunk0", type=InterfaceType.TRUNK, stats=stats)
            return SimpleNamespace(interfaces=[trunk], uptime_seconds=round(sum(pauses)))

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise CoreUnavailable("enough")

    kept, steady = Kept(tmp_path / "h"), lambda: sum(pauses)
    with pytest.raises(CoreUnavailable):
        TrafficRecorder(cast(Any, Core()), kept.path, Here(), steady, steady, pause).record()
    assert pauses == [10, 10, 10]
    assert kept.found(0, 60) == [sample(10, 8000, 0), sample(20, 8000, 0)]


def test_samples_go_after_the_days_of_the_history(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "h", sample(0), sample(86_399), sample(86_400))
    kept.trim(2 * 86_400, days=1)
    assert [one.at for one in kept.found(0, 90_000)] == [86_400]


def test_samples_take_an_eighth_of_the_history_at_most(tmp_path: Path) -> None:
    most = (16 << 20) // 8 // 32
    kept = Kept(tmp_path / "h")
    with closing(TrafficWriter(kept.path)) as store:
        rows = ((10 * number, 1, 1) for number in range(most + 15_000))
        store._connection.execute("BEGIN")
        store._connection.executemany("INSERT INTO traffic VALUES (?, ?, ?)", rows)
        store._connection.execute("COMMIT")
    kept.trim(10 * (most + 15_000), mebibytes=16)
    with closing(TrafficWriter(kept.path)) as store:
        assert store._connection.execute("SELECT count(*) FROM traffic").fetchone() == (most,)
