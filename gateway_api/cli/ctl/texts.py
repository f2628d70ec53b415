"""Values as texts for people."""

import json
import re
from datetime import datetime, timedelta
from typing import Any

from gateway_api.base.texts import rate_text

#: For a value that is unknown or does not apply.
NOTHING = "-"

_SPEEDS = ((10**9, "Gbit/s"), (10**6, "Mbit/s"), (10**3, "kbit/s"), (1, "bit/s"))
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def line(value: object) -> str:
    """A text that is safe for a terminal: some of it comes from subscribers."""
    text = str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def lines(text: str) -> list[str]:
    """The lines of a text, each safe for a terminal."""
    return [line(each) for each in text.split("\n")]


def plain(value: Any) -> str:
    """A value of JSON: text as it is, null as `-`, lists of texts with commas."""
    match value:
        case None | [] | dict() if not value:
            return NOTHING
        case str():
            return line(value)
        case list() if all(isinstance(each, str) for each in value):
            return line(", ".join(value))
        case _:
            return line(compact(value))


def compact(value: Any) -> str:
    """JSON on one line."""
    return json.dumps(value, ensure_ascii=False)


def rate(bps: Any) -> str:
    """Bits per second: `50 Mbit/s`."""
    return rate_text(bps) if isinstance(bps, int) else NOTHING


def speed(bps: Any) -> str:
    """A rate that was measured, rounded: `5.21 Mbit/s`."""
    if not isinstance(bps, int):
        return NOTHING
    return next(f"{bps / unit:.2f} {name}" for unit, name in _SPEEDS if bps >= unit or unit == 1)


def moment(epoch: Any) -> str:
    """Epoch seconds as local time with its offset, and an ISO 8601 text as it is."""
    if not isinstance(epoch, int | float):
        return plain(epoch)
    return datetime.fromtimestamp(epoch).astimezone().isoformat(sep=" ", timespec="seconds")


def sessions(count: int) -> str:
    """`1 session`, `2 sessions`."""
    return f"{count} session{'' if count == 1 else 's'}"


def duration(seconds: Any) -> str:
    """`1 day, 2:03:04`."""
    return str(timedelta(seconds=seconds)) if isinstance(seconds, int) else NOTHING


def parse_duration(text: str) -> int:
    """Seconds: `90s`, `30m`, `1h`, `2d`. Raises ValueError with the rule."""
    match = re.fullmatch("([0-9]{1,9})([smhd])", text, re.ASCII)
    if match is None:
        raise ValueError("must be a number with s, m, h or d, such as 1h")
    return int(match[1]) * _SECONDS[match[2]]
