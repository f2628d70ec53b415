"""A varlink server: one thread a connection, replies in the order of the calls."""

import errno
import logging
import os
import select
import socket
import stat
import struct
import threading
from contextlib import closing, suppress
from pathlib import Path

from gateway_contract.base.durable import is_unwritable
from gateway_contract.base.errors import GatewayApiError
from gateway_contract.base.process import max_clients
from gateway_contract.varlink.dispatcher import Dispatcher
from gateway_contract.varlink.protocol import (
    REQUEST_CAP,
    MessageBuffer,
    Peer,
    ProtocolError,
    Stranger,
    check_peer,
)

_log = logging.getLogger(__name__)

_CHUNK = 64 << 10
_BACKLOG = 128
#: Bytes of a reply that waits for the next one.
_SHORT = 4096
#: Enough for the pools of 64 workers, and one thread each.
_MAX_CONNECTIONS = 1024
#: A client that does not read its reply for so many seconds is cut off: it would hold a thread forever.
_SEND_TIMEOUT = 10
_ACCEPT_PAUSE = 0.1
#: Seconds without a new connection after which the server looks for the file of its socket.
_LOOK = 1.0
#: The owner, and the group of its clients.
_MODE = 0o660


class AlreadyServed(GatewayApiError):
    """Another process serves the socket."""


class Server:
    """Serves a dispatcher at a Unix socket until it is closed. If the file of the socket is removed, the
    server binds again within seconds, unless another server has taken the path.

    With `waits`, a folder that is read-only or full is no error: the server binds as soon as it can."""

    def __init__(self, path: Path, dispatcher: Dispatcher, *, waits: bool = False) -> None:
        self._path = path
        self._dispatcher = dispatcher
        self._places = max_clients(_MAX_CONNECTIONS)
        self._slots = threading.BoundedSemaphore(self._places)
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._listener: socket.socket | None = None
        #: The file of the socket.
        self._file: os.stat_result | None = None
        #: Why clients cannot connect, as the log has it.
        self._fault: str | None = None
        try:
            self._bind()
        except OSError as error:
            if not (waits and is_unwritable(error)):
                raise
            self._report(error)

    def serve_forever(self) -> None:
        """Accept connections until `close`."""
        while not self._closing.is_set():
            if self._listener is None:
                self._closing.wait(_LOOK)
                self._keep_bound()
                continue
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                # Nobody can connect to a socket whose file is gone: its last clients have been accepted.
                self._keep_bound()
                continue
            except OSError as error:
                # Without descriptors or memory, say. That passes, so the server goes on.
                if not self._closing.wait(_ACCEPT_PAUSE):
                    _log.error("cannot accept a connection: %s", error)
                continue
            if not self._slots.acquire(blocking=False):
                _log.error("cannot accept a connection: %d are open", self._places)
                connection.close()
                continue
            with self._lock:
                self._connections.add(connection)
            try:
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            except RuntimeError as error:
                _log.error("cannot serve a connection: %s", error)
                self._done_with(connection)

    def close(self) -> None:
        """Stop listening and cut every connection."""
        self._closing.set()
        with self._lock:
            if self._listener is not None:
                # close alone would leave the other thread in accept.
                self._listener.shutdown(socket.SHUT_RDWR)
                self._listener.close()
                # Another server may have replaced it.
                if self._is_bound():
                    self._path.unlink()
            for connection in self._connections:
                connection.shutdown(socket.SHUT_RDWR)

    def _bind(self) -> None:
        """Raises AlreadyServed and OSError."""
        listener, file = _listen(self._path)
        listener.settimeout(_LOOK)
        if self._listener is not None:
            self._listener.close()
        self._listener, self._file = listener, file

    def _is_bound(self) -> bool:
        """Return True if the file at the path is that of this server's socket. Raises OSError."""
        with suppress(FileNotFoundError):
            return self._file is not None and os.path.samestat(self._path.stat(), self._file)
        return False

    def _keep_bound(self) -> None:
        """Bind again if the file of the socket is gone."""
        # `close` comes before or after this, not meanwhile: it would leave a new socket behind.
        with self._lock:
            if self._closing.is_set():
                return
            try:
                if not self._is_bound():
                    self._bind()
                    _log.warning("the socket %s was missing: clients can connect again", self._path)
            except (AlreadyServed, OSError) as error:
                self._report(error)
            else:
                self._fault = None

    def _report(self, error: Exception) -> None:
        """Log why clients cannot connect, once for each reason."""
        if self._fault != str(error):
            self._fault = str(error)
            _log.error("clients cannot connect to %s, which cannot be bound: %s", self._path, error)

    def _serve(self, connection: socket.socket) -> None:
        try:
            peer = check_peer(connection)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_TIMEOUT, 0))
            self._converse(connection, peer)
        except (Stranger, ProtocolError) as error:
            _log.warning("closed a connection: %s", error)
        except (BrokenPipeError, ConnectionResetError) as error:
            # So a client ends the replies of a stream.
            _log.debug("a client closed its connection: %s", error)
        except OSError as error:
            _log.info("lost a connection: %s", error)
        finally:
            self._done_with(connection)

    def _done_with(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)
        connection.close()
        self._slots.release()

    def _converse(self, connection: socket.socket, peer: Peer) -> None:
        buffer = MessageBuffer(REQUEST_CAP)
        while data := connection.recv(_CHUNK):
            buffer.feed(data)
            #: A short reply, which goes out with the next one: the client has sent another call already.
            held = b""
            try:
                while (message := buffer.next_message()) is not None:
                    with closing(self._dispatcher.replies(message, peer)) as replies:
                        for reply in replies:
                            if not reply and _has_left(connection):
                                return
                            if reply and len(reply) <= _SHORT and buffer.has_message():
                                held += reply
                            else:
                                connection.sendall(held + reply)
                                held = b""
            finally:
                # The next call had no reply.
                if held:
                    connection.sendall(held)


def _has_left(connection: socket.socket) -> bool:
    ended = select.poll()
    # A client that only closed its sending half causes no POLLHUP.
    ended.register(connection, 0)
    return bool(ended.poll(0))


def _listen(path: Path) -> tuple[socket.socket, os.stat_result]:
    """Return the listening socket, and its file. Raises AlreadyServed and OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    # Bound aside and moved into place when it listens: between bind and listen the kernel refuses clients,
    # and another server would take the socket for an abandoned one.
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _check_free(path)
        # Of an earlier process with this number, which was killed.
        aside.unlink(missing_ok=True)
        listener.bind(str(aside))
        # Before it listens, nobody can connect. The umask would be that of all threads.
        aside.chmod(_MODE)
        listener.listen(_BACKLOG)
        file = aside.stat()
        aside.rename(path)
    except BaseException:
        listener.close()
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise
    return listener, file


def _check_free(path: Path) -> None:
    """Raises AlreadyServed, and FileExistsError for a file that is no socket."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise FileExistsError(errno.EEXIST, "is there and is no socket", str(path))
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # Not blocking: a server whose queue is full still serves the socket.
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return
        except BlockingIOError:
            pass
    raise AlreadyServed(f"another process serves {path}")
