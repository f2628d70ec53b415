"""What is masked where a configuration is shown."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_contract.base.logs import MASK, is_secret
from gateway_contract.configuration import mask_secrets

keys = st.sampled_from(["secret", "radius_secret", "name", "token", "token_lifetime"]) | st.text(max_size=4)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)


def test_a_key_that_is_or_ends_in_a_word_for_a_secret_is_masked() -> None:
    for key in (
        *("secret", "password", "password_hash", "token", "key"),
        *("radius_secret", "old-password", "user_password_hash", "auth_token", "api_key", "apikey"),
        *("SECRET", "Radius_Secret", "authToken", "API_KEY"),
    ):
        assert is_secret(key)
        assert mask_secrets({key: "hidden"}) == {key: MASK}


def test_a_key_that_only_begins_like_a_secret_is_shown() -> None:
    for key in (
        "",
        "secrets",
        "secret_name",
        "token_lifetime",
        "password_policy",
        "keys",
        "key_id",
        "hash",
        "user",
    ):
        assert not is_secret(key)
        assert mask_secrets({key: "shown"}) == {key: "shown"}


@pytest.mark.parametrize("value", ["", 0, False, 12.5, ["a"], {"name": "a"}])
def test_a_secret_of_any_type_is_masked_whole(value: Any) -> None:
    assert mask_secrets({"secret": value}) == {"secret": MASK}


def test_a_secret_that_is_not_set_shows_as_not_set() -> None:
    assert mask_secrets({"secret": None}) == {"secret": None}


def test_secrets_are_found_at_any_depth() -> None:
    document = {"a": [{"b": {"secret": "x", "name": "n"}}, [{"token": "y"}]]}
    assert mask_secrets(document) == {"a": [{"b": {"secret": MASK, "name": "n"}}, [{"token": MASK}]]}


@given(json_values)
def test_redaction_changes_nothing_but_secrets_and_only_in_the_copy(value: Any) -> None:
    before = copy.deepcopy(value)
    shown = mask_secrets(value)
    assert value == before
    assert_same_but_secrets(shown, value)


@given(json_values)
def test_what_is_redacted_stays_as_it_is_when_redacted_again(value: Any) -> None:
    assert mask_secrets(mask_secrets(value)) == mask_secrets(value)


def assert_same_but_secrets(shown: Any, held: Any, key: str = "") -> None:
    if key.lower().endswith(("secret", "password", "password_hash", "token", "key")) and held is not None:
        assert shown == MASK
    elif isinstance(held, dict):
        assert list(shown) == list(held)
        for inner, value in held.items():
            assert_same_but_secrets(shown[inner], value, inner)
    elif isinstance(held, list):
        assert len(shown) == len(held)
        for ours, theirs in zip(shown, held, strict=True):
            assert_same_but_secrets(ours, theirs)
    else:
        assert shown == held
