"""Rates as operators write them, and as they are shown."""

from fractions import Fraction
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_contract.base.texts import MAX_BPS, MIN_BPS, format_rate
from gateway_contract.base.texts import parse_rate as asked_rate
from gatewayctl.texts import parse_typed_rate

#: Of any size.
parse_rate = partial(asked_rate, least=1)

UNITS = {
    **dict.fromkeys(("", "bit"), 1),
    **dict.fromkeys(("k", "kbit", "kbps"), 10**3),
    **dict.fromkeys(("m", "mbit", "mbps"), 10**6),
    **dict.fromkeys(("g", "gbit", "gbps"), 10**9),
    **dict.fromkeys(("t", "tbit"), 10**12),
    "kibit": 2**10,
    "mibit": 2**20,
    "gibit": 2**30,
}


def refusal(text: str) -> str:
    with pytest.raises(ValueError) as refused:
        parse_rate(text)
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "bps"),
    [
        # A unit in any case; of bits a second with any capital but the B.
        *(("3BIT", 3), ("3K", 3000), ("3MiBit", 3 * 2**20), ("5kbPS", 5000), ("2MbpS", 2_000_000)),
        # As it is shown, on the live page too, whose space does not break a line.
        *(("50 Mbit/s", 50_000_000), ("1.5 Gbit/s", 1_500_000_000), ("5.21\xa0Mbit/s", 5_210_000)),
        *(("999 bit/s", 999), ("100\tmbit", 100_000_000), ("007.50m", 7_500_000)),
        # A part of a bit is dropped, however many digits it has.
        *(("0.0015kbit", 1), ("1." + "9" * 62, 1)),
        *(("400gbit", MAX_BPS), ("0.4tbit", MAX_BPS), ("400000000000", 400_000_000_000)),
    ],
)
def test_a_rate_is_read_exactly(text: str, bps: int) -> None:
    assert parse_rate(text) == bps


@given(
    whole=st.integers(0, 10**12) | st.integers(0, 9),
    digits=st.text("0123456789", max_size=40),
    unit=st.sampled_from(sorted(UNITS)),
    space=st.sampled_from(["", " ", "  "]),
)
def test_a_rate_is_its_number_times_its_unit_rounded_down_or_refused_for_its_size(
    whole: int, digits: str, unit: str, space: str
) -> None:
    number = f"{whole}.{digits}" if digits else str(whole)
    exact = Fraction(number) * UNITS[unit]
    bps = exact.numerator // exact.denominator
    if 1 <= bps <= MAX_BPS:
        assert parse_rate(number + space + unit) == bps
    else:
        assert "must" in refusal(number + space + unit)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, "at least 1 bit/s") for text in ("0", "0.0001kbit", "0." + "9" * 40)),
        *((text, "400 Gbit/s") for text in ("400000000001", "400.1gbit", "9" * 60)),
        *((text, "bytes") for text in ("5KBps", "5 mBps", "5MBPS")),
    ],
)
def test_a_refusal_says_what_is_wrong(text: str, said: str) -> None:
    assert said in refusal(text)


def test_a_rate_that_is_asked_for_is_at_least_8_kbit_s() -> None:
    for text in ("8000", "8k", "0.008mbit"):
        assert asked_rate(text) == MIN_BPS
    for text, shown in (("50", "50 bit/s"), ("7.9k", "7.9 kbit/s"), ("0", "0 bit/s")):
        with pytest.raises(ValueError, match=f"^must be at least 8 kbit/s, not {shown}: is the unit missing"):
            asked_rate(text)


def test_a_rate_that_a_person_types_needs_a_unit() -> None:
    assert parse_typed_rate("250 Mbit/s") == 250_000_000
    for text in ("250", " 250 ", "2.5"):
        with pytest.raises(ValueError, match=r"^must have a unit, such as 250mbit$"):
            parse_typed_rate(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "mbit",
            "-5mbit",
            "+5mbit",
            "1e6",
            "5.mbit",
            ".5mbit",
            "1,5mbit",
            "1.2.3",
            "0x10",
            "1_000",
        ),
        *("5kb", "5b", "5B", "KB/s", "5kb/s", "5bps", "5tbps", "5tibit", "5 Kibps", "5mbits", "nan"),
        *("5k/s", "5mbps/s", "5mbit/", "5/s", "5 m bit", " 5mbit", "5mbit ", "5mbit\n", "5mbit\0"),
        *("\u0665mbit", "5\u212abit", "5\u2003m", "1" * 65, "0" * 70 + "5"),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    assert refusal(text)


@pytest.mark.parametrize(
    ("bps", "text"),
    [
        *((0, "0 bit/s"), (999, "999 bit/s"), (1000, "1 kbit/s"), (1_500_000, "1.5 Mbit/s")),
        *((1_000_000_001, "1.000000001 Gbit/s"), (MAX_BPS, "400 Gbit/s")),
    ],
)
def test_a_rate_is_shown_with_its_largest_unit(bps: int, text: str) -> None:
    assert format_rate(bps) == text


@given(st.integers(1, MAX_BPS))
def test_a_rate_is_shown_exactly(bps: int) -> None:
    assert parse_rate(format_rate(bps)) == bps
