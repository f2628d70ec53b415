"""The services of a gateway, which run by files that it renders from a configuration."""

from collections.abc import Mapping
from typing import Protocol

from gateway_api.wire.configuration import Configuration

#: The text of each rendered file, by its name.
Rendered = Mapping[str, str]


class GatewayServices(Protocol):
    """The services that a commit changes, beside the gateway."""

    def render(self, configuration: Configuration) -> Rendered:
        """The files, verified: no service misreads or refuses one. Raises StepFailed."""

    def apply(self, rendered: Rendered, configuration: Configuration) -> None:
        """Makes the services run by the files. Services that run by the same files already continue
        undisturbed. It takes at most 20 s: the API waits 30 s for a commit. Raises StepFailed: then every
        service runs as before."""

    def resume(self, configuration: Configuration) -> None:
        """Renders the files of the running configuration anew, and applies them: a service that refuses does
        not keep the others from running by them. It may last longer than a commit. Raises StepFailed of the
        first one."""
