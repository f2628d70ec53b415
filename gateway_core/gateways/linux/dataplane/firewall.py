"""Packet filter of the gateway: the tables `inet gateway` and `arp gateway` of nftables.

A packet from a subscriber's device is forwarded only if the kernel would send replies to the packet's source
address over the same device, by the route of a session. The rule keeps no state of sessions, and works while
the core is down. The rule is the strict reverse-path check of RFC 3704 section 2.2 for IPv4 and IPv6. The
kernel's `rp_filter` covers neither IPv6 nor steering. The rule runs before the kernel routes the packet,
reads its options or reassembles it, because each of these steps may send an ICMP error that contains the
packet to a spoofed source.

On the gateway itself, subscribers reach DHCP, ping, neighbour discovery, and DNS at
`subscribers.dns_servers`, and nothing else. A DHCP reply goes to an address in the request, so this address
is checked like a source address. A subscriber cannot act as a DHCP server or an IPv6 router for other
subscribers.

A change of the configuration replaces the rules in one transaction: no packet is checked by a mix of old and
new rules.
"""

import os
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from typing import Any

from gateway_contract.base.vlan_names import MAX_INTERFACE_NAME_LENGTH, short_name
from gateway_contract.configuration import Configuration
from gateway_contract.core.health import PacketDrops
from gateway_core.gateways.linux.dataplane.nftables import Nft, OwnTable
from gateway_core.gateways.linux.kernel.links import SUBSCRIBER_GROUP
from gateway_core.gateways.linux.kernel.netlink import KernelError

TABLE = "inet gateway"
ARP_TABLE = "arp gateway"
#: Stands for the trunk of PPPoE sessions: the name of their device does not tell the trunk.
PPP_TRUNK = "ppp"
#: Former ranges in the rules: as many as dnsmasq still refuses renewals of.
_MAX_FORMER_RANGES = 8


class ArpLimit(OwnTable):
    """Manager of the nftables table `arp gateway`, which limits the ARP requests of each subscriber line. The
    first `check` loads the table."""

    def __init__(self, wall: Callable[[], float], nft: Nft | None = None) -> None:
        super().__init__(ARP_TABLE, wall, nft)

    def _renew(self) -> None:
        self._load(remove_first=True, subscriber_group=SUBSCRIBER_GROUP)


def _list_devices(trunk: str) -> list[str]:
    """Return name patterns of the VLAN devices of a trunk, including the devices of outer VLANs. Untagged
    frames, and frames with only the outer tag, belong to no subscriber."""
    return (
        [f"{PPP_TRUNK}*"] if trunk == PPP_TRUNK else [f"{prefix}*" for prefix in _list_vlan_prefixes(trunk)]
    )


def _list_vlan_prefixes(trunk: str) -> tuple[str, ...]:
    """Return the prefixes with which the names of a trunk's VLAN devices begin. The module `vlan_names`
    defines these prefixes."""
    heads = dict.fromkeys((trunk, short_name(trunk)))
    return tuple(
        f"{head}{separator}"
        for head in heads
        for separator in ".-"
        if len(head) + 1 < MAX_INTERFACE_NAME_LENGTH
    )


def _make_counter_label(trunk: str) -> str:
    """Return the name of a trunk in a form that is valid in the name of an nftables counter. Each invalid
    character becomes `/` and two hexadecimal digits."""
    return re.sub("[^A-Za-z0-9_.-]", lambda match: f"/{ord(match[0]):02x}", trunk)


@dataclass(frozen=True)
class Policy:
    """Variables of the rules: the interfaces whose packets are checked, and the servers that subscribers may
    reach."""

    trunks: frozenset[str]
    #: Interfaces that are no subscriber's, whatever their name.
    exempt_interfaces: frozenset[str]
    dns_servers: tuple[IPv4Address | IPv6Address, ...]
    #: Where DHCP subscribers have their addresses. The main table has an unreachable route to each range.
    source_ranges: tuple[IPv4Network, ...]
    #: Source ranges of former configurations, the latest first. Clients may still have leases there.
    former_ranges: tuple[IPv4Network, ...]

    @classmethod
    def of(cls, configuration: Configuration, before: "Policy | None") -> "Policy":
        """Return the policy of a configuration. `before` is the previous policy, or None. The source ranges
        of the previous policy become former ranges."""
        interfaces, ranges = configuration.interfaces, configuration.cgnat.source_ranges
        former = () if before is None else (*before.source_ranges, *before.former_ranges)
        left = [network for network in dict.fromkeys(former) if network not in ranges]
        return cls(
            frozenset({*interfaces.trunks, *configuration.demux.trunks}),
            frozenset({*interfaces.uplinks, configuration.cgnat.handoff_interface}),
            (*configuration.subscribers.dns_servers, *configuration.subscribers.ipv6_dns_servers),
            ranges,
            tuple(left[:_MAX_FORMER_RANGES]),
        )


class Firewall(OwnTable):
    """Manager of the nftables table `inet gateway`. `command_line` is the address and TCP port at which a
    source accepts commands, or None if no source does."""

    def __init__(
        self,
        wall: Callable[[], float],
        nft: Nft | None = None,
        command_line: tuple[IPv4Address, int] | None = None,
    ) -> None:
        super().__init__(TABLE, wall, nft)
        self._command_line = command_line
        self._policy: Policy | None = None
        #: Trunks of a former configuration: their devices outlive a commit, and the core. None until the
        #: table of an earlier life was read.
        self._former: frozenset[str] | None = None
        #: Packets by the name of the counter.
        self._totals: Counter[str] = Counter()
        self._drops: tuple[PacketDrops, ...] = ()

    def apply(self, configuration: Configuration) -> None:
        """Replace the rules of the table if the new configuration needs different rules. Raises KernelError
        if the kernel refuses the new rules: then the former rules stay."""
        with self._lock:
            policy = Policy.of(configuration, self._policy)
            before = self._policy, self._former
            if policy == self._policy:
                return
            try:
                self._replace(policy)
            except KernelError:
                self._policy, self._former = before
                raise

    def configure(self, configuration: Configuration) -> None:
        """Replace the rules of the table. If the kernel refuses the new rules, a fault is recorded, and the
        next `check` tries again."""
        with self._lock:
            policy = Policy.of(configuration, self._policy)
            self._attempt(lambda: self._replace(policy))

    def list_drops(self) -> tuple[PacketDrops, ...]:
        """Return the number of packets that were dropped up to the last check, for each configured trunk and
        for PPPoE."""
        return self._drops

    def _replace(self, policy: Policy) -> None:
        if policy == self._policy and self._loaded is not None:
            return
        before, self._policy = self._policy, policy
        self._former = self._find_former_trunks(policy, frozenset() if before is None else before.trunks)
        self._load_rules(remove_first=False)

    def _check(self) -> None:
        if self._policy is None:
            return
        is_intact = self._is_intact()
        former, self._former = self._former, self._find_former_trunks(self._policy)
        if not is_intact:
            self._repair()
        elif former != self._former:
            self._load_rules(remove_first=False)

    def _renew(self) -> None:
        # Another program may have changed what a load leaves as it is, such as the hook of a chain.
        self._load_rules(remove_first=True)

    def _load_rules(self, *, remove_first: bool) -> None:
        policy = self._policy
        assert policy is not None  # noqa: S101 - the callers see to it
        # The device of a trunk may look like a VLAN of another one: the longest name counts.
        trunks = sorted(policy.trunks | (self._former or frozenset()), key=lambda name: (-len(name), name))
        self._load(
            remove_first=remove_first,
            trunks=trunks,
            list_devices=_list_devices,
            make_label=_make_counter_label,
            exempt_interfaces=sorted(policy.exempt_interfaces),
            dns_servers=policy.dns_servers,
            source_ranges=policy.source_ranges,
            former_ranges=policy.former_ranges,
            command_line=self._command_line,
            users=sorted({0, os.getuid()}),
            subscriber_group=SUBSCRIBER_GROUP,
        )

    def _count(self, packets: Mapping[str, int]) -> None:
        self._totals.update(packets)
        if self._policy is not None:
            self._drops = tuple(
                PacketDrops(
                    trunk,
                    *(
                        self._totals[f"{kind}-{_make_counter_label(trunk)}"]
                        for kind in ("spoofed", "blocked")
                    ),
                )
                for trunk in (*sorted(self._policy.trunks), PPP_TRUNK)
            )

    def _find_former_trunks(
        self, policy: Policy, removed_trunks: frozenset[str] = frozenset()
    ) -> frozenset[str]:
        """Return the former trunks that still have VLAN devices. A former trunk is a trunk that the new
        policy `policy` does not have. `removed_trunks` are the trunks of the previous policy."""
        if self._former is None:
            try:
                self._former = _read_trunks(self._nft.list_table(TABLE, "-t") or ())
            except KernelError:
                # The rules come first. After them, the load lists the table too: then this is a fault.
                self._former = frozenset()
        trunks = (self._former | removed_trunks) - policy.trunks - policy.exempt_interfaces
        if not trunks:
            return trunks
        names = [name for _, name in socket.if_nameindex()]
        return frozenset(
            trunk for trunk in trunks if any(name.startswith(_list_vlan_prefixes(trunk)) for name in names)
        )


def _read_trunks(objects: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the trunks whose counters the rules of a table use. `objects` is the listing of the table. A
    counter that no rule uses is ignored, because its trunk was removed from the configuration."""
    counters = (
        statement["counter"]
        for each in objects
        if "rule" in each
        for statement in each["rule"]["expr"]
        if isinstance(statement, dict) and isinstance(statement.get("counter"), str)
    )
    return frozenset(
        re.sub("/([0-9a-f]{2})", lambda match: chr(int(match[1], 16)), counter.removeprefix("spoofed-"))
        for counter in counters
        if counter.startswith("spoofed-")
    ) - {PPP_TRUNK}
