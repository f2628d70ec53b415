"""Passwords and their hashes."""

import bcrypt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_contract.passwords import MAX_BYTES, hash_password, verify


def quick_hash(password: bytes, rounds: int = 4) -> str:
    """A hash that is cheap to check."""
    return bcrypt.hashpw(password, bcrypt.gensalt(rounds)).decode()


def test_a_hash_is_its_passwords() -> None:
    assert verify("pass wörd", hash_password("pass wörd"))


def test_a_hash_has_cost_12() -> None:
    assert hash_password("secret").startswith("$2b$12$")


@pytest.mark.parametrize(
    ("password", "of"),
    [
        ("Secret", b"secret"),
        ("", b"secret"),
        # bcrypt reads 72 bytes, and to the first NUL.
        ("x" * 73, b"x" * 72),
        ("secret\0more", b"secret"),
        ("\ud800", b"-"),
    ],
)
def test_another_password_is_wrong(password: str, of: bytes) -> None:
    assert not verify(password, quick_hash(of))


def test_the_same_password_gets_two_different_hashes() -> None:
    assert hash_password("secret") != hash_password("secret")


def test_an_empty_password_is_not_hashed() -> None:
    with pytest.raises(ValueError, match="empty"):
        hash_password("")


def test_a_password_of_72_bytes_is_hashed() -> None:
    password = "ä" * (MAX_BYTES // 2)
    assert verify(password, hash_password(password))


@pytest.mark.parametrize("password", ["x" * 73, "ä" * 37, "a\0b", "\ud800"])
def test_a_password_that_bcrypt_cannot_tell_apart_is_not_hashed(password: str) -> None:
    with pytest.raises(ValueError, match="72 bytes"):
        hash_password(password)


@pytest.mark.parametrize("password", ["x" * 73, "a\0b", "\ud800"])
def test_an_impossible_password_is_wrong_even_for_the_hash_of_its_stand_in(password: str) -> None:
    assert not verify(password, quick_hash(b"-"))


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "x",
        "\0",
        "$2b$04$",
        "$2b$04$short",
        "$2b$99$" + "a" * 53,
        "$2z$04$" + "a" * 53,
        "\ud800",
        "é" * 60,
    ],
)
def test_a_hash_that_is_none_is_nobodys(broken: str) -> None:
    assert not verify("secret", broken)


_OF_SECRET = quick_hash(b"secret")


@settings(max_examples=50)
@given(st.text())
def test_any_text_is_right_or_wrong_and_never_an_error(password: str) -> None:
    assert verify(password, _OF_SECRET) == (password == "secret")
