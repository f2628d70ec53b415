"""Files of rates: what is a row, and what is a bad line."""

from pathlib import Path

import pytest

from gatewayctl.commands.rates import BadRow, RateRow, format_file, read_file
from gatewayctl.errors import CommandError
from gatewayctl.results import format_csv

MEGA = 10**6
NO_ROW = "must have 3 fields separated by commas, as the first line"
SESSION = {"id": 7, "username": "alice", "rate_down": 250_000_000, "rate_up": 50_000_000, "state": "active"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rates.csv"


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("username,down,up\n\n# comment\na,1mbit,2mbit\n", [RateRow(4, None, "a", MEGA, 2 * MEGA)]),
        (
            "id,down,up\n7,1mbit,2mbit\nseven,1mbit,2mbit\n",
            [RateRow(2, 7, None, MEGA, 2 * MEGA), BadRow(3, "id: must be a session id")],
        ),
        # The columns of a list may have units.
        (
            "username,rate_down,up\na,50 Mbit/s,2mbit\nbob,50000000,2\n",
            [
                RateRow(2, None, "a", 50 * MEGA, 2 * MEGA),
                BadRow(3, "up: must have a unit, such as 250mbit"),
            ],
        ),
        (
            format_csv([{**SESSION, "username": " alice "}, {**SESSION, "id": 8, "username": None}]),
            [RateRow(2, 7, " alice ", 250 * MEGA, 50 * MEGA), RateRow(3, 8, None, 250 * MEGA, 50 * MEGA)],
        ),
    ],
)
def test_a_row_has_the_number_of_its_line_and_an_id_or_a_username(
    file: Path, text: str, rows: list[RateRow | BadRow]
) -> None:
    file.write_text(text)
    assert read_file(str(file)) == rows


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_what_spreadsheets_of_any_country_save_is_such_a_file(file: Path, separator: str) -> None:
    rows = ('1 mbit,"alice ""a""",2mbit', '1mbit ," bob ", 2mbit', '1mbit,"",2mbit', "1mbit,carol")
    # In any order and any case of letters.
    lines = ("Down,USERNAME,UP", *rows)
    file.write_bytes("".join(f"{line}\r\n" for line in lines).replace(",", separator).encode("utf-8-sig"))
    name = {",": "commas", ";": "semicolons", "\t": "tabs"}[separator]
    assert read_file(str(file)) == [
        RateRow(2, None, 'alice "a"', MEGA, 2 * MEGA),
        RateRow(3, None, " bob ", MEGA, 2 * MEGA),
        BadRow(4, "username: is required"),
        BadRow(5, f"must have 3 fields separated by {name}, as the first line"),
    ]


@pytest.mark.parametrize("name", ['bob "the second", here', "", " spaces ", "two\nlines", "#1", None])
def test_what_is_written_is_read_again(file: Path, name: str | None) -> None:
    file.write_text(format_file([{**SESSION, "username": name}]))
    (row,) = read_file(str(file))
    assert isinstance(row, RateRow)
    assert (row.id, row.down, row.up) == (7, 250 * MEGA, 50 * MEGA)
    assert row.username == (name if name and name.isprintable() else None)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("a,xx,1mbit", "down: must be a number and a unit, such as 50mbit"),
        ("a,50,10mbit", "down: must have a unit, such as 250mbit"),
        ("a,50mbit,10bit", "up: must be at least 8 kbit/s, not 10 bit/s: is the unit missing?"),
        (",1mbit,1mbit", "username: is required"),
        ("first,2m,2m", "first is in line 2 already"),
        *((line, NO_ROW) for line in ("a,1m", "a,1m,1m,1m", '"a,1m,1m', 'a"b,1m,1m', 'a,"1"m,1m')),
    ],
)
def test_a_bad_cell_is_named_with_its_column_and_rule(file: Path, line: str, reason: str) -> None:
    file.write_text(f"username,down,up\nfirst,1m,1m\n{line}\n")
    assert read_file(str(file))[1:] == [BadRow(3, reason)]


def test_without_a_known_head_there_are_no_rows(file: Path) -> None:
    for head in ("alice,1m,1m", "down,up", "username,down,rate_down,up", "username,down,up,until"):
        file.write_text(f"{head}\nbob,1m,1m\n")
        (row,) = read_file(str(file))
        assert isinstance(row, BadRow)
        assert (row.number, row.reason.partition(":")[0]) == (1, "must name the columns")
    for text in ("", "username,down,up\nalice,100mbit,5"):
        file.write_text(text)
        with pytest.raises(CommandError):
            read_file(str(file))
