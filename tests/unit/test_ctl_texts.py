"""Values as texts for people, in the tables of gatewayctl."""

import json
from typing import Any

import pytest

from gateway_api.cli.ctl.texts import line, moment, parse_duration, plain, rate, size, speed


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        ([], "-"),
        ({}, "-"),
        ("", "-"),
        (0, "0"),
        (True, "true"),
        (["a", "b"], "a, b"),
        ({"a": 1}, json.dumps({"a": 1})),
        ([{"a": 1}], json.dumps([{"a": 1}])),
        ("a\x1b[2J\n", "a\\u001b[2J\\u000a"),
    ],
)
def test_a_value_is_one_line(value: Any, text: str) -> None:
    assert plain(value) == text


@pytest.mark.parametrize(
    "letter",
    [
        *map(chr, (*range(0x20), 0x7F, *range(0x80, 0xA0))),
        *"\u200b\u200e\u200f\u2028\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
    ],
    ids=lambda letter: f"{ord(letter):04x}",
)
def test_what_could_move_the_cursor_or_hide_text_is_escaped(letter: str) -> None:
    assert line(f"a{letter}b") == f"a\\u{ord(letter):04x}b"


def test_an_escape_is_that_of_json() -> None:
    for letter in ("\x9b", "\U000e0001", "\ud800"):
        assert json.loads(f'"{line(letter)}"') == letter


def test_a_letter_of_any_language_stays() -> None:
    assert line("Ünïcödé 日本") == "Ünïcödé 日本"


def test_what_is_no_time_or_rate_is_shown_as_it_is() -> None:
    assert (moment(None), moment("soon"), rate(None)) == ("-", "soon", "-")


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


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_234_567_890, "1.2 GB"), (None, "-")],
)
def test_bytes_are_rounded_from_a_thousand_on(count: int | None, text: str) -> None:
    assert size(count) == text
