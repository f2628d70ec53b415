"""Parser of times and durations as people write them: `2h`, `02:13`, `yesterday 02:13`.

A time without a zone is interpreted in the time zone of this machine, and standard error shows the
interpretation.
"""

import math
import re
import time
from datetime import date, datetime, timedelta, tzinfo
from typing import Any, NamedTuple

import click

from gateway_contract.base.texts import DAY, format_local, format_utc, is_number, parse_duration, parse_time
from gateway_contract.core.sessions import MAX_EXPIRY_SECONDS
from gatewayctl.cli import get_label
from gatewayctl.terminal import print_errors

#: Forms of a time, for help texts.
TIME_FORMS = "2h (ago), 02:13, yesterday 02:13, 2026-03-01, ISO 8601 or epoch seconds"
_TIME_RULE = "must be a time, such as 2h, 02:13, yesterday 02:13, 2026-03-01 02:13, ISO 8601 or epoch seconds"
_TIME_OF_DAY_PATTERN = r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d))?"
_DAY_OFFSETS = {"today": 0, "yesterday": -1, "tomorrow": 1}
_LOCAL_TIME_PATTERN = re.compile(
    rf"(?:(?P<day>{'|'.join(_DAY_OFFSETS)})|(?P<date>\d{{4}}-\d\d-\d\d))?"
    rf"(?:(?:^|[ T]){_TIME_OF_DAY_PATTERN})?",
    re.ASCII,
)


class TypedTime(NamedTuple):
    """Time in epoch seconds. `is_local` is True if the time was typed without a zone, and was interpreted in
    the time zone of this machine."""

    at: float
    is_local: bool = False


def parse_typed_time(
    text: str, now: float, zone: tzinfo | None = None, *, is_future: bool = False
) -> TypedTime:
    """Return the time that a text means. A duration such as `2h` means this long before `now`, and a time of
    day means its last occurrence. With `is_future`, a duration means this long after `now`, and a time of day
    means its next occurrence. `zone` is the time zone of a time without a zone, by default the zone of this
    machine. Raises ValueError, with the broken rule as its text, if the text is not a time."""
    if text == "now":
        return TypedTime(now)
    try:
        return TypedTime(_parse_api_time(text, now, is_future=is_future))
    except ValueError:
        # A number can only be epoch seconds, and the error of the API describes the valid range.
        if is_number(text):
            raise
    match = _LOCAL_TIME_PATTERN.fullmatch(text)
    try:
        # Before durations: 02:13:05 is a time of day.
        if match is not None and text:
            today = datetime.fromtimestamp(now, zone).date()
            return TypedTime(_compute_local(match, today, now, zone, is_future), is_local=True)
        seconds = parse_duration(text.removesuffix(" ago"))
    except (ValueError, OverflowError) as error:
        raise ValueError(_TIME_RULE) from error
    return TypedTime(now + seconds if is_future and not text.endswith(" ago") else now - seconds)


def _parse_api_time(text: str, now: float, *, is_future: bool) -> float:
    return parse_time(text, now, MAX_EXPIRY_SECONDS if is_future else DAY)


def _compute_local(
    match: re.Match[str], today: date, now: float, zone: tzinfo | None, is_future: bool
) -> float:
    """Return the epoch seconds of the date and the time of day in `match`. Raises ValueError or OverflowError
    if the date or the time does not exist."""
    hour, minute, second = (int(match[name] or 0) for name in ("hour", "minute", "second"))

    def compute(day: date) -> float:
        return datetime(day.year, day.month, day.day, hour, minute, second, tzinfo=zone).timestamp()

    if match["date"]:
        return compute(date.fromisoformat(match["date"]))
    if match["day"]:
        return compute(today + timedelta(_DAY_OFFSETS[match["day"]]))
    if is_future:
        return compute(today) if compute(today) > now else compute(today + timedelta(1))
    return compute(today) if compute(today) <= now else compute(today - timedelta(1))


class TimeType(click.ParamType[str]):
    """Parameter type for a time. With `is_future`, only a time in the future is accepted."""

    name = "time"

    def __init__(self, *, is_future: bool = False) -> None:
        self._is_future = is_future

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        now = time.time()
        try:
            typed_time = parse_typed_time(value, now, is_future=self._is_future)
            if self._is_future and typed_time.at <= now:
                raise ValueError("must be in the future")
            try:
                formatted = format_utc(typed_time.at)
            except (ValueError, OverflowError) as error:
                raise ValueError(_TIME_RULE) from error
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if typed_time.is_local and param is not None and not (ctx and ctx.resilient_parsing):
            print_errors([f"{get_label(param)} is {format_local(typed_time.at)}"])
        try:
            # A text that the API accepts is sent unchanged, to keep fractions of a second.
            _parse_api_time(value, now, is_future=self._is_future)
        except ValueError:
            return formatted
        return str(value)


class DurationType(click.ParamType[int]):
    """Parameter type for a duration of 1 to `max_seconds` seconds. A number without a unit means seconds.
    With `needs_unit`, a number without a unit is refused."""

    name = "time"

    def __init__(self, max_seconds: float = math.inf, *, needs_unit: bool = False) -> None:
        self._max_seconds = max_seconds
        self._needs_unit = needs_unit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        is_bare = not self._needs_unit and value.isascii() and value.isdigit() and len(value) <= 9
        try:
            seconds = int(value) if is_bare else parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds < 1:
            self.fail("must be at least 1 s", param, ctx)
        if seconds > self._max_seconds:
            self.fail(f"must be at most {self._max_seconds} s", param, ctx)
        return seconds
