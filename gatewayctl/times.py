"""Times and durations as people write them: `2h`, `02:13`, `yesterday 02:13`.

A time without a zone is in that of this machine, and the command says which time it takes.
"""

import re
import time
from datetime import date, datetime, timedelta, tzinfo
from typing import Any, NamedTuple

import click

from gateway_contract.base.texts import DAY, format_local, format_utc, is_number, parse_duration, parse_time
from gateway_contract.core.sessions import LONGEST_EXPIRY
from gatewayctl.command import label
from gatewayctl.terminal import complain

#: For the help of what takes a time.
FORMS = "2h (ago), 02:13, yesterday 02:13, 2026-03-01, ISO 8601 or epoch seconds"
_RULE = "must be a time, such as 2h, 02:13, yesterday 02:13, 2026-03-01 02:13, ISO 8601 or epoch seconds"
_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d))?"
_DAYS = {"today": 0, "yesterday": -1, "tomorrow": 1}
_TEXT = re.compile(
    rf"(?:(?P<day>{'|'.join(_DAYS)})|(?P<date>\d{{4}}-\d\d-\d\d))?(?:(?:^|[ T]){_CLOCK})?", re.ASCII
)


class GivenTime(NamedTuple):
    """A time in epoch seconds. `is_local` tells that its text was in the zone of the machine."""

    at: float
    is_local: bool = False


def parse_moment(text: str, now: float, zone: tzinfo | None = None, *, ahead: bool = False) -> GivenTime:
    """Return the time of a text. A duration is before `now`, and a time of day is the last one; `ahead`, both
    are after it. `zone` is that of the machine for None. Raises ValueError with the rule."""
    if text == "now":
        return GivenTime(now)
    try:
        return GivenTime(_epoch_seconds(text, now, ahead=ahead))
    except ValueError:
        # A number has no other form, and its error says what it may be.
        if is_number(text):
            raise
    match = _TEXT.fullmatch(text)
    try:
        # Before durations: 02:13:05 is a time of day.
        if match is not None and text:
            today = datetime.fromtimestamp(now, zone).date()
            return GivenTime(_local(match, today, now, zone, ahead), is_local=True)
        seconds = parse_duration(text.removesuffix(" ago"))
    except (ValueError, OverflowError) as error:
        raise ValueError(_RULE) from error
    return GivenTime(now + seconds if ahead and not text.endswith(" ago") else now - seconds)


def _epoch_seconds(text: str, now: float, *, ahead: bool) -> float:
    return parse_time(text, now, LONGEST_EXPIRY if ahead else DAY)


def _local(match: re.Match[str], today: date, now: float, zone: tzinfo | None, ahead: bool) -> float:
    """Raises ValueError and OverflowError for a date or time that does not exist."""
    hour, minute, second = (int(match[name] or 0) for name in ("hour", "minute", "second"))
    day = (
        date.fromisoformat(match["date"]) if match["date"] else today + timedelta(_DAYS.get(match["day"], 0))
    )

    def on(day: date) -> float:
        return datetime(day.year, day.month, day.day, hour, minute, second, tzinfo=zone).timestamp()

    if match["date"] or match["day"]:
        return on(day)
    if ahead:
        return on(day) if on(day) > now else on(day + timedelta(1))
    return on(day) if on(day) <= now else on(day - timedelta(1))


def _format_time(at: float) -> str:
    """Return the text of a time for the API. The API takes no number of seconds after tomorrow. Raises
    ValueError with the rule."""
    try:
        return format_utc(at)
    except (ValueError, OverflowError) as error:
        raise ValueError(_RULE) from error


class TimeType(click.ParamType[str]):
    """A time for the API, as ISO 8601 or epoch seconds. `ahead` is for one that must be in the future."""

    name = "time"

    def __init__(self, *, ahead: bool = False) -> None:
        self._ahead = ahead

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        now = time.time()
        try:
            found = parse_moment(value, now, ahead=self._ahead)
            if self._ahead and found.at <= now:
                raise ValueError("must be in the future")
            formatted = _format_time(found.at)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if found.is_local and param is not None and not (ctx and ctx.resilient_parsing):
            complain([f"{label(param)} is {format_local(found.at)}"])
        try:
            # What the API takes stays as it is, with its fractions of a second.
            _epoch_seconds(value, now, ahead=self._ahead)
        except ValueError:
            return formatted
        return str(value)


class DurationType(click.ParamType[int]):
    """Seconds, `least` to `most`, from a number with s, m, h or d. A number alone is seconds, unless it
    `needs_unit`."""

    name = "duration"

    def __init__(self, least: int = 1, most: int | None = None, *, needs_unit: bool = False) -> None:
        self._least = least
        self._most = most
        self._needs_unit = needs_unit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        is_bare = not self._needs_unit and value.isascii() and value.isdigit() and len(value) <= 9
        try:
            found = int(value) if is_bare else parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if found < self._least:
            self.fail(f"must be at least {self._least} s", param, ctx)
        if self._most is not None and found > self._most:
            self.fail(f"must be at most {self._most} s", param, ctx)
        return found
