"""Messages to webhooks, and their sender. The sender signs each message and sends it to one receiver, but
never to a denied address. Each attempt ends at its deadline.

OpenSSL has process-wide locks, and Python releases the interpreter's lock while it calls OpenSSL. If the
process forked during such a call, the child would inherit a lock that nobody releases, and would hang when it
uses TLS. So a fork waits for the end of the call. No call waits for a peer, because sockets do not block
during a call. Which `_ssl` methods release the interpreter's lock was checked in CPython 3.11.

The following internals were checked; a test fails when the code of these internals changes:
- urllib3 2.8.0: `_new_conn` and `_dns_host`;
- requests 2.34.2: `HTTPAdapter`, for the requirements of an https URL.
"""

import base64
import hashlib
import hmac
import logging
import os
import queue
import secrets
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.client import HTTPResponse
from ipaddress import ip_address
from typing import Any, TypeVar

import msgspec
import requests
from requests.adapters import HTTPAdapter
from urllib3 import BaseHTTPResponse, HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, NewConnectionError

from gateway_api.base import tls_errors
from gateway_api.hub.interface import TIMEOUT
from gateway_contract.base.receivers import Address, Denied, check_address, decode_secret, parse_literal
from gateway_contract.base.texts import format_utc
from gateway_contract.core.sessions import SessionEvent
from gateway_contract.events import EVENTS, Empty, TestDelivery

T = TypeVar("T")

_log = logging.getLogger(__name__)

#: A longer body of a response is not read, nor one that takes more seconds: the connection closes instead.
_MAX_BODY_BYTES, _BODY_SECONDS = 16 << 10, 1.0
_FIXED_HEADERS = {"Content-Type": "application/json", "User-Agent": "Service-Webhook/1.0"}
#: The reason of a failure in a delivery log, for the first of these exceptions in its chain.
_FAILURE_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (socket.gaierror, "the name has no address"),
    (ssl.SSLError, "TLS failed"),
    (TimeoutError, "timeout"),
    (ConnectionRefusedError, "the connection was refused"),
    (ConnectionResetError, "the connection was reset"),
)

_openssl_lock = threading.RLock()
os.register_at_fork(
    before=_openssl_lock.acquire, after_in_parent=_openssl_lock.release, after_in_child=_openssl_lock.release
)


class HubTlsSocket(ssl.SSLSocket):
    """TLS connection to a receiver. The timeout of the socket applies to each handshake, read and write as a
    whole."""

    def do_handshake(self, block: bool = False) -> None:
        self._call_openssl(super().do_handshake)

    def read(self, len: int = 1024, buffer: Any = None) -> Any:
        return self._call_openssl(lambda: super(HubTlsSocket, self).read(len, buffer))

    def send(self, data: Any, flags: int = 0) -> int:
        return self._call_openssl(lambda: super(HubTlsSocket, self).send(data, flags))

    def unwrap(self) -> socket.socket:
        return self._call_openssl(super().unwrap)

    def _call_openssl(self, call: Callable[[], T]) -> T:
        """Call an OpenSSL function, and repeat the call until OpenSSL no longer waits for the peer. Raises
        TimeoutError if OpenSSL still waits after the timeout of the socket."""
        timeout = self.gettimeout()
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with _openssl_lock:
                self.settimeout(0)
                try:
                    return call()
                except ssl.SSLWantReadError:
                    event = select.POLLIN
                except ssl.SSLWantWriteError:
                    event = select.POLLOUT
                except OSError:
                    tls_errors.clear_error_queue()
                    raise
                finally:
                    # `close` in between leaves no socket.
                    if self.fileno() >= 0:
                        self.settimeout(timeout)
            self._wait(event, deadline)

    def _wait(self, event: int, deadline: float | None) -> None:
        poller = select.poll()
        poller.register(self, event)
        if not poller.poll(None if deadline is None else max(0.0, 1000 * (deadline - time.monotonic()))):
            raise TimeoutError("the receiver has not replied in time")


class HubTlsContext(ssl.SSLContext):
    """TLS settings for connections to receivers."""

    sslsocket_class = HubTlsSocket

    @classmethod
    def make(cls) -> "HubTlsContext":
        """Return a client context that requires a certificate with the name of the host."""
        with _openssl_lock:
            context = cls(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.hostname_checks_common_name = False
        return context

    def load_verify_locations(self, *arguments: Any, **more: Any) -> None:
        with _openssl_lock:
            super().load_verify_locations(*arguments, **more)

    def wrap_socket(self, *arguments: Any, **more: Any) -> ssl.SSLSocket:
        with _openssl_lock:
            connection = super().wrap_socket(*arguments, **{**more, "do_handshake_on_connect": False})
        try:
            connection.do_handshake()
        except BaseException:
            connection.close()
            raise
        return connection


def open_tls(host: str, port: int, load_pair: Callable[[ssl.SSLContext], None]) -> ssl.SSLSocket:
    """Connect to a receiver that is no webhook. The certificate of the receiver must have the name `host`,
    and the signature of an authority of the system. `load_pair` loads the certificate for receivers that
    require one. Raises OSError if the receiver cannot be reached or has no valid certificate, and Denied for
    a denied address."""
    connection, _ = connect(host, port, TIMEOUT, tuple)
    try:
        context = HubTlsContext.make()
        with _openssl_lock:
            load_pair(context)
            context.load_default_certs()
        return context.wrap_socket(connection, server_hostname=host)
    except BaseException:
        connection.close()
        raise


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """Message to webhooks. Every attempt sends the same `id` and `body`."""

    id: str
    event: str
    body: bytes


def make_message(boot_id: str, event: SessionEvent) -> WebhookMessage:
    """Return the message that reports an event of the core."""
    kind = EVENTS[event.event]
    body = kind.delivery(event.event, format_utc(event.at), kind.webhook_data.of(event))
    return WebhookMessage(f"{boot_id}-{event.sequence}", event.event, msgspec.json.encode(body))


def make_test_message(now: float) -> WebhookMessage:
    """Return a test message, which shows whether the receiver is reachable. `now` is epoch seconds."""
    body = TestDelivery("webhook.test", format_utc(int(now)), Empty())
    return WebhookMessage(f"test-{secrets.token_hex(8)}", body.event, msgspec.json.encode(body))


def make_headers(message: WebhookMessage, secret: str | None, now: float) -> dict[str, str]:
    """Return the headers of one attempt (Standard Webhooks). If there is a secret, the headers include the
    signature. `now` is epoch seconds."""
    headers = {"webhook-id": message.id, "webhook-timestamp": str(int(now))}
    if secret is not None:
        signed_bytes = f"{message.id}.{int(now)}.".encode() + message.body
        digest = hmac.new(decode_secret(secret), signed_bytes, hashlib.sha256).digest()
        headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return headers


@dataclass(frozen=True)
class AttemptResult:
    """Result of an attempt. `status` is the HTTP status of the receiver. If the receiver sent no status,
    `status` is None and `error` is the reason."""

    status: int | None
    error: str | None
    seconds: float

    @property
    def is_delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


class DeniedNetworks:
    """Networks that the running configuration denies. Calling the object returns the networks. The call
    raises Denied while the networks are unknown."""

    known: tuple[str, ...] | None = None

    def __call__(self) -> tuple[str, ...]:
        if self.known is None:
            raise Denied("which networks are denied is not known yet")
        return self.known


class Sender:
    """Sender to one URL, which sends one message at a time and follows no redirects. `denied` returns the
    networks that the configuration denies; some networks are always denied. `certificates` is a file with
    trusted CA certificates; None uses the certificates of certifi."""

    def __init__(
        self, url: str, secret: str | None, denied: Callable[[], Iterable[str]], certificates: str | None
    ) -> None:
        self._url = url
        #: A commit may change it.
        self.secret = secret
        self._denied = denied
        self._verify = certificates or True
        self._adapter = _Adapter(self._connect)
        self._pool: HTTPConnectionPool | None = None
        self._path = ""
        #: The address at the other end of the open connection.
        self._peer: Address | None = None
        #: A second descriptor of the connection, for `cut`.
        self._watched_socket: socket.socket | None = None
        self._deadline: float | None = None
        #: No attempt begins while `cut` ends the previous one.
        self._cut_lock = threading.Lock()

    def send(self, message: WebhookMessage) -> AttemptResult:
        """Make one attempt to send a message, and return the result. A failure is returned, not raised."""
        began = time.monotonic()
        deadline = began + TIMEOUT
        self._set_deadline(deadline)
        status, error = None, None
        try:
            response = self._post(message)
        except Denied as denied:
            error = str(denied)
        except (requests.RequestException, HTTPError, OSError, ValueError) as failure:
            error = "timeout" if time.monotonic() >= deadline else _find_reason(failure)
        except Exception:  # noqa: BLE001 - logged; the queue must go on
            _log.exception("internal error while delivering a webhook message, the attempt counts as failed")
            error = "internal error"
        else:
            # A response that is cut inside its header looks complete.
            if time.monotonic() >= deadline:
                error = "timeout"
                response.close()
            else:
                status = response.status
                self._finish(response)
        self._set_deadline(None)
        return AttemptResult(status, error, time.monotonic() - began)

    def cut(self, now: float) -> None:
        """End the attempt in progress if its deadline has passed. Other threads call this method. `now` is
        monotonic seconds."""
        with self._cut_lock:
            if self._watched_socket is None or self._deadline is None or now < self._deadline:
                return
            try:
                self._watched_socket.shutdown(socket.SHUT_RDWR)
            except OSError as error:
                _log.debug("the connection to a webhook receiver is already closed: %s", error)

    def close(self) -> None:
        """Close the connection. The next attempt opens a new connection."""
        self._pool = self._peer = None
        self._adapter.close()
        if self._watched_socket is not None:
            self._watched_socket.close()

    def _set_deadline(self, deadline: float | None) -> None:
        with self._cut_lock:
            self._deadline = deadline

    def _post(self, message: WebhookMessage) -> BaseHTTPResponse:
        if self._peer is not None:
            try:
                check_address(self._peer, self._denied())
            except Denied:
                self.close()
                raise
        # Not through a Session or the adapter: they use proxies and passwords of the environment, keep
        # cookies, and take more than half of the time of a request.
        return self._open_pool().urlopen(
            "POST",
            self._path,
            body=message.body,
            headers={
                **_FIXED_HEADERS,
                "Content-Length": str(len(message.body)),
                **make_headers(message, self.secret, time.time()),
            },
            redirect=False,
            retries=self._adapter.max_retries,
            assert_same_host=False,
            timeout=TIMEOUT,
            preload_content=False,
            decode_content=False,
        )

    def _open_pool(self) -> HTTPConnectionPool:
        if self._pool is None:
            request = requests.Request("POST", self._url).prepare()
            pool = self._adapter.get_connection_with_tls_context(request, self._verify)
            self._adapter.cert_verify(pool, self._url, self._verify, None)
            self._path = self._adapter.request_url(request, None)
            self._pool = pool
        return self._pool

    def _finish(self, response: BaseHTTPResponse) -> None:
        """Read the body of a response, so that the next attempt can use the same connection. If the body is
        too long, incomplete or of unknown length, close the connection."""
        # RFC 9110 section 8.6: 204 has no Content-Length, and no body.
        length = "0" if response.status == 204 else response.headers.get("Content-Length", "")
        try:
            if length.isdigit() and int(length) <= _MAX_BODY_BYTES:
                self._set_deadline(time.monotonic() + _BODY_SECONDS)
                response.read(_MAX_BODY_BYTES)
        except (OSError, HTTPError, ValueError) as error:
            # The result is the status, which is complete. isdigit() and int() disagree about some lengths.
            _log.debug("ignored the incomplete response body of a webhook receiver: %s", error)
        # After a complete body, the response has no connection to close any more.
        response.close()
        response.release_conn()

    def _connect(self, host: str, port: int) -> socket.socket:
        connection, self._peer = connect(host, port, TIMEOUT, self._denied)
        if self._watched_socket is not None:
            self._watched_socket.close()
        # TLS takes over the descriptor of the socket. The duplicate stays valid.
        self._watched_socket = connection.dup()
        return connection


def _find_reason(failure: BaseException | None) -> str:
    """Return a short reason for a failure, for the delivery log. The reason contains no text of a library."""
    while failure is not None:
        for kind, reason in _FAILURE_REASONS:
            if isinstance(failure, kind):
                return reason
        failure = failure.__cause__ or failure.__context__
    return "the connection failed"


def connect(
    host: str, port: int, timeout: float, denied: Callable[[], Iterable[str]]
) -> tuple[socket.socket, Address]:
    """Connect to the first address of the host that accepts a connection. Return the connection and the
    address. `timeout` is in seconds, for all addresses together. Raises OSError if no address accepts a
    connection in time, and Denied if an address of the host is denied."""
    deadline = time.monotonic() + timeout
    failure: OSError = OSError("the name has no address")
    for family, kind, protocol, _, socket_address in _resolve(host, port, timeout):
        address = ip_address(str(socket_address[0]).partition("%")[0])
        check_address(address, denied())
        remaining_seconds = deadline - time.monotonic()
        if remaining_seconds <= 0:
            raise TimeoutError("no address took a connection in time")
        connection = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
        try:
            connection.settimeout(remaining_seconds)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.connect(socket_address)
        except OSError as error:
            connection.close()
            failure = error
            continue
        return connection, address
    raise failure


def _resolve(host: str, port: int, timeout: float) -> list[Any]:
    """Call getaddrinfo with a timeout in seconds, and return its result; getaddrinfo itself has no timeout.
    Raises OSError if the host cannot be resolved in time."""
    if parse_literal(host) is not None:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    results: queue.SimpleQueue[list[Any] | OSError] = queue.SimpleQueue()

    def resolve_name() -> None:
        try:
            results.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            results.put(error)
        except UnicodeError as error:
            results.put(OSError(str(error)))

    threading.Thread(target=resolve_name, daemon=True).start()
    try:
        result = results.get(timeout=timeout)
    except queue.Empty:
        raise TimeoutError("no answer from the name servers in time") from None
    if isinstance(result, OSError):
        raise result
    return result


class _FinalResponse(HTTPResponse):
    """Final response of a receiver. http.client skips only the interim response 100, and would return other
    interim responses as the final response (RFC 9110 section 15.2)."""

    def begin(self) -> None:
        super().begin()
        # Not 101, which switches to another protocol: nobody asked for it.
        while 102 <= self.status < 200:
            # Without headers, the next call reads another response.
            self.headers = None  # type: ignore[assignment]
            super().begin()


class _OneWriteConnection(HTTPConnection):
    """Connection that sends the header and body of a request in one system call. Two system calls would cost
    time on both sides, because each call releases the interpreter's lock."""

    response_class = _FinalResponse
    _header: bytes | None = None

    def endheaders(self, message_body: Any = None, *, encode_chunked: bool = False) -> None:
        self._header = b""
        super().endheaders(message_body, encode_chunked=encode_chunked)

    def send(self, data: Any) -> None:
        if self._header == b"":
            self._header = data
            return
        if self._header:
            data, self._header = self._header + data, None
        super().send(data)
        # A TLS receiver has just sent session tickets. Its kernel may hold the response back until ours
        # acknowledges them, which takes 40 ms when we send nothing more.
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


class _Adapter(HTTPAdapter):
    """Adapter of requests in which each pool has one connection. The function `connect` opens the
    connection."""

    def __init__(self, connect: Callable[[str, int], socket.socket]) -> None:
        self._connect = connect
        super().__init__(pool_connections=1, pool_maxsize=1)

    def init_poolmanager(self, *arguments: object, **more: object) -> None:
        # For https alone; urllib3 would make one for each connection.
        context = HubTlsContext.make()
        super().init_poolmanager(*arguments, ssl_context=context, **more)  # type: ignore[arg-type]
        connect = self._connect

        def open_connection(connection: HTTPConnection) -> socket.socket:
            try:
                return connect(connection._dns_host, connection.port)
            except OSError as error:
                # urllib3 would take a reset of the connection for one during the request, and look for a
                # response.
                raise NewConnectionError(connection, str(error)) from error

        class PlainConnection(_OneWriteConnection):
            _new_conn = open_connection

        class TlsConnection(_OneWriteConnection, HTTPSConnection):
            _new_conn = open_connection

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = PlainConnection

        class TlsPool(HTTPSConnectionPool):
            ConnectionCls = TlsConnection

        self.poolmanager.pool_classes_by_scheme = {"http": PlainPool, "https": TlsPool}
