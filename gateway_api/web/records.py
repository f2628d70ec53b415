"""Records of responses. The records of the core, the hub and the history are in their contracts. The sections
of the configuration are generated from its definition."""

from functools import cache
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway_api.audit.record import AuditEntry
from gateway_api.hub.interface import MessageId
from gateway_contract import configuration as definition
from gateway_contract.base.errors import CoreAbsent
from gateway_contract.contract import ListReply, Method, Record, about, count, get_list_field, get_reply_type
from gateway_contract.core import configuration, impact, sessions
from gateway_contract.core.health import Dependency, DependencyState
from gateway_contract.history import (
    FailedSignOns,
    FlappingSubscriber,
    PastSession,
    TimelineEntry,
    TrafficSample,
)
from gateway_contract.version import VERSION

Object = Annotated[dict[str, Any], Meta(extra_json_schema={"additionalProperties": {}})]


def _describe_message(example: str) -> Meta:
    """Return the description, with an example, of the message in the response to a completed request."""
    return about("What was done, for people.", example)


# Lists

Count = Annotated[int, count("Number of records in this response.", 1)]
_Total = Annotated[int | UnsetType, count("Number of records on all pages; with `limit` only.", 1)]
NextCursor = Annotated[
    str | UnsetType | None,
    about("`cursor` of the next page, null on the last one; with `limit` only.", "WyJpZCIsWzIsMl1d"),
]

#: Cursor of a list that comes in pages only.
_CursorOfPage = Annotated[str | None, about("`cursor` of the next page, null on the last one.", None)]


@cache
def make_list_record(method: type[Method[Any]]) -> type[msgspec.Struct]:
    """Return the response record of a list, derived from the reply to a method of the core. Only lists with
    pages have a total and a cursor."""
    reply = get_reply_type(method)
    hints = get_type_hints(reply)
    record = get_args(hints[get_list_field(method)])[0]
    page = [("total", _Total, UNSET), ("next_cursor", NextCursor, UNSET)]
    return msgspec.defstruct(
        f"{record.__name__}List",
        [("count", Count), *(page if issubclass(reply, ListReply) else ())],
        bases=(reply,),
        namespace={"__doc__": reply.__doc__},
        frozen=True,
        kw_only=True,
    )


# The service


class Message(Record, frozen=True):
    """Confirmation of a completed request."""

    message: Annotated[str, _describe_message("Session 7 disconnected")]


class Token(Record, frozen=True):
    """A token of a user."""

    access_token: Annotated[str, about("JSON Web Token (RFC 7519).", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIi.c2ln")]
    token_type: Annotated[Literal["bearer"], about("How to send it.", "bearer", type="string")]
    expires_in: Annotated[int, count("Seconds until the token expires.", 3600)]


class User(Record, frozen=True):
    """The user of a token."""

    username: Annotated[str, about("User of the running configuration.", "alice")]
    role: Annotated[str, about("`admin` or `operator`.", "operator")]
    expires_at: Annotated[int, about("When the token expires, in epoch seconds.", 1795275113)]


_SAMPLE_USER = {"username": "alice", "role": "operator", "expires_at": 1795275113}


class SignedIn(Record, frozen=True):
    """The user of the token that came with the request."""

    user: Annotated[User | None, about("The user; null without a valid token.", _SAMPLE_USER)]


class Version(Record, frozen=True):
    """Name and version of the product, and the part of the product that responds."""

    product: Annotated[str, about("Name of the product.", "Subscriber Gateway")]
    version: Annotated[str, about("Version of the product.", VERSION)]
    component: Annotated[str, about("Part of the product that responds.", "gateway-api")]


class HealthDetail(Record, frozen=True):
    """Health of the gateway and of all its dependencies."""

    state: Annotated[DependencyState, about("The worst of them; what is unused does not count.", "degraded")]
    dependencies: Annotated[tuple[Dependency, ...], about("What the gateway depends on.")]


class OpenApi(Record, frozen=True):
    """The OpenAPI document of the API."""

    openapi: Annotated[str, about("Version of the OpenAPI Specification.", "3.1.0")]


class AuditRecord(AuditEntry, frozen=True, kw_only=True):
    """A record of the audit log."""

    id: Annotated[str, about("Name of the record.", "known-4711")]


class AuditRecordList(Record, frozen=True, kw_only=True):
    """A list of audit records."""

    records: Annotated[tuple[AuditRecord, ...], about("The records.")]
    count: Count
    next_cursor: NextCursor = UNSET


# Sessions and routing


class SessionCounts(Record, frozen=True):
    """Number of sessions of each type."""

    total: sessions.AllSessions
    pppoe: sessions.PppoeSessions
    dhcp: sessions.DhcpSessions


class CgnatStats(Record, frozen=True):
    """Number of sessions that are steered to the CGNAT appliance, and number of sessions with a public
    address."""

    vrf_steered_sessions: sessions.SteeredSessions
    public_ip_sessions: sessions.PublicSessions
    total_sessions: sessions.AllSessions


class InterfaceDisconnected(Record, frozen=True):
    """Result of the disconnection of all sessions on an access interface."""

    message: Annotated[str, _describe_message("27 sessions disconnected on trunk0.1000")]
    count: Annotated[int, count("Number of sessions.", 27)]


class InterfaceDisconnectPreview(InterfaceDisconnected, frozen=True):
    """Dry run of the disconnection of all sessions on an access interface."""

    sessions: Annotated[tuple[sessions.SessionSummary, ...], about("The sessions that would end.")]


class JobPreview(Record, frozen=True):
    """Dry run of a job: the sessions that match its filter."""

    message: Annotated[str, _describe_message("120 sessions would be disconnected")]
    count: Annotated[int, count("Number of sessions that match.", 120)]
    sessions: Annotated[tuple[sessions.SessionSummary, ...], about("The first hundred of them.")]


class RateChanged(Record, frozen=True, kw_only=True):
    """Result of a change of the rates of a session."""

    message: Annotated[str, _describe_message("Rate change requested for session 7")]
    rate_down: Annotated[
        str | UnsetType, about("Downstream rate, as it was sent, if it was.", "250 Mbit")
    ] = UNSET
    rate_up: Annotated[str | UnsetType, about("Upstream rate, as it was sent, if it was.", "50mbps")] = UNSET
    rate_down_bps: sessions.RateDown
    rate_up_bps: sessions.RateUp
    rate_expires_at: Annotated[
        int | UnsetType,
        count("When the former rates return, Unix epoch seconds; of a temporary change only.", 1795275113),
    ] = UNSET


_SAMPLE_PEER = {"10.255.0.2": {"hostname": "core1", "remoteAs": 64513, "pfxRcd": 1, "state": "Established"}}


class FrrSummary(Record, frozen=True):
    """BGP summary in FRR's own format, with an object for each address family. Empty without BGP."""

    ipv4Unicast: Annotated[
        Object | UnsetType,
        about(
            "IPv4 unicast, as `show bgp summary json` has it. Absent without BGP.",
            {"routerId": "10.255.0.1", "as": 64512, "peerCount": 1, "peers": _SAMPLE_PEER},
        ),
    ] = UNSET


class TestSent(Record, frozen=True):
    """Test message that is on its way to a webhook."""

    message: Annotated[str, _describe_message("A test is under way")]
    message_id: MessageId


# The configuration


def _make_struct(
    name: str, text: str | None, fields: list[Any], base: type[msgspec.Struct] = Record
) -> type[msgspec.Struct]:
    return msgspec.defstruct(name, fields, bases=(base,), namespace={"__doc__": text}, frozen=True)


@cache
def _make_section(kind: definition.Object) -> type[msgspec.Struct]:
    """Return the record of a section of the configuration, or of a list item in a section."""
    fields = [_make_member(name, field) for name, field in kind.fields.items()]
    # Generated clients already have a class Configuration.
    prefix = "Gateway" if kind.section is definition.Configuration else ""
    suffix = "Configuration" if kind in (field.kind for field in definition.ROOT.members.values()) else ""
    return _make_struct(f"{prefix}{kind.section.__name__}{suffix}", kind.section.__doc__, fields)


def _make_member(name: str, field: definition.Field) -> tuple[Any, ...]:
    member_type = _make_type(field)
    if field.nullable:
        member_type = member_type | None
    if not field.required:
        member_type = member_type | UnsetType
    if field.documented is not None:
        member_type = Annotated[member_type, _describe_field(field, field.documented)]
    return (name, member_type) if field.required else (name, member_type, UNSET)


def _make_type(field: definition.Field) -> Any:
    match field.kind:
        case definition.Object() as kind:
            return _make_section(kind)
        case definition.ListOf() as kind:
            return tuple[_make_type(kind.item), ...]  # type: ignore[misc]  # it is made at run time
        case kind:
            return kind.type


def _describe_field(field: definition.Field, documented: Meta) -> Meta:
    schema = dict(documented.extra_json_schema or {})
    if isinstance(field.kind, definition.WholeNumber):
        schema |= {"minimum": field.kind.first, "maximum": field.kind.last}
    if isinstance(field.kind, definition.ListOf) and field.kind.max_items is not None:
        schema["maxItems"] = field.kind.max_items
    if field.key is not None:
        schema["x-key"] = field.key
    default = "" if field.required else f" Default: {field.default_json}."
    return about(f"{documented.description}{default}", *(documented.examples or ()), **schema)


def _make_optional_section(name: str, field: definition.Field) -> tuple[Any, ...]:
    """Return the record field of a section of the candidate. Parts of the section may be missing."""
    member_type = Object | UnsetType | None if field.nullable else Object | UnsetType
    return name, Annotated[member_type, about(field.section_text, field.sample)], UNSET


Configuration = _make_section(definition.Object(definition.Configuration))
DemuxConfiguration = _make_section(definition.Object(definition.Demux))
Candidate = _make_struct(
    "Candidate",
    "The candidate: as the running configuration, but any part may still be missing.",
    [_make_optional_section(name, field) for name, field in definition.ROOT.members.items()],
)
ArchivedConfiguration = _make_struct(
    "ArchivedConfiguration",
    "An archived revision with its configuration.",
    [("configuration", Configuration)],
    configuration.ArchivedRevision,
)


class Difference(Record, frozen=True):
    """Difference between two configurations."""

    diff: configuration.Difference
    confirm_deadline: configuration.Deadline
    impact: impact.ImpactPreview


class Committed(Record, frozen=True):
    """Result of a commit."""

    message: Annotated[str, _describe_message("Committed 1 change")]
    committed: configuration.IsCommitted
    changes: configuration.Changes
    archived_revision: configuration.ArchivedAs
    author: configuration.Author
    comment: configuration.Comment
    committed_at: configuration.CommittedAt
    confirm_deadline: configuration.Deadline
    impact: impact.Effect


class Edited(Record, frozen=True):
    """Result of an edit: the paths of the staged changes."""

    paths: Annotated[
        list[str],
        about(
            "The path of each operation, in their order, with the keys of items in place of indexes.",
            ["system.hostname", "demux.idle_timeout"],
        ),
    ]


class RolledBack(Record, frozen=True):
    """Archived revision that is staged as the candidate."""

    message: Annotated[
        str, _describe_message("Revision 1 is the candidate; a commit makes it the running configuration")
    ]
    revision: configuration.Revision
    changes: configuration.StagedChanges


# Errors


class Problem(Record, frozen=True):
    """Rule that a part of the request breaks."""

    path: Annotated[str, about("Place in the request, dotted; empty for the whole.", "rate_down")]
    code: Annotated[str, about("`missing`, `unknown` or `invalid`.", "invalid")]
    message: Annotated[str, about("The rule, for people.", "must be a number and a unit, such as 50mbit")]


class Error(Record, frozen=True):
    """Response to a request that failed."""

    status: Annotated[Literal["error"], about("Distinguishes errors from successes.", "error", type="string")]
    message: Annotated[str, about("What failed, for people.", "No such session")]


class RequestError(Error, frozen=True):
    """Response to a request that breaks a rule."""

    errors: Annotated[
        tuple[Problem, ...] | UnsetType, about("The rules that parts of the request break, where known.")
    ] = UNSET


class InternalError(Error, frozen=True):
    """Response to a request that failed because of the service."""

    hint: Annotated[
        str | UnsetType, about("What to do where no core daemon listens, for people.", CoreAbsent.HINT)
    ] = UNSET


class Refusal(Record, frozen=True):
    """Response to a request without a valid token or password."""

    detail: Annotated[str, about("Why, for people.", "Could not validate credentials")]


class RoleRefusal(Record, frozen=True):
    """Response to a request that requires another role."""

    detail: Annotated[str, about("Why, for people.", "Admin role required")]


# The history


class PastSessionList(Record, frozen=True, kw_only=True):
    """A list of sessions that are up or have ended."""

    sessions: Annotated[tuple[PastSession, ...], about("The sessions.")]
    count: Count
    next_cursor: NextCursor = UNSET


class TimelineEntryList(Record, frozen=True, kw_only=True):
    """A page of the timeline of a subscriber."""

    entries: Annotated[tuple[TimelineEntry, ...], about("The entries.")]
    count: Count
    next_cursor: _CursorOfPage


class FailedSignOnsList(Record, frozen=True, kw_only=True):
    """A list of failed sign-ons."""

    failures: Annotated[tuple[FailedSignOns, ...], about("The failed sign-ons.")]
    count: Count
    next_cursor: _CursorOfPage


class TrafficSampleList(Record, frozen=True, kw_only=True):
    """Traffic of all trunks over time, oldest step first. Steps without a sample are left out."""

    samples: Annotated[tuple[TrafficSample, ...], about("The mean of each step.")]
    step_seconds: Annotated[int, count("Length of a step, seconds.", 10)]
    count: Count


class FlappingSubscriberList(Record, frozen=True, kw_only=True):
    """A list of subscribers with several sessions."""

    subscribers: Annotated[tuple[FlappingSubscriber, ...], about("The subscribers.")]
    count: Count
