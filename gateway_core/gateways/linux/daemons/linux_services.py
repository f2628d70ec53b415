"""All daemons of the gateway at a commit: either all run with the new files, or all run with the former
files."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from gateway_contract.base.errors import StepFailed
from gateway_contract.configuration import Configuration
from gateway_contract.core.impact import ServiceImpact
from gateway_core.configuration.workspace import RenderedFiles
from gateway_core.gateways.linux.daemons.accel_ppp import AccelPppDaemon
from gateway_core.gateways.linux.daemons.daemon import Rollback, ServiceDaemon
from gateway_core.gateways.linux.daemons.dnsmasq import DnsmasqDaemon
from gateway_core.gateways.linux.daemons.frr import FrrDaemon
from gateway_core.gateways.linux.daemons.pppd import PppdFiles
from gateway_core.gateways.linux.daemons.pppoe_server import PppoeServers
from gateway_core.gateways.linux.program import CommitLimits

#: In the order of a commit. The daemons that can refuse come last, so that little is put back.
DAEMONS: tuple[type[ServiceDaemon], ...] = (PppdFiles, PppoeServers, DnsmasqDaemon, AccelPppDaemon, FrrDaemon)
#: Limit for each daemon to run with the running configuration again.
_RESUME_SECONDS = 30.0

_log = logging.getLogger(__name__)


class LinuxServices:
    """Daemons of a machine, in the order in which a commit configures the daemons. A commit may take
    `apply_seconds` to apply the new files. If the commit fails, the rollback may take `put_back_seconds` to
    restore the former files."""

    def __init__(
        self, daemons: Sequence[ServiceDaemon], apply_seconds: float, put_back_seconds: float
    ) -> None:
        self._daemons = daemons
        self._apply_seconds = apply_seconds
        self._put_back_seconds = put_back_seconds
        #: Function that waits for the VLANs of DHCP subscribers at a start of the core. The argument is the
        #: time limit in seconds.
        self.await_vlans: Callable[[float], object] = lambda _: None
        #: Called at a start of the core, after the start of the DHCP server.
        self.on_dhcp_started: Callable[[], object] = lambda: None

    def render(self, configuration: Configuration) -> RenderedFiles:
        files: dict[str, str] = {}
        for daemon in self._daemons:
            rendered = daemon.render(configuration)
            daemon.verify(rendered)
            files.update(rendered)
        return files

    def apply(self, rendered: RenderedFiles, configuration: Configuration) -> None:
        limits = CommitLimits.of(self._apply_seconds, self._put_back_seconds)
        with Rollback() as rollback:
            for daemon in self._daemons:
                daemon.apply(rendered, configuration, limits, rollback)
            rollback.pop_all()

    def resume(self, configuration: Configuration) -> None:
        """Make all daemons run with the running configuration, at the start of the core. The time limits are
        longer than those of a commit. If daemons fail, raises the StepFailed of the first of these daemons,
        after all daemons were tried."""
        dhcp = [each for each in self._daemons if isinstance(each, DnsmasqDaemon)]
        # Beside the others: a daemon that hangs must not keep subscribers from their addresses.
        with ThreadPoolExecutor(max_workers=1) as executor:
            dhcp_starts = [executor.submit(self._start_dhcp, each, configuration) for each in dhcp]
            results = [self._resume(each, configuration) for each in self._daemons if each not in dhcp]
            results += [each.result() for each in dhcp_starts]
        if failures := [error for error in results if error is not None]:
            raise failures[0]

    def _start_dhcp(self, daemon: DnsmasqDaemon, configuration: Configuration) -> StepFailed | None:
        # Before the VLANs of its leases are back, dnsmasq could answer no renewal, and it would read all its
        # interfaces again for each one that comes.
        self.await_vlans(_RESUME_SECONDS)
        failure = self._resume(daemon, configuration)
        self.on_dhcp_started()
        return failure

    def _resume(self, daemon: ServiceDaemon, configuration: Configuration) -> StepFailed | None:
        limits = CommitLimits.of(_RESUME_SECONDS, _RESUME_SECONDS)
        try:
            # Not verified: a parser that is slow while the machine starts must not keep a daemon back.
            with Rollback() as rollback:
                daemon.apply(daemon.render(configuration), configuration, limits, rollback)
                rollback.pop_all()
        except StepFailed as error:
            _log.error("%s does not use the running configuration: %s", daemon.name, error)
            return error
        return None

    def is_unfinished(self) -> bool:
        """Return True if `finish` still has work to do. Raises StepFailed if a file cannot be read."""
        return any(daemon.is_unfinished() for daemon in self._daemons)

    def finish(self, running: Configuration) -> None:
        """End the sessions that the commit preview has announced to end. `running` is the running
        configuration. Raises StepFailed if a daemon cannot end its sessions."""
        for daemon in self._daemons:
            daemon.finish(running)

    def plan(self, configuration: Configuration) -> tuple[ServiceImpact, ...]:
        """Return the effects that a commit of a configuration would have on the daemons now. Raises
        StepFailed if a file cannot be read or rendered."""
        actions = (
            (daemon.name, daemon.preview_action(daemon.render(configuration), configuration))
            for daemon in self._daemons
        )
        return tuple(ServiceImpact(name, action) for name, action in actions if action is not None)
