"""The configuration file of dnsmasq 2.89 to 2.91 as a DHCP server for the VLANs of subscribers."""

import re
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import msgspec

from gateway_api.base.errors import Invalid, Problem
from gateway_api.core.gateways.linux.sources.dnsmasq_leases import is_interface

#: dnsmasq takes two minutes for less, and says nothing.
SHORTEST_LEASE = 120
#: 2^32-1 would be a lease without end.
LONGEST_LEASE = 2**32 - 2
#: Characters that stand for themselves in the file.
_PATH = re.compile(r"/[A-Za-z0-9_./@-]*")

_Require = Callable[[bool, str, str], None]


class Range(msgspec.Struct, frozen=True):
    """Addresses to give away, ends included. `gateway` is the router of the subscribers: each VLAN has it as
    its address, be it with /32."""

    network: IPv4Network
    gateway: IPv4Address
    first: IPv4Address
    last: IPv4Address


class DnsmasqOptions(msgspec.Struct, frozen=True):
    """`interfaces` are names, or starts of names with `*` at the end: `trunk0.*`. `lease_time` is in seconds.
    More than `most_leases` are refused by dnsmasq, which logs it. Nobody gets a `reserved` address."""

    interfaces: tuple[str, ...]
    ranges: tuple[Range, ...]
    dns_servers: tuple[IPv4Address, ...]
    lease_time: int
    most_leases: int
    lease_file: Path
    pid_file: Path
    script: Path
    reserved: tuple[IPv4Address, ...] = ()


def render(options: DnsmasqOptions) -> str:
    """The file, for `dnsmasq --keep-in-foreground --conf-file=FILE`. Raises Invalid with all broken rules."""
    problems = [*_problems(options)]
    if problems:
        raise Invalid(*problems)
    lines = [
        # No DNS.
        "port=0",
        # VLANs that are created later are served too.
        "bind-dynamic",
        *(f"interface={name}" for name in options.interfaces),
        # A client that comes with the lease of an earlier server keeps its address.
        "dhcp-authoritative",
        # A ping before each offer takes three seconds.
        "no-ping",
        f"dhcp-lease-max={options.most_leases}",
        f"dhcp-leasefile={options.lease_file}",
        f"pid-file={options.pid_file}",
        f"dhcp-script={options.script}",
        # After a start, only a renewal tells the VLAN of a lease.
        "script-on-renewal",
    ]
    for number, pool in enumerate(options.ranges):
        tag = f"pool{number}"
        lines.append(
            f"dhcp-range=set:{tag},{pool.first},{pool.last},{pool.network.netmask},{options.lease_time}"
        )
        lines.append(f"dhcp-option=tag:{tag},option:router,{pool.gateway}")
    # A client that calls itself so is ignored.
    lines += [f"dhcp-host=id:reserved,{address},ignore" for address in options.reserved]
    if options.dns_servers:
        lines.append(f"dhcp-option=option:dns-server,{','.join(map(str, options.dns_servers))}")
    return "\n".join(lines) + "\n"


def _problems(options: DnsmasqOptions) -> list[Problem]:
    found = []

    def require(is_right: bool, path: str, message: str) -> None:
        if not is_right:
            found.append(Problem(path, "invalid", message))

    require(bool(options.interfaces), "interfaces", "requires at least one interface")
    for place, name in enumerate(options.interfaces):
        require(
            is_interface(name.removesuffix("*")), f"interfaces.{place}", "is not the name of an interface"
        )
    require(bool(options.ranges), "ranges", "requires at least one range")
    for place, pool in enumerate(options.ranges):
        _check_range(pool, f"ranges.{place}", options.ranges[:place], require)
    require(
        SHORTEST_LEASE <= options.lease_time <= LONGEST_LEASE,
        "lease_time",
        f"must be from {SHORTEST_LEASE} to {LONGEST_LEASE} seconds",
    )
    require(1 <= options.most_leases <= 2**31 - 1, "most_leases", "must be from 1 to 2147483647")
    for field in ("lease_file", "pid_file", "script"):
        path = str(getattr(options, field))
        require(
            _PATH.fullmatch(path) is not None,
            field,
            "must be an absolute path of letters, digits and the characters _ . / @ -",
        )
    return found


def _check_range(pool: Range, path: str, others: tuple[Range, ...], require: _Require) -> None:
    hosts = (pool.network.network_address, pool.network.broadcast_address)
    for field in ("gateway", "first", "last"):
        address = getattr(pool, field)
        require(address in pool.network, f"{path}.{field}", "must be in the network")
        require(
            address not in hosts, f"{path}.{field}", "must not be the first or last address of the network"
        )
    require(pool.first <= pool.last, f"{path}.last", "must not be before the first address")
    require(
        not pool.first <= pool.gateway <= pool.last, f"{path}.gateway", "must not be an address to give away"
    )
    require(
        not any(pool.network.overlaps(other.network) for other in others),
        f"{path}.network",
        "must not overlap with the network of another range",
    )
