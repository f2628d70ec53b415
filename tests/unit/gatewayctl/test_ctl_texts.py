"""Values as texts for people in the tables of gatewayctl, and the fields of records."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_contract.configuration import ROOT, Seconds, walk
from gatewayctl.texts import (
    escape,
    format_bps,
    format_duration,
    format_size,
    format_time,
    format_traffic,
    format_value,
    get_display,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        ([], "-"),
        (0, "0"),
        (True, "true"),
        (["a", "b"], "a, b"),
        ({"a": 1}, json.dumps({"a": 1})),
        ([{"a": 1}], json.dumps([{"a": 1}])),
        ("a\x1b[2J\n", "a\\u001b[2J\\u000a"),
    ],
)
def test_a_value_is_one_line(value: Any, text: str) -> None:
    assert format_value(value) == text


def test_what_could_move_the_cursor_or_hide_text_is_escaped() -> None:
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x200B, 0x200E, 0x2028, *range(0x202A, 0x202F), 0x2066):
        assert escape(f"a{chr(code)}b") == f"a\\u{code:04x}b"
    # An escape is that of JSON, and letters of any language stay.
    for other in ("\U000e0001", "\ud800"):
        assert json.loads(f'"{escape(other)}"') == other
    assert escape("Ünïcödé 日本") == "Ünïcödé 日本"


@pytest.mark.parametrize(
    ("make", "value", "text"),
    [
        *(
            (format_traffic, 0, "0.00 bit/s"),
            (format_traffic, 999, "999.00 bit/s"),
            (format_traffic, 5_213_400, "5.21 Mbit/s"),
        ),
        *((format_traffic, 10**9, "1.00 Gbit/s"), (format_traffic, None, "-"), (format_bps, None, "-")),
        *(
            (format_size, 0, "0 B"),
            (format_size, 999, "999 B"),
            (format_size, 1000, "1.0 kB"),
            (format_size, 1_234_567_890, "1.2 GB"),
        ),
        *((format_size, None, "-"), (format_time, None, "-"), (format_time, "soon", "soon")),
    ],
)
def test_rates_sizes_and_times_are_rounded_and_what_is_none_is_a_dash(
    make: Callable[[Any], str], value: Any, text: str
) -> None:
    assert make(value) == text


DOCUMENT = Path(__file__).parents[3] / "etc" / "openapi.json"


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
    made = get_display(name).format
    # Two are described by the field before them.
    if "epoch" in description or name.startswith("ended_"):
        assert made is format_time
    elif name.endswith("_seconds") or "seconds" in description.split():
        assert made is format_duration
    elif "bits per second" in description or name.endswith("_bps"):
        assert made in (format_bps, format_traffic)
    elif "bytes" in description or "bytes" in name:
        assert made is format_size
    else:
        assert made is format_value


def test_seconds_of_the_configuration_show_as_durations() -> None:
    found = {path.rpartition(".")[2] for path, field in walk(ROOT) if isinstance(field.kind, Seconds)}
    assert {name: get_display(name).format for name in found} == dict.fromkeys(found, format_duration)
    assert "idle_timeout" in found


def test_each_field_has_a_label_in_words_and_a_dash_for_nothing() -> None:
    for name, _ in fields():
        found = get_display(name)
        assert "_" not in found.label
        assert found.label[0].isupper()
        assert [found.format(empty) for empty in (None, "", [], {})] == ["-"] * 4
    assert get_display("overhead_profile").label == "Overhead profile"
