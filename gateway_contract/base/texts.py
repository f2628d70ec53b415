"""Formats of values as text: ids, addresses, rates, times, durations, and paths in a configuration."""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from ipaddress import IPv6Address
from typing import Any

# Ids

#: The highest id of a session or job.
MAX_ID = (1 << 63) - 1
_ID_PATTERN = re.compile("[1-9][0-9]{0,18}", re.ASCII)


def parse_numeric_id(text: str) -> int:
    """Return the id of a session or job, from 1 to `MAX_ID`. Raises ValueError with the rule if the text is
    not such an id."""
    if not _ID_PATTERN.fullmatch(text) or int(text) > MAX_ID:
        raise ValueError(f"must be an integer from 1 to {MAX_ID}")
    return int(text)


# Addresses

#: Six octets or three groups of four digits, with one separator throughout; or twelve digits.
MAC_PATTERN = (
    "^([0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}|[0-9A-Fa-f]{2}(-[0-9A-Fa-f]{2}){5}"
    "|[0-9A-Fa-f]{4}([.][0-9A-Fa-f]{4}){2}|[0-9A-Fa-f]{4}(-[0-9A-Fa-f]{4}){2}|[0-9A-Fa-f]{12})$"
)
_OCTET_PATTERN = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#: IPv4 address, or the characters of an IPv6 address. The pattern does not tell which of those are valid.
ADDRESS_PATTERN = rf"^({_OCTET_PATTERN}(\.{_OCTET_PATTERN}){{3}}|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*)$"


def parse_mac(text: str) -> str:
    """Return a MAC address in lower case, with colons. Raises ValueError with the rule if the text is not a
    MAC address."""
    if not re.fullmatch(MAC_PATTERN, text):
        raise ValueError("must be a MAC address, such as 02:00:00:00:00:06 or 0200.0000.0006")
    return bytes.fromhex(re.sub("[^0-9A-Fa-f]", "", text)).hex(":")


def parse_ip(text: str) -> str:
    """Return an IPv4 address, or the shortest form of an IPv6 address (RFC 5952). Raises ValueError with the
    rule if the text is not an address, or has an IPv6 zone."""
    try:
        parsed = ipaddress.ip_address(text)
        if isinstance(parsed, IPv6Address) and parsed.scope_id is not None:
            raise ValueError("has a zone")
    except ValueError as error:
        raise ValueError("must be an IP address, such as 100.64.0.5 or 2001:db8::5") from error
    return str(parsed)


def identify_client(address: str) -> str:
    """Return the address of a client as the key for limits. For an IPv4 address, return the address. For an
    IPv6 address, return its network of 64 bits, because the client can choose any address of this network
    (RFC 4291 section 2.5.4). Return any other text unchanged, such as the peer of a Unix socket."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped or IPv6Address(int(parsed) >> 64 << 64))
    return str(parsed)


# Rates have the units of tc(8): `50mbit`, `1.5 Gbps`, `64000`. But `kbps`, `mbps` and `gbps` are bits here,
# as internet providers use these units; in tc they mean bytes. With a capital `B`, they are rejected as
# bytes.

#: The lowest rate that a request may set. A smaller number probably lacks its unit: `50` is 50 bit/s.
MIN_BPS = 8000
MAX_BPS = 400_000_000_000

#: Also matches the forms in which rates are shown: `Mbit/s`, and the no-break space of the live page.
_RATE_PATTERN = re.compile(r"(\d+(?:\.\d+)?)[\s\xa0]*([a-z]*?)(?:(?<=bit)/s)?", re.ASCII | re.IGNORECASE)
_BYTES_PATTERN = re.compile(r"[kmg]Bps", re.ASCII | re.IGNORECASE)
LONGEST_RATE = 64

_RATE_FACTORS = {
    "": 1, "bit": 1,
    "k": 10**3, "kbit": 10**3, "kbps": 10**3, "kibit": 2**10,
    "m": 10**6, "mbit": 10**6, "mbps": 10**6, "mibit": 2**20,
    "g": 10**9, "gbit": 10**9, "gbps": 10**9, "gibit": 2**30,
    "t": 10**12, "tbit": 10**12,
}  # fmt: skip
RATE_UNITS = ((10**9, "Gbit/s"), (10**6, "Mbit/s"), (10**3, "kbit/s"), (1, "bit/s"))


def parse_rate(text: str, min_bps: int = MIN_BPS) -> int:
    """Return a rate in bit/s, rounded down. The rate must be from `min_bps` to `MAX_BPS`. Raises ValueError
    with the rule if the text is not such a rate."""
    match = _RATE_PATTERN.fullmatch(text) if len(text) <= LONGEST_RATE else None
    if match is None:
        raise ValueError("must be a number and a unit, such as 50mbit")
    number, unit = match.groups()
    if _BYTES_PATTERN.fullmatch(unit) and "B" in unit:
        raise ValueError(f"{unit} means bytes; write bits a second, such as 50mbit")
    factor = _RATE_FACTORS.get(unit.lower())
    if factor is None:
        raise ValueError("has an unknown unit; use bit, kbit, mbit, gbit or tbit")
    bps = int(Fraction(number) * factor)
    if bps < min_bps:
        raise ValueError(explain_minimum(bps, min_bps))
    if bps > MAX_BPS:
        raise ValueError("must not be over 400 Gbit/s")
    return bps


def explain_minimum(bps: int, min_bps: int = MIN_BPS) -> str:
    """Return the rule that the rate `bps` breaks, because it is below the minimum `min_bps`. Both rates are
    in bits per second."""
    return f"must be at least {format_rate(min_bps)}, not {format_rate(bps)}: is the unit missing?"


def has_unit(text: str) -> bool:
    """Return True if the text of a rate has a unit, False if the text is only a number."""
    return not text.strip().replace(".", "", 1).isdecimal()


def format_rate(bps: int) -> str:
    """Return the exact rate in the largest unit of which the rate has at least one: `1.5 Mbit/s`, `64
    kbit/s`."""
    factor, unit = next(pair for pair in RATE_UNITS if bps >= pair[0] or pair[0] == 1)
    whole, rest = divmod(bps, factor)
    fraction = str(factor + rest)[1:].rstrip("0")
    return f"{whole}.{fraction} {unit}" if fraction else f"{whole} {unit}"


# Times

DAY = 86_400
#: 2000-01-01T00:00:00Z. A smaller number is not epoch seconds, but for example a date without dashes.
_MIN_EPOCH_SECONDS = 946_684_800
_EPOCH_PATTERN = re.compile(r"[0-9]{1,20}(\.[0-9]*)?", re.ASCII)
_TIME_RULE = "must be epoch seconds, or a time with its offset such as 2026-03-01T12:00:00Z"
_SUBSECOND_UNITS = ((10**3, "milliseconds"), (10**6, "microseconds"), (10**9, "nanoseconds"))

#: Time on the live page: `1 Mar 2026, 13:00:00 GMT+1`.
_SHOWN_TIME_PATTERN = re.compile(
    r"(\d{1,2} [A-Z][a-z]{2})[a-z]?( \d{4}, \d\d:\d\d:\d\d) (?:UTC|GMT)(?:([+-])(\d{1,2})(?::(\d\d))?)?",
    re.ASCII,
)


def is_number(text: str) -> bool:
    """Return True if a text is a number. A time that is a number can only be epoch seconds."""
    return _EPOCH_PATTERN.fullmatch(text) is not None


def parse_time(text: str, now: float, ahead: float = DAY) -> float:
    """Convert a text to epoch seconds. The text is a number of epoch seconds, an ISO 8601 time with its
    offset, or a time in the format of the live page. A number must be from 2000-01-01 to `ahead` seconds
    after `now`. Raises ValueError with the rule if the text is not such a time."""
    if is_number(text):
        at, latest = float(text), now + ahead
        if not _MIN_EPOCH_SECONDS <= at <= latest:
            span = f"from {format_utc(_MIN_EPOCH_SECONDS)} to {format_utc(latest)}"
            raise ValueError(f"{_TIME_RULE}; {text} is not {span}{_guess_meaning(text, at, latest)}")
        return at
    try:
        shown = _SHOWN_TIME_PATTERN.fullmatch(text.replace("\xa0", " "))
        parsed = datetime.fromisoformat(text) if shown is None else _parse_page_time(*shown.groups())
        if parsed.tzinfo is None:
            raise ValueError("no offset")
        return parsed.timestamp()
    except (ValueError, OverflowError) as error:
        raise ValueError(_TIME_RULE) from error


def _parse_page_time(
    day: str, rest: str, sign: str | None, hours: str | None, minutes: str | None
) -> datetime:
    """Convert the parts of a time in the format of the live page. Raises ValueError if the date does not
    exist."""
    offset = f"{sign or '+'}{int(hours or 0):02}{minutes or '00'}"
    return datetime.strptime(f"{day}{rest} {offset}", "%d %b %Y, %H:%M:%S %z")


def parse_past_time(text: str, now: float) -> float:
    """Parse a time, and return epoch seconds. Raises ValueError, whose text is the broken rule, if the text
    is not a time or the time is after `now`."""
    at = parse_time(text, now)
    if at > now:
        raise ValueError(f"must not be in the future: it is {format_utc(now)} now")
    return at


def _guess_meaning(text: str, at: float, latest: float) -> str:
    """Return the end of an error message about a number that is not epoch seconds: a question with the
    probable meaning of the number. Return an empty text if no meaning is probable."""
    for parts, name in _SUBSECOND_UNITS:
        if _MIN_EPOCH_SECONDS <= at / parts <= latest:
            return f": {name}?"
    try:
        return f": a date? Write {datetime.strptime(text, '%Y%m%d'):%Y-%m-%d}T00:00:00Z"
    except ValueError:
        return ""


#: Durations as people write them, `90s`, `1h30m`, and as the live page shows them, `1 d 2 h`, `5 min 3 s`.
_DURATION_PATTERN = re.compile(
    r"(?:(?P<d>\d{1,9}) ?d)?(?: ?(?P<h>\d{1,9}) ?h)?(?: ?(?P<m>\d{1,9}) ?m(?:in)?)?(?: ?(?P<s>\d{1,9}) ?s)?",
    re.ASCII,
)
#: Durations in tables, `1 day, 2:03:04`, and of the alternative profile, `1d 02:03:04`.
_CLOCK_DURATION_PATTERN = re.compile(
    r"(?:(?P<d>\d{1,9})(?:d| days?,) )?(?P<h>\d{1,2}):(?P<m>[0-5]\d):(?P<s>[0-5]\d)", re.ASCII
)
_SECONDS_BY_UNIT = {"s": 1, "m": 60, "h": 3600, "d": DAY}


def parse_duration(text: str) -> int:
    """Return the seconds of a duration such as `90s`, `30m`, `1h` or `2d`, or of a duration in a format that
    the gateway displays. Raises ValueError with the rule if the text is not a duration."""
    match = _DURATION_PATTERN.fullmatch(text) or _CLOCK_DURATION_PATTERN.fullmatch(text)
    if match is None or not text:
        raise ValueError("must be a number with s, m, h or d, such as 1h")
    return sum(_SECONDS_BY_UNIT[unit] * int(number) for unit, number in match.groupdict(default="0").items())


def format_utc(at: float) -> str:
    """Return epoch seconds as ISO 8601 in UTC, in whole seconds: `2026-03-01T12:00:00Z`."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def format_local(at: float) -> str:
    """Return epoch seconds as ISO 8601 in the time zone of this machine: `2026-03-01 13:00:00+01:00`."""
    return datetime.fromtimestamp(at).astimezone().isoformat(sep=" ", timespec="seconds")


# A path in a configuration is segments joined by dots, such as `interfaces.trunks.0`. A segment is a name,
# the index of an item of a list, the key of an item, or one of these in quotes:
# `bgp.neighbors."10.255.0.2".remote_as`. A number is a key only in quotes.

LONGEST_PATH = 512
_PATH_RULE = (
    'must be segments joined by dots: names, indexes, keys, or "quoted text"; a shell removes the quotes, '
    "unless the whole path is in single quotes"
)

#: Patterns of a segment. QUOTED is the part between the quotes.
NAME, INDEX, QUOTED = "[A-Za-z_][A-Za-z0-9_-]*", "0|[1-9][0-9]{0,5}", r'[^"\x00-\x1f\x7f]+'
_SEGMENT_PATTERN = re.compile(rf'(?P<name>{NAME})|(?P<index>{INDEX})|"(?P<quoted>{QUOTED})"', re.ASCII)


@dataclass(frozen=True)
class PathSegment:
    """Segment of a path: the name of a member, the key of a list item, or the `index` of a list item."""

    text: str
    index: int | None = None

    def __str__(self) -> str:
        if self.index is not None or re.fullmatch(NAME, self.text):
            return self.text
        return f'"{self.text}"'


Segments = tuple[PathSegment, ...]


def parse_path(text: str) -> Segments:
    """Return the segments of a path, at least one. Raises ValueError with the rule if the text is not a
    path."""
    if len(text) > LONGEST_PATH:
        raise ValueError(f"must have at most {LONGEST_PATH} characters")
    segments, position = [], 0
    while match := _SEGMENT_PATTERN.match(text, position):
        if match["index"] is not None:
            segments.append(PathSegment(match["index"], int(match["index"])))
        else:
            segments.append(PathSegment(match["name"] or match["quoted"]))
        position = match.end()
        if position == len(text):
            return tuple(segments)
        if text[position] != ".":
            break
        position += 1
    raise ValueError(_PATH_RULE)


def format_path(segments: Iterable[PathSegment]) -> str:
    """Return the text of a path with these segments, which `parse_path` converts back."""
    return ".".join(map(str, segments))


def join_names(names: Sequence[str], max_names: int, between: str = ", ") -> str:
    """Return a text with at most `max_names` names, and the number of the remaining names: `ppp0, ppp1 and 7
    more`."""
    more = f" and {len(names) - max_names} more" if len(names) > max_names else ""
    return between.join(names[:max_names]) + more


def shorten_json(value: Any, text: str, max_length: int) -> Any:
    """Return a JSON value in the form that the audit log stores. `text` is the JSON of the value. If `text`
    has more than `max_length` characters, return an object with the beginning of `text`. Otherwise, return
    the value unchanged."""
    if len(text) <= max_length:
        return value
    return {"cut": True, "characters": len(text), "beginning": text[: max_length // 2]}
