"""Schemas of request bodies, and the classes that they load. A schema without the attribute `made` names in
its docstring the class of the loaded object."""

import math
from dataclasses import dataclass
from time import time as now
from typing import Any, ClassVar

from marshmallow import ValidationError, post_load, validate, validates_schema

from gateway_api.hub.interface import AddWebhook
from gateway_api.web.schemas.queries import SessionConditions
from gateway_contract.base.fields import (
    LINE,
    FlagField,
    JsonField,
    ListField,
    NestedField,
    ParsedField,
    Schema,
    TextField,
    WholeField,
    is_line,
    says,
)
from gateway_contract.base.receivers import MAX_URL_LENGTH, URL_PATTERN, check_secret, check_url
from gateway_contract.base.texts import (
    INDEX,
    LONGEST_PATH,
    LONGEST_RATE,
    NAME,
    QUOTED,
    parse_rate,
    parse_time,
)
from gateway_contract.core.configuration import MAX_COMMENT_LENGTH, MAX_CONFIRM_SECONDS, Edit, EditAction
from gateway_contract.core.impact import LARGEST_LIMIT
from gateway_contract.core.jobs import MAX_SESSIONS_PER_SECOND, PER_SECOND
from gateway_contract.core.sessions import MAX_EXPIRY_SECONDS, EventName
from gateway_contract.events import DEFAULT_WEBHOOK_EVENTS

#: Pattern of a rate: a number that is not 0, and a unit. The pattern does not express the limits of rates.
_NUMBER_PATTERN = "(?:[0-9]*[1-9][0-9]*(?:[.][0-9]+)?|0+[.][0-9]*[1-9][0-9]*)"
_BIT_PATTERN = "[bB][iI][tT](?:/[sS])?"
_UNIT_PATTERN = f"(?:[kmgtKMGT]?(?:{_BIT_PATTERN})?|[kmgKMG][iI]{_BIT_PATTERN}|[kmgKMG]b[pP][sS])"
_RATE_PATTERN = rf"^{_NUMBER_PATTERN}[ \t\n\r\f\v\u00a0]*{_UNIT_PATTERN}$"
_BASE64_PATTERN = "[A-Za-z0-9+/]"
#: Pattern of a secret: one alternative for 24 to 62 bytes, one for 63 and 64 bytes.
_SECRET_PATTERN = (
    rf"^(?:whsec_)?(?:(?:{_BASE64_PATTERN}{{4}}){{8,20}}(?:{_BASE64_PATTERN}{{2}}==|{_BASE64_PATTERN}{{3}}=)?"
    rf"|(?:{_BASE64_PATTERN}{{4}}){{21}}(?:{_BASE64_PATTERN}{{2}}==)?)$"
)
_SEGMENT_PATTERN = f'(?:{NAME}|{INDEX}|"{QUOTED}")'
_PATH_PATTERN = rf"^{_SEGMENT_PATTERN}(?:\.{_SEGMENT_PATTERN})*$"


def _check_line(text: str) -> None:
    if not is_line(text):
        raise ValidationError("must be one line of printable characters")


def _check_distinct(names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise ValidationError("must not name the same event twice")


def _make_path() -> TextField:
    return TextField(
        required=True,
        validate=validate.Length(1, LONGEST_PATH, error=f"must have 1 to {LONGEST_PATH} characters"),
        metadata=says("Place in the configuration, dotted.", "qos.default_down", pattern=_PATH_PATTERN),
    )


def _make_rate(which: str, example: str) -> ParsedField:
    """Return a field for a rate, loaded as a pair: the text of the rate, and the bits per second."""
    description = (
        f"{which} rate: a number and a unit, at least 8 kbit/s and at most 400 Gbit/s. The unit is `bit`, if "
        "there is none, `kbit`, `mbit`, `gbit`, `tbit`, `k`, `m`, `g`, `t`, `kibit`, `mibit`, `gibit`, or "
        "`kbps`, `mbps`, `gbps`, which are bits a second here, where tc(8) reads bytes. `Mbit/s` is `mbit`."
    )
    metadata = says(description, example, pattern=_RATE_PATTERN, maxLength=LONGEST_RATE)
    return ParsedField(lambda text: (text, parse_rate(text)), metadata=metadata)


@dataclass(frozen=True)
class LoginRequest:
    username: str
    password: str


class LoginRequestSchema(Schema):
    made = LoginRequest

    username = TextField(required=True, metadata=says("User of the running configuration.", "alice"))
    password = TextField(required=True, metadata=says("Its password.", "correct horse", format="password"))


@dataclass(frozen=True)
class LogoutEverywhere:
    """Logout of a user from all browsers and programs. `username` is None for the caller."""

    username: str | None = None


class LogoutEverywhereSchema(Schema):
    made = LogoutEverywhere

    username = TextField(metadata=says("User whose tokens end, instead of the caller's own.", "alice"))


def _parse_expiry(text: str) -> int:
    return math.ceil(parse_time(text, now(), MAX_EXPIRY_SECONDS))


@dataclass(frozen=True)
class RateChange:
    """New rates of one direction or of both, permanent or temporary. `texts` maps field names to the rates as
    the client wrote them. `parameters` are the parameters of the core's method SetSessionRate."""

    texts: dict[str, str]
    parameters: dict[str, int]


class RateChangeSchema(Schema):
    """Schema of a change of rates, loaded as a RateChange."""

    rate_down = _make_rate("Downstream", "250 Mbit")
    rate_up = _make_rate("Upstream", "50mbps")
    expires_in = WholeField(
        validate=validate.Range(1, MAX_EXPIRY_SECONDS, error=f"must be 1 to {MAX_EXPIRY_SECONDS}"),
        metadata=says("Seconds until the former rates return; never without this and `until`.", 3600),
    )
    until = ParsedField(
        _parse_expiry,
        metadata=says(
            "When the former rates return, instead of `expires_in`: in the next "
            f"{MAX_EXPIRY_SECONDS // 86_400} days. ISO 8601 with its offset, or Unix epoch seconds.",
            "2026-12-24T18:00:00Z",
        ),
    )

    @validates_schema
    def _check(self, data: dict[str, Any], **_: Any) -> None:
        if not data.keys() & {"rate_down", "rate_up"}:
            raise ValidationError("is required without rate_up", "rate_down")
        if {"expires_in", "until"} <= data.keys():
            raise ValidationError("must not be given with expires_in", "until")

    @post_load
    def make(self, data: dict[str, Any], **_: Any) -> Any:
        return self._take_rates(data)

    def _take_rates(self, data: dict[str, Any]) -> RateChange:
        """Remove the fields of this schema from `data`, and return them as a RateChange."""
        rates = {name: data.pop(name) for name in ("rate_down", "rate_up") if name in data}
        times = {name: data.pop(name) for name in ("expires_in", "until") if name in data}
        return RateChange(
            texts={name: text for name, (text, _) in rates.items()},
            parameters={f"{name}_bps": bps for name, (_, bps) in rates.items()} | times,
        )


@dataclass(frozen=True)
class DisconnectInterface:
    interface: str
    dry_run: bool


class DisconnectInterfaceSchema(Schema):
    made = DisconnectInterface

    interface = TextField(
        required=True,
        validate=validate.Length(1, 64, error="must have 1 to 64 characters"),
        metadata=says("Access interface.", "trunk0.1000"),
    )
    dry_run = FlagField(load_default=False, metadata=says("Whether only to list the sessions.", True))


class JobFilterSchema(SessionConditions):
    """Schema of the conditions of a job: at least one condition. A session must meet all of them."""

    json_schema: ClassVar[dict[str, Any]] = {"minProperties": 1}


def _check_condition(filter: dict[str, Any]) -> None:
    if not filter:
        raise ValidationError("must have at least one condition")


@dataclass(frozen=True)
class DisconnectJob:
    """Job that disconnects sessions, at most `per_second` in a second. `filter` has the conditions that a
    session must meet when the job starts. A dry run only lists the sessions."""

    filter: dict[str, str]
    dry_run: bool
    per_second: int


class DisconnectJobSchema(Schema):
    made = DisconnectJob

    filter = NestedField(
        JobFilterSchema,
        required=True,
        validate=_check_condition,
        metadata={"description": "Which sessions: those that match when the job starts."},
    )
    dry_run = FlagField(load_default=False, metadata=says("Whether only to list the sessions.", True))
    per_second = WholeField(
        load_default=PER_SECOND,
        validate=validate.Range(1, MAX_SESSIONS_PER_SECOND, error=f"must be 1 to {MAX_SESSIONS_PER_SECOND}"),
        metadata=says("The most sessions per second.", 50),
    )


@dataclass(frozen=True)
class RateJob(DisconnectJob):
    """Job that changes the rates of sessions."""

    change: RateChange


class RateJobSchema(RateChangeSchema, DisconnectJobSchema):
    """Schema of a job that changes rates, loaded as a RateJob."""

    @post_load
    def make(self, data: dict[str, Any], **_: Any) -> RateJob:
        change = self._take_rates(data)
        return RateJob(**data, change=change)


class SetValueSchema(Schema):
    """Schema of a new value at a path, loaded as an Edit. `value` is any JSON; the core validates it."""

    path = _make_path()
    value = JsonField(
        required=True,
        allow_none=True,
        metadata=says("Text, which is parsed for the path, or JSON.", "200mbit"),
    )

    @post_load
    def make(self, data: dict[str, Any], **_: Any) -> Edit:
        return Edit(EditAction.SET, **data)


class DeleteValueSchema(Schema):
    """Schema of the deletion of a path, loaded as an Edit."""

    path = _make_path()

    @post_load
    def make(self, data: dict[str, Any], **_: Any) -> Edit:
        return Edit(EditAction.DELETE, **data)


class OperationSchema(Schema):
    """Schema of one edit in a list of edits, loaded as an Edit."""

    json_schema: ClassVar[dict[str, Any]] = {
        # From a oneOf, client generators would make two types without `op` and `path`.
        "if": {"properties": {"op": {"const": "set"}}},
        "then": {"required": ["value"]},
        "else": {"not": {"required": ["value"]}},
    }

    op = TextField(
        required=True,
        validate=validate.OneOf(("set", "delete"), error="must be set or delete"),
        metadata=says("What to do.", "set"),
    )
    path = _make_path()
    value = JsonField(
        allow_none=True,
        metadata=says("Required to set: text, which is parsed for the path, or JSON.", "200mbit"),
    )

    @post_load
    def make(self, data: dict[str, Any], **_: Any) -> Edit:
        if data["op"] == "set" and "value" not in data:
            raise ValidationError("is required to set", "value")
        if data["op"] == "delete" and "value" in data:
            raise ValidationError("must not be given to delete", "value")
        return Edit(EditAction(data["op"]), data["path"], data.get("value"))


class EditConfigurationSchema(Schema):
    """Schema of several edits, loaded as a list of Edit objects."""

    operations = ListField(
        NestedField(OperationSchema),
        required=True,
        validate=validate.Length(1, 1000, error="must hold 1 to 1000 operations"),
        metadata={"description": "All are made, in their order, or none."},
    )

    @post_load
    def make(self, data: dict[str, Any], **_: Any) -> list[Edit]:
        operations: list[Edit] = data["operations"]
        return operations


class CommitSchema(Schema):
    """Schema of the options of a commit, loaded as parameters of the core's method CommitCandidate."""

    comment = TextField(
        allow_none=True,
        validate=[
            validate.Length(
                max=MAX_COMMENT_LENGTH, error=f"must have at most {MAX_COMMENT_LENGTH} characters"
            ),
            _check_line,
        ],
        metadata=says("Reason, one line of printable characters.", "faster for everybody", pattern=LINE),
    )
    confirm_seconds = WholeField(
        allow_none=True,
        validate=validate.Range(1, MAX_CONFIRM_SECONDS, error=f"must be 1 to {MAX_CONFIRM_SECONDS}"),
        metadata=says("Seconds after which it is undone unless confirmed.", 120),
    )
    max_sessions_dropped = WholeField(
        allow_none=True,
        validate=validate.Range(0, LARGEST_LIMIT, error=f"must be 0 to {LARGEST_LIMIT}"),
        metadata=says("Fails with 409 if more sessions would end; no limit without.", 0),
    )


@dataclass(frozen=True)
class Rollback:
    revision: int


class RollbackSchema(Schema):
    made = Rollback

    revision = WholeField(required=True, metadata=says("Number in the archive, 1 being the newest.", 1))


class WebhookRegistrationSchema(Schema):
    made = AddWebhook

    url = ParsedField(
        check_url,
        required=True,
        metadata=says(
            "Receiver of the events, HTTP or HTTPS: without a user, a password or a fragment, and not at a "
            "link-local, unspecified, multicast or broadcast address.",
            "https://noc.example/hook",
            pattern=URL_PATTERN,
            maxLength=MAX_URL_LENGTH,
        ),
    )
    events = ListField(
        TextField(validate=validate.OneOf(tuple(EventName), error="must be one of {choices}")),
        required=True,
        validate=[validate.Length(1, error="must not be empty"), _check_distinct],
        metadata=says("Events to deliver, each once.", [*DEFAULT_WEBHOOK_EVENTS], uniqueItems=True),
    )
    secret = ParsedField(
        check_secret,
        allow_none=True,
        metadata=says(
            "Signs what is sent: base64 of 24 to 64 bytes, with `whsec_` before it or without.",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            pattern=_SECRET_PATTERN,
            writeOnly=True,
        ),
    )
