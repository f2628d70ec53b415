"""Times and durations as people write them, on the command line of gatewayctl."""

import re
from datetime import datetime
from zoneinfo import ZoneInfo

import click
import pytest

from gateway_api.cli.ctl.times import DurationType, GivenTime, TimeType, parse_moment

ZONE = ZoneInfo("Europe/Warsaw")
NOW = datetime(2026, 3, 10, 12, 0, tzinfo=ZONE).timestamp()


def at(text: str) -> float:
    """Epoch seconds of a text in the zone."""
    return datetime.fromisoformat(text).replace(tzinfo=ZONE).timestamp()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("2h", 7200), ("2h ago", 7200), ("1d", 86400), ("now", 0)],
)
def test_a_duration_is_so_long_ago(text: str, seconds: int) -> None:
    assert parse_moment(text, NOW, ZONE) == GivenTime(NOW - seconds, is_local=False)


def test_a_duration_is_so_far_ahead_where_a_time_is_in_the_future() -> None:
    assert parse_moment("2h", NOW, ZONE, ahead=True) == GivenTime(NOW + 7200, is_local=False)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("02:13", "2026-03-10 02:13"),
        ("2:13", "2026-03-10 02:13"),
        ("02:13:05", "2026-03-10 02:13:05"),
        ("12:00", "2026-03-10 12:00"),
        ("13:00", "2026-03-09 13:00"),
        ("today 13:00", "2026-03-10 13:00"),
        ("yesterday 02:13", "2026-03-09 02:13"),
        ("yesterday", "2026-03-09 00:00"),
        ("2026-03-01", "2026-03-01 00:00"),
        ("2026-03-01 02:13", "2026-03-01 02:13"),
        ("2026-03-01T02:13:05", "2026-03-01 02:13:05"),
        # Another offset in summer.
        ("2025-07-01 02:13", "2025-07-01 02:13"),
    ],
)
def test_a_time_without_a_zone_is_in_that_of_the_machine(text: str, meant: str) -> None:
    assert parse_moment(text, NOW, ZONE) == GivenTime(at(meant), is_local=True)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("02:13", "2026-03-11 02:13"), ("13:00", "2026-03-10 13:00"), ("tomorrow 06:00", "2026-03-11 06:00")],
)
def test_a_time_of_day_is_the_next_one_where_a_time_is_in_the_future(text: str, meant: str) -> None:
    assert parse_moment(text, NOW, ZONE, ahead=True) == GivenTime(at(meant), is_local=True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-03-01T12:00:00Z", 1772366400.0),
        ("2026-03-01T13:00:00+01:00", 1772366400.0),
        ("1772366400.5", 1772366400.5),
    ],
)
def test_a_time_with_its_offset_and_epoch_seconds_are_what_they_were(text: str, seconds: float) -> None:
    assert parse_moment(text, NOW, ZONE) == GivenTime(seconds, is_local=False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "25:00",
        "02:60",
        "2026-02-30",
        "yesterday at noon",
        "-2h",
        "1.5h",
        "02:13 yesterday",
        "\u0661h",
    ],
)
def test_another_text_is_refused_with_the_rule(text: str) -> None:
    with pytest.raises(ValueError, match="must be a time, such as 2h, 02:13, yesterday 02:13"):
        parse_moment(text, NOW, ZONE)


def test_a_duration_may_be_seconds_alone_where_no_unit_is_needed() -> None:
    assert [DurationType().convert(text, None, None) for text in ("120", "2m")] == [120, 120]
    with pytest.raises(click.BadParameter):
        DurationType(needs_unit=True).convert("120", None, None)


def test_a_time_in_the_zone_of_the_machine_is_shown_with_its_offset(
    capsys: pytest.CaptureFixture[str],
) -> None:
    since = click.Option(["--since"])
    TimeType().convert("2026-03-10 02:13", since, None)
    assert re.search(r"--since is 2026-03-10 02:13:00 [+-]\d{4} \(", capsys.readouterr().err)
    TimeType().convert("2h", since, None)
    assert capsys.readouterr().err == ""
