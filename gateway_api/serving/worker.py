"""gunicorn's gevent worker, with a deadline for every client and JSON for every rejected request.

The worker of gunicorn closes neither a connection without a TLS handshake nor one without a request's body.

Internals of gunicorn, read in 27.0: `AsyncWorker.handle` and `handle_request` (below `GeventWorker`),
`timeout_ctx` around the wait for a request, `is_already_handled`, `start_response` as a method of the
response, the errors of `gunicorn.http`.
"""

import logging
import re
import secrets
import ssl
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

import gevent
import gevent.event
import gevent.events
from gevent.monkey import MonkeyPatchWarning
from gevent.server import StreamServer
from gunicorn.http import errors
from gunicorn.sock import ssl_context
from gunicorn.workers.base_async import AsyncWorker
from gunicorn.workers.ggevent import GeventWorker

from gateway_api.base import logs
from gateway_api.base.certificate import log_expiry
from gateway_api.base.http import log_fields
from gateway_api.base.process import Readiness, places
from gateway_api.base.shares import Shares
from gateway_api.serving import signals
from gateway_api.serving.connections import Connections, Limits, NoRoom, Phase
from gateway_api.serving.response import EventStream, last_response
from gateway_api.serving.sockets import TlsSocket, end, watched
from gateway_api.web.counters import Counters

_log = logging.getLogger("gunicorn.error")
_access = logging.getLogger("gunicorn.access")

readiness = Readiness()

_STREAM = "text/event-stream"
_SWEEP = 1.0
#: At a stop, seconds for the next request of a client that got a response, and for the first of a new one.
_LINGER, _LINGER_NEW = 0.5, 2.0
#: At a reload, seconds for requests in progress: a commit may take 32.
_FINISH = 35.0
#: Until the requests of closed connections have ended and are recorded.
_PARTING = 0.5

_STATUS_OF = (
    (errors.LimitRequestLine, "414 URI Too Long"),
    (errors.LimitRequestHeaders, "431 Request Header Fields Too Large"),
    (errors.UnsupportedTransferCoding, "501 Not Implemented"),
    (errors.ExpectationFailed, "417 Expectation Failed"),
    (errors.ParseException, "400 Bad Request"),
)
#: gunicorn_h1c before 0.6.12 distinguishes this from other invalid headers by its text alone.
_UNKNOWN_CODING = "Unsupported Transfer-Encoding"

#: RFC 3986 section 3.2: a name or an IPv4 address, or an IPv6 address in brackets; a port is optional.
_HOST = re.compile(
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)(?::(?P<port>[0-9]{0,5}))?"
)
_MAX_PORT = 65535


class _Listener:
    """The name of a listener. The listener may be closed before its connections."""

    def __init__(self, listener: Any) -> None:
        self._name = listener.getsockname()

    def getsockname(self) -> Any:
        return self._name


class GatewayWorker(GeventWorker):  # type: ignore[misc]
    """Ends a connection whose client misses a deadline, and streams when the worker stops."""

    wsgi: Any

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        limits = Limits()
        limits = limits.within(places(limits.in_all + limits.for_loopback))
        self._connections = Connections(time.monotonic, limits)
        self._context: ssl.SSLContext | None = None
        self._stopping = gevent.event.Event()
        self._stop_application: Callable[[], None] = lambda: None
        self._end_application: Callable[[], None] = lambda: None
        #: See `slots.py`. The arbiter sets it before the fork, in the profile with metrics.
        self.slot: int | None = None
        self._counters: Counters | None = None

    def patch(self) -> None:
        # Nobody looks at where a greenlet was spawned, which takes a kilobyte of each.
        gevent.config.track_greenlet_tree = False
        # No package here extends gevent, which would look for one 25 times, in the files of all installed
        # packages: half the time that a worker takes to start. Read in gevent 26.9.0.
        gevent.events.notify_and_call_entry_points = gevent.events.notify
        with warnings.catch_warnings():
            # The hub in the arbiter has imported requests, with unpatched names. No worker uses it.
            warnings.simplefilter("ignore", MonkeyPatchWarning)
            super().patch()

    def init_signals(self) -> None:
        super().init_signals()
        signals.take()

    def load_wsgi(self) -> None:
        gevent.get_hub().print_exception = _report
        if self.slot is not None:
            self._counters = Counters(self.slot)
        super().load_wsgi()
        if self.slot == 0 and self.cfg.certfile:
            # One worker speaks for all.
            gevent.spawn(log_expiry, Path(self.cfg.certfile), gevent.sleep)
        application = self.wsgi
        self._stop_application = application.stop
        self._end_application = application.end
        # In a cycle with the worker, the application would not close its databases at the end.
        leave = self._connections.leave

        def with_streams(environ: Any, start_response: Any) -> Any:
            pieces = application(environ, start_response)
            response = start_response.__self__
            is_stream = dict(response.headers).get("Content-Type", "").startswith(_STREAM)
            if not is_stream or environ["REQUEST_METHOD"] == "HEAD":
                return pieces
            # The application counts it now, not when its greenlet begins.
            next(pieces)
            # Or a client that gets the end of the stream would use the connection again.
            response.force_close()
            connection = response.sock.connection
            connection.is_stream()
            return EventStream(pieces, response, environ, partial(leave, connection))

        self.wsgi = with_streams

    def run(self) -> None:
        """Serves until the worker has to stop, and then finishes the requests in progress."""
        self._shares = Shares()
        if self.cfg.is_ssl:
            self._context = ssl_context(self.cfg)
            self._context.sslsocket_class = TlsSocket
        servers = [
            StreamServer(listener, handle=partial(self.handle, _Listener(listener)))
            for listener in self.sockets
        ]
        for server in servers:
            # One at a time, so that other workers accept some.
            server.max_accept = 1
            server.start()
        while self.alive:
            self.notify()
            self._sweep()
            if self._counters is not None:
                self._counters.settle()
            self._stopping.wait(_SWEEP)
        for server in servers:
            server.close()
        # A connection that was accepted just now is not among the connections yet.
        gevent.sleep(0)
        self._stop_application()
        # If the arbiter stops as well, it ends this earlier, by graceful_timeout.
        deadline = time.monotonic() + _FINISH
        while self._connections and time.monotonic() < deadline:
            self.notify()
            self._sweep()
            self._connections.end_unasked(_LINGER, _LINGER_NEW)
            gevent.sleep(_LINGER / 5)
        if self._connections:
            self._connections.end_all()
            gevent.sleep(_PARTING)
        self._end_application()

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        client.setblocking(1)
        try:
            sock = watched(client, self._context)
        except (OSError, ValueError) as error:
            # The client has closed it already, perhaps after bytes that are not TLS.
            _log.debug("lost a connection: %s", error)
            client.close()
            return
        try:
            connection = self._connections.admit(addr[0] if addr else "", partial(end, sock))
        except NoRoom:
            end(sock)
            return
        sock.connection = connection
        gevent.getcurrent().sock = sock
        try:
            with self._shares.share() as sock.share:
                AsyncWorker.handle(self, listener, sock, addr)
        finally:
            if not sock.is_handed_over:
                self._connections.leave(connection)

    def notify(self) -> None:
        # gunicorn's heartbeat: the first comes when the server has started.
        super().notify()
        readiness.serves()

    @contextmanager
    def timeout_ctx(self) -> Iterator[None]:
        """The wait for a next request, which the connection's deadline ends."""
        sock = gevent.getcurrent().sock
        connection = sock.connection
        if connection.phase is Phase.STREAM:
            # A stream is the last response of a connection.
            raise gevent.GreenletExit
        sock.discard_body()
        with connection.next_request():
            yield

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> None:
        # Not GeventWorker's: it ignores GreenletExit, and then waits for another request on a connection
        # whose response is incomplete.
        check_header(req)
        sock.share.begin_request()
        AsyncWorker.handle_request(self, listener_name, req, sock, addr)
        if not sock.is_handed_over:
            sock.body = req.body

    def is_already_handled(self, respiter: Any) -> bool:
        if isinstance(respiter, EventStream):
            respiter.start()
            return True
        return False

    def handle_exit(self, sig: int, frame: Any) -> None:
        super().handle_exit(sig, frame)
        # Not at once: a signal handler interrupts any code.
        gevent.spawn(self._stopping.set)

    def _sweep(self) -> None:
        for phase, ended in self._connections.sweep().items():
            _log.info("closed %d connections: they did not %s in time", ended, phase.value)
        if rejected := self._connections.rejected():
            _log.warning("rejected %d connections: all places have requests in progress", rejected)

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        if isinstance(exc, gevent.GreenletExit):
            return
        if isinstance(exc, ssl.SSLError):
            # A client without TLS could not read a response, either.
            _log.info("no TLS from %s: %s", addr and addr[0], exc.reason)
            return
        request_id = secrets.token_hex(16)
        status = status_of(exc)
        if status is None:
            _log.error("a request failed", exc_info=exc, extra=logs.extra(request_id=request_id))
            status = "500 Internal Server Error"
        header, body = last_response(status, request_id, tls=self.cfg.is_ssl)
        fields = log_fields(
            {"REMOTE_ADDR": addr and addr[0]},
            request_id=request_id,
            status=int(status[:3]),
            size=len(body),
            seconds=None,
        )
        # Only the class of the error: its text has parts of the request, perhaps a token.
        _access.info("", extra=logs.extra(**fields, refused=type(exc).__name__))
        try:
            client.sendall((header + body).encode())
        except OSError as error:
            _log.debug("could not send the last response: %s", error)


def check_header(request: Any) -> None:
    """Rules of HTTP that not both of gunicorn's parsers check. Raises errors.InvalidHeader,
    errors.ObsoleteFolding and errors.UnsupportedTransferCoding."""
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


def _is_host(text: str) -> bool:
    match = _HOST.fullmatch(text)
    if match is None or int(match["port"] or 0) > _MAX_PORT:
        return False
    if match["ipv6"] is None:
        return True
    try:
        IPv6Address(match["ipv6"])
    except ValueError:
        return False
    return True


def status_of(error: BaseException) -> str | None:
    """Code and phrase for a request that can't be parsed; None for an error of ours."""
    if isinstance(error, errors.InvalidHeader) and error.hdr == _UNKNOWN_CODING:
        return "501 Not Implemented"
    return next((status for kind, status in _STATUS_OF if isinstance(error, kind)), None)


def _report(context: object, kind: Any, error: Any, trace: Any) -> None:
    """Logs why a greenlet ended: gevent would print it."""
    _log.error("a greenlet has ended", exc_info=(kind, error, trace))
