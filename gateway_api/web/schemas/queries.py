"""Queries of requests, and their schemas. The docstring of a schema says what it loads a query as."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from time import time as now
from typing import Any, Generic, TypeAlias, TypeVar

from marshmallow import ValidationError, post_load, validate

from gateway_api.audit.record import RESULTS, Filter
from gateway_api.events.broadcast import parse_id
from gateway_api.events.streams import StreamFilter
from gateway_api.history.sessions import HistoryFilter
from gateway_api.history.sign_ons import WantedFailures
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
    columns_of,
)
from gateway_contract.core.sessions import SEARCH, SessionSummary, SessionTypeFilter
from gateway_contract.core.traffic import MOST_TALKERS, ListTalkers, TalkerOrder
from gateway_contract.events import DEFAULT_STREAM_EVENTS, EVENTS

F = TypeVar("F")
M = TypeVar("M", bound=SelectingMethod[Any])

_MOST_REVISIONS = 999_999_999
_LONGEST_STEP = 86_400
_FORMS_OF_TIME = "Unix epoch seconds, of 2000 or later (no milliseconds), or ISO 8601 with its offset."
_EVENT_ID = "^([0-9a-z]{1,64}-(0|[1-9][0-9]{0,17}))?$"
#: `5.0` is an integer for JSON Schema, and so for clients that are made from the document.
_WHOLE = re.compile(r"([0-9]{1,19})(?:\.0{1,9})?")


def _whole(numbers: range, rule: str) -> Callable[[str], int]:
    def parse(text: str) -> int:
        match = _WHOLE.fullmatch(text)
        if match is None or int(match[1]) not in numbers:
            raise ValueError(rule)
        return int(match[1])

    return parse


def most(description: str, **options: Any) -> ParsedField:
    """Return the most records of a response."""
    return up_to(MAX_LIMIT, description, 100, **options)


def up_to(largest: int, description: str, example: int, **options: Any) -> ParsedField:
    """Return a whole number from 1 on."""
    rule = f"must be an integer from 1 to {largest}"
    about = says(description, example, type="integer", minimum=1, maximum=largest)
    return ParsedField(_whole(range(1, largest + 1), rule), metadata=about, **options)


def cursor(description: str = "The `next_cursor` of the page before.") -> TextField:
    rule = validate.Length(1, 1024, error="must have 1 to 1024 characters")
    # No example: only a page gives a valid cursor.
    return TextField(validate=rule, metadata={"description": description})


def time(description: str, example: str, parse: Callable[[str, float], float] = parse_time) -> ParsedField:
    """Return a time, loaded as epoch seconds. `parse` gets the text and the current time."""
    about = says(f"{description} {_FORMS_OF_TIME}", example)
    return ParsedField(lambda text: parse(text, now()), metadata=about)


def _sort(fields: Sequence[str], default: str, example: str) -> ParsedField:
    def parse(text: str) -> str:
        if text.removeprefix("-") in fields:
            return text
        raise ValueError(f"must be one of {', '.join(fields)}; with - before it for descending")

    description = f"Field to sort by, with - before it for descending; {default}."
    enum = [sign + name for sign in ("", "-") for name in fields]
    return ParsedField(parse, metadata=says(description, example, enum=enum))


_Spelling: TypeAlias = tuple[Callable[[str], Any], Mapping[str, Any]]
#: Fields that have more than one spelling, by name.
_SPELLINGS: Mapping[str, _Spelling] = {
    "ip_address": (parse_ip, {"pattern": ADDRESS_PATTERN}),
    "mac_address": (parse_mac, {"pattern": MAC_PATTERN}),
}


_STREAM_EVENTS = {event.stream_name: event for event in EVENTS.values()}


def _event_names(text: str) -> frozenset[str]:
    names = frozenset(text.split(","))
    if names <= _STREAM_EVENTS.keys():
        return names
    raise ValueError(f"must be one or more of {', '.join(_STREAM_EVENTS)}, separated by commas")


def mac() -> ParsedField:
    return ParsedField(
        parse_mac,
        metadata=says(
            "With this MAC address only: with colons, dashes, dots or nothing between, in either case.",
            "02:00:00:00:00:06",
            **_SPELLINGS["mac_address"][1],
        ),
    )


def session_type(description: str) -> ParsedField:
    """Return a type of sessions in any case: tables show `PPPoE`."""

    def parse(text: str) -> str:
        if text.casefold() not in tuple(SessionTypeFilter):
            raise ValueError("must be pppoe or dhcp")
        return text.casefold()

    return ParsedField(parse, metadata=says(description, "pppoe", enum=list(SessionTypeFilter)))


def _search(description: str) -> TextField:
    rule = validate.Length(1, 256, error="must have 1 to 256 characters")
    return TextField(validate=rule, metadata=says(description, "000006"))


def _number_of_revision(rule: str, description: str, example: int) -> ParsedField:
    about = says(description, example, type="integer", minimum=0, maximum=_MOST_REVISIONS)
    return ParsedField(_whole(range(_MOST_REVISIONS + 1), rule), metadata=about)


@dataclass(frozen=True)
class Comparison:
    """The numbers of archived revisions, or None: see `CompareQuery`."""

    revision: int | None = None
    to: int | None = None


class CompareQuery(Schema):
    made = Comparison

    revision = _number_of_revision(
        "must be the number of an archived revision",
        "Archived revision to compare with, instead of the running configuration.",
        1,
    )
    to = _number_of_revision(
        "must be the number of an archived revision, or 0 for the running configuration",
        "Archived revision, or 0 for the running configuration, to compare instead of the candidate.",
        0,
    )


class EventsQuery(Schema):
    """Loaded as a StreamFilter."""

    events = ParsedField(
        _event_names,
        metadata=says(
            f"Names of events, separated by commas; without it {' and '.join(DEFAULT_STREAM_EVENTS)}.",
            ",".join(DEFAULT_STREAM_EVENTS),
            pattern="^({0})(,({0}))*$".format("|".join(_STREAM_EVENTS)),
        ),
    )
    type = session_type("Of sessions of this type only.")
    last_event_id = ParsedField(
        # Empty: clients send that before their first event.
        lambda text: parse_id(text) if text else None,
        metadata=says(
            "As the header Last-Event-ID, for clients that cannot send it.",
            "84a7e8343baf37f9-57",
            pattern=_EVENT_ID,
        ),
    )

    @post_load
    def make(self, data: dict[str, Any], **_: Any) -> StreamFilter:
        names = data.get("events", frozenset(DEFAULT_STREAM_EVENTS))
        return StreamFilter(names, data.get("type"), data.get("last_event_id"))


def _order(text: str) -> TalkerOrder:
    try:
        return TalkerOrder(text)
    except ValueError as error:
        raise ValueError(f"must be one of {', '.join(TalkerOrder)}") from error


@dataclass(frozen=True)
class ListSelection:
    """The records of a list that a client wants: those with the values of `filter` in these fields, sorted by
    the field `sort`, with - before it for descending. The whole list, if there is no page."""

    filter: dict[str, Any]
    sort: str | None = None
    page: Page | None = None

    def call(self, method: Callable[..., M]) -> M:
        """Return the call of a method of the core that selects these records."""
        return method(filter=self.filter, sort=self.sort, page=self.page)


@dataclass(frozen=True)
class Search(Generic[F]):
    """The records that a client wants: all that match, or a page of them."""

    wanted: F
    page: Page | None


class _PagedQuery(Schema):
    """A query for a whole list, or for a page of the list: loaded as a Search for what is `made`."""

    limit = most("Most records of a page.")
    cursor = cursor("The `next_cursor` of the page before, with `limit`.")

    def _take_page(self, data: dict[str, Any]) -> Page | None:
        """Remove the fields of this schema from `data`, and return what they mean."""
        limit, cursor = data.pop("limit", None), data.pop("cursor", None)
        if cursor is not None and limit is None:
            raise ValidationError("is required with a cursor", "limit")
        return None if limit is None else Page(limit, cursor)

    @post_load
    def make(self, data: dict[str, Any], **_: Any) -> Any:
        page = self._take_page(data)
        return Search(self.made(**data), page)


class ListQuery(_PagedQuery):
    """Loaded as a ListSelection."""

    @post_load
    def make(self, data: dict[str, Any], **_: Any) -> ListSelection:
        page, sort = self._take_page(data), data.pop("sort", None)
        return ListSelection(data, sort, page)

    @classmethod
    def is_short(cls, filter: Mapping[str, Any]) -> bool:
        """Return whether a filter finds few records, at little cost."""
        return False


class SessionConditions(Schema):
    """Which sessions: all conditions must hold."""

    type = session_type("Sessions of this type only.")
    username = TextField(metadata=says("With this login only.", "subscriber000006@lab.example"))
    ip_address = ParsedField(
        parse_ip,
        metadata=says(
            "With this IPv4 address only; or with this IPv6 address, assigned or in a prefix of the session.",
            "100.64.0.5",
            **_SPELLINGS["ip_address"][1],
        ),
    )
    mac_address = mac()
    interface = TextField(metadata=says("On this interface or access interface only.", "trunk0.1001"))
    search = _search(SEARCH.description or "")


class SubscribersQuery(SessionConditions, ListQuery):
    """Filters of the list, all of which must hold, and its order."""

    sort = _sort(SessionSummary.__struct_fields__, "by id if none", "-started_at")

    @classmethod
    def is_short(cls, filter: Mapping[str, Any]) -> bool:
        # From an index; type and search may match most sessions.
        return bool(filter.keys() - {"type", "search"})


class TalkersQuery(Schema):
    made = ListTalkers

    sort = ParsedField(
        _order,
        metadata=says(
            "Which sessions first: by traffic down or up, with - before it for the most; `-down` if none.",
            "-down",
            enum=list(TalkerOrder),
        ),
    )
    limit = up_to(MOST_TALKERS, "Most sessions; 20 if none.", 20)


class ShortListQuery(Schema):
    """Loaded as a ListSelection without a page."""

    @post_load
    def make(self, data: dict[str, Any], **_: Any) -> ListSelection:
        sort = data.pop("sort", None)
        return ListSelection(data, sort)


@cache
def list_query(method: type[Method[Any]]) -> type[Schema]:
    """Filter by any field of the records that has one value, and the order. Only a list of a SelectingMethod
    has pages."""
    base = ListQuery if issubclass(method, SelectingMethod) else ShortListQuery
    return type(f"{method.__name__}Query", (base,), _selection(method))


def _selection(method: type[Method[Any]]) -> dict[str, ParsedField]:
    found = columns_of(method)
    order = _sort(tuple(found), "in the order of the gateway if none", f"-{next(iter(found))}")
    return {**{name: _filter(name, column) for name, column in found.items()}, "sort": order}


def _filter(name: str, column: Column) -> ParsedField:
    parse, schema = _SPELLINGS.get(name) or _readers(column.type)
    about = {"description": f"{column.description} Records with this value only.", **schema}
    return ParsedField(parse, metadata={**about, "examples": column.examples} if column.examples else about)


def _readers(kind: type[Any]) -> _Spelling:
    """Return the parser of a value, and the JSON Schema of its text."""
    if issubclass(kind, Enumeration):
        return _member(kind), {"enum": list(kind)}
    if kind is int:
        parse = _whole(range(1 << 63), "must be an integer from 0")
        return parse, {"type": "integer", "minimum": 0, "maximum": (1 << 63) - 1}
    return str, {}


def _member(kind: type[Enumeration]) -> Callable[[str], str]:
    members = {member.casefold(): member.value for member in kind}

    def parse(text: str) -> str:
        if text.casefold() not in members:
            raise ValueError(f"must be one of {', '.join(members.values())}")
        return members[text.casefold()]

    return parse


class AuditQuery(_PagedQuery):
    """Filters of the audit log, all of which must hold."""

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
    since = time("Records from then on.", "2026-03-01T00:00:00Z")
    until = time("Records before then.", "1795271513")


class HistoryQuery(SessionConditions, _PagedQuery):
    """Filters of the history of sessions, all of which must hold."""

    made = HistoryFilter

    id = up_to(MAX_ID, "With this session id only. Another session may have had it before.", 7)
    at = time("Sessions that were up then. Not in the future.", "2026-03-01T18:00:00Z", parse_past_time)
    since = time("Sessions that were up then or later.", "1795271513")
    until = time("Sessions that started before then.", "1795275113")
    reason = TextField(metadata=says("Sessions that ended for this reason only.", "lost_carrier"))
    search = _search(
        "Part of a username or of the name of an interface, in any case, or of a MAC address in any "
        "spelling; IPv4 or IPv6 address, its first parts, or prefix. `id:`, `user:`, `ip:` or `mac:` before "
        "the text says which is meant."
    )


class TimelineQuery(Schema):
    made = Page

    limit = most("Most entries of a page.", load_default=100)
    cursor = cursor()


@dataclass(frozen=True)
class FailedSignOnsSearch:
    """The page of failed sign-ons that a client wants."""

    wanted: WantedFailures
    page: Page


class FailedSignOnsQuery(Schema):
    """Filters of failed sign-ons, all of which must hold. Loaded as a FailedSignOnsSearch."""

    limit = most("Most records of a page.", load_default=100)
    cursor = cursor()
    type = session_type("Sign-ons for sessions of this type only.")
    username = TextField(metadata=says("With this login only.", "subscriber000006@lab.example"))
    mac_address = mac()
    interface = TextField(metadata=says("On this access interface only.", "trunk0.1001"))
    reason = TextField(metadata=says("That failed for this reason only.", "rejected"))
    since = time("Sign-ons that failed then or later.", "1795271513")
    until = time("Sign-ons that began to fail before then.", "1795275113")
    search = _search(
        "Part of a username or of the name of an access interface, in any case, or of a MAC address in any "
        "spelling. `user:` or `mac:` before the text says which is meant."
    )

    @post_load
    def make(self, data: dict[str, Any], **_: Any) -> FailedSignOnsSearch:
        page = Page(data.pop("limit"), data.pop("cursor", None))
        return FailedSignOnsSearch(WantedFailures(**data), page)


class _WindowQuery(Schema):
    """A window of time."""

    #: Seconds of a window whose start is not given.
    usual: int

    until = time("End of the window, now if none.", "1795275113")

    @post_load
    def make(self, data: dict[str, Any], **_: Any) -> Any:
        until = data.get("until", now())
        return self.made(**{"since": until - self.usual, **data, "until": until})


@dataclass(frozen=True)
class FlappingSearch:
    """The window of time, epoch seconds, and the most subscribers."""

    since: float
    until: float
    limit: int


class FlappingQuery(_WindowQuery):
    made = FlappingSearch
    usual = 86_400

    since = time("Start of the window, a day before its end if none.", "1795185113")
    limit = most("Most subscribers.", load_default=20)


class NetworkTrafficQuery(_WindowQuery):
    made = TrafficSpan
    usual = 3600

    since = time("Start of the window, an hour before its end if none.", "1795271513")
    step = up_to(
        _LONGEST_STEP, "Length of a step in seconds; 10, or more for at most 360 steps, if none.", 300
    )
