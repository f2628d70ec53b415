"""A record of the audit log, with everything masked that could be a secret."""

import json
import re
from typing import Any, Literal

import msgspec

from gateway_api.base.configuration_path import parse_path, path_text
from gateway_api.base.logs import MASK, is_secret, masked_text

#: The most characters that a body, and what was before and after, take as JSON.
MOST = 4096

Result = Literal["done", "refused", "failed", "unanswered"]
RESULTS: tuple[Result, ...] = ("done", "refused", "failed", "unanswered")

_SECRET_WORD = re.compile(r"secret|password|token|key", re.IGNORECASE)


class AuditEntry(msgspec.Struct, frozen=True):
    """`at` is epoch seconds. Without a `role` the `user` is unproven. `action` is the name of the view,
    `route` its path with names for what differs. `body`, `before` and `after` are JSON without secrets, or
    None. For a request that broke off `status` is None, and `result` unanswered."""

    at: float
    user: str | None
    role: str | None
    address: str | None
    request_id: str
    method: str
    action: str
    route: str | None
    path: str
    status: int | None
    result: Result
    message: str | None
    body: Any = None
    before: Any = None
    after: Any = None

    def text(self) -> str:
        """One line of ASCII. Values that are too long in it are cut, and marked as cut."""
        cut = {name: _cut(getattr(self, name)) for name in ("body", "before", "after")}
        return _json(msgspec.structs.asdict(self) | cut)


def gap(
    at: float, message: str, *, user: str | None = None, role: str | None = None, request_id: str = ""
) -> AuditEntry:
    """Stands for records, or changes, that are missing. `message` tells how many, or why."""
    return AuditEntry(
        at=round(at, 3),
        user=user,
        role=role,
        address=None,
        request_id=request_id,
        method="",
        action="audit.gap",
        route=None,
        path="",
        status=None,
        result="failed",
        message=message,
    )


def result_of(status: int | None) -> Result:
    """What a status means: below 400 it was done, from 500 on it failed."""
    if status is None:
        return "unanswered"
    return "done" if status < 400 else "refused" if status < 500 else "failed"


def _cut(value: Any) -> Any:
    text = _json(value)
    if len(text) <= MOST:
        return value
    return {"cut": True, "characters": len(text), "beginning": text[: MOST // 2]}


def _json(value: Any) -> str:
    # msgspec's JSON has characters in it that control a terminal.
    return json.dumps(value, separators=(",", ":"))


def masked(value: Any, *, refused: bool = False) -> Any:
    """A copy of a JSON value. An object with a `path` and a `value` is an edit of the configuration: its
    value is masked if it was `refused`, since nothing ever shows it again."""
    if isinstance(value, dict):
        return {name: _member(value, name, held, refused) for name, held in value.items()}
    if isinstance(value, list):
        return [masked(item, refused=refused) for item in value]
    return masked_text(value) if isinstance(value, str) else value


def masked_path(path: str) -> str:
    """A path of the configuration, up to the name of a secret: people write values behind it."""
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
        return _edited(holder["path"], held, refused)
    return masked(held, refused=refused)


def _edited(path: Any, held: Any, refused: bool) -> Any:
    if held is None:
        return None
    if refused or not isinstance(path, str) or masked_path(path) != path or _SECRET_WORD.search(path):
        return MASK
    if isinstance(held, str) and held.lstrip()[:1] in ("{", "["):
        # JSON in a text, which the core would parse.
        try:
            return msgspec.json.encode(masked(msgspec.json.decode(held))).decode()
        except (msgspec.MsgspecError, RecursionError):
            return MASK
    return masked(held)
