"""Questions to the kernel by netlink.

Each has a socket of its own: any thread may ask, and no question meets the rest of another's reply. The
namespace is that of the calling thread.
"""

import errno
import os
import socket
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from gateway_api.core.gateways.linux.kernel import messages as nl
from gateway_api.core.gateways.linux.kernel.messages import KernelError, NoDevice

T = TypeVar("T")

_SOL_NETLINK, _STRICT = 270, 12
#: The kernel fills 32 KiB at most, unless one message is larger.
DATAGRAM = 1 << 18
#: A dump that changes interrupted is read again, so many times in all.
_ATTEMPTS = 4


def _itself(entry: Any) -> Any:
    return entry


def dump(
    step: str, type: int, body: bytes, parse: Callable[[bytes], T], key: Callable[[T], Hashable] = _itself
) -> list[T]:
    """All entries that the kernel has. When changes interrupt each attempt, the entries of all attempts: one
    that went may be there, and one that stays is missing only if each attempt has missed it."""
    found: dict[Hashable, T] = {}
    for _ in range(_ATTEMPTS):
        bodies, interrupted = _exchange(step, type, nl.DUMP, body)
        if not interrupted:
            return [parse(each) for each in bodies]
        for each in bodies:
            parsed = parse(each)
            found[key(parsed)] = parsed
    return list(found.values())


def ask(step: str, type: int, flags: int, body: bytes) -> list[bytes]:
    """The replies to a question about one thing."""
    return _exchange(step, type, flags | nl.ACK, body)[0]


def _exchange(step: str, type: int, flags: int, body: bytes) -> tuple[list[bytes], bool]:
    """The bodies of the replies, and whether a change interrupted them."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
            # So that the kernel filters by table, and refuses what it doesn't understand.
            kernel.setsockopt(_SOL_NETLINK, _STRICT, 1)
            kernel.send(nl.request(type, flags, nl.QUESTION, body))
            return _replies(step, kernel)
    except OSError as error:
        kind = NoDevice if error.errno == errno.ENODEV else KernelError
        raise kind(step, error.strerror, error.errno) from error


def _replies(step: str, kernel: socket.socket) -> tuple[list[bytes], bool]:
    bodies: list[bytes] = []
    interrupted = 0
    while True:
        data, _, how, (sender, _) = kernel.recvmsg(DATAGRAM)
        if how & socket.MSG_TRUNC:
            raise KernelError(step, f"a reply has more than {DATAGRAM} bytes")
        if sender != 0:
            # Another process may send to the socket.
            continue
        for type, flags, _, body in nl.messages(data):
            interrupted |= flags & nl.INTERRUPTED
            if type in {nl.DONE, nl.ERROR}:
                code = nl.error_code(body)
                if code:
                    raise OSError(code, os.strerror(code))
                return bodies, bool(interrupted)
            bodies.append(body)
