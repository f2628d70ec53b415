"""Records of the audit log, with masked secrets, and the filter for records."""

import json
import re
from typing import Annotated, Any, Literal, get_args

import msgspec

from gateway_contract import configuration
from gateway_contract.base.logs import MASK, is_secret, mask_text
from gateway_contract.base.texts import format_rate, format_utc, parse_path, shorten_json
from gateway_contract.configuration import field_at, mask_path
from gateway_contract.contract import about

#: Limit of the body as JSON, and of the values before and after.
MAX_VALUE_CHARACTERS = 4096

Result = Literal["done", "refused", "failed", "unanswered"]
RESULTS: tuple[Result, ...] = get_args(Result)

_SECRET_WORD_PATTERN = re.compile(r"secret|password|token|key", re.IGNORECASE)


class AuditEntry(msgspec.Struct, frozen=True):
    """A record of the audit log: a change or a rejection, caused by an HTTP request, by a process at the
    core's socket, or by the core itself."""

    at: Annotated[float, about("Time of the record, Unix epoch seconds.", 1795271513.25)]
    user: Annotated[str | None, about("User; without a role, the name that the request claimed.", "admin")]
    role: Annotated[
        str | None,
        about(
            "Role of the user, null for nobody; system for a process at the core's socket, or the core.",
            "admin",
            enum=["admin", "operator", "system", None],
        ),
    ]
    address: Annotated[
        str | None, about("Address of the client, null for a change at the core's socket.", "192.0.2.7")
    ]
    request_id: Annotated[str, about("X-Request-ID of the response, or the change at the core.", "req-42")]
    method: Annotated[str, about("HTTP method, empty without a request.", "PUT")]
    action: Annotated[str, about("Name of the operation.", "subscribers.change_rate")]
    route: Annotated[
        str | None, about("Path with names for its variable parts.", "/api/v1/subscribers/{id}/rate")
    ]
    path: Annotated[str, about("Path as it was sent, empty without a request.", "/api/v1/subscribers/7/rate")]
    status: Annotated[int | None, about("HTTP status, null when it broke off, or without a request.", 200)]
    result: Annotated[
        Result,
        about(
            "Result: `unanswered` if the request broke off, or the core's reply was lost.",
            "done",
            type="string",
        ),
    ]
    message: Annotated[
        str | None,
        about(
            "Message of the response; with the username of a session that was changed, and its new rates.",
            "Rate change requested for session 7 (alice, 250 Mbit/s down, 50 Mbit/s up)",
        ),
    ]
    body: Annotated[
        Any, about("Body of the request, secrets masked.", {"rate_down": "250 Mbit", "rate_up": "50mbps"})
    ] = None
    before: Annotated[
        Any, about("Values before the change, secrets masked.", {"rate_down_bps": 100_000_000})
    ] = None
    after: Annotated[
        Any, about("Values after the change, secrets masked.", {"rate_down_bps": 250_000_000})
    ] = None
    count: Annotated[
        int,
        about(
            "Number of requests. Those of one minute without a valid token that have the same address,"
            " method, route, user and status are one record; its other fields are those of the first.",
            1,
            minimum=1,
        ),
    ] = 1
    last_at: Annotated[
        float | None, about("Time of the last of them, Unix epoch seconds; null for one request.", None)
    ] = None
    call_id: Annotated[
        str | None,
        about("Id of the call of the core whose outcome the API still asks for; null for any other.", None),
    ] = None

    def text(self) -> str:
        """Return the record as one line of ASCII JSON. Long values are truncated and marked as truncated."""
        values = {name: getattr(self, name) for name in ("body", "before", "after")}
        shortened_values = {
            name: shorten_json(value, encode(value), MAX_VALUE_CHARACTERS) for name, value in values.items()
        }
        return encode(msgspec.structs.asdict(self) | shortened_values)


class RequestCount(msgspec.Struct, frozen=True):
    """Count of similar requests: the record of the first request, the number of requests, and the time of the
    last request in epoch seconds. `key` contains the values that all these requests share; `minute` is the
    minute of the first request, in minutes since the epoch."""

    minute: int
    key: str
    first: str
    count: int
    last_at: float

    @classmethod
    def of_record(cls, record: AuditEntry) -> "RequestCount":
        """Return a count of 1 for the request of this record."""
        shared_values = (record.address, record.method, record.route, record.user, record.status)
        return cls(int(record.at // 60), encode(shared_values), record.text(), 1, record.at)

    def merge(self, other: "RequestCount") -> "RequestCount":
        """Return the sum of this count and the later count `other`. Both counts must have the same minute and
        key."""
        last_at = max(self.last_at, other.last_at)
        return msgspec.structs.replace(self, count=self.count + other.count, last_at=last_at)

    def text(self, before: str | None = None) -> str:
        """Return one record for all counted requests, as a line of JSON. `before` is the stored line of
        earlier requests of the same minute and key; the returned record includes these requests."""
        record = json.loads(self.first if before is None else before)
        request_count = self.count if before is None else record["count"] + self.count
        if request_count == 1:
            return self.first
        last_at = max(self.last_at, record["last_at"] or record["at"])
        return encode(record | {"count": request_count, "last_at": last_at})


class Filter(msgspec.Struct, frozen=True):
    """Filter for records. A field that is None matches any value. `since` and `until` are epoch seconds;
    records at `until` do not match."""

    user: str | None = None
    action: str | None = None
    route: str | None = None
    result: Result | None = None
    since: float | None = None
    until: float | None = None


def make_entry(at: float, action: str, result: Result, message: str, **values: Any) -> AuditEntry:
    """Return a record that is not about an HTTP request. `at` is epoch seconds, and `values` are further
    fields of the record."""
    no_request = {"address": None, "method": "", "route": None, "path": "", "status": None}
    no_user = {"user": None, "role": None, "request_id": ""}
    return AuditEntry(
        at=at, action=action, result=result, message=message, **{**no_request, **no_user, **values}
    )


def make_gap(at: float, message: str, **values: Any) -> AuditEntry:
    """Return a record that stands for missing records. `message` contains the number of missing records or
    the reason. `at` is epoch seconds, and `values` are further fields of the record."""
    return make_entry(round(at, 3), "audit.gap", "failed", message, **values)


def describe_session(before: Any, after: Any) -> str:
    """Return the end of a message about a changed session: the username, and the new rates if the rates
    changed. `before` and `after` are the values before and after the change. Return an empty text if `before`
    is not a session."""
    if not isinstance(before, dict) or not {"id", "username"} <= before.keys():
        return ""
    parts = [str(before["username"])]
    match after:
        case {"rate_down_bps": int(down), "rate_up_bps": int(up)}:
            parts += [f"{format_rate(down)} down", f"{format_rate(up)} up"]
    match after:
        case {"rate_expires_at": int(expires_at)}:
            parts.append(f"until {format_utc(expires_at)}")
    return f" ({', '.join(parts)})"


def derive_result(status: int | None) -> Result:
    """Return the result that an HTTP status means. `status` is None if the request was aborted."""
    if status is None:
        return "unanswered"
    return "done" if status < 400 else "refused" if status < 500 else "failed"


def encode(value: Any) -> str:
    """Return a JSON value as one line of ASCII."""
    # Not msgspec, which leaves characters that control a terminal.
    return json.dumps(value, separators=(",", ":"))


def mask_secrets(value: Any, *, refused: bool = False) -> Any:
    """Return a copy of a JSON value with masked secrets. An object with a `path` and a `value` is an edit of
    the configuration. With `refused`, the value of each edit is masked, because a refused value may be a
    secret at a wrong path."""
    if isinstance(value, dict):
        return {name: _mask_member(value, name, member, refused) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [mask_secrets(item, refused=refused) for item in value]
    return mask_text(value) if isinstance(value, str) else value


def _mask_member(holder: dict[str, Any], name: str, member: Any, refused: bool) -> Any:
    if is_secret(name):
        return None if member is None else MASK
    if name == "path" and isinstance(member, str):
        return mask_path(member)
    if name == "value" and "path" in holder:
        return _mask_edit(holder["path"], member, refused)
    return mask_secrets(member, refused=refused)


def _mask_edit(path: Any, member: Any, refused: bool) -> Any:
    if member is None:
        return None
    if refused or not isinstance(path, str) or mask_path(path) != path or _SECRET_WORD_PATTERN.search(path):
        return MASK
    if isinstance(member, str) and member.lstrip()[:1] in ("{", "["):
        # The core parses JSON in a text.
        try:
            return msgspec.json.encode(_mask_at(path, msgspec.json.decode(member))).decode()
        except (msgspec.MsgspecError, RecursionError):
            return MASK
    return _mask_at(path, member)


def _mask_at(path: str, value: Any) -> Any:
    return mask_secrets(configuration.mask_secrets(value, field_at(parse_path(path))))
