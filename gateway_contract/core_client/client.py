"""The client of the core daemon. Errors of the wire become those of `base/errors.py`.

Records stay the bytes that the core sent (`Fields`), unless the API needs their values.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

import msgspec

from gateway_contract.base.errors import (
    CoreAbsent,
    CoreBusy,
    CoreLacksMethod,
    CoreUnanswered,
    CoreUnavailable,
    GatewayApiError,
    Invalid,
    NotFound,
    Problem,
)
from gateway_contract.base.turns import give_way
from gateway_contract.contract import Command, Method, Page, PagedMethod, list_field, reply_of
from gateway_contract.contract_client import ContractClient, decode
from gateway_contract.core import configuration as wire
from gateway_contract.core import jobs, sessions, traffic
from gateway_contract.core.health import Dependency, GetDependencies
from gateway_contract.core.interface import CORE
from gateway_contract.core_client.errors import EditNotFound, EditRefused, translation
from gateway_contract.varlink.client import Busy, Client, NoSocket, NotSent, TooLarge, Unreachable
from gateway_contract.varlink.protocol import ErrorReply, Reply

#: Fields of a reply, each still JSON bytes.
Fields: TypeAlias = dict[str, msgspec.Raw]
Sections: TypeAlias = dict[str, msgspec.Raw]
IfMatch: TypeAlias = Sequence[str] | None

R = TypeVar("R")

#: Each request makes such a call before its own: together they must end within the 5 s of a response.
_ACCESS_TIMEOUT = 1.5
#: The first list of all sessions by traffic takes a second by itself, and of 200,000 another one.
_TALKERS_TIMEOUT = 4.5
#: A commit writes a dozen files, runs FRR's parser and changes 100,000 sessions. After a timeout, a second
#: try would find nothing to commit.
_COMMIT_TIMEOUT = 30.0
#: The author of a command, until `CoreClient.raw` sets it.
_AUTHOR_OF_CLIENT = ""
#: No user has a longer name.
_LONGEST_NAME = 256
_EMPTY = re.compile(rb"\[[ \t\r\n]*\]")
#: Fields that a whole list has no use for.
_OF_A_PAGE = {"total", "next_cursor"}

#: Decodes a part of a reply. Raises CoreUnavailable.
decoded = partial(decode, unavailable=CoreUnavailable)


@dataclass(frozen=True)
class Listed:
    """A list, or a page of it. `arrays` are JSON arrays of the field `name`, with at least one record each;
    `others` are the fields beside it."""

    name: str
    arrays: Sequence[msgspec.Raw]
    others: Fields


class By(NamedTuple):
    """Who makes calls: a user, and what makes an id for each call that changes something. The core reports
    changes without an id as those of another process."""

    author: str | None = None
    new_id: Callable[[], str] | None = None


_NOBODY = By()


class _Identified(msgspec.Struct):
    id: int


class CoreClient(ContractClient):
    """The methods of the core. `reply`, `fields` and `raw` make any call. The others are for calls that need
    more: checked arguments, a timeout, or a reply in parts. Each command tells the core by whom it is.

    Every method raises CoreUnavailable when the core cannot be reached, or when its reply breaks the
    contract, CoreLacksMethod, and the translation of the core's errors.

    Entity tags stand for the running configuration and the candidate together. A method with `if_match`
    requires one of these tags, or any if it is None. It raises Stale, and StepFailed."""

    contract, unavailable = CORE, CoreUnavailable

    def __init__(self, client: Client, by: By = _NOBODY) -> None:
        super().__init__(client)
        self._by = by

    def by(self, author: str | None, new_id: Callable[[], str] | None = None) -> Self:
        """For the calls of one request, as `By`."""
        return type(self)(self._client, By(author, new_id))

    def raw(self, call: Method[Any], *, timeout: float | None = None) -> msgspec.Raw:
        """Return the whole reply, unparsed."""
        if isinstance(call, Command):
            if self._by.new_id is not None and not getattr(call, "dry_run", False):
                call = msgspec.structs.replace(call, request_id=self._by.new_id())
            # Not every command has an author.
            if self._by.author and "author" in call.__struct_fields__:
                call = msgspec.structs.replace(call, author=self._by.author)
        return super().raw(call, timeout=timeout)

    def translated(self, error: Unreachable | ErrorReply, call: Method[Any]) -> GatewayApiError:
        match error:
            case ErrorReply():
                return translation(error, call)
            case TooLarge():
                return Invalid(Problem("", "invalid", "The request is too large for the core"))
            case NoSocket():
                return CoreAbsent(str(error))
            case Busy() if isinstance(call, PagedMethod | sessions.GetSessionsVersion):
                return CoreBusy(str(error))
            case NotSent():
                return super().translated(error, call)
            case _ if isinstance(call, Command) and call.request_id is not None:
                return CoreUnanswered(str(error))
            case _:
                return super().translated(error, call)

    def ask(self, call: Method[R], *, timeout: float | None = None) -> R:
        """Return the reply to a read of the API's own, with nothing in it that a client could correct."""
        try:
            with self._errors_of(call):
                (reply,) = super()._replies(call, timeout=timeout)
                raw = reply.result()
        except Invalid as error:
            raise CoreUnavailable(f"the core rejected {type(call).__name__}: {error}") from error
        kind: type[R] = reply_of(type(call))
        return decoded(kind, raw)

    def require(self, call: Method[Any]) -> None:
        """Raises CoreLacksMethod if the core does not have this method, which streams."""
        with self._errors_of(call):
            # Not for more: the core replies at once, if only with ExpectedMore.
            (reply,) = self._replies(call)
            try:
                reply.result()
            except ErrorReply as error:
                if error.lacks_method:
                    raise

    def fields(self, call: Method[Any], *names: str) -> Fields:
        """These fields of the reply, or all, as JSON bytes. Each is required."""
        held = decoded(Fields, self.raw(call))
        return _require_fields(call, held, names or reply_of(type(call)).__struct_fields__)

    def listed(self, call: PagedMethod[Any]) -> Listed:
        """Return a list, or a page of it. The core sends it in parts if it may be long."""
        name = list_field(type(call))
        left_out = _OF_A_PAGE if call.page is None else ()
        reply_type = reply_of(type(call))
        names = [field for field in reply_type.__struct_fields__ if field not in left_out]
        omitted = _defaults(reply_type)
        arrays: list[msgspec.Raw] = []
        others: Fields = {}
        count = 0
        with self._errors_of(call):
            for number, reply in enumerate(self._replies(call, more=not call.comes_at_once)):
                if number:
                    give_way()
                # A reply may omit a field that is null, and that of an older core one that is newer.
                held = omitted | decoded(Fields, reply.result())
                others = _require_fields(call, held, names)
                arrays.append(others.pop(name))
                count += decoded(int, others["count"])
        if not all(bytes(memoryview(array)[:1]) == b"[" for array in arrays):
            raise CoreUnavailable(f"the reply to {type(call).__name__} has no array {name}")
        others["count"] = msgspec.Raw(b"%d" % count)
        return Listed(name, [array for array in arrays if not _EMPTY.fullmatch(array)], others)

    def check_access(self, usernames: Iterable[str], *, timeout: float | None = None) -> wire.AccessReply:
        """Return whether the API is enabled, and which of these are users now."""
        names = tuple(filter(_may_be_a_name, usernames))
        return self.ask(wire.CheckAccess(names), timeout=timeout or _ACCESS_TIMEOUT)

    def login(self, username: str) -> wire.LoginReply:
        """Return the record that the check of a password requires. The name is any text."""
        call = wire.GetLogin(username if _may_be_a_name(username) else "")
        return self.ask(call, timeout=_ACCESS_TIMEOUT)

    def settings(self) -> wire.ApiSettings:
        """Return the settings of the API itself, as the running configuration has them now."""
        return self.ask(wire.GetApiSettings(), timeout=_ACCESS_TIMEOUT)

    def dependencies(self, *, timeout: float | None = None) -> tuple[Dependency, ...]:
        """Return the health of what the core depends on: nothing for a core without the method."""
        try:
            return self.reply(GetDependencies(), timeout=timeout).dependencies
        except CoreLacksMethod:
            return ()

    def sessions_version(self) -> str | None:
        """Another one after each change of a session. None for a core without the method."""
        try:
            return self.reply(sessions.GetSessionsVersion()).version
        except CoreLacksMethod:
            return None

    def list_sessions(self, filter: Mapping[str, str], sort: str | None, page: Page | None) -> Listed:
        wanted = msgspec.convert(filter, sessions.SessionFilter)
        return self.listed(sessions.ListSessions(wanted, sort, page=page))

    def session(self, id: int) -> msgspec.Raw:
        """Return the session's record. Raises NotFound."""
        record = self.fields(sessions.GetSession(id), "session")["session"]
        # Varlink has no ids of calls: this tells that a core has mixed up its replies.
        if (found := decoded(_Identified, record).id) != id:
            raise CoreUnavailable(f"the reply to GetSession has session {found}, not {id}")
        return record

    def talkers(self, call: traffic.ListTalkers) -> msgspec.Raw:
        """Return the reply to the call."""
        return self.raw(call, timeout=_TALKERS_TIMEOUT)

    def disconnect_session(self, id: int) -> sessions.SessionSnapshot:
        """Return the session at its end. Raises NotFound."""
        return sessions.SessionSnapshot.of(self.reply(sessions.DisconnectSession(id)).session)

    def disconnect_interface(self, interface: str, *, dry_run: bool) -> list[msgspec.Raw]:
        """Return the records of the sessions that ended or, in a dry run, would end. Raises NotFound."""
        reply = self.fields(sessions.DisconnectInterface(interface, dry_run), "sessions")
        return decoded(list[msgspec.Raw], reply["sessions"])

    def set_session_rate(
        self, id: int, **change: Any
    ) -> tuple[sessions.SessionSnapshot, sessions.SessionRates]:
        """Return the session before the change, and its rates after it. `change` has the parameters of
        SetSessionRate. Raises NotFound."""
        reply = self.reply(sessions.SetSessionRate(id, **change))
        return sessions.SessionSnapshot.of(reply.before), sessions.SessionRates.of(reply.after)

    def start_rate_job(self, filter: Mapping[str, str], per_second: int, **change: Any) -> jobs.Job:
        """`change` has the parameters of the same name. Raises Conflict while too many jobs run."""
        wanted = msgspec.convert(filter, sessions.SessionFilter)
        return self.reply(jobs.StartRateJob(wanted, per_second=per_second, **change)).job

    def start_disconnect_job(self, filter: Mapping[str, str], per_second: int) -> jobs.Job:
        """Raises Conflict while too many jobs run."""
        wanted = msgspec.convert(filter, sessions.SessionFilter)
        return self.reply(jobs.StartDisconnectJob(wanted, per_second)).job

    def sections(self, call: Method[wire.ConfigurationReply]) -> tuple[Sections, str]:
        """Return the sections of a configuration, secrets masked, and the entity tag."""
        reply = self.fields(call, "configuration", "etag")
        return decoded(Sections, reply["configuration"]), decoded(str, reply["etag"])

    def compare(self, revision: int | None, to: int | None = None) -> wire.ComparisonReply:
        """From an archived revision, or from the running configuration for None, to the candidate for None,
        to the running configuration for 0, or to an archived revision. Raises NotFound."""
        return self.reply(
            wire.CompareConfiguration(None if revision is None else _revision(revision), to and _revision(to))
        )

    def edit(self, edits: Sequence[wire.Edit], if_match: IfMatch) -> wire.EditReply:
        """Stage all or none. Raises EditRefused, Invalid and EditNotFound."""
        return self.reply(wire.EditCandidate(_sent(edits), if_match))

    def edit_all(self, edits: Sequence[wire.Edit], if_match: IfMatch) -> wire.EditReply:
        """Stage all or none, as `edit` does. An error names the edit: `operations` and its number."""
        try:
            return self.edit(edits, if_match)
        except EditRefused as error:
            above = f"operations.{error.number}"
            problems = (Problem(f"{above}.{p.path}", p.code, p.message) for p in error.problems)
            raise Invalid(*problems) from error
        except EditNotFound as error:
            raise NotFound(f"operations.{error.number}: {error}") from error

    def commit(self, if_match: IfMatch = None, **terms: Any) -> wire.CommitReply:
        """`terms` has the other parameters of CommitCandidate. Raises Invalid, and Conflict if more sessions
        would end than `max_sessions_dropped`."""
        call = wire.CommitCandidate(_AUTHOR_OF_CLIENT, **terms, if_match=if_match)
        return self.reply(call, timeout=_COMMIT_TIMEOUT)

    def confirm(self) -> None:
        """Confirm a commit. The services may have to follow, as for a commit."""
        self.raw(wire.ConfirmCommit(), timeout=_COMMIT_TIMEOUT)

    def replace(self, document: dict[str, Any], if_match: IfMatch) -> wire.CommitReply:
        """Commit a whole configuration. Raises Invalid, and Conflict while the candidate has changes."""
        call = wire.ReplaceConfiguration(document, _AUTHOR_OF_CLIENT, if_match=if_match)
        return self.reply(call, timeout=_COMMIT_TIMEOUT)

    def amend(self, edits: Sequence[wire.Edit], author: str, action: str) -> wire.CommitReply:
        """Commit edits of the running configuration; the candidate keeps its changes. The core reports the
        change as `action`. Raises EditRefused, Invalid and EditNotFound."""
        call = wire.AmendConfiguration(_sent(edits), author, action=action)
        return self.reply(call, timeout=_COMMIT_TIMEOUT)

    def restore(self, revision: int, author: str, action: str) -> wire.CommitReply:
        """Commit an archived revision; the candidate keeps its changes. The core reports the change as
        `action`. Raises NotFound."""
        call = wire.RestoreRevision(_revision(revision), author, action=action)
        return self.reply(call, timeout=_COMMIT_TIMEOUT)

    def rollback(self, revision: int, if_match: IfMatch) -> wire.StagedReply:
        """Stage an archived revision. Raises NotFound."""
        return self.reply(wire.RollbackCandidate(_revision(revision), if_match))

    def archived(self, revision: int) -> Fields:
        """Return the fields of ArchivedRevisionReply, secrets masked. Raises NotFound."""
        return self.fields(wire.GetArchivedRevision(_revision(revision)))

    def _replies(self, call: Method[Any], *, more: bool = False, timeout: float | None = None) -> list[Reply]:
        at_once = not more and call.comes_at_once
        return self._client.exchange(self._named(call), more=more, at_once=at_once, timeout=timeout)


def _defaults(reply: type[Any]) -> Fields:
    """Return the fields of a reply that have a default, with it."""
    fields = msgspec.structs.fields(reply)
    return {
        field.name: msgspec.Raw(msgspec.json.encode(field.default))
        for field in fields
        if field.default is not msgspec.NODEFAULT
    }


def _require_fields(call: Method[Any], held: Fields, names: Iterable[str]) -> Fields:
    try:
        return {name: held[name] for name in names}
    except KeyError as error:
        raise CoreUnavailable(f"the reply to {type(call).__name__} lacks {error}") from error


def _sent(edits: Iterable[wire.Edit]) -> tuple[wire.ConfigurationEdit, ...]:
    return tuple(wire.ConfigurationEdit(edit.action, edit.path, _json(edit)) for edit in edits)


def _json(edit: wire.Edit) -> str | None:
    if edit.action == wire.EditAction.DELETE:
        return None
    try:
        return msgspec.json.encode(edit.value).decode()
    except RecursionError as error:
        # The decoder allows a little more depth.
        raise Invalid(Problem(edit.path, "invalid", "must not be nested as deeply")) from error


def _revision(number: int) -> int:
    """Return the number. Raises NotFound for one that the core cannot read."""
    if not 1 <= number < 1 << 31:
        raise NotFound("No such revision")
    return number


def _may_be_a_name(username: str) -> bool:
    # A call cannot carry half a surrogate pair, or a text as long as a request.
    return len(username) <= _LONGEST_NAME and username.isprintable()
