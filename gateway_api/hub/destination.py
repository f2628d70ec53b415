"""Destinations of deliveries: the networks that the operator denies, and connections to the others."""

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from typing import Any

from gateway_api.base.receivers import Address, Denied, check, literal


class DeniedNetworks:
    """The networks that the running configuration denies. Raises Denied while they are not known."""

    known: tuple[str, ...] | None = None

    def __call__(self) -> tuple[str, ...]:
        if self.known is None:
            raise Denied("which networks are denied is not known yet")
        return self.known


def connect(
    host: str, port: int, timeout: float | None, denied: Callable[[], Iterable[str]]
) -> tuple[socket.socket, Address]:
    """A connection to the first address of the host that accepts one within the timeout, and that address.
    Raises OSError and Denied."""
    deadline = None if timeout is None else time.monotonic() + timeout
    failure: OSError = OSError("the name has no address")
    for family, kind, protocol, _, place in _resolved(host, port, timeout):
        address = ip_address(str(place[0]).partition("%")[0])
        check(address, denied())
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
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
        return connection, address
    raise failure


def _resolved(host: str, port: int, timeout: float | None) -> list[Any]:
    """As getaddrinfo, which has no timeout of its own."""
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
