"""Rates as the Ansible collection reads them."""

from runpy import run_path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_contract.base import texts
from tests.support.manual import ROOT

parse_rate = run_path(str(ROOT / "etc/ansible/plugins/module_utils/rates.py"))["parse_rate"]
NUMBERS = st.from_regex(r"\A[0-9]{1,9}(\.[0-9]{1,3})?\Z")
UNITS = st.sampled_from(
    ["", " ", "bit", "kbit", "Mbit/s", " gbit", "kibit", "Gibit", "kbps", "M", "t", "MBps", "x"]
)


@given(NUMBERS, UNITS)
def test_a_rate_that_the_api_accepts_is_the_same_number_of_bits(number: str, unit: str) -> None:
    try:
        expected = texts.parse_rate(number + unit)
    except ValueError:
        return
    assert parse_rate(number + unit) == expected


@pytest.mark.parametrize("text", ["", "fast", "-1mbit", "1e6", "50 MBps", "50 mbits", "1,5mbit"])
def test_what_is_not_a_rate_is_refused_with_the_rule(text: str) -> None:
    with pytest.raises(ValueError, match="must be a number and a unit of bits, such as 50mbit"):
        parse_rate(text)
