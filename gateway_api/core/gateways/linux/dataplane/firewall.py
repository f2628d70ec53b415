"""The core's own table of nftables, `inet gateway`: which packets of subscribers the kernel drops.

A packet from a subscriber's device is forwarded only if the kernel would send the replies to its source over
that same device: by the route of a session. The rule needs no state of sessions, and works while the core
does not. It is the strict check of the source address of RFC 3704 section 2.2, for both families and with
steering too, which `rp_filter` of the kernel is not.

The table stays when the core ends. A change of the configuration replaces its rules in one transaction: the
kernel compares each packet with all of the former rules, or with all of the new ones.
"""

import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway_api.base.vlan_names import LONGEST_INTERFACE_NAME, short_name
from gateway_api.core.gateways.linux.dataplane.fault_register import FaultRegister, Place
from gateway_api.core.gateways.linux.dataplane.nftables import Nft, RulesetEvents
from gateway_api.core.gateways.linux.kernel.messages import KernelError
from gateway_api.wire.configuration import Configuration
from gateway_api.wire.core.health import FaultKind, PacketDrops

TABLE = "inet gateway"
#: What stands for the trunk of PPPoE sessions: the name of their device does not tell it.
PPP = "ppp"

#: Seconds between two looks, and from an event to a look: a foreign `flush ruleset` lasts no longer.
_INTERVAL, _DEBOUNCE = 3.0, 0.2
_PLACE = Place(FaultKind.FIREWALL, TABLE)
#: Of objects, in what the kernel has: they differ without a change of the rules.
_VARYING = ("handle", "packets", "bytes")
_STEP = f"load the table {TABLE}"


@dataclass(frozen=True)
class Policy:
    """Whose packets the table looks at. `others` are interfaces that are no subscriber's, whatever their
    name."""

    trunks: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()

    @classmethod
    def of(cls, configuration: Configuration) -> "Policy":
        interfaces = configuration.interfaces
        return cls(
            frozenset({*interfaces.trunks, *configuration.demux.trunks}),
            frozenset({*interfaces.uplinks, configuration.cgnat.handoff_interface}),
        )

    def commands(self) -> Iterator[str]:
        """Those of nft(8) that make the table, or change it to this. Counters keep their numbers."""
        yield f"add table {TABLE}"
        # Not its chains: with another one in its place, a packet could pass between both.
        yield f"flush table {TABLE}"
        for trunk in self._owners():
            yield f"add counter {TABLE} {_counter('spoofed', trunk)}"
        yield f"add chain {TABLE} forward {{ type filter hook forward priority filter; policy accept; }}"
        if self.others:
            names = ", ".join(f'"{name}"' for name in sorted(self.others))
            yield f"add rule {TABLE} forward iifname {{ {names} }} accept"
        for trunk in self._owners():
            for device in _devices(trunk):
                yield (
                    f'add rule {TABLE} forward iifname "{device}" fib saddr . iif oif missing '
                    f"counter name {_counter('spoofed', trunk)} drop"
                )

    def _owners(self) -> Sequence[str]:
        # The device of a trunk may look like a VLAN of another one.
        return [PPP, *sorted(self.trunks, key=lambda name: (-len(name), name))]


def _devices(trunk: str) -> Iterator[str]:
    """The devices that a subscriber's packets may come from, as patterns. Frames without a tag, and those
    with the outer tag alone, are nobody's: no session is on the trunk or on the outer device."""
    if trunk == PPP:
        yield f"{PPP}*"
    else:
        yield trunk
        yield from (f"{beginning}*" for beginning in _beginnings(trunk))


def _beginnings(trunk: str) -> tuple[str, ...]:
    """With what the names of the VLANs on a trunk begin; see `vlan_names`."""
    heads = dict.fromkeys((trunk, short_name(trunk)))
    return tuple(
        f"{head}{separator}" for head in heads for separator in ".-" if len(head) + 1 < LONGEST_INTERFACE_NAME
    )


def _counter(kind: str, trunk: str) -> str:
    """The name of a counter. Its letters are fewer than those of an interface."""
    return f"{kind}-" + re.sub("[^A-Za-z0-9_.-]", lambda match: f"/{ord(match[0]):02x}", trunk)


@dataclass
class _Counted:
    """Numbers that survive the loss of the kernel's."""

    now: Mapping[str, int] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)

    def note(self, found: Mapping[str, int]) -> None:
        self.lost.update({name: old for name, old in self.now.items() if found.get(name, 0) < old})
        self.now = found

    def total(self, name: str) -> int:
        return self.lost[name] + self.now.get(name, 0)


class Firewall:
    """Keeps the table in the kernel. `fault_register` has its repairs and its fault. Any thread may call;
    `wall` gives epoch seconds."""

    def __init__(self, wall: Callable[[], float], nft: Nft | None = None) -> None:
        self.fault_register = FaultRegister(wall)
        self._nft = nft or Nft()
        self._lock = threading.Lock()
        self._policy: Policy | None = None
        #: What the kernel has by the policy; None if it is not loaded.
        self._loaded: list[Any] | None = None
        #: Trunks of a former configuration: their devices outlive a commit.
        self._former: frozenset[str] = frozenset()
        self._counted = _Counted()

    def configure(self, configuration: Configuration) -> None:
        """Replaces the rules. What the kernel refuses is a fault, and the next look tries again."""
        policy = Policy.of(configuration)
        with self._lock:
            if self._policy is not None:
                self._former |= self._policy.trunks
            self._former = self._with_devices(self._former - policy.trunks - policy.others)
            self._policy = policy
            try:
                self._load()
                self.fault_register.settle(None, {})
            except KernelError as error:
                self._fail(error)
            self.fault_register.report()

    def check(self) -> None:
        """Looks at the table once, and repairs it."""
        with self._lock:
            if self._policy is None:
                return
            try:
                self._check()
                self.fault_register.settle(None, {})
            except KernelError as error:
                self._fail(error)
            self.fault_register.report()

    def run(self, events: RulesetEvents) -> None:
        """Looks from time to time, and when rules change, until `events` are closed."""
        self.check()
        for _ in events.each(_INTERVAL, _DEBOUNCE):
            self.check()

    def drops(self) -> tuple[PacketDrops, ...]:
        """By the last look, for each trunk of the configuration and PPP."""
        with self._lock:
            trunks = frozenset() if self._policy is None else self._policy.trunks
            total = self._counted.total
            return tuple(
                PacketDrops(trunk, total(_counter("spoofed", trunk))) for trunk in (*sorted(trunks), PPP)
            )

    def _check(self) -> None:
        found = self._nft.table(TABLE)
        self._note(found)
        former = self._with_devices(self._former)
        if found is not None and self._loaded == _rules(found):
            if former != self._former:
                self._former = former
                self._load()
            return
        self._former = former
        was_loaded = self._loaded is not None
        # Another program may have changed what `add` leaves as it is, such as the hook of a chain.
        self._load(f"add table {TABLE}\ndelete table {TABLE}\n")
        if was_loaded:
            self.fault_register.repaired([_PLACE])

    def _load(self, before: str = "") -> None:
        assert self._policy is not None  # noqa: S101 - the callers see to it
        policy = Policy(self._policy.trunks | self._former, self._policy.others)
        self._loaded = None
        self._nft.load(_STEP, before + "\n".join(policy.commands()))
        found = self._nft.table(TABLE)
        self._note(found)
        self._loaded = None if found is None else _rules(found)

    def _fail(self, error: KernelError) -> None:
        self.fault_register.settle(None, {_PLACE: error})

    def _note(self, found: Sequence[Mapping[str, Any]] | None) -> None:
        counters = [each["counter"] for each in found or () if "counter" in each]
        self._counted.note({each["name"]: each["packets"] for each in counters})

    @staticmethod
    def _with_devices(trunks: frozenset[str]) -> frozenset[str]:
        if not trunks:
            return trunks
        names = [name for _, name in socket.if_nameindex()]
        return frozenset(
            trunk for trunk in trunks if any(name.startswith(_beginnings(trunk)) for name in names)
        )


def _rules(found: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The objects without what varies."""
    return [
        {
            kind: {name: held for name, held in each.items() if name not in _VARYING}
            for kind, each in one.items()
        }
        for one in found
        if "metainfo" not in one
    ]
