"""A login ledger as a worker has it, whose synced writes run in the test's own thread."""

from pathlib import Path

from gateway_api.auth.ledger import Ledger, Revocations, SharedState
from tests.support.clocks import SteppedClock
from tests.support.pools import Here


def ledger_at(path: Path, shared: SharedState, clock: SteppedClock | None = None) -> Ledger:
    """Return an open ledger, as a worker has it that was forked after `shared` was made."""
    made = Ledger(path, Here(), shared, clock or SteppedClock())
    made.check()
    return made


def lose(path: Path) -> None:
    """Have nobody read or make a ledger at this path."""
    path.unlink()
    path.mkdir()


def revocations_of(ledger: Ledger, clock: SteppedClock, kept: int = 100_000) -> Revocations:
    return Revocations(ledger, clock, kept)
