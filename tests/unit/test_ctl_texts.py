"""Values as texts for people in the tables of gatewayctl, and the fields of records."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_api.cli.ctl.texts import duration, line, moment, plain, rate, shown, size, speed
from gateway_api.wire.configuration import ROOT, Seconds, walk


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


DOCUMENT = Path(__file__).parents[2] / "etc" / "openapi.json"


def fields() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each field of each record of the API, with its schema."""
    for schema in json.loads(DOCUMENT.read_text())["components"]["schemas"].values():
        yield from schema.get("properties", {}).items()


def numbers() -> dict[str, str]:
    """The descriptions of the fields that are numbers, or null."""
    found = {}
    for name, schema in fields():
        kinds = [each.get("type") for each in (schema, *schema.get("anyOf", ()))]
        if {"integer", "number"} & set(map(str, kinds)):
            found[name] = schema.get("description", "")
    return found


#: Fields of requests and of the configuration, and one in milliseconds: no table has them. Sizes of packets.
OTHER = {"confirm_seconds", "expires_in", "interval_ms", "mebibytes", "per_second", "token_lifetime"} | {
    "mpu", "mtu", "overhead",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(numbers()) - OTHER))
def test_a_number_shows_as_what_its_description_says(name: str) -> None:
    description = numbers()[name].lower()
    made = shown(name).text
    # Two are described by the field before them.
    if "epoch" in description or name.startswith("ended_"):
        assert made is moment
    elif name.endswith("_seconds") or "seconds" in description.split():
        assert made is duration
    elif "bits per second" in description or name.endswith("_bps"):
        assert made in (rate, speed)
    elif "bytes" in description or "bytes" in name:
        assert made is size
    else:
        assert made is plain


def test_seconds_of_the_configuration_show_as_durations() -> None:
    found = {path.rpartition(".")[2] for path, field in walk(ROOT) if isinstance(field.kind, Seconds)}
    assert {name: shown(name).text for name in found} == dict.fromkeys(found, duration)
    assert "idle_timeout" in found


def test_no_label_is_a_field() -> None:
    for name, _ in fields():
        label = shown(name).label
        assert "_" not in label
        assert label[0].isupper()


def test_a_field_that_stands_in_no_list_has_its_name_in_words() -> None:
    assert shown("overhead_profile").label == "Overhead profile"


def test_what_is_empty_is_a_dash_whatever_it_is() -> None:
    for name, _ in fields():
        assert [shown(name).text(empty) for empty in (None, "", [], {})] == ["-"] * 4
