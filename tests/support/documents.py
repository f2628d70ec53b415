"""Configuration documents that tests begin with."""

import copy
import json
from pathlib import Path
from typing import Any

_FACTORY = json.loads((Path(__file__).parents[2] / "etc" / "factory.json").read_text())

#: A bcrypt hash of "secret" at the least cost.
SECRET_HASH = "$2b$04$l6cHqOx.6njlYvAogLLyBucPkVMnGY95sbhMuf9sMa4d1mAUkSSVW"


def valid_document() -> dict[str, Any]:
    """A valid configuration with an admin and an operator, whose password is "secret"."""
    made: dict[str, Any] = copy.deepcopy(_FACTORY)
    made["api"]["users"] = [
        {"username": role, "password_hash": SECRET_HASH, "role": role} for role in ("admin", "operator")
    ]
    return made
