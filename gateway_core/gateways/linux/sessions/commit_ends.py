"""The sessions that a commit ends: those that cannot go on with the new configuration.

A session ends

- on a trunk that the demux loses;
- on a VLAN that had a profile, and has none of its session type any more: the VLAN goes;
- with an address of `cgnat.source_range` or `subscribers.pools` that is no subscriber's in the new ones;
- with an address that its source may give to another session now;
- of accel-ppp with a prefix of `subscribers.ipv6_range` or `delegated_range` that is in none of the new ones:
  it would keep the prefix, which the gateway announces to nobody any more;
- of accel-ppp, which restarts when RADIUS authorizes the subscribers from now on, or no longer.

All others go on: also where RADIUS or the configuration gave an address from elsewhere, and those of the
other sources where subscribers are authorized otherwise. A session that arrived on no trunk of the demux, on
an interface of the operator's for example, is not the configuration's to end by its VLAN.

While a commit of another range waits for its confirmation, a session of dnsmasq with an address of the former
range goes on. The confirmation ends it, and so does the next commit that has no such range.
"""

from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Network

from gateway_contract.configuration import Configuration
from gateway_core.configuration.unconfirmed import former_range
from gateway_core.gateways.linux.daemons.accel_ppp import AccelPppReload
from gateway_core.gateways.linux.daemons.dnsmasq import DhcpServer
from gateway_core.gateways.linux.daemons.subscriber_addresses import SharedRange
from gateway_core.gateways.linux.demux.admission import AccessVlan, VlanProfiles
from gateway_core.gateways.linux.sessions.session import LinuxSession


def ended_by_commit(
    sessions: Iterable[LinuxSession], running: Configuration, wanted: Configuration
) -> list[int]:
    """Return the ids of the sessions that end when `wanted` runs in place of `running`, in the order of the
    sessions."""
    rules = (_Vlans(running, wanted), _Addresses(running, wanted), _Prefixes(running, wanted))
    restarts = (running.radius.server is None) != (wanted.radius.server is None)
    return [
        each.id
        for each in sessions
        if any(rule.end(each) for rule in rules) or (restarts and each.key.source == AccelPppReload.name)
    ]


class _Vlans:
    def __init__(self, running: Configuration, wanted: Configuration) -> None:
        # By all trunks, as everywhere: `eth0.5.100` may be a VLAN of `eth0.5`, or two tags on `eth0`.
        self._trunks = running.interfaces.trunks
        self._lost = set(running.demux.trunks).difference(wanted.demux.trunks)
        self._before, self._after = VlanProfiles(running.demux), VlanProfiles(wanted.demux)
        self._is_same = not self._lost and running.demux.vlan_profiles == wanted.demux.vlan_profiles

    def end(self, session: LinuxSession) -> bool:
        if self._is_same:
            return False
        vlan = AccessVlan.named(session.access_interface, self._trunks)
        if vlan is None:
            return False
        if vlan.trunk in self._lost:
            return True
        before, after = self._before.of(vlan), self._after.of(vlan)
        return before is not None and (after is None or after.type != before.type)


class _Addresses:
    def __init__(self, running: Configuration, wanted: Configuration) -> None:
        self._before, (self._after, *self._held) = _ranges(running), _ranges(wanted)
        self._pools_before, self._pools_after = _pools(running), _pools(wanted)
        after = [self._after, *self._held]
        self._is_same = (self._before, self._pools_before) == (after, self._pools_after)

    def end(self, session: LinuxSession) -> bool:
        text = session.summary.ip_address
        if self._is_same or text is None:
            return False
        address = IPv4Address(text)
        was_ours = _is_in(address, (*(each.network for each in self._before), *self._pools_before))
        if was_ours and not (self._after.is_of_subscriber(address) or _is_in(address, self._pools_after)):
            is_held = any(each.is_of_subscriber(address) for each in self._held)
            return not (is_held and session.key.source == DhcpServer.name)
        if session.key.source == AccelPppReload.name:
            # It has the whole network, for both types.
            return False
        type = session.summary.type
        return any(each.has(address, type) for each in self._before) and not self._after.has(address, type)


class _Prefixes:
    """The prefixes of accel-ppp. Sessions of the other sources get another prefix at the commit."""

    def __init__(self, running: Configuration, wanted: Configuration) -> None:
        self._before, self._after = running.subscribers.ipv6_networks, wanted.subscribers.ipv6_networks

    def end(self, session: LinuxSession) -> bool:
        if self._before == self._after or session.key.source != AccelPppReload.name:
            return False
        summary = session.summary
        first = () if summary.ipv6_prefix is None else (summary.ipv6_prefix,)
        prefixes = map(IPv6Network, (*first, *summary.delegated_prefixes))
        return any(
            _is_part_of(prefix, self._before) and not _is_part_of(prefix, self._after) for prefix in prefixes
        )


def _ranges(configuration: Configuration) -> list[SharedRange]:
    """Return the source range, and then the former one that is still served."""
    shared, former = SharedRange.of(configuration), former_range(configuration)
    return [shared] if former is None else [shared, replace(shared, network=former)]


def _pools(configuration: Configuration) -> tuple[IPv4Network, ...]:
    return tuple(pool.network for pool in configuration.subscribers.pools)


def _is_in(address: IPv4Address, networks: Iterable[IPv4Network]) -> bool:
    return any(address in network for network in networks)


def _is_part_of(prefix: IPv6Network, networks: Iterable[IPv6Network]) -> bool:
    return any(prefix.subnet_of(network) for network in networks)
