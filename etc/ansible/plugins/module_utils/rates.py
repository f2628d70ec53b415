"""Rates as text, such as 50mbit."""

from __future__ import annotations

import re
from fractions import Fraction

_RATE_PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*?)(?:(?<=bit)/s)?", re.ASCII | re.IGNORECASE)
_BYTES_PATTERN = re.compile("[kmg]Bps", re.ASCII | re.IGNORECASE)
_RATE_FACTORS = {
    "": 1, "bit": 1,
    "k": 10**3, "kbit": 10**3, "kbps": 10**3, "kibit": 2**10,
    "m": 10**6, "mbit": 10**6, "mbps": 10**6, "mibit": 2**20,
    "g": 10**9, "gbit": 10**9, "gbps": 10**9, "gibit": 2**30,
    "t": 10**12, "tbit": 10**12,
}  # fmt: skip


def parse_rate(text):
    """Return a rate in bits per second, as the API reads it. The API checks the range. Raises ValueError with
    the rule if the text is not a rate."""
    match = _RATE_PATTERN.fullmatch(text)
    number, unit = match.groups() if match else ("0", "?")
    is_bytes = "B" in unit and _BYTES_PATTERN.fullmatch(unit)
    if is_bytes or unit.lower() not in _RATE_FACTORS:
        raise ValueError(f"must be a number and a unit of bits, such as 50mbit, not {text!r}")
    return int(Fraction(number) * _RATE_FACTORS[unit.lower()])
