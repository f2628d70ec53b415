"""A varlink server: one thread a connection, replies in the order of the calls."""

import errno
import logging
import os
import select
import socket
import stat
import struct
import threading
from contextlib import closing
from pathlib import Path

from gateway_api.base.errors import GatewayApiError
from gateway_api.base.process import places
from gateway_api.wire.varlink.dispatcher import Dispatcher
from gateway_api.wire.varlink.protocol import (
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


class AlreadyServed(GatewayApiError):
    """Another process serves the socket."""


class Server:
    """Serves a dispatcher at a Unix socket until it is closed."""

    def __init__(self, path: Path, dispatcher: Dispatcher) -> None:
        self._path = path
        self._dispatcher = dispatcher
        self._places = places(_MAX_CONNECTIONS)
        self._slots = threading.BoundedSemaphore(self._places)
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
        """Stops listening and cuts every connection."""
        self._closing.set()
        # close alone would leave the other thread in accept.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._remove_socket()
        with self._lock:
            for connection in self._connections:
                connection.shutdown(socket.SHUT_RDWR)

    def _remove_socket(self) -> None:
        try:
            # Another server may have replaced it.
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
        except FileNotFoundError:
            pass

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


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    # Bound aside and moved into place when it listens: between bind and listen the kernel refuses clients,
    # and another server would take the socket for an abandoned one.
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
