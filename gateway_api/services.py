"""The parts of one worker, built and joined."""

import time
from dataclasses import dataclass

import gevent

from gateway_api.auth.ledger import open_ledger
from gateway_api.auth.login import Login
from gateway_api.auth.revocations import Revocations
from gateway_api.auth.throttle import Throttle
from gateway_api.auth.tokens import Tokens
from gateway_api.daemon.calls import Calls
from gateway_api.daemon.commands import Daemon
from gateway_api.daemon.configuration import ConfigurationCommands
from gateway_api.settings import Settings
from gateway_api.varlink.client import Client

#: With the access check before it, a request has its answer within 5 s, come what may.
_CALL_TIMEOUT = 3.0


@dataclass(frozen=True)
class Services:
    """What the routes work with."""

    daemon: Daemon
    configuration: ConfigurationCommands
    tokens: Tokens
    revocations: Revocations
    login: Login

    @classmethod
    def from_settings(cls, settings: Settings) -> "Services":
        """To be called in the process that will use them, not before its fork."""
        ledger = open_ledger(settings.ledger)
        calls = Calls(Client(settings.core_socket, timeout=_CALL_TIMEOUT))
        return cls(
            daemon=Daemon(calls),
            configuration=ConfigurationCommands(calls),
            tokens=Tokens(settings.secret, time.time),
            revocations=Revocations(ledger, time.time),
            login=Login(Throttle(ledger, time.time), gevent.get_hub().threadpool),
        )
