"""Control of systemd units, by `systemctl` (252 in Debian 12). The rule in packaging/polkit.rules allows the
user of the core only these calls, and only for the units of the gateway."""

import re
from collections.abc import Sequence

from gateway_contract.base.errors import StepFailed
from gateway_contract.base.texts import join_names
from gateway_core.gateways.linux.program import NO_LIMIT, ProgramFailed, ProgramResult, TimeLimit, run

_MAX_OUTPUT_BYTES = 1 << 20
#: Units of one call: a command line has an end, and the deadline is for all of them.
_MAX_UNITS_PER_CALL = 100


class UnitFailed(StepFailed):
    """Failure of a systemd call, with the reason that systemd gives."""


class SystemdUnreachable(UnitFailed):
    """Failure of `systemctl` to reply. The state of the units is then unknown."""


class Systemd:
    """Manager of the machine's systemd units. `seconds` is the time limit of one call, and `limit` is the
    time limit of all calls together. Thread-safe. All methods except `is_active` raise UnitFailed if systemd
    refuses the call or does not reply."""

    def __init__(
        self, systemctl: Sequence[str] = ("systemctl",), seconds: float = 30.0, limit: TimeLimit = NO_LIMIT
    ) -> None:
        self._systemctl = systemctl
        self._seconds = seconds
        self._limit = limit

    def with_limit(self, limit: TimeLimit) -> "Systemd":
        """Return a manager of the same units whose calls, all together, end within `limit`."""
        return Systemd(self._systemctl, self._seconds, limit)

    def start(self, *units: str) -> None:
        """Start units, and return when all units run. The type of a unit defines when the unit runs. A unit
        that already runs stays as it is. A call for several units takes little more time than a call for one
        unit."""
        self._execute("start", units)

    def stop(self, *units: str) -> None:
        """Stop units, and return when all processes of the units have ended."""
        self._execute("stop", units)

    def restart(self, unit: str) -> None:
        self._execute("restart", [unit])

    def reload_running(self, *units: str) -> None:
        """Reload the units that run, and ignore all other units in `units`."""
        self._execute("reload", units, "try-reload-or-restart")

    def is_active(self, unit: str) -> bool:
        """Return True if a unit runs. Return False on a machine without systemd."""
        try:
            return self._run("is-active", [unit]).status == 0
        except ProgramFailed:
            return False

    def _execute(self, verb: str, units: Sequence[str], command: str | None = None) -> None:
        for first in range(0, len(units), _MAX_UNITS_PER_CALL):
            batch = units[first : first + _MAX_UNITS_PER_CALL]
            step = f"{verb} {join_names(batch, 1)}"
            try:
                ended = self._run(command or verb, batch)
            except ProgramFailed as error:
                raise SystemdUnreachable(step, str(error)) from error
            if ended.status:
                raise UnitFailed(step, _find_reason(ended))

    def _run(self, command: str, units: Sequence[str]) -> ProgramResult:
        # A question for a password would last until the deadline.
        arguments = ["--no-ask-password", "--no-pager", "--quiet", command, *units]
        return run(
            [*self._systemctl, *arguments],
            seconds=self._limit.get_remaining(self._seconds),
            max_bytes=_MAX_OUTPUT_BYTES,
        )


def name_instance(template: str, name: str) -> str:
    """Return the unit name of the instance `name` of a template unit, such as
    `gateway-pppoe@trunk0.300.service`. The instance name is escaped (systemd.unit(5), "String Escaping for
    Inclusion in Unit Names")."""
    escaped = re.sub(rb"^\.|[^A-Za-z0-9:_./]", lambda found: b"\\x%02x" % found[0][0], name.encode())
    return template.replace("@.", f"@{escaped.replace(b'/', b'-').decode()}.", 1)


def _find_reason(ended: ProgramResult) -> str:
    """Return the reason for a failed `systemctl`: the first line of the error output. The further lines
    contain only advice."""
    lines = [line.strip() for line in ended.errors.decode("ascii", "replace").splitlines() if line.strip()]
    return re.sub(r"[^ -~]+", "?", lines[0])[:200] if lines else f"systemctl ended with {ended.status}"
