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


class Changed(Enum):
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


EVERYTHING = frozenset(Changed)

_MULTICAST_GROUPS = {
    Changed.LINKS: rt.RTMGRP_LINK,
    Changed.IFBS: rt.RTMGRP_LINK,
    Changed.QDISCS: rt.RTMGRP_TC,
    Changed.ADDRESSES: rt.RTMGRP_IPV4_IFADDR | rt.RTMGRP_IPV6_IFADDR,
    Changed.ROUTES: rt.RTMGRP_IPV4_ROUTE | rt.RTMGRP_IPV6_ROUTE,
    Changed.RULES: rt.RTMGRP_IPV4_RULE,
}
_LINK_TYPE = rt.RTM_NEWLINK >> 2
#: Changed parts by the type of a message, divided by four: each kind of object has four types. The IPv4
#: routes of a link disappear when the link goes down, and the kernel sends no message for these routes.
_CHANGED_BY_TYPE = {
    _LINK_TYPE: frozenset({Changed.LINKS, Changed.ROUTES}),
    rt.RTM_NEWADDR >> 2: frozenset({Changed.ADDRESSES}),
    rt.RTM_NEWROUTE >> 2: frozenset({Changed.ROUTES}),
    rt.RTM_NEWRULE >> 2: frozenset({Changed.RULES}),
    rt.RTM_NEWQDISC >> 2: frozenset({Changed.QDISCS}),
    rt.RTM_NEWTFILTER >> 2: frozenset({Changed.QDISCS}),
}
#: An event of an IFB concerns no session, VLAN or route.
_IFB_CHANGED = frozenset({Changed.IFBS})
_NOTHING: frozenset[Changed] = frozenset()
#: linux/netlink.h and linux/netfilter/nfnetlink.h: the protocol, and the bit of NFNLGRP_NFTABLES.
_NETLINK_NETFILTER, _NFTABLES_GROUP = 12, 1 << 6
#: linux/netfilter/nf_tables.h, messages of NFNL_SUBSYS_NFTABLES that change no rule: new and deleted
#: elements, and the end of a transaction.
_NO_RULE_TYPES = frozenset(10 << 8 | type for type in (12, 14, 15))
_EVENT_BUFFER_BYTES = 1 << 22
#: Maximum number of datagrams in one reading, so that a flood of events does not delay the reaction to them.
_MAX_DATAGRAMS = 1000
_SO_RCVBUFFORCE = 33

_EVENT_READER = EntryReader(
    "kernel", "event", "the events of the kernel", "the core reads the whole state of the kernel again"
)
_log = logging.getLogger(__name__)


class _EventSocket:
    """Netlink socket that receives the kernel's events from its creation on. A context manager, which must
    outlive the reading thread. Only one thread may wait and read; any thread may call `close`. Raises
    OSError."""

    def __init__(self, protocol: int, groups: int) -> None:
        self._wake = os.eventfd(0)
        self._waiting = select.poll()
        self._waiting.register(self._wake, select.POLLIN)
        self._events = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        self._events.setblocking(False)
        try:
            # Above the limit of net.core.rmem_max, which needs CAP_NET_ADMIN.
            self._events.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _EVENT_BUFFER_BYTES)
        except PermissionError:
            self._events.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _EVENT_BUFFER_BYTES)
        self._events.bind((0, groups))
        self._waiting.register(self._events, select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._events.close()
        os.close(self._wake)

    def close(self) -> None:
        """Make the reading thread stop."""
        os.eventfd_write(self._wake, 1)

    def _wait(self, seconds: float | None = None) -> bool:
        """Wait for an event, at most `seconds`. Return False after `close`."""
        found = self._waiting.poll(None if seconds is None else seconds * 1000)
        return self._wake not in dict(found)

    def _read_datagrams(self) -> list[bytes] | None:
        """Return the queued datagrams, at most _MAX_DATAGRAMS. If the kernel dropped datagrams, empty the
        queue and return None. Raises KernelError."""
        datagrams: list[bytes] = []
        try:
            while len(datagrams) < _MAX_DATAGRAMS:
                data, (sender, _) = self._events.recvfrom(MAX_DATAGRAM_BYTES)
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
        events without another error, so only events received after that are complete. Raises KernelError for
        any other `error`."""
        while error.errno == errno.ENOBUFS:
            try:
                while True:
                    self._events.recv(1)
            except BlockingIOError:
                return
            except OSError as another:
                # Another flood, right after the queue was empty.
                error = another
        raise KernelError("read the events of the kernel", error.strerror, error.errno) from error


class Watcher(_EventSocket):
    """Watcher for changes of the `wanted` parts of the kernel's state. An event says which part has changed,
    not the change itself. No change after the creation of the watcher is lost."""

    def __init__(self, wanted: frozenset[Changed] = EVERYTHING) -> None:
        super().__init__(socket.NETLINK_ROUTE, reduce(or_, (_MULTICAST_GROUPS[each] for each in wanted)))
        self._lock = threading.Lock()
        self._shaped: set[int] = set()

    def __iter__(self) -> Iterator[frozenset[Changed]]:
        """Yield the parts that changed since the previous item, until `close`."""
        while self._wait():
            changed = self._read()
            if changed:
                yield changed

    def take_shaped(self) -> set[int]:
        """Return the indexes of the devices whose qdiscs or filters changed since the last call. Devices
        whose events the kernel dropped are missing. Thread-safe."""
        with self._lock:
            shaped, self._shaped = self._shaped, set()
        return shaped

    def _read(self) -> frozenset[Changed]:
        datagrams = self._read_datagrams()
        if datagrams is None:
            return EVERYTHING
        changed = _NOTHING
        for data in datagrams:
            found, shaped = parse_events(data)
            changed |= found
            with self._lock:
                self._shaped |= shaped
        return changed


def parse_events(data: bytes) -> tuple[frozenset[Changed], set[int]]:
    """Return the parts that the events of a datagram report as changed, and the indexes of the devices whose
    qdiscs or filters changed. If an event cannot be read, return EVERYTHING."""
    (found,) = _EVENT_READER.read([data], _parse_events, instead=lambda _: (EVERYTHING, set()))
    return found


def _parse_events(data: bytes) -> tuple[frozenset[Changed], set[int]]:
    changed, shaped = _NOTHING, set()
    for type, _, sequence, body in nl.split_messages(data):
        if sequence != nl.QUERY_SEQUENCE:
            is_about_ifb = type >> 2 == _LINK_TYPE and is_ifb(body)
            found = _IFB_CHANGED if is_about_ifb else _CHANGED_BY_TYPE.get(type >> 2, _NOTHING)
            changed |= found
            if Changed.QDISCS in found:
                shaped.add(nl.unpack(rt.TCMSG, body)[1])
    return changed, shaped


class RulesetEvents(_EventSocket):
    """Watcher for changes of nftables rules by any program. Changes of set elements are ignored."""

    def __init__(self) -> None:
        try:
            super().__init__(_NETLINK_NETFILTER, _NFTABLES_GROUP)
        except OSError as error:
            _log.warning("cannot receive events of nftables, nftables rules are polled: %s", error.strerror)
            super().__init__(socket.NETLINK_ROUTE, 0)

    def follow(self, seconds: float, pause: float) -> Iterator[None]:
        """Yield at once, then `pause` seconds after each event, and after `seconds` without an event. End
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
