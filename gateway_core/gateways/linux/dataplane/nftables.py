"""The program nft(8) of nftables 1.0.6 to 1.1, and the kernel's events about its rules."""

import errno
import logging
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any, Self

import msgspec

from gateway_core.gateways.linux.entries import EntryReader, UnreadableEntry
from gateway_core.gateways.linux.kernel.messages import KernelError
from gateway_core.gateways.linux.program import ProgramFailed, run

#: Seconds and bytes of a run. A table of 64 trunks has some 100 kB.
_SECONDS, _MOST = 10.0, 1 << 22
#: linux/netlink.h and linux/netfilter/nfnetlink.h.
_NETLINK_NETFILTER, _SOL_NETLINK, _ADD_MEMBERSHIP, _NFNLGRP_NFTABLES = 12, 270, 1, 7
_DATAGRAM = 1 << 16
#: linux/netfilter/nf_tables.h, of NFNL_SUBSYS_NFTABLES: elements that come and go, the end of a transaction.
_NO_CHANGE = frozenset(10 << 8 | type for type in (12, 14, 15))
_HEADER = struct.Struct("=IH10x")

#: The type of an object of a table that cannot be read.
UNREADABLE = "unreadable"
#: The fields that the gateway reads.
_FIELDS: dict[str, dict[str, type]] = {
    "counter": {"name": str, "packets": int},
    "set": {"name": str},
    "rule": {"expr": list},
}
_OBJECTS = EntryReader(
    "nftables",
    "object",
    "the objects in a table of the gateway",
    "the table counts as changed, unless it was so when the core loaded it",
)

_log = logging.getLogger(__name__)


class _Listing(msgspec.Struct):
    nftables: list[Any]


def _object(found: Any) -> dict[str, Any]:
    """Raises UnreadableEntry."""
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise UnreadableEntry("an object of nft has no type")
    for type, fields in found.items():
        for name, wanted in _FIELDS.get(type, {}).items():
            if not isinstance(fields.get(name), wanted):
                raise UnreadableEntry(f"a {type} of nft has no {name}")
        if not isinstance(fields.get("elem", []), list):
            raise UnreadableEntry("the elements of a set of nft are no list")
    return found


class Nft:
    """Loads and lists rules. Any thread may call. Methods raise KernelError."""

    def __init__(self, program: str = "nft") -> None:
        self._program = program

    def load(self, step: str, commands: str) -> None:
        """All commands, a line each, in one transaction, or none. `step` is for the error: a verb and an
        object."""
        # nft joins them. One argument may have 128 KiB (execve(2)).
        self._run(step, *(f"{line}\n" for line in commands.splitlines()))

    def table(self, name: str, *options: str) -> list[dict[str, Any]] | None:
        """Return the objects of a table, as libnftables-json(5) has them; with the option `-t`, without the
        elements of its sets. One that cannot be read has the type UNREADABLE. None if there is no such
        table."""
        step = f"list the table {name}"
        try:
            output = self._run(step, "-j", *options, f"list table {name}")
        except KernelError as error:
            if error.code == errno.ENOENT:
                return None
            raise
        try:
            objects = msgspec.json.decode(output, type=_Listing).nftables
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise KernelError(step, "nft printed no JSON") from error
        # It differs from any rule of the gateway: the table is not as it was loaded.
        return _OBJECTS.read(objects, _object, instead=lambda _: {UNREADABLE: {}}, name=repr, place=step)

    def _run(self, step: str, *arguments: str) -> bytes:
        try:
            ended = run([self._program, *arguments], seconds=_SECONDS, most=_MOST)
        except ProgramFailed as error:
            raise KernelError(step, error) from error
        if ended.status:
            # Below its first line are the commands.
            lines = ended.errors.decode(errors="replace").splitlines() or [f"status {ended.status}"]
            is_absent = "No such file or directory" in lines[0]
            reason = lines[0].rpartition("Error: ")[2]
            raise KernelError(step, reason, errno.ENOENT if is_absent else None)
        return ended.output


class RulesetEvents:
    """The kernel's events about the rules of nftables, of any table and program, without those about elements
    of sets: there is one for each session. It listens from the start. One thread iterates, any may `close`;
    the block ends after the iteration."""

    def __init__(self) -> None:
        self._wake = os.eventfd(0)
        self._events = _listening()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._events is not None:
            self._events.close()
        os.close(self._wake)

    def each(self, seconds: float, pause: float) -> Iterator[None]:
        """Yield `pause` seconds after an event, for others that follow, or without one after `seconds`; end
        after `close`."""
        waiting: list[Any] = [self._wake] if self._events is None else [self._wake, self._events]
        deadline = time.monotonic() + seconds
        while self._wake not in (found := select.select(waiting, [], [], _left(deadline))[0]):
            if found:
                time.sleep(pause)
                if not self._has_changes() and _left(deadline):
                    continue
            yield
            deadline = time.monotonic() + seconds

    def close(self) -> None:
        """End the iteration."""
        os.eventfd_write(self._wake, 1)

    def _has_changes(self) -> bool:
        """Take all events."""
        changed = False
        while self._events is not None:
            try:
                changed |= _is_change(self._events.recv(_DATAGRAM))
            except BlockingIOError:
                break
            except OSError as error:
                # The kernel dropped events: that something changed is all that counts.
                if error.errno != errno.ENOBUFS:
                    raise
                changed = True
        return changed


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _is_change(messages: bytes) -> bool:
    start = 0
    while start + _HEADER.size <= len(messages):
        length, type = _HEADER.unpack_from(messages, start)
        if type not in _NO_CHANGE:
            return True
        # Aligned, and never without an end.
        start += max(_HEADER.size, length + 3 & ~3)
    return False


def _listening() -> socket.socket | None:
    try:
        events = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
    except OSError as error:
        _log.warning("changes of nftables are found by and by only: %s", error.strerror)
        return None
    events.setblocking(False)
    # Without an address, it would get nothing.
    events.bind((0, 0))
    events.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, _NFNLGRP_NFTABLES)
    return events
