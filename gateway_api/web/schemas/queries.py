"""Schemas of queries, and the classes that they load. A schema without the attribute `made` names in its
docstring the class of the loaded object."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from time import time as now
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from marshmallow import ValidationError, post_load, validate

from gateway_api.audit.record import RESULTS, Filter
from gateway_api.events import StreamFilter, parse_id
from gateway_api.history.sessions import HistoryFilter
from gateway_api.history.sign_ons import SignOnFilter
from gateway_api.history.traffic import TrafficSpan
from gateway_contract.base.fields import ParsedField, Schema, TextField, says
from gateway_contract.base.texts import (
    ADDRESS_PATTERN,
    MAC_PATTERN,
    MAX_ID,
    parse_ip,
    parse_mac,
    parse_past_time,
    parse_time,
)
from gateway_contract.contract import (
    MAX_LIMIT,
    Column,
    Enumeration,
    Method,
    Page,
    SelectingMethod,
    get_columns,
)
from gateway_contract.core.sessions import SEARCH, SessionSummary, SessionTypeFilter
from gateway_contract.core.traffic import MAX_TALKERS, ListTalkers, TalkerOrder
from gateway_contract.events import DEFAULT_STREAM_EVENTS, EVENTS

F = TypeVar("F")
M = TypeVar("M", bound=SelectingMethod[Any])
P = TypeVar("P", bound=Page | None)

_MAX_REVISION = 999_999_999
_MAX_STEP_SECONDS = 86_400
_TIME_FORMATS = "Unix epoch seconds, of 2000 or later (no milliseconds), or ISO 8601 with its offset."
_EVENT_ID_PATTERN = "^([0-9a-z]{1,64}-(0|[1-9][0-9]{0,17}))?$"
#: For JSON Schema, and so for generated clients, `5.0` is an integer.
_INTEGER_PATTERN = re.compile(r"([0-9]{1,19})(?:\.0{1,9})?")
_STREAM_EVENTS = {event.stream_name: event for event in EVENTS.values()}

_Parser: TypeAlias = tuple[Callable[[str], Any], Mapping[str, Any]]
#: Parser and JSON Schema of each field whose values have several spellings.
_FIELD_PARSERS: Mapping[str, _Parser] = {
    "ip_address": (parse_ip, {"pattern": ADDRESS_PATTERN}),
    "mac_address": (parse_mac, {"pattern": MAC_PATTERN}),
}


def _make_integer_parser(minimum: int, maximum: int, rule: str) -> _Parser:
    def parse(text: str) -> int:
        match = _INTEGER_PATTERN.fullmatch(text)
        if match is None or not minimum <= int(match[1]) <= maximum:
            raise ValueError(rule)
        return int(match[1])

    return parse, {"type": "integer", "minimum": minimum, "maximum": maximum}


def _make_integer(
    minimum: int, maximum: int, description: str, example: int, rule: str | None = None, **options: Any
) -> ParsedField:
    parse, schema = _make_integer_parser(
        minimum, maximum, rule or f"must be an integer from {minimum} to {maximum}"
    )
    return ParsedField(parse, metadata=says(description, example, **schema), **options)


def _make_limit(description: str, **options: Any) -> ParsedField:
    """Return a field for the maximum number of records in a response."""
    return _make_integer(1, MAX_LIMIT, description, 100, **options)


def _make_cursor(description: str = "The `next_cursor` of the page before.") -> TextField:
    rule = validate.Length(1, 1024, error="must have 1 to 1024 characters")
    # Without an example, because only a response contains a valid cursor.
    return TextField(validate=rule, metadata={"description": description})


def _make_time(
    description: str, example: str, parse: Callable[[str, float], float] = parse_time
) -> ParsedField:
    """Return a field for a time, loaded as epoch seconds. `parse` gets the text and the current time."""
    metadata = says(f"{description} {_TIME_FORMATS}", example)
    return ParsedField(lambda text: parse(text, now()), metadata=metadata)


def _make_sort(fields: Sequence[str], default: str, example: str) -> ParsedField:
    def parse(text: str) -> str:
        if text.removeprefix("-") in fields:
            return text
        raise ValueError(f"must be one of {', '.join(fields)}; with - before it for descending")

    description = f"Field to sort by, with - before it for descending; {default}."
    enum = [sign + name for sign in ("", "-") for name in fields]
    return ParsedField(parse, metadata=says(description, example, enum=enum))


def _make_mac() -> ParsedField:
    description = "With this MAC address only: with colons, dashes, dots or nothing between, in either case."
    parse, schema = _FIELD_PARSERS["mac_address"]
    return ParsedField(parse, metadata=says(description, "02:00:00:00:00:06", **schema))


def _make_session_type(description: str) -> ParsedField:
    """Return a field for a session type in upper or lower case: tables show `PPPoE`."""

    def parse(text: str) -> str:
        if text.casefold() not in tuple(SessionTypeFilter):
            raise ValueError("must be pppoe or dhcp")
        return text.casefold()

    return ParsedField(parse, metadata=says(description, "pppoe", enum=list(SessionTypeFilter)))


def _make_search(description: str) -> TextField:
    rule = validate.Length(1, 256, error="must have 1 to 256 characters")
    return TextField(validate=rule, metadata=says(description, "000006"))


class CompareQuery(Schema):
    """Schema of the revisions to compare, loaded as a dictionary of integers."""

    revision = _make_integer(
        *(0, _MAX_REVISION),
        "Archived revision to compare with, instead of the running configuration.",
        1,
        "must be the number of an archived revision",
    )
    to = _make_integer(
        *(0, _MAX_REVISION),
        "Archived revision, or 0 for the running configuration, to compare instead of the candidate.",
        0,
        "must be the number of an archived revision, or 0 for the running configuration",
    )


def _parse_event_names(text: str) -> frozenset[str]:
    names = frozenset(text.split(","))
    if names <= _STREAM_EVENTS.keys():
        return names
    raise ValueError(f"must be one or more of {', '.join(_STREAM_EVENTS)}, separated by commas")


class EventsQuery(Schema):
    """Schema of the query for an event stream, loaded as a StreamFilter."""

    events = ParsedField(
        _parse_event_names,
        metadata=says(
            f"Names of events, separated by commas; without it {' and '.join(DEFAULT_STREAM_EVENTS)}.",
            ",".join(DEFAULT_STREAM_EVENTS),
            pattern="^({0})(,({0}))*$".format("|".join(_STREAM_EVENTS)),
        ),
    )
    type = _make_session_type("Of sessions of this type only.")
    last_event_id = ParsedField(
        # Clients send an empty id before their first event.
        lambda text: parse_id(text) if text else None,
        metadata=says(
            "As the header Last-Event-ID, for clients that cannot send it.",
            "84a7e8343baf37f9-57",
            pattern=_EVENT_ID_PATTERN,
        ),
    )

    @post_load
    def make(self, data: dict[str, Any], **_: Any) -> StreamFilter:
        names = data.get("events", frozenset(DEFAULT_STREAM_EVENTS))
        return StreamFilter(names, data.get("type"), data.get("last_event_id"))


@dataclass(frozen=True)
class ListSelection:
    """Selection of records in a list: the records that have the values in `filter`, sorted by the field
    `sort`, with - before it for descending order. Without a page, the whole list."""

    filter: dict[str, Any]
    sort: str | None = None
    page: Page | None = None

    def make_call(self, method: Callable[..., M]) -> M:
        """Return the call of a method of the core, with this selection as its parameters."""
        return method(filter=self.filter, sort=self.sort, page=self.page)


@dataclass(frozen=True)
class Search(Generic[F, P]):
    """Search of a client: all records that match `conditions`, or a page of them."""

    conditions: F
    page: P


class _PagedQuery(Schema):
    """Schema of a query for a whole list, or for a page of it. Loaded as a Search with an object of the class
    `made`."""

    limit = _make_limit("Most records of a page.")
    cursor = _make_cursor("The `next_cursor` of the page before, with `limit`.")

    @post_load
    def make(self, data: dict[str, Any], **_: Any) -> Any:
        limit, cursor = data.pop("limit", None), data.pop("cursor", None)
        if cursor is not None and limit is None:
            raise ValidationError("is required with a cursor", "limit")
        return self.make_search(data, None if limit is None else Page(limit, cursor))

    def make_search(self, data: dict[str, Any], page: Page | None) -> Any:
        return Search(self.made(**data), page)


class ListQuery(_PagedQuery):
    """Schema of a query for records of a list, loaded as a ListSelection."""

    #: Filters that match few records: a filtered list is not cached.
    short_filters: ClassVar[frozenset[str]] = frozenset()

    def make_search(self, data: dict[str, Any], page: Page | None) -> ListSelection:
        sort = data.pop("sort", None)
        return ListSelection(data, sort, page)


class SessionConditions(Schema):
    """Schema of conditions for sessions. A session must meet all of them."""

    type = _make_session_type("Sessions of this type only.")
    username = TextField(metadata=says("With this login only.", "subscriber000006@lab.example"))
    ip_address = ParsedField(
        parse_ip,
        metadata=says(
            "With this IPv4 address only; or with this IPv6 address, assigned or in a prefix of the session.",
            "100.64.0.5",
            pattern=ADDRESS_PATTERN,
        ),
    )
    mac_address = _make_mac()
    interface = TextField(metadata=says("On this interface or access interface only.", "trunk0.1001"))
    search = _make_search(SEARCH.description or "")


class SubscribersQuery(SessionConditions, ListQuery):
    """Schema of the filters of sessions, all of which must match, and of the order of the sessions."""

    sort = _make_sort(SessionSummary.__struct_fields__, "by id if none", "-started_at")
    #: All filters for which the core has an index. `type` and `search` may match most sessions.
    short_filters = frozenset(SessionConditions().fields) - {"type", "search"}


def _parse_talker_order(text: str) -> TalkerOrder:
    try:
        return TalkerOrder(text)
    except ValueError as error:
        raise ValueError(f"must be one of {', '.join(TalkerOrder)}") from error


class TalkersQuery(Schema):
    made = ListTalkers

    sort = ParsedField(
        _parse_talker_order,
        metadata=says(
            "Which sessions first: by traffic down or up, with - before it for the most; `-down` if none.",
            "-down",
            enum=list(TalkerOrder),
        ),
    )
    limit = _make_integer(1, MAX_TALKERS, "Most sessions; 20 if none.", 20)


class ShortListQuery(Schema):
    """Schema of a query for a list that has no pages, loaded as a ListSelection."""

    @post_load
    def make(self, data: dict[str, Any], **_: Any) -> ListSelection:
        sort = data.pop("sort", None)
        return ListSelection(data, sort)


@cache
def make_list_query(method: type[Method[Any]]) -> type[Schema]:
    """Return the schema of a query for the list of a method: a filter for each field with a single value, and
    the order of the records. Only a list of a SelectingMethod has pages."""
    columns = get_columns(method)
    order = _make_sort(tuple(columns), "in the order of the gateway if none", f"-{next(iter(columns))}")
    fields = {**{name: _make_filter(name, column) for name, column in columns.items()}, "sort": order}
    base = ListQuery if issubclass(method, SelectingMethod) else ShortListQuery
    return type(f"{method.__name__}Query", (base,), fields)


def _make_filter(name: str, column: Column) -> ParsedField:
    parse, schema = _FIELD_PARSERS.get(name) or _find_parser(column.type)
    metadata = {"description": f"{column.description} Records with this value only.", **schema}
    if column.examples:
        metadata["examples"] = column.examples
    return ParsedField(parse, metadata=metadata)


def _find_parser(kind: type[Any]) -> _Parser:
    """Return the parser and the JSON Schema for values of a type. Members of enumerations may be in upper or
    lower case."""
    if kind is int:
        return _make_integer_parser(0, (1 << 63) - 1, "must be an integer from 0")
    if not issubclass(kind, Enumeration):
        return str, {}
    members = {member.casefold(): member.value for member in kind}

    def parse(text: str) -> str:
        if text.casefold() not in members:
            raise ValueError(f"must be one of {', '.join(members.values())}")
        return members[text.casefold()]

    return parse, {"enum": list(kind)}


class AuditQuery(_PagedQuery):
    """Schema of the filters of the audit log, all of which must match."""

    made = Filter

    user = TextField(metadata=says("User of the record.", "admin"))
    action = TextField(metadata=says("Name of the operation.", "subscribers.change_rate"))
    route = TextField(
        metadata=says("Path with names for its variable parts.", "/api/v1/subscribers/{id}/rate")
    )
    result = TextField(
        validate=validate.OneOf(RESULTS, error="must be one of {choices}"),
        metadata=says("Result of the operation.", "done"),
    )
    since = _make_time("Records from then on.", "2026-03-01T00:00:00Z")
    until = _make_time("Records before then.", "1795271513")


class HistoryQuery(SessionConditions, _PagedQuery):
    """Schema of the filters of the history of sessions, all of which must match."""

    made = HistoryFilter

    id = _make_integer(1, MAX_ID, "With this session id only. Another session may have had it before.", 7)
    at = _make_time("Sessions that were up then. Not in the future.", "2026-03-01T18:00:00Z", parse_past_time)
    since = _make_time("Sessions that were up then or later.", "1795271513")
    until = _make_time("Sessions that started before then.", "1795275113")
    reason = TextField(metadata=says("Sessions that ended for this reason only.", "lost_carrier"))
    search = _make_search(
        "Part of a username or of the name of an interface, in any case, or of a MAC address in any "
        "spelling; IPv4 or IPv6 address, its first parts, or prefix. `id:`, `user:`, `ip:` or `mac:` before "
        "the text says which is meant."
    )


class TimelineQuery(Schema):
    made = Page

    limit = _make_limit("Most entries of a page.", load_default=100)
    cursor = _make_cursor()


class FailedSignOnsQuery(_PagedQuery):
    """Schema of the filters of failed sign-ons, all of which must match. This list has pages only."""

    made = SignOnFilter

    limit = _make_limit("Most records of a page.", load_default=100)
    cursor = _make_cursor()
    type = _make_session_type("Sign-ons for sessions of this type only.")
    username = TextField(metadata=says("With this login only.", "subscriber000006@lab.example"))
    mac_address = _make_mac()
    interface = TextField(metadata=says("On this access interface only.", "trunk0.1001"))
    reason = TextField(metadata=says("That failed for this reason only.", "rejected"))
    since = _make_time("Sign-ons that failed then or later.", "1795271513")
    until = _make_time("Sign-ons that began to fail before then.", "1795275113")
    search = _make_search(
        "Part of a username or of the name of an access interface, in any case, or of a MAC address in any "
        "spelling. `user:` or `mac:` before the text says which is meant."
    )


class _WindowQuery(Schema):
    """Schema of a time window, loaded as an object of the class `made`."""

    #: Length of a window whose start is not given.
    default_seconds: int

    until = _make_time("End of the window, now if none.", "1795275113")

    @post_load
    def make(self, data: dict[str, Any], **_: Any) -> Any:
        until = data.get("until", now())
        return self.made(**{"since": until - self.default_seconds, **data, "until": until})


class FlappingQuery(_WindowQuery):
    """Schema of a time window and of a maximum number of subscribers, loaded as a dictionary. `since` and
    `until` are in epoch seconds."""

    default_seconds = 86_400

    since = _make_time("Start of the window, a day before its end if none.", "1795185113")
    limit = _make_limit("Most subscribers.", load_default=20)


class NetworkTrafficQuery(_WindowQuery):
    made = TrafficSpan
    default_seconds = 3600

    since = _make_time("Start of the window, an hour before its end if none.", "1795271513")
    step = _make_integer(
        *(1, _MAX_STEP_SECONDS),
        "Length of a step in seconds; 10, or more for at most 360 steps, if none.",
        300,
    )
