"""FRR's BGP neighbours, as vtysh prints them. Read in FRR 8.4.4 of Debian 12 and 10.3 of Debian 13.

No value of a request or of a configuration is on a command line of vtysh: it would read its syntax in it.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gateway_api.base.errors import GatewayApiError
from gateway_api.core.gateways.linux.program import ProgramFailed, run

#: Bytes of a reply: a neighbour has about 1,000.
_MOST = 2**22

_STEP = "read the BGP summary of FRR"
_DAEMON, _COMMAND = "bgpd", "show bgp summary json"


class RoutingUnavailable(GatewayApiError):
    """FRR, or the daemon of it that was asked, does not run or gave no usable reply. The reason is FRR's own
    line if there is one; it has no secret."""

    def __init__(self, step: str, reason: str) -> None:
        #: A verb and an object.
        self.step = step
        self.reason = reason
        super().__init__(f"cannot {step}: {reason}")


class RoutingAbsent(RoutingUnavailable):
    """FRR is not installed, or none of its daemons runs."""


@dataclass(frozen=True)
class FrrFolders:
    """Where an FRR is: `programs` has vtysh, `tools` has frr-reload.py, `configuration` has frr.conf and
    vtysh.conf, `sockets` those of the daemons."""

    programs: Path = Path("/usr/bin")
    tools: Path = Path("/usr/lib/frr")
    configuration: Path = Path("/etc/frr")
    sockets: Path = Path("/run/frr")


class Frr:
    """FRR's bgpd, which may be down or hang. `seconds` is the limit of a method. Any thread may call."""

    def __init__(self, folders: FrrFolders, seconds: float) -> None:
        self._folders = folders
        self._seconds = seconds

    def bgp_summary(self) -> dict[str, Any]:
        """The JSON object of `show bgp summary json`, which is empty if FRR has no BGP. Raises
        RoutingUnavailable, also if bgpd does not run."""
        # Only to bgpd: another daemon that hangs must not block it.
        command = [*vtysh(self._folders), "-d", _DAEMON, "-c", _COMMAND]
        try:
            ended = run(command, seconds=self._seconds, most=_MOST)
        except ProgramFailed as error:
            raise RoutingUnavailable(_STEP, str(error)) from error
        if ended.status:
            said = last_line(ended.output + b"\n" + ended.errors)
            raise RoutingUnavailable(_STEP, f"{_DAEMON}: {said or f'vtysh ended with status {ended.status}'}")
        try:
            # A neighbour chooses its host name, and FRR prints its bytes as they came.
            return msgspec.json.decode(ended.output.decode(errors="replace"), type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError) as error:
            reason = f"its reply is not as expected: {printable(str(error))}"
            raise RoutingUnavailable(_STEP, reason) from error


def vtysh(folders: FrrFolders) -> list[str]:
    """The beginning of a command."""
    program = str(folders.programs / "vtysh")
    return [program, "--config_dir", str(folders.configuration), "--vty_socket", str(folders.sockets)]


def last_line(printed: bytes) -> str:
    """The last line with text, shortened and printable."""
    lines = [line for line in printed.decode("ascii", "replace").splitlines() if line.strip()]
    # vtysh ends with one for every user but root.
    lines = [line for line in lines if not line.startswith("Hint:")]
    return printable(lines[-1]) if lines else ""


def printable(line: str) -> str:
    return re.sub(r"[^ -~]+", "?", line.strip())[:200]
