"""gunicorn as this service needs it: a worker class, and what has to be done before the first fork.

The arbiter imports this before gevent has patched anything, and its workers inherit what it imported. So
nothing that a worker uses for connections of its own may come with it; the hub's `requests` comes with the
arbiter's configuration, and no worker uses that.
"""

import json
import logging
import os
import resource
import secrets
import sqlite3
import ssl
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from weakref import WeakSet

import gevent
from gevent.monkey import MonkeyPatchWarning
from gunicorn.glogging import Logger
from gunicorn.http import errors
from gunicorn.workers.ggevent import GeventWorker

from gateway_api import logs
from gateway_api.audit.log import prepare_folder
from gateway_api.auth.ledger import prepare_ledger
from gateway_api.settings import BadSetting, Settings, log_format

_log = logging.getLogger("gunicorn.error")
_access = logging.getLogger("gunicorn.access")

_STATUS_OF = (
    (errors.LimitRequestLine, "414 URI Too Long"),
    (errors.LimitRequestHeaders, "431 Request Header Fields Too Large"),
    (errors.UnsupportedTransferCoding, "501 Not Implemented"),
    (errors.ExpectationFailed, "417 Expectation Failed"),
    (errors.ParseException, "400 Bad Request"),
)


class GatewayWorker(GeventWorker):  # type: ignore[misc]
    """Answers in JSON where gunicorn itself has to refuse a request, and lets idle connections go when
    it is told to stop, where gunicorn would wait for their clients."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._idle: set[gevent.Greenlet] = set()
        #: Those whose connection has had a request. Each forgets itself.
        self._served: WeakSet[gevent.Greenlet] = WeakSet()
        #: Called, in a greenlet, when the worker is to stop: ends what would go on by itself.
        self.before_exit: Callable[[], None] = lambda: None

    def patch(self) -> None:
        with warnings.catch_warnings():
            # The hub's requests, in the arbiter, took its names from the modules as they are. No worker
            # uses it.
            warnings.simplefilter("ignore", MonkeyPatchWarning)
            super().patch()

    @contextmanager
    def timeout_ctx(self) -> Iterator[None]:
        """gunicorn's limit on the wait for a next request, and a note of who is waiting."""
        if not self.alive and gevent.getcurrent() in self._served:
            # A stream has just ended: nobody is to wait for another request.
            raise gevent.GreenletExit
        waiting = gevent.getcurrent()
        self._idle.add(waiting)
        try:
            with super().timeout_ctx():
                yield
        finally:
            self._idle.discard(waiting)

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> None:
        # Not gunicorn's for gevent: it swallows GreenletExit, and then waits for another request on a
        # connection whose answer broke off.
        self._served.add(gevent.getcurrent())
        super(GeventWorker, self).handle_request(listener_name, req, sock, addr)

    def handle_exit(self, sig: int, frame: Any) -> None:
        super().handle_exit(sig, frame)
        # Not here: a signal handler runs in the middle of whatever was running.
        gevent.spawn(self._let_go)

    def _let_go(self) -> None:
        self.before_exit()
        gevent.killall(list(self._idle), block=False)

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        if isinstance(exc, gevent.GreenletExit):
            return
        if isinstance(exc, ssl.SSLError):
            # Whoever doesn't speak TLS would not read our answer, either.
            _log.info("no TLS from %s: %s", addr and addr[0], exc)
            return
        request_id = secrets.token_hex(16)
        status = next((text for kind, text in _STATUS_OF if isinstance(exc, kind)), None)
        if status is None:
            _log.error("a request failed", exc_info=exc, extra=logs.extra(request_id=request_id))
            status = "500 Internal Server Error"
        message = status.partition(" ")[2]
        body = json.dumps({"status": "error", "message": message}, separators=(",", ":"))
        head = (
            f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: application/json\r\n"
            f"X-Request-ID: {request_id}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
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
            client.sendall((head + body).encode())
        except OSError as error:
            _log.debug("could not send the refusal: %s", error)


class Log(Logger):  # type: ignore[misc]
    """gunicorn's log, in lines of ours."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        try:
            format = log_format(os.environ)
        except BadSetting:
            # What is said of it, before the start is refused, has to have some format.
            format = "keyvalue"
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
        self.access_log.info("", extra=logs.extra(**fields))


def report(context: object, kind: Any, error: Any, trace: Any) -> None:
    """Says why a greenlet has ended, in place of gevent's own way, which prints."""
    if isinstance(error, ssl.SSLError):
        # Whoever doesn't speak TLS; there may be many.
        _log.info("no TLS: %s", error.reason)
    else:
        _log.error("a greenlet has ended", exc_info=(kind, error, trace))


def prepare() -> None:
    """What has to be so before the workers are forked: they sign with one secret, or half of the
    tokens would fail, and share one ledger. Raises BadSetting."""
    if not os.environ.get("SVC_API_SECRET"):
        os.environ["SVC_API_SECRET"] = secrets.token_hex(32)
        _log.warning("SVC_API_SECRET is not set: tokens end with this process")
    # A descriptor for each connection: the usual soft limit is for select(), which nobody here uses.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    settings = Settings.from_environment(os.environ)
    if settings.secret_is_short:
        _log.warning("SVC_API_SECRET is shorter than 32 bytes (RFC 7518 section 3.2)")
    try:
        prepare_ledger(settings.ledger)
    except (OSError, sqlite3.Error) as error:
        raise BadSetting(f"GATEWAY_API_RUNTIME has no room for {settings.ledger}: {error}") from error
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
