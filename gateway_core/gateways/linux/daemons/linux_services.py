"""The daemons beside the core, and a commit: all run by the new files, or all as before."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from gateway_contract.base.errors import StepFailed
from gateway_contract.configuration import Configuration
from gateway_contract.core.impact import ServiceImpact
from gateway_core.configuration.workspace import Rendered
from gateway_core.gateways.linux.daemons.accel_ppp import AccelPppReload
from gateway_core.gateways.linux.daemons.daemon import ServiceDaemon, all_or_none
from gateway_core.gateways.linux.daemons.dnsmasq import DhcpServer
from gateway_core.gateways.linux.daemons.frr import FrrByDifference
from gateway_core.gateways.linux.daemons.pppd import SignOnFiles
from gateway_core.gateways.linux.daemons.pppoe_server import PppoeUnits
from gateway_core.gateways.linux.program import CommitLimits

#: In the order of a commit. Those that can refuse come last, so that little is put back: FRR is the last one.
DAEMONS: tuple[type[ServiceDaemon], ...] = (
    SignOnFiles,
    PppoeUnits,
    DhcpServer,
    AccelPppReload,
    FrrByDifference,
)
#: Seconds for each daemon to run by the running configuration again.
_RESUME = 30.0

_log = logging.getLogger(__name__)


class LinuxServices:
    """Applies to the daemons in their order. A commit has so many seconds to apply, and then to put back."""

    def __init__(self, daemons: Sequence[ServiceDaemon], apply: float, put_back: float) -> None:
        self._daemons = daemons
        self._apply = apply
        self._put_back = put_back
        #: Waits so many seconds for the VLANs of DHCP subscribers, at a start.
        self.await_vlans: Callable[[float], object] = lambda _: None
        #: Called at a start, after that of the DHCP server.
        self.dhcp_started: Callable[[], object] = lambda: None

    def render(self, configuration: Configuration) -> Rendered:
        files: dict[str, str] = {}
        for daemon in self._daemons:
            rendered = daemon.render(configuration)
            daemon.verify(rendered)
            files.update(rendered)
        return files

    def apply(self, rendered: Rendered, configuration: Configuration) -> None:
        limits = CommitLimits.of(self._apply, self._put_back)
        all_or_none(partial(daemon.apply, rendered, configuration, limits) for daemon in self._daemons)

    def resume(self, configuration: Configuration) -> None:
        """It lasts longer than a commit may: all daemons start while the core does."""
        dhcp = [each for each in self._daemons if isinstance(each, DhcpServer)]
        # Beside the others: one that hangs must not keep subscribers from their addresses.
        with ThreadPoolExecutor(max_workers=1) as beside:
            started = [beside.submit(self._start_dhcp, each, configuration) for each in dhcp]
            ended = [self._resume(each, configuration) for each in self._daemons if each not in dhcp]
            ended += [each.result() for each in started]
        if failures := [error for error in ended if error is not None]:
            raise failures[0]

    def _start_dhcp(self, daemon: DhcpServer, configuration: Configuration) -> StepFailed | None:
        """After the VLANs of its leases are back: before, it could answer no renewal, and while it runs, it
        reads all its interfaces for each one that comes."""
        self.await_vlans(_RESUME)
        failure = self._resume(daemon, configuration)
        self.dhcp_started()
        return failure

    def _resume(self, daemon: ServiceDaemon, configuration: Configuration) -> StepFailed | None:
        try:
            # Not verified: a parser that is slow while the machine starts must not keep a daemon back.
            rendered = daemon.render(configuration)
            daemon.apply(rendered, configuration, CommitLimits.of(_RESUME, _RESUME))
        except StepFailed as error:
            _log.error("%s does not run by the running configuration: %s", daemon.name, error)
            return error
        return None

    def is_unfinished(self) -> bool:
        """Return True if `finish` has something to do. Raises StepFailed."""
        return any(daemon.is_unfinished() for daemon in self._daemons)

    def finish(self, running: Configuration) -> None:
        """Does what ends sessions, once a commit counts. Raises StepFailed."""
        for daemon in self._daemons:
            daemon.finish(running)

    def plan(self, configuration: Configuration) -> tuple[ServiceImpact, ...]:
        """Return the effect that a commit of a configuration would have on daemons now. Raises StepFailed."""
        actions = (
            (daemon.name, daemon.action(daemon.render(configuration), configuration))
            for daemon in self._daemons
        )
        return tuple(ServiceImpact(name, action) for name, action in actions if action is not None)
