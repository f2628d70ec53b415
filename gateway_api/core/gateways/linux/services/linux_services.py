"""The daemons beside the core at a commit: all run by the new files, or all as before."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from gateway_api.core.configuration.sections import Configuration
from gateway_api.core.configuration.services import render
from gateway_api.core.configuration.store import disk_step
from gateway_api.core.gateways.linux.services.daemons import ServiceDaemon, all_or_none
from gateway_api.wire.core.impact import ServiceImpact


class LinuxServices:
    """Applies to the daemons in their order. Those that can refuse come last, so that little is put back: FRR
    is the last one."""

    def __init__(self, daemons: Sequence[ServiceDaemon]) -> None:
        self._daemons = daemons

    def apply(self, files: Path, configuration: Configuration) -> None:
        """Makes all run by the rendered files in a folder, which may be gone after the call. Raises
        StepFailed: then all run as before."""
        with disk_step("read the services' files"):
            # Latin-1 makes one character of any byte.
            rendered = {path.name: path.read_bytes().decode("latin-1") for path in files.iterdir()}
        all_or_none(partial(daemon.apply, rendered, configuration) for daemon in self._daemons)

    def plan(self, configuration: Configuration) -> tuple[ServiceImpact, ...]:
        """What a commit of a configuration would do now to daemons. Raises StepFailed."""
        rendered = render(configuration)
        actions = [(daemon.name, daemon.action(rendered, configuration)) for daemon in self._daemons]
        return tuple(ServiceImpact(name, action) for name, action in actions if action is not None)
