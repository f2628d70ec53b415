"""Requests as they come: what a view is given is loaded with these."""

from typing import Any

from marshmallow import ValidationError, post_load, validate
from marshmallow.fields import List, Nested, Raw

from gateway_api.daemon.commands import Page
from gateway_api.daemon.configuration import Edit
from gateway_api.events.sse import NAMES, parse_id
from gateway_api.hub.message import NAMES as NAMES_OF_WEBHOOKS
from gateway_api.hub.message import key_of
from gateway_api.hub.url import check_url
from gateway_api.rates import parse_rate
from gateway_api.validation import Flag, Parsed, Schema, Text, Whole
from gateway_api.web.schemas.records import SessionSummary

MAX_LIMIT = 10_000


def _limit(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= MAX_LIMIT:
        return int(text)
    raise ValueError(f"must be an integer from 1 to {MAX_LIMIT}")


def _sort(text: str) -> str:
    fields = SessionSummary().fields
    if text.removeprefix("-") in fields:
        return text
    raise ValueError(f"must be one of {', '.join(fields)}; with - before it for descending")


def _receiver(text: str) -> str:
    check_url(text)
    return text


def _secret(text: str) -> str:
    key_of(text)
    return text


def _each_once(names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise ValidationError("must not name the same event twice")


def _event_names(text: str) -> frozenset[str]:
    names, known = frozenset(text.split(",")), frozenset(NAMES.values())
    if names <= known:
        return names
    raise ValueError(f"must be one or more of {', '.join(sorted(known))}, separated by commas")


def _revision(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 9:
        return int(text)
    raise ValueError("must be the number of an archived revision")


def _path() -> Text:
    return Text(required=True, validate=validate.Length(1, 512, error="must have 1 to 512 characters"))


def _rate(text: str) -> tuple[str, int]:
    return text, parse_rate(text)


class LoginRequest(Schema):
    username = Text(required=True)
    password = Text(required=True)


class RateChange(Schema):
    """Each field is loaded as a pair: the text as it was sent, and bits a second."""

    rate_down = Parsed(_rate, required=True)
    rate_up = Parsed(_rate, required=True)


class DisconnectInterface(Schema):
    interface = Text(required=True, validate=validate.Length(1, 64, error="must have 1 to 64 characters"))
    dry_run = Flag(load_default=False)


class SetValue(Schema):
    """Loaded as an Edit. `value` is any JSON; whether it fits, the core knows."""

    path = _path()
    value = Raw(required=True, allow_none=True)

    @post_load
    def _edit(self, data: dict[str, Any], **_: Any) -> Edit:
        return Edit("set", **data)


class DeleteValue(Schema):
    """Loaded as an Edit."""

    path = _path()

    @post_load
    def _edit(self, data: dict[str, Any], **_: Any) -> Edit:
        return Edit("delete", **data)


class Operation(Schema):
    """Loaded as an Edit."""

    op = Text(required=True, validate=validate.OneOf(("set", "delete"), error="must be set or delete"))
    path = _path()
    value = Raw(allow_none=True)

    @post_load
    def _edit(self, data: dict[str, Any], **_: Any) -> Edit:
        if data["op"] == "set" and "value" not in data:
            raise ValidationError("is required to set", "value")
        if data["op"] == "delete" and "value" in data:
            raise ValidationError("must not be given to delete", "value")
        return Edit(data["op"], data["path"], data.get("value"))


class EditConfiguration(Schema):
    operations = List(
        Nested(Operation),
        required=True,
        validate=validate.Length(1, 1000, error="must hold 1 to 1000 operations"),
    )


class Commit(Schema):
    comment = Text(
        load_default=None,
        allow_none=True,
        validate=[
            validate.Length(max=256, error="must have at most 256 characters"),
            validate.Predicate("isprintable", error="must be one line of printable characters"),
        ],
    )
    confirm_seconds = Whole(
        load_default=None,
        allow_none=True,
        validate=validate.Range(1, 86_400, error="must be 1 to 86400"),
    )


class Rollback(Schema):
    revision = Whole(required=True)


class CompareQuery(Schema):
    revision = Parsed(_revision, load_default=None)


class Webhook(Schema):
    url = Parsed(_receiver, required=True)
    events = List(
        Text(validate=validate.OneOf(NAMES_OF_WEBHOOKS, error="must be one of {choices}")),
        required=True,
        validate=[validate.Length(1, error="must not be empty"), _each_once],
    )
    secret = Parsed(_secret, load_default=None, allow_none=True)


class EventsQuery(Schema):
    """Which events: `names` as the stream has them, or None for all; `type` of the sessions."""

    events = Parsed(_event_names, load_default=None)
    type = Text(load_default=None, validate=validate.OneOf(("pppoe", "dhcp"), error="must be pppoe or dhcp"))
    last_event_id = Parsed(parse_id, load_default=None)

    @post_load
    def _shaped(self, data: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {"names": data["events"], "type": data["type"], "resume": data["last_event_id"]}


class ListQuery(Schema):
    """Which part of a list: `page` is a Page, or None for the whole. Other fields stay as they are."""

    limit = Parsed(_limit)
    cursor = Text(validate=validate.Length(1, 1024, error="must have 1 to 1024 characters"))

    @post_load
    def _shaped(self, data: dict[str, Any], **_: Any) -> dict[str, Any]:
        limit, cursor = data.pop("limit", None), data.pop("cursor", None)
        if cursor is not None and limit is None:
            raise ValidationError("is required with a cursor", "limit")
        return {**self._rest(data), "page": None if limit is None else Page(limit, cursor)}

    def _rest(self, data: dict[str, Any]) -> dict[str, Any]:
        """What the fields besides the page are loaded as."""
        return data


class SubscribersQuery(ListQuery):
    """Filters of the list, all of which must hold, and its order."""

    type = Text(validate=validate.OneOf(("pppoe", "dhcp"), error="must be pppoe or dhcp"))
    username = Text()
    ip_address = Text()
    mac_address = Parsed(str.lower)
    interface = Text()
    sort = Parsed(_sort)

    def _rest(self, data: dict[str, Any]) -> dict[str, Any]:
        sort = data.pop("sort", None)
        return {"filter": data, "sort": sort}
