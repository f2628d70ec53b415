"""Responses on the wire: gunicorn's, and the last one on a connection whose request cannot be parsed.

Internals of gunicorn, read in 27.0: `default_headers`, `send_headers` and `write` of `wsgi.Response`.
"""

import json

from gunicorn.http import wsgi

from gateway_api.base.http import guards

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
