"""Which ends of sessions are those of a request."""

import pytest

from gateway_core.gateways.linux.daemons.source import SourceUnavailable, Terminations
from tests.support.core_clock import StillClock


def test_a_request_counts_before_it_is_made_and_for_a_minute() -> None:
    clock = StillClock()
    terminations = Terminations(clock)
    with terminations.note("a", "b"):
        assert "a" in terminations
    clock.now += 59
    assert "a" in terminations
    assert "b" in terminations
    assert "c" not in terminations
    clock.now += 1
    assert "a" not in terminations


def test_a_request_that_fails_does_not_count_and_one_before_it_does() -> None:
    terminations = Terminations(StillClock())
    with terminations.note("a"):
        pass
    with pytest.raises(SourceUnavailable), terminations.note("a", "b"):
        raise SourceUnavailable("no reply")
    assert "a" in terminations
    assert "b" not in terminations
