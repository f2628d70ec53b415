"""Tables of gatewayctl at terminals of any width, and the texts of their values."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway_contract.configuration import ROOT, Seconds, walk
from gatewayctl import terminal
from gatewayctl.results import (
    Column,
    ContextResult,
    Format,
    Importance,
    Report,
    ResultList,
    Sheet,
    add_wide_columns,
    arrange_table,
    fit_table,
    show,
    show_all,
)
from gatewayctl.texts import (
    escape,
    escape_lines,
    format_bps,
    format_duration,
    format_size,
    format_time,
    format_traffic,
    format_value,
    get_display,
)

ID = Column("id", Importance.IDENTITY)
NAME = Column("username", Importance.IDENTITY)
ADDRESS = Column("ip_address", Importance.HIGH)
TYPE = Column("type", Importance.LOW)
STATE = Column("state")
COLUMNS = (ID, TYPE, NAME, ADDRESS, STATE)
LONG = "2001:db8:1111:2222:3333:4444:5555:6666"
RECORDS = (
    {"id": 812, "type": "PPPoE", "username": "ann", "ip_address": "100.64.2.108", "state": "active"},
    {"id": 81, "type": "DHCP", "username": "02:00:00:00:00:06", "ip_address": LONG, "state": None},
)
LIST = ResultList(RECORDS, COLUMNS)


def text(columns: Sequence[Column], records: Sequence[dict[str, Any]], width: int | None) -> list[str]:
    return list(fit_table(columns, records, width).lines)


def words(columns: Sequence[Column]) -> list[str]:
    return [column.typed_name for column in columns]


def test_without_a_terminal_a_record_is_one_line_with_all_columns() -> None:
    assert text(COLUMNS, RECORDS, None) == [
        "ID   TYPE   USERNAME           ADDRESS                                 STATE",
        "812  PPPoE  ann                100.64.2.108                            active",
        f"81   DHCP   02:00:00:00:00:06  {LONG}  -",
    ]


@pytest.mark.parametrize(
    ("left_out", "widths"),
    [
        ([], (77, 100)),
        (["type"], (70, 76)),
        (["type", "state"], (62, 69)),
        (["type", "address", "state"], (22, 61)),
    ],
)
def test_columns_are_left_out_in_the_order_of_their_importance(
    left_out: list[str], widths: tuple[int, ...]
) -> None:
    for width in widths:
        shown = fit_table(COLUMNS, RECORDS, width)
        assert words(shown.omitted_columns) == left_out
        assert shown.lines[0].lower().split() == [each for each in words(COLUMNS) if each not in left_out]
        assert max(map(len, shown.lines)) <= width


def test_records_stand_one_under_the_other_where_not_even_their_names_fit() -> None:
    assert fit_table(COLUMNS, RECORDS, 21).omitted_columns == ()
    assert text(COLUMNS[:3], RECORDS, 21) == [
        "ID        812",
        "Type      PPPoE",
        "Username  ann",
        "",
        "ID        81",
        "Type      DHCP",
        "Username",
        "  02:00:00:00:00:06",
    ]


def test_no_value_is_cut_at_any_width() -> None:
    labels = {
        typed_name for column in COLUMNS for typed_name in (*column.label.split(), *column.head.split())
    }
    values = {str(value or "-") for record in RECORDS for value in record.values()}
    for width in range(1, 90):
        words = {typed_name for line in text(COLUMNS, RECORDS, width) for typed_name in line.split()}
        assert words <= labels | values
        assert {"812", "81", "ann", "02:00:00:00:00:06"} <= words


def test_a_sentence_wraps_between_its_words_and_a_long_word_stays_in_one_piece() -> None:
    reason = Column("reason", Importance.IDENTITY, can_wrap=True)
    record = {"id": 1, "reason": "the device trunk0.1000 is gone and nothing answers at 100.64.2.108"}
    assert text((ID, reason), [record], 36) == [
        "ID  REASON",
        "1   the device trunk0.1000 is gone",
        "    and nothing answers at",
        "    100.64.2.108",
    ]
    long = "x" * 50
    shown = arrange_table(Sheet({"username": f"a {long}"}), Format(), 20)
    assert shown.lines == ["Username", "a", long]


def test_the_last_column_has_no_spaces_after_it() -> None:
    # Wide letters take two columns.
    records = [{"id": "日本", "username": "x"}, {"id": "abcd", "username": "longest name"}]
    assert text((ID, NAME), records, None) == ["ID    USERNAME", "日本  x", "abcd  longest name"]


def test_only_a_difference_has_the_colours_of_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "is_styled", lambda: True)
    show(Report("- a\n+ b", {}, is_diff=True), Format())
    show(Report("- a\n+ b", {}), Format())
    assert capsys.readouterr().out == "\x1b[31m- a\x1b[0m\n\x1b[32m+ b\x1b[0m\n- a\x1b[0m\n+ b\x1b[0m\n"


def test_each_line_of_several_texts_has_its_context(capsys: pytest.CaptureFixture[str]) -> None:
    show_all(
        [ContextResult("lab", Report("one\ntwo", {})), ContextResult("bng", Report("one", {}))], Format()
    )
    assert capsys.readouterr().out == "lab: one\nlab: two\nbng: one\n"


def test_chosen_columns_are_never_left_out_and_have_the_order_of_the_choice() -> None:
    for chosen in (("state", "ip_address"), ("State", "ADDRESS")):
        shown = arrange_table(LIST, Format(columns=chosen), None)
        assert shown.lines[0].split() == ["STATE", "ADDRESS"]
    shown = arrange_table(LIST, Format(columns=("address", "state")), 22)
    assert shown.omitted_columns == ()
    assert shown.lines[0] == "Address  100.64.2.108"


def test_a_name_cannot_make_a_line_of_its_own() -> None:
    (_, line) = text((ID, NAME), [{"id": 1, "username": "ann\n2 bob"}], None)
    assert line == "1   ann\\u000a2 bob"
    assert escape_lines("a\x1b\nb") == ["a\\u001b", "b"]


def test_a_field_without_a_column_is_shown_by_wide() -> None:
    found = add_wide_columns([ID], ["id", "seen", "new"], ["seen"])
    assert [(each.name, each.importance) for each in found] == [
        ("id", Importance.IDENTITY),
        ("new", Importance.WIDE),
    ]


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
