"""Sessions: their tables, and the targets by which an operator names sessions on the command line.

A target is a session id, a username, an IP address or a MAC address. The same text can be an id and a
username, because many usernames are phone or contract numbers. A text is therefore looked up in all its
meanings; if it matches more than one subscriber, the command refuses it and lists the matches. A prefix
`id:`, `user:`, `ip:` or `mac:` chooses one meaning.
"""

import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import click

from gateway_client.errors import ClientError, ExitStatus, NoSuchRecord
from gateway_client.gateway import Record, RemoteGateway
from gateway_contract.base.search import Kind, split_prefix
from gateway_contract.base.texts import parse_ip, parse_mac, parse_numeric_id
from gateway_contract.core.sessions import SessionSummary, SessionTypeFilter
from gatewayctl.completion import GatewayWords
from gatewayctl.errors import CommandError, NothingFound
from gatewayctl.results import HIGH, IDENTITY, LOW, WIDE, Column, ResultList, add_wide_columns
from gatewayctl.texts import escape, format_time, format_value

PATH = "/subscribers"
_HISTORY_PATH = "/subscribers/history"
#: A username of the history is considered for this time after the session ended: the subscriber may call.
_RECENT_SECONDS = 30 * 86_400
_MAX_COMPLETIONS = 1000

#: Option for the type of sessions, in any case: tables show PPPoE, the API takes pppoe.
TYPE_CHOICE = click.Choice([each.value for each in SessionTypeFilter], case_sensitive=False)


def format_address(record: Record) -> str:
    """Return the IPv4 address of a session. If the session has no IPv4 address, return the IPv6 address."""
    return format_value(record.get("ip_address") or record.get("ipv6_address"))


_ADDRESS_COLUMN = Column("ip_address", HIGH, value=format_address)


def _add_columns(*columns: Column) -> tuple[Column, ...]:
    details = ("source", "ipv6_prefix", "delegated_prefixes", "outer_vlan_id", "inner_vlan_id")
    all_columns = (*columns, *(Column(name, WIDE) for name in details))
    # The column of the address shows the IPv6 address, too.
    return add_wide_columns(all_columns, SessionSummary.__struct_fields__, hidden=["ipv6_address"])


LIST_COLUMNS = _add_columns(
    Column("id", IDENTITY), Column("type", LOW), Column("username", IDENTITY), _ADDRESS_COLUMN,
    Column("interface"), Column("rate_down", title="Down"), Column("rate_up", title="Up"),
    Column("started_at"), Column("mac_address", WIDE), Column("access_interface", WIDE),
    Column("state", WIDE),
)  # fmt: skip
#: Columns for a search: they identify the device and the access line of a subscriber.
SEARCH_COLUMNS = _add_columns(
    Column("id", IDENTITY), Column("type", LOW), Column("username", IDENTITY), _ADDRESS_COLUMN,
    Column("interface", LOW), Column("mac_address", HIGH), Column("access_interface", HIGH),
    Column("state", LOW), Column("started_at"), Column("rate_down", WIDE, "Down"),
    Column("rate_up", WIDE, "Up"),
)  # fmt: skip
_AFFECTED_COLUMNS = (
    Column("id", IDENTITY), Column("type", LOW), Column("username", IDENTITY), _ADDRESS_COLUMN,
    Column("mac_address", HIGH), Column("interface"),
)  # fmt: skip


def list_affected(records: Sequence[Record]) -> ResultList:
    """Return a result that lists the sessions that a command is about to change or end."""
    return ResultList(records, _AFFECTED_COLUMNS)


def get_session_path(id: object) -> str:
    """Return the path of the session with this id in the API."""
    return f"{PATH}/{quote(str(id), safe='')}"


#: Names of the kinds as fields of a session, and as filters of lists of sessions.
_FIELD_BY_KIND = {Kind.ID: "id", Kind.USER: "username", Kind.IP: "ip_address", Kind.MAC: "mac_address"}


def is_id(text: str) -> bool:
    """Return True if a text can be the id of a session."""
    with suppress(ValueError):
        return bool(parse_numeric_id(text))
    return False


def _parse_username(text: str) -> str:
    if not text:
        raise ValueError("must have at least one character")
    return text


_PARSER_BY_KIND: Mapping[Kind, Callable[[str], str]] = {
    Kind.ID: lambda text: str(parse_numeric_id(text)),
    Kind.USER: _parse_username,
    Kind.IP: parse_ip,
    Kind.MAC: parse_mac,
}


@dataclass(frozen=True)
class Target:
    """Argument that selects sessions, as the user typed the argument. `meanings` maps each possible kind of
    the argument, such as id or username, to the value to send to the API."""

    text: str
    meanings: Mapping[Kind, str]


def parse_target(text: str) -> Target:
    """Return the target that a text names. A username that begins with a prefix such as `ip:` must be typed
    as `user:ip:x`. Raises ValueError, with the broken rule as its text, if the text names no target."""
    kind, rest = split_prefix(text)
    if kind is not None:
        return Target(text, {kind: _PARSER_BY_KIND[kind](rest)})
    meanings: dict[Kind, str] = {}
    for kind, parse in _PARSER_BY_KIND.items():
        with suppress(ValueError):
            meanings[kind] = parse(text)
    if not meanings:
        raise ValueError("must be a session id, a username, an IP address or a MAC address")
    return Target(text, meanings)


class TargetType(GatewayWords):
    """Parameter type for a target. A shell completes the target with ids and usernames of sessions."""

    name = "target"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        try:
            return parse_target(value)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)


def _list_targets(gateway: RemoteGateway, incomplete: str) -> list[tuple[str, str]]:
    typed_kind, typed = split_prefix(incomplete)
    kind = typed_kind or (Kind.ID if not typed or typed.isdecimal() else Kind.USER)
    # A search does not find the beginning of an id or address.
    query = {"search": incomplete} if typed and kind is Kind.USER else {}
    sessions = gateway.get(PATH, **query, limit=_MAX_COMPLETIONS)["sessions"]
    prefix = "" if typed_kind is None else f"{typed_kind}:"
    words = []
    for each in sessions:
        if word := each[_FIELD_BY_KIND[kind]]:
            subscriber = str(each["username"] or each["mac_address"] or "")
            words.append((f"{prefix}{word}", subscriber if kind is Kind.ID else f"session {each['id']}"))
    return words


target_type = TargetType(_list_targets)
target_argument = click.argument("target", type=target_type)


@dataclass
class _Candidate:
    """Session that a target may name, and the kinds of target by which the session was found."""

    record: Record
    kinds: list[Kind] = field(default_factory=list)


def find_session(gateway: RemoteGateway, target: Target) -> Record:
    """Return the record of the only session that a target names. Raises ClientError if the target names no
    session or several sessions, or if a request fails.

    A target that matches a session by id or address is refused if the same text was the username of another
    subscriber in the last 30 days: the operator may mean this other subscriber, who may now be offline. The
    target is also refused if the history does not respond."""
    found: dict[int, _Candidate] = {}
    for kind, text in target.meanings.items():
        for record in _list_online_sessions(gateway, kind, text):
            found.setdefault(record["id"], _Candidate(record)).kinds.append(kind)
    candidates = list(found.values())
    if not candidates:
        raise NothingFound(
            f"no session of {escape(target.text)}; gatewayctl subscribers find searches for parts"
        )
    if Kind.USER in target.meanings and not any(Kind.USER in each.kinds for each in candidates):
        candidates += _find_former_subscriber(gateway, target, candidates)
    only = _require_single_candidate(target, candidates)
    if Kind.ID in only.kinds:
        return only.record
    detail: Record = gateway.get(get_session_path(only.record["id"]))
    return detail


def find_past_session(gateway: RemoteGateway, target: Target) -> Record:
    """Return the last session of the only subscriber that a target names. The session may have ended. Raises
    ClientError if the history has no such session, if the target names several subscribers, or if a request
    fails."""
    found: dict[object, _Candidate] = {}
    for kind, text in target.meanings.items():
        for record in gateway.list_records(_HISTORY_PATH, "sessions", {_FIELD_BY_KIND[kind]: text}, 1):
            subscriber = record["username"] or record["mac_address"] or record["id"]
            found.setdefault(subscriber, _Candidate(record)).kinds.append(kind)
    if not found:
        raise NothingFound(f"the history has no session of {escape(target.text)}")
    return _require_single_candidate(target, list(found.values())).record


def find_recent_user(gateway: RemoteGateway, name: str) -> Record | None:
    """Return the last session of a username in the last 30 days; None if there was no session. Raises
    ClientError if the request fails."""
    since = int(time.time()) - _RECENT_SECONDS
    sessions = gateway.list_records(_HISTORY_PATH, "sessions", {"username": name, "since": since}, 1)
    return sessions[0] if sessions else None


def _list_online_sessions(gateway: RemoteGateway, kind: Kind, text: str) -> Sequence[Record]:
    if kind is not Kind.ID:
        return gateway.list_records(PATH, "sessions", {_FIELD_BY_KIND[kind]: text})
    try:
        return [gateway.get(get_session_path(text))]
    except NoSuchRecord:
        return []


def _find_former_subscriber(
    gateway: RemoteGateway, target: Target, online: Sequence[_Candidate]
) -> list[_Candidate]:
    """Return the subscriber whose username is the text of a target, as a list with one item. The list is
    empty if no such subscriber had a session in the last 30 days. `online` are the sessions that the target
    matches by id or address. Raises CommandError if the history does not respond."""
    try:
        record = find_recent_user(gateway, target.meanings[Kind.USER])
    except ClientError as error:
        first, text = online[0].record, escape(target.text)
        raise CommandError(
            error.status,
            f"{text} may be a username, too, which the history cannot tell now; nothing was done",
            *error.lines,
            f"without the history, name the session: {Kind.ID}:{first['id']}: {describe_session(first)}",
        ) from error
    return [] if record is None else [_Candidate(record, [Kind.USER])]


def _require_single_candidate(target: Target, candidates: Sequence[_Candidate]) -> _Candidate:
    """Return the only candidate for a target. Raises CommandError, with a list of the candidates, if there
    are several."""
    if len(candidates) > 1:
        raise CommandError(
            ExitStatus.REFUSED,
            f"{escape(target.text)} names several sessions; nothing was done. Name one of them:",
            *(
                f"{_spell_target(target, each, candidates)}: {describe_session(each.record)}"
                for each in candidates
            ),
        )
    return candidates[0]


def _spell_target(target: Target, candidate: _Candidate, candidates: Iterable[_Candidate]) -> str:
    """Return a spelling of a target that matches the given candidate and no other candidate, quoted for a
    shell."""
    others = [each for each in candidates if each is not candidate]
    for kind in candidate.kinds:
        if not any(kind in other.kinds for other in others):
            return shlex.quote(f"{kind}:{target.meanings[kind]}")
    return f"{Kind.ID}:{candidate.record['id']}"


def describe_session(session: Record) -> str:
    """Return one line that distinguishes a session from the other sessions of a list."""
    subscriber = describe_subscriber(session)
    if session.get("ended_at") is not None:
        state = f"ended {format_time(session['ended_at'])}"
    elif session.get("ended_before") is not None:
        first, last = format_time(session["ended_after"]), format_time(session["ended_before"])
        state = f"ended between {first} and {last}"
    else:
        state = f"online since {format_time(session['started_at'])}"
    return f"session {session['id']}, {subscriber}, on {format_value(session['access_interface'])}, {state}"


def describe_subscriber(session: Record) -> str:
    """Return the username, the address and the MAC address of a session: `alice, 100.64.0.9, 02:…:09`."""
    username, mac = format_value(session["username"]), format_value(session["mac_address"])
    return f"{username}, {format_address(session)}, {mac}"
