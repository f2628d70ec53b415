"""Records as they go. They travel unparsed from the core: these say what they are, and the tests hold
every answer against them."""

from typing import Any

from marshmallow import validate
from marshmallow.fields import Field, List, Nested

from gateway_api.base.fields import Schema, Text, Whole
from gateway_api.web.schemas.describe import says


class Answer(Schema):
    """What clients are sent, and may be sent with more in it some day."""


class Record(Answer):
    """A record has all of its fields, always; what may be null says so."""

    def on_bind_field(self, field_name: str, field_obj: Field[Any]) -> None:
        field_obj.required = True


ADDRESS = validate.Regexp(r"^[0-9]{1,3}(\.[0-9]{1,3}){3}$")
MAC = validate.Regexp(r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$")
CIDR = validate.Regexp(r"^[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}$")
SESSION_TYPE = validate.OneOf(("PPPoE", "DHCP"))
COUNT = validate.Range(min=0)


class Message(Record):
    message = Text(metadata=says("What was done, for people.", "Session 7 disconnected"))


class _List(Record):
    count = Whole(validate=COUNT, metadata=says("How many there are in this answer.", 1))


def _total() -> Whole:
    return Whole(validate=COUNT, metadata=says("How many there are on all pages; with `limit` only.", 1))


def _next_cursor() -> Text:
    rule = "The `cursor` of the next page, null on the last one; with `limit` only."
    return Text(allow_none=True, metadata=says(rule, "WyJpZCIsWzIsMl1d"))


def list_of(name: str, record: type[Record], **more: Field[Any]) -> type[Schema]:
    """The schema of a list's data: the records under a name, and their count."""
    fields: dict[str, Any] = {name: List(Nested(record), metadata=_records(name)), **more}
    return type(f"{record.__name__}List", (_List,), fields)


def listing_of(name: str, record: type[Record], *, total: bool = True, **more: Field[Any]) -> type[Schema]:
    """The same for a list that comes whole or in pages: what only a page has may be missing."""
    fields: dict[str, Any] = {
        name: List(Nested(record), required=True, metadata=_records(name)),
        "count": Whole(required=True, validate=COUNT, metadata=_List().fields["count"].metadata),
        **more,
        **({"total": _total()} if total else {}),
        "next_cursor": _next_cursor(),
    }
    return type(f"{record.__name__}List", (Answer,), fields)


def _records(name: str) -> dict[str, Any]:
    return {"description": f"The {name}."}
