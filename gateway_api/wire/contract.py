"""What a contract with another process consists of: records, calls, errors and enumerations.

A method is declared as the struct of its parameters, `class GetSession(Method[SessionReply])`: the name of
the class is the name of the method, its docstring the comment. The interface file, the dispatcher, the client
and the OpenAPI document all come from these classes.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar, get_args

import msgspec

from gateway_api.wire.varlink.message import ErrorReply

R = TypeVar("R")


def about(description: str, *examples: Any, **schema: Any) -> msgspec.Meta:
    """The documentation of a field: a sentence, with the unit if there is one; values as they go over the
    wire; and keywords of JSON Schema, such as `minimum` or `format`. Nothing of it is checked: a rule that
    must hold is a `msgspec.Meta` of its own beside this one."""
    return msgspec.Meta(
        description=description, examples=list(examples) or None, extra_json_schema=schema or None
    )


def count(description: str, example: int) -> msgspec.Meta:
    """As `about`, for a number that is never negative."""
    return about(description, example, minimum=0)


class Record(msgspec.Struct, frozen=True, gc=False):
    """What a reply consists of. A reader ignores fields that it does not know."""


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a call consists of. An unknown field is an error, a field that is null may be left out."""


class Nothing(Record, frozen=True):
    """The reply of a method that returns nothing."""


class Method(Parameters, Generic[R], frozen=True):
    """The parameters of a method whose reply is an `R`, or which `streams` one `R` after another."""

    streams: ClassVar[bool] = False


class Command(Method[R], frozen=True, kw_only=True):
    """The parameters of a method that changes something, and of which the API keeps its own record."""

    request_id: Annotated[
        str | None, about("Id of the API's request; without one ListChanges reports the change.", "req-42")
    ] = None


class Failure(Record, frozen=True):
    """The parameters of an error. The name of the class is the error's, with `Error` behind it."""


class Enumeration(StrEnum):
    """Each member is a pair: the text on the wire, and a comment."""

    comment: str

    def __new__(cls, value: str, comment: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.comment = comment
        return member


@dataclass(frozen=True)
class Contract:
    """An interface: its methods and errors in the order of the interface file, and the comment at its top."""

    name: str
    comment: str
    methods: tuple[type[Method[Any]], ...]
    errors: tuple[type[Failure], ...]

    def method(self, method: type[Method[Any]]) -> str:
        """The full name of a method."""
        return f"{self.name}.{method.__name__}"

    def error(self, failure: Failure) -> ErrorReply:
        """The error, to be raised by a handler."""
        name = f"{self.name}.{error_name(type(failure))}"
        return ErrorReply(name, msgspec.Raw(msgspec.json.encode(failure)))


def error_name(failure: type[Failure]) -> str:
    """The name of an error in the interface."""
    return failure.__name__.removesuffix("Error")


def reply_of(method: type[Method[Any]]) -> type[Any]:
    """The record that a method replies with."""
    (base,) = method.__orig_bases__  # type: ignore[attr-defined]
    reply: type[Any] = get_args(base)[0]
    return reply
