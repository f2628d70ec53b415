"""Texts for people: formatters of values, and the label and formatter of each field."""

import json
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple

from gateway_contract.base.texts import RATE_UNITS, format_local, format_rate, has_unit, parse_rate

#: Text of a value that is unknown, empty or does not apply.
NOTHING = "-"

#: Text of the error for a typed rate without a unit.
UNIT_RULE = "must have a unit, such as 250mbit"

_BYTE_UNITS = ((10**15, "PB"), (10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def escape(value: object) -> str:
    """Return a value as one line that is safe for a terminal, because some texts come from subscribers. Three
    kinds of characters are escaped as in JSON (`\\u001b`): control characters, characters that change the
    writing direction, and characters without width."""
    text = str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def escape_lines(text: str) -> list[str]:
    """Return the lines of a text, each escaped for a terminal."""
    return [escape(each) for each in text.split("\n")]


def format_value(value: Any) -> str:
    """Return the text of a JSON value. A string is unchanged, null or an empty value is `-`, and a list of
    strings is separated by commas."""
    match value:
        case None | "" | [] | dict() if not value:
            return NOTHING
        case str():
            return escape(value)
        case list() if all(isinstance(each, str) for each in value):
            return escape(", ".join(value))
        case _:
            return escape(format_json(value))


def format_json(value: Any) -> str:
    """Return a value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False)


def format_bps(bps: Any) -> str:
    """Return the text of a configured rate: `50 Mbit/s`."""
    return format_rate(bps) if isinstance(bps, int) else format_value(bps)


def format_traffic(bps: Any) -> str:
    """Return the text of a measured rate, rounded: `5.21 Mbit/s`."""
    if not isinstance(bps, int):
        return format_value(bps)
    return next(f"{bps / unit:.2f} {name}" for unit, name in RATE_UNITS if bps >= unit or unit == 1)


def parse_typed_rate(text: str) -> int:
    """Return a rate in bits per second. Raises ValueError, with the broken rule as its text, if the text is
    not a rate or has no unit: the API reads 250 as 250 bit/s, and an operator rarely means this."""
    if not has_unit(text):
        raise ValueError(UNIT_RULE)
    return parse_rate(text)


def format_size(count: Any) -> str:
    """Return the text of a number of bytes, rounded if it is a thousand or more: `999 B`, `1.2 GB`."""
    if not isinstance(count, int):
        return format_value(count)
    return next((f"{count / unit:.1f} {name}" for unit, name in _BYTE_UNITS if count >= unit), f"{count} B")


def format_time(epoch: Any) -> str:
    """Return epoch seconds as local time with UTC offset. ISO 8601 text is returned unchanged."""
    return format_local(epoch) if isinstance(epoch, int | float) else format_value(epoch)


def format_duration(seconds: Any) -> str:
    """Return the text of a number of seconds: `1 day, 2:03:04`."""
    return str(timedelta(seconds=seconds)) if isinstance(seconds, int) else format_value(seconds)


def count_sessions(count: int) -> str:
    """Return a number of sessions as text: `1 session`, `2 sessions`."""
    return f"{count} session{'' if count == 1 else 's'}"


class Display(NamedTuple):
    """Label of a field of the API, and the function that formats a value of the field."""

    label: str
    format: Callable[[Any], str] = format_value


#: Formatters by the suffix of a field's name; the label omits the suffix.
_FORMATTERS_BY_SUFFIX: dict[str, Callable[[Any], str]] = {
    "_at": format_time,
    "_seconds": format_duration,
    "_bps": format_bps,
}
#: Formatters of other fields whose values have a unit.
_FORMATTERS: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(("at", "since", "failing_since", "ended_after", "ended_before"), format_time),
    **dict.fromkeys(("confirm_deadline", "paused_until"), format_time),
    **dict.fromkeys(("dead_time", "idle_timeout", "timeout", "token_lifetime"), format_duration),
    **dict.fromkeys(("rate_down", "rate_up"), format_bps),
    **dict.fromkeys(("down_bps", "up_bps"), format_traffic),
    **dict.fromkeys(("bytes_in", "bytes_out", "rx_bytes", "tx_bytes"), format_size),
}
#: Labels of fields whose label differs from the words of the name.
_LABELS = {
    "acct_session_id": "Accounting id",
    "at": "Time",
    "ca": "CA certificate",
    "committed_at": "Committed at",
    "confirm_deadline": "Confirm until",
    "dev": "Interface",
    "down_bps": "Traffic down",
    "down_pps": "Packets/s down",
    "dst": "Destination",
    "expires_at": "Expires at",
    "handoff_gateway": "Next hop",
    "id": "ID",
    "ifindex": "Index",
    "inner_vlan_id": "VLAN",
    "ip_address": "Address",
    "next_attempt_at": "Next",
    "oper_state": "State",
    "outer_vlan_id": "Outer VLAN",
    "public_ip_sessions": "Sessions with public addresses",
    "rate_expires_at": "Rates until",
    "rx_bytes": "Bytes in",
    "session_count": "Sessions",
    "session_id": "Session",
    "tx_bytes": "Bytes out",
    "up_bps": "Traffic up",
    "up_pps": "Packets/s up",
    "vlan_id": "VLAN",
    "vrf_name": "VRF",
    "vrf_steered": "Steered to CGNAT",
    "vrf_steered_sessions": "Sessions steered to CGNAT",
}
#: Words that keep their upper case in a label.
_ABBREVIATIONS = {
    each.lower(): each for each in ("DHCP", "IFB", "IPv6", "MAC", "MPU", "MTU", "PPP", "PPPoE", "URL", "VRF")
}


@cache
def get_display(name: str) -> Display:
    """Return the label and the formatter of a field of the API."""
    suffix = next((each for each in _FORMATTERS_BY_SUFFIX if name.endswith(each)), "")
    words = name.removesuffix(suffix).split("_")
    label = _LABELS.get(name) or " ".join(_ABBREVIATIONS.get(word, word) for word in words)
    label = label[:1].upper() + label[1:]
    return Display(label, _FORMATTERS.get(name) or _FORMATTERS_BY_SUFFIX.get(suffix, format_value))
