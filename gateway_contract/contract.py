"""Building blocks of a contract with another process: records, methods, errors and enumerations.

A method is the struct of its parameters: `class GetSession(Method[SessionReply])` declares the method
GetSession, which returns a SessionReply. The docstring of the class becomes the comment in the interface
file. The interface file, the dispatcher, the client and the OpenAPI document are generated from these
classes.
"""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from types import NoneType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    Self,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta

from gateway_contract.varlink.dispatcher import Handler, ServedInterface
from gateway_contract.varlink.protocol import ErrorReply

R = TypeVar("R")
S = TypeVar("S", bound=msgspec.Struct)

#: The most records of a page, and of a whole list of the history or of the audit log.
MAX_LIMIT = 10_000


def about(description: str, *examples: Any, **schema: Any) -> Meta:
    """Return the documentation of a field: a sentence (with the unit, if there is one), examples as they are
    on the wire, and keywords of JSON Schema, such as `minimum`. The keywords are only documentation: a rule
    that must be enforced needs a separate `Meta`."""
    return Meta(description=description, examples=list(examples) or None, extra_json_schema=schema or None)


def count(description: str, example: int) -> Meta:
    """Return the documentation of a field that is a number and never negative."""
    return about(description, example, minimum=0)


class Record(msgspec.Struct, frozen=True, gc=False):
    """A reply, or a part of a reply. Clients ignore unknown fields."""


def record_of(kind: type[S], /, *sources: object, **values: Any) -> S:
    """Return a struct of type `kind` with the given values. Each other field has the value of the first
    source that has a field of the same name; without such a source, the field has its default. Types are not
    checked. Raises TypeError if a required field has no value, or if the struct does not have one of the
    given fields."""
    given: dict[str, Any] = {}
    for source, names in zip(sources, _find_shared_fields(kind, *map(type, sources)), strict=True):
        for name in names:
            given[name] = getattr(source, name)
    return kind(**given | values)


@cache
def _find_shared_fields(kind: type[msgspec.Struct], *sources: type[Any]) -> list[list[str]]:
    """Return, for each source, the fields of the struct that this source has and that no earlier source
    has."""
    left, shared = list(kind.__struct_fields__), []
    for source in sources:
        shared.append([name for name in left if inspect.isdatadescriptor(getattr(source, name, None))])
        left = [name for name in left if name not in shared[-1]]
    return shared


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The parameters of a call, or a part of these parameters. An unknown field is an error. A null field may
    be omitted."""


class Nothing(Record, frozen=True):
    """The empty reply of a method that returns nothing."""


class Method(Parameters, Generic[R], frozen=True):
    """The parameters of a method. The reply of the method is an `R`.

    A method that `streams` sends several replies, one at least every 15 seconds. A client ends the stream
    after `silence` seconds without a reply. If a method that `streams` also `replies_once`, a call without
    the varlink flag `more` gets only the first reply.

    A method that replies `at_once` is a read that takes the service much less than a millisecond in any state
    of the service, so the API sends many such reads together.
    """

    streams: ClassVar[bool] = False
    replies_once: ClassVar[bool] = False
    at_once: ClassVar[bool] = False
    silence: ClassVar[float] = 40.0

    @property
    def comes_at_once(self) -> bool:
        """True if the service answers a call with these parameters at once, with exactly one reply."""
        return self.at_once


class Command(Method[R], frozen=True, kw_only=True):
    """The parameters of a method that changes something. The API records its own commands in its audit
    log."""

    request_id: Annotated[
        str | None,
        about(
            "Id that the API has given to this call alone; without one ListChanges reports the change.",
            "8d1f0c7be45a4c3d9a6e21b0f3c58e77",
        ),
    ] = None


class Page(Parameters, frozen=True):
    """The part of a list that a call requests."""

    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT), about("Most records of the page, 1 to 10000.", 100)]
    cursor: Annotated[str | None, about("next_cursor of the page before.", "WyJpZCIsWzIsMl1d")] = None


class ListReply(Record, frozen=True, kw_only=True):
    """A list of records, or one page of a list."""

    count: Annotated[int, count("Number of records in this reply.", 1)]
    total: Annotated[int, count("Number of records on all pages.", 1)]
    next_cursor: Annotated[
        str | None, about("cursor of the next page, null on the last one.", "WyJpZCIsWzIsMl1d")
    ] = None


class PagedMethod(Method[R], frozen=True, kw_only=True):
    """A method that returns a list of records."""

    page: Annotated[Page | None, about("The part to reply with, the whole list without.")] = None


class SelectingMethod(PagedMethod[R], frozen=True, kw_only=True):
    """A method that returns a list of records, which the caller can filter and sort by the fields of a
    record: see `get_columns`."""

    filter: Annotated[
        dict[str, Any] | None,
        about("Fields and the value that each must have; all without.", {"type": "vlan"}),
    ] = None
    sort: Annotated[
        str | None,
        about("Field to sort by, with - before it for descending; null is least.", "-session_count"),
    ] = None


class Failure(Record, frozen=True):
    """The parameters of an error. The name of the class is the name of the error followed by `Error`."""


class Enumeration(StrEnum):
    """An enumeration. Each member is a pair: the text on the wire, and a comment."""

    comment: str

    def __new__(cls, value: str, comment: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.comment = comment
        return member


@dataclass(frozen=True)
class Contract:
    """A varlink interface, with its methods and errors in the order of the interface file. A service may omit
    the `optional` methods."""

    name: str
    comment: str
    methods: tuple[type[Method[Any]], ...]
    errors: tuple[type[Failure], ...]
    optional: frozenset[type[Method[Any]]] = frozenset()

    def method(self, method: type[Method[Any]]) -> str:
        """Return the full name of a method, with the name of the interface."""
        return f"{self.name}.{method.__name__}"

    def make_error(self, failure: Failure) -> ErrorReply:
        """Return the exception that a handler raises to reply with this error."""
        name = f"{self.name}.{get_error_name(type(failure))}"
        return ErrorReply(name, msgspec.Raw(msgspec.json.encode(failure)))


def get_error_name(failure: type[Failure]) -> str:
    """Return the name of an error in the interface."""
    return failure.__name__.removesuffix("Error")


@cache
def get_reply_type(method: type[Method[Any]]) -> type[Any]:
    """Return the class of a method's reply."""
    (base,) = method.__orig_bases__  # type: ignore[attr-defined]
    reply: type[Any] = get_args(base)[0]
    return reply


@cache
def get_list_field(method: type[Method[Any]]) -> str:
    """Return the name of the reply field that contains the records, for a method that returns a list."""
    hints = get_type_hints(get_reply_type(method))
    return next(name for name, hint in hints.items() if get_origin(hint) is tuple)


# Interface files

_MAX_LINE_LENGTH = 100
_TYPE_NAMES = {bool: "bool", int: "int", float: "float", str: "string", Any: "object"}
#: A name in varlink, of a field or of the value of an enumeration.
_NAME_PATTERN = re.compile(r"[A-Za-z](_?[A-Za-z0-9])*", re.ASCII)


def bind_handlers(
    contract: Contract,
    *services: object,
    handlers: Mapping[type[Method[Any]], Callable[..., Any]] | None = None,
) -> ServedInterface:
    """Return the interface with a handler for each method. The handler of GetSession is the function for
    GetSession in `handlers`; without this function, the handler is the method `get_session` of the first
    service that has such a method. A handler receives the parameters of the call, and also the calling
    process if the handler has a parameter `peer`. Raises NotImplementedError if a method has no handler."""
    methods, found = {}, handlers or {}
    for method in contract.methods:
        name = re.sub(r"(?<=.)([A-Z])", r"_\1", method.__name__).lower()
        handler = found.get(method) or next(
            (getattr(service, name) for service in services if hasattr(service, name)), None
        )
        if handler is None:
            raise NotImplementedError(f"no service has a handler for {method.__name__}")
        knows_peer = "peer" in inspect.signature(handler).parameters
        methods[method.__name__] = Handler(method, handler, method.streams, knows_peer, method.replies_once)
    return ServedInterface(contract.name, methods, partial(format_interface, contract))


def format_interface(contract: Contract) -> str:
    """Return the text of the interface file (https://varlink.org/Interface-Definition)."""
    types: dict[str, type[Any]] = {}
    for method in contract.methods:
        for struct in (method, get_reply_type(method)):
            _collect_types(struct, types)
    for error in contract.errors:
        _collect_types(error, types)
    # Only the first of several parameters with the same comment shows it.
    known: set[str] = set()
    members = [_format_comment(contract.comment) + f"interface {contract.name}\n"]
    for name, declared in types.items():
        members.append(
            _format_comment(declared.__doc__) + f"type {name} {_format_members(declared, set())}\n"
        )
    for method in contract.methods:
        parameters, reply = _format_members(method, known), _format_members(get_reply_type(method), known)
        text = f"{method.__doc__}\n\nOptional." if method in contract.optional else method.__doc__
        members.append(_format_comment(text) + f"method {method.__name__}{parameters} -> {reply}\n")
    members += [
        _format_comment(error.__doc__) + f"error {get_error_name(error)} {_format_members(error, set())}\n"
        for error in contract.errors
    ]
    members.append(
        _format_comment("A fault of the service's own. Its log has the reason.") + "error InternalError ()\n"
    )
    return "\n".join(members)


def _collect_types(struct: type[msgspec.Struct], types: dict[str, type[Any]]) -> None:
    for hint in _read_fields(struct).values():
        for used in _list_types(hint):
            if issubclass(used, msgspec.Struct):
                _collect_types(used, types)
            types.setdefault(used.__name__, used)


def _list_types(hint: Any) -> Iterator[type[Any]]:
    """Yield the structs and enumerations that the type of a field contains."""
    if isinstance(hint, type) and (issubclass(hint, msgspec.Struct) or _is_enumeration(hint)):
        yield hint
    if get_origin(hint) is not dict:
        for inner in get_args(hint):
            yield from _list_types(inner)


def _is_enumeration(hint: Any) -> bool:
    """Return True if varlink can declare this enumeration: the enumeration has at least two members, and each
    of them is a valid varlink name."""
    if not (isinstance(hint, type) and issubclass(hint, Enumeration)):
        return False
    return len(hint) > 1 and all(_NAME_PATTERN.fullmatch(member) for member in hint)


def _format_members(declared: type[Any], known: set[str]) -> str:
    """Return the fields of a struct or the values of an enumeration, each after its comment. If none has a
    comment, return them on one line. Comments in `known` are omitted, and all other comments are added to
    `known`."""
    if issubclass(declared, Enumeration):
        return _format_parentheses([(_format_comment(member.comment, "  "), member) for member in declared])
    fields = []
    for name, hint in _read_fields(declared).items():
        comment = _format_comment(_make_field_comment(hint), "  ")
        shown = "" if comment in known else comment
        known.add(comment)
        fields.append((shown, f"{name}: {_format_type(hint)}"))
    return _format_parentheses(fields)


def _format_parentheses(members: list[tuple[str, str]]) -> str:
    line = f"({', '.join(text for _, text in members)})"
    if not any(comment for comment, _ in members) and len(line) <= _MAX_LINE_LENGTH // 2:
        return line
    return "(\n" + ",\n".join(f"{comment}  {text}" for comment, text in members) + "\n)"


def _read_fields(struct: type[msgspec.Struct]) -> dict[str, Any]:
    hints = get_type_hints(struct, include_extras=True)
    return {name: hints[name] for name in struct.__struct_fields__}


def _make_field_comment(hint: Any) -> str:
    """Return the description of a field. If the type of the field is an enumeration that varlink cannot
    declare, the comments of the enumeration's values follow."""
    described = (meta.description for meta in getattr(hint, "__metadata__", ()) if meta.description)
    return " ".join([*described, *_list_value_comments(hint)])


def _list_value_comments(hint: Any) -> Iterator[str]:
    for inner in (hint, *get_args(hint)):
        if isinstance(inner, type) and issubclass(inner, Enumeration) and not _is_enumeration(inner):
            yield from (f"{member}: {member.comment}" for member in inner)


def _format_type(hint: Any) -> str:
    arguments = get_args(hint)
    match get_origin(hint):
        case None if isinstance(hint, type) and issubclass(hint, Enumeration):
            return hint.__name__ if _is_enumeration(hint) else "string"
        case None:
            return _TYPE_NAMES.get(hint) or str(hint.__name__)
        case origin if origin is Annotated:
            return _format_type(arguments[0])
        case origin if origin is dict:
            return "object"
        case _ if NoneType in arguments:
            return "?" + _format_type(next(inner for inner in arguments if inner is not NoneType))
        case _:
            return "[]" + _format_type(arguments[0])


def _format_comment(text: str | None, indent: str = "") -> str:
    paragraphs = (" ".join(paragraph.split()) for paragraph in (text or "").split("\n\n"))
    filled = (
        textwrap.fill(
            paragraph, _MAX_LINE_LENGTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# "
        )
        for paragraph in paragraphs
        if paragraph
    )
    return f"\n{indent}#\n".join(filled) + "\n" if text else ""


class Column(NamedTuple):
    """A field of a record by which a client can filter and sort. `type` is int, str or an Enumeration."""

    type: type[Any]
    description: str
    examples: Sequence[Any]


@cache
def get_columns(method: type[Method[Any]]) -> Mapping[str, Column]:
    """Return the columns by which a client can filter and sort the list of this method, as a map from name to
    column."""
    (record, _) = get_args(get_type_hints(get_reply_type(method))[get_list_field(method)])
    hints = get_type_hints(record, include_extras=True)
    found = {name: _make_column(hints[name]) for name in record.__struct_fields__}
    return {name: column for name, column in found.items() if column is not None}


def _make_column(hint: Any) -> Column | None:
    kind, *metas = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    values = [each for each in get_args(kind) or (kind,) if each is not NoneType]
    if len(values) != 1 or not _is_plain(values[0]):
        return None
    meta: Meta = metas[-1]
    return Column(
        values[0], meta.description or "", [each for each in meta.examples or () if each is not None]
    )


def _is_plain(kind: Any) -> bool:
    return kind in (int, str) or (isinstance(kind, type) and issubclass(kind, Enumeration))
