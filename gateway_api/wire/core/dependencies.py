"""The core's contract for dependencies: what a gateway needs to serve its subscribers and the API."""

from collections.abc import Iterable
from typing import Annotated

from gateway_api.wire.contract import Enumeration, Method, Record, about


class DependencyState(Enumeration):
    """The health of a dependency, the best first."""

    UNUSED = "unused", "The gateway does not use it."
    OK = "ok", "It does its work."
    UNKNOWN = "unknown", "Nothing tells whether it does its work."
    DEGRADED = "degraded", "It does a part of its work, or will soon fail."
    FAILED = "failed", "It does not do its work."

    @property
    def severity(self) -> int:
        """0 for ok and unused, 1 for unknown, 2 for degraded, 3 for failed."""
        return max(list(DependencyState).index(self) - 1, 0)


class Dependency(Record, frozen=True):
    """Something that the gateway needs to do its work."""

    name: Annotated[str, about("Name of the dependency.", "radius")]
    state: Annotated[DependencyState, about("Its health.", "degraded")]
    message: Annotated[
        str,
        about(
            "A sentence about it, for people. Has no path, no secret, and nothing that a subscriber sent.",
            "2 requests timed out in the last 5 minutes.",
        ),
    ]


def worst(dependencies: Iterable[Dependency]) -> DependencyState:
    """The state of the whole. An unused dependency does not count."""
    return max(
        (one.state for one in dependencies), key=lambda state: state.severity, default=DependencyState.OK
    )


class DependenciesReply(Record, frozen=True):
    dependencies: Annotated[tuple[Dependency, ...], about("Those that the core knows of.")]


class GetDependencies(Method[DependenciesReply], frozen=True):
    """The health of what the core depends on: each source of sessions, by its name; radius, frr and clock.
    The core asks them from time to time, and replies at once: a dependency that hangs does not delay the
    reply."""
