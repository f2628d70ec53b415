"""Tables of gatewayctl at terminals of any width, and the texts of their values."""

from collections.abc import Sequence
from typing import Any

import pytest

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
    arrange,
    fit,
    show,
    show_all,
)
from gatewayctl.texts import (
    escape_lines,
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
    return list(fit(columns, records, width).lines)


def words(columns: Sequence[Column]) -> list[str]:
    return [column.word for column in columns]


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
        shown = fit(COLUMNS, RECORDS, width)
        assert words(shown.left_out) == left_out
        assert shown.lines[0].lower().split() == [each for each in words(COLUMNS) if each not in left_out]
        assert max(map(len, shown.lines)) <= width


def test_records_stand_one_under_the_other_where_not_even_their_names_fit() -> None:
    assert fit(COLUMNS, RECORDS, 21).left_out == ()
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
    labels = {word for column in COLUMNS for word in (*column.label.split(), *column.head.split())}
    values = {str(value or "-") for record in RECORDS for value in record.values()}
    for width in range(1, 90):
        words = {word for line in text(COLUMNS, RECORDS, width) for word in line.split()}
        assert words <= labels | values
        assert {"812", "81", "ann", "02:00:00:00:00:06"} <= words


def test_a_sentence_wraps_between_its_words_and_a_long_word_stays_in_one_piece() -> None:
    reason = Column("reason", Importance.IDENTITY, wraps=True)
    record = {"id": 1, "reason": "the device trunk0.1000 is gone and nothing answers at 100.64.2.108"}
    assert text((ID, reason), [record], 36) == [
        "ID  REASON",
        "1   the device trunk0.1000 is gone",
        "    and nothing answers at",
        "    100.64.2.108",
    ]
    long = "x" * 50
    shown = arrange(Sheet({"username": f"a {long}"}), Format(), 20)
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
        shown = arrange(LIST, Format(columns=chosen), None)
        assert shown.lines[0].split() == ["STATE", "ADDRESS"]
    shown = arrange(LIST, Format(columns=("address", "state")), 22)
    assert shown.left_out == ()
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
