"""Configurations as the API shows them: the masked secrets, and what of a backup a gateway knows."""

from typing import Any

import pytest

from gateway_contract.base.logs import MASK
from gatewayctl.commands.configuration import (
    describe_effect,
    drop_unknown_secrets,
    fill_secrets,
    list_secrets,
    list_values,
)


def users(**roles: str) -> dict[str, Any]:
    return {
        "users": [{"username": name, "role": role, "password_hash": MASK} for name, role in roles.items()]
    }


@pytest.mark.parametrize(
    ("wanted", "present", "expected"),
    [
        ({"a": {"b": 1}}, {"a": None}, {"a": {"b": 1}}),
        ({"a": {}}, {"a": {"b": 2}}, {"a": {}}),
        ({"a": MASK}, {"a": MASK}, {"a": MASK}),
        ({"a": MASK}, {"a": None}, {"a": None}),
        ({"a": MASK, "b": 1}, {}, {"b": 1}),
        ({"a": {"b": 1, "c": MASK}}, {"a": {"b": 2}}, {"a": {"b": 1}}),
        ({"a": {"b": 1, "c": MASK}, "d": 1}, {"d": 2}, {"d": 1}),
        (users(alice="admin", bob="admin"), users(alice="operator"), users(alice="admin")),
        (users(bob="x", alice="x"), users(alice="x", bob="x"), users(bob="x", alice="x")),
        (users(alice="admin"), {"users": None}, users()),
        ([{"b": MASK}], [{"b": None}, 1], [{"b": None}]),
    ],
)  # fmt: skip
def test_what_needs_a_secret_that_is_not_there_is_left_out(wanted: Any, present: Any, expected: Any) -> None:
    assert drop_unknown_secrets(wanted, present) == expected


def test_an_item_with_a_given_secret_is_not_left_out() -> None:
    wanted = fill_secrets(users(alice="admin", bob="operator"), {"users.bob.password_hash": "$2b$"})
    bob = {"username": "bob", "role": "operator", "password_hash": "$2b$"}
    assert drop_unknown_secrets(wanted, users(alice="admin"))["users"] == [
        *users(alice="admin")["users"],
        bob,
    ]


def test_all_masked_secrets_have_their_paths() -> None:
    document = {"radius": {"secret": MASK}, **users(alice="admin"), "list": [{"token": MASK}]}
    assert list(list_secrets(document)) == ["radius.secret", "users.alice.password_hash", "list.0.token"]


def test_values_have_the_paths_of_a_diff() -> None:
    document = {"a": {}, "b": {"c": [1, 2]}, "d": [{"name": "x", "e": None}]}
    assert list(list_values(document)) == [("a", {}), ("b.c", [1, 2]), ("d.x.name", "x"), ("d.x.e", None)]


def test_the_effect_names_the_sessions_that_a_commit_with_a_deadline_leaves_until_its_confirmation() -> None:
    impact = {"services": [], "sessions_dropped": 5, "sessions": [1, 2, 3, 4, 5], "sessions_held": 3}
    assert describe_effect({"impact": impact}) == [
        "5 sessions would end; with a deadline, 3 of them only when the commit is confirmed"
    ]
