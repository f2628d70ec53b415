"""`python -m bench.chart RESULTS SVG`: how far each goal is reached.

It runs in the environment of the bench, which has matplotlib and none of the service's packages.
"""

import sys
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import LogLocator, NullLocator

from bench.goals import GOALS, Bound, Goal
from bench.pairs import Figure
from bench.results import Results

_REACHED, _MISSED = "#1b7f4d", "#b3541e"
_ROW = 0.3


def main() -> None:
    """A bar for each measured goal, from the goal to its reached share. The scale is logarithmic."""
    results = Results.read(Path(sys.argv[1]))
    measured = [(goal, figure) for goal in GOALS if (figure := results.figure(goal.part, goal.key))]
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "bench", "font.size": 9})
    drawing = Drawing(figsize=(9, 1.2 + _ROW * len(measured)), layout="constrained")
    axes = drawing.subplots()
    names = [f"{goal.work} / {goal.beside}" if goal.beside else goal.work for goal, _ in measured]
    shares = [share(goal, figure) for goal, figure in measured]
    colours = [_REACHED if goal.is_met(figure) else _MISSED for goal, figure in measured]
    places = range(len(measured))
    # From the goal: to the right where it is exceeded, to the left where it is missed.
    axes.barh(places, [each - 1 for each in shares], left=1, color=colours)
    axes.set_yticks(places, [name.replace("`", "") for name in names])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xlabel("share of the goal: 1 is the goal, 2 twice as good")
    axes.spines[["top", "right"]].set_visible(False)
    drawing.savefig(sys.argv[2], metadata={"Date": None})


def share(goal: Goal, figure: Figure) -> float:
    """At least 1 where the goal is reached."""
    return figure.ratio / goal.limit if goal.bound is Bound.AT_LEAST else goal.limit / figure.ratio


if __name__ == "__main__":
    main()
