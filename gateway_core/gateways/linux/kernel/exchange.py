"""Questions to the kernel by netlink, and changes.

Each exchange has a socket of its own: any thread may call, and no question meets the rest of another's reply.
The namespace is that of the calling thread. Changes and questions about single things go many in a message:
what thousands of sessions need must be there within seconds.
"""

import errno
import os
import socket
from collections.abc import Callable, Container, Hashable, Sequence, Set
from typing import Any, NamedTuple, TypeVar

from gateway_core.gateways.linux.entries import EntryReader
from gateway_core.gateways.linux.kernel import messages as nl
from gateway_core.gateways.linux.kernel import rtnetlink as rt
from gateway_core.gateways.linux.kernel.messages import KernelChange, KernelError, NoDevice

T = TypeVar("T")

_SOL_NETLINK, _CAP_ACK, _STRICT = 270, 10, 12
#: The kernel fills 32 KiB at most, unless one message is larger.
DATAGRAM = 1 << 18
#: A dump that changes interrupted is read again, so many times in all.
_ATTEMPTS = 4
#: Changes, and questions, in one message: the replies fit into the buffer of a socket.
_CHANGES_AT_ONCE, _QUESTIONS_AT_ONCE = 256, 64
#: Bytes. The kernel takes twice as many, and counts 768 for an acknowledgement.
_BUFFER = 1 << 18
#: Of a change: any but that of a question.
_CHANGE = 0


def _reader(kind: str, entries: str) -> EntryReader:
    return EntryReader("kernel", kind, f"the {entries} of the kernel", "such a one counts as absent")


#: By the type of the question.
_READERS = {
    rt.RTM_GETLINK: _reader("link", "links"),
    rt.RTM_GETSTATS: _reader("counters", "counters of links"),
    rt.RTM_GETADDR: _reader("address", "addresses"),
    rt.RTM_GETROUTE: _reader("route", "routes"),
    rt.RTM_GETRULE: _reader("rule", "policy rules"),
    rt.RTM_GETQDISC: _reader("qdisc", "qdiscs"),
    rt.RTM_GETTFILTER: _reader("filter", "filters"),
    rt.RTM_GETNEIGHTBL: _reader("neighbour_table", "neighbour tables"),
}


def _itself(entry: Any) -> Any:
    return entry


def dump(
    step: str, type: int, body: bytes, parse: Callable[[bytes], T], key: Callable[[T], Hashable] = _itself
) -> list[T]:
    """Return all entries that the kernel has, and that can be read. When changes interrupt each attempt, the
    entries of all attempts: one that went may be there, and one that stays is missing only if each attempt
    has missed it."""
    found: dict[Hashable, T] = {}
    for _ in range(_ATTEMPTS):
        bodies, interrupted = _dump(step, type, body)
        entries = _READERS[type].read(bodies, parse, place=(step, body))
        if bodies and not entries:
            raise KernelError(step, "no reply of the kernel is in its format")
        if not interrupted:
            return entries
        found.update((key(entry), entry) for entry in entries)
    return list(found.values())


class Reply(NamedTuple):
    """The reply to a question about one thing: the kernel's error number, 0 for none, and what it told."""

    code: int
    body: bytes


def ask(
    step: str, type: int, flags: int, bodies: Sequence[bytes], parse: Callable[[bytes], T], absent: Set[int]
) -> list[T | None]:
    """Return the things that questions are about. None for each that the kernel refuses with a number of
    `absent`, does not tell, or that cannot be read. Raises KernelError for any other refusal."""
    questions = [nl.request(type, flags | nl.ACK, nl.QUESTION, body) for body in bodies]
    found: list[T | None] = []
    for body, reply in zip(bodies, _in_parts(step, questions, _QUESTIONS_AT_ONCE), strict=True):
        if reply.code and reply.code not in absent:
            raise refusal(step, reply.code)
        entries = [reply.body] if reply.body else []
        found.append(next(iter(_READERS[type].read(entries, parse, place=(step, body))), None))
    return found


def make(step: str, changes: Sequence[KernelChange]) -> list[int]:
    """Make changes in this order, each by itself. Return an error number for each, 0 for one that was made.
    Raises KernelError when the socket fails."""
    requests = [nl.request(each.type, each.flags | nl.ACK, _CHANGE, each.body) for each in changes]
    return [reply.code for reply in _in_parts(step, requests, _CHANGES_AT_ONCE)]


def change(step: str, *changes: KernelChange, accept: Container[int] = ()) -> list[bool]:
    """Make changes in this order. False for each that the kernel refused with a number to accept, such as
    EEXIST for a thing that is there. Raises KernelError for the first other refusal, NoDevice if a device is
    gone; those that follow are made all the same."""
    codes = make(step, changes)
    for code in codes:
        if code and code not in accept:
            raise refusal(step, code)
    return [not code for code in codes]


def refusal(step: str, code: int) -> KernelError:
    """Return the error for an error number of `make`."""
    kind = NoDevice if code == errno.ENODEV else KernelError
    return kind(step, os.strerror(code), code)


def _dump(step: str, type: int, body: bytes) -> tuple[list[bytes], bool]:
    """Return the bodies of the replies, and whether a change interrupted them."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
            # So that the kernel filters by table, and refuses what it doesn't understand.
            kernel.setsockopt(_SOL_NETLINK, _STRICT, 1)
            kernel.send(nl.request(type, nl.DUMP, nl.QUESTION, body))
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


def _in_parts(step: str, requests: Sequence[bytes], at_once: int) -> list[Reply]:
    replies: list[Reply] = []
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
            kernel.setsockopt(_SOL_NETLINK, _STRICT, 1)
            # An acknowledgement of an error doesn't repeat the request.
            kernel.setsockopt(_SOL_NETLINK, _CAP_ACK, 1)
            kernel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            for first in range(0, len(requests), at_once):
                replies += _acknowledged(kernel, requests[first : first + at_once])
    except OSError as error:
        raise KernelError(step, error.strerror, error.errno) from error
    return replies


def _acknowledged(kernel: socket.socket, requests: Sequence[bytes]) -> list[Reply]:
    """The kernel handles one request after the other, and acknowledges each after what it tells."""
    kernel.send(b"".join(requests))
    replies: list[Reply] = []
    told = b""
    while len(replies) < len(requests):
        data, _, _, (sender, _) = kernel.recvmsg(DATAGRAM)
        if sender != 0:
            # Another process may send to the socket.
            continue
        for type, _, _, body in nl.messages(data):
            if type == nl.ERROR:
                replies.append(Reply(nl.error_code(body), told))
                told = b""
            else:
                told = body
    return replies
