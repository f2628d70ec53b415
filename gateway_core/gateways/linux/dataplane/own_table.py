"""A table of nftables that is the gateway's own: its repair, and its fault.

Another program may remove or change it: many scripts begin with `flush ruleset`. The table stays when the
core ends.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gateway_contract.core.health import FaultKind
from gateway_core.gateways.linux.dataplane.fault_register import FaultRegister, Place
from gateway_core.gateways.linux.dataplane.nftables import Nft, RulesetEvents
from gateway_core.gateways.linux.kernel.messages import KernelError

#: Seconds between two looks, and from an event to a look: a foreign `flush ruleset` lasts no longer.
_INTERVAL, _DEBOUNCE = 3.0, 0.2
#: Of objects, in what the kernel has: they differ without a change of the rules.
_VARYING = ("handle", "packets", "bytes")


class OwnTable(ABC):
    """Keeps a table in the kernel. `fault_register` has its repairs and its fault. Any thread may call;
    `wall` gives epoch seconds."""

    def __init__(self, name: str, wall: Callable[[], float], nft: Nft | None) -> None:
        self.fault_register = FaultRegister(wall)
        self._name = name
        self._nft = nft or Nft()
        self._lock = threading.Lock()
        #: What the kernel has by the last load; None if it is not loaded.
        self._loaded: list[Any] | None = None
        #: What its counters said at the last look.
        self._packets: Mapping[str, int] = {}
        #: The commands that remove the table, if there is one.
        self._removal = f"add table {name}\ndelete table {name}\n"

    def check(self) -> None:
        """Look at the table once, and repair it."""
        with self._lock:
            self._attempt(self._check)

    @abstractmethod
    def _renew(self) -> None:
        """Load all of the table in the place of what is there. Raises KernelError."""

    @abstractmethod
    def _count(self, packets: Mapping[str, int]) -> None:
        """Take the packets that counters have counted since the last look, by their name."""

    def _check(self) -> None:
        if not self._is_intact():
            self._repair()

    def _is_intact(self) -> bool:
        found = self._read()
        return found is not None and found == self._loaded

    def _repair(self) -> None:
        was_loaded = self._loaded is not None
        self._renew()
        if was_loaded:
            self._count_repair()

    def _count_repair(self) -> None:
        self.fault_register.repaired([self._place()])

    def _attempt(self, act: Callable[[], None]) -> None:
        """Does one act. If the kernel refuses it, that is a fault, and the next look tries again."""
        try:
            act()
            self.fault_register.settle(None, {})
        except KernelError as error:
            self.fault_register.settle(None, {self._place(): error})
        self.fault_register.report()

    def _load(self, commands: str) -> None:
        self._loaded = None
        self._run(commands)
        self._loaded = self._read()

    def _run(self, commands: str) -> None:
        self._nft.load(f"load the table {self._name}", commands)

    def _read(self) -> list[Any] | None:
        """Return the objects without what varies. None if there is no table."""
        found = self._nft.table(self._name, "-t")
        counters = [each["counter"] for each in found or () if "counter" in each]
        before, self._packets = self._packets, {each["name"]: each["packets"] for each in counters}
        # With the table, its numbers go, and begin at zero again.
        self._count(
            {
                name: now - earlier if now >= (earlier := before.get(name, 0)) else now
                for name, now in self._packets.items()
            }
        )
        if found is None:
            return None
        return [
            {
                kind: {name: held for name, held in each.items() if name not in _VARYING}
                for kind, each in one.items()
            }
            for one in found
            if "metainfo" not in one
        ]

    def _place(self) -> Place:
        return Place(FaultKind.FIREWALL, self._name)


def keep(tables: Sequence[OwnTable], events: RulesetEvents) -> None:
    """Look at the tables from time to time, and when rules change, until `events` are closed."""
    for table in tables:
        table.check()
    for _ in events.each(_INTERVAL, _DEBOUNCE):
        for table in tables:
            table.check()
