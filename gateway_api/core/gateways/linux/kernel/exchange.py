"""Questions to the kernel by netlink, and changes.

Each exchange has a socket of its own: any thread may call, and no question meets the rest of another's reply.
The namespace is that of the calling thread. Changes go many in a message: 10,000 routes of sessions must move
in less than a second.
"""

import errno
import os
import socket
from collections.abc import Callable, Container, Hashable, Sequence
from typing import Any, TypeVar

from gateway_api.core.gateways.linux.kernel import messages as nl
from gateway_api.core.gateways.linux.kernel.messages import KernelChange, KernelError, NoDevice

T = TypeVar("T")

_SOL_NETLINK, _STRICT = 270, 12
#: The kernel fills 32 KiB at most, unless one message is larger.
DATAGRAM = 1 << 18
#: A dump that changes interrupted is read again, so many times in all.
_ATTEMPTS = 4
#: Changes in one message: the replies fit into the buffer of a socket.
_AT_ONCE = 100


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


def make(step: str, changes: Sequence[KernelChange]) -> list[int]:
    """Makes changes in this order, each by itself. Returns an error number for each, 0 for one that was made.
    Raises KernelError when the socket fails."""
    codes: list[int] = []
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
            for first in range(0, len(changes), _AT_ONCE):
                codes += _made(kernel, changes[first : first + _AT_ONCE])
    except OSError as error:
        raise KernelError(step, error.strerror, error.errno) from error
    return codes


def change(step: str, *changes: KernelChange, accept: Container[int] = ()) -> list[bool]:
    """Makes changes in this order. False for each that the kernel refused with a number to accept, such as
    EEXIST for a thing that is there. Raises KernelError for the first other refusal, NoDevice if a device is
    gone; those that follow are made all the same."""
    codes = make(step, changes)
    for code in codes:
        if code and code not in accept:
            raise refusal(step, code)
    return [not code for code in codes]


def refusal(step: str, code: int) -> KernelError:
    """The error for an error number of `make`."""
    kind = NoDevice if code == errno.ENODEV else KernelError
    return kind(step, os.strerror(code), code)


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


def _made(kernel: socket.socket, changes: Sequence[KernelChange]) -> list[int]:
    kernel.send(
        b"".join(
            nl.request(change.type, nl.ACK | change.flags, number, change.body)
            for number, change in enumerate(changes)
        )
    )
    codes: dict[int, int] = {}
    while len(codes) < len(changes):
        data, _, _, (sender, _) = kernel.recvmsg(DATAGRAM)
        if sender != 0:
            # Another process may send to the socket.
            continue
        for type, _, number, body in nl.messages(data):
            if type == nl.ERROR:
                codes[number] = nl.error_code(body)
    return [codes[number] for number in range(len(changes))]
