"""A blocking varlink client: pooled connections, one exchange at a time on each.

Every call ends by its deadline, whatever the peer does. The client sends a call a second time only if the
first cannot have reached the peer whole, so a write happens at most once. Only reads of a batch may go out
once more.
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
    NOTHING,
    REPLY_CAP,
    REQUEST_CAP,
    CallMessage,
    ErrorReply,
    MessageBuffer,
    Reply,
    check_peer,
    decode_reply,
    encode,
)

#: Seconds of a call. A request has its response within 5 s, and its access check makes a call, too.
CALL_TIMEOUT = 3.0
#: Bytes that are read at once. For a small reply, less than what malloc takes from the kernel each time
#: (`return_large_objects`), which costs more than the read. For a long one more: in small pieces, it would
#: leave holes in the memory of the process.
_SMALL, _LARGE = 64 << 10, 256 << 10
#: Bytes of a reply beside its parameters, and the most bytes of all replies to a call.
_OF_A_REPLY, _MOST = 256, REPLY_CAP + (4 << 20)
#: Seconds until the next of several replies, and until the last: a busy peer is not an unreachable one.
_NEXT, _ALL = 3.0, 30.0
#: Seconds until a peer whose queue is full is tried again.
_QUEUE_PAUSE = 0.02


class Unreachable(GatewayApiError):
    """No reply: no process or an untrusted one listens, or the peer hung up, sent garbage or was too late."""


class Busy(Unreachable):
    """No reply in time, but the peer has replied to other calls of this client since the call began."""


class NotSent(Unreachable):
    """The peer has not got the whole call: it cannot have acted on it."""


class NoSocket(NotSent):
    """There is no socket at the path."""


class TooLarge(Unreachable):
    """The call is longer than a peer accepts, and was not sent."""


def join_group_of(path: Path) -> None:
    """Let a command of root call a service of another user: the group of the socket becomes that of this
    process, and is trusted in a peer. Raises OSError."""
    if os.geteuid() == 0 and path.exists():
        os.setegid(path.stat().st_gid)


class Client:
    """Calls the service at a Unix socket. `timeout` is the limit of a call in seconds, with the wait for one
    of the `connections`. With `batches`, reads that are answered at once go out together."""

    def __init__(
        self,
        path: Path,
        *,
        timeout: float = CALL_TIMEOUT,
        connections: int = 16,
        batches: bool = False,
    ) -> None:
        self._path = path
        self._timeout = timeout
        self._free = threading.BoundedSemaphore(connections)
        self._idle: list[_Connection] = []
        self._batches = Batches(self._on_own_connection) if batches else None
        #: The monotonic time of the last reply. Replies to a part of the calls of an exchange do not count.
        self._heard = -math.inf

    def call(self, method: str, parameters: Any = None, *, timeout: float | None = None) -> msgspec.Raw:
        """Return the parameters of the reply. msgspec encodes those of the call to a JSON object. Raises
        Unreachable and ErrorReply."""
        (reply,) = self.exchange((method, parameters), timeout=timeout)
        return reply.result()

    def exchange(
        self,
        *calls: tuple[str, Any],
        more: bool = False,
        at_once: bool = False,
        timeout: float | None = None,
    ) -> list[Reply]:
        """Return the reply to each of these methods and parameters, in one exchange; with `more`, the last
        may have several, each of which has its own limit then. Several calls must be reads: the first may
        have reached the peer when the client sends all again. So must calls that the peer answers `at_once`,
        none of which is for more: others may go out with them, and they go out again if that fails. Raises
        Unreachable, and Busy as a kind of it."""
        names = " and ".join(method for method, _ in calls)
        last = len(calls) - 1
        messages = [encode(_call(*call, more and number == last)) for number, call in enumerate(calls)]
        if any(len(message) > REQUEST_CAP for message in messages):
            raise TooLarge(f"cannot call {names}: a request of over {REQUEST_CAP} bytes")
        began = time.monotonic()
        deadline = began + (self._timeout if timeout is None else timeout)
        try:
            if at_once and self._batches is not None:
                return self._batches.replies(messages, deadline)
            return self._on_own_connection(messages, deadline, more)
        except (OSError, GatewayApiError) as error:
            raise self._kind(error, began)(f"cannot call {names} at {self._path}: {error}") from error

    def stream(self, method: str, parameters: Any, *, silence: float) -> Generator[msgspec.Raw, None, None]:
        """The parameters of each reply to a call for more, on a connection of its own. Ends with Unreachable,
        at the latest when no reply came for `silence` seconds, or with ErrorReply."""
        connection = None
        try:
            deadline = time.monotonic() + self._timeout
            connection = _Connection(self._path, deadline)
            connection.send(encode(_call(method, parameters, more=True)), deadline)
            while True:
                reply = connection.receive(time.monotonic() + silence)
                self._hear()
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

    def _hear(self) -> None:
        self._heard = time.monotonic()

    def _kind(self, error: Exception, began: float) -> type[Unreachable]:
        """Return the error of a call that began then."""
        match error:
            case FileNotFoundError():
                return NoSocket
            case ConnectionRefusedError() | NotSent():
                return NotSent
            case TimeoutError() | BlockingIOError() if self._heard >= began:
                return Busy
            case _:
                return Unreachable

    def _on_own_connection(
        self, messages: Sequence[bytes], deadline: float, more: bool = False
    ) -> list[Reply]:
        if not self._free.acquire(timeout=deadline - time.monotonic()):
            raise TimeoutError("no connection came free in time")
        try:
            return self._exchange(messages, more, deadline)
        finally:
            self._free.release()

    def _exchange(self, messages: Sequence[bytes], more: bool, deadline: float) -> list[Reply]:
        request = b"".join(messages)
        while True:
            pooled = self._idle.pop() if self._idle else None
            if pooled is not None and not pooled.is_quiet():
                pooled.close()
                continue
            connection = pooled or _Connection(self._path, deadline)
            try:
                replies = connection.exchange(request, len(messages), more, deadline, self._hear)
            except NotSent:
                connection.close()
                if pooled is None:
                    raise
                # A restart of the peer ends all pooled connections: the loop ends at a fresh one.
                continue
            except BaseException:
                # A reply that is still on its way would be read as the reply to the next call.
                connection.close()
                raise
            self._idle.append(connection)
            return replies


def _call(method: str, parameters: Any, more: bool) -> CallMessage:
    encoded = NOTHING if parameters is None else msgspec.Raw(msgspec.json.encode(parameters))
    return CallMessage(method, encoded, more=more)


class _Connection:
    def __init__(self, path: Path, deadline: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._buffer = MessageBuffer(REPLY_CAP)
        self._most = _SMALL
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
                if time.monotonic() + _QUEUE_PAUSE > deadline:
                    raise
                time.sleep(_QUEUE_PAUSE)

    def is_quiet(self) -> bool:
        """Return False when the peer has hung up, or sent unexpected data, which would be read as the reply
        to the next call."""
        self._socket.setblocking(False)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def exchange(
        self, request: bytes, calls: int, more: bool, deadline: float, hear: Callable[[], None]
    ) -> list[Reply]:
        """Raises TimeoutError only before it calls `hear`, which it does when each call has a reply, and at
        each further one."""
        self.send(request, deadline)
        replies = [self.receive(deadline) for _ in range(calls)]
        hear()
        if any(reply.continues for reply in (replies[:-1] if more else replies)):
            raise Unreachable("announced another reply to a call that takes one")
        size, end = 0, deadline + _ALL
        while replies[-1].continues:
            # An empty reply takes memory, too.
            size += len(memoryview(replies[-1].parameters)) + _OF_A_REPLY
            give_way()
            if size > _MOST:
                raise Unreachable(f"sent replies of over {_MOST} bytes")
            try:
                replies.append(self.receive(min(max(deadline, time.monotonic() + _NEXT), end)))
            except TimeoutError as error:
                raise Unreachable(str(error)) from error
            hear()
        if len(self._buffer):
            raise Unreachable("sent more than one reply")
        return replies

    def send(self, request: bytes, deadline: float) -> None:
        sent = 0
        while sent < len(request):
            self._wait_until(deadline)
            try:
                sent += self._socket.send(memoryview(request)[sent:])
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
        """Return the bytes from the peer, and whether the deadline has passed. Raises TimeoutError."""
        try:
            self._wait_until(deadline)
            return self._received(), False
        except TimeoutError as error:
            # On a busy machine the reply may be here: this thread had no turn to see it.
            self._socket.setblocking(False)
            try:
                return self._received(), True
            except BlockingIOError:
                raise error from None

    def _received(self) -> bytes:
        data = self._socket.recv(self._most)
        self._most = _LARGE if len(data) >= _SMALL else _SMALL
        return data

    def close(self) -> None:
        self._socket.close()

    def _wait_until(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no reply in time")
        self._socket.settimeout(left)
