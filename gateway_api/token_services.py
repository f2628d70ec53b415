"""The parts of one worker of the alternative profile."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gateway_api.daemon.calls import Calls
from gateway_api.daemon.commands import Daemon
from gateway_api.daemon.configuration import ConfigurationCommands
from gateway_api.varlink.client import Client

#: With the access check before it, a request has its answer within 5 s, come what may.
_CALL_TIMEOUT = 3.0


@dataclass(frozen=True)
class TokenServices:
    """What the routes work with. `clock` gives epoch seconds."""

    daemon: Daemon
    configuration: ConfigurationCommands
    clock: Callable[[], float]

    @classmethod
    def of_core(cls, socket: Path) -> "TokenServices":
        """To be called in the process that will use them, not before its fork."""
        calls = Calls(Client(socket, timeout=_CALL_TIMEOUT))
        return cls(Daemon(calls), ConfigurationCommands(calls), time.time)
