"""Runs the work of a login ledger in the test's own thread."""

import sqlite3
from collections.abc import Callable
from typing import Any

from gateway_api.auth.ledger import Revocations
from tests.support.clocks import SteppedClock


class SamePool:
    """Runs each task immediately."""

    def apply(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return function(*args)


def revocations_of(ledger: sqlite3.Connection, clock: SteppedClock, kept: int = 100_000) -> Revocations:
    return Revocations(ledger, ledger, SamePool(), clock, kept)
