"""The tables of the docs, in Markdown."""

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from statistics import linear_regression

from bench.goals import GROWTH, SIZES, Goal, growth_key
from bench.pairs import Figure, number
from bench.results import Results

_NOT_MEASURED = "not measured"


def rows(goals: Iterable[Goal], results: Results) -> Iterator[str]:
    """One line for each goal, after the two of the head."""
    yield "| work | here | beside it | ratio | goal | reached |"
    yield "|---|---|---|---|---|---|"
    for goal in goals:
        yield _line(*_cells(goal, results.figure(goal.part, goal.key)))


def growth(results: Results) -> Iterator[str]:
    """One line for each work at all sizes, with its exponent."""
    yield _line("work", *(f"{size:,} sessions" for size in SIZES), "exponent")
    yield "|---" * (len(SIZES) + 2) + "|"
    run = results.runs.get(GROWTH)
    for work, figures in _by_work(run.figures if run else {}).items():
        cells = (number(one.ours, one.unit) for one in figures.values())
        missing = (_NOT_MEASURED for size in SIZES if size not in figures)
        yield _line(work, *chain(cells, missing), f"{exponent(figures):.2f}" if len(figures) > 1 else "-")


def exponent(figures: Mapping[int, Figure]) -> float:
    """Of the power of the number of sessions with which the figures grow."""
    sizes, values = zip(*((math.log(size), math.log(one.ours)) for size, one in figures.items()), strict=True)
    return linear_regression(sizes, values).slope


def _by_work(figures: Mapping[str, Figure]) -> dict[str, dict[int, Figure]]:
    found: dict[str, dict[int, Figure]] = {}
    for key in figures:
        work = key.rpartition(" @ ")[0]
        found[work] = {size: figures[each] for size in SIZES if (each := growth_key(work, size)) in figures}
    return found


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


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
