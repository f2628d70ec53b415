"""Responses on the wire: gunicorn's, those without an end, and the last one on a connection whose request
cannot be parsed.

Internals of gunicorn, read in 27.0: `default_headers`, `send_headers` and `write` of `wsgi.Response`.
"""

import json
import logging
import time
from collections.abc import Callable, Generator
from typing import Any

import gevent
from gunicorn.http import wsgi

from gateway_api.base import http, logs
from gateway_api.base.http import guards
from gateway_api.serving.sockets import PlainSocket, TlsSocket

_log = logging.getLogger("gunicorn.error")
_access = logging.getLogger("gunicorn.access")

_LAST_CHUNK = b"0\r\n\r\n"
#: Bytes of a body that are sent with the header. A record of TLS has up to 16 KiB.
_SHORT = 15 << 10


class _Response(wsgi.Response):  # type: ignore[misc]
    """Without the name of the server, and in one packet if it is short; gunicorn cannot do either."""

    headers_sent: bool

    def default_headers(self) -> list[str]:
        return [line for line in super().default_headers() if not line.startswith("Server:")]

    def write(self, data: bytes) -> None:
        if self.headers_sent or self._omits_body or len(data) != self.response_length or len(data) > _SHORT:
            super().write(data)
            return
        self.sock.sendall(self.header() + data)
        self.headers_sent, self.sent = True, len(data)

    def header(self) -> bytes:
        """The bytes that `send_headers` sends."""
        lines = [*self.default_headers(), *(f"{name}: {value}\r\n" for name, value in self.headers), "\r\n"]
        return "".join(lines).encode("latin-1")


wsgi.Response = _Response


def last_response(status: str, request_id: str, *, tls: bool) -> tuple[str, str]:
    """Header and body of the last response on a connection."""
    body = json.dumps({"status": "error", "message": status.partition(" ")[2]}, separators=(",", ":"))
    headers = {
        "Connection": "close",
        "Content-Type": "application/json",
        "X-Request-ID": request_id,
        **guards(tls=tls),
        "Content-Length": str(len(body)),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n", body


class EventStream:
    """A response without an end: after its header it has a greenlet and next to nothing else. The greenlet of
    a request keeps the memory of the deepest of its calls, and the request itself, until it ends.

    `pieces` are of its body: one comes before the header. `ended` is called when its connection is closed."""

    def __init__(
        self,
        pieces: Generator[bytes, None, None],
        response: Any,
        environ: dict[str, Any],
        ended: Callable[[], None],
    ) -> None:
        self._pieces = pieces
        self._header: bytes = response.header()
        self._chunked: bool = response.chunked
        self._socket: PlainSocket | TlsSocket = response.sock
        self._ended = ended
        self._fields = http.log_fields(
            environ,
            request_id=http.request_id_in(response.headers),
            status=response.status_code,
            size=0,
            seconds=None,
        )
        self._level = http.level_of_request(environ, response.status_code)
        self._began = time.monotonic()

    def start(self) -> None:
        """Takes the connection over: gunicorn's greenlet ends."""
        self._socket.is_handed_over = True
        gevent.spawn(self._run)

    def _run(self) -> None:
        sent = 0
        try:
            next(self._pieces)
            self._socket.push(self._header)
            self._header = b""
            for piece in self._pieces:
                if piece:
                    self._socket.push(b"%X\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece)
                    sent += len(piece)
            if self._chunked:
                self._socket.push(_LAST_CHUNK)
        except OSError as error:
            _log.debug("the client of a stream has left: %s", error)
        except Exception:  # noqa: BLE001 - logged; the client reconnects
            _log.exception("a stream failed", extra=logs.extra(request_id=self._fields["request_id"]))
        finally:
            self._end(sent)

    def _end(self, sent: int) -> None:
        self._pieces.close()
        fields = self._fields | {"bytes": sent, "duration_seconds": time.monotonic() - self._began}
        _access.log(self._level, "", extra=logs.extra(**fields))
        self._socket.is_handed_over = False
        self._socket.close()
        self._ended()
