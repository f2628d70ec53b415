"""gunicorn as this service needs it: a worker class, and what has to be done before the first fork.

The arbiter imports this before gevent has patched anything, and its workers inherit what it imported.
So nothing that takes names out of `ssl` or `socket` may be imported here: PyJWT, requests.
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
from contextlib import closing, contextmanager
from functools import partial
from typing import Any
from urllib.parse import quote
from weakref import WeakSet

import gevent
from gevent.monkey import MonkeyPatchWarning
from gevent.server import StreamServer
from gunicorn.glogging import Logger
from gunicorn.http import errors
from gunicorn.workers.ggevent import GeventWorker

from gateway_api.auth.ledger import prepare_ledger
from gateway_api.readiness import Readiness
from gateway_api.settings import BadSetting, Settings, has_secret

_log = logging.getLogger("gunicorn.error")

_readiness = Readiness()

#: Seconds that a connection without a request has left when its worker is to stop.
_FIRST_REQUEST = 1.0

_STATUS_OF = (
    (errors.LimitRequestLine, "414 URI Too Long"),
    (errors.LimitRequestHeaders, "431 Request Header Fields Too Large"),
    (errors.UnsupportedTransferCoding, "501 Not Implemented"),
    (errors.ExpectationFailed, "417 Expectation Failed"),
    (errors.ParseException, "400 Bad Request"),
)


class _Listener:
    """What gunicorn asks of a listener for each connection, which may be when it is closed."""

    def __init__(self, listener: Any) -> None:
        self._name = listener.getsockname()

    def getsockname(self) -> Any:
        return self._name


class _Server(StreamServer):  # type: ignore[misc]
    """gevent's own forgets what it does with connections when it stops to accept more, and those in the
    middle of their TLS handshake would get no answer."""

    def __init__(self, listener: Any, handle: Callable[..., None], spawn: Any, **more: Any) -> None:
        super().__init__(listener, handle, spawn=spawn, **more)
        self._answer = handle

    def wrap_socket_and_handle(self, client_socket: Any, address: Any) -> None:
        with closing(self.wrap_socket(client_socket, **self.ssl_args)) as connection:
            self._answer(connection, address)


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

    def server_class(self, listener: Any, spawn: Any, **more: Any) -> StreamServer:
        """As gunicorn makes one by itself, but for its class."""
        tls = {"ssl_context": more["ssl_context"]} if "ssl_context" in more else {}
        server = _Server(listener, partial(self.handle, _Listener(listener)), spawn, **tls)
        # Each worker takes one at a time, so that the others get some.
        server.max_accept = 1
        return server

    def notify(self) -> None:
        # gunicorn's heartbeat: the first comes when the server has started.
        super().notify()
        _readiness.answering()

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
        gevent.killall(list(self._idle & set(self._served)), block=False)
        # Who has only just connected has a request under way, and nobody else will answer it. Twice, as
        # gunicorn looks once a second whether it is to go on accepting.
        for _ in range(2):
            waiting = set(self._idle)
            gevent.sleep(_FIRST_REQUEST)
            gevent.killall(list(self._idle & waiting), block=False)

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
            _log.error("request_id=%s from %s failed", request_id, addr and addr[0], exc_info=exc)
            status = "500 Internal Server Error"
        else:
            _log.warning("request_id=%s from %s refused: %r", request_id, addr and addr[0], str(exc))
        message = status.partition(" ")[2]
        body = json.dumps({"status": "error", "message": message}, separators=(",", ":"))
        head = (
            f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: application/json\r\n"
            f"X-Request-ID: {request_id}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        try:
            client.sendall((head + body).encode())
        except OSError as error:
            _log.debug("could not send the refusal: %s", error)


class Log(Logger):  # type: ignore[misc]
    """gunicorn's log, in which a path can't break a line or colour a terminal."""

    def atoms(self, resp: Any, req: Any, environ: Any, request_time: Any) -> dict[str, Any]:
        atoms: dict[str, Any] = super().atoms(resp, req, environ, request_time)
        atoms["U"] = quote(environ.get("PATH_INFO") or "", safe="/:@", encoding="latin-1")
        return atoms


def prepare() -> None:
    """What has to be so before the workers are forked: they sign with one secret, or half of the
    tokens would fail, and share one ledger. Raises BadSetting."""
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
    try:
        prepare_ledger(settings.ledger)
    except (OSError, sqlite3.Error) as error:
        raise BadSetting(f"GATEWAY_API_RUNTIME has no room for {settings.ledger}: {error}") from error


def tls_context(config: Any, default: Any) -> ssl.SSLContext:
    """TLS 1.2 with AEAD suites only, and 1.3."""
    context: ssl.SSLContext = default()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    return context
