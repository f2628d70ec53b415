"""Where deliveries may go. It is checked on the address that is connected to, not on the name: a name can
change its mind between a check and a connection.
"""

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

from gateway_api.base.errors import GatewayApiError

Address = IPv4Address | IPv6Address

#: Receivers in the operator's own network are why there are webhooks. These are never receivers: cloud
#: metadata and other link-local services, groups, and what means "this host" only by accident.
_NEVER = tuple(
    ip_network(text)
    for text in (
        *("0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32"),
        *("::/128", "fe80::/10", "ff00::/8", "fd00:ec2::254/128"),
    )
)
#: RFC 6052, RFC 6145 and RFC 8215: IPv6 spellings of an IPv4 address, its last 32 bits.
_IPV4_AT_THE_END = tuple(
    map(IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48"))
)
_OF_IPV6_ITSELF = (IPv6Address("::"), IPv6Address("::1"))


class Denied(GatewayApiError):
    """The address is none that may be delivered to."""


def spelled_out(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, or the address itself."""
    if isinstance(address, IPv6Address) and address not in _OF_IPV6_ITSELF:
        if any(address in network for network in _IPV4_AT_THE_END):
            return IPv4Address(int(address) & 0xFFFFFFFF)
        if address.sixtofour is not None:
            return address.sixtofour
    return address


def check(address: Address, denied: Iterable[str] = ()) -> None:
    """Raises Denied. `denied` are networks in CIDR, besides those that always are."""
    plain = spelled_out(address)
    networks = (*_NEVER, *map(ip_network, denied))
    if any(plain in network or address in network for network in networks):
        raise Denied(f"{address} is no address to deliver to")


def literal(host: str) -> Address | None:
    """The address that a host in a URL is, in any of the spellings that the system takes; None for a
    name."""
    try:
        return ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        pass
    try:
        # 2852039166, 0xa9.0xfe.0xa9.0xfe, 0251.254.169.254: inet_aton(3) knows them all.
        return IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def connect(
    host: str, port: int, timeout: float | None, denied: Callable[[], Iterable[str]]
) -> tuple[socket.socket, Address]:
    """A connection to the first of the host's addresses that takes one, within the timeout, and that address.
    Raises OSError and Denied."""
    deadline = None if timeout is None else time.monotonic() + timeout
    failure: OSError = OSError("the name has no address")
    for family, kind, protocol, _, place in _looked_up(host, port, timeout):
        address = ip_address(str(place[0]).partition("%")[0])
        check(address, denied())
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError("no address took a connection in time")
        made = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
        try:
            made.settimeout(left)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.connect(place)
        except OSError as error:
            made.close()
            failure = error
            continue
        return made, address
    raise failure


def _looked_up(host: str, port: int, timeout: float | None) -> list[Any]:
    """As getaddrinfo, which takes as long as its name servers do and can't be told a deadline."""
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
        answer = found.get(timeout=timeout)
    except queue.Empty:
        raise TimeoutError("no answer from the name servers in time") from None
    if isinstance(answer, OSError):
        raise answer
    return answer
