"""Calls of the core's interface. The errors of the wire end here and become those of `errors.py`."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

import msgspec

from gateway_api.base.errors import (
    AnswerTooLarge,
    Conflict,
    CoreAbsent,
    CoreUnavailable,
    Invalid,
    NotDone,
    NotFound,
    Problem,
    Stale,
)
from gateway_api.wire.varlink.client import Client, NoSocket, TooLarge, Unreachable
from gateway_api.wire.varlink.message import ErrorReply

INTERFACE = "org.gatewayapi.core"

#: Fields of an answer, each still JSON bytes.
Fields: TypeAlias = dict[str, msgspec.Raw]

T = TypeVar("T")


class EditRefused(Invalid):
    """One of several edits is refused, and so are all."""

    def __init__(self, number: int, problems: Iterable[Problem]) -> None:
        #: Which one, from 0.
        self.number = number
        super().__init__(*problems)


class EditNotFound(NotFound):
    """One of several edits deletes what isn't there, and none was done."""

    def __init__(self, number: int, message: str) -> None:
        #: Which one, from 0.
        self.number = number
        super().__init__(message)


class Calls:
    """Every method raises CoreUnavailable when the core can't be asked, or answers nonsense; and what
    the core's own errors become. `timeout` is seconds, the client's own if None."""

    def __init__(self, client: Client, request_id: str | None = None) -> None:
        self._client = client
        self._request_id = request_id

    def for_request(self, id: str) -> "Calls":
        """The same, whose changes are known to be recorded by who makes them, under that id."""
        return Calls(self._client, id)

    def call(self, method: str, *, timeout: float | None = None, **parameters: Any) -> msgspec.Raw:
        """The whole answer, unparsed."""
        with _translated(any(name != "request_id" for name in parameters)):
            return self._client.call(f"{INTERFACE}.{method}", parameters, timeout=timeout)

    def change(self, method: str, *, timeout: float | None = None, **parameters: Any) -> msgspec.Raw:
        """The whole answer to a call that changes something. The core tells of a change without the id of a
        request, and it is recorded as somebody else's."""
        known = {} if self._request_id is None else {"request_id": self._request_id}
        return self.call(method, timeout=timeout, **parameters, **known)

    def changed(self, type: type[T], method: str, *, timeout: float | None = None, **parameters: Any) -> T:
        """As `change`, the answer as a struct."""
        return decoded(type, self.change(method, timeout=timeout, **parameters))

    def fields(self, method: str, *names: str, timeout: float | None = None, **parameters: Any) -> Fields:
        """The fields of these names, which must be there."""
        held = decoded(dict[str, msgspec.Raw], self.call(method, timeout=timeout, **parameters))
        # A field that may be null may be left out as well.
        held.setdefault("next_cursor", msgspec.Raw(b"null"))
        try:
            return {name: held[name] for name in names}
        except KeyError as error:
            raise CoreUnavailable(f"the reply to {method} lacks {error}") from error

    def typed(self, type: type[T], method: str, *, timeout: float | None = None, **parameters: Any) -> T:
        """The answer as a struct."""
        return decoded(type, self.call(method, timeout=timeout, **parameters))


def decoded(type: type[T], raw: msgspec.Raw) -> T:
    """What the bytes hold. Raises CoreUnavailable."""
    try:
        return msgspec.json.decode(raw, type=type)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CoreUnavailable(f"a reply that isn't as the interface says: {error}") from error


class _Problem(msgspec.Struct):
    path: str
    code: str
    message: str


class _Refusal(msgspec.Struct):
    """The parameters of any of the core's errors."""

    edit: int = 0
    problems: list[_Problem] = []
    path: str = ""
    etag: str = ""
    step: str = ""
    reason: str = ""
    #: Anybody's server writes this one, so it may be anything.
    parameter: Any = None


@contextmanager
def _translated(had_parameters: bool) -> Iterator[None]:
    try:
        yield
    except TooLarge as error:
        raise Invalid(Problem("", "invalid", "The request is too large for the core")) from error
    except NoSocket as error:
        raise CoreAbsent(str(error)) from error
    except Unreachable as error:
        raise CoreUnavailable(str(error)) from error
    except ErrorReply as error:
        raise _translation(error, had_parameters) from error


def _translation(error: ErrorReply, had_parameters: bool) -> Exception:
    said = decoded(_Refusal, error.parameters)
    problems = [Problem(p.path, p.code, p.message) for p in said.problems]
    match error.name.removeprefix(f"{INTERFACE}."):
        case "SessionNotFound":
            return NotFound("No such session")
        case "InterfaceNotFound":
            return NotFound("No such interface")
        case "ReplyTooLarge":
            return AnswerTooLarge("The whole list is too large for one answer; use limit")
        case "EditRefused":
            return EditRefused(said.edit, problems)
        case "PathNotFound":
            return EditNotFound(said.edit, f"The candidate has no {said.path}")
        case "ConfigurationInvalid":
            return Invalid(*problems)
        case "ConfigurationChanged":
            return Stale(said.etag)
        case "UserNotFound":
            return NotFound("No such user")
        case "RevisionNotFound":
            return NotFound("No such revision")
        case "CandidateStaged":
            return Conflict("Somebody has staged changes, which have to be committed or discarded first")
        case "NothingToConfirm":
            return Conflict("No commit waits for a confirmation")
        case "StepFailed":
            return NotDone(said.step, said.reason)
        case "org.varlink.service.InvalidParameter" if had_parameters:
            return Invalid(_problem(said.parameter))
        case _:
            return CoreUnavailable(f"the core answered with {error.name}")


def _problem(parameter: Any) -> Problem:
    # What the core calls page.cursor, the request calls cursor.
    name = parameter.rpartition(".")[2] if isinstance(parameter, str) else ""
    message = "must be what the last page gave as next_cursor" if name == "cursor" else "is invalid"
    return Problem(name, "invalid", message)
