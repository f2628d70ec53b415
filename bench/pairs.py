"""Sides of a comparison, measured in turn: A B A B. What disturbs the machine for a while disturbs both."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from bench.load import Load, Request, load

T = TypeVar("T")


@dataclass(frozen=True)
class Effort:
    """The duration of the measurements: seconds of load, and how often each side has its turn."""

    seconds: int
    rounds: int

    def divided(self, by: int) -> "Effort":
        """For many pairs."""
        return Effort(max(1, self.seconds // by), max(1, self.rounds // by))


@dataclass(frozen=True)
class Figure:
    """Medians of all rounds. `ratio` is the median of the ratios of each round. `theirs` is None without
    another side. `note` is for the reader, or empty."""

    ours: float
    theirs: float | None
    ratio: float
    unit: str
    note: str = ""


def in_turn(rounds: int, sides: Mapping[str, Callable[[], T]]) -> list[dict[str, T]]:
    """The measurements of each round."""
    return [{name: measure() for name, measure in sides.items()} for _ in range(rounds)]


def loads(effort: Effort, connections: int, sides: Mapping[str, Request]) -> list[dict[str, Load]]:
    """The loads of each round, after a warm-up of each side."""
    for request in sides.values():
        request.probe()
        load(request, connections, 1)
    return in_turn(
        effort.rounds,
        {
            name: lambda request=request: load(request, connections, effort.seconds)
            for name, request in sides.items()
        },
    )


def compared(rounds: list[dict[str, float]], ours: str, theirs: str, unit: str, note: str = "") -> Figure:
    """One side beside another, by numbers of each round."""
    ratio = median(each[ours] / each[theirs] for each in rounds)
    return Figure(
        median(each[ours] for each in rounds), median(each[theirs] for each in rounds), ratio, unit, note
    )


def rates(rounds: list[dict[str, Load]]) -> list[dict[str, float]]:
    """Responses a second of each side and round."""
    return [{name: one.rate for name, one in each.items()} for each in rounds]


def times(rounds: list[dict[str, Load]]) -> list[dict[str, float]]:
    """Milliseconds from one response of all connections to the next one, of each side and round."""
    return [{name: 1000 / one.rate for name, one in each.items()} for each in rounds]


def number(value: float, unit: str) -> str:
    """With three significant digits: `1,230/s`, `0.456 ms`."""
    text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return text + unit if unit.startswith("/") else f"{text} {unit}"
