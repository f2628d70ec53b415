"""Messages to webhooks, and their sender: it signs them, and sends them to one receiver, at addresses that
are not denied. Every attempt ends by its deadline.

OpenSSL has locks for the whole process, and Python calls OpenSSL without the interpreter's lock. A fork in
the middle of such a call would give its child a lock that nobody releases: the child hangs when it uses TLS.
So a fork waits for the call that runs. No call waits for a peer, because sockets do not block during a call.
Read in CPython 3.11: which methods of `_ssl` release the interpreter's lock.
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
from http.client import HTTPConnection, HTTPException, HTTPResponse
from ipaddress import ip_address
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import certifi
import msgspec

from gateway_api.base import tls_errors
from gateway_api.hub.interface import TIMEOUT
from gateway_contract.base.receivers import Address, Denied, check, key_of, literal
from gateway_contract.base.texts import utc_text
from gateway_contract.core.sessions import SessionEvent
from gateway_contract.events import EVENTS, Empty, TestDelivery

T = TypeVar("T")

_log = logging.getLogger(__name__)

#: A longer body of a response is not read, nor one that takes more seconds: the connection closes instead.
_MAX_BODY_BYTES, _BODY_SECONDS = 16 << 10, 1.0
_HEADERS = {"Content-Type": "application/json", "User-Agent": "Service-Webhook/1.0"}
#: Characters that a URL keeps: reserved ones, and the percent sign of encoded ones (RFC 3986 section 2).
_URL_CHARACTERS = "!#$%&'()*+,/:;=?@[]~"
#: The reason of a failure in a delivery log, for the first of these exceptions in its chain.
_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (socket.gaierror, "the name has no address"),
    (ssl.SSLError, "TLS failed"),
    (TimeoutError, "timeout"),
    (ConnectionRefusedError, "the connection was refused"),
    (ConnectionResetError, "the connection was reset"),
)

_openssl = threading.RLock()
os.register_at_fork(
    before=_openssl.acquire, after_in_parent=_openssl.release, after_in_child=_openssl.release
)


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """Message to webhooks. Every attempt sends the same `id` and the same `body`."""

    id: str
    event: str
    body: bytes


def make_message(boot_id: str, event: SessionEvent) -> WebhookMessage:
    """Return the message about an event."""
    kind = EVENTS[event.event]
    body = kind.delivery(event.event, utc_text(event.at), kind.webhook_data.of(event))
    return WebhookMessage(f"{boot_id}-{event.sequence}", event.event, msgspec.json.encode(body))


def make_test_message(now: float) -> WebhookMessage:
    """Return a message that shows whether the receiver can be reached. `now` is epoch seconds."""
    body = TestDelivery("webhook.test", utc_text(int(now)), Empty())
    return WebhookMessage(f"test-{secrets.token_hex(8)}", body.event, msgspec.json.encode(body))


def make_headers(message: WebhookMessage, secret: str | None, now: float) -> dict[str, str]:
    """Return the headers of one attempt (Standard Webhooks), signed if there is a secret. `now` is epoch
    seconds."""
    headers = {"webhook-id": message.id, "webhook-timestamp": str(int(now))}
    if secret is not None:
        signed = f"{message.id}.{int(now)}.".encode() + message.body
        digest = hmac.new(key_of(secret), signed, hashlib.sha256).digest()
        headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return headers


class HubTlsSocket(ssl.SSLSocket):
    """TLS connection to a receiver. The timeout of the socket is that of each call."""

    def do_handshake(self, block: bool = False) -> None:
        self._call_openssl(super().do_handshake)

    def read(self, len: int = 1024, buffer: Any = None) -> Any:
        return self._call_openssl(lambda: super(HubTlsSocket, self).read(len, buffer))

    def send(self, data: Any, flags: int = 0) -> int:
        return self._call_openssl(lambda: super(HubTlsSocket, self).send(data, flags))

    def _call_openssl(self, call: Callable[[], T]) -> T:
        """Repeat the call until OpenSSL needs nothing more from the peer. Raises TimeoutError."""
        timeout = self.gettimeout()
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with _openssl:
                self.settimeout(0)
                try:
                    return call()
                except ssl.SSLWantReadError:
                    event = select.POLLIN
                except ssl.SSLWantWriteError:
                    event = select.POLLOUT
                except OSError:
                    tls_errors.forget()
                    raise
                finally:
                    # `close` in between leaves no socket.
                    if self.fileno() >= 0:
                        self.settimeout(timeout)
            if not _poll(self, event, None if deadline is None else max(0.0, deadline - time.monotonic())):
                raise TimeoutError("the receiver has not replied in time")


def make_tls_context(certificates: str) -> ssl.SSLContext:
    """Return a context for TLS to receivers. `certificates` is a file of trusted CA certificates."""
    with _openssl:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.sslsocket_class = HubTlsSocket
        context.hostname_checks_common_name = False
        context.load_verify_locations(certificates)
    return context


def _poll(connection: socket.socket, event: int, seconds: float | None) -> bool:
    """Return True if the event comes within the time; None waits for ever."""
    ready = select.poll()
    ready.register(connection, event)
    return bool(ready.poll(None if seconds is None else 1000 * seconds))


@dataclass(frozen=True)
class AttemptResult:
    """Result of an attempt. `status` is the receiver's HTTP status. Without a status, it is None, and `error`
    is the reason."""

    status: int | None
    error: str | None
    seconds: float

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


class DeniedNetworks:
    """Networks that the running configuration denies. A call raises Denied while they are unknown."""

    known: tuple[str, ...] | None = None

    def __call__(self) -> tuple[str, ...]:
        if self.known is None:
            raise Denied("which networks are denied is not known yet")
        return self.known


class Sender:
    """Sender to one URL, one message at a time. It follows no redirect, uses no proxy, and keeps no cookie.
    `denied` returns networks that are denied in addition to those that always are; `certificates` is a file
    of trusted CA certificates, None for those of certifi."""

    def __init__(
        self, url: str, secret: str | None, denied: Callable[[], Iterable[str]], certificates: str | None
    ) -> None:
        parts = urlsplit(url)
        self._host, self._is_tls = parts.hostname or "", parts.scheme == "https"
        self._path = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), _URL_CHARACTERS)
        #: A commit may change it.
        self.secret = secret
        self._denied = denied
        self._certificates = certificates or certifi.where()
        #: Made for the first connection, or its faults would be those of a registration.
        self._context: ssl.SSLContext | None = None
        port = 443 if self._is_tls else 80
        self._connection = _Connection(self._host.rstrip("."), parts.port or port, port, self._connect)
        #: The address at the other end of the open connection.
        self._peer: Address | None = None
        #: A second descriptor of the connection, for `cut`.
        self._watched: socket.socket | None = None
        self._deadline: float | None = None
        #: No attempt begins while `cut` ends the previous one.
        self._cutting = threading.Lock()

    def send(self, message: WebhookMessage) -> AttemptResult:
        """Make one attempt."""
        began = time.monotonic()
        deadline = began + TIMEOUT
        self._set_deadline(deadline)
        status, error = None, None
        try:
            response = self._post(message)
        except Denied as denied:
            error = str(denied)
        except (HTTPException, OSError, ValueError) as failure:
            error = "timeout" if time.monotonic() >= deadline else _reason(failure)
        except Exception:  # noqa: BLE001 - logged; the queue must go on
            _log.exception("an attempt to deliver failed")
            error = "internal error"
        else:
            # A response that is cut inside its header looks complete.
            if time.monotonic() >= deadline:
                error = "timeout"
            else:
                status = response.status
                self._finish(response)
        if error is not None:
            self.close()
        self._set_deadline(None)
        return AttemptResult(status, error, time.monotonic() - began)

    def cut(self, now: float) -> None:
        """End the attempt if its deadline has passed; for other threads. `now` is monotonic seconds."""
        with self._cutting:
            if self._watched is None or self._deadline is None or now < self._deadline:
                return
            try:
                self._watched.shutdown(socket.SHUT_RDWR)
            except OSError as error:
                _log.debug("the connection was closed already: %s", error)

    def close(self) -> None:
        """Close the connection. The next attempt opens another."""
        self._peer = None
        self._connection.close()
        if self._watched is not None:
            self._watched.close()

    def _set_deadline(self, deadline: float | None) -> None:
        with self._cutting:
            self._deadline = deadline

    def _post(self, message: WebhookMessage) -> HTTPResponse:
        if self._peer is not None:
            check(self._peer, self._denied())
            if _poll(self._connection.sock, select.POLLIN, 0):
                # The receiver has closed the connection, or sends what nobody asked for.
                self.close()
        headers = _HEADERS | make_headers(message, self.secret, time.time())
        self._connection.request("POST", self._path, message.body, headers)
        return self._connection.getresponse()

    def _finish(self, response: HTTPResponse) -> None:
        """Read a short body, and keep the connection. Otherwise close the connection."""
        # RFC 9110 section 8.6: 204 has no Content-Length, and no body.
        length = "0" if response.status == 204 else response.headers.get("Content-Length", "")
        try:
            if length.isdigit() and int(length) <= _MAX_BODY_BYTES:
                self._set_deadline(time.monotonic() + _BODY_SECONDS)
                response.read(_MAX_BODY_BYTES)
        except (OSError, HTTPException, ValueError) as error:
            # The result is the status, which is complete. isdigit() and int() disagree about some lengths.
            _log.debug("the body of a response is incomplete: %s", error)
        is_complete = response.isclosed()
        response.close()
        if not is_complete or self._connection.sock is None:
            self.close()

    def _connect(self) -> socket.socket:
        connection, peer = connect(self._host, self._connection.port, TIMEOUT, self._denied)
        if self._watched is not None:
            self._watched.close()
        # TLS takes over the descriptor of the socket. The duplicate stays valid.
        self._watched = connection.dup()
        if self._is_tls:
            connection = self._start_tls(connection)
        self._peer = peer
        return connection

    def _start_tls(self, connection: socket.socket) -> ssl.SSLSocket:
        with _openssl:
            if self._context is None:
                self._context = make_tls_context(self._certificates)
            name = self._connection.host
            tls = self._context.wrap_socket(connection, server_hostname=name, do_handshake_on_connect=False)
        try:
            tls.do_handshake()
        except BaseException:
            tls.close()
            raise
        return tls


def _reason(failure: BaseException | None) -> str:
    """Return the reason for a delivery log, without the texts of a library."""
    while failure is not None:
        for kind, reason in _REASONS:
            if isinstance(failure, kind):
                return reason
        failure = failure.__cause__ or failure.__context__
    return "the connection failed"


def connect(
    host: str, port: int, timeout: float, denied: Callable[[], Iterable[str]]
) -> tuple[socket.socket, Address]:
    """Return a connection to the first address of the host that accepts one within `timeout` seconds, and
    that address. Raises OSError and Denied."""
    deadline = time.monotonic() + timeout
    failure: OSError = OSError("the name has no address")
    for family, kind, protocol, _, place in _resolve(host, port, timeout):
        address = ip_address(str(place[0]).partition("%")[0])
        check(address, denied())
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no address took a connection in time")
        connection = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
        try:
            connection.settimeout(left)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.connect(place)
        except OSError as error:
            connection.close()
            failure = error
            continue
        connection.settimeout(timeout)
        return connection, address
    raise failure


def _resolve(host: str, port: int, timeout: float) -> list[Any]:
    """Call getaddrinfo, which has no timeout of its own. Raises OSError."""
    if literal(host) is not None:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    found: queue.SimpleQueue[list[Any] | OSError] = queue.SimpleQueue()

    def look() -> None:
        try:
            found.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            found.put(error)
        except UnicodeError as error:
            found.put(OSError(str(error)))

    threading.Thread(target=look, daemon=True).start()
    try:
        result = found.get(timeout=timeout)
    except queue.Empty:
        raise TimeoutError("no answer from the name servers in time") from None
    if isinstance(result, OSError):
        raise result
    return result


class _FinalResponse(HTTPResponse):
    """Final response of a receiver. http.client skips interim responses with 100 alone, and would take
    another one for the final response (RFC 9110 section 15.2)."""

    def begin(self) -> None:
        super().begin()
        # Not 101, which switches to another protocol: nobody asked for it.
        while 102 <= self.status < 200:
            # Without headers, the next call reads another response.
            self.headers = None  # type: ignore[assignment]
            super().begin()


class _Connection(HTTPConnection):
    """HTTP connection over a socket that `open` returns. Sends header and body of a request together:
    separately, they would be two system calls on either side, and each releases the interpreter's lock."""

    response_class = _FinalResponse
    _header: bytes | None = None

    def __init__(self, host: str, port: int, default_port: int, open: Callable[[], socket.socket]) -> None:
        super().__init__(host, port)
        #: The header Host names another port.
        self.default_port = default_port
        self._open = open

    def connect(self) -> None:
        self.sock = self._open()

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
