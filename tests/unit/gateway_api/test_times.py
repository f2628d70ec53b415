"""Times and durations as clients write them, and as people do on the command line of gatewayctl."""

import re
from datetime import datetime
from zoneinfo import ZoneInfo

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_api.web.routes.token_profile import format_uptime
from gateway_contract.base.texts import format_local, format_utc, parse_duration, parse_past_time, parse_time
from gatewayctl.texts import format_duration
from gatewayctl.times import DurationType, TimeType, TypedTime, parse_typed_time

ZONE = ZoneInfo("Europe/Warsaw")
NOW = datetime(2026, 3, 10, 12, 0, tzinfo=ZONE).timestamp()


def at(text: str) -> float:
    """Epoch seconds of a text in the zone."""
    return datetime.fromisoformat(text).replace(tzinfo=ZONE).timestamp()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("2h", 7200), ("2h ago", 7200), ("now", 0), ("1 day, 2:03:04 ago", 93_784)],
)
def test_a_duration_is_so_long_ago(text: str, seconds: int) -> None:
    assert parse_typed_time(text, NOW, ZONE) == TypedTime(NOW - seconds, is_local=False)
    # Or so far ahead, where a time is in the future.
    if "ago" not in text:
        assert parse_typed_time(text, NOW, ZONE, is_future=True) == TypedTime(NOW + seconds, is_local=False)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        *(("2:13", "2026-03-10 02:13"), ("12:00", "2026-03-10 12:00"), ("13:00", "2026-03-09 13:00")),
        *(("today 13:00", "2026-03-10 13:00"), ("yesterday 02:13", "2026-03-09 02:13")),
        *(("yesterday", "2026-03-09 00:00"), ("2026-03-01T02:13:05", "2026-03-01 02:13:05")),
        # Another offset in summer.
        ("2025-07-01 02:13", "2025-07-01 02:13"),
    ],
)
def test_a_time_without_a_zone_is_in_that_of_the_machine(text: str, meant: str) -> None:
    assert parse_typed_time(text, NOW, ZONE) == TypedTime(at(meant), is_local=True)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("02:13", "2026-03-11 02:13"), ("13:00", "2026-03-10 13:00"), ("tomorrow 06:00", "2026-03-11 06:00")],
)
def test_a_time_of_day_is_the_next_one_where_a_time_is_in_the_future(text: str, meant: str) -> None:
    assert parse_typed_time(text, NOW, ZONE, is_future=True) == TypedTime(at(meant), is_local=True)


@pytest.mark.parametrize(
    ("text", "seconds"), [("2026-03-01T13:00:00+01:00", 1772366400.0), ("1772366400.5", 1772366400.5)]
)
def test_a_time_with_its_offset_and_epoch_seconds_are_what_they_were(text: str, seconds: float) -> None:
    assert parse_typed_time(text, NOW, ZONE) == TypedTime(seconds, is_local=False)


@pytest.mark.parametrize("text", ["", "25:00", "2026-02-30", "yesterday at noon", "-2h", "\u0661h"])
def test_another_text_is_refused_with_the_rule(text: str) -> None:
    with pytest.raises(ValueError, match="must be a time, such as 2h, 02:13, yesterday 02:13"):
        parse_typed_time(text, NOW, ZONE)


DAY = 86_400


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (str(int(NOW - DAY) * 1000), ": milliseconds?"),
        (str(int(NOW - DAY) * 10**6), ": microseconds?"),
        (str(int(NOW - DAY) * 10**9), ": nanoseconds?"),
        ("20261127", ": a date? Write 2026-11-27T00:00:00Z"),
        *((text, "") for text in ("946684799", str(int(NOW) + DAY + 1), "20261127101500")),
    ],
)
def test_a_number_that_cannot_be_epoch_seconds_is_refused_and_says_what_it_may_be(
    text: str, hint: str
) -> None:
    # The command line has the same sentence.
    for read in (parse_time, parse_typed_time):
        with pytest.raises(ValueError) as refused:
            read(text, NOW)
        assert str(refused.value).endswith(
            f"; {text} is not from 2000-01-01T00:00:00Z to {format_utc(NOW + DAY)}{hint}"
        )


def test_a_number_from_2000_to_tomorrow_is_epoch_seconds() -> None:
    for text in ("946684800", str(int(NOW) + DAY)):
        assert parse_time(text, NOW) == float(text)


@pytest.mark.parametrize("text", ["20261127T111500+0100", "2026-11-27 10:15:00+00:00"])
def test_a_basic_iso_8601_time_is_that_time(text: str) -> None:
    assert parse_time(text, NOW) == 1795774500


@pytest.mark.parametrize("text", ["20261127T101500", "2026-11-27", "1.5e9", "-1", "nan", "1" * 21])
def test_a_time_without_an_offset_and_another_number_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must be epoch seconds, or a time with its offset such as"):
        parse_time(text, NOW)


def test_a_time_that_must_be_past_is_not_after_now() -> None:
    assert parse_past_time(str(int(NOW)), NOW) == int(NOW)
    for text in (str(int(NOW) + 1), "9999-12-31T00:00:00Z"):
        with pytest.raises(ValueError, match=r"^must not be in the future: it is 2026-03-10T11:00:00Z now$"):
            parse_past_time(text, NOW)


def test_the_end_of_a_rate_may_be_a_number_up_to_a_year_ahead() -> None:
    far = int(NOW) + 366 * DAY
    assert parse_typed_time(str(far), NOW, ZONE, is_future=True) == TypedTime(far)
    for text in (str(far + 1), str(far * 1000), "20261127"):
        with pytest.raises(ValueError, match=f"; {text} is not from 2000-01-01T00:00:00Z to 2027-03-11"):
            parse_typed_time(text, NOW, ZONE, is_future=True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("90s", 90), ("30m", 1800), ("2d", 172_800), ("1h30m", 5400)),
        # As the live page, tables and the alternative profile show them.
        *(("1 d 2 h", 93_600), ("5 min 3 s", 303), ("1 day, 2:03:04", 93_784), ("2 days, 0:00:00", 172_800)),
    ],
)
def test_a_duration_is_numbers_with_units_or_as_it_is_shown(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds
    assert DurationType(needs_unit=True).convert(text, None, None) == seconds


def test_an_uptime_is_days_and_a_clock() -> None:
    for seconds, text in ((3599.99, "00:59:59"), (-1, "00:00:00"), (DAY + 7384, "1d 02:03:04")):
        assert format_uptime(1_700_000_000, 1_700_000_000 + seconds) == text


@given(st.integers(0, 10**9))
def test_a_duration_that_is_shown_is_read(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == parse_duration(format_uptime(0, seconds)) == seconds


@given(st.integers(0, 4_102_444_800))
def test_a_time_that_is_shown_is_read(seconds: int) -> None:
    for text in (format_local(seconds), format_utc(seconds)):
        assert parse_typed_time(text, NOW, ZONE) == TypedTime(seconds)


@pytest.mark.parametrize("text", ["", "h", "90", "1.5h", "-1h", "1w", "2h 1d", "2:60:00", "\u0661h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a number with s, m, h or d"):
        parse_duration(text)


def test_a_duration_may_be_seconds_alone_where_no_unit_is_needed() -> None:
    assert [DurationType().convert(text, None, None) for text in ("120", "2m")] == [120, 120]
    with pytest.raises(click.BadParameter):
        DurationType(needs_unit=True).convert("120", None, None)


def test_a_time_in_the_zone_of_the_machine_may_be_far_ahead_as_one_with_its_offset() -> None:
    # The API takes no number for a time after tomorrow.
    sent = TimeType().convert("9000-01-01", None, None)
    assert parse_time(sent, NOW) == datetime(9000, 1, 1).timestamp()
    with pytest.raises(click.BadParameter, match="must be a time, such as 2h"):
        TimeType().convert("9999999d", None, None)


def test_a_time_in_the_zone_of_the_machine_is_shown_with_its_offset(
    capsys: pytest.CaptureFixture[str],
) -> None:
    since = click.Option(["--since"])
    TimeType().convert("2026-03-10 02:13", since, None)
    (shown,) = re.findall(r"--since is (.*)\n", capsys.readouterr().err)
    assert parse_typed_time(shown, NOW) == parse_typed_time("2026-03-10 02:13", NOW)._replace(is_local=False)
    TimeType().convert("2h", since, None)
    assert capsys.readouterr().err == ""
