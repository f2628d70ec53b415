"""The tables of the bench say what was measured, and what was not."""

from datetime import UTC, datetime

from bench import table
from bench.goals import GROWTH, SIZES, Bound, Goal, growth_key
from bench.pairs import Figure
from bench.results import Results

_NOW = datetime(2026, 3, 1, tzinfo=UTC)


def results(part: str, **figures: Figure) -> Results:
    found = Results()
    found.put(part, figures, _NOW, 1.0)
    return found


def reached(bound: Bound, ratio: float) -> str:
    goal = Goal("part", "key", "work", "a peer", bound, 2)
    (_, _, row) = table.rows([goal], results("part", key=Figure(ratio, 1.0, ratio, "/s")))
    return row.rpartition("| ")[2]


def test_a_rate_reaches_its_goal_from_the_limit_on() -> None:
    assert [reached(Bound.AT_LEAST, ratio) for ratio in (1.9, 2, 2.1)] == ["no |", "yes |", "yes |"]


def test_a_time_reaches_its_goal_up_to_the_limit() -> None:
    assert [reached(Bound.AT_MOST, ratio) for ratio in (1.9, 2, 2.1)] == ["yes |", "yes |", "no |"]


def test_a_goal_without_a_figure_is_not_measured() -> None:
    goal = Goal("part", "key", "work", "a peer", Bound.AT_LEAST, 2)
    (_, _, row) = table.rows([goal], Results())
    assert row == "| work | not measured | a peer | - | at least 2 | - |"


def test_what_grows_with_the_number_of_sessions_has_the_exponent_1() -> None:
    figures = {growth_key("list", size): Figure(size / 500, None, size / 500, "ms") for size in SIZES}
    (*_, row) = table.growth(results(GROWTH, **figures))
    assert row == "| list | 2 ms | 20 ms | 200 ms | 1.00 |"
