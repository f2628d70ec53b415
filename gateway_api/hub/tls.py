"""TLS of the hub, in a process that forks.

OpenSSL has locks for the whole process, and Python calls it without the interpreter's lock. A fork in the
middle of such a call would give its child a lock that nobody releases: the child hangs when it uses TLS. So a
fork waits for the call that runs. No call waits for a peer, because sockets do not block during a call.

Read in CPython 3.11: which methods of `_ssl` release the interpreter's lock. These are here.
"""

import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from gateway_api.base import tls_errors

T = TypeVar("T")

_RULES = ("minimum_version", "options", "verify_flags", "hostname_checks_common_name", "post_handshake_auth")

_openssl = threading.RLock()
os.register_at_fork(
    before=_openssl.acquire, after_in_parent=_openssl.release, after_in_child=_openssl.release
)


class HubTlsSocket(ssl.SSLSocket):
    """A connection to a receiver. Its timeout is that of each call."""

    def do_handshake(self, block: bool = False) -> None:
        self._in_turns(super().do_handshake)

    def read(self, len: int = 1024, buffer: Any = None) -> Any:
        return self._in_turns(lambda: super(HubTlsSocket, self).read(len, buffer))

    def send(self, data: Any, flags: int = 0) -> int:
        return self._in_turns(lambda: super(HubTlsSocket, self).send(data, flags))

    def _in_turns(self, call: Callable[[], T]) -> T:
        """Call OpenSSL until it needs nothing more from the peer. Raises TimeoutError."""
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
            self._wait(event, deadline)

    def _wait(self, event: int, deadline: float | None) -> None:
        ready = select.poll()
        ready.register(self, event)
        if not ready.poll(None if deadline is None else max(0.0, 1000 * (deadline - time.monotonic()))):
            raise TimeoutError("the receiver has not replied in time")


class HubTlsContext(ssl.SSLContext):
    """Makes connections to receivers. `new` makes such a context."""

    sslsocket_class = HubTlsSocket

    @classmethod
    def new(cls, make_another: Callable[[], ssl.SSLContext]) -> "HubTlsContext":
        """Return a context with the rules of the context that `make_another` makes."""
        with _openssl:
            made, other = cls(ssl.PROTOCOL_TLS_CLIENT), make_another()
        for name in _RULES:
            setattr(made, name, getattr(other, name))
        return made

    def load_verify_locations(self, *arguments: Any, **more: Any) -> None:
        with _openssl:
            super().load_verify_locations(*arguments, **more)

    def wrap_socket(
        self,
        sock: socket.socket,
        server_side: bool = False,
        do_handshake_on_connect: bool = True,
        suppress_ragged_eofs: bool = True,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLSocket:
        with _openssl:
            made = super().wrap_socket(
                sock, server_side, False, suppress_ragged_eofs, server_hostname, session
            )
        if do_handshake_on_connect:
            try:
                made.do_handshake()
            except BaseException:
                made.close()
                raise
        return made
