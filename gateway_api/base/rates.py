"""Rate texts, as operators write them: `50mbit`, `1.5 Gbps`, `100 m`, `64000`.

The units are those of tc(8), with one difference: `kbps`, `mbps` and `gbps` are bits, as
internet providers write them, where tc reads bytes. A capital `B` before `ps` means bytes to those
who write it, so that spelling is refused rather than guessed at.
"""

import re
from fractions import Fraction

MAX_BPS = 400_000_000_000

_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.ASCII | re.IGNORECASE)
_BYTES = re.compile(r"[kmg]Bps", re.ASCII | re.IGNORECASE)
_MAX_LENGTH = 64

_UNITS = {
    "": 1, "bit": 1,
    "k": 10**3, "kbit": 10**3, "kbps": 10**3, "kibit": 2**10,
    "m": 10**6, "mbit": 10**6, "mbps": 10**6, "mibit": 2**20,
    "g": 10**9, "gbit": 10**9, "gbps": 10**9, "gibit": 2**30,
    "t": 10**12, "tbit": 10**12,
}  # fmt: skip
_SHOWN = ((10**9, "Gbit/s"), (10**6, "Mbit/s"), (10**3, "kbit/s"), (1, "bit/s"))


def parse_rate(text: str) -> int:
    """The rate in bits a second: 1 to `MAX_BPS`, a fraction of a bit rounded down.

    Raises ValueError with a sentence for the one who wrote the text.
    """
    match = _TEXT.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise ValueError("must be a number and a unit, such as 50mbit")
    number, unit = match.groups()
    if _BYTES.fullmatch(unit) and "B" in unit:
        raise ValueError(f"{unit} means bytes; write bits a second, such as 50mbit")
    factor = _UNITS.get(unit.lower())
    if factor is None:
        raise ValueError("has an unknown unit; use bit, kbit, mbit, gbit or tbit")
    bps = int(Fraction(number) * factor)
    if bps < 1:
        raise ValueError("must be at least 1 bit/s")
    if bps > MAX_BPS:
        raise ValueError("must not be over 400 Gbit/s")
    return bps


def rate_text(bps: int) -> str:
    """The exact rate with the largest unit of which it has one: `1.5 Mbit/s`, `64 kbit/s`."""
    factor, unit = next(pair for pair in _SHOWN if bps >= pair[0] or pair[0] == 1)
    whole, rest = divmod(bps, factor)
    fraction = str(factor + rest)[1:].rstrip("0")
    return f"{whole}.{fraction} {unit}" if fraction else f"{whole} {unit}"
