"""The difference of two configurations as operations, with masked secrets."""

from typing import Any

import pytest

from gateway_api.cli.ctl.candidate import MASK, Missing, filled, operations, secret_paths, values


def users(**roles: str) -> dict[str, Any]:
    return {
        "users": [{"username": name, "role": role, "password_hash": MASK} for name, role in roles.items()]
    }


@pytest.mark.parametrize(
    ("wanted", "present", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [{"op": "set", "path": "a", "value": 1}]),
        ({"a": {"b": 1}}, {"a": None}, [{"op": "set", "path": "a.b", "value": 1}]),
        ({"a": {}}, {"a": {"b": 2}}, [{"op": "set", "path": "a", "value": {}}]),
        ({"a": {"c": 1}}, {"a": {"b": 1, "c": 1}}, [{"op": "delete", "path": "a.b"}]),
        ({"a": {"x.y": 1}}, {"a": {"x.y": 2}}, [{"op": "set", "path": 'a."x.y"', "value": 1}]),
        ({"a": [1, 2]}, {"a": [1]}, [{"op": "set", "path": "a", "value": [1, 2]}]),
        ({"a": MASK}, {"a": MASK}, []),
        ({"a": MASK}, {"a": None}, [Missing("a")]),
        ({"a": MASK}, {}, [Missing("a")]),
        (
            users(alice="admin"),
            users(alice="operator"),
            [{"op": "set", "path": "users.alice.role", "value": "admin"}],
        ),
        (users(alice="admin"), users(alice="admin", bob="admin"), [{"op": "delete", "path": "users.bob"}]),
        (users(alice="admin", bob="admin"), users(alice="admin"), [Missing("users.bob.password_hash")]),
        (
            users(**{"7": "admin"}),
            users(**{"7": "x"}),
            [{"op": "set", "path": 'users."7".role', "value": "admin"}],
        ),
    ],
)  # fmt: skip
def test_what_changes_is_an_operation(wanted: Any, present: Any, expected: list[Any]) -> None:
    assert list(operations(wanted, present)) == expected


def test_an_item_with_a_given_secret_is_set_as_a_whole() -> None:
    wanted = filled(users(alice="admin", bob="operator"), {"users.bob.password_hash": "$2b$"})
    (operation,) = operations(wanted, users(alice="admin"))
    bob = {"username": "bob", "role": "operator", "password_hash": "$2b$"}
    assert operation == {"op": "set", "path": "users.bob", "value": bob}


def test_all_masked_secrets_have_their_paths() -> None:
    document = {"radius": {"secret": MASK}, **users(alice="admin"), "list": [{"token": MASK}]}
    assert list(secret_paths(document)) == ["radius.secret", "users.alice.password_hash", "list.0.token"]


def test_values_have_the_paths_of_a_diff() -> None:
    document = {"a": {}, "b": {"c": [1, 2]}, "d": [{"name": "x", "e": None}]}
    assert list(values(document)) == [("a", {}), ("b.c", [1, 2]), ("d.x.name", "x"), ("d.x.e", None)]
