"""Generations of the API's users: a token holds while its user has the generation that the token names.

They are random, so that no state that is lost, or comes back, gives a user a generation of before.
"""

import secrets
from collections.abc import Iterable, Mapping

from gateway_api.core.configuration.outcome import NoSuchUser
from gateway_api.core.configuration.sections import User


def renewed(held: Mapping[str, str], before: Iterable[User], after: Iterable[User]) -> dict[str, str]:
    """A generation for each user of a configuration, by name: the one that is held for users who are as they
    were before, and a new one for each other."""
    unchanged = set(map(_identity, before)) & set(map(_identity, after))
    return {
        user.username: (_identity(user) in unchanged and held.get(user.username)) or _new() for user in after
    }


def ended(held: Mapping[str, str], username: str) -> dict[str, str]:
    """The same with a new one for one user. Raises NoSuchUser."""
    if username not in held:
        raise NoSuchUser("the running configuration has no such user")
    return {**held, username: _new()}


def _new() -> str:
    """64 random bits, in hex."""
    return secrets.token_hex(8)


def _identity(user: User) -> tuple[str, str, str]:
    return user.username, user.password_hash, user.role
