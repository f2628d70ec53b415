"""Which DHCP requests reach dnsmasq: the table `inet gateway_dhcp` of nftables.

dnsmasq has one lease for a MAC address, whatever the VLAN: a request with the same address on another VLAN
moves the lease, and a DHCPRELEASE there ends it. So the kernel drops messages with the MAC address of a
session on any VLAN but the session's own. It also drops those of more MAC addresses where a VLAN has as many
leases as it may have, and a flood of messages with new ones.

The MAC address is that in the message (RFC 2131 section 2, chaddr), by which dnsmasq knows clients with
`dhcp-ignore-clid`. The table stays when the core ends.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn

from gateway_api.core.gateways.linux.dataplane.nftables import Nft
from gateway_api.core.gateways.linux.kernel.messages import KernelError
from gateway_api.wire.configuration import Demux
from gateway_api.wire.core.health import TriggerRefusal

TABLE = "inet gateway_dhcp"
#: An access interface, and the MAC address of a session on it in colon notation.
Binding = tuple[str, str]

#: Seconds between two looks at the kernel, which take nft 70 ms with 10,000 sessions, and from a change to
#: what the kernel has.
_INTERVAL, _PAUSE = 5.0, 0.25
#: Seconds until packets that are dropped are logged again.
_QUIET = 300.0
#: Elements in one run of nft, which gets them as an argument of at most 128 KiB.
_AT_ONCE = 1000
#: The client's hardware address: 8 bytes of UDP and 28 of BOOTP are in front of it.
_CHADDR = "@th,288,48"
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

_STEP = f"load the table {TABLE}"


def _table(most: int) -> str:
    """The table without elements. A new client sends two requests, and after a power cut, all of a VLAN may
    come at once."""
    return f"""
add table {TABLE}
delete table {TABLE}
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


class DhcpGuard:
    """Keeps the table in the kernel. `bindings` returns those of all sessions; None where dnsmasq is no
    source: then there is no table. `clock` gives steady seconds. Any thread may call."""

    def __init__(
        self,
        demux: Demux,
        bindings: Callable[[], Iterable[Binding]] | None,
        clock: Callable[[], float],
        nft: Nft | None = None,
    ) -> None:
        self._demux = demux
        self._bindings = bindings
        self._clock = clock
        self._nft = nft or Nft()
        self._requested = threading.Event()
        self._lock = threading.Lock()
        #: The elements that the kernel has. None while it is not known.
        self._loaded: set[str] | None = None
        self._most = 0
        self._seen: dict[str, int] = {}
        self._refusals: Counter[TriggerRefusal] = Counter()
        self._logged: dict[TriggerRefusal, float] = {}
        self._failure: str | None = None

    def configure(self, demux: Demux) -> None:
        """Applies other limits, within a moment."""
        self._demux = demux
        self.request()

    def request(self) -> None:
        """Call it when sessions begin or end."""
        self._requested.set()

    def refusals(self) -> Counter[TriggerRefusal]:
        """The requests that were dropped since the start, by the reason and the last look."""
        with self._lock:
            return self._refusals.copy()

    def run(self) -> NoReturn:
        """Follows the sessions. What the kernel refuses is logged and tried again: without the table, dnsmasq
        moves leases."""
        look_at = self._clock()
        while True:
            now = self._clock()
            is_look = now >= look_at
            if is_look:
                look_at = now + _INTERVAL
            self.sync(is_look=is_look)
            if self._requested.wait(max(0.0, look_at - self._clock())):
                # For others that begin at the same time.
                time.sleep(_PAUSE)

    def sync(self, *, is_look: bool = True) -> None:
        """Makes the kernel have what it must have, once. A look reads what it has, and what it dropped."""
        self._requested.clear()
        with self._lock:
            try:
                if self._bindings is None:
                    if self._loaded is None:
                        self._nft.load(_STEP, f"add table {TABLE}\ndelete table {TABLE}")
                        self._loaded = set()
                else:
                    if is_look:
                        self._count()
                    self._load(self._wanted(self._bindings()))
                self._failure = None
            except KernelError as error:
                self._loaded = None
                if self._failure != str(error):
                    self._failure = str(error)
                    _log.error("MAC addresses of DHCP are not kept to their VLANs: %s", error)

    def _wanted(self, bindings: Iterable[Binding]) -> set[str]:
        """The elements as commands of nft, without their verb."""
        found: set[str] = set()
        numbers: Counter[str] = Counter()
        for interface, mac in set(bindings):
            number = f"0x{mac.replace(':', '')}"
            found.add(f'homes {{ "{interface}" . {number} }}')
            numbers[interface] += 1
            if not self._demux.mac_moves:
                found.add(f"macs {{ {number} }}")
        most = self._demux.max_leases_per_vlan
        found.update(f'full {{ "{interface}" }}' for interface, number in numbers.items() if number >= most)
        return found

    def _load(self, wanted: set[str]) -> None:
        before, most = self._loaded, self._demux.max_leases_per_vlan
        self._loaded = None
        if before is None or most != self._most:
            self._nft.load(_STEP, _table(most))
            self._seen, self._most, before = {}, most, set()
        # Homes first: a client must not be refused on its own VLAN.
        commands = [
            *(f"add element {TABLE} {each}" for each in sorted(wanted - before)),
            *(f"delete element {TABLE} {each}" for each in sorted(before - wanted, reverse=True)),
        ]
        for part in _parts(commands):
            self._nft.load(_STEP, "\n".join(part))
        self._loaded = wanted

    def _count(self) -> None:
        found = self._nft.counters(TABLE)
        if found is None:
            # Of another program's `flush ruleset`, or at the start.
            self._loaded = None
            return
        if self._loaded is None:
            # Of an earlier life of the core.
            self._seen = found
        for name, reason in _COUNTERS.items():
            now, before = found.get(name, 0), self._seen.get(name, 0)
            self._refusals[reason] += now - before if now >= before else now
            if now > before:
                self._note(reason)
        self._seen = found

    def _note(self, reason: TriggerRefusal) -> None:
        now = self._clock()
        if reason not in self._logged or now - self._logged[reason] >= _QUIET:
            self._logged[reason] = now
            _log.warning("%s: they are dropped", _NOTES[reason])


def _parts(commands: Sequence[str]) -> Iterator[Sequence[str]]:
    return (commands[first : first + _AT_ONCE] for first in range(0, len(commands), _AT_ONCE))
