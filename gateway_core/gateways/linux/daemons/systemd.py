"""Units of systemd, by `systemctl` (252 in Debian 12). The rule packaging/polkit.rules allows the core's user
what is here for the units of the gateway, and no more."""

import re
from collections.abc import Iterator, Sequence

from gateway_contract.base.errors import GatewayApiError
from gateway_contract.base.texts import join_names
from gateway_core.gateways.linux.program import NO_LIMIT, EndedProgram, ProgramFailed, TimeLimit, run

#: What an instance name holds as it is (systemd.unit(5), "String Escaping for Inclusion in Unit Names").
_PLAIN = re.compile(r"[A-Za-z0-9:_.]")
_MOST = 1 << 20
#: Units of one call: a command line has an end, and the deadline is for all of them.
_AT_ONCE = 100


class UnitFailed(GatewayApiError):
    """systemd did not do what it was asked, or not in time. The text is systemd's own, and for the log."""

    def __init__(self, verb: str, unit: str, reason: str) -> None:
        self.reason = reason
        super().__init__(f"cannot {verb} {unit}: {reason}")


class SystemdUnreachable(UnitFailed):
    """`systemctl` gave no answer: it is unknown what systemd did."""


class Systemd:
    """The manager of the machine's units. `seconds` is the limit of one call, and `limit` that of all.
    Any thread may call. All methods raise UnitFailed."""

    def __init__(
        self, systemctl: Sequence[str] = ("systemctl",), seconds: float = 30.0, limit: TimeLimit = NO_LIMIT
    ) -> None:
        self._systemctl = systemctl
        self._seconds = seconds
        self._limit = limit

    def within(self, limit: TimeLimit) -> "Systemd":
        """Return a manager for what must have ended by then."""
        return Systemd(self._systemctl, self._seconds, limit)

    def start(self, *units: str) -> None:
        """Return when they run, as their types mean it. Does nothing to those that do. Several take little
        more time than one."""
        self._act("start", *units)

    def stop(self, *units: str) -> None:
        """Return when all their processes have ended. Does nothing if they have."""
        self._act("stop", *units)

    def restart(self, unit: str) -> None:
        self._act("restart", unit)

    def is_active(self, unit: str) -> bool:
        """Return whether it runs. False, too, on a machine without systemd."""
        try:
            return self._run("is-active", unit).status == 0
        except ProgramFailed:
            return False

    def reload_running(self, *units: str) -> None:
        """Reload the units that can reload, and run. Several take little more time than one."""
        self._act("try-reload-or-restart", *units)

    def _act(self, verb: str, *units: str) -> None:
        for first in range(0, len(units), _AT_ONCE):
            several = units[first : first + _AT_ONCE]
            try:
                ended = self._run(verb, *several)
            except ProgramFailed as error:
                raise SystemdUnreachable(verb, join_names(several, 1), str(error)) from error
            if ended.status:
                raise UnitFailed(verb, join_names(several, 1), _reason(ended))

    def _run(self, verb: str, *units: str) -> EndedProgram:
        # A question for a password would last until the deadline.
        command = [*self._systemctl, "--no-ask-password", "--no-pager", "--quiet", verb, *units]
        return run(command, seconds=self._limit.left(self._seconds), most=_MOST)


def instance(template: str, name: str) -> str:
    """Return the unit of an instance: `gateway-pppoe@trunk0.300.service` of `gateway-pppoe@.service`."""
    return template.replace("@.", f"@{''.join(_escaped(name))}.", 1)


def _escaped(name: str) -> Iterator[str]:
    for place, one in enumerate(name):
        if _PLAIN.fullmatch(one) and (place or one != "."):
            yield one
        elif one == "/":
            yield "-"
        else:
            yield from (f"\\x{byte:02x}" for byte in one.encode())


def _reason(ended: EndedProgram) -> str:
    """The first line is the refusal, those behind it are advice."""
    lines = [line.strip() for line in ended.errors.decode("ascii", "replace").splitlines() if line.strip()]
    return re.sub(r"[^ -~]+", "?", lines[0])[:200] if lines else f"systemctl ended with {ended.status}"
