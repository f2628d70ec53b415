"""Values as texts for people, in the tables of gatewayctl."""

import json
from typing import Any

import pytest

from gateway_api.cli.ctl.tables import aligned
from gateway_api.cli.ctl.texts import line, moment, parse_duration, plain, rate, speed


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        ([], "-"),
        ({}, "-"),
        ("", ""),
        (0, "0"),
        (True, "true"),
        (["a", "b"], "a, b"),
        ({"a": 1}, json.dumps({"a": 1})),
        ([{"a": 1}], json.dumps([{"a": 1}])),
        ("a\x1b[2J\n", "a?[2J?"),
    ],
)
def test_a_value_is_one_line(value: Any, text: str) -> None:
    assert plain(value) == text


@pytest.mark.parametrize("letter", ["\x00", "\x1b", "\x9b", "\n", "\u202e", "\u2028", "\u200b"])
def test_what_could_move_the_cursor_or_hide_text_is_replaced(letter: str) -> None:
    assert line(f"a{letter}b") == "a?b"


def test_a_letter_of_any_language_stays() -> None:
    assert line("Ünïcödé 日本") == "Ünïcödé 日本"


def test_what_is_no_time_or_rate_is_shown_as_it_is() -> None:
    assert (moment(None), moment("soon"), rate(None)) == ("-", "soon", "-")


def test_the_last_column_has_no_spaces_after_it() -> None:
    assert aligned([["A", "B"], ["long", "x"]]) == ["A     B", "long  x"]


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("1h", 3600), ("2d", 172800)])
def test_a_duration_is_a_number_with_a_unit(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "90", "1.5h", "-1h", "1w", "1 h", "1h30m", "\u0661h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a number with s, m, h or d"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("bps", "text"),
    [
        (0, "0.00 bit/s"),
        (999, "999.00 bit/s"),
        (5_213_400, "5.21 Mbit/s"),
        (10**9, "1.00 Gbit/s"),
        (None, "-"),
    ],
)
def test_a_measured_rate_is_rounded(bps: int | None, text: str) -> None:
    assert speed(bps) == text
