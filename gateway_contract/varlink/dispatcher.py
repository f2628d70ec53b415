"""Dispatcher of varlink calls, which finds the method that a call names, and runs the handler of the method.
The dispatcher works on bytes, without a socket.

A handler raises `ErrorReply` on purpose. Any other exception becomes the interface's `InternalError`, with a
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
    """Reply that is sent in several parts if the call has the flag `more`, and as a whole otherwise."""

    def parts(self) -> Iterator[Any]:
        """Yield the fields of each part. There is at least one part."""

    def whole(self) -> Any:
        """Return the fields of the whole reply."""


class NoParameters(msgspec.Struct, forbid_unknown_fields=True):
    """Parameters of a method that takes no parameters."""


@dataclass(frozen=True)
class Handler:
    """Handler of the calls of one method. The function `handler` takes an object of the class `parameters`,
    and returns the fields of the reply as a struct, as a dict, or as InParts.

    A handler that `streams` returns an endless iterator of structs or dicts. If the iterator yields None, the
    server checks the connection. A call without `more` gets the first reply if the handler `replies_once`,
    and an error otherwise. A handler that `knows_peer` also takes the calling Peer, or None.
    """

    parameters: type[msgspec.Struct]
    handler: Callable[..., Any]
    streams: bool = False
    knows_peer: bool = False
    replies_once: bool = False


@dataclass(frozen=True)
class ServedInterface:
    """Interface, with its handlers by the name of the method. `describe` returns the text of the interface
    file. `describe` is called only on request: few clients need the text, and making the text would delay the
    start of a core."""

    name: str
    methods: Mapping[str, Handler]
    describe: Callable[[], str]


@dataclass(frozen=True)
class Identity:
    """Fields of the reply to `org.varlink.service.GetInfo`."""

    vendor: str
    product: str
    version: str
    url: str


def make_parameter_error(name: str) -> ErrorReply:
    """Return the standard varlink error that a handler raises if the parameter `name` is not valid."""
    return ErrorReply.of(f"{_SERVICE}.InvalidParameter", parameter=name)


class _GetInterfaceDescription(msgspec.Struct, forbid_unknown_fields=True):
    interface: str


class Dispatcher:
    """Dispatcher of the calls to several interfaces, and to `org.varlink.service`."""

    def __init__(self, identity: Identity, interfaces: Iterable[ServedInterface]) -> None:
        self._identity = identity
        own_interface = ServedInterface(
            _SERVICE,
            {
                "GetInfo": Handler(NoParameters, self._get_info),
                "GetInterfaceDescription": Handler(_GetInterfaceDescription, self._describe),
            },
            lambda: _SERVICE_DESCRIPTION,
        )
        self._interfaces = {interface.name: interface for interface in (own_interface, *interfaces)}

    def replies(self, message: bytes, peer: Peer | None = None) -> Generator[bytes, None, None]:
        """Yield the replies to one call, each as a message. Yield nothing for a oneway call. An empty message
        asks the server to check whether the caller of a stream has hung up. Raises ProtocolError if `message`
        is not a valid call."""
        call = decode_call(message)
        for reply in self._replies(call, peer):
            if not call.oneway:
                yield reply

    def _replies(self, call: CallMessage, peer: Peer | None) -> Iterator[bytes]:
        try:
            method, parameters = self._find_method(call)
            if method.streams and call.more:
                for part in method.handler(parameters):
                    yield b"" if part is None else encode(Reply(_encode(part), continues=True))
                raise RuntimeError("an endless stream has ended")
            more = (peer,) if method.knows_peer else ()
            reply = method.handler(parameters, *more)
            if method.streams:
                reply = next(reply)
            if isinstance(reply, InParts):
                yield from _encode_parts(reply.parts() if call.more else iter([reply.whole()]))
            else:
                yield encode(Reply(_encode(reply)))
        except ErrorReply as error:
            yield encode(Reply(error.parameters, error.name))
        except Exception:  # noqa: BLE001 - logged, and sent as the interface's own error
            _log.exception("%s failed with an internal error", call.method)
            yield encode(Reply(_encode({}), f"{call.method.rpartition('.')[0]}.InternalError"))

    def _find_method(self, call: CallMessage) -> tuple[Handler, msgspec.Struct]:
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
            raise make_parameter_error(_find_parameter(str(error))) from error

    def _get_info(self, _: NoParameters) -> Any:
        return {**vars(self._identity), "interfaces": sorted(self._interfaces)}

    def _describe(self, call: _GetInterfaceDescription) -> Any:
        interface = self._interfaces.get(call.interface)
        if interface is None:
            raise ErrorReply.of(f"{_SERVICE}.InterfaceNotFound", interface=call.interface)
        return {"description": interface.describe()}


def _encode_parts(parts: Iterator[Any]) -> Iterator[bytes]:
    before = next(parts)
    for part in parts:
        yield encode(Reply(_encode(before), continues=True))
        before = part
    yield encode(Reply(_encode(before)))


def _encode(reply: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(reply))


def _find_parameter(message: str) -> str:
    # msgspec gives a place as "at `$.page.limit`", and a missing or unknown field in backquotes.
    field = re.search(r"field `([^`]+)`", message)
    place = re.search(r"at `\$\.?([^`]*)`", message)
    parts = [match.group(1) for match in (place, field) if match]
    return ".".join(part for part in parts if part)
