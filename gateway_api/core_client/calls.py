"""Calls of the core's methods. Errors of the wire become those of `base/errors.py`."""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

import msgspec

from gateway_api.base.errors import (
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
from gateway_api.base.pages import CURSOR_RULE
from gateway_api.base.texts import parse_path
from gateway_api.base.turns import give_way
from gateway_api.wire.configuration import masked_path, quotes_hint
from gateway_api.wire.contract import Command, Method, PagedMethod, list_field, reply_of
from gateway_api.wire.contract_client import ContractClient
from gateway_api.wire.core import configuration as wire
from gateway_api.wire.core import sessions
from gateway_api.wire.core.impact import CommitDropsSessionsError
from gateway_api.wire.core.interface import CORE
from gateway_api.wire.core.jobs import MOST_RUNNING
from gateway_api.wire.core.sessions import LONGEST_EXPIRY
from gateway_api.wire.varlink.client import Busy, Client, NoSocket, NotSent, TooLarge, Unreachable
from gateway_api.wire.varlink.protocol import ErrorReply, Reply

#: Fields of a reply, each still JSON bytes.
Fields: TypeAlias = dict[str, msgspec.Raw]

_EMPTY = re.compile(rb"\[[ \t\r\n]*\]")
#: Fields that a whole list has no use for.
_OF_A_PAGE = {"total", "next_cursor"}

R = TypeVar("R")
T = TypeVar("T")


class EditRefused(Invalid):
    """The core rejected one of several edits, and made none."""

    def __init__(self, number: int, problems: Iterable[Problem]) -> None:
        #: The number of the edit, from 0.
        self.number = number
        super().__init__(*problems)


class EditNotFound(NotFound):
    """One of several edits deletes a path that does not exist. The core made none."""

    def __init__(self, number: int, message: str) -> None:
        #: The number of the edit, from 0.
        self.number = number
        super().__init__(message)


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


class Calls(ContractClient):
    """Every method raises CoreUnavailable when the core cannot be reached, or when its reply breaks the
    contract, CoreLacksMethod, and the translation of the core's errors.
    Each command tells the core by whom it is."""

    contract, unavailable = CORE, CoreUnavailable

    def __init__(self, client: Client, by: By = _NOBODY) -> None:
        super().__init__(client)
        self._by = by

    def by(self, author: str | None, new_id: Callable[[], str] | None = None) -> Self:
        """For the calls of one request, as `By`."""
        return type(self)(self._client, By(author, new_id))

    def raw(self, call: Method[Any], *, timeout: float | None = None) -> msgspec.Raw:
        """The whole reply, unparsed."""
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
        """The reply to a read of the API's own, with nothing in it that a client could correct."""
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
        return _required(call, held, names or reply_of(type(call)).__struct_fields__)

    def listed(self, call: PagedMethod[Any]) -> Listed:
        """A list, or a page of it. The core sends it in parts if it may be long."""
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
                others = _required(call, held, names)
                arrays.append(others.pop(name))
                count += decoded(int, others["count"])
        if not all(bytes(memoryview(array)[:1]) == b"[" for array in arrays):
            raise CoreUnavailable(f"the reply to {type(call).__name__} has no array {name}")
        others["count"] = msgspec.Raw(b"%d" % count)
        return Listed(name, [array for array in arrays if not _EMPTY.fullmatch(array)], others)

    def _replies(self, call: Method[Any], *, more: bool = False, timeout: float | None = None) -> list[Reply]:
        at_once = not more and call.comes_at_once
        return self._client.exchange(self._named(call), more=more, at_once=at_once, timeout=timeout)


#: A part of a reply as a value. Raises CoreUnavailable.
decoded = Calls.decoded


def _defaults(reply: type[Any]) -> Fields:
    """The fields of a reply that have a default, with it."""
    fields = msgspec.structs.fields(reply)
    return {
        field.name: msgspec.Raw(msgspec.json.encode(field.default))
        for field in fields
        if field.default is not msgspec.NODEFAULT
    }


def _required(call: Method[Any], held: Fields, names: Iterable[str]) -> Fields:
    try:
        return {name: held[name] for name in names}
    except KeyError as error:
        raise CoreUnavailable(f"the reply to {type(call).__name__} lacks {error}") from error


#: Errors whose parameters a client knows already.
_TEXTS: dict[str, tuple[type[GatewayApiError], str]] = {
    "SessionNotFound": (NotFound, "No such session"),
    "InterfaceNotFound": (NotFound, "No such interface"),
    "JobNotFound": (NotFound, "No such job"),
    "JobEnded": (Conflict, "The job has ended"),
    "TooManyJobs": (Conflict, f"{MOST_RUNNING} jobs run already; wait, or cancel one"),
    "UserNotFound": (NotFound, "No such user"),
    "RevisionNotFound": (NotFound, "No such revision"),
    "CandidateStaged": (
        Conflict,
        "Somebody has staged changes, which have to be committed or discarded first",
    ),
    "NothingToConfirm": (Conflict, "No commit waits for a confirmation"),
}


#: Of parameters that only the core can check.
_RULES = {
    "cursor": CURSOR_RULE,
    "until": f"must be in the next {LONGEST_EXPIRY // 86_400} days",
}


def translation(error: ErrorReply, call: Method[Any]) -> GatewayApiError:
    """The error of a call as one of `base/errors.py`."""
    if error.lacks_method:
        method = type(call).__name__
        if type(call) in CORE.optional:
            return CoreLacksMethod(method)
        return CoreUnavailable(f"the core lacks the method {method}, which every core must have")
    name = error.name.removeprefix(f"{CORE.name}.")
    match name:
        case _ if name in _TEXTS:
            kind, text = _TEXTS[name]
            return kind(text)
        case "ReplyTooLarge":
            return ListTooLarge()
        case "EditRefused":
            refused = decoded(wire.EditRefusedError, error.parameters)
            return EditRefused(refused.edit, _problems(refused.problems))
        case "PathNotFound":
            missing = decoded(wire.PathNotFoundError, error.parameters)
            return EditNotFound(missing.edit, f"The candidate has no {_shown_path(missing.path)}")
        case "ConfigurationInvalid":
            return Invalid(*_problems(decoded(wire.ConfigurationInvalidError, error.parameters).problems))
        case "ConfigurationChanged":
            return Stale(decoded(wire.ConfigurationChangedError, error.parameters).etag)
        case "CommitDropsSessions":
            drops = decoded(CommitDropsSessionsError, error.parameters)
            ended = f"{drops.sessions_dropped} session{'' if drops.sessions_dropped == 1 else 's'}"
            return Conflict(
                f"The commit would end {ended}, and max_sessions_dropped is {drops.allowed}. "
                "Nothing was changed"
            )
        case "StepFailed":
            failed = decoded(wire.StepFailedError, error.parameters)
            return StepFailed(failed.step, failed.reason)
        case "SessionsConnected":
            left = decoded(sessions.SessionsConnectedError, error.parameters)
            return StillConnected(left.connected, left.ended, left.reason)
        case "org.varlink.service.InvalidParameter" if _has_parameters(call):
            return Invalid(_problem(decoded(dict[str, Any], error.parameters).get("parameter")))
        case _:
            return CoreUnavailable(f"the core replied with {error.name}")


def _shown_path(path: str) -> str:
    """Return a path that does not exist, with a hint if the path may have lost its quotes."""
    hint = ""
    with suppress(ValueError):
        hint = quotes_hint(parse_path(path))
    return masked_path(path) + hint


def _has_parameters(call: Method[Any]) -> bool:
    given = msgspec.structs.asdict(call) | {"request_id": None}
    return any(value is not None for value in given.values())


def _problems(problems: Iterable[wire.ConfigurationProblem]) -> list[Problem]:
    return [Problem(problem.path, problem.code, problem.message) for problem in problems]


def _problem(parameter: Any) -> Problem:
    # The core's page.cursor is the request's cursor.
    name = parameter.rpartition(".")[2] if isinstance(parameter, str) else ""
    return Problem(name, "invalid", _RULES.get(name, "is invalid"))
