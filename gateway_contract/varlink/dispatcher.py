"""Finds the method that a varlink call names, and runs it. Bytes in, bytes out, without a socket.

A handler raises `ErrorReply` on purpose. Any other exception becomes the interface's `InternalError`, and a
traceback in the log.
"""

import logging
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import msgspec

from gateway_contract.varlink.protocol import (
    CallMessage,
    ErrorReply,
    Peer,
    Reply,
    decode_call,
    encode,
)

_log = logging.getLogger(__name__)

_SERVICE = "org.varlink.service"
_SERVICE_DESCRIPTION = """\
# What every varlink service describes about itself.
interface org.varlink.service

# The identity of the service, and its interfaces.
method GetInfo() -> (
  vendor: string,
  product: string,
  version: string,
  url: string,
  interfaces: []string
)

# The text of one interface file.
method GetInterfaceDescription(interface: string) -> (description: string)

# No interface of that name here.
error InterfaceNotFound (interface: string)

# The interface has no method of that name.
error MethodNotFound (method: string)

# The method is part of the interface, and this service doesn't have it.
error MethodNotImplemented (method: string)

# The method has one reply after another, and has to be called with more.
error ExpectedMore ()

# A parameter is missing, unknown, of the wrong type or out of its range.
error InvalidParameter (parameter: string)
"""


@runtime_checkable
class InParts(Protocol):
    """A reply that comes in parts to a call for more, and else whole."""

    def parts(self) -> Iterator[Any]:
        """The fields of each reply. There is at least one."""

    def whole(self) -> Any:
        """Return the fields of the only reply."""


class NoParameters(msgspec.Struct, forbid_unknown_fields=True):
    """The parameters of a method that has none."""


@dataclass(frozen=True)
class Handler:
    """`handler` takes a `parameters` and returns a struct or a dict of the reply's fields, or InParts. If it
    `streams`, it returns an endless iterator of structs or dicts, in which None has the server check the
    connection; a call that is not for more gets the first one if it `replies_once`, else an error. If it
    `knows_peer`, it also takes the Peer that calls, or None."""

    parameters: type[msgspec.Struct]
    handler: Callable[..., Any]
    streams: bool = False
    knows_peer: bool = False
    replies_once: bool = False


@dataclass(frozen=True)
class ServedInterface:
    """`methods` has the methods by name. `describe` makes the text of the interface file, on request: few
    clients want it, and a core would start more slowly."""

    name: str
    methods: Mapping[str, Handler]
    describe: Callable[[], str]


@dataclass(frozen=True)
class Identity:
    """The reply of `org.varlink.service.GetInfo`."""

    vendor: str
    product: str
    version: str
    url: str


def invalid_parameter(name: str) -> ErrorReply:
    """Return the standard error for a parameter, to be raised by a handler."""
    return ErrorReply.of(f"{_SERVICE}.InvalidParameter", parameter=name)


class _DescriptionCall(msgspec.Struct, forbid_unknown_fields=True):
    interface: str


class Dispatcher:
    """The methods of interfaces, and those of `org.varlink.service`."""

    def __init__(self, identity: Identity, interfaces: Iterable[ServedInterface]) -> None:
        self._identity = identity
        itself = ServedInterface(
            _SERVICE,
            {
                "GetInfo": Handler(NoParameters, self._info),
                "GetInterfaceDescription": Handler(_DescriptionCall, self._describe),
            },
            lambda: _SERVICE_DESCRIPTION,
        )
        self._interfaces = {interface.name: interface for interface in (itself, *interfaces)}

    def replies(self, message: bytes, peer: Peer | None = None) -> Generator[bytes, None, None]:
        """The replies to one call, none if it is oneway. An empty one is for the server to check whether the
        caller of a stream has left. Raises ProtocolError."""
        call = decode_call(message)
        for reply in self._replies(call, peer):
            if not call.oneway:
                yield reply

    def _replies(self, call: CallMessage, peer: Peer | None) -> Iterator[bytes]:
        try:
            method, parameters = self._found(call)
            if method.streams and call.more:
                for part in method.handler(parameters):
                    yield b"" if part is None else encode(Reply(_encoded(part), continues=True))
                raise RuntimeError("an endless stream has ended")
            more = (peer,) if method.knows_peer else ()
            reply = method.handler(parameters, *more)
            if method.streams:
                reply = next(reply)
            if isinstance(reply, InParts):
                yield from _in_parts(reply.parts() if call.more else iter([reply.whole()]))
            else:
                yield encode(Reply(_encoded(reply)))
        except ErrorReply as error:
            yield encode(Reply(error.parameters, error.name))
        except Exception:  # noqa: BLE001 - logged, and sent as the interface's own error
            _log.exception("cannot reply to %s", call.method)
            yield encode(Reply(_encoded({}), f"{call.method.rpartition('.')[0]}.InternalError"))

    def _found(self, call: CallMessage) -> tuple[Handler, msgspec.Struct]:
        interface_name, _, method_name = call.method.rpartition(".")
        interface = self._interfaces.get(interface_name)
        if interface is None:
            raise ErrorReply.of(f"{_SERVICE}.InterfaceNotFound", interface=interface_name)
        method = interface.methods.get(method_name)
        if method is None:
            raise ErrorReply.of(f"{_SERVICE}.MethodNotFound", method=method_name)
        if method.streams and (call.oneway or not (call.more or method.replies_once)):
            raise ErrorReply.of(f"{_SERVICE}.ExpectedMore")
        try:
            return method, msgspec.json.decode(call.parameters, type=method.parameters)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise invalid_parameter(_parameter_named_in(str(error))) from error

    def _info(self, _: NoParameters) -> Any:
        return {**vars(self._identity), "interfaces": sorted(self._interfaces)}

    def _describe(self, call: _DescriptionCall) -> Any:
        interface = self._interfaces.get(call.interface)
        if interface is None:
            raise ErrorReply.of(f"{_SERVICE}.InterfaceNotFound", interface=call.interface)
        return {"description": interface.describe()}


def _in_parts(parts: Iterator[Any]) -> Iterator[bytes]:
    before = next(parts)
    for part in parts:
        yield encode(Reply(_encoded(before), continues=True))
        before = part
    yield encode(Reply(_encoded(before)))


def _encoded(reply: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(reply))


def _parameter_named_in(message: str) -> str:
    # msgspec gives a place as "at `$.page.limit`", and a missing or unknown field in backquotes.
    field = re.search(r"field `([^`]+)`", message)
    place = re.search(r"at `\$\.?([^`]*)`", message)
    parts = [match.group(1) for match in (place, field) if match]
    return ".".join(part for part in parts if part)
