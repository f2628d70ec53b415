"""Attempts without an end, which log a failure once."""

import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from gateway_contract.base.errors import CoreLacksMethod, GatewayApiError

T = TypeVar("T")

#: Seconds until a core that lacks a method is asked again: it may be a new one then.
UNTIL_ANOTHER_CORE = 60.0


def for_ever(
    make: Callable[[], Iterable[T]],
    pause: Callable[[float], object],
    what: str,
    log: logging.Logger,
    *,
    seconds: float = 1.0,
    level: int = logging.WARNING,
    fault: str | None = None,
) -> Iterator[T]:
    """The items that `make` returns, again and again. After each end it calls `pause` with `seconds`, or
    more.

    A failure is logged once, as "cannot" and `what`, until there is another item. An unexpected exception is
    logged each time, as the text `fault`; without that text it is raised."""
    failed = False
    while True:
        wait = seconds
        try:
            for item in make():
                failed = False
                yield item
        except (GatewayApiError, OSError, sqlite3.Error) as error:
            log.log(logging.DEBUG if failed else level, "cannot %s: %s", what, error)
            failed = True
            if isinstance(error, CoreLacksMethod):
                wait = UNTIL_ANOTHER_CORE
        except Exception:
            if fault is None:
                raise
            log.exception(fault)
            wait = max(wait, 1.0)
        pause(wait)
