"""dnsmasq 2.89 to 2.91 as the DHCP server, systemd/gateway-dnsmasq.service. At a commit, it restarts if its
file differs: it has no reload. A restart ends no session: the leases are on disk, and in the subscribers'
devices."""

import re
import sys
import time
from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import ClassVar, Self

from gateway_contract.base.errors import StepFailed
from gateway_contract.configuration import Configuration
from gateway_contract.core.impact import ServiceAction
from gateway_core.configuration.unconfirmed import former_range
from gateway_core.configuration.workspace import Rendered
from gateway_core.gateways.linux.daemons.daemon import (
    DaemonAction,
    DaemonHost,
    PlacedFiles,
    PutBack,
    SourceDaemon,
    check_lines,
    filled,
    put_back_after,
    template,
)
from gateway_core.gateways.linux.daemons.subscriber_addresses import SessionPrefixes, SharedRange
from gateway_core.gateways.linux.daemons.systemd import Systemd, UnitFailed
from gateway_core.gateways.linux.program import CommitLimits, TimeLimit
from gateway_core.gateways.linux.sources.dnsmasq import Dnsmasq
from gateway_core.gateways.linux.sources.dnsmasq_leases import (
    Lease,
    UnreadableLease,
    leases_of,
    mac_address,
)
from gateway_core.records.clock import Clock

#: The lease file, the process id, and the records of its script, which is beside the programs. The unit names
#: the same places. Leases and records outlive a reboot.
LEASES = Path("/var/lib/gateway-dnsmasq/leases")
PID_FILE = Path("/run/gateway-dnsmasq/dnsmasq.pid")
RECORDS = Path("/var/lib/gateway-dnsmasq/records")
SCRIPT = Path(sys.prefix, "dhcp-lease")

#: Seconds. A subscriber who left without a word counts as online for so long. dnsmasq takes two minutes for
#: less, and says nothing.
LEASE_TIME = 600
#: The same in the range of a commit that waits for its confirmation: the least that dnsmasq takes. Clients
#: that heed T2 (RFC 2131 section 4.4.5) ask by a broadcast after 8 s, and so leave the range after a return.
_UNCONFIRMED_TIME, _UNCONFIRMED_RENEWAL, _UNCONFIRMED_REBINDING = 120, 5, 8
#: The same for a prefix that is advertised: dnsmasq does so every ten minutes.
_PREFIX_TIME = 3600
#: dnsmasq looks through all leases for each one.
_MOST_LEASES = 20_000

_UNIT, _FILE = "gateway-dnsmasq.service", "dnsmasq.conf"
_TEMPLATE = template(_FILE)
_FORM = re.compile(
    r"interface=[A-Za-z0-9_][A-Za-z0-9_.@-]*\*|(?!interface)[a-z0-9-]+(=[A-Za-z0-9_.,:/@*\[\]-]+)?", re.ASCII
)
_NETWORK = re.compile(r"^dhcp-range=set:[a-z0-9]+,([0-9.]+),[a-z0-9.]+,([0-9.]+)", re.ASCII | re.MULTILINE)
#: A client that may renew its lease of the range before an unconfirmed commit.
_HELD = re.compile(r"^dhcp-host=([0-9a-f:]{17}),([0-9.]+)$", re.ASCII | re.MULTILINE)
_HEAD = re.compile(r"^interface=(.+)\.\*$", re.ASCII | re.MULTILINE)
#: Former networks and trunks that it still ends leases of: the latest.
_MOST_FORMER = 8
_STEP, _READ = "restart dnsmasq", "read the leases of dnsmasq"
#: Readings of the lease file until two are the same, and seconds between two.
_READINGS, _BETWEEN_READINGS = 40, 0.025


class DhcpServer(SourceDaemon):
    """dnsmasq, which runs from the first trunk on. Unless it is a source, it is stopped if an earlier life of
    the core has started it."""

    name = "dnsmasq"
    programs: ClassVar = {"dnsmasq": "dnsmasq-base", "dhcp_release": "dnsmasq-utils"}
    types = ("dhcp",)
    effects: ClassVar = {
        "cgnat.source_range": ServiceAction.RESTART,
        "demux.trunks": ServiceAction.RESTART,
        "demux.vlan_profiles": "dnsmasq restarts when the first profile whose tags need short names of "
        "interfaces is added, or the last one removed",
        "subscribers.local": "dnsmasq restarts for a fixed `ip_address` in its half of the range, and a "
        "lease of that address ends",
        "subscribers.dns_servers": ServiceAction.RESTART,
        "subscribers.ipv6_dns_servers": ServiceAction.RESTART,
        "subscribers.ipv6_range": "dnsmasq restarts when it is set or removed; sessions of pppoe-server and "
        "dnsmasq have prefixes of the new one at once",
    }

    @classmethod
    def on(cls, host: DaemonHost) -> Self:
        return cls(host.systemd, host.files, is_source=cls.name in host.sources)

    def __init__(
        self, systemd: Systemd, files: PlacedFiles, *, is_source: bool, leases: Path = LEASES
    ) -> None:
        self._systemd = systemd
        self._files = files
        self._leases = leases
        self._is_source = is_source
        self._prefixes = SessionPrefixes()

    def source(self, configuration: Configuration, clock: Clock) -> Dnsmasq:
        self._prefixes.configure(configuration)
        return Dnsmasq(self.name, LEASES, PID_FILE, RECORDS, clock, self._prefixes)

    def render(self, configuration: Configuration) -> Rendered:
        """Render one range for all VLANs; until a commit is confirmed, clients with a lease of the former
        range can renew it. dnsmasq runs without a DHCP profile, too: a source that does not reply is a fault.
        Leases of the networks and trunks that the file has now can still end."""
        demux = configuration.demux
        heads = [head for trunk in demux.trunks for head in demux.heads(trunk)]
        before = self._files.read(_FILE) or ""
        former_heads = [head for head in _HEAD.findall(before) if head not in heads]
        if not self._is_source or not (heads or former_heads):
            return {}
        given = [IPv4Network("/".join(found), strict=False) for found in _NETWORK.findall(before)]
        shared = SharedRange.of(configuration)
        first, last = shared.dhcp
        held = former_range(configuration)
        held_leases = [] if held is None else self._held_leases(held, shared.network, before)
        text = filled(
            _TEMPLATE,
            configuration,
            first=first,
            last=last,
            # A subscriber of PPPoE has it.
            heads=heads,
            former_heads=former_heads[:_MOST_FORMER],
            former_networks=[each for each in given if each not in (shared.network, held)][:_MOST_FORMER],
            held=held,
            held_leases=held_leases,
            reserved=sorted(address for address in shared.fixed if first <= address <= last),
            most_leases=min(int(last) - int(first) + 1 + len(held_leases), _MOST_LEASES),
            lease_time=LEASE_TIME,
            unconfirmed_time=_UNCONFIRMED_TIME,
            renewal=_UNCONFIRMED_RENEWAL,
            rebinding=_UNCONFIRMED_REBINDING,
            ra_heads=[*(f"{head}." for head in heads), "ppp"],
            ra_time=_PREFIX_TIME,
            leases=LEASES,
            pid_file=PID_FILE,
            script=SCRIPT,
        )
        return {_FILE: text}

    def _held_leases(self, held: IPv4Network, network: IPv4Network, before: str) -> list[tuple[str, str]]:
        """Return MAC address and IPv4 address of each client with a lease of the range `held`: those of the
        commit that first held the range, whose sessions it has announced. An address that is in `network`
        too is not held: the new range shares it out, perhaps to PPPoE."""

        def is_held(address: str) -> bool:
            parsed = IPv4Address(address)
            return parsed in held and parsed not in network

        if found := [(mac, address) for mac, address in _HELD.findall(before) if is_held(address)]:
            return found
        return sorted(
            (lease.hardware, lease.address)
            for lease in self._read_leases().values()
            if lease.hardware is not None
            and mac_address(lease.hardware) is not None
            and is_held(lease.address)
        )

    def _read_leases(self) -> dict[str, Lease]:
        """Return the leases by address. Raises StepFailed: without them, homes would lose their addresses.

        dnsmasq empties the file before it writes the file anew. So the content is believed when two readings
        had it.
        """
        before: bytes | None = None
        try:
            for _ in range(_READINGS):
                data = self._leases.read_bytes()
                if data == before:
                    return leases_of(data)
                before = data
                time.sleep(_BETWEEN_READINGS)
        except FileNotFoundError:
            # dnsmasq has never run.
            return {}
        except (OSError, UnreadableLease) as error:
            raise StepFailed(_READ, f"{self._leases}: {error}") from error
        raise StepFailed(_READ, f"{self._leases} changes all the time")

    def verify(self, rendered: Rendered) -> None:
        if _FILE in rendered:
            check_lines(_FILE, rendered[_FILE], _FORM)

    def apply(self, rendered: Rendered, configuration: Configuration, limits: CommitLimits) -> PutBack:
        """Start it with the first trunk, and stop it without any."""
        text, before = rendered.get(_FILE), self._files.read(_FILE)
        if text == before:
            if text is not None:
                self._run(self._systemd.within(limits.apply).start)
            return self._prefixes.configure(configuration)
        former_prefixes = self._prefixes.configure(configuration)

        def put_back() -> None:
            former_prefixes()
            self._run_by(before, limits.put_back)

        return put_back_after(partial(self._run_by, text, limits.apply), put_back)

    def action(self, rendered: Rendered, configuration: Configuration) -> DaemonAction:
        """A start and a stop count as a restart."""
        return ServiceAction.RESTART if rendered.get(_FILE) != self._files.read(_FILE) else None

    def _run_by(self, text: str | None, limit: TimeLimit) -> None:
        """None stops it. The file says that it may run, and is there as long."""
        systemd = self._systemd.within(limit)
        if text is None:
            self._run(systemd.stop)
            self._files.place(_FILE, None)
        else:
            self._files.place(_FILE, text)
            self._run(systemd.restart)

    def _run(self, act: Callable[[str], None]) -> None:
        try:
            act(_UNIT)
        except UnitFailed as error:
            raise StepFailed(_STEP, error.reason) from error
