"""What may be shown of a configuration: everything but the values of secret keys."""

from typing import Any

MASK = "********"

_SECRET = ("secret", "password", "password_hash", "token", "key")


def is_secret(key: str) -> bool:
    """True when the key is, or ends in, a word for a secret: `radius_secret`, `auth-token`."""
    return key.lower().endswith(_SECRET)


def redacted(value: Any) -> Any:
    """A copy of a JSON value with `MASK` for every value under a secret key, unless it is null."""
    if isinstance(value, dict):
        return {
            key: MASK if is_secret(key) and held is not None else redacted(held)
            for key, held in value.items()
        }
    if isinstance(value, list):
        return [redacted(item) for item in value]
    return value
