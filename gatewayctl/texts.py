"""Values as texts for people, and the fields of records: the label of each, and how its value shows."""

import json
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple

from gateway_contract.base.texts import RATE_UNITS, format_local, format_rate, has_unit, parse_rate

#: For a value that is unknown, empty or does not apply.
NOTHING = "-"

#: The rule of a rate that somebody types.
NEEDS_UNIT = "must have a unit, such as 250mbit"

_SIZES = ((10**15, "PB"), (10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def line(value: object) -> str:
    """A text on one line that is safe for a terminal: some of it comes from subscribers. Controls, also of
    the direction of writing, and what has no width are escaped as in JSON: `\\u001b`."""
    text = str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def lines(text: str) -> list[str]:
    """Return the lines of a text, each safe for a terminal."""
    return [line(each) for each in text.split("\n")]


def plain(value: Any) -> str:
    """Return a value of JSON: text as it is, nothing as `-`, lists of texts with commas."""
    match value:
        case None | "" | [] | dict() if not value:
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
    return format_rate(bps) if isinstance(bps, int) else plain(bps)


def rate_with_unit(text: str) -> int:
    """Bits per second. To the API, a number alone is bits per second: somebody who types 250 means another
    unit. Raises ValueError with the rule."""
    if not has_unit(text):
        raise ValueError(NEEDS_UNIT)
    return parse_rate(text)


def speed(bps: Any) -> str:
    """Return a rate that was measured, rounded: `5.21 Mbit/s`."""
    if not isinstance(bps, int):
        return plain(bps)
    return next(f"{bps / unit:.2f} {name}" for unit, name in RATE_UNITS if bps >= unit or unit == 1)


def size(count: Any) -> str:
    """Bytes, rounded from a thousand on: `999 B`, `1.2 GB`."""
    if not isinstance(count, int):
        return plain(count)
    return next((f"{count / unit:.1f} {name}" for unit, name in _SIZES if count >= unit), f"{count} B")


def moment(epoch: Any) -> str:
    """Epoch seconds as local time with its offset, and an ISO 8601 text as it is."""
    if not isinstance(epoch, int | float):
        return plain(epoch)
    return format_local(epoch)


def sessions(count: int) -> str:
    """`1 session`, `2 sessions`."""
    return f"{count} session{'' if count == 1 else 's'}"


def duration(seconds: Any) -> str:
    """`1 day, 2:03:04`."""
    return str(timedelta(seconds=seconds)) if isinstance(seconds, int) else plain(seconds)


class ShownField(NamedTuple):
    """`text` makes a text of a value of JSON."""

    label: str
    text: Callable[[Any], str] = plain


#: By the end of a name, which its label leaves out.
_UNITS: dict[str, Callable[[Any], str]] = {"_at": moment, "_seconds": duration, "_bps": rate}
#: Other fields whose values have a unit. By their names in the API.
_TEXTS: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(("at", "since", "failing_since", "ended_after", "ended_before"), moment),
    **dict.fromkeys(("confirm_deadline", "paused_until"), moment),
    **dict.fromkeys(("dead_time", "idle_timeout", "timeout", "token_lifetime"), duration),
    # Rates that are set, and traffic that is measured
    **dict.fromkeys(("rate_down", "rate_up"), rate),
    **dict.fromkeys(("down_bps", "up_bps"), speed),
    **dict.fromkeys(("bytes_in", "bytes_out", "rx_bytes", "tx_bytes"), size),
}
#: Labels that are not the name in words.
_LABELS = {
    "acct_session_id": "Accounting id",
    "at": "Time",
    "ca": "CA certificate",
    "committed_at": "Committed at",
    "confirm_deadline": "Confirm until",
    "dev": "Interface",
    "dhcp": "DHCP",
    "down_bps": "Traffic down",
    "down_pps": "Packets/s down",
    "dst": "Destination",
    "expires_at": "Expires at",
    "handoff_gateway": "Next hop",
    "id": "ID",
    "ifb_device": "IFB device",
    "ifindex": "Index",
    "inner_vlan_id": "VLAN",
    "ip_address": "Address",
    "ipv6_address": "IPv6 address",
    "ipv6_prefix": "IPv6 prefix",
    "mac_address": "MAC address",
    "mpu": "MPU",
    "mtu": "MTU",
    "next_attempt_at": "Next",
    "oper_state": "State",
    "outer_vlan_id": "Outer VLAN",
    "ppp_interface": "PPP interface",
    "pppoe": "PPPoE",
    "public_ip_sessions": "Sessions with public addresses",
    "rate_expires_at": "Rates until",
    "rx_bytes": "Bytes in",
    "session_count": "Sessions",
    "session_id": "Session",
    "tx_bytes": "Bytes out",
    "up_bps": "Traffic up",
    "up_pps": "Packets/s up",
    "url": "URL",
    "vlan_id": "VLAN",
    "vrf_name": "VRF",
    "vrf_steered": "Steered to CGNAT",
    "vrf_steered_sessions": "Sessions steered to CGNAT",
    "vrf_table": "VRF table",
}


@cache
def shown(name: str) -> ShownField:
    """Return the label and the text of any field."""
    unit = next((end for end in _UNITS if name.endswith(end)), "")
    words = name.removesuffix(unit).replace("_", " ")
    label = _LABELS.get(name) or words[:1].upper() + words[1:]
    return ShownField(label, _TEXTS.get(name) or _UNITS.get(unit, plain))
