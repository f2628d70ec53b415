"""dnsmasq as the DHCP server of a gateway without accel-ppp: systemd/gateway-dnsmasq.service."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from gateway_api.base.errors import Invalid
from gateway_api.core.configuration.sections import Configuration
from gateway_api.core.configuration.store import StepFailed
from gateway_api.core.gateways.linux.daemons import places
from gateway_api.core.gateways.linux.daemons.daemon import (
    DaemonAction,
    PlacedFiles,
    PutBack,
    Rendered,
    undo,
)
from gateway_api.core.gateways.linux.daemons.subscriber_addresses import SharedRange
from gateway_api.core.gateways.linux.daemons.systemd import Systemd, UnitFailed
from gateway_api.core.gateways.linux.daemons.time_limit import CommitLimits, TimeLimit
from gateway_api.core.gateways.linux.sources import dnsmasq_options
from gateway_api.core.gateways.linux.sources.dnsmasq_options import DnsmasqOptions, Range
from gateway_api.wire.core.impact import ServiceAction

_UNIT, _FILE = "gateway-dnsmasq.service", "dnsmasq.conf"
_STEP = "restart dnsmasq"
#: Seconds. A subscriber who left without a word counts as online for so long.
_LEASE_TIME = 600
#: dnsmasq looks through all leases for each one.
_MOST_LEASES = 20_000


def options_of(configuration: Configuration, script: Path) -> DnsmasqOptions | None:
    """What dnsmasq runs with: one range for all VLANs. None without a trunk. `script` is
    packaging/dhcp-lease."""
    trunks = configuration.demux.trunks
    if not trunks:
        return None
    shared = SharedRange.of(configuration)
    first, last = shared.dhcp
    return DnsmasqOptions(
        # It serves those with an address of the range, which only VLANs of a DHCP profile get. Without such a
        # profile it runs too, because a source that does not reply is a fault.
        interfaces=tuple(f"{trunk}.*" for trunk in trunks),
        ranges=(Range(shared.network, configuration.cgnat.subscriber_gateway, first, last),),
        dns_servers=configuration.subscribers.dns_servers,
        lease_time=_LEASE_TIME,
        most_leases=min(int(last) - int(first) + 1, _MOST_LEASES),
        lease_file=places.DNSMASQ_LEASES,
        pid_file=places.DNSMASQ_PID,
        script=script,
        # A subscriber of PPPoE has it.
        reserved=tuple(sorted(address for address in shared.fixed if first <= address <= last)),
    )


class DhcpServer:
    """The daemon `dnsmasq` of a commit. It has no reload; a restart ends no session: the leases are on disk,
    and in the subscribers' devices. Unless it is a source, it is stopped if an earlier life of the core has
    started it."""

    name = "dnsmasq"

    def __init__(self, systemd: Systemd, files: PlacedFiles, script: Path, *, is_source: bool) -> None:
        self._systemd = systemd
        self._files = files
        self._script = script
        self._is_source = is_source

    def apply(self, rendered: Rendered, configuration: Configuration, limits: CommitLimits) -> PutBack:
        """As ServiceDaemon. Starts it with the first trunk, and stops it without any."""
        text, before = self._text(configuration), self._files.read(_FILE)
        if text == before:
            if text is not None:
                self._run(self._systemd.within(limits.apply).start)
            return lambda: None
        put_back = partial(self._run_by, before, limits.put_back)
        try:
            self._run_by(text, limits.apply)
        except StepFailed:
            undo([put_back])
            raise
        return put_back

    def action(self, rendered: Rendered, configuration: Configuration) -> DaemonAction:
        """As ServiceDaemon. A start and a stop count as a restart."""
        return ServiceAction.RESTART if self._text(configuration) != self._files.read(_FILE) else None

    def _run_by(self, text: str | None, limit: TimeLimit) -> None:
        """None stops it. The file says that it may run, and is there as long."""
        systemd = self._systemd.within(limit)
        if text is None:
            self._run(systemd.stop)
            self._files.place(_FILE, None)
        else:
            self._files.place(_FILE, text)
            self._run(systemd.restart)

    def _text(self, configuration: Configuration) -> str | None:
        options = options_of(configuration, self._script) if self._is_source else None
        try:
            return None if options is None else dnsmasq_options.render(options)
        except Invalid as error:
            reason = "; ".join(f"{problem.path} {problem.message}" for problem in error.problems)
            raise StepFailed(_STEP, reason) from error

    def _run(self, act: Callable[[str], None]) -> None:
        try:
            act(_UNIT)
        except UnitFailed as error:
            raise StepFailed(_STEP, error.reason) from error
