"""Passwords and their hashes."""

import time
from itertools import pairwise

import bcrypt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_api.auth.passwords import MAX_BYTES, hash_password, verify


def quick_hash(password: bytes, rounds: int = 4) -> str:
    """A hash that is cheap to check."""
    return bcrypt.hashpw(password, bcrypt.gensalt(rounds)).decode()


def test_a_hash_is_its_passwords() -> None:
    assert verify("pass wörd", hash_password("pass wörd"))


def test_a_hash_has_cost_12() -> None:
    assert hash_password("secret").startswith("$2b$12$")


def test_the_same_password_gets_two_different_hashes() -> None:
    assert hash_password("secret") != hash_password("secret")


def test_another_password_is_wrong() -> None:
    assert not verify("Secret", quick_hash(b"secret"))


def test_an_empty_password_is_not_hashed() -> None:
    with pytest.raises(ValueError, match="empty"):
        hash_password("")


def test_an_empty_password_is_wrong() -> None:
    assert not verify("", quick_hash(b"secret"))


def test_a_password_of_72_bytes_is_hashed() -> None:
    password = "ä" * (MAX_BYTES // 2)
    assert verify(password, hash_password(password))


@pytest.mark.parametrize("password", ["x" * 73, "ä" * 37, "a\0b", "\ud800"])
def test_a_password_that_bcrypt_cannot_tell_apart_is_not_hashed(password: str) -> None:
    with pytest.raises(ValueError, match="72 bytes"):
        hash_password(password)


def test_a_password_that_agrees_in_its_first_72_bytes_is_wrong() -> None:
    assert not verify("x" * 73, quick_hash(b"x" * 72))


def test_a_password_with_a_nul_is_wrong_where_its_start_would_be_right() -> None:
    assert not verify("secret\0more", quick_hash(b"secret"))


def test_a_password_that_no_encoding_has_is_wrong() -> None:
    assert not verify("\ud800", quick_hash(b"-"))


@pytest.mark.parametrize("password", ["x" * 73, "a\0b", "\ud800"])
def test_an_impossible_password_is_wrong_even_for_the_hash_of_its_stand_in(password: str) -> None:
    assert not verify(password, quick_hash(b"-"))


@pytest.mark.parametrize("password", ["x" * 73, "a\0b", "\ud800"])
def test_an_impossible_password_costs_as_much_as_a_wrong_one(password: str) -> None:
    password_hash = quick_hash(b"secret", rounds=9)

    def cost(password: str) -> float:
        # Of the least of some, in processor time: other processes must not count.
        began = [time.thread_time()]
        for _ in range(3):
            verify(password, password_hash)
            began.append(time.thread_time())
        return min(after - before for before, after in pairwise(began))

    assert cost(password) > cost("wrong") / 2


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
