"""Rates as operators write them, as they are shown, and in files."""

from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_contract.base.texts import MAX_BPS, MIN_BPS, format_rate
from gateway_contract.base.texts import parse_rate as asked_rate
from gatewayctl.commands.rates import BadRow, RateRow, format_file, read_file
from gatewayctl.errors import CommandError
from gatewayctl.results import format_csv
from gatewayctl.texts import parse_typed_rate

#: Of any size.
parse_rate = partial(asked_rate, min_bps=1)

UNITS = {
    **dict.fromkeys(("", "bit"), 1),
    **dict.fromkeys(("k", "kbit", "kbps"), 10**3),
    **dict.fromkeys(("m", "mbit", "mbps"), 10**6),
    **dict.fromkeys(("g", "gbit", "gbps"), 10**9),
    **dict.fromkeys(("t", "tbit"), 10**12),
    "kibit": 2**10,
    "mibit": 2**20,
    "gibit": 2**30,
}


def refusal(text: str) -> str:
    with pytest.raises(ValueError) as refused:
        parse_rate(text)
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "bps"),
    [
        # A unit in any case; of bits a second with any capital but the B.
        *(("3BIT", 3), ("3K", 3000), ("3MiBit", 3 * 2**20), ("5kbPS", 5000), ("2MbpS", 2_000_000)),
        # As it is shown, on the live page too, whose space does not break a line.
        *(("50 Mbit/s", 50_000_000), ("1.5 Gbit/s", 1_500_000_000), ("5.21\xa0Mbit/s", 5_210_000)),
        *(("999 bit/s", 999), ("100\tmbit", 100_000_000), ("007.50m", 7_500_000)),
        # A part of a bit is dropped, however many digits it has.
        *(("0.0015kbit", 1), ("1." + "9" * 62, 1)),
        *(("400gbit", MAX_BPS), ("0.4tbit", MAX_BPS), ("400000000000", 400_000_000_000)),
    ],
)
def test_a_rate_is_read_exactly(text: str, bps: int) -> None:
    assert parse_rate(text) == bps


@given(
    whole=st.integers(0, 10**12) | st.integers(0, 9),
    digits=st.text("0123456789", max_size=40),
    unit=st.sampled_from(sorted(UNITS)),
    space=st.sampled_from(["", " ", "  "]),
)
def test_a_rate_is_its_number_times_its_unit_rounded_down_or_refused_for_its_size(
    whole: int, digits: str, unit: str, space: str
) -> None:
    number = f"{whole}.{digits}" if digits else str(whole)
    exact = Fraction(number) * UNITS[unit]
    bps = exact.numerator // exact.denominator
    if 1 <= bps <= MAX_BPS:
        assert parse_rate(number + space + unit) == bps
    else:
        assert "must" in refusal(number + space + unit)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, "at least 1 bit/s") for text in ("0", "0.0001kbit", "0." + "9" * 40)),
        *((text, "400 Gbit/s") for text in ("400000000001", "400.1gbit", "9" * 60)),
        *((text, "bytes") for text in ("5KBps", "5 mBps", "5MBPS")),
    ],
)
def test_a_refusal_says_what_is_wrong(text: str, said: str) -> None:
    assert said in refusal(text)


def test_a_rate_that_is_asked_for_is_at_least_8_kbit_s() -> None:
    for text in ("8000", "8k", "0.008mbit"):
        assert asked_rate(text) == MIN_BPS
    for text, shown in (("50", "50 bit/s"), ("7.9k", "7.9 kbit/s"), ("0", "0 bit/s")):
        with pytest.raises(ValueError, match=f"^must be at least 8 kbit/s, not {shown}: is the unit missing"):
            asked_rate(text)


def test_a_rate_that_a_person_types_needs_a_unit() -> None:
    assert parse_typed_rate("250 Mbit/s") == 250_000_000
    for text in ("250", " 250 ", "2.5"):
        with pytest.raises(ValueError, match=r"^must have a unit, such as 250mbit$"):
            parse_typed_rate(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "mbit",
            "-5mbit",
            "+5mbit",
            "1e6",
            "5.mbit",
            ".5mbit",
            "1,5mbit",
            "1.2.3",
            "0x10",
            "1_000",
        ),
        *("5kb", "5b", "5B", "KB/s", "5kb/s", "5bps", "5tbps", "5tibit", "5 Kibps", "5mbits", "nan"),
        *("5k/s", "5mbps/s", "5mbit/", "5/s", "5 m bit", " 5mbit", "5mbit ", "5mbit\n", "5mbit\0"),
        *("\u0665mbit", "5\u212abit", "5\u2003m", "1" * 65, "0" * 70 + "5"),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    assert refusal(text)


@pytest.mark.parametrize(
    ("bps", "text"),
    [
        *((0, "0 bit/s"), (999, "999 bit/s"), (1000, "1 kbit/s"), (1_500_000, "1.5 Mbit/s")),
        *((1_000_000_001, "1.000000001 Gbit/s"), (MAX_BPS, "400 Gbit/s")),
    ],
)
def test_a_rate_is_shown_with_its_largest_unit(bps: int, text: str) -> None:
    assert format_rate(bps) == text


@given(st.integers(1, MAX_BPS))
def test_a_rate_is_shown_exactly(bps: int) -> None:
    assert parse_rate(format_rate(bps)) == bps


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
