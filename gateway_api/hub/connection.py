"""Connections to a receiver, by methods of urllib3 and requests that are not all documented.

Read in urllib3 2.8.0 (`_new_conn`, `_dns_host`) and requests 2.34.2. A test fails when their code changes.
"""

import socket
from collections.abc import Callable
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, NewConnectionError


def read_body(response: requests.Response, most: int) -> None:
    """Reads a body to its end, so that the connection can be used again. Raises OSError."""
    try:
        response.raw.read(most)
    except HTTPError as error:
        raise OSError(str(error)) from error


class _Connection(HTTPConnection):
    """Sends a head together with its body: two pieces would be two system calls at either end, and the
    interpreter's lock is released at each."""

    _head: bytes | None = None

    def endheaders(self, message_body: Any = None, *, encode_chunked: bool = False) -> None:
        self._head = b""
        super().endheaders(message_body, encode_chunked=encode_chunked)

    def send(self, data: Any) -> None:
        if self._head == b"":
            self._head = data
            return
        if self._head:
            data, self._head = self._head + data, None
        super().send(data)
        # A TLS receiver has just sent its session tickets, and its kernel may hold the response back until
        # ours acknowledges them: which ours puts off for 40 ms, since no more data goes that way.
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


class ReceiverAdapter(HTTPAdapter):
    """requests' adapter for one URL, over connections that `connect` makes. What is the same for each request
    is computed once, and cookies are ignored: both together are more than half of the time of a request."""

    def __init__(self, connect: Callable[[str, int, float | None], socket.socket]) -> None:
        self._connect = connect
        self._pool: HTTPConnectionPool | None = None
        self._path = ""
        super().__init__(pool_connections=1, pool_maxsize=1)

    def get_connection_with_tls_context(self, *arguments: Any, **more: Any) -> HTTPConnectionPool:
        if self._pool is None:
            self._pool = super().get_connection_with_tls_context(*arguments, **more)
        return self._pool

    def cert_verify(self, conn: Any, *arguments: Any, **more: Any) -> None:
        # A new pool has no connection yet.
        if not conn.num_connections:
            super().cert_verify(conn, *arguments, **more)

    def request_url(self, *arguments: Any, **more: Any) -> str:
        self._path = self._path or super().request_url(*arguments, **more)
        return self._path

    def build_response(self, req: requests.PreparedRequest, resp: Any) -> requests.Response:
        made = requests.Response()
        made.status_code, made.headers, made.raw = resp.status, resp.headers, resp
        return made

    def close(self) -> None:
        self._pool = None
        super().close()

    def init_poolmanager(self, *arguments: object, **more: object) -> None:
        super().init_poolmanager(*arguments, **more)  # type: ignore[arg-type]
        connect = self._connect

        def connected(connection: HTTPConnection) -> socket.socket:
            try:
                return connect(connection._dns_host, connection.port, connection.timeout)
            except OSError as error:
                # urllib3 would take a reset for one in the middle of a request, and look for an answer.
                raise NewConnectionError(connection, str(error)) from error

        class PlainConnection(_Connection):
            def _new_conn(self) -> socket.socket:
                return connected(self)

        class TlsConnection(_Connection, HTTPSConnection):
            def _new_conn(self) -> socket.socket:
                return connected(self)

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = PlainConnection

        class TlsPool(HTTPSConnectionPool):
            ConnectionCls = TlsConnection

        self.poolmanager.pool_classes_by_scheme = {"http": PlainPool, "https": TlsPool}
