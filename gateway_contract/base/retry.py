"""Endless retries, which log each failure once."""

import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from gateway_contract.base.errors import CoreLacksMethod, GatewayApiError

T = TypeVar("T")

#: Seconds until the next attempt after an error of a core that lacks a method. A new core may have the
#: method.
MISSING_METHOD_RETRY_SECONDS = 60.0


def repeat(
    make: Callable[[], Iterable[T]],
    pause: Callable[[float], object],
    task: str,
    log: logging.Logger,
    *,
    seconds: float = 1.0,
    level: int = logging.WARNING,
    fault: str | None = None,
) -> Iterator[T]:
    """Yield the items of the iterable that `make` returns. After the end of the iterable, wait and call
    `make` again, without an end. To wait, call `pause` with `seconds` or more.

    A failure (GatewayApiError, OSError or sqlite3.Error) is logged once at the given level, as "cannot" and
    the text `task`; the next failure is logged only after another item has arrived. An unexpected exception
    is logged each time with the text `fault`. If `fault` is None, an unexpected exception is raised."""
    has_failed = False
    while True:
        wait = seconds
        try:
            for item in make():
                has_failed = False
                yield item
        except (GatewayApiError, OSError, sqlite3.Error) as error:
            log.log(logging.DEBUG if has_failed else level, "cannot %s: %s", task, error)
            has_failed = True
            if isinstance(error, CoreLacksMethod):
                wait = MISSING_METHOD_RETRY_SECONDS
        except Exception:
            if fault is None:
                raise
            log.exception(fault)
            wait = max(wait, 1.0)
        pause(wait)
