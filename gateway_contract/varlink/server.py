"""Varlink server with one thread for each connection. Replies are sent in the order of the calls."""

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
from gateway_contract.base.process import compute_max_clients
from gateway_contract.varlink.dispatcher import Dispatcher
from gateway_contract.varlink.protocol import (
    MAX_CALL_BYTES,
    MessageBuffer,
    Peer,
    ProtocolError,
    UntrustedPeer,
    check_peer,
)

_log = logging.getLogger(__name__)

_READ_BYTES = 64 << 10
_BACKLOG = 128
#: Maximum bytes of a reply that the server holds back, to send it together with the next reply.
_MAX_HELD_REPLY_BYTES = 4096
#: Enough for the connections of 64 workers. Each connection has a thread.
_MAX_CONNECTIONS = 1024
#: Seconds after which the server cuts off a client that does not read its reply, and so holds a thread.
_SEND_TIMEOUT_SECONDS = 10
_ACCEPT_PAUSE_SECONDS = 0.1
#: Seconds without a new connection after which the server checks that the file of its socket exists.
_CHECK_SECONDS = 1.0
#: The socket is for its owner, and for the group of the clients.
_SOCKET_MODE = 0o660


class AlreadyServed(GatewayApiError):
    """Error of a server whose socket another process already serves."""


class Server:
    """Server of a dispatcher at a Unix socket. If the file of the socket is removed, the server creates the
    socket again within seconds, unless another server has taken the path.

    With `waits`, the server also starts if the folder is read-only or full, and creates the socket as soon as
    the folder is writable.
    """

    def __init__(self, path: Path, dispatcher: Dispatcher, *, waits: bool = False) -> None:
        self._path = path
        self._dispatcher = dispatcher
        self._max_connections = compute_max_clients(_MAX_CONNECTIONS)
        self._slots = threading.BoundedSemaphore(self._max_connections)
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._listener: socket.socket | None = None
        #: The status of the socket's file, as this server made it.
        self._socket_file: os.stat_result | None = None
        #: The last logged reason why clients cannot connect.
        self._logged_fault: str | None = None
        try:
            self._bind()
        except OSError as error:
            if not (waits and is_unwritable(error)):
                raise
            self._report_fault(error)

    def serve_forever(self) -> None:
        """Accept connections until `close` is called."""
        while not self._closing.is_set():
            if self._listener is None:
                self._closing.wait(_CHECK_SECONDS)
                self._keep_bound()
                continue
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                # Nobody can connect to a socket whose file is gone: its last clients have been accepted.
                self._keep_bound()
                continue
            except OSError as error:
                # For example without free descriptors or memory. Such a fault passes, so the server goes on.
                if not self._closing.wait(_ACCEPT_PAUSE_SECONDS):
                    _log.error(
                        "cannot accept a varlink connection, next attempt in %g s: %s",
                        _ACCEPT_PAUSE_SECONDS,
                        error,
                    )
                continue
            if not self._slots.acquire(blocking=False):
                _log.error(
                    "refused a varlink connection: the limit of %d connections is reached",
                    self._max_connections,
                )
                connection.close()
                continue
            with self._lock:
                self._connections.add(connection)
            try:
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            except RuntimeError as error:
                _log.error(
                    "cannot start a thread for a varlink connection, closing the connection: %s", error
                )
                self._close_connection(connection)

    def close(self) -> None:
        """Stop listening and close every connection."""
        self._closing.set()
        with self._lock:
            if self._listener is not None:
                # `close` alone would leave the other thread in `accept`.
                self._listener.shutdown(socket.SHUT_RDWR)
                self._listener.close()
                # Another server may have replaced the file.
                if self._is_bound():
                    self._path.unlink()
            for connection in self._connections:
                connection.shutdown(socket.SHUT_RDWR)

    def _bind(self) -> None:
        """Listen at the path. Raises AlreadyServed if another process serves the socket, and OSError if the
        socket cannot be created."""
        listener, file_status = _listen(self._path)
        listener.settimeout(_CHECK_SECONDS)
        if self._listener is not None:
            self._listener.close()
        self._listener, self._socket_file = listener, file_status

    def _is_bound(self) -> bool:
        """Return True if the file at the path is the socket of this server. Raises OSError if the path cannot
        be read."""
        with suppress(FileNotFoundError):
            return self._socket_file is not None and os.path.samestat(self._path.stat(), self._socket_file)
        return False

    def _keep_bound(self) -> None:
        """Create the socket again if its file was removed."""
        # `close` must not run meanwhile: this method would leave a new socket behind.
        with self._lock:
            if self._closing.is_set():
                return
            try:
                if not self._is_bound():
                    self._bind()
                    _log.warning(
                        "the socket %s was missing and exists again: clients can connect", self._path
                    )
            except (AlreadyServed, OSError) as error:
                self._report_fault(error)
            else:
                self._logged_fault = None

    def _report_fault(self, error: Exception) -> None:
        """Log why clients cannot connect, unless the same reason was logged last."""
        if self._logged_fault != str(error):
            self._logged_fault = str(error)
            _log.error("cannot bind the socket %s, clients cannot connect: %s", self._path, error)

    def _serve(self, connection: socket.socket) -> None:
        try:
            peer = check_peer(connection)
            connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_TIMEOUT_SECONDS, 0)
            )
            self._handle_calls(connection, peer)
        except (UntrustedPeer, ProtocolError) as error:
            _log.warning("refused a client of the varlink socket and closed its connection: %s", error)
        except (BrokenPipeError, ConnectionResetError) as error:
            # This is how a client ends a stream.
            _log.debug("a client closed its varlink connection: %s", error)
        except OSError as error:
            _log.info("lost the varlink connection of a client: %s", error)
        finally:
            self._close_connection(connection)

    def _close_connection(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)
        connection.close()
        self._slots.release()

    def _handle_calls(self, connection: socket.socket, peer: Peer) -> None:
        buffer = MessageBuffer(MAX_CALL_BYTES)
        while data := connection.recv(_READ_BYTES):
            buffer.feed(data)
            #: Short replies that wait for the next reply, because the client has already sent another call.
            held_replies = b""
            try:
                while (message := buffer.next_message()) is not None:
                    with closing(self._dispatcher.replies(message, peer)) as replies:
                        for reply in replies:
                            if not reply and _has_hung_up(connection):
                                return
                            if reply and len(reply) <= _MAX_HELD_REPLY_BYTES and buffer.has_message():
                                held_replies += reply
                            else:
                                connection.sendall(held_replies + reply)
                                held_replies = b""
            finally:
                # The next call had no reply to carry the held replies.
                if held_replies:
                    connection.sendall(held_replies)


def _has_hung_up(connection: socket.socket) -> bool:
    poller = select.poll()
    # POLLHUP does not come for a client that has closed only its sending half.
    poller.register(connection, 0)
    return bool(poller.poll(0))


def _listen(path: Path) -> tuple[socket.socket, os.stat_result]:
    """Create a listening socket at a path. Return the socket and the status of its file. Raises AlreadyServed
    if another process serves the socket, and OSError if the socket cannot be created."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    # The socket gets its path only when it listens: between bind and listen the kernel refuses clients, and
    # another server would take the socket for an abandoned one.
    temporary_path = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _check_free(path)
        # A file of an earlier process with this number, which was killed.
        temporary_path.unlink(missing_ok=True)
        listener.bind(str(temporary_path))
        # Nobody can connect before `listen`. A umask would apply to all threads.
        temporary_path.chmod(_SOCKET_MODE)
        listener.listen(_BACKLOG)
        file_status = temporary_path.stat()
        temporary_path.rename(path)
    except BaseException:
        listener.close()
        with suppress(OSError):
            temporary_path.unlink(missing_ok=True)
        raise
    return listener, file_status


def _check_free(path: Path) -> None:
    """Check that no server uses the path. Raises AlreadyServed if a server uses the path, and FileExistsError
    if the file at the path is not a socket."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise FileExistsError(errno.EEXIST, "is there and is no socket", str(path))
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # Without blocking: a server whose queue is full still serves the socket.
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return
        except BlockingIOError:
            pass
    raise AlreadyServed(f"another process serves {path}")
