"""Worker of gunicorn with gevent, a deadline for every client, and JSON for every rejected request.

gunicorn's own worker closes neither a connection without a TLS handshake nor one without a request's body.

No other module uses internals of gunicorn. The following internals were checked against gunicorn 27.0:

- `AsyncWorker.handle`, which calls `handle_request` for each request, and waits for a request inside the
  context that `timeout_ctx` returns
- `wsgi.create`, and `default_headers`, `send_headers` and `write` of `wsgi.Response`
- `failed` and `reader` of a request's body, and `length` of a `LengthReader`: the bytes that are not read yet
- the errors of `gunicorn.http`, and the loggers of `gunicorn.glogging.Logger`
- `WORKERS`, `num_workers` and `LISTENERS` of the arbiter
- `maybe_promote_master` of the arbiter, which the arbiter calls at each turn of its loop, at least once a
  second
"""

import json
import logging
import os
import re
import secrets
import signal
import ssl
import time
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import lru_cache, partial
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

import gevent
from gevent.server import StreamServer
from gunicorn.glogging import Logger
from gunicorn.http import errors, wsgi
from gunicorn.http.body import LengthReader
from gunicorn.sock import ssl_context
from gunicorn.workers.base_async import AsyncWorker
from gunicorn.workers.ggevent import GeventWorker

from gateway_api.base import http
from gateway_api.events import Stream
from gateway_api.serving.connections import (
    Connections,
    Limits,
    NoRoom,
    PlainSocket,
    TlsSocket,
    close_at_once,
    watch_socket,
)
from gateway_contract.base import logs
from gateway_contract.base.certificate import SERVED, log_expiry
from gateway_contract.base.process import Readiness, Watchdog, compute_max_clients, raise_descriptor_limit
from gateway_contract.base.turns import give_way
from gateway_contract.base.variables import read_log_style

_log = logging.getLogger("gunicorn.error")
_access = logging.getLogger("gunicorn.access")

readiness = Readiness()

#: Interval at which a worker checks the deadlines of clients and whether it has to stop, in seconds.
_CHECK_INTERVAL_SECONDS = 0.25
#: At a stop, seconds to wait for the next request after a response, and for the first request of a
#: connection.
_LINGER_SECONDS, _LINGER_NEW_SECONDS = 0.5, 2.0
#: At a reload, seconds for requests in progress. A commit may take 32 seconds.
_FINISH_SECONDS = 35.0
#: Seconds for the audit records of requests whose connections were closed.
_RECORD_SECONDS = 0.5

#: Status code and phrase of each error of gunicorn.
_STATUS_BY_ERROR = (
    (errors.LimitRequestLine, "414 URI Too Long"),
    (errors.LimitRequestHeaders, "431 Request Header Fields Too Large"),
    (errors.UnsupportedTransferCoding, "501 Not Implemented"),
    (errors.ExpectationFailed, "417 Expectation Failed"),
    (errors.ParseException, "400 Bad Request"),
)
#: Name of the invalid header by which gunicorn_h1c before 0.6.12 reports an unknown transfer coding.
_UNKNOWN_CODING = "Unsupported Transfer-Encoding"

#: RFC 3986 section 3.2: a name or an IPv4 address, or an IPv6 address in brackets; a port is optional.
_HOST_PATTERN = re.compile(
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)(?::(?P<port>[0-9]{0,5}))?"
)
_MAX_PORT = 65535

#: Maximum bytes of a body that are sent together with the header. A TLS record has up to 16 KiB.
_MAX_SHORT_BODY_BYTES = 15 << 10
#: Bytes of a discarded body that are read at once.
_MAX_PIECE_BYTES = 64 << 10

#: Folder that always exists, and in which files can be created (shm_overview(7)).
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - gunicorn's file has no name

#: Signals for which a worker installs its own handlers.
_WORKER_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1}


class _SettingsCache:
    """Cache of gunicorn's settings, which do not change in a worker. Without the cache, gunicorn would look
    up settings 20 times in a request, with two calls each."""

    def __init__(self, cfg: Any) -> None:
        self._cfg = cfg

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._cfg, name)
        setattr(self, name, value)
        return value

    def is_of(self, cfg: Any) -> bool:
        return self._cfg is cfg


class _ListenerName:
    """Name of a listening socket, which stays available after the socket is closed."""

    def __init__(self, listener: Any) -> None:
        self._name = listener.getsockname()

    def getsockname(self) -> Any:
        return self._name


class Response(wsgi.Response):  # type: ignore[misc]
    """Response without the header Server. A short response is sent in one packet."""

    headers_sent: bool

    def default_headers(self) -> list[str]:
        connection = "upgrade" if self.upgrade else "close" if self.should_close() else "keep-alive"
        major, minor = self.req.version
        lines = [
            f"HTTP/{major}.{minor} {self.status}\r\n",
            f"Date: {_format_date(int(time.time()))}\r\n",
            f"Connection: {connection}\r\n",
        ]
        if self.chunked:
            lines.append("Transfer-Encoding: chunked\r\n")
        return lines

    def write(self, data: bytes) -> None:
        if self.headers_sent or len(data) != self.response_length or len(data) > _MAX_SHORT_BODY_BYTES:
            super().write(data)
            return
        lines = [*self.default_headers(), *(f"{name}: {value}\r\n" for name, value in self.headers), "\r\n"]
        self.sock.sendall("".join(lines).encode("latin-1") + data)
        self.headers_sent, self.sent = True, len(data)


#: The socket of the connection that this greenlet serves.
_current_socket: ContextVar[Any] = ContextVar("served")

#: The time in the header Date, cached for one second.
_format_date = lru_cache(1)(wsgi.util.http_date)


class GatewayWorker(GeventWorker):  # type: ignore[misc]
    """Worker of gunicorn that closes the connection of each client that misses a deadline. When the worker
    stops, it ends all streams."""

    cfg: Any
    wsgi: Any

    def __init__(
        self, age: int, ppid: int, sockets: Any, app: Any, timeout: float, cfg: Any, log: Any
    ) -> None:
        # gunicorn makes the file of the heartbeat before the fork: an error would end the arbiter.
        if cfg.worker_tmp_dir and not os.access(cfg.worker_tmp_dir, os.W_OK | os.X_OK):
            log.error("cannot write the heartbeat file to %s, using %s", cfg.worker_tmp_dir, _SHARED_MEMORY)
            cfg.set("worker_tmp_dir", _SHARED_MEMORY)
        super().__init__(age, ppid, sockets, app, timeout, cfg, log)
        self.cfg = _SettingsCache(self.cfg)
        limits = Limits()
        limits = limits.limit_to(compute_max_clients(limits.max_connections + limits.loopback_reserve))
        self._connections = Connections(time.monotonic, limits)
        self._context: ssl.SSLContext | None = None
        #: Id of the process whose counters this worker continues (`web/counters.py`), and whether this worker
        #: logs that the certificate has expired. The arbiter sets both before the fork, in the profile with
        #: users.
        self.predecessor: int | None = None
        self.logs_expiry = False

    def run(self) -> None:
        """Serve until the worker has to stop, and then finish the requests in progress."""
        unblock_signals()
        gevent.get_hub().handle_error = _log_greenlet_error
        # Tracking where greenlets were spawned takes a kilobyte for each greenlet, and is not used.
        gevent.config.track_greenlet_tree = False
        if self.logs_expiry and self.cfg.certfile:
            gevent.spawn(log_expiry, Path(self.cfg.certfile), SERVED.end, gevent.sleep)
        if self.cfg.is_ssl:
            self._context = ssl_context(self.cfg)
            self._context.sslsocket_class = TlsSocket
        servers = [
            StreamServer(listener, handle=partial(self.handle, _ListenerName(listener)))
            for listener in self.sockets
        ]
        for server in servers:
            # One connection at a time, so that other workers accept connections, too.
            server.max_accept = 1
            server.start()
        while self.alive:
            self.notify()
            self._end_overdue()
            gevent.sleep(_CHECK_INTERVAL_SECONDS)
        for server in servers:
            server.close()
        # A connection that was accepted just now is not counted yet.
        gevent.sleep(0)
        self.wsgi.end_streams()
        # If the arbiter stops as well, it ends the worker earlier, by graceful_timeout.
        deadline = time.monotonic() + _FINISH_SECONDS
        while self._connections and time.monotonic() < deadline:
            self.notify()
            self._end_overdue()
            self._connections.end_without_request(_LINGER_SECONDS, _LINGER_NEW_SECONDS)
            gevent.sleep(_LINGER_SECONDS / 5)
        if self._connections:
            self._connections.end_all()
            gevent.sleep(_RECORD_SECONDS)
        self.wsgi.close_audit_log()

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        client.setblocking(1)
        try:
            sock = watch_socket(client, self._context)
        except (OSError, ValueError) as error:
            # The client has closed the connection already, perhaps after bytes that are not TLS.
            _log.debug("a client closed its connection before the first request: %s", error)
            client.close()
            return
        try:
            connection = self._connections.admit(addr[0] if addr else "", partial(close_at_once, sock))
        except NoRoom:
            close_at_once(sock)
            return
        sock.connection = connection
        _current_socket.set(sock)
        try:
            AsyncWorker.handle(self, listener, sock, addr)
        finally:
            self._connections.remove(connection)

    def notify(self) -> None:
        # gunicorn calls this as the worker's heartbeat, from the start of the server on.
        super().notify()
        readiness.report_serving()

    def timeout_ctx(self) -> AbstractContextManager[None]:
        """Discard the rest of the last request's body, and begin the wait for the next request. Return the
        context in which the caller must wait. The wait has no timeout of its own: the deadline of the
        connection ends it."""
        sock = _current_socket.get()
        _discard_body(sock)
        wait: AbstractContextManager[None] = sock.connection.wait_for_request()
        return wait

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> None:
        """Serve a request as gunicorn's AsyncWorker does, but check the header first, and use the class
        Response of this module."""
        check_header(req)
        give_way()
        started_at = datetime.now()
        self.cfg.pre_request(self, req)
        response, environ = wsgi.create(req, sock, addr, listener_name, self.cfg, response_class=Response)
        environ["wsgi.multithread"] = True
        if not self.alive:
            response.force_close()
        body = self.wsgi(environ, response.start_response)
        if isinstance(body, Stream):
            # A stream has no length, so it ends when its connection ends.
            response.force_close()
            sock.connection.begin_stream()
        try:
            self._send(response, body)
        finally:
            self.log.access(response, req, environ, datetime.now() - started_at)
            self.cfg.post_request(self, req, environ, response)
        sock.body = req.body
        if response.should_close():
            raise StopIteration

    def _send(self, response: Any, body: Any) -> None:
        try:
            for piece in body:
                response.write(piece)
            response.close()
        except OSError:
            raise
        except Exception:
            if not response.headers_sent:
                raise
            # The header of a second response would be part of the body.
            _log.exception("cannot complete a response, closing its connection")
            raise StopIteration from None
        finally:
            if hasattr(body, "close"):
                body.close()

    def _end_overdue(self) -> None:
        for phase, count in self._connections.end_overdue().items():
            _log.info("closed %d connections: the clients did not %s in time", count, phase.value)
        if rejections := self._connections.take_rejection_count():
            _log.warning(
                "rejected %d connections: the limit is reached, and no connection is idle", rejections
            )

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        if isinstance(exc, gevent.GreenletExit):
            return
        if isinstance(exc, ssl.SSLError):
            # A client without TLS could not read a response, either.
            _log.info("no TLS from %s, connection closed: %s", addr and addr[0], exc.reason)
            return
        request_id = secrets.token_hex(16)
        status = _find_status(exc)
        if status is None:
            _log.error(
                "cannot serve a request, responding with 500",
                exc_info=exc,
                extra=logs.make_extra(request_id=request_id),
            )
            status = "500 Internal Server Error"
        header, body = _make_last_response(status, request_id, tls=self.cfg.is_ssl)
        fields = http.make_log_fields(
            {"REMOTE_ADDR": addr and addr[0]},
            request_id=request_id,
            status=int(status[:3]),
            size=len(body),
            seconds=None,
        )
        # Only the class of the error: its text has parts of the request, perhaps a token.
        _access.info("", extra=logs.make_extra(**fields, refused=type(exc).__name__))
        try:
            client.sendall((header + body).encode())
        except OSError as error:
            _log.debug("cannot send an error response to a client: %s", error)


class Log(Logger):  # type: ignore[misc]
    """Logger of gunicorn, in the log format of the product."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        # A wrong value in the environment ends the start later, with a message.
        format, level, _ = read_log_style(os.environ)
        # gunicorn would keep the access log at info.
        for logger in (self.error_log, self.access_log):
            logger.setLevel(level)
        logs.install(format, self.error_log, self.access_log)

    def access(self, resp: Any, req: Any, environ: Any, request_time: timedelta) -> None:
        level = http.choose_log_level(environ, resp.status_code)
        if not self.access_log.isEnabledFor(level):
            return
        fields = http.make_log_fields(
            environ,
            request_id=http.find_request_id(resp.headers),
            status=resp.status_code,
            size=resp.sent,
            seconds=request_time.total_seconds(),
        )
        self.access_log.log(level, "", extra=logs.make_extra(**fields))


def prepare_arbiter(server: Any) -> None:
    """Raise the limit of descriptors, block signals during forks, and connect the arbiter to the watchdog of
    systemd. Must be called once, before `Readiness.take_over`."""
    raise_descriptor_limit()
    # Another arbiter may have started this one (SIGUSR2), by a fork.
    unblock_signals()
    # Between the fork and `init_signals`, a worker has the handlers of the arbiter: a stop would have no
    # effect, and the arbiter would kill the worker after `graceful_timeout`. So signals wait until the worker
    # has its own handlers, and calls `unblock_signals`.
    block_signals = partial(signal.pthread_sigmask, signal.SIG_BLOCK, _WORKER_SIGNALS)
    os.register_at_fork(before=block_signals, after_in_parent=unblock_signals)
    watchdog = Watchdog.of(os.environ)
    if watchdog is not None:
        _feed_watchdog(watchdog, server)


def _feed_watchdog(watchdog: Watchdog, server: Any) -> None:
    """Report each turn of the arbiter's loop to the watchdog of systemd. The same loop ends workers that
    hang, so systemd restarts an arbiter whose loop has stopped."""
    # Weak, as a worker must not keep the arbiter.
    promote = weakref.WeakMethod(server.maybe_promote_master)

    def beat_and_promote() -> None:
        watchdog.beat()
        promote_master = promote()
        if promote_master is not None:
            promote_master()

    server.maybe_promote_master = beat_and_promote


def unblock_signals() -> None:
    """Unblock the signals of a worker. Signals that were sent while they were blocked arrive now."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WORKER_SIGNALS)


def find_used_pids(arbiter: Any) -> set[int | None]:
    """Return the process ids of the arbiter's workers, and of the ended processes whose counter files these
    workers have taken over."""
    return {pid for worker in arbiter.WORKERS.values() for pid in (worker.pid, worker.predecessor)}


def is_expiry_logged(arbiter: Any) -> bool:
    """Return True if any worker that has started since the last reload logs that the certificate has
    expired."""
    return any(worker.logs_expiry and worker.cfg.is_of(arbiter.cfg) for worker in arbiter.WORKERS.values())


def has_all_workers(arbiter: Any) -> bool:
    """Return True if the arbiter has started as many workers as configured."""
    return bool(len(arbiter.WORKERS) >= arbiter.num_workers)


def list_listener_descriptors(arbiter: Any) -> Iterator[int]:
    """Yield the file descriptors of the arbiter's listening sockets."""
    return (listener.fileno() for listener in arbiter.LISTENERS)


def check_header(request: Any) -> None:
    """Check those rules of HTTP that gunicorn's two parsers do not both check. Raises errors.InvalidHeader if
    Host is missing, repeated or invalid, errors.ObsoleteFolding for a header that continues on another line,
    and errors.UnsupportedTransferCoding for a transfer coding other than chunked."""
    hosts = [value for name, value in request.headers if name == "HOST"]
    # RFC 9112 section 3.2. HTTP/1.0 had no such header.
    if len(hosts) > 1 or (not hosts and request.version >= (1, 1)) or not all(map(_is_host, hosts)):
        raise errors.InvalidHeader("HOST", req=request)
    for name, value in request.headers:
        # RFC 9112 section 5.2. gunicorn_h1c makes a line that continues another one a header without a name.
        if not name:
            raise errors.ObsoleteFolding(value)
        # RFC 9112 section 6.1. gunicorn would pass a compressed body on as it is.
        if name == "TRANSFER-ENCODING" and value.strip(" \t").lower() != "chunked":
            raise errors.UnsupportedTransferCoding(value)


@lru_cache(32)
def _is_host(text: str) -> bool:
    match = _HOST_PATTERN.fullmatch(text)
    if match is None or int(match["port"] or 0) > _MAX_PORT:
        return False
    if match["ipv6"] is None:
        return True
    try:
        IPv6Address(match["ipv6"])
    except ValueError:
        return False
    return True


def _find_status(error: BaseException) -> str | None:
    """Return the status code and phrase for an error of gunicorn's parser; None for any other error, which is
    an internal error of the worker."""
    if isinstance(error, errors.InvalidHeader) and error.hdr == _UNKNOWN_CODING:
        return "501 Not Implemented"
    return next((status for kind, status in _STATUS_BY_ERROR if isinstance(error, kind)), None)


def _log_greenlet_error(context: object, kind: Any, error: Any, trace: Any) -> None:
    """Log the error of a greenlet. This function replaces `handle_error` of gevent's hub, which would print
    the error."""
    hub = gevent.get_hub()
    if not issubclass(kind, hub.NOT_ERROR):
        _log.error("a greenlet ended with an unexpected error", exc_info=(kind, error, trace))
    if context is None or issubclass(kind, hub.SYSTEM_ERROR):
        hub.handle_system_error(kind, error)


def _make_last_response(status: str, request_id: str, *, tls: bool) -> tuple[str, str]:
    """Return the header and the body of an error response. The connection must be closed after this
    response."""
    body = json.dumps({"status": "error", "message": status.partition(" ")[2]}, separators=(",", ":"))
    headers = {
        "Connection": "close",
        "Content-Type": "application/json",
        http.REQUEST_ID_HEADER: request_id,
        **http.make_security_headers(tls=tls),
        "Content-Length": str(len(body)),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n", body


def _discard_body(sock: PlainSocket | TlsSocket) -> None:
    """Read and discard the rest of the last request's body. gunicorn would read a kilobyte at a time and copy
    all remaining bytes each time: for a megabyte, gunicorn took a tenth of a second, in which no other
    request was served."""
    body, sock.body = sock.body, None
    # A body with a length says when it is read to its end, a chunked one only when it is read once more.
    if body is None or (isinstance(body.reader, LengthReader) and not body.reader.length):
        return
    while not body.failed and body.read(_MAX_PIECE_BYTES):
        pass
