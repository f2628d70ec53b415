"""Configuration documents for the start of tests."""

import json
from pathlib import Path
from typing import Any

FACTORY = Path(__file__).parents[2] / "etc" / "factory.json"

#: A bcrypt hash of "secret" with the lowest cost.
SECRET_HASH = "$2b$04$l6cHqOx.6njlYvAogLLyBucPkVMnGY95sbhMuf9sMa4d1mAUkSSVW"


def valid_document() -> dict[str, Any]:
    """Return a valid configuration with an admin and an operator, whose passwords are "secret"."""
    made: dict[str, Any] = json.loads(FACTORY.read_text())
    made["api"]["users"] = [
        {"username": role, "password_hash": SECRET_HASH, "role": role} for role in ("admin", "operator")
    ]
    return made


def place(document: dict[str, Any], path: str) -> tuple[Any, str | int]:
    """Return the object or list that holds the value at a dotted path, and the value's key in it."""
    *above, last = (int(part) if part.isdigit() else part for part in path.split("."))
    held: Any = document
    for part in above:
        held = held[part]
    return held, last


def put(document: dict[str, Any], path: str, value: Any) -> None:
    held, key = place(document, path)
    held[key] = value


def remove(document: dict[str, Any], path: str) -> None:
    held, key = place(document, path)
    del held[key]
