"""Tells when links, addresses, routes, rules or qdiscs of the kernel change, by its events."""

import errno
import os
import select
import socket
import threading
from collections.abc import Iterator
from enum import Enum, auto
from functools import reduce
from operator import or_
from typing import Self

from gateway_core.gateways.linux.entries import EntryReader
from gateway_core.gateways.linux.kernel import messages as nl
from gateway_core.gateways.linux.kernel import rtnetlink as rt
from gateway_core.gateways.linux.kernel.exchange import DATAGRAM
from gateway_core.gateways.linux.kernel.links import is_ifb
from gateway_core.gateways.linux.kernel.messages import KernelError


class Changed(Enum):
    """A part of the kernel's state to read again."""

    #: But for IFBs.
    LINKS = auto()
    IFBS = auto()
    ADDRESSES = auto()
    ROUTES = auto()
    #: Filters too.
    QDISCS = auto()
    #: IPv4 policy rules.
    RULES = auto()


EVERYTHING = frozenset(Changed)

_GROUPS = {
    Changed.LINKS: rt.RTMGRP_LINK,
    Changed.IFBS: rt.RTMGRP_LINK,
    Changed.QDISCS: rt.RTMGRP_TC,
    Changed.ADDRESSES: rt.RTMGRP_IPV4_IFADDR | rt.RTMGRP_IPV6_IFADDR,
    Changed.ROUTES: rt.RTMGRP_IPV4_ROUTE | rt.RTMGRP_IPV6_ROUTE,
    Changed.RULES: rt.RTMGRP_IPV4_RULE,
}
_LINK = rt.RTM_NEWLINK >> 2
#: By the type of a message, which is one of four in a row. A link that goes down takes its IPv4 routes along,
#: and the kernel sends no message for them.
_CHANGED = {
    _LINK: frozenset({Changed.LINKS, Changed.ROUTES}),
    rt.RTM_NEWADDR >> 2: frozenset({Changed.ADDRESSES}),
    rt.RTM_NEWROUTE >> 2: frozenset({Changed.ROUTES}),
    rt.RTM_NEWRULE >> 2: frozenset({Changed.RULES}),
    rt.RTM_NEWQDISC >> 2: frozenset({Changed.QDISCS}),
    rt.RTM_NEWTFILTER >> 2: frozenset({Changed.QDISCS}),
}
#: No session and no VLAN is on an IFB, and no route leads over it.
_OF_AN_IFB = frozenset({Changed.IFBS})
_NOTHING: frozenset[Changed] = frozenset()
_EVENT_BUFFER = 1 << 22
#: Datagrams in one trigger, so that a flood of events doesn't hold it back.
_AT_ONCE = 1000
_FORCE_BUFFER = 33

_DATAGRAMS = EntryReader(
    "kernel", "event", "the events of the kernel", "the core reads all that the kernel has again"
)


class Watcher:
    """Tells that something `wanted` changed: a trigger to read it, not the change itself. It listens from the
    start, so that a change after the first reading is never lost. One thread iterates, any may `close`; the
    block ends after the iteration."""

    def __init__(self, wanted: frozenset[Changed] = EVERYTHING) -> None:
        self._wake = os.eventfd(0)
        self._events = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._events.setblocking(False)
        try:
            # Above the limit of net.core.rmem_max, which needs CAP_NET_ADMIN.
            self._events.setsockopt(socket.SOL_SOCKET, _FORCE_BUFFER, _EVENT_BUFFER)
        except PermissionError:
            self._events.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _EVENT_BUFFER)
        self._events.bind((0, reduce(or_, (_GROUPS[each] for each in wanted))))
        self._lock = threading.Lock()
        self._shaped: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._events.close()
        os.close(self._wake)

    def __iter__(self) -> Iterator[frozenset[Changed]]:
        """Waits, and yields what changed since the last time; ends after `close`."""
        with select.epoll() as waiting:
            waiting.register(self._wake, select.EPOLLIN)
            waiting.register(self._events, select.EPOLLIN)
            while self._wake not in dict(waiting.poll()):
                changed = self._changed()
                if changed:
                    yield changed

    def close(self) -> None:
        """End the iteration."""
        os.eventfd_write(self._wake, 1)

    def shaped(self) -> set[int]:
        """Return the indexes of the devices whose qdiscs or filters changed since the last call. The kernel
        may have dropped some events. Any thread may call."""
        with self._lock:
            shaped, self._shaped = self._shaped, set()
        return shaped

    def _changed(self) -> frozenset[Changed]:
        changed = _NOTHING
        try:
            for _ in range(_AT_ONCE):
                data, (sender, _) = self._events.recvfrom(DATAGRAM)
                if sender != 0:
                    # Another process may send to the socket.
                    continue
                found, shaped = events(data)
                changed |= found
                with self._lock:
                    self._shaped |= shaped
        except BlockingIOError:
            return changed
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise KernelError("watch the links", error.strerror, error.errno) from error
            self._empty()
            return EVERYTHING
        return changed

    def _empty(self) -> None:
        """Empty the queue after the kernel dropped events. It goes on to drop them, without another error,
        until the queue is empty: only what is read after that is complete."""
        while True:
            try:
                self._events.recv(1)
            except BlockingIOError:
                return
            except OSError as error:
                # Another flood, right after the queue was empty.
                if error.errno != errno.ENOBUFS:
                    raise KernelError("watch the links", error.strerror, error.errno) from error


def events(data: bytes) -> tuple[frozenset[Changed], set[int]]:
    """Return the parts that the events of a datagram are about, and the indexes of the devices whose qdiscs
    or filters changed. If one of the events cannot be read, everything may have changed."""
    (found,) = _DATAGRAMS.read([data], _events, instead=lambda _: (EVERYTHING, set()))
    return found


def _events(data: bytes) -> tuple[frozenset[Changed], set[int]]:
    changed, shaped = _NOTHING, set()
    for type, _, sequence, body in nl.messages(data):
        if sequence != nl.QUESTION:
            is_of_an_ifb = type >> 2 == _LINK and is_ifb(body)
            found = _OF_AN_IFB if is_of_an_ifb else _CHANGED.get(type >> 2, _NOTHING)
            changed |= found
            if Changed.QDISCS in found:
                shaped.add(nl.unpacked(rt.TCMSG, body)[1])
    return changed, shaped
