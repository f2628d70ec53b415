"""The parts of one worker of the alternative profile."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import gevent

from gateway_api.audit.log import AuditLog
from gateway_api.base.settings import TokenSettings
from gateway_api.daemon.calls import Calls
from gateway_api.daemon.commands import Daemon
from gateway_api.daemon.configuration import ConfigurationCommands
from gateway_api.daemon.whole_lists import WholeLists
from gateway_api.wire.varlink.client import Client

#: With the access check before it, a request has its answer within 5 s, come what may.
_CALL_TIMEOUT = 3.0


@dataclass(frozen=True)
class TokenServices:
    """What the routes work with. `clock` gives epoch seconds."""

    daemon: Daemon
    configuration: ConfigurationCommands
    audit: AuditLog
    whole_lists: WholeLists
    clock: Callable[[], float]

    @classmethod
    def from_settings(cls, settings: TokenSettings) -> "TokenServices":
        """To be called in the process that will use them, not before its fork."""
        calls = Calls(Client(settings.core_socket, timeout=_CALL_TIMEOUT))
        return cls(
            daemon=Daemon(calls),
            configuration=ConfigurationCommands(calls),
            audit=AuditLog(settings.audit, settings.audit_size, gevent.get_hub().threadpool),
            whole_lists=WholeLists(),
            clock=time.time,
        )
