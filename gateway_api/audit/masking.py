"""What of a request may be kept: everything but what could be a secret, where in doubt that too."""

import re
from typing import Any

import msgspec

from gateway_api.base.configuration_path import parse_path, path_text
from gateway_api.base.redact import MASK, is_secret, masked_text

_SECRET_WORD = re.compile(r"secret|password|token|key", re.IGNORECASE)


def masked(value: Any, *, refused: bool = False) -> Any:
    """A copy of a JSON value. An object with a `path` and a `value` is a place in the configuration and what
    is to be there: nobody will ever see the value if it was `refused`, so it doesn't stay."""
    if isinstance(value, dict):
        return {name: _member(value, name, held, refused) for name, held in value.items()}
    if isinstance(value, list):
        return [masked(item, refused=refused) for item in value]
    return masked_text(value) if isinstance(value, str) else value


def masked_path(path: str) -> str:
    """A place in the configuration, up to a name of a secret: people write values behind it."""
    try:
        parts = parse_path(path)
    except ValueError:
        return MASK
    secret = next((number for number, part in enumerate(parts, 1) if is_secret(part.text)), len(parts))
    return masked_text(path if secret == len(parts) else f"{path_text(parts[:secret])}.{MASK}")


def _member(holder: dict[str, Any], name: str, held: Any, refused: bool) -> Any:
    if is_secret(name):
        return None if held is None else MASK
    if name == "path" and isinstance(held, str):
        return masked_path(held)
    if name == "value" and "path" in holder:
        return _value(holder["path"], held, refused)
    return masked(held, refused=refused)


def _value(path: Any, held: Any, refused: bool) -> Any:
    if held is None:
        return None
    if refused or not isinstance(path, str) or masked_path(path) != path or _SECRET_WORD.search(path):
        return MASK
    if isinstance(held, str) and held.lstrip()[:1] in ("{", "["):
        # JSON in a text, which the core would take apart.
        try:
            return msgspec.json.encode(masked(msgspec.json.decode(held))).decode()
        except (msgspec.MsgspecError, RecursionError):
            return MASK
    return masked(held)
