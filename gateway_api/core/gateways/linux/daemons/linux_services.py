"""The daemons beside the core at a commit: all run by the new files, or all as before."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from gateway_api.core.configuration.sections import Configuration
from gateway_api.core.configuration.services import render
from gateway_api.core.configuration.store import StepFailed, disk_step
from gateway_api.core.gateways.linux.daemons.daemon import ServiceDaemon, all_or_none
from gateway_api.core.gateways.linux.daemons.time_limit import CommitLimits
from gateway_api.wire.core.impact import ServiceImpact

#: Seconds for each daemon to run by the running configuration again.
_RESUME = 30.0

_log = logging.getLogger(__name__)


class LinuxServices:
    """Applies to the daemons in their order. Those that can refuse come last, so that little is put back: FRR
    is the last one. A commit has so many seconds to apply, and then to put back."""

    def __init__(self, daemons: Sequence[ServiceDaemon], apply: float, put_back: float) -> None:
        self._daemons = daemons
        self._apply = apply
        self._put_back = put_back

    def apply(self, files: Path, configuration: Configuration) -> None:
        """Makes all run by the rendered files in a folder, which may be gone after the call. Raises
        StepFailed: then all run as before."""
        rendered, limits = _read(files), CommitLimits.of(self._apply, self._put_back)
        all_or_none(partial(daemon.apply, rendered, configuration, limits) for daemon in self._daemons)

    def resume(self, files: Path, configuration: Configuration) -> None:
        """As GatewayServices. It lasts longer than a commit may: all daemons start while the core does."""
        rendered, failures = _read(files), []
        for daemon in self._daemons:
            try:
                daemon.apply(rendered, configuration, CommitLimits.of(_RESUME, _RESUME))
            except StepFailed as error:
                _log.error("%s does not run by the running configuration: %s", daemon.name, error)
                failures.append(error)
        if failures:
            raise failures[0]

    def plan(self, configuration: Configuration) -> tuple[ServiceImpact, ...]:
        """What a commit of a configuration would do now to daemons. Raises StepFailed."""
        rendered = render(configuration)
        actions = [(daemon.name, daemon.action(rendered, configuration)) for daemon in self._daemons]
        return tuple(ServiceImpact(name, action) for name, action in actions if action is not None)


def _read(files: Path) -> Mapping[str, str]:
    """The text of each file, by its name. Raises StepFailed."""
    with disk_step("read the services' files"):
        # Latin-1 makes one character of any byte.
        return {path.name: path.read_bytes().decode("latin-1") for path in files.iterdir()}
