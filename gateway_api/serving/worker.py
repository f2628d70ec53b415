"""gunicorn as this service needs it: a worker class, and what has to be done before the first fork.

The arbiter imports this before gevent has patched anything, and its workers inherit what it imported. So
nothing that a worker uses for connections of its own may come with it; the hub's `requests` comes with the
arbiter's configuration, and no worker uses that.
"""

import logging
import os
import resource
import secrets
import sqlite3
import ssl
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import gevent
import gevent.event
from gevent.monkey import MonkeyPatchWarning
from gevent.server import StreamServer
from gunicorn.glogging import Logger
from gunicorn.sock import ssl_context
from gunicorn.workers.ggevent import GeventWorker

from gateway_api.audit.log import prepare_folder
from gateway_api.auth.ledger import prepare_ledger, remove_ledger
from gateway_api.base import logs
from gateway_api.base.descriptors import places
from gateway_api.base.errors import CoreAbsent
from gateway_api.base.readiness import Readiness
from gateway_api.base.settings import BadSetting, Settings, has_secret, log_format, log_level
from gateway_api.serving import date_header, request_check, slots
from gateway_api.serving.connections import Connections, Limits, NoRoom, Phase
from gateway_api.serving.refusal import refusal, status_of
from gateway_api.serving.sockets import end, for_tls, watched

_log = logging.getLogger("gunicorn.error")
_access = logging.getLogger("gunicorn.access")

_readiness = Readiness()

_STREAM = "text/event-stream"
_SWEEP = 1.0
#: Until who has just got an answer would have asked again, and who has just come for the first time.
_LINGER, _LINGER_NEW = 0.5, 2.0
#: What is under way when a worker is to make room for a new one: a commit may take 32.
_FINISH = 35.0
#: Until those that were ended have noticed, and what they did is recorded.
_PARTING = 0.5


date_header.install()


class _Listener:
    """What gunicorn asks of a listener for each connection, which may be when it is closed."""

    def __init__(self, listener: Any) -> None:
        self._name = listener.getsockname()

    def getsockname(self) -> Any:
        return self._name


class GatewayWorker(GeventWorker):  # type: ignore[misc]
    """gunicorn's for gevent, in which every client has its time, streams end when the worker does, and what
    gunicorn itself has to refuse is refused in JSON."""

    wsgi: Any

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        limits = Limits()
        limits = limits.within(places(limits.in_all + limits.for_loopback))
        self._connections = Connections(time.monotonic, limits)
        self._context: ssl.SSLContext | None = None
        self._stopping = gevent.event.Event()
        #: Where it counts, if it does: see `slots.py`. The arbiter sets it before the fork.
        self.slot: int | None = None

    def patch(self) -> None:
        with warnings.catch_warnings():
            # The hub's requests, in the arbiter, took its names from the modules as they are. No worker
            # uses it.
            warnings.simplefilter("ignore", MonkeyPatchWarning)
            super().patch()

    def load_wsgi(self) -> None:
        if self.slot is not None:
            slots.take(self.slot)
        super().load_wsgi()
        application = self.wsgi
        self._stop_application: Callable[[], None] = application.stop

        def marking_streams(environ: Any, start_response: Any) -> Any:
            def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
                streams = dict(headers).get("Content-Type", "").startswith(_STREAM)
                if streams and environ["REQUEST_METHOD"] != "HEAD":
                    environ["gunicorn.socket"].connection.is_stream()
                return start_response(status, headers, *more)

            return application(environ, start)

        self.wsgi = marking_streams

    def run(self) -> None:
        """Serves until the worker is told to stop, and then what is under way, for a while."""
        if self.cfg.is_ssl:
            self._context = for_tls(ssl_context(self.cfg))
        servers = [
            StreamServer(listener, handle=partial(self.handle, _Listener(listener)))
            for listener in self.sockets
        ]
        for server in servers:
            # Each worker takes one at a time, so that the others get some.
            server.max_accept = 1
            server.start()
        while self.alive:
            self.notify()
            self._sweep()
            self._stopping.wait(_SWEEP)
        for server in servers:
            server.close()
        self._stop_application()
        # The arbiter, when it is to stop itself, ends this with its own patience, graceful_timeout.
        deadline = time.monotonic() + _FINISH
        while self._connections and time.monotonic() < deadline:
            self.notify()
            self._sweep()
            self._connections.end_unasked(_LINGER, _LINGER_NEW)
            gevent.sleep(_LINGER / 5)
        if self._connections:
            self._connections.end_all()
            gevent.sleep(_PARTING)

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        client.setblocking(1)
        try:
            sock = watched(client, self._context)
        except (OSError, ValueError) as error:
            # It has gone already, perhaps with words that aren't TLS.
            _log.debug("lost a connection: %s", error)
            client.close()
            return
        try:
            connection = self._connections.admit(addr[0] if addr else "", partial(end, sock))
        except NoRoom:
            end(sock)
            return
        sock.connection = gevent.getcurrent().connection = connection
        try:
            super(GeventWorker, self).handle(listener, sock, addr)
        finally:
            self._connections.leave(connection)

    def notify(self) -> None:
        # gunicorn's heartbeat: the first comes when the server has started.
        super().notify()
        _readiness.answering()

    @contextmanager
    def timeout_ctx(self) -> Iterator[None]:
        """The wait for a next request, which the connection's deadline ends."""
        connection = gevent.getcurrent().connection
        if connection.phase is Phase.STREAM:
            # It was the connection's last answer: who comes back comes anew.
            raise gevent.GreenletExit
        with connection.next_request():
            yield

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> None:
        # Not gunicorn's for gevent: it swallows GreenletExit, and then waits for another request on a
        # connection whose answer broke off.
        request_check.check(req)
        super(GeventWorker, self).handle_request(listener_name, req, sock, addr)

    def handle_exit(self, sig: int, frame: Any) -> None:
        super().handle_exit(sig, frame)
        # Not here: a signal handler runs in the middle of whatever was running.
        gevent.spawn(self._stopping.set)

    def _sweep(self) -> None:
        for phase, ended in self._connections.sweep().items():
            _log.info("closed %d connections: they did not %s in time", ended, phase.value)
        if turned_away := self._connections.turned_away():
            _log.warning("turned %d connections away: all places have requests under way", turned_away)

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        if isinstance(exc, gevent.GreenletExit):
            return
        if isinstance(exc, ssl.SSLError):
            # Whoever doesn't speak TLS would not read our answer, either.
            _log.info("no TLS from %s: %s", addr and addr[0], exc.reason)
            return
        request_id = secrets.token_hex(16)
        status = status_of(exc)
        if status is None:
            _log.error("a request failed", exc_info=exc, extra=logs.extra(request_id=request_id))
            status = "500 Internal Server Error"
        first, body = refusal(status, request_id, tls=self.cfg.is_ssl)
        fields = logs.of_request(
            {"REMOTE_ADDR": addr and addr[0]},
            request_id=request_id,
            status=int(status[:3]),
            size=len(body),
            seconds=None,
        )
        # The kind of the fault alone: its text has what was sent in it, which may be a token.
        _access.info("", extra=logs.extra(**fields, refused=type(exc).__name__))
        try:
            client.sendall((first + body).encode())
        except OSError as error:
            _log.debug("could not send the refusal: %s", error)


class Log(Logger):  # type: ignore[misc]
    """gunicorn's log, in lines of ours."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        try:
            format, level = log_format(os.environ), log_level(os.environ)
        except BadSetting:
            # What is said of it, before the start is refused, has to have some format.
            format, level = "keyvalue", logging.INFO
        # gunicorn would have the access log at info whatever is chosen.
        for logger in (self.error_log, self.access_log):
            logger.setLevel(level)
        logs.install(format, self.error_log, self.access_log)

    def access(self, resp: Any, req: Any, environ: Any, request_time: timedelta) -> None:
        request_id = next((value for name, value in resp.headers if name == "X-Request-ID"), None)
        fields = logs.of_request(
            environ,
            request_id=request_id,
            status=resp.status_code,
            size=resp.sent,
            seconds=request_time.total_seconds(),
        )
        level = logs.level_of_request(environ, resp.status_code)
        self.access_log.log(level, "", extra=logs.extra(**fields))


def report(context: object, kind: Any, error: Any, trace: Any) -> None:
    """Says why a greenlet has ended, in place of gevent's own way, which prints."""
    _log.error("a greenlet has ended", exc_info=(kind, error, trace))


def prepare() -> None:
    """What has to be so before the workers are forked: they sign with one secret, or half of the tokens would
    fail, and share one ledger. Raises BadSetting."""
    _readiness.take_over()
    if not has_secret(os.environ):
        os.environ["SVC_API_SECRET"] = secrets.token_hex(32)
        _log.warning("SVC_API_SECRET is not set: tokens end with this process")
    # A descriptor for each connection: the usual soft limit is for select(), which nobody here uses.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    settings = Settings.from_environment(os.environ)
    if settings.secret_is_short:
        _log.warning("SVC_API_SECRET is shorter than 32 bytes (RFC 7518 section 3.2)")
    if not os.access(settings.core_socket, os.F_OK):
        _log.error("cannot find the socket %s. %s", settings.core_socket, CoreAbsent.HINT)
    try:
        prepare_ledger(settings.ledger)
        # It knows of no token that holds: those have the name of the new one.
        remove_ledger(settings.old_ledger)
    except (OSError, sqlite3.Error) as error:
        where = f"{settings.ledger} (GATEWAY_API_STATE)"
        raise BadSetting(f"cannot open or create the login ledger {where}: {error}") from error
    try:
        slots.prepare(settings.metrics)
    except OSError as error:
        raise BadSetting(f"GATEWAY_API_RUNTIME has no room for {settings.metrics}: {error}") from error
    try:
        prepare_folder(settings.audit)
    except OSError as error:
        raise BadSetting(f"GATEWAY_API_AUDIT is no folder to write to: {error}") from error


def tls_context(config: Any, default: Any) -> ssl.SSLContext:
    """TLS 1.2 with AEAD suites only, and 1.3."""
    context: ssl.SSLContext = default()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    return context
