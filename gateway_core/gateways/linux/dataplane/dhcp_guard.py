"""Which DHCP requests reach dnsmasq: the table `inet gateway_dhcp` of nftables.

dnsmasq has one lease for a MAC address, whatever the VLAN: a request with the same address on another VLAN
moves the lease, and a DHCPRELEASE there ends it. So the kernel drops messages with the MAC address of a
session on any VLAN but the session's own. It also drops those of more MAC addresses where a VLAN has as many
leases as it may have, and a flood of messages with new ones.

The MAC address is that in the message (RFC 2131 section 2, chaddr), by which dnsmasq knows clients with
`dhcp-ignore-clid`. The table stays when the core ends.
"""

import errno
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from gateway_contract.configuration import Demux
from gateway_contract.core.health import TriggerRefusal
from gateway_core.gateways.linux.dataplane.nftables import Nft
from gateway_core.gateways.linux.dataplane.own_table import OwnTable
from gateway_core.gateways.linux.kernel.messages import KernelError
from gateway_core.sessions.session import Session

TABLE = "inet gateway_dhcp"
#: The access interface of a session, and its MAC address in colon notation; None for other hardware.
Binding = tuple[str, str | None]
#: The name of a set, and the parts of one element of it: names of interfaces, and numbers in hexadecimal.
Element = tuple[str, ...]

#: Seconds from a change to what the kernel has.
_PAUSE = 0.25
#: Seconds until packets that are dropped are logged again.
_QUIET = 300.0
#: Seconds between two comparisons of the elements. For 20,000 leases, one takes a quarter of a second.
_ROUND = 60.0
#: Elements in one run of nft, which gets them as an argument of at most 128 KiB.
_AT_ONCE = 1000
#: The client's hardware address: 8 bytes of UDP and 28 of BOOTP are in front of it.
_CHADDR = "@th,288,48"
#: The sets that have elements of sessions, and how nft takes one.
_ELEMENTS = {"homes": '"{}" . {}', "macs": "{}", "full": '"{}"'}
_COUNTERS = {
    "elsewhere": TriggerRefusal.MAC_ELSEWHERE,
    "full": TriggerRefusal.LEASES_FULL,
    "flood": TriggerRefusal.LEASES_RATE_LIMITED,
}
_NOTES = {
    TriggerRefusal.MAC_ELSEWHERE: "a MAC address with a session on one VLAN sends DHCP requests on another",
    TriggerRefusal.LEASES_FULL: "a VLAN has max_leases_per_vlan, and others on it send DHCP requests",
    TriggerRefusal.LEASES_RATE_LIMITED: "a VLAN sends too many DHCP requests of new MAC addresses",
}
_log = logging.getLogger(__name__)


def bindings(sessions: Iterable[Session], source: str) -> list[Binding]:
    """Return the bindings of the sessions of a source: one for each."""
    return [
        (session.access_interface, session.summary.mac_address)
        for session in sessions
        if session.summary.source == source
    ]


def _table(most: int) -> str:
    """Return the table without elements. A new client sends two requests, and after a power cut, all of a
    VLAN may come at once."""
    return f"""\
add table {TABLE}
add set {TABLE} homes {{ typeof iifname . {_CHADDR}; }}
add set {TABLE} macs {{ typeof {_CHADDR}; }}
add set {TABLE} full {{ type ifname; }}
add set {TABLE} new {{ type ifname; flags dynamic,timeout; timeout 1m; size 65535; }}
add counter {TABLE} elsewhere
add counter {TABLE} full
add counter {TABLE} flood
add chain {TABLE} requests
add rule {TABLE} requests iifname . {_CHADDR} @homes accept
add rule {TABLE} requests {_CHADDR} @macs counter name elsewhere drop
add rule {TABLE} requests iifname @full counter name full drop
add rule {TABLE} requests update @new {{ iifname {_rate_limit(most)} }} counter name flood drop
add chain {TABLE} input {{ type filter hook input priority filter - 5; policy accept; }}
add rule {TABLE} input iif != lo meta nfproto ipv4 udp dport 67 jump requests
"""


def _rate_limit(most: int) -> str:
    return f"limit rate over {max(4, most // 4)}/second burst {2 * most} packets"


class DhcpGuard(OwnTable):
    """Keeps the table in the kernel. `bindings` returns those of all sessions; None where dnsmasq is no
    source: then there is no table. `clock` gives steady seconds."""

    def __init__(
        self,
        demux: Demux,
        bindings: Callable[[], Iterable[Binding]] | None,
        clock: Callable[[], float],
        wall: Callable[[], float],
        nft: Nft | None = None,
    ) -> None:
        super().__init__(TABLE, wall, nft)
        self._demux = demux
        self._bindings = bindings
        self._clock = clock
        self._requested = threading.Event()
        #: Of the loaded table: its elements, and the limit in its rules.
        self._elements: set[Element] = set()
        self._most = 0
        self._compare_at = 0.0
        self._is_removed = False
        self._refusals: Counter[TriggerRefusal] = Counter()
        self._logged: dict[TriggerRefusal, float] = {}

    def configure(self, demux: Demux) -> None:
        """Apply other limits, within a moment."""
        self._demux = demux
        self.request()

    def request(self) -> None:
        """Call it when sessions begin or end."""
        self._requested.set()

    def refusals(self) -> Counter[TriggerRefusal]:
        """Return the requests that were dropped since the start, by the reason and the last look."""
        with self._lock:
            return self._refusals.copy()

    def run(self) -> NoReturn:
        """Follow the sessions. What the kernel refuses is tried again at the next look."""
        while True:
            self.sync()
            self._requested.wait()
            # For others that begin at the same time.
            time.sleep(_PAUSE)

    def sync(self) -> None:
        """Make the kernel have the elements of the sessions, once."""
        self._requested.clear()
        with self._lock:
            self._attempt(self._follow)

    def _follow(self) -> None:
        if self._bindings is None:
            if not self._is_removed:
                self._run(self._removal)
                self._is_removed = True
        elif self._loaded is None or self._most != self._demux.max_leases_per_vlan:
            self._renew()
        else:
            try:
                self._change(self._wanted())
            except KernelError as error:
                if error.code != errno.ENOENT:
                    raise
                # Another program has removed the table since the last look.
                self._renew()
                self._count_repair()

    def _check(self) -> None:
        if self._bindings is None:
            self._follow()
        else:
            super()._check()

    def _is_intact(self) -> bool:
        return super()._is_intact() and self._has_elements()

    def _has_elements(self) -> bool:
        """Another program may have changed elements alone."""
        if self._clock() < self._compare_at:
            return True
        self._compare_at = self._clock() + _ROUND
        return self._elements == _elements(self._nft.table(TABLE) or ())

    def _renew(self) -> None:
        self._most = self._demux.max_leases_per_vlan
        self._load(self._removal + _table(self._most))
        self._elements = set()
        self._change(self._wanted())

    def _wanted(self) -> set[Element]:
        found: set[Element] = set()
        numbers: Counter[str] = Counter()
        bindings = list(self._bindings() if self._bindings is not None else ())
        # Their leases count for the limit of the VLAN too.
        numbers.update(interface for interface, mac in bindings if mac is None)
        for interface, mac in set(bindings):
            if mac is None:
                continue
            address = hex(int(mac.replace(":", ""), 16))
            found.add(("homes", interface, address))
            numbers[interface] += 1
            if not self._demux.mac_moves:
                found.add(("macs", address))
        most = self._demux.max_leases_per_vlan
        found.update(("full", interface) for interface, number in numbers.items() if number >= most)
        return found

    def _change(self, wanted: set[Element]) -> None:
        before, loaded = self._elements, self._loaded
        # Until all are there.
        self._loaded = None
        # Homes first: a client must not be refused on its own VLAN.
        commands = [
            *(_command("add", each) for each in sorted(wanted - before)),
            *(_command("delete", each) for each in sorted(before - wanted, reverse=True)),
        ]
        for part in _parts(commands):
            self._run("\n".join(part))
        self._elements, self._loaded = wanted, loaded

    def _count(self, packets: Mapping[str, int]) -> None:
        # Not those of an earlier life of the core.
        if self._loaded is not None:
            for name, reason in _COUNTERS.items():
                if number := packets.get(name, 0):
                    self._refusals[reason] += number
                    self._log(reason)

    def _log(self, reason: TriggerRefusal) -> None:
        now = self._clock()
        if reason not in self._logged or now - self._logged[reason] >= _QUIET:
            self._logged[reason] = now
            _log.warning("%s: they are dropped", _NOTES[reason])


def _command(verb: str, element: Element) -> str:
    name, *parts = element
    return f"{verb} element {TABLE} {name} {{ {_ELEMENTS[name].format(*parts)} }}"


def _elements(objects: Iterable[Mapping[str, Any]]) -> set[Element]:
    """Return the elements of sessions in a listing of the table."""
    return {
        (each["set"]["name"], *map(_part, _held_parts(held)))
        for each in objects
        if "set" in each and each["set"]["name"] in _ELEMENTS
        for held in each["set"].get("elem", ())
    }


def _held_parts(held: object) -> Sequence[object]:
    parts = held.get("concat") if isinstance(held, dict) else None
    return parts if isinstance(parts, list) else [held]


def _part(value: object) -> str:
    """One part of an element; of one that is not the core's, any text that none of these has."""
    return hex(value) if isinstance(value, int) else str(value)


def _parts(commands: Sequence[str]) -> Iterator[Sequence[str]]:
    return (commands[first : first + _AT_ONCE] for first in range(0, len(commands), _AT_ONCE))
