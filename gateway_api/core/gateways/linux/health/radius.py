"""Whether the RADIUS server answers, as far as the sources of sessions tell it."""

from typing import Protocol

from gateway_api.core.configuration.sections import Radius
from gateway_api.wire.core.dependencies import Dependency, DependencyState


class RadiusClient(Protocol):
    """A daemon that sends the requests."""

    def look(self) -> tuple[DependencyState, str]:
        """The state of the server, and a sentence. Ends by a deadline."""


class Pppd:
    """pppd, whose RADIUS plugin keeps no count."""

    def look(self) -> tuple[DependencyState, str]:
        return DependencyState.UNKNOWN, "pppd does not tell whether its RADIUS requests are answered."


def radius(configured: Radius, client: RadiusClient | None) -> Dependency:
    """The dependency. `client` is None without a source that signs subscribers on by RADIUS."""
    if configured.server is None:
        return Dependency("radius", DependencyState.UNUSED, "The configuration has no RADIUS server.")
    if client is None:
        return Dependency("radius", DependencyState.UNUSED, "No source of sessions uses RADIUS.")
    return Dependency("radius", *client.look())
