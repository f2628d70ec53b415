"""The client of the core daemon. Errors on the wire become exceptions of `base/errors.py`.

Records stay unparsed JSON (`Fields`) unless the API needs their values.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

import msgspec

from gateway_contract.base.errors import (
    Conflict,
    CoreAbsent,
    CoreBusy,
    CoreLacksMethod,
    CoreUnanswered,
    CoreUnavailable,
    GatewayApiError,
    Invalid,
    ListTooLarge,
    NotFound,
    Problem,
    Stale,
    StepFailed,
    StillConnected,
)
from gateway_contract.base.pages import CURSOR_RULE
from gateway_contract.base.texts import parse_path
from gateway_contract.base.turns import give_way
from gateway_contract.configuration import mask_path, quotes_hint
from gateway_contract.contract import Command, Method, Page, PagedMethod, get_list_field, get_reply_type
from gateway_contract.contract_client import ContractClient, decode
from gateway_contract.core import configuration as wire
from gateway_contract.core import jobs, sessions, traffic
from gateway_contract.core.health import Dependency, GetDependencies
from gateway_contract.core.impact import CommitDropsSessionsError
from gateway_contract.core.interface import CORE
from gateway_contract.varlink.client import Busy, Client, NoSocket, NotSent, TooLarge, Unreachable
from gateway_contract.varlink.protocol import ErrorReply, Reply

#: Fields of a reply, each still JSON bytes.
Fields: TypeAlias = dict[str, msgspec.Raw]
Sections: TypeAlias = dict[str, msgspec.Raw]
IfMatch: TypeAlias = Sequence[str] | None

R = TypeVar("R")
T = TypeVar("T")

#: Seconds of the call that checks access. It comes before the call of the request, and both must end within
#: the 5 s of a response.
_ACCESS_TIMEOUT = 1.5
#: Seconds of ListTalkers. Its first sample takes a second, and the sort of 200,000 sessions takes another.
_TALKERS_TIMEOUT = 4.5
#: Seconds of a commit: it writes a dozen files, runs FRR's parser and changes 100,000 sessions. After a
#: timeout, a second commit would find nothing to commit.
_COMMIT_TIMEOUT = 30.0
#: The author of a command, until `CoreClient.call_raw` sets it.
_CLIENT_AUTHOR = ""
#: The most characters of the name of a user.
_MAX_USERNAME_LENGTH = 256
_EMPTY = re.compile(rb"\[[ \t\r\n]*\]")
#: Fields of a page, which a whole list leaves out.
_PAGE_FIELDS = {"total", "next_cursor"}

#: Errors whose parameters the client has sent: their type, and the text for the client.
_PLAIN_ERRORS: dict[str, tuple[type[GatewayApiError], str]] = {
    "SessionNotFound": (NotFound, "No such session"),
    "InterfaceNotFound": (NotFound, "No such interface"),
    "JobNotFound": (NotFound, "No such job"),
    "JobEnded": (Conflict, "The job has ended"),
    "TooManyJobs": (Conflict, f"{jobs.MAX_RUNNING_JOBS} jobs run already; wait, or cancel one"),
    "UserNotFound": (NotFound, "No such user"),
    "RevisionNotFound": (NotFound, "No such revision"),
    "CandidateStaged": (
        Conflict,
        "Somebody has staged changes, which have to be committed or discarded first",
    ),
    "NothingToConfirm": (Conflict, "No commit waits for a confirmation"),
}


#: The rules of parameters that only the core can check.
_PARAMETER_RULES = {
    "cursor": CURSOR_RULE,
    "until": f"must be in the next {sessions.MAX_EXPIRY_SECONDS // 86_400} days",
}

#: Decodes a part of a reply. Raises CoreUnavailable.
decode_part = partial(decode, unavailable=CoreUnavailable)


class EditRefused(Invalid):
    """Refusal of several edits, because one edit breaks a rule. The core has made none of the edits."""

    def __init__(self, number: int, problems: Iterable[Problem]) -> None:
        #: The number of the edit, from 0.
        self.number = number
        super().__init__(*problems)


class EditNotFound(NotFound):
    """Refusal of several edits, because one edit deletes a path that does not exist. The core has made none
    of the edits."""

    def __init__(self, number: int, message: str) -> None:
        #: The number of the edit, from 0.
        self.number = number
        super().__init__(message)


@dataclass(frozen=True)
class ListParts:
    """A list or a page, in several parts. `arrays` are JSON arrays of records, and none of these arrays is
    empty. Joined, the arrays are the field `name` of the reply. `others` contains the other fields of the
    reply."""

    name: str
    arrays: Sequence[msgspec.Raw]
    others: Fields


class CallOrigin(NamedTuple):
    """The origin of commands: the user `author`, and `new_id`, a function that creates an id for each
    command. The core reports a change without an id as a change by another process."""

    author: str | None = None
    new_id: Callable[[], str] | None = None


_NO_ORIGIN = CallOrigin()


class _SessionId(msgspec.Struct):
    id: int


class CoreClient(ContractClient):
    """Client of the core daemon. `call`, `call_fields`, `call_list` and `call_raw` can call any method of the
    core. The other methods check arguments, set a timeout, or join several replies. Each command contains its
    author.

    Every method raises CoreUnavailable if the core cannot be reached or if its reply breaks the contract,
    CoreLacksMethod if the core does not have an optional method, and the matching exception of
    `base/errors.py` after an error reply.

    An ETag identifies the running configuration and the candidate together. A method with `if_match` raises
    Stale if the present ETag is not in `if_match`; None matches any ETag. Such a method also raises
    StepFailed if a step of the change fails.
    """

    contract, unavailable = CORE, CoreUnavailable

    def __init__(self, client: Client, origin: CallOrigin = _NO_ORIGIN) -> None:
        super().__init__(client)
        self._origin = origin

    def with_origin(self, author: str | None, new_id: Callable[[], str] | None = None) -> Self:
        """Return a client for the calls of one request. `author` and `new_id` are the fields of
        `CallOrigin`."""
        return type(self)(self._client, CallOrigin(author, new_id))

    def call_raw(self, call: Method[Any], *, timeout: float | None = None) -> msgspec.Raw:
        """Send a call and return the whole reply as unparsed JSON. A command gets the author and a new id
        from the origin of this client."""
        if isinstance(call, Command):
            if self._origin.new_id is not None and not getattr(call, "dry_run", False):
                call = msgspec.structs.replace(call, request_id=self._origin.new_id())
            # Not every command has an author.
            if self._origin.author and "author" in call.__struct_fields__:
                call = msgspec.structs.replace(call, author=self._origin.author)
        return super().call_raw(call, timeout=timeout)

    def translate_error(self, error: Unreachable | ErrorReply, call: Method[Any]) -> GatewayApiError:
        match error:
            case ErrorReply():
                return _translate_core_error(error, call)
            case TooLarge():
                return Invalid(Problem("", "invalid", "The request is too large for the core"))
            case NoSocket():
                return CoreAbsent(str(error))
            case Busy() if isinstance(call, PagedMethod | sessions.GetSessionsVersion):
                return CoreBusy(str(error))
            case NotSent():
                return super().translate_error(error, call)
            case _ if isinstance(call, Command) and call.request_id is not None:
                return CoreUnanswered(str(error))
            case _:
                return super().translate_error(error, call)

    def ask(self, call: Method[R], *, timeout: float | None = None) -> R:
        """Send a read for the API's own use, and return the reply. If the core rejects the parameters, raises
        CoreUnavailable, because no client of the API can correct these parameters."""
        try:
            with self._translate_errors(call):
                (reply,) = super()._replies(call, timeout=timeout)
                raw = reply.result()
        except Invalid as error:
            raise CoreUnavailable(f"the core rejected {type(call).__name__}: {error}") from error
        kind: type[R] = get_reply_type(type(call))
        return decode_part(kind, raw)

    def require_method(self, call: Method[Any]) -> None:
        """Check that the core has the streaming method of `call`. Raises CoreLacksMethod if the core does not
        have the method."""
        with self._translate_errors(call):
            # Without `more` the core replies at once, at least with ExpectedMore.
            (reply,) = self._replies(call)
            try:
                reply.result()
            except ErrorReply as error:
                if error.is_unknown_method:
                    raise

    def call_fields(self, call: Method[Any], *names: str) -> Fields:
        """Return the named fields of a reply as JSON, or all fields if no name is given. Raises
        CoreUnavailable if a field is missing."""
        held = decode_part(Fields, self.call_raw(call))
        return _require_fields(call, held, names or get_reply_type(type(call)).__struct_fields__)

    def call_list(self, call: PagedMethod[Any]) -> ListParts:
        """Return a list, or one page of a list. The core sends a long list in several replies, which this
        method joins."""
        name = get_list_field(type(call))
        left_out = _PAGE_FIELDS if call.page is None else ()
        reply_type = get_reply_type(type(call))
        names = [field for field in reply_type.__struct_fields__ if field not in left_out]
        omitted = _default_fields(reply_type)
        arrays: list[msgspec.Raw] = []
        others: Fields = {}
        count = 0
        with self._translate_errors(call):
            for number, reply in enumerate(self._replies(call, more=not call.comes_at_once)):
                if number:
                    give_way()
                # A reply may omit a field that is null. An older core omits fields that are newer.
                held = omitted | decode_part(Fields, reply.result())
                others = _require_fields(call, held, names)
                arrays.append(others.pop(name))
                count += decode_part(int, others["count"])
        if not all(bytes(memoryview(array)[:1]) == b"[" for array in arrays):
            raise CoreUnavailable(f"the reply to {type(call).__name__} has no array {name}")
        others["count"] = msgspec.Raw(b"%d" % count)
        return ListParts(name, [array for array in arrays if not _EMPTY.fullmatch(array)], others)

    def check_access(self, usernames: Iterable[str], *, timeout: float | None = None) -> wire.AccessReply:
        """Return whether the API is enabled, and the existing users among these usernames."""
        names = tuple(filter(_is_possible_username, usernames))
        return self.ask(wire.CheckAccess(names), timeout=timeout or _ACCESS_TIMEOUT)

    def get_login(self, username: str) -> wire.LoginReply:
        """Return the data of a user that a password check needs. `username` may be any text that a client
        sent."""
        call = wire.GetLogin(username if _is_possible_username(username) else "")
        return self.ask(call, timeout=_ACCESS_TIMEOUT)

    def get_settings(self) -> wire.ApiSettings:
        """Return the settings of the API in the running configuration."""
        return self.ask(wire.GetApiSettings(), timeout=_ACCESS_TIMEOUT)

    def get_dependencies(self, *, timeout: float | None = None) -> tuple[Dependency, ...]:
        """Return the health of the core's dependencies. The result is empty if the core does not have the
        method."""
        try:
            return self.call(GetDependencies(), timeout=timeout).dependencies
        except CoreLacksMethod:
            return ()

    def get_sessions_version(self) -> str | None:
        """Return the version of the list of sessions, which changes with each change of a session. Return
        None if the core does not have the method."""
        try:
            return self.call(sessions.GetSessionsVersion()).version
        except CoreLacksMethod:
            return None

    def list_sessions(self, filter: Mapping[str, str], sort: str | None, page: Page | None) -> ListParts:
        wanted = msgspec.convert(filter, sessions.SessionFilter)
        return self.call_list(sessions.ListSessions(wanted, sort, page=page))

    def get_session(self, id: int) -> msgspec.Raw:
        """Return the record of a session. Raises NotFound if there is no session with this id."""
        record = self.call_fields(sessions.GetSession(id), "session")["session"]
        # Varlink calls have no ids: without this check, a core that mixes up its replies would go unnoticed.
        if (found := decode_part(_SessionId, record).id) != id:
            raise CoreUnavailable(f"the reply to GetSession has session {found}, not {id}")
        return record

    def list_talkers(self, call: traffic.ListTalkers) -> msgspec.Raw:
        """Return the sessions with the most traffic, as unparsed JSON."""
        return self.call_raw(call, timeout=_TALKERS_TIMEOUT)

    def disconnect_session(self, id: int) -> sessions.SessionSnapshot:
        """Disconnect a session and return its last record. Raises NotFound if there is no session with this
        id."""
        return sessions.SessionSnapshot.of(self.call(sessions.DisconnectSession(id)).session)

    def disconnect_interface(self, interface: str, *, dry_run: bool) -> list[msgspec.Raw]:
        """Disconnect the sessions of an access interface and return their records. With `dry_run`, only
        return the records. Raises NotFound if there is no such interface."""
        reply = self.call_fields(sessions.DisconnectInterface(interface, dry_run), "sessions")
        return decode_part(list[msgspec.Raw], reply["sessions"])

    def set_session_rate(
        self, id: int, **change: Any
    ) -> tuple[sessions.SessionSnapshot, sessions.SessionRates]:
        """Change the rates of a session. Return the session before the change, and its new rates. `change`
        contains the other parameters of SetSessionRate. Raises NotFound if there is no session with this
        id."""
        reply = self.call(sessions.SetSessionRate(id, **change))
        return sessions.SessionSnapshot.of(reply.before), sessions.SessionRates.of(reply.after)

    def start_rate_job(self, filter: Mapping[str, str], per_second: int, **change: Any) -> jobs.Job:
        """Start a job that changes the rates of the sessions that match `filter`, at most `per_second`
        sessions a second. `change` contains the other parameters of StartRateJob. Raises Conflict if too many
        jobs run already."""
        wanted = msgspec.convert(filter, sessions.SessionFilter)
        return self.call(jobs.StartRateJob(wanted, per_second=per_second, **change)).job

    def start_disconnect_job(self, filter: Mapping[str, str], per_second: int) -> jobs.Job:
        """Start a job that disconnects the sessions that match `filter`, at most `per_second` sessions a
        second. Raises Conflict if too many jobs run already."""
        wanted = msgspec.convert(filter, sessions.SessionFilter)
        return self.call(jobs.StartDisconnectJob(wanted, per_second)).job

    def get_sections(self, call: Method[wire.ConfigurationReply]) -> tuple[Sections, str]:
        """Return the sections of a configuration, with masked secrets, and the ETag."""
        reply = self.call_fields(call, "configuration", "etag")
        return decode_part(Sections, reply["configuration"]), decode_part(str, reply["etag"])

    def compare(self, revision: int | None, to: int | None = None) -> wire.ComparisonReply:
        """Return the difference between two configurations. The older configuration is `revision`: an
        archived revision, or None for the running configuration. The newer configuration is `to`: an archived
        revision, 0 for the running configuration, or None for the candidate. Raises NotFound if the archive
        does not have a revision."""
        return self.call(
            wire.CompareConfiguration(
                None if revision is None else _check_revision(revision), to and _check_revision(to)
            )
        )

    def edit(self, edits: Sequence[wire.Edit], if_match: IfMatch) -> wire.EditReply:
        """Stage all edits, or none. Raises EditRefused if an edit breaks a rule, EditNotFound if an edit
        deletes a path that does not exist, and Invalid if the candidate would be too large or an edit is
        nested too deeply."""
        return self.call(wire.EditCandidate(_encode_edits(edits), if_match))

    def edit_all(self, edits: Sequence[wire.Edit], if_match: IfMatch) -> wire.EditReply:
        """Stage all edits, or none. Raises Invalid if an edit breaks a rule, and NotFound if an edit deletes
        a path that does not exist. The error text contains the number of the edit, such as `operations.0`."""
        try:
            return self.edit(edits, if_match)
        except EditRefused as error:
            above = f"operations.{error.number}"
            problems = (Problem(f"{above}.{p.path}", p.code, p.message) for p in error.problems)
            raise Invalid(*problems) from error
        except EditNotFound as error:
            raise NotFound(f"operations.{error.number}: {error}") from error

    def commit(self, if_match: IfMatch = None, **terms: Any) -> wire.CommitReply:
        """Commit the candidate. `terms` contains the other parameters of CommitCandidate. Raises Invalid if
        the candidate is not valid, and Conflict if the commit would end more sessions than
        `max_sessions_dropped`."""
        call = wire.CommitCandidate(_CLIENT_AUTHOR, **terms, if_match=if_match)
        return self.call(call, timeout=_COMMIT_TIMEOUT)

    def confirm(self) -> None:
        """Confirm the commit that waits for a confirmation. Services may restart, as after a commit. Raises
        Conflict if no commit waits."""
        self.call_raw(wire.ConfirmCommit(), timeout=_COMMIT_TIMEOUT)

    def replace(self, document: dict[str, Any], if_match: IfMatch) -> wire.CommitReply:
        """Replace the running configuration and commit. Raises Invalid if the document is not valid, and
        Conflict if the candidate has changes."""
        call = wire.ReplaceConfiguration(document, _CLIENT_AUTHOR, if_match=if_match)
        return self.call(call, timeout=_COMMIT_TIMEOUT)

    def commit_edits(self, edits: Sequence[wire.Edit], author: str, action: str) -> wire.CommitReply:
        """Commit edits of the running configuration; the candidate keeps its changes. `action` is the name of
        the change in the core's log. Raises EditRefused if an edit breaks a rule, EditNotFound if an edit
        deletes a path that does not exist, and Invalid if the result is not valid."""
        call = wire.AmendConfiguration(_encode_edits(edits), author, action=action)
        return self.call(call, timeout=_COMMIT_TIMEOUT)

    def restore(self, revision: int, author: str, action: str) -> wire.CommitReply:
        """Commit an archived revision; the candidate keeps its changes. `action` is the name of the change in
        the core's log. Raises NotFound if the archive does not have the revision."""
        call = wire.RestoreRevision(_check_revision(revision), author, action=action)
        return self.call(call, timeout=_COMMIT_TIMEOUT)

    def rollback(self, revision: int, if_match: IfMatch) -> wire.StagedReply:
        """Replace the candidate by an archived revision. Raises NotFound if the archive does not have the
        revision."""
        return self.call(wire.RollbackCandidate(_check_revision(revision), if_match))

    def get_archived_revision(self, revision: int) -> Fields:
        """Return the fields of ArchivedRevisionReply, with masked secrets. Raises NotFound if the archive
        does not have the revision."""
        return self.call_fields(wire.GetArchivedRevision(_check_revision(revision)))

    def _replies(self, call: Method[Any], *, more: bool = False, timeout: float | None = None) -> list[Reply]:
        at_once = not more and call.comes_at_once
        return self._client.exchange(self._wire_call(call), more=more, at_once=at_once, timeout=timeout)


def _default_fields(reply: type[Any]) -> Fields:
    """Return the defaults of a reply as JSON, by the name of the field. Fields without a default are
    omitted."""
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


def _encode_edits(edits: Iterable[wire.Edit]) -> tuple[wire.ConfigurationEdit, ...]:
    return tuple(wire.ConfigurationEdit(edit.action, edit.path, _json(edit)) for edit in edits)


def _json(edit: wire.Edit) -> str | None:
    if edit.action == wire.EditAction.DELETE:
        return None
    try:
        return msgspec.json.encode(edit.value).decode()
    except RecursionError as error:
        # The decoder allows a little more depth.
        raise Invalid(Problem(edit.path, "invalid", "must not be nested as deeply")) from error


def _check_revision(number: int) -> int:
    """Return the revision number unchanged. Raises NotFound if no revision can have this number."""
    if not 1 <= number < 1 << 31:
        raise NotFound("No such revision")
    return number


def _is_possible_username(username: str) -> bool:
    # A call cannot hold half a surrogate pair, or a text as long as a request.
    return len(username) <= _MAX_USERNAME_LENGTH and username.isprintable()


def _translate_core_error(error: ErrorReply, call: Method[Any]) -> GatewayApiError:
    """Return the exception of `base/errors.py` for an error reply of the core."""
    if error.is_unknown_method:
        method = type(call).__name__
        if type(call) in CORE.optional:
            return CoreLacksMethod(method)
        return CoreUnavailable(f"the core lacks the method {method}, which every core must have")
    name = error.name.removeprefix(f"{CORE.name}.")
    match name:
        case _ if name in _PLAIN_ERRORS:
            kind, text = _PLAIN_ERRORS[name]
            return kind(text)
        case "ReplyTooLarge":
            return ListTooLarge()
        case "EditRefused":
            refused = _parameters(error, wire.EditRefusedError)
            return EditRefused(refused.edit, _problems(refused.problems))
        case "PathNotFound":
            missing = _parameters(error, wire.PathNotFoundError)
            return EditNotFound(missing.edit, f"The candidate has no {_show_path(missing.path)}")
        case "ConfigurationInvalid":
            return Invalid(*_problems(_parameters(error, wire.ConfigurationInvalidError).problems))
        case "ConfigurationChanged":
            return Stale(_parameters(error, wire.ConfigurationChangedError).etag)
        case "CommitDropsSessions":
            drops = _parameters(error, CommitDropsSessionsError)
            ended = f"{drops.sessions_dropped} session{'' if drops.sessions_dropped == 1 else 's'}"
            return Conflict(
                f"The commit would end {ended}, and max_sessions_dropped is {drops.allowed}. "
                "Nothing was changed"
            )
        case "StepFailed":
            failed = _parameters(error, wire.StepFailedError)
            return StepFailed(failed.step, failed.reason)
        case "SessionsConnected":
            left = _parameters(error, sessions.SessionsConnectedError)
            return StillConnected(left.connected, left.ended, left.reason)
        case "org.varlink.service.InvalidParameter" if _has_parameters(call):
            return Invalid(_parameter_problem(_parameters(error, dict[str, Any]).get("parameter")))
        case _:
            return CoreUnavailable(f"the core replied with {error.name}")


def _show_path(path: str) -> str:
    """Return a path that does not exist, with masked secrets, for an error text. If the path may lack quotes,
    the text ends with a hint."""
    hint = ""
    with suppress(ValueError):
        hint = quotes_hint(parse_path(path))
    return mask_path(path) + hint


def _parameters(error: ErrorReply, kind: type[T]) -> T:
    return decode(kind, error.parameters, CoreUnavailable)


def _has_parameters(call: Method[Any]) -> bool:
    given = msgspec.structs.asdict(call) | {"request_id": None}
    return any(value is not None for value in given.values())


def _problems(problems: Iterable[wire.ConfigurationProblem]) -> list[Problem]:
    return [Problem(problem.path, problem.code, problem.message) for problem in problems]


def _parameter_problem(parameter: Any) -> Problem:
    # `page.cursor` of the core is `cursor` of the request.
    name = parameter.rpartition(".")[2] if isinstance(parameter, str) else ""
    return Problem(name, "invalid", _PARAMETER_RULES.get(name, "is invalid"))
