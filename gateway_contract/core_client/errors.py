"""Errors of the core's methods as those of `base/errors.py`."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from gateway_contract.base.errors import (
    Conflict,
    CoreLacksMethod,
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
from gateway_contract.configuration import masked_path, quotes_hint
from gateway_contract.contract import Method
from gateway_contract.contract_client import decode
from gateway_contract.core import configuration as wire
from gateway_contract.core import sessions
from gateway_contract.core.impact import CommitDropsSessionsError
from gateway_contract.core.interface import CORE
from gateway_contract.core.jobs import MOST_RUNNING
from gateway_contract.core.sessions import LONGEST_EXPIRY
from gateway_contract.varlink.protocol import ErrorReply

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
    """Return the error of a call as one of `base/errors.py`."""
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
            refused = _parameters(error, wire.EditRefusedError)
            return EditRefused(refused.edit, _problems(refused.problems))
        case "PathNotFound":
            missing = _parameters(error, wire.PathNotFoundError)
            return EditNotFound(missing.edit, f"The candidate has no {_shown_path(missing.path)}")
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
            return Invalid(_problem(_parameters(error, dict[str, Any]).get("parameter")))
        case _:
            return CoreUnavailable(f"the core replied with {error.name}")


def _shown_path(path: str) -> str:
    """Return a path that does not exist, with a hint if the path may have lost its quotes."""
    hint = ""
    with suppress(ValueError):
        hint = quotes_hint(parse_path(path))
    return masked_path(path) + hint


def _parameters(error: ErrorReply, kind: type[T]) -> T:
    return decode(kind, error.parameters, CoreUnavailable)


def _has_parameters(call: Method[Any]) -> bool:
    given = msgspec.structs.asdict(call) | {"request_id": None}
    return any(value is not None for value in given.values())


def _problems(problems: Iterable[wire.ConfigurationProblem]) -> list[Problem]:
    return [Problem(problem.path, problem.code, problem.message) for problem in problems]


def _problem(parameter: Any) -> Problem:
    # The core's page.cursor is the request's cursor.
    name = parameter.rpartition(".")[2] if isinstance(parameter, str) else ""
    return Problem(name, "invalid", _RULES.get(name, "is invalid"))
