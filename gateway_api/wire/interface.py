"""The interface of a contract, as a server has it: its description, and a handler for each method."""

import inspect
import re
import textwrap
from collections.abc import Iterator
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from gateway_api.wire.contract import Contract, Enumeration, error_name, reply_of
from gateway_api.wire.varlink import dispatcher

_WIDTH = 100
_PLAIN = {bool: "bool", int: "int", float: "float", str: "string", Any: "object"}
#: A name in varlink, of a field or of the value of an enumeration.
_NAME = re.compile(r"[A-Za-z](_?[A-Za-z0-9])*", re.ASCII)


def served(contract: Contract, *services: object) -> dispatcher.ServedInterface:
    """The interface with a handler for each method: for GetSession, `get_session` of the first service that
    has one. A handler gets the parameters and, if it has a parameter `peer`, the process that calls."""
    methods = {}
    for method in contract.methods:
        name = re.sub(r"(?<=.)([A-Z])", r"_\1", method.__name__).lower()
        handler = next((getattr(service, name) for service in services if hasattr(service, name)), None)
        if handler is None:
            raise NotImplementedError(f"no service has a handler for {method.__name__}")
        knows_peer = "peer" in inspect.signature(handler).parameters
        methods[method.__name__] = dispatcher.Handler(method, handler, method.streams, knows_peer)
    return dispatcher.ServedInterface(description(contract), methods)


def description(contract: Contract) -> str:
    """The text of the interface file (https://varlink.org/Interface-Definition)."""
    types: dict[str, type[Any]] = {}
    for method in contract.methods:
        for struct in (method, reply_of(method)):
            _collect_types(struct, types)
    for error in contract.errors:
        _collect_types(error, types)
    # What many methods have in common is explained at the first.
    known: set[str] = set()
    members = [_comment(contract.comment) + f"interface {contract.name}\n"]
    for name, declared in types.items():
        members.append(_comment(declared.__doc__) + f"type {name} {_body(declared, set())}\n")
    for method in contract.methods:
        parameters, reply = _body(method, known), _body(reply_of(method), known)
        members.append(_comment(method.__doc__) + f"method {method.__name__}{parameters} -> {reply}\n")
    members += [
        _comment(error.__doc__) + f"error {error_name(error)} {_body(error, set())}\n"
        for error in contract.errors
    ]
    members.append(
        _comment("A fault of the service's own. Its log has the reason.") + "error InternalError ()\n"
    )
    return "\n".join(members)


def _collect_types(struct: type[msgspec.Struct], types: dict[str, type[Any]]) -> None:
    for hint in _fields(struct).values():
        for used in _named_in(hint):
            if issubclass(used, msgspec.Struct):
                _collect_types(used, types)
            types.setdefault(used.__name__, used)


def _named_in(hint: Any) -> Iterator[type[Any]]:
    """The structs and enumerations that a field holds."""
    if isinstance(hint, type) and (issubclass(hint, msgspec.Struct) or _is_enumeration(hint)):
        yield hint
    if get_origin(hint) is not dict:
        for inner in get_args(hint):
            yield from _named_in(inner)


def _is_enumeration(hint: Any) -> bool:
    """True for what varlink can declare: an enumeration of names, and not of one only."""
    if not (isinstance(hint, type) and issubclass(hint, Enumeration)):
        return False
    return len(hint) > 1 and all(_NAME.fullmatch(member) for member in hint)


def _body(declared: type[Any], known: set[str]) -> str:
    """Fields or values, each below its comment; on one line if there is nothing to explain. Comments in
    `known` are left out, and the others are added."""
    if issubclass(declared, Enumeration):
        return _parentheses([(_comment(member.comment, "  "), member) for member in declared])
    fields = []
    for name, hint in _fields(declared).items():
        comment = _comment(_explanation(hint), "  ")
        shown = "" if comment in known else comment
        known.add(comment)
        fields.append((shown, f"{name}: {_spelled(hint)}"))
    return _parentheses(fields)


def _parentheses(members: list[tuple[str, str]]) -> str:
    line = f"({', '.join(text for _, text in members)})"
    if not any(comment for comment, _ in members) and len(line) <= _WIDTH // 2:
        return line
    return "(\n" + ",\n".join(f"{comment}  {text}" for comment, text in members) + "\n)"


def _fields(struct: type[msgspec.Struct]) -> dict[str, Any]:
    hints = get_type_hints(struct, include_extras=True)
    return {name: hints[name] for name in struct.__struct_fields__}


def _explanation(hint: Any) -> str:
    """The description of a field, and what its values mean where varlink cannot declare them."""
    described = (meta.description for meta in getattr(hint, "__metadata__", ()) if meta.description)
    sentences = [*described, *_values(hint)]
    return " ".join(sentences)


def _values(hint: Any) -> Iterator[str]:
    for inner in (hint, *get_args(hint)):
        if isinstance(inner, type) and issubclass(inner, Enumeration) and not _is_enumeration(inner):
            yield from (f"{member}: {member.comment}" for member in inner)


def _spelled(hint: Any) -> str:
    arguments = get_args(hint)
    match get_origin(hint):
        case None if isinstance(hint, type) and issubclass(hint, Enumeration):
            return hint.__name__ if _is_enumeration(hint) else "string"
        case None:
            return _PLAIN.get(hint) or str(hint.__name__)
        case origin if origin is Annotated:
            return _spelled(arguments[0])
        case origin if origin is dict:
            return "object"
        case _ if NoneType in arguments:
            return "?" + _spelled(next(inner for inner in arguments if inner is not NoneType))
        case _:
            return "[]" + _spelled(arguments[0])


def _comment(text: str | None, indent: str = "") -> str:
    paragraphs = (" ".join(paragraph.split()) for paragraph in (text or "").split("\n\n"))
    filled = (
        textwrap.fill(paragraph, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
        for paragraph in paragraphs
        if paragraph
    )
    return f"\n{indent}#\n".join(filled) + "\n" if text else ""
