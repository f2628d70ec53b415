"""Fields of records as people see them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_api.cli.ctl.fields import shown
from gateway_api.cli.ctl.texts import duration, moment, plain, rate, size, speed

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
