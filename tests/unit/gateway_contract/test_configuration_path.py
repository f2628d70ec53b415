"""Places in a configuration as text, and back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_contract.base.texts import LONGEST_PATH, PathSegment, Segments, format_path, parse_path

enough = settings(max_examples=100)

#: All that may stand between quotes; among it what names and indexes are made of, and what separates.
quotable = st.text(
    st.sampled_from(" .0129_-aZ\u00e9\u0661\U0001f600'\\")
    | st.characters(min_codepoint=0x20, exclude_characters='"\x7f', exclude_categories=["Cs"]),
    min_size=1,
    max_size=12,
)
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,8}", fullmatch=True)
indexes = st.integers(0, 999_999).map(lambda number: PathSegment(str(number), number))
paths = st.lists(quotable.map(PathSegment) | names.map(PathSegment) | indexes, min_size=1, max_size=8).map(
    tuple
)


def refusal(text: str) -> str:
    with pytest.raises(ValueError) as refused:
        parse_path(text)
    return str(refused.value)


@given(paths)
@enough
def test_the_text_of_any_path_is_read_as_that_path(path: Segments) -> None:
    assert parse_path(format_path(path)) == path


@given(st.text(st.sampled_from('a0."-_ \n\u0661'), max_size=8) | st.text(max_size=8))
@enough
def test_a_text_is_refused_or_means_the_same_when_it_is_written_again(text: str) -> None:
    try:
        path = parse_path(text)
    except ValueError:
        return
    assert parse_path(format_path(path)) == path


def test_a_path_has_these_segments() -> None:
    for text, segments in (
        ("system", [PathSegment("system")]),
        ("_a.B-1", [PathSegment("_a"), PathSegment("B-1")]),
        (
            "a.0.999999.b",
            [PathSegment("a"), PathSegment("0", 0), PathSegment("999999", 999_999), PathSegment("b")],
        ),
        ('a."eth0.100".b', [PathSegment("a"), PathSegment("eth0.100"), PathSegment("b")]),
        ('"system"."5"', [PathSegment("system"), PathSegment("5")]),
        (r'a."it\'s é"', [PathSegment("a"), PathSegment(r"it\'s é")]),
    ):
        assert parse_path(text) == tuple(segments)


def test_a_key_is_written_in_quotes_unless_it_is_a_name() -> None:
    assert format_path(parse_path('"api"."users"."alice"."role"')) == "api.users.alice.role"
    for key in ("eth0.100", "10.255.0.2", "0", "-a", "1st", "a b", "\u00e9", "a@b"):
        assert format_path([PathSegment("users"), PathSegment(key)]) == f'users."{key}"'


def test_what_is_no_path_is_refused() -> None:
    for text in (
        *("", ".", "..", " ", "\n"),
        *(".a", "a.", "a..b", "a.b.", "a. b", "a .b", " a", "a ", "a\n", "a.b\n", "a.0\n", 'a."b"\n'),
        *("-a", "a.-b", "a.-1", "a.+1", "1a", "a.1b", "a.01", "a.00", "a.1_0", "a.1000000", "a.12345678"),
        *("a.1.5e3", "a.0x1", "a[0]", "a/b", "a:b", "a=b", "a@b", "a$", "a*", "a,b", "a'b'"),
        *('"', '""', 'a.""', 'a."', 'a."b', 'a.b"', 'a."b"c', 'a.b"c"', '"a""b"', "a.'b'", r'a."b\"c"'),
        *('a."b\nc"', 'a."b\x00c"', 'a."b\x7fc"', 'a."b" .c', "\u00e9", "a.\u0661", "a\u2028b", "\u0430pi"),
    ):
        said = refusal(text)
        assert "segments joined by dots" in said
        assert len(text) < 5 or text not in said


def test_a_path_that_is_too_long_is_refused_for_its_length() -> None:
    longest = "a." * (LONGEST_PATH // 2 - 1) + "bb"
    assert len(parse_path(longest)) == LONGEST_PATH // 2
    for text in (f"{longest}b", '"' + "x" * LONGEST_PATH):
        assert refusal(text) == f"must have at most {LONGEST_PATH} characters"
