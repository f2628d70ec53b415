"""What is kept of one request, as one line."""

import json
from typing import Any, Literal

import msgspec

#: The most characters that a body, and what was before and after, take as JSON.
MOST = 4096

Result = Literal["done", "refused", "failed", "unanswered"]
RESULTS: tuple[Result, ...] = ("done", "refused", "failed", "unanswered")


class Record(msgspec.Struct, frozen=True):
    """`at` is epoch seconds. Without a `role` nobody has proven to be the `user`. `action` is the view's
    name, `route` its path with names for what differs. `body`, `before` and `after` are JSON without secrets,
    or None; `status` is None, and `result` unanswered, for a request that broke off."""

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


def gap(
    at: float, message: str, *, user: str | None = None, role: str | None = None, request_id: str = ""
) -> Record:
    """What stands for records, or changes, that are missing. `message` says how many, or why."""
    return Record(
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


def line_of(record: Record) -> bytes:
    """One line of ASCII, with its end. What is too long in it is cut, and says so."""
    fields = msgspec.structs.asdict(record)
    for name in ("body", "before", "after"):
        fields[name] = _cut(fields[name])
    return (json_of(fields) + "\n").encode()


def _cut(value: Any) -> Any:
    text = json_of(value)
    if len(text) <= MOST:
        return value
    return {"cut": True, "characters": len(text), "beginning": text[: MOST // 2]}


def json_of(value: Any) -> str:
    """As it stands in a line."""
    # Not msgspec's, which lets characters through that speak to a terminal.
    return json.dumps(value, separators=(",", ":"))
