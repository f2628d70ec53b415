"""Attempts without an end: what they log, and when they pause."""

import logging
from collections.abc import Iterator

import pytest

from gateway_contract.base.errors import CoreLacksMethod, CoreUnavailable
from gateway_contract.base.retry import repeat

_log = logging.getLogger(__name__)


class Enough(BaseException):
    """Ends the attempts."""


class Attempts:
    """The results of attempts, one after another: items, or an error after them."""

    def __init__(self, *results: list[str] | Exception) -> None:
        self._results = iter(results)
        self.pauses: list[float] = []

    def make(self) -> Iterator[str]:
        result = next(self._results, Enough())
        if isinstance(result, BaseException):
            raise result
        yield from result

    def run(self, fault: str | None = None) -> list[str]:
        found = []
        with pytest.raises(Enough):
            for item in repeat(self.make, self.pauses.append, "follow it", _log, seconds=0.2, fault=fault):
                found.append(item)
        return found


def _logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The records of the attempts of this module."""
    return [record for record in caplog.records if record.name == __name__]


def test_items_of_all_attempts_come_in_order_with_a_pause_after_each_end() -> None:
    attempts = Attempts(["a", "b"], [], CoreUnavailable("gone"), ["c"])
    assert attempts.run() == ["a", "b", "c"]
    assert attempts.pauses == [0.2] * 4


def test_failures_are_logged_once_until_there_is_another_item(caplog: pytest.LogCaptureFixture) -> None:
    gone = CoreUnavailable("gone")
    with caplog.at_level(logging.DEBUG):
        Attempts(gone, OSError("full"), ["a"], gone, [], gone).run()
    assert [(one.levelname, one.message) for one in _logged(caplog)] == [
        ("WARNING", "cannot follow it: gone"),
        ("DEBUG", "cannot follow it: full"),
        ("WARNING", "cannot follow it: gone"),
        ("DEBUG", "cannot follow it: gone"),
    ]


def test_a_core_that_lacks_the_method_is_asked_again_after_a_minute() -> None:
    attempts = Attempts(CoreLacksMethod("Follow"), CoreUnavailable("gone"))
    attempts.run()
    assert attempts.pauses == [60.0, 0.2]


def test_an_unexpected_exception_is_logged_each_time_and_the_attempts_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    attempts = Attempts(ZeroDivisionError(), ZeroDivisionError(), ["a"])
    assert attempts.run(fault="it is lost") == ["a"]
    assert [(one.levelname, one.message, bool(one.exc_info)) for one in _logged(caplog)] == [
        ("ERROR", "it is lost", True)
    ] * 2
    assert attempts.pauses == [1.0, 1.0, 0.2]


def test_an_unexpected_exception_ends_the_attempts_where_nothing_is_said_about_it() -> None:
    with pytest.raises(ZeroDivisionError):
        next(repeat(Attempts(ZeroDivisionError()).make, float, "follow it", _log))
