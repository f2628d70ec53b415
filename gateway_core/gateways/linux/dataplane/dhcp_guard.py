"""Filter of DHCP requests on their way to dnsmasq: the table `inet gateway_dhcp` of nftables.

The kernel drops a request whose MAC address has a session on another VLAN. The kernel also drops requests of
new MAC addresses on a VLAN that already has the allowed number of leases, and requests above the allowed rate
of new MAC addresses.
"""

import errno
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from gateway_contract.configuration import Demux
from gateway_contract.core.health import TriggerRefusal
from gateway_core.gateways.linux.dataplane.nftables import Nft, OwnTable
from gateway_core.gateways.linux.kernel.netlink import KernelError
from gateway_core.sessions.session import Session

TABLE = "inet gateway_dhcp"
#: The access interface of a session, and its MAC address in colon notation; None for other hardware.
Binding = tuple[str, str | None]
#: The name of a set, and an element of the set as nft reads it.
Element = tuple[str, str]

#: Sets whose elements belong to sessions. `homes` is first: a client must not be refused on its own VLAN.
_SESSION_SETS = ("homes", "macs", "full")
#: Seconds from a change to its load.
_DEBOUNCE_SECONDS = 0.25
#: Seconds until dropped packets are logged again.
_LOG_INTERVAL_SECONDS = 300.0
#: Seconds between two comparisons of the elements. For 20,000 leases, one takes a quarter of a second.
_COMPARISON_INTERVAL_SECONDS = 60.0
#: Elements in one run of nft. All arguments of a program together have a limit (execve(2)).
_MAX_ELEMENTS_PER_RUN = 1000
#: By the name of the counter: the reason of the refusal, and the text for the log.
_REFUSAL_TEXTS = {
    "elsewhere": (
        TriggerRefusal.MAC_ELSEWHERE,
        "a MAC address with a session on one VLAN sends DHCP requests on another",
    ),
    "full": (
        TriggerRefusal.LEASES_FULL,
        "a VLAN has max_leases_per_vlan leases, and further devices on it send requests",
    ),
    "flood": (
        TriggerRefusal.LEASES_RATE_LIMITED,
        "a VLAN sends too many requests of new MAC addresses",
    ),
}
_log = logging.getLogger(__name__)


def list_bindings(sessions: Iterable[Session], source: str) -> list[Binding]:
    """Return the access interface and MAC address of each session of the source with the name `source`."""
    return [
        (session.access_interface, session.summary.mac_address)
        for session in sessions
        if session.summary.source == source
    ]


class DhcpGuard(OwnTable):
    """Manager of the nftables table `inet gateway_dhcp`. The function `list_bindings` returns the access
    interface and MAC address of each session. `list_bindings` is None if dnsmasq is not a source of sessions:
    then the table is removed. `clock` returns monotonic seconds, and `wall` returns epoch seconds."""

    def __init__(
        self,
        demux: Demux,
        list_bindings: Callable[[], Iterable[Binding]] | None,
        clock: Callable[[], float],
        wall: Callable[[], float],
        nft: Nft | None = None,
    ) -> None:
        super().__init__(TABLE, wall, nft)
        self._demux = demux
        self._list_bindings = list_bindings
        self._clock = clock
        self._requested = threading.Event()
        #: Elements and limit of the loaded table.
        self._elements: set[Element] = set()
        self._max_leases = 0
        self._compare_at = 0.0
        self._refusals: Counter[TriggerRefusal] = Counter()
        self._logged: dict[TriggerRefusal, float] = {}

    def configure(self, demux: Demux) -> None:
        """Set new limits. The thread of `run` loads the limits into the kernel within _DEBOUNCE_SECONDS."""
        self._demux = demux
        self.request_sync()

    def request_sync(self) -> None:
        """Make `run` load the set elements again, after sessions have started or ended."""
        self._requested.set()

    def count_refusals(self) -> Counter[TriggerRefusal]:
        """Return the number of dropped requests by reason, from the start of the core to the last check of
        the table."""
        with self._lock:
            return self._refusals.copy()

    def run(self) -> NoReturn:
        """Load the set elements at the start and after each `request_sync`. If the kernel refuses the
        elements, the next `check` loads the elements again."""
        while True:
            self.sync()
            self._requested.wait()
            # For sessions that begin at the same time.
            time.sleep(_DEBOUNCE_SECONDS)

    def sync(self) -> None:
        """Load the set elements of the current sessions into the kernel."""
        self._requested.clear()
        with self._lock:
            self._attempt(self._update)

    def _update(self) -> None:
        if self._list_bindings is None:
            if self._loaded is None:
                self._run(self._removal)
                self._loaded = []
        elif self._loaded is None or self._max_leases != self._demux.max_leases_per_vlan:
            self._renew()
        else:
            try:
                self._load_elements(self._list_elements())
            except KernelError as error:
                if error.code != errno.ENOENT:
                    raise
                # Another program has removed the table since the last check.
                self._renew()
                self.fault_register.add_repairs([self._part])

    def _check(self) -> None:
        if self._list_bindings is None:
            self._update()
        else:
            super()._check()

    def _is_intact(self) -> bool:
        if not super()._is_intact():
            return False
        if self._clock() < self._compare_at:
            return True
        self._compare_at = self._clock() + _COMPARISON_INTERVAL_SECONDS
        return self._elements == _read_elements(self._nft.list_table(TABLE) or ())

    def _renew(self) -> None:
        self._max_leases = self._demux.max_leases_per_vlan
        self._load(remove_first=True, max_leases=self._max_leases)
        self._elements = set()
        self._load_elements(self._list_elements())

    def _list_elements(self) -> set[Element]:
        """Return the set elements that the current sessions need."""
        elements: set[Element] = set()
        leases: Counter[str] = Counter()
        bindings = list(self._list_bindings() if self._list_bindings is not None else ())
        # Leases of other hardware count for the limit of the VLAN too.
        leases.update(interface for interface, mac in bindings if mac is None)
        for interface, mac in set(bindings):
            if mac is None:
                continue
            address = hex(int(mac.replace(":", ""), 16))
            elements.add(("homes", f'"{interface}" . {address}'))
            leases[interface] += 1
            if not self._demux.mac_moves:
                elements.add(("macs", address))
        limit = self._demux.max_leases_per_vlan
        elements.update(("full", f'"{interface}"') for interface, number in leases.items() if number >= limit)
        return elements

    def _load_elements(self, wanted: set[Element]) -> None:
        before, loaded = self._elements, self._loaded
        # Until all elements are there.
        self._loaded = None
        commands = [
            *(_make_command("add", each) for each in sorted(wanted - before, key=_get_rank)),
            *(_make_command("delete", each) for each in sorted(before - wanted, key=_get_rank, reverse=True)),
        ]
        for first in range(0, len(commands), _MAX_ELEMENTS_PER_RUN):
            self._run("\n".join(commands[first : first + _MAX_ELEMENTS_PER_RUN]))
        self._elements, self._loaded = wanted, loaded

    def _count(self, packets: Mapping[str, int]) -> None:
        # Not the packets of an earlier life of the core.
        if self._loaded is None:
            return
        now = self._clock()
        for name, (reason, text) in _REFUSAL_TEXTS.items():
            if number := packets.get(name, 0):
                self._refusals[reason] += number
                if reason not in self._logged or now - self._logged[reason] >= _LOG_INTERVAL_SECONDS:
                    self._logged[reason] = now
                    _log.warning("the kernel drops DHCP requests, and their clients get no lease: %s", text)


def _get_rank(element: Element) -> int:
    return _SESSION_SETS.index(element[0])


def _make_command(verb: str, element: Element) -> str:
    name, text = element
    return f"{verb} element {TABLE} {name} {{ {text} }}"


def _read_elements(objects: Iterable[Mapping[str, Any]]) -> set[Element]:
    """Return the elements of the session sets in `objects`, the listing of the table. An element that another
    program added is also returned, and differs from every element of the gateway."""
    return {
        (each["set"]["name"], " . ".join(map(_format_part, parts)))
        for each in objects
        if "set" in each and each["set"]["name"] in _SESSION_SETS
        for element in each["set"].get("elem", ())
        for parts in [element.get("concat", [element]) if isinstance(element, dict) else [element]]
    }


def _format_part(value: object) -> str:
    return hex(value) if isinstance(value, int) else f'"{value}"'
