"""Rates as operators write them, and as they are shown."""

from fractions import Fraction
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_api.base.texts import MAX_BPS, MIN_BPS, rate_text
from gateway_api.base.texts import parse_rate as asked_rate
from gateway_api.cli.ctl.texts import rate_with_unit

#: Of any size.
parse_rate = partial(asked_rate, least=1)

UNITS = {
    "": 1,
    "bit": 1,
    "k": 10**3,
    "kbit": 10**3,
    "kbps": 10**3,
    "kibit": 2**10,
    "m": 10**6,
    "mbit": 10**6,
    "mbps": 10**6,
    "mibit": 2**20,
    "g": 10**9,
    "gbit": 10**9,
    "gbps": 10**9,
    "gibit": 2**30,
    "t": 10**12,
    "tbit": 10**12,
}


def refusal(text: str) -> str:
    with pytest.raises(ValueError) as refused:
        parse_rate(text)
    return str(refused.value)


def test_each_unit_multiplies_by_its_factor() -> None:
    for unit, factor in UNITS.items():
        if factor > MAX_BPS:
            assert parse_rate(f"0.25{unit}") == factor // 4
        else:
            assert parse_rate(f"3{unit}") == 3 * factor


def test_the_case_of_a_unit_does_not_matter() -> None:
    for spelling in ("BIT", "Bit", "K", "KBIT", "kBit", "M", "MBit", "G", "GBIT", "KIBIT", "MiBit"):
        assert parse_rate(f"3{spelling}") == 3 * UNITS[spelling.lower()]


@pytest.mark.parametrize(("text", "bps"), [("5Kbps", 5000), ("5kbPS", 5000), ("2MbpS", 2_000_000)])
def test_bits_a_second_may_have_any_capital_but_the_b(text: str, bps: int) -> None:
    assert parse_rate(text) == bps


def test_a_rate_may_be_as_it_is_shown() -> None:
    for text, bps in (
        ("50 Mbit/s", 50_000_000),
        ("1.5 Gbit/s", 1_500_000_000),
        ("64 kbit/s", 64_000),
        ("999 bit/s", 999),
        # The live page has a space that does not break a line.
        ("5.21\xa0Mbit/s", 5_210_000),
    ):
        assert parse_rate(text) == bps


def test_white_space_may_stand_before_the_unit() -> None:
    for text in ("100 mbit", "100   mbit", "100\tmbit", "100mbit"):
        assert parse_rate(text) == 100_000_000


def test_fractions_are_exact_and_a_part_of_a_bit_is_dropped() -> None:
    for text, bps in (
        ("1.5gbit", 1_500_000_000),
        ("0.5k", 500),
        ("1.9", 1),
        ("0.0015kbit", 1),
        ("007.50m", 7_500_000),
    ):
        assert parse_rate(text) == bps


@given(
    whole=st.integers(0, 10**12),
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


def test_a_part_of_a_bit_is_dropped_however_many_digits_it_has() -> None:
    assert parse_rate("1." + "9" * 62) == 1


def test_a_number_below_one_bit_is_refused_however_near_it_is() -> None:
    assert "at least 1 bit/s" in refusal("0." + "9" * 40)


def test_less_than_one_bit_is_refused() -> None:
    for text in ("0", "0mbit", "0.0", "0.9", "0.0001kbit"):
        assert "at least 1 bit/s" in refusal(text)


def test_a_rate_that_is_asked_for_is_at_least_8_kbit_s() -> None:
    for text in ("8000", "8k", "8 kbit/s", "0.008mbit"):
        assert asked_rate(text) == MIN_BPS
    for text, shown in (("50", "50 bit/s"), ("50bit", "50 bit/s"), ("7.9k", "7.9 kbit/s"), ("0", "0 bit/s")):
        with pytest.raises(ValueError, match=f"^must be at least 8 kbit/s, not {shown}: is the unit missing"):
            asked_rate(text)


def test_a_rate_that_a_person_types_needs_a_unit() -> None:
    assert rate_with_unit("250 Mbit/s") == 250_000_000
    for text in ("250", " 250 ", "2.5", "250000000"):
        with pytest.raises(ValueError, match=r"^must have a unit, such as 250mbit$"):
            rate_with_unit(text)


def test_400_gigabits_are_the_most() -> None:
    for text in ("400gbit", "0.4tbit", "400000000000", "400000 mbps"):
        assert parse_rate(text) == 400_000_000_000


def test_more_than_400_gigabits_is_refused() -> None:
    for text in ("400000000001", "400.1gbit", "1tbit", "9" * 60):
        assert "400 Gbit/s" in refusal(text)


def test_a_capital_b_before_ps_is_refused_as_bytes() -> None:
    for text in ("5KBps", "5MBps", "5GBps", "5kBps", "5 mBps", "5MBPS"):
        assert "bytes" in refusal(text)


def test_anything_else_is_refused() -> None:
    for text in (
        *("", " ", "mbit", "-5mbit", "+5mbit", "1e6", "1e6bit", "5e", "50%", "KB/s", "5 KB/s", "5kb/s", "5B"),
        *(
            "5b",
            "5kb",
            "5 MB",
            "5.mbit",
            ".5mbit",
            "1,5mbit",
            "5 m bit",
            "5mbits",
            " 5mbit",
            "5mbit ",
            "0x10",
        ),
        *(
            "1_000",
            "inf",
            "nan",
            "5bps",
            "5tbps",
            "5tibit",
            "5 Kibps",
            "\u0665mbit",
            "5\u212abit",
            "5mbit\0",
            "5k/s",
            "5mbps/s",
            "5mbit/",
            "5\u2003m",
        ),
        *("5mbit\n", "5mbit 5mbit", "1.2.3", "5/s", "1" * 65, "0" * 70 + "5"),
    ):
        assert refusal(text)


@given(st.text(max_size=70))
def test_any_text_is_a_rate_in_range_or_refused_with_a_sentence(text: str) -> None:
    try:
        bps = parse_rate(text)
    except ValueError as error:
        assert str(error)
    else:
        assert 1 <= bps <= MAX_BPS


def test_a_rate_is_shown_with_its_largest_unit() -> None:
    for bps, text in (
        (0, "0 bit/s"),
        (999, "999 bit/s"),
        (1000, "1 kbit/s"),
        (64_000, "64 kbit/s"),
        (1_500_000, "1.5 Mbit/s"),
        (50_000_000, "50 Mbit/s"),
        (1_000_000_000, "1 Gbit/s"),
        (1_000_000_001, "1.000000001 Gbit/s"),
        (10 * 2**20, "10.48576 Mbit/s"),
        (MAX_BPS, "400 Gbit/s"),
    ):
        assert rate_text(bps) == text


@given(st.integers(1, MAX_BPS))
def test_a_rate_is_shown_exactly(bps: int) -> None:
    assert parse_rate(rate_text(bps)) == bps
