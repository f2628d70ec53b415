"""Files of rates: what is a row, and what is a bad line."""

from pathlib import Path

import pytest

from gateway_api.cli.ctl.failures import CommandFailure
from gateway_api.cli.ctl.rate_file import BadRow, RateRow, read


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rates.csv"


def test_a_row_has_the_number_of_its_line(file: Path) -> None:
    file.write_text("username,down,up\n\n# comment\nalice,1mbit,2mbit\n")
    assert read(str(file)) == [RateRow(4, "alice", False, "1mbit", "2mbit")]


def test_an_id_may_stand_for_a_username(file: Path) -> None:
    file.write_text("id,down,up\n7,1mbit,2mbit\nseven,1mbit,2mbit\n")
    assert read(str(file)) == [
        RateRow(2, "7", True, "1mbit", "2mbit"),
        BadRow(3, "must begin with a session id"),
    ]


def test_spreadsheets_quote_and_count_with_carriage_returns(file: Path) -> None:
    file.write_bytes('\ufeffusername,down,up\r\n"bob ""the second"", here", "1 mbit",2mbit \r\n'.encode())
    assert read(str(file)) == [RateRow(2, 'bob "the second", here', False, "1 mbit", "2mbit")]


@pytest.mark.parametrize(
    "line", ["a,1mbit", "a,1mbit,1mbit,1mbit", "a,,1mbit", '"a,1mbit,1mbit', 'a"b,1mbit,1mbit', 'a,"1"m,1m']
)
def test_a_line_that_is_no_row_is_bad(file: Path, line: str) -> None:
    file.write_text(f"username,down,up\n{line}\n")
    assert read(str(file)) == [BadRow(2, "must have three fields: username or id, down, up")]


def test_a_second_row_of_the_same_subscriber_is_bad(file: Path) -> None:
    file.write_text("username,down,up\nalice,1m,1m\nalice,2m,2m\n")
    assert read(str(file))[1] == BadRow(3, "alice is in line 2 already")


def test_without_a_known_head_there_are_no_rows(file: Path) -> None:
    file.write_text("alice,1m,1m\nbob,1m,1m\n")
    assert read(str(file)) == [BadRow(1, "must be username,down,up or id,down,up")]


@pytest.mark.parametrize("text", ["", "username,down,up\nalice,100mbit,5"])
def test_a_truncated_file_is_refused(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(CommandFailure):
        read(str(file))
