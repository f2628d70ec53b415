"""A response without an end: after its header it has a greenlet and next to nothing else.

The greenlet of a request keeps the memory of the deepest of its calls, and the request itself, until it ends.
"""

import logging
import time
from collections.abc import Callable, Generator
from typing import Any

import gevent

from gateway_api.base import http, logs
from gateway_api.serving.sockets import PlainSocket, TlsSocket

_log = logging.getLogger("gunicorn.error")
_access = logging.getLogger("gunicorn.access")

_LAST_CHUNK = b"0\r\n\r\n"


class EventStream:
    """A response, before its header is sent. `pieces` are of its body: one comes before the header. `ended`
    is called when its connection is closed."""

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
