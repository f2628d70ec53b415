"""The core's own table of nftables, `inet gateway`: the packets of subscribers that the kernel drops.

A packet from a subscriber's device goes on only if the kernel would send the replies to its source over that
same device: by the route of a session. The rule needs no state of sessions, and works while the core does
not. It is the strict check of the source address of RFC 3704 section 2.2, for both families and with steering
too, which `rp_filter` of the kernel is not. The rule comes before the kernel routes the packet, reads its
options or reassembles it: any of these may send an ICMP error, with the packet in it, to the source.

Subscribers reach DHCP, ping, neighbour discovery, and DNS at `subscribers.dns_servers` of the gateway itself,
and nothing else. A reply to DHCP goes to an address in the request, so that address is checked as a source.
None is a DHCP server or a router for others. The MSS of TCP over PPPoE is that of the path. Of the users of
the machine, only root and that of the core reach the command line of a source.

The table stays when the core ends. A change of the configuration replaces its rules in one transaction: the
kernel compares each packet with all of the former rules, or with all of the new ones.
"""

import os
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from typing import Any

from gateway_contract.base.vlan_names import LONGEST_INTERFACE_NAME, short_name
from gateway_contract.configuration import Configuration
from gateway_contract.core.health import PacketDrops
from gateway_core.gateways.linux.dataplane.arp_limit import IS_FLOOD, LINES, LINES_SET
from gateway_core.gateways.linux.dataplane.nftables import Nft
from gateway_core.gateways.linux.dataplane.own_table import OwnTable
from gateway_core.gateways.linux.kernel.messages import KernelError

TABLE = "inet gateway"
#: What stands for the trunk of PPPoE sessions: the name of their device does not tell it.
PPP = "ppp"

_SPOOFED, _BLOCKED = "spoofed", "blocked"
#: Before the fragments of a packet are put together (-400): to report a missing one is an ICMP error, too.
_FIRST = "raw - 150"
#: In a DHCP request (RFC 2131 section 2), after 8 bytes of UDP: `htype` and `hlen`, `ciaddr`, `giaddr`.
_HARDWARE, _CLIENT, _RELAY = "@th,72,16", "@th,160,32", "@th,256,32"
#: To the gateway, whose addresses are local or those of a broadcast.
_DHCP_REQUEST = "udp dport 67 fib daddr type != unicast"
#: Of Ethernet, and with a MAC address.
_ETHERNET = "0x0106"
#: In an ICMPv6 error: the next header of the packet that it is about.
_NEXT_HEADER = "@th,112,8"
#: To the gateway itself: replies, errors, and what finds it. No redirect, and no advertisement of a router.
_ICMP = ("echo-reply", "destination-unreachable", "echo-request", "time-exceeded", "parameter-problem")
_ICMPV6 = (
    *("destination-unreachable", "packet-too-big", "time-exceeded", "parameter-problem"),
    *("echo-request", "echo-reply", "mld-listener-query", "mld-listener-report", "mld-listener-done"),
    *("mld2-listener-report", "nd-router-solicit", "nd-neighbor-solicit", "nd-neighbor-advert"),
)
_OF_NEIGHBOURS = ("nd-router-solicit", "nd-neighbor-solicit", "echo-request")
#: Of a device that has no address yet (RFC 4861 section 4, RFC 3590).
_OF_NO_ADDRESS = ("nd-router-solicit", "nd-neighbor-solicit", "mld-listener-report", "mld2-listener-report")


#: Former ranges that the rules still know: as many as dnsmasq still refuses renewals of.
_MOST_FORMER = 8


@dataclass(frozen=True)
class Policy:
    """Whose packets the table looks at. `others` are interfaces that are no subscriber's, whatever their
    name."""

    trunks: frozenset[str]
    others: frozenset[str]
    dns_servers: tuple[IPv4Address | IPv6Address, ...]
    #: Where DHCP subscribers have their addresses. The main table has a route to each that is unreachable.
    source_ranges: tuple[IPv4Network, ...]
    #: Address and TCP port of the command line of a source.
    command_line: tuple[IPv4Address, int] | None = None
    #: Source ranges of former configurations, the latest first. Clients may still have leases there.
    former_ranges: tuple[IPv4Network, ...] = ()

    @classmethod
    def of(
        cls, configuration: Configuration, command_line: tuple[IPv4Address, int] | None = None
    ) -> "Policy":
        interfaces = configuration.interfaces
        return cls(
            frozenset({*interfaces.trunks, *configuration.demux.trunks}),
            frozenset({*interfaces.uplinks, configuration.cgnat.handoff_interface}),
            (*configuration.subscribers.dns_servers, *configuration.subscribers.ipv6_dns_servers),
            configuration.cgnat.source_ranges,
            command_line,
        )

    def after(self, before: "Policy | None") -> "Policy":
        """Return this policy with the ranges of the policy before it."""
        if before is None:
            return self
        former = dict.fromkeys((*before.source_ranges, *before.former_ranges))
        left = [network for network in former if network not in self.source_ranges]
        return replace(self, former_ranges=tuple(left[:_MOST_FORMER]))

    def commands(self) -> Iterator[str]:
        """The commands of nft(8) that make the table, or change it to this. Counters keep their numbers."""
        yield f"add table {TABLE}"
        # Not its chains: with another one in its place, a packet could pass between both.
        yield f"flush table {TABLE}"
        for trunk in self._owners():
            yield f"add counter {TABLE} {_counter(_SPOOFED, trunk)}"
            yield f"add counter {TABLE} {_counter(_BLOCKED, trunk)}"
        yield from self._of_sources()
        yield from self._of_what_is_forwarded()
        yield from self._of_the_gateway()
        yield from self._of_what_the_gateway_sends()

    def _of_sources(self) -> Iterator[str]:
        hook = f"type filter hook prerouting priority {_FIRST}"
        yield f"add chain {TABLE} prerouting {{ {hook}; policy accept; }}"
        yield from self._without_others("prerouting")
        yield from self._of_dhcp()
        # Replies to these stay on the link.
        yield f"add rule {TABLE} prerouting ip6 saddr fe80::/10 accept"
        yield f"add rule {TABLE} prerouting ip6 saddr :: icmpv6 type {{ {', '.join(_OF_NO_ADDRESS)} }} accept"
        yield f"add chain {TABLE} strangers"
        # `fib` skips ICMPv6 of it. The reply to a ping would leave by the default route.
        yield f"add rule {TABLE} prerouting ip6 saddr :: jump strangers"
        yield f"add rule {TABLE} prerouting fib saddr . iif oif missing jump strangers"
        # Without a tag, a packet to the gateway itself may come from the operator.
        for trunk in sorted(self.trunks):
            yield f'add rule {TABLE} strangers iifname "{trunk}" fib daddr type != unicast return'
        # A client renews a lease that the core does not know yet, such as after a reboot. Without a route to
        # its address, no reply leaves by another device.
        renewal = f"{_DHCP_REQUEST} fib saddr type != local"
        ranges = ", ".join(map(str, self.source_ranges))
        yield f"add rule {TABLE} strangers ip saddr {{ {ranges} }} {renewal} fib saddr oif missing return"
        # The server refuses the renewal of a lease of a former range, and the client asks for another address
        # at once. Otherwise the client would keep the lease until its end.
        if self.former_ranges:
            yield f"add rule {TABLE} strangers ip saddr {self._of_former_ranges('saddr')} {renewal} return"
        yield from self._dropped("strangers", _SPOOFED, with_trunks=True)

    def _of_dhcp(self) -> Iterator[str]:
        """The requests to the gateway. A server sends its reply to `giaddr`, else to `ciaddr`, whatever the
        source is. A subscriber is no relay, has a MAC address, and sends no request in fragments."""
        yield f"add chain {TABLE} dhcp"
        yield f"add rule {TABLE} prerouting meta nfproto ipv4 {_DHCP_REQUEST} jump dhcp"
        yield f"add chain {TABLE} dhcp-refused"
        for refused in ("ip frag-off & 0x3fff != 0", f"{_HARDWARE} != {_ETHERNET}", f"{_RELAY} != 0"):
            yield f"add rule {TABLE} dhcp {refused} jump dhcp-refused"
        yield from self._dropped("dhcp-refused", _BLOCKED)
        # The check takes the source of a packet, so `ciaddr` becomes it. For an honest client both are equal.
        for trunk in self._owners():
            for device in _devices(trunk):
                if device != trunk:
                    renewal = f'iifname "{device}" {_CLIENT} != 0'
                    yield f"add rule {TABLE} dhcp {renewal} ip saddr set {_CLIENT}"

    def _of_what_is_forwarded(self) -> Iterator[str]:
        yield f"add chain {TABLE} forward {{ type filter hook forward priority filter; policy accept; }}"
        yield from self._without_others("forward")
        # Each upstream packet is compared with them once, whatever the number of trunks.
        yield f"add chain {TABLE} dhcp-servers"
        yield f"add rule {TABLE} forward udp sport {{ 67, 547 }} udp dport {{ 68, 546 }} jump dhcp-servers"
        yield from self._dropped("dhcp-servers", _BLOCKED)
        yield f"add chain {TABLE} mss {{ type filter hook forward priority mangle; policy accept; }}"
        for direction in ("iifname", "oifname"):
            yield (
                f'add rule {TABLE} mss {direction} "{PPP}*" tcp flags & (syn | rst) == syn '
                "tcp option maxseg size set rt mtu"
            )

    def _of_the_gateway(self) -> Iterator[str]:
        """The services of the gateway itself. PPPoE is no IP. Without connection tracking, which would keep a
        state for each flow of each subscriber."""
        yield f"add chain {TABLE} input {{ type filter hook input priority filter; policy accept; }}"
        yield from self._without_others("input")
        yield f"add rule {TABLE} input udp dport {{ 67, 547 }} accept"
        # The kernel keeps a neighbour for the source of each: see `arp_limit`.
        yield f"add set {TABLE} {LINES} {LINES_SET}"
        yield f"add rule {TABLE} input icmpv6 type {{ {', '.join(_OF_NEIGHBOURS)} }} {IS_FLOOD} drop"
        yield f"add rule {TABLE} input icmp type {{ {', '.join(_ICMP)} }} accept"
        yield f"add rule {TABLE} input icmpv6 type {{ {', '.join(_ICMPV6)} }} accept"
        for address in self.dns_servers:
            family = "ip" if address.version == 4 else "ip6"
            to_it = f"{family} daddr {address} meta l4proto {{ tcp, udp }} th dport 53"
            yield f"add rule {TABLE} input {to_it} accept"
        yield from self._dropped("input", _BLOCKED)

    def _of_what_the_gateway_sends(self) -> Iterator[str]:
        yield f"add chain {TABLE} output {{ type filter hook output priority filter; policy accept; }}"
        # The kernel reads hop-by-hop options (next header 0) before any rule, and reports an unknown one to
        # the source, false or not.
        yield f"add rule {TABLE} output icmpv6 type parameter-problem {_NEXT_HEADER} 0 drop"
        # A refusal is a broadcast. A reply to an address of a former range would leave for another network.
        if self.former_ranges:
            yield f"add rule {TABLE} output ip daddr {self._of_former_ranges('daddr')} udp sport 67 drop"
        if self.command_line is not None:
            address, port = self.command_line
            users = ", ".join(map(str, sorted({0, os.getuid()})))
            yield (
                f"add rule {TABLE} output ip daddr {address} tcp dport {port} "
                f"meta skuid != {{ {users} }} reject with tcp reset"
            )

    def _of_former_ranges(self, end: str) -> str:
        """Return the addresses of the former ranges that are in no range of now. `end` is `saddr` or
        `daddr`."""
        former, now = (", ".join(map(str, ranges)) for ranges in (self.former_ranges, self.source_ranges))
        return f"{{ {former} }} ip {end} != {{ {now} }}"

    def _without_others(self, chain: str) -> Iterator[str]:
        if self.others:
            names = ", ".join(f'"{name}"' for name in sorted(self.others))
            yield f"add rule {TABLE} {chain} iifname {{ {names} }} accept"

    def _dropped(self, chain: str, kind: str, *, with_trunks: bool = False) -> Iterator[str]:
        """Drop and count what comes from subscribers' devices. Without `with_trunks`, packets from the trunk
        itself pass: without a tag, the trunk may be the operator's own way in."""
        for trunk in self._owners():
            for device in _devices(trunk):
                if device != trunk or with_trunks:
                    counter = _counter(kind, trunk)
                    yield f'add rule {TABLE} {chain} iifname "{device}" counter name {counter} drop'

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
    """Return the name of a counter. Its letters are fewer than those of an interface."""
    return f"{kind}-" + re.sub("[^A-Za-z0-9_.-]", lambda match: f"/{ord(match[0]):02x}", trunk)


class Firewall(OwnTable):
    """Keeps the table in the kernel. `command_line` is that of a source, which has one."""

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
        #: By the name of the counter.
        self._totals: Counter[str] = Counter()
        self._drops: tuple[PacketDrops, ...] = ()

    def apply(self, configuration: Configuration) -> None:
        """Replace the rules, if the configuration has others. Raises KernelError: then all is as before."""
        with self._lock:
            policy = Policy.of(configuration, self._command_line).after(self._policy)
            before = self._policy, self._former
            if policy == self._policy:
                return
            try:
                self._replace(policy)
            except KernelError:
                self._policy, self._former = before
                raise

    def configure(self, configuration: Configuration) -> None:
        """Replace the rules. What the kernel refuses is a fault, and the next look tries again."""
        with self._lock:
            policy = Policy.of(configuration, self._command_line).after(self._policy)
            self._attempt(lambda: self._replace(policy))

    def drops(self) -> tuple[PacketDrops, ...]:
        """By the last look, for each trunk of the configuration and PPP. Never waits for one."""
        return self._drops

    def _replace(self, policy: Policy) -> None:
        if policy == self._policy and self._loaded is not None:
            return
        before, self._policy = self._policy, policy
        self._former = self._still_there(frozenset() if before is None else before.trunks)
        self._load(self._commands())

    def _check(self) -> None:
        if self._policy is None:
            return
        is_intact = self._is_intact()
        former, self._former = self._former, self._still_there()
        if not is_intact:
            self._repair()
        elif former != self._former:
            self._load(self._commands())

    def _renew(self) -> None:
        # Another program may have changed what `add` leaves as it is, such as the hook of a chain.
        self._load(self._removal + self._commands())

    def _commands(self) -> str:
        assert self._policy is not None  # noqa: S101 - the callers see to it
        policy = replace(self._policy, trunks=self._policy.trunks | (self._former or frozenset()))
        return "\n".join(policy.commands())

    def _count(self, packets: Mapping[str, int]) -> None:
        self._totals.update(packets)
        if self._policy is not None:
            totals = self._totals
            self._drops = tuple(
                PacketDrops(trunk, totals[_counter(_SPOOFED, trunk)], totals[_counter(_BLOCKED, trunk)])
                for trunk in (*sorted(self._policy.trunks), PPP)
            )

    def _still_there(self, more: frozenset[str] = frozenset()) -> frozenset[str]:
        """Return the former trunks, and of `more`, those that have devices."""
        assert self._policy is not None  # noqa: S101 - the callers see to it
        if self._former is None:
            try:
                self._former = _checked_trunks(self._nft.table(TABLE, "-t") or ())
            except KernelError:
                # The rules come first. After them, the load lists the table too: then this is a fault.
                self._former = frozenset()
        trunks = (self._former | more) - self._policy.trunks - self._policy.others
        if not trunks:
            return trunks
        names = [name for _, name in socket.if_nameindex()]
        return frozenset(
            trunk for trunk in trunks if any(name.startswith(_beginnings(trunk)) for name in names)
        )


def _checked_trunks(objects: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the trunks that rules of a table are about, by a listing of it. A counter without a rule stays
    when its trunk is gone."""
    head = _counter(_SPOOFED, "")
    counters = (
        statement["counter"]
        for each in objects
        if "rule" in each
        for statement in each["rule"]["expr"]
        if isinstance(statement, dict) and isinstance(statement.get("counter"), str)
    )
    return frozenset(
        re.sub("/([0-9a-f]{2})", lambda match: chr(int(match[1], 16)), counter.removeprefix(head))
        for counter in counters
        if counter.startswith(head)
    ) - {PPP}
