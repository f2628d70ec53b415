"""One attempt to deliver one message: a POST that ends by its deadline, whatever the receiver does.

No more of an answer is read than is needed to use the connection again, and no redirect is followed.
"""

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import requests
from requests.structures import CaseInsensitiveDict

from gateway_api.hub import destination
from gateway_api.hub.connection import ReceiverAdapter, read_body
from gateway_api.hub.message import Message, headers

_log = logging.getLogger(__name__)

#: Seconds until the status must be there, the connection included.
TIMEOUT = 10.0
#: An answer of up to so many bytes is read, for the sake of the connection.
_MOST_READ = 16 << 10
#: Within so many seconds.
_READ_TIMEOUT = 1.0

_HEADERS = {"Content-Type": "application/json", "User-Agent": "Service-Webhook/1.0"}


@dataclass(frozen=True)
class AttemptResult:
    """`status` is the answer's, or None and `error` says why there was none; `seconds` is how long it
    took."""

    status: int | None
    error: str | None
    seconds: float

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


class Sender:
    """Sends to one URL, one message at a time. `denied` gives networks besides those that always are;
    `certificates` is a file with those to trust, or None for those that requests brings. `cut` may be called
    by another thread."""

    def __init__(
        self, url: str, secret: str | None, denied: Callable[[], Iterable[str]], certificates: str | None
    ) -> None:
        self._url = url
        self._secret = secret
        self._denied = denied
        self._watched: socket.socket | None = None
        #: Where the connection that is kept goes.
        self._peer: destination.Address | None = None
        self._deadline: float | None = None
        #: Between a look at the deadline and a cut, a next attempt must not begin.
        self._cutting = threading.Lock()
        self._session = requests.Session()
        # No proxies, no passwords and no certificates out of the environment.
        self._session.trust_env = False
        self._session.verify = certificates or True
        self._session.headers.clear()
        self._session.headers.update(_HEADERS)
        self._adapter = ReceiverAdapter(self._connect)
        self._session.mount("http://", self._adapter)
        self._session.mount("https://", self._adapter)
        #: What is the same in each request.
        self._prepared: requests.PreparedRequest | None = None

    def send(self, message: Message) -> AttemptResult:
        """Makes the attempt."""
        began = time.monotonic()
        deadline = began + TIMEOUT
        self._give_until(deadline)
        status, error = None, None
        try:
            answer = self._post(message)
        except destination.Denied as refusal:
            error = str(refusal)
        except (requests.RequestException, OSError, ValueError) as failure:
            error = "timeout" if time.monotonic() >= deadline else _reason(failure)
        except Exception:  # noqa: BLE001 - logged; a queue that ended would swallow what it is given
            _log.exception("an attempt to deliver failed")
            error = "internal error"
        else:
            # A response that is cut inside its headers looks complete.
            if time.monotonic() >= deadline:
                error = "timeout"
                answer.raw.close()
            else:
                status = answer.status_code
                self._put_away(answer)
        self._give_until(None)
        return AttemptResult(status, error, time.monotonic() - began)

    def cut(self, now: float) -> None:
        """Ends an attempt whose deadline has passed. `now` is monotonic seconds."""
        with self._cutting:
            if self._watched is None or self._deadline is None or now < self._deadline:
                return
            try:
                self._watched.shutdown(socket.SHUT_RDWR)
            except OSError as error:
                _log.debug("the connection had ended by itself: %s", error)

    def close(self) -> None:
        """Gives up its connection."""
        self._session.close()
        if self._watched is not None:
            self._watched.close()

    def _give_until(self, deadline: float | None) -> None:
        with self._cutting:
            self._deadline = deadline

    def _post(self, message: Message) -> requests.Response:
        self._allow()
        request = self._prepared
        if request is None:
            request = self._session.prepare_request(requests.Request("POST", self._url))
            self._prepared = request
        request.body = message.body
        request.headers = CaseInsensitiveDict(_HEADERS)
        request.headers["Content-Length"] = str(len(message.body))
        request.headers.update(headers(message, self._secret, time.time()))
        # Not by way of the session's own: that remembers cookies, and reads a redirect's body to its end.
        return self._adapter.send(request, timeout=TIMEOUT, stream=True, verify=self._session.verify)

    def _allow(self) -> None:
        """Gives up a connection that has become one to a denied address. Raises Denied."""
        if self._peer is None:
            return
        try:
            destination.check(self._peer, self._denied())
        except destination.Denied:
            self._session.close()
            self._peer = None
            raise

    def _put_away(self, answer: requests.Response) -> None:
        """Reads a short body, so that the connection can be used again; or gives the connection up."""
        # RFC 9110 section 8.6: with 204 comes no length, and no body.
        length = "0" if answer.status_code == 204 else answer.headers.get("Content-Length", "")
        try:
            if length.isdigit() and int(length) <= _MOST_READ:
                self._give_until(time.monotonic() + _READ_TIMEOUT)
                read_body(answer, _MOST_READ)
            else:
                answer.raw.close()
        except OSError as failure:
            # The status is what counts, and that was there.
            _log.debug("an answer's body broke off: %s", failure)
            answer.raw.close()
        answer.close()

    def _connect(self, host: str, port: int, timeout: float | None) -> socket.socket:
        made, self._peer = destination.connect(host, port, timeout, self._denied)
        if self._watched is not None:
            self._watched.close()
        # TLS takes the socket's descriptor away; another one for the same connection stays ours.
        self._watched = made.dup()
        return made


_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (socket.gaierror, "the name has no address"),
    (ssl.SSLError, "TLS failed"),
    (TimeoutError, "timeout"),
    (ConnectionRefusedError, "the connection was refused"),
    (ConnectionResetError, "the connection was reset"),
)


def _reason(failure: BaseException | None) -> str:
    """A word for a delivery log, without the innards of a library."""
    while failure is not None:
        for kind, reason in _REASONS:
            if isinstance(failure, kind):
                return reason
        failure = failure.__cause__ or failure.__context__
    return "the connection failed"
