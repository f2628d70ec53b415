"""A varlink server: one thread a connection, replies in the order of the calls.

It knows interfaces and methods, and nothing of what they do. Handlers get their parameters as a
typed struct and return one; what they raise on purpose is an `ErrorReply`, anything else becomes the
interface's `InternalError` and a traceback in the log.
"""

import errno
import logging
import os
import re
import socket
import stat
import struct
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gateway_api.errors import GatewayApiError
from gateway_api.varlink.message import (
    REQUEST_CAP,
    Call,
    ErrorReply,
    MessageBuffer,
    ProtocolError,
    Reply,
    decode_call,
    encode,
)

_log = logging.getLogger(__name__)

_CHUNK = 64 << 10
_BACKLOG = 128
#: Enough for the pools of 64 workers, and one thread each.
_MAX_CONNECTIONS = 1024
#: A client that doesn't read its answer for this long is cut off, or it would hold a thread forever.
_SEND_TIMEOUT = 10
_ACCEPT_PAUSE = 0.1

_SERVICE = "org.varlink.service"
_SERVICE_DESCRIPTION = """\
# What every varlink service tells of itself.
interface org.varlink.service

# Who the service is and which interfaces it has.
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

# A parameter is missing, unknown, of the wrong type or out of its range.
error InvalidParameter (parameter: string)
"""


class AlreadyServed(GatewayApiError):
    """Another process answers at the socket."""


class NoParameters(msgspec.Struct, forbid_unknown_fields=True):
    """The parameters of a method that takes none."""


@dataclass(frozen=True)
class Method:
    """`handler` gets a `parameters` and returns a struct or a dict of the reply's fields."""

    parameters: type[msgspec.Struct]
    handler: Callable[[Any], Any]


@dataclass(frozen=True)
class Interface:
    """`description` is the text of the interface file, `methods` has one entry a method in it."""

    description: str
    methods: Mapping[str, Method]

    @property
    def name(self) -> str:
        match = re.search(r"^interface\s+(\S+)", self.description, re.MULTILINE)
        if match is None:
            raise ValueError("an interface file without an interface line")
        return match.group(1)


@dataclass(frozen=True)
class Identity:
    """What `org.varlink.service.GetInfo` tells of the service."""

    vendor: str
    product: str
    version: str
    url: str


def invalid_parameter(name: str) -> ErrorReply:
    """The standard error for a parameter, to be raised by a handler."""
    return ErrorReply.of(f"{_SERVICE}.InvalidParameter", parameter=name)


class _DescriptionCall(msgspec.Struct, forbid_unknown_fields=True):
    interface: str


class Dispatcher:
    """Finds the method that a call names and runs it. Has no socket: bytes in, bytes out."""

    def __init__(self, identity: Identity, interfaces: Iterable[Interface]) -> None:
        self._identity = identity
        itself = Interface(
            _SERVICE_DESCRIPTION,
            {
                "GetInfo": Method(NoParameters, self._info),
                "GetInterfaceDescription": Method(_DescriptionCall, self._describe),
            },
        )
        self._interfaces = {interface.name: interface for interface in (itself, *interfaces)}

    def answer(self, message: bytes) -> bytes | None:
        """The reply to one call's bytes; None when the caller wants none. Raises ProtocolError."""
        call = decode_call(message)
        try:
            reply = Reply(parameters=self._run(call))
        except ErrorReply as error:
            reply = Reply(error=error.name, parameters=error.parameters)
        return None if call.oneway else encode(reply)

    def _run(self, call: Call) -> msgspec.Raw:
        interface_name, _, method_name = call.method.rpartition(".")
        interface = self._interfaces.get(interface_name)
        if interface is None:
            raise ErrorReply.of(f"{_SERVICE}.InterfaceNotFound", interface=interface_name)
        method = interface.methods.get(method_name)
        if method is None:
            raise ErrorReply.of(f"{_SERVICE}.MethodNotFound", method=method_name)
        try:
            parameters = msgspec.json.decode(call.parameters, type=method.parameters)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise invalid_parameter(_parameter_named_in(str(error))) from error
        try:
            return msgspec.Raw(msgspec.json.encode(method.handler(parameters)))
        except ErrorReply:
            raise
        except Exception as error:
            _log.exception("cannot answer %s", call.method)
            raise ErrorReply.of(f"{interface_name}.InternalError") from error

    def _info(self, _: NoParameters) -> Any:
        return {**vars(self._identity), "interfaces": sorted(self._interfaces)}

    def _describe(self, call: _DescriptionCall) -> Any:
        interface = self._interfaces.get(call.interface)
        if interface is None:
            raise ErrorReply.of(f"{_SERVICE}.InterfaceNotFound", interface=call.interface)
        return {"description": interface.description}


def _parameter_named_in(message: str) -> str:
    # msgspec gives a place as "at `$.page.limit`", and a missing or unknown field in backquotes.
    field = re.search(r"field `([^`]+)`", message)
    place = re.search(r"at `\$\.?([^`]*)`", message)
    parts = [match.group(1) for match in (place, field) if match]
    return ".".join(part for part in parts if part)


class Server:
    """Serves a dispatcher at a Unix socket until it is closed."""

    def __init__(self, path: Path, dispatcher: Dispatcher) -> None:
        self._path = path
        self._dispatcher = dispatcher
        self._slots = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._listener = _listen(path)
        self._inode = path.stat().st_ino

    def serve_forever(self) -> None:
        """Accepts connections until `close`."""
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                # Out of descriptors or memory, say: that passes, and a server that has stopped
                # accepting doesn't.
                if not self._closing.wait(_ACCEPT_PAUSE):
                    _log.error("cannot accept a connection: %s", error)
                continue
            if not self._slots.acquire(blocking=False):
                _log.error("cannot accept a connection: %d are open", _MAX_CONNECTIONS)
                connection.close()
                continue
            with self._lock:
                self._connections.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def close(self) -> None:
        """Stops listening and cuts every connection."""
        self._closing.set()
        # shutdown wakes the thread that waits in accept; close alone would leave it there.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._remove_socket()
        with self._lock:
            for connection in self._connections:
                connection.shutdown(socket.SHUT_RDWR)

    def _remove_socket(self) -> None:
        try:
            # Only our own: another server may have taken the place.
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
        except FileNotFoundError:
            pass

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_TIMEOUT, 0))
            self._converse(connection)
        except ProtocolError as error:
            _log.warning("closed a connection: %s", error)
        except OSError as error:
            _log.info("lost a connection: %s", error)
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()
            self._slots.release()

    def _converse(self, connection: socket.socket) -> None:
        buffer = MessageBuffer(REQUEST_CAP)
        while data := connection.recv(_CHUNK):
            buffer.feed(data)
            while (message := buffer.next_message()) is not None:
                reply = self._dispatcher.answer(message)
                if reply is not None:
                    connection.sendall(reply)


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    # Bound aside and moved into place when it listens: between a bind and a listen, whoever connects
    # is refused, and another server would take the socket for one that nobody serves.
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _check_free(path)
        # Set before bind: between a bind and a chmod anyone could connect.
        before = os.umask(0o117)
        try:
            listener.bind(str(aside))
        finally:
            os.umask(before)
        listener.listen(_BACKLOG)
        aside.rename(path)
    except BaseException:
        listener.close()
        aside.unlink(missing_ok=True)
        raise
    return listener


def _check_free(path: Path) -> None:
    """Raises AlreadyServed, and FileExistsError for a file that isn't a socket: it isn't ours."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise FileExistsError(errno.EEXIST, "is there and is no socket", str(path))
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # Not blocking: a server that is too busy to accept is there all the same.
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return
        except BlockingIOError:
            pass
    raise AlreadyServed(f"another process serves {path}")
