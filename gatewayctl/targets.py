"""Targets: sessions as an operator names them on the command line.

A target is a session id, a username, an IP address or a MAC address. A text may be several of them: phone and
contract numbers are common usernames. So a text is looked up as all that it can be, and one that names more
than one subscriber is refused with the list of them. `id:`, `user:`, `ip:` or `mac:` before it says which.

A name alone takes one request, and a second one for the record of its session; a number takes three at most,
an address four, and twelve digits, which may be all of these, five. A text with its kind takes one or two.
"""

import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import click
from click.shell_completion import CompletionItem

from gateway_contract.base.search import Kind, split_kind
from gateway_contract.base.texts import parse_ip, parse_mac, parse_numeric_id
from gatewayctl.client.errors import ClientError, NoSuchRecord
from gatewayctl.client.gateway import Record, RemoteGateway
from gatewayctl.completion import offered
from gatewayctl.failures import CommandFailure, ExitStatus, status_of
from gatewayctl.sessions import address, session_path
from gatewayctl.texts import line, moment, plain

_LIST, _HISTORY = "/subscribers", "/subscribers/history"
#: Seconds in which a username of the history still counts: its owner may call.
_RECENT_SECONDS = 30 * 86_400
#: Sessions that a completion offers.
_MOST_OFFERED = 1000


#: The kinds as fields of a session, and as filters of its lists.
_FIELDS = {Kind.ID: "id", Kind.USER: "username", Kind.IP: "ip_address", Kind.MAC: "mac_address"}


def is_id(text: str) -> bool:
    """Return True for a text that can be the id of a session."""
    with suppress(ValueError):
        return bool(parse_numeric_id(text))
    return False


def _username(text: str) -> str:
    if not text:
        raise ValueError("must have at least one character")
    return text


_READERS: Mapping[Kind, Callable[[str], str]] = {
    Kind.ID: lambda text: str(parse_numeric_id(text)),
    Kind.USER: _username,
    Kind.IP: parse_ip,
    Kind.MAC: parse_mac,
}


@dataclass(frozen=True)
class Target:
    """A target as it was typed, and its text for each kind that it can be of, as the API takes it."""

    text: str
    meanings: Mapping[Kind, str]

    def __str__(self) -> str:
        return self.text


def parse_target(text: str) -> Target:
    """Read a target. A username that begins with a kind and a colon, such as `ip:x`, is `user:ip:x`.

    Raises ValueError with the rule.
    """
    said, rest = split_kind(text)
    if said is not None:
        return Target(text, {said: _READERS[said](rest)})
    meanings: dict[Kind, str] = {}
    for kind, read in _READERS.items():
        with suppress(ValueError):
            meanings[kind] = read(text)
    if not meanings:
        raise ValueError("must be a session id, a username, an IP address or a MAC address")
    return Target(text, meanings)


class TargetType(click.ParamType[Target]):
    """The type of a target; completed with the ids and usernames of real sessions."""

    name = "target"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        if isinstance(value, Target):
            return value
        try:
            return parse_target(value)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return offered(ctx, _list_words, incomplete)


def _list_words(gateway: RemoteGateway, incomplete: str) -> list[tuple[str, str]]:
    said, typed = split_kind(incomplete)
    kind = said or (Kind.ID if not typed or typed.isdecimal() else Kind.USER)
    # The beginning of an id or address finds nothing in a search.
    query = {"search": incomplete} if typed and kind is Kind.USER else {}
    found = gateway.get(_LIST, **query, limit=_MOST_OFFERED)["sessions"]
    prefix = "" if said is None else f"{said}:"
    return [(f"{prefix}{each[_FIELDS[kind]]}", _about(each, kind)) for each in found if each[_FIELDS[kind]]]


def _about(session: Record, kind: Kind) -> str:
    if kind is Kind.ID:
        return str(session["username"] or session["mac_address"] or "")
    return f"session {session['id']}"


@dataclass
class _Candidate:
    """A session that a target may name, and the kinds by which it was found."""

    record: Record
    kinds: list[Kind] = field(default_factory=list)


def find_session(gateway: RemoteGateway, target: Target) -> Record:
    """Return the record of the only session that a target names. Raises ClientError.

    A text that names a session by its id or address is refused if it was the username of another subscriber
    in the last 30 days. That subscriber may be offline now, so the history is asked. Without its reply the
    text is refused, too.
    """
    found: dict[int, _Candidate] = {}
    for kind, text in target.meanings.items():
        for record in _list_online(gateway, kind, text):
            found.setdefault(record["id"], _Candidate(record)).kinds.append(kind)
    candidates = list(found.values())
    if not candidates:
        raise CommandFailure(
            ExitStatus.REFUSED,
            f"no session of {line(target)}; gatewayctl subscribers find searches for parts",
        )
    if Kind.USER in target.meanings and not any(Kind.USER in each.kinds for each in candidates):
        candidates += _find_former(gateway, target, candidates)
    (only,) = _require_one(target, candidates)
    if Kind.ID in only.kinds:
        return only.record
    detail: Record = gateway.get(session_path(only.record["id"]))
    return detail


def find_past_session(gateway: RemoteGateway, target: Target) -> Record:
    """Return the last session of the only subscriber that a target names, also of one that is offline. Raises
    ClientError."""
    found: dict[object, _Candidate] = {}
    for kind, text in target.meanings.items():
        for record in gateway.pages(_HISTORY, "sessions", {_FIELDS[kind]: text}, 1):
            subscriber = record["username"] or record["mac_address"] or record["id"]
            found.setdefault(subscriber, _Candidate(record)).kinds.append(kind)
    if not found:
        raise CommandFailure(ExitStatus.REFUSED, f"the history has no session of {line(target)}")
    (only,) = _require_one(target, list(found.values()))
    return only.record


def find_recent_user(gateway: RemoteGateway, name: str) -> Record | None:
    """Return the last session of a username in the last 30 days; None if there was none. Raises
    ClientError."""
    since = int(time.time()) - _RECENT_SECONDS
    found = gateway.pages(_HISTORY, "sessions", {"username": name, "since": since}, 1)
    return found[0] if found else None


def _list_online(gateway: RemoteGateway, kind: Kind, text: str) -> Sequence[Record]:
    if kind is not Kind.ID:
        return gateway.pages(_LIST, "sessions", {_FIELDS[kind]: text})
    try:
        return [gateway.get(session_path(text))]
    except NoSuchRecord:
        return []


def _find_former(gateway: RemoteGateway, target: Target, online: Sequence[_Candidate]) -> list[_Candidate]:
    """Return the recent subscriber whose username is the text of a target that was found by another kind."""
    try:
        record = find_recent_user(gateway, target.meanings[Kind.USER])
    except ClientError as failure:
        first = online[0].record
        spelled = _describe(f"{Kind.ID}:{first['id']}", first)
        raise CommandFailure(
            status_of(failure),
            f"{line(target)} may be a username, too, which the history cannot tell now; nothing was done",
            *failure.lines,
            f"without the history, name the session: {spelled}",
        ) from failure
    return [] if record is None else [_Candidate(record, [Kind.USER])]


def _require_one(target: Target, candidates: Sequence[_Candidate]) -> Sequence[_Candidate]:
    """Raises CommandFailure with the list of the candidates if there are several."""
    if len(candidates) > 1:
        raise CommandFailure(
            ExitStatus.REFUSED,
            f"{line(target)} names several sessions; nothing was done. Name one of them:",
            *(_describe(_spell(target, each, candidates), each.record) for each in candidates),
        )
    return candidates


def _spell(target: Target, candidate: _Candidate, all_: Iterable[_Candidate]) -> str:
    """Return the target that names only this candidate, as a shell takes it."""
    others = [each for each in all_ if each is not candidate]
    for kind in candidate.kinds:
        if not any(kind in other.kinds for other in others):
            return shlex.quote(f"{kind}:{target.meanings[kind]}")
    return f"{Kind.ID}:{candidate.record['id']}"


def _describe(spelling: str, record: Record) -> str:
    return f"{spelling}: {describe_session(record)}"


def describe_session(session: Record) -> str:
    """Return all that tells a session from others, in one line. The session is of any list."""
    named = f"session {session['id']}, {describe_subscriber(session)}"
    return f"{named}, on {plain(session['access_interface'])}, {_describe_state(session)}"


def describe_subscriber(session: Record) -> str:
    """Return the username, the address and the MAC address of a session: `alice, 100.64.0.9, 02:…:09`."""
    return ", ".join((plain(session["username"]), address(session), plain(session["mac_address"])))


def _describe_state(session: Record) -> str:
    if session.get("ended_at") is not None:
        return f"ended {moment(session['ended_at'])}"
    if session.get("ended_before") is not None:
        return f"ended between {moment(session['ended_after'])} and {moment(session['ended_before'])}"
    return f"online since {moment(session['started_at'])}"
