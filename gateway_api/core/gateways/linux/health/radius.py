"""Whether the RADIUS server answers, as far as the sources of sessions tell it."""

from collections.abc import Callable
from typing import Protocol

from gateway_api.base.texts import utc_text
from gateway_api.core.configuration.sections import Radius
from gateway_api.core.gateways.linux.sources.accel_formats import UnreadableReply
from gateway_api.core.gateways.linux.sources.accel_stat import RadiusServer, radius_servers
from gateway_api.core.gateways.linux.sources.source import SourceUnavailable
from gateway_api.wire.core.dependencies import Dependency, DependencyState

#: Seconds over which accel-ppp counts `lost_lately`.
_LATELY = 300.0


class RadiusClient(Protocol):
    """A daemon that sends the requests."""

    def look(self) -> tuple[DependencyState, str]:
        """The state of the server, and a sentence. Ends by a deadline."""


class Pppd:
    """pppd, whose RADIUS plugin keeps no count."""

    def look(self) -> tuple[DependencyState, str]:
        return DependencyState.UNKNOWN, "pppd does not tell whether its RADIUS requests are answered."


class AccelPppStatistics:
    """accel-ppp. It tells no time of an answer: one came between two looks if the number of answers grew.
    `ask` gives its `show stat`, and raises SourceUnavailable; `wall` gives epoch seconds."""

    def __init__(self, ask: Callable[[], bytes], wall: Callable[[], float]) -> None:
        self._ask = ask
        self._wall = wall
        self._answered: int | None = None
        self._last_answer: float | None = None
        #: The last answer, or the first look.
        self._quiet_since = wall()

    def look(self) -> tuple[DependencyState, str]:
        try:
            servers = radius_servers(self._ask())
        except SourceUnavailable:
            return (
                DependencyState.UNKNOWN,
                "accel-ppp does not reply, so nothing tells whether RADIUS answers.",
            )
        except UnreadableReply:
            return DependencyState.UNKNOWN, "accel-ppp says nothing readable of its RADIUS requests."
        if not servers:
            return DependencyState.FAILED, "accel-ppp runs without its RADIUS module and has to be restarted."
        return self._judge(servers)

    def _judge(self, servers: list[RadiusServer]) -> tuple[DependencyState, str]:
        now, answered = self._wall(), sum(server.answered for server in servers)
        if self._answered is not None and answered > self._answered:
            self._last_answer = self._quiet_since = now
        # Less than before after a restart of accel-ppp.
        self._answered = answered
        last = "the core has seen no answer since it started"
        if self._last_answer is not None:
            last = f"the last answer came at {utc_text(self._last_answer)}"
        lost = sum(server.lost_lately for server in servers)
        requests = f"{lost} request{'' if lost == 1 else 's'} timed out in the last 5 minutes"
        if all(server.is_given_up for server in servers):
            return DependencyState.FAILED, f"accel-ppp has given the server up: {requests}, and {last}."
        if lost and (not answered or now - self._quiet_since > _LATELY):
            return DependencyState.FAILED, f"The server does not answer: {requests}, and {last}."
        if lost:
            return DependencyState.DEGRADED, f"{requests}, and {last}."
        if not answered:
            return DependencyState.UNKNOWN, "No request was answered or timed out yet."
        return DependencyState.OK, f"No request timed out in the last 5 minutes, and {last}."


def radius(configured: Radius, client: RadiusClient | None) -> Dependency:
    """The dependency. `client` is None without a source that signs subscribers on by RADIUS."""
    if configured.server is None:
        return Dependency("radius", DependencyState.UNUSED, "The configuration has no RADIUS server.")
    if client is None:
        return Dependency("radius", DependencyState.UNUSED, "No source of sessions uses RADIUS.")
    return Dependency("radius", *client.look())
