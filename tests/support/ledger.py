"""A login ledger as a worker has it, whose synced writes run in the test's own thread."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway_api.auth.ledger import Ledger, Revocations, SharedState
from tests.support.clocks import SteppedClock


class SamePool:
    """Runs each task immediately."""

    def apply(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return function(*args)


def ledger_at(path: Path, shared: SharedState, clock: SteppedClock | None = None) -> Ledger:
    """As a worker has it that was forked after `shared` was made. It is open."""
    made = Ledger(path, SamePool(), shared, clock or SteppedClock())
    made.check()
    return made


def lose(path: Path) -> None:
    """Lets nobody read or make a ledger at this path."""
    path.unlink()
    path.mkdir()


def revocations_of(ledger: Ledger, clock: SteppedClock, kept: int = 100_000) -> Revocations:
    return Revocations(ledger, clock, kept)
