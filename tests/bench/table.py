"""The tables of the docs, in Markdown."""

from collections.abc import Iterable, Iterator

from tests.bench.goals import Goal
from tests.bench.pairs import Figure
from tests.bench.results import Results

_NOT_MEASURED = "not measured"


def rows(goals: Iterable[Goal], results: Results) -> Iterator[str]:
    """One line for each goal, after the two of the head."""
    yield "| work | here | beside it | ratio | goal | reached |"
    yield "|---|---|---|---|---|---|"
    for goal in goals:
        figure = results.figure(goal.part, goal.key)
        yield f"| {' | '.join(_cells(goal, figure))} |"


def _cells(goal: Goal, figure: Figure | None) -> tuple[str, ...]:
    limit = f"{goal.bound.value} {goal.limit:g}"
    if figure is None:
        return goal.work, _NOT_MEASURED, goal.beside or "-", "-", limit, "-"
    work = f"{goal.work} ({figure.note})" if figure.note else goal.work
    reached = "yes" if goal.is_met(figure) else "no"
    ours = number(figure.ours, figure.unit)
    if figure.theirs is None:
        return work, ours, "-", "-", f"{limit} {figure.unit}", reached
    theirs = f"{goal.beside}: {number(figure.theirs, figure.unit)}"
    return work, ours, theirs, f"{figure.ratio:.3g}", limit, reached


def number(value: float, unit: str) -> str:
    """With three significant digits: `1,230/s`, `0.456 ms`."""
    text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return text + unit if unit.startswith("/") else f"{text} {unit}"
