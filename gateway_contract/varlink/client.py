"""Blocking varlink client with pooled connections, and one exchange at a time on each connection.

Every call ends by its deadline, whatever the peer does. The client sends a call a second time only if the
peer cannot have received the whole first message, so a write happens at most once. Only the reads of a batch
may be sent a second time for another reason.
"""

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gateway_contract.base.errors import GatewayApiError
from gateway_contract.base.turns import give_way
from gateway_contract.varlink.batches import Batches
from gateway_contract.varlink.protocol import (
    MAX_CALL_BYTES,
    MAX_REPLY_BYTES,
    NO_PARAMETERS,
    CallMessage,
    ErrorReply,
    MessageBuffer,
    Reply,
    check_peer,
    decode_reply,
    encode,
)

#: Seconds of a call. A response must come within 5 s, and the access check before it makes another call.
CALL_TIMEOUT_SECONDS = 3.0
#: Bytes of one read from the socket. A small reply stays below the size at which malloc asks the kernel for
#: memory (`return_large_objects`), which costs more than the read. A long reply in small pieces would leave
#: holes in the memory of the process.
_SMALL_READ_BYTES, _LARGE_READ_BYTES = 64 << 10, 256 << 10
#: Bytes of memory that a reply takes in addition to its parameters, and maximum bytes of all replies to a
#: call.
_REPLY_OVERHEAD_BYTES, _MAX_REPLIES_BYTES = 256, MAX_REPLY_BYTES + (4 << 20)
#: Maximum time from one of several replies to the next reply, and to the last reply, in seconds: a busy peer
#: is not unreachable.
_NEXT_REPLY_SECONDS, _ALL_REPLIES_SECONDS = 3.0, 30.0
#: Seconds between two attempts to connect to a peer whose queue is full.
_QUEUE_PAUSE_SECONDS = 0.02


class Unreachable(GatewayApiError):
    """Error of a call without a reply. Either no process or an untrusted process listens, or the peer hung
    up, sent an invalid message, or was too late."""


class Busy(Unreachable):
    """Error of a call without a reply in time, although the peer has replied to other calls of this client
    since the call began."""


class NotSent(Unreachable):
    """Error of a call that the peer did not receive completely, so that the peer cannot have acted on the
    call."""


class NoSocket(NotSent):
    """Error of a call: no socket exists at the path."""


class TooLarge(Unreachable):
    """Error of a call that was not sent, because the call is longer than a peer accepts."""


def join_group_of(path: Path) -> None:
    """Join the group of the socket if the user is root, so that a command of root can call a service of
    another user. This process then trusts a peer of that group. Raises OSError if the group cannot be
    joined."""
    if os.geteuid() == 0 and path.exists():
        os.setegid(path.stat().st_gid)


class Client:
    """Client of the service at a Unix socket. `timeout` is the limit of a call in seconds, including the wait
    for one of the `connections`, which is the maximum number of connections. With `batches`, several reads
    that the peer answers at once share an exchange."""

    def __init__(
        self,
        path: Path,
        *,
        timeout: float = CALL_TIMEOUT_SECONDS,
        connections: int = 16,
        batches: bool = False,
    ) -> None:
        self._path = path
        self._timeout = timeout
        self._free = threading.BoundedSemaphore(connections)
        self._idle: list[_Connection] = []
        self._batches = Batches(self._exchange_alone) if batches else None
        #: The monotonic time of the last exchange in which every call had a reply.
        self._last_reply = -math.inf

    def call(self, method: str, parameters: Any = None, *, timeout: float | None = None) -> msgspec.Raw:
        """Call a method, and return the parameters of its reply. `parameters` is a msgspec struct or a dict.
        Raises ErrorReply if the reply is an error, and Unreachable if there is no reply."""
        (reply,) = self.exchange((method, parameters), timeout=timeout)
        return reply.result()

    def exchange(
        self,
        *calls: tuple[str, Any],
        more: bool = False,
        at_once: bool = False,
        timeout: float | None = None,
    ) -> list[Reply]:
        """Send calls in one exchange, and return their replies. A call is a pair of a method and its
        parameters. With `more`, the last call may have several replies.

        Several calls in one exchange must be reads, because the client may send them twice: the peer may have
        received the first call before the connection broke. Calls with `at_once` must also be reads: they may
        share the exchange of other reads, and are sent again if that exchange fails. Raises Unreachable, or
        its subclass Busy, if there is no reply to a call.
        """
        names = " and ".join(method for method, _ in calls)
        last = len(calls) - 1
        messages = [
            encode(_make_call_message(*call, more and number == last)) for number, call in enumerate(calls)
        ]
        if any(len(message) > MAX_CALL_BYTES for message in messages):
            raise TooLarge(f"cannot call {names}: a request of over {MAX_CALL_BYTES} bytes")
        started_at = time.monotonic()
        deadline = started_at + (self._timeout if timeout is None else timeout)
        try:
            if at_once and self._batches is not None:
                return self._batches.replies(messages, deadline)
            return self._exchange_alone(messages, deadline, more)
        except (OSError, GatewayApiError) as error:
            raise self._choose_error_type(error, started_at)(
                f"cannot call {names} at {self._path}: {error}"
            ) from error

    def stream(self, method: str, parameters: Any, *, silence: float) -> Generator[msgspec.Raw, None, None]:
        """Call a method that streams, on a separate connection, and yield the parameters of each reply. The
        stream ends with an exception: ErrorReply if the peer sends an error, and Unreachable if the peer ends
        the stream or sends no reply for `silence` seconds."""
        connection = None
        try:
            deadline = time.monotonic() + self._timeout
            connection = _Connection(self._path, deadline)
            connection.send(encode(_make_call_message(method, parameters, more=True)), deadline)
            while True:
                reply = connection.receive(time.monotonic() + silence)
                self._note_reply()
                yield reply.result()
                if not reply.continues:
                    raise Unreachable("ended its replies")
        except ErrorReply:
            raise
        except (OSError, GatewayApiError) as error:
            raise Unreachable(f"cannot follow {method} at {self._path}: {error}") from error
        finally:
            if connection is not None:
                connection.close()

    def close(self) -> None:
        """Close idle connections."""
        while self._idle:
            self._idle.pop().close()

    def _note_reply(self) -> None:
        self._last_reply = time.monotonic()

    def _choose_error_type(self, error: Exception, started_at: float) -> type[Unreachable]:
        """Return the class of the error of a call. `started_at` is the time at which the call began, in
        monotonic seconds."""
        match error:
            case FileNotFoundError():
                return NoSocket
            case ConnectionRefusedError() | NotSent():
                return NotSent
            case TimeoutError() | BlockingIOError() if self._last_reply >= started_at:
                return Busy
            case _:
                return Unreachable

    def _exchange_alone(self, messages: Sequence[bytes], deadline: float, more: bool = False) -> list[Reply]:
        if not self._free.acquire(timeout=deadline - time.monotonic()):
            raise TimeoutError("no connection came free in time")
        try:
            return self._exchange(messages, more, deadline)
        finally:
            self._free.release()

    def _exchange(self, messages: Sequence[bytes], more: bool, deadline: float) -> list[Reply]:
        request = b"".join(messages)
        while True:
            pooled_connection = self._idle.pop() if self._idle else None
            if pooled_connection is not None and not pooled_connection.is_quiet():
                pooled_connection.close()
                continue
            connection = pooled_connection or _Connection(self._path, deadline)
            try:
                replies = connection.exchange(request, len(messages), more, deadline, self._note_reply)
            except NotSent:
                connection.close()
                if pooled_connection is None:
                    raise
                # A restart of the peer ends all pooled connections: the loop ends with a new connection.
                continue
            except BaseException:
                # A reply that is still on its way would be read as the reply to the next call.
                connection.close()
                raise
            self._idle.append(connection)
            return replies


def _make_call_message(method: str, parameters: Any, more: bool) -> CallMessage:
    encoded = NO_PARAMETERS if parameters is None else msgspec.Raw(msgspec.json.encode(parameters))
    return CallMessage(method, encoded, more=more)


class _Connection:
    def __init__(self, path: Path, deadline: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._buffer = MessageBuffer(MAX_REPLY_BYTES)
        self._read_size = _SMALL_READ_BYTES
        try:
            self._connect(path, deadline)
            check_peer(self._socket)
        except BaseException:
            self._socket.close()
            raise

    def _connect(self, path: Path, deadline: float) -> None:
        # While the peer's queue is full, a Unix socket does not connect, but counts as writable: gevent would
        # use the processor until the deadline.
        self._socket.setblocking(False)
        while True:
            try:
                self._socket.connect(str(path))
                return
            except BlockingIOError:
                if time.monotonic() + _QUEUE_PAUSE_SECONDS > deadline:
                    raise
                time.sleep(_QUEUE_PAUSE_SECONDS)

    def is_quiet(self) -> bool:
        """Return True if the connection can be used for another call. Return False if the peer has hung up,
        or has sent unexpected data, which would be read as the reply to the next call."""
        self._socket.setblocking(False)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def exchange(
        self, request: bytes, calls: int, more: bool, deadline: float, on_reply: Callable[[], None]
    ) -> list[Reply]:
        """Send a request that contains `calls` calls, and return the replies. Call `on_reply` once when every
        call has a reply, and again at each further reply. With `more`, the last call may have several
        replies. Raises TimeoutError if the deadline passes before every call has a reply."""
        self.send(request, deadline)
        replies = [self.receive(deadline) for _ in range(calls)]
        on_reply()
        if any(reply.continues for reply in (replies[:-1] if more else replies)):
            raise Unreachable("announced another reply to a call that takes one")
        size, end = 0, deadline + _ALL_REPLIES_SECONDS
        while replies[-1].continues:
            # An empty reply takes memory too.
            size += len(memoryview(replies[-1].parameters)) + _REPLY_OVERHEAD_BYTES
            give_way()
            if size > _MAX_REPLIES_BYTES:
                raise Unreachable(f"sent replies of over {_MAX_REPLIES_BYTES} bytes")
            try:
                replies.append(self.receive(min(max(deadline, time.monotonic() + _NEXT_REPLY_SECONDS), end)))
            except TimeoutError as error:
                raise Unreachable(str(error)) from error
            on_reply()
        if len(self._buffer):
            raise Unreachable("sent more than one reply")
        return replies

    def send(self, request: bytes, deadline: float) -> None:
        sent_bytes = 0
        while sent_bytes < len(request):
            self._wait_until(deadline)
            try:
                sent_bytes += self._socket.send(memoryview(request)[sent_bytes:])
            except (BrokenPipeError, ConnectionResetError) as error:
                raise NotSent("hung up before the call was sent") from error

    def receive(self, deadline: float) -> Reply:
        is_late = False
        while (message := self._buffer.next_message()) is None:
            if is_late:
                raise TimeoutError("no reply in time")
            data, is_late = self._read(deadline)
            if not data:
                raise Unreachable(
                    "hung up in the middle of its reply" if len(self._buffer) else "hung up without a reply"
                )
            self._buffer.feed(data)
        return decode_reply(message)

    def _read(self, deadline: float) -> tuple[bytes, bool]:
        """Return bytes from the peer, and True if the deadline has passed. Raises TimeoutError if no bytes
        arrive in time."""
        try:
            self._wait_until(deadline)
            return self._receive_bytes(), False
        except TimeoutError as error:
            # On a busy machine the reply may have arrived before this thread could read it.
            self._socket.setblocking(False)
            try:
                return self._receive_bytes(), True
            except BlockingIOError:
                raise error from None

    def _receive_bytes(self) -> bytes:
        data = self._socket.recv(self._read_size)
        self._read_size = _LARGE_READ_BYTES if len(data) >= _SMALL_READ_BYTES else _SMALL_READ_BYTES
        return data

    def close(self) -> None:
        self._socket.close()

    def _wait_until(self, deadline: float) -> None:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("no reply in time")
        self._socket.settimeout(remaining)
