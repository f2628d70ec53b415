"""Requests as they come: what a view is given is loaded with these."""

from typing import Any

from marshmallow import ValidationError, post_load, validate

from gateway_api.daemon.commands import Page
from gateway_api.rates import parse_rate
from gateway_api.validation import Flag, Parsed, Schema, Text
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
