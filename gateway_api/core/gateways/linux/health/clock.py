"""Whether the clock of the machine is synchronized, as `timedatectl` of systemd 252 or newer tells it: the
kernel's own word, whichever NTP client runs."""

from collections.abc import Sequence

from gateway_api.core.gateways.linux.program import ProgramFailed, run
from gateway_api.wire.core.dependencies import Dependency, DependencyState

TIMEDATECTL = ("timedatectl", "show", "--property=NTPSynchronized", "--value")
_SECONDS, _MOST = 3.0, 1 << 12
_UNKNOWN = "Nothing tells whether the clock of the machine is synchronized"


def clock(command: Sequence[str] = TIMEDATECTL) -> Dependency:
    """The dependency. Takes up to 3 s."""
    try:
        ended = run(command, seconds=_SECONDS, most=_MOST)
    except ProgramFailed as error:
        return Dependency("clock", DependencyState.UNKNOWN, f"{_UNKNOWN}: {error}.")
    match ended.status, ended.output.strip():
        case 0, b"yes":
            return Dependency("clock", DependencyState.OK, "The clock of the machine is synchronized.")
        case 0, b"no":
            message = (
                "The clock of the machine is not synchronized: times of sessions and events may be wrong."
            )
            return Dependency("clock", DependencyState.DEGRADED, message)
        case _:
            return Dependency("clock", DependencyState.UNKNOWN, f"{_UNKNOWN}: timedatectl failed.")
