"""Events of the kernel: changes of links, addresses, routes, policy rules and qdiscs, and of nftables
rules."""

import errno
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from enum import Enum, auto
from functools import reduce
from operator import or_
from typing import Self

from gateway_core.gateways.linux.entries import EntryReader
from gateway_core.gateways.linux.kernel import netlink as nl
from gateway_core.gateways.linux.kernel import rtnetlink as rt
from gateway_core.gateways.linux.kernel.links import is_ifb
from gateway_core.gateways.linux.kernel.netlink import MAX_DATAGRAM_BYTES, KernelError, MalformedMessage


class ChangedPart(Enum):
    """Part of the kernel's network state that has changed and must be read again."""

    #: Links except IFBs.
    LINKS = auto()
    IFBS = auto()
    ADDRESSES = auto()
    ROUTES = auto()
    #: Qdiscs and filters.
    QDISCS = auto()
    #: IPv4 policy rules.
    RULES = auto()


ALL_PARTS = frozenset(ChangedPart)

_MULTICAST_GROUPS_OF_PART = {
    ChangedPart.LINKS: rt.RTMGRP_LINK,
    ChangedPart.IFBS: rt.RTMGRP_LINK,
    ChangedPart.QDISCS: rt.RTMGRP_TC,
    ChangedPart.ADDRESSES: rt.RTMGRP_IPV4_IFADDR | rt.RTMGRP_IPV6_IFADDR,
    ChangedPart.ROUTES: rt.RTMGRP_IPV4_ROUTE | rt.RTMGRP_IPV6_ROUTE,
    ChangedPart.RULES: rt.RTMGRP_IPV4_RULE,
}
_LINK_TYPE = rt.RTM_NEWLINK >> 2
#: Changed parts by the type of a message, divided by four: each kind of object has four types. The IPv4
#: routes of a link disappear when the link goes down, and the kernel sends no message for these routes.
_PARTS_OF_TYPE = {
    _LINK_TYPE: frozenset({ChangedPart.LINKS, ChangedPart.ROUTES}),
    rt.RTM_NEWADDR >> 2: frozenset({ChangedPart.ADDRESSES}),
    rt.RTM_NEWROUTE >> 2: frozenset({ChangedPart.ROUTES}),
    rt.RTM_NEWRULE >> 2: frozenset({ChangedPart.RULES}),
    rt.RTM_NEWQDISC >> 2: frozenset({ChangedPart.QDISCS}),
    rt.RTM_NEWTFILTER >> 2: frozenset({ChangedPart.QDISCS}),
}
#: An event of an IFB concerns no session, VLAN or route.
_IFB_PARTS = frozenset({ChangedPart.IFBS})
_NO_PARTS: frozenset[ChangedPart] = frozenset()
#: linux/netlink.h and linux/netfilter/nfnetlink.h: the protocol, and the bit of NFNLGRP_NFTABLES.
_NETLINK_NETFILTER, _NFTABLES_GROUP = 12, 1 << 6
#: linux/netfilter/nf_tables.h, messages of NFNL_SUBSYS_NFTABLES that change no rule: new and deleted
#: elements, and the end of a transaction.
_NO_RULE_TYPES = frozenset(10 << 8 | type for type in (12, 14, 15))
_EVENT_BUFFER_BYTES = 1 << 22
#: Maximum number of datagrams in one reading, so that a flood of events does not delay the reaction to them.
_MAX_DATAGRAMS_PER_READ = 1000
_SO_RCVBUFFORCE = 33

_EVENT_READER = EntryReader(
    "kernel", "event", "the events of the kernel", "the core reads the whole state of the kernel again"
)
_log = logging.getLogger(__name__)


class _EventSocket:
    """Netlink socket that receives the kernel's events from the creation of the socket on. The socket is a
    context manager, which must outlive the reading thread. Only one thread may wait and read; any thread may
    call `close`. Raises OSError if the socket cannot be opened."""

    def __init__(self, protocol: int, groups: int) -> None:
        self._wake_fd = os.eventfd(0)
        self._poll = select.poll()
        self._poll.register(self._wake_fd, select.POLLIN)
        self._event_socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        self._event_socket.setblocking(False)
        try:
            # Above the limit of net.core.rmem_max, which needs CAP_NET_ADMIN.
            self._event_socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _EVENT_BUFFER_BYTES)
        except PermissionError:
            self._event_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _EVENT_BUFFER_BYTES)
        self._event_socket.bind((0, groups))
        self._poll.register(self._event_socket, select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._event_socket.close()
        os.close(self._wake_fd)

    def close(self) -> None:
        """Stop the thread that reads the events."""
        os.eventfd_write(self._wake_fd, 1)

    def _wait(self, seconds: float | None = None) -> bool:
        """Wait for an event, at most `seconds`. Return False after `close`."""
        ready_descriptors = self._poll.poll(None if seconds is None else seconds * 1000)
        return self._wake_fd not in dict(ready_descriptors)

    def _read_datagrams(self) -> list[bytes] | None:
        """Return the queued datagrams, at most _MAX_DATAGRAMS_PER_READ. If the kernel dropped datagrams,
        empty the queue and return None. Raises KernelError if the read fails for another reason."""
        datagrams: list[bytes] = []
        try:
            while len(datagrams) < _MAX_DATAGRAMS_PER_READ:
                data, (sender, _) = self._event_socket.recvfrom(MAX_DATAGRAM_BYTES)
                # Another process may send to the socket.
                if sender == 0:
                    datagrams.append(data)
        except BlockingIOError:
            return datagrams
        except OSError as error:
            self._discard(error)
            return None
        return datagrams

    def _discard(self, error: OSError) -> None:
        """Empty the queue after the kernel dropped events. Until the queue is empty, the kernel may drop more
        events without another error; afterwards, no event is missing. Raises KernelError if `error` does not
        mean dropped events."""
        while error.errno == errno.ENOBUFS:
            try:
                while True:
                    self._event_socket.recv(1)
            except BlockingIOError:
                return
            except OSError as next_error:
                # Another flood, right after the queue was empty.
                error = next_error
        raise KernelError("read the events of the kernel", error.strerror, error.errno) from error


class Watcher(_EventSocket):
    """Watcher for changes of the parts `wanted_parts` of the kernel's network state. An event says which part
    has changed, not the change itself. No change after the creation of the watcher is lost."""

    def __init__(self, wanted_parts: frozenset[ChangedPart] = ALL_PARTS) -> None:
        super().__init__(
            socket.NETLINK_ROUTE, reduce(or_, (_MULTICAST_GROUPS_OF_PART[each] for each in wanted_parts))
        )
        self._lock = threading.Lock()
        self._shaped_indexes: set[int] = set()

    def __iter__(self) -> Iterator[frozenset[ChangedPart]]:
        """Wait for changes, and yield the parts that have changed since the previous yield, until `close`."""
        while self._wait():
            changed_parts = self._read()
            if changed_parts:
                yield changed_parts

    def take_shaped_indexes(self) -> set[int]:
        """Return the indexes of the devices whose qdiscs or filters changed since the previous call of this
        method. Devices whose events the kernel dropped are missing. Thread-safe."""
        with self._lock:
            shaped, self._shaped_indexes = self._shaped_indexes, set()
        return shaped

    def _read(self) -> frozenset[ChangedPart]:
        datagrams = self._read_datagrams()
        if datagrams is None:
            return ALL_PARTS
        changed_parts = _NO_PARTS
        for data in datagrams:
            parts, indexes = parse_events(data)
            changed_parts |= parts
            with self._lock:
                self._shaped_indexes |= indexes
        return changed_parts


def parse_events(data: bytes) -> tuple[frozenset[ChangedPart], set[int]]:
    """Return the parts that the events of a datagram report as changed, and the indexes of the devices whose
    qdiscs or filters changed. If an event cannot be read, return ALL_PARTS."""
    (result,) = _EVENT_READER.read([data], _parse_events, instead=lambda _: (ALL_PARTS, set()))
    return result


def _parse_events(data: bytes) -> tuple[frozenset[ChangedPart], set[int]]:
    changed_parts, shaped_indexes = _NO_PARTS, set()
    for type, _, sequence, body in nl.split_messages(data):
        if sequence != nl.QUERY_SEQUENCE:
            is_about_ifb = type >> 2 == _LINK_TYPE and is_ifb(body)
            parts = _IFB_PARTS if is_about_ifb else _PARTS_OF_TYPE.get(type >> 2, _NO_PARTS)
            changed_parts |= parts
            if ChangedPart.QDISCS in parts:
                shaped_indexes.add(nl.unpack(rt.TCMSG, body)[1])
    return changed_parts, shaped_indexes


class RulesetEvents(_EventSocket):
    """Watcher for changes of nftables rules by any program. Changes of set elements are ignored."""

    def __init__(self) -> None:
        try:
            super().__init__(_NETLINK_NETFILTER, _NFTABLES_GROUP)
        except OSError as error:
            _log.warning("cannot receive events of nftables, nftables rules are polled: %s", error.strerror)
            super().__init__(socket.NETLINK_ROUTE, 0)

    def follow(self, seconds: float, pause: float) -> Iterator[None]:
        """Yield at once, then `pause` seconds after each event, and after `seconds` without an event. Return
        after `close`."""
        deadline = time.monotonic()
        while self._wait(max(0.0, deadline - time.monotonic())):
            if time.monotonic() < deadline:
                time.sleep(pause)
                if not self._has_changes():
                    continue
            yield
            deadline = time.monotonic() + seconds

    def _has_changes(self) -> bool:
        """Read all queued events. Return True if an event reports a change of rules, or if an event was
        dropped or cannot be read."""
        datagrams = self._read_datagrams()
        try:
            types = {type for data in datagrams or () for type, *_ in nl.split_messages(data)}
        except MalformedMessage:
            return True
        return datagrams is None or not types <= _NO_RULE_TYPES
