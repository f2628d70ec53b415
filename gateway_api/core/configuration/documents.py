"""JSON documents in files."""

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gateway_api.base.errors import GatewayApiError

T = TypeVar("T")


class Unreadable(GatewayApiError):
    """A file isn't there, or holds something else than it should."""


def read(path: Path, type: type[T]) -> T:
    """What is in a file. Raises Unreadable."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=type)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"cannot read the configuration in {path}: {error}") from error


def encoded(value: Any) -> bytes:
    """As a file holds it, for people to read as well."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
