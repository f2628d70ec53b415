"""The parts of one worker, built and joined."""

import time
from dataclasses import dataclass

import gevent

from gateway_api.audit.log import AuditLog
from gateway_api.auth.authorization import Standing
from gateway_api.auth.failures import Failures
from gateway_api.auth.ledger import name_of, open_ledger
from gateway_api.auth.login import Login
from gateway_api.auth.revocations import Revocations
from gateway_api.auth.throttle import Throttle
from gateway_api.auth.tokens import Tokens
from gateway_api.base.settings import Settings
from gateway_api.daemon.calls import Calls
from gateway_api.daemon.commands import Daemon
from gateway_api.daemon.configuration import ConfigurationCommands
from gateway_api.daemon.events import Events
from gateway_api.daemon.whole_lists import WholeLists
from gateway_api.events.streams import Streams
from gateway_api.hub.client import Hub
from gateway_api.wire.varlink.client import Client

#: With the access check before it, a request has its answer within 5 s, come what may.
_CALL_TIMEOUT = 3.0


@dataclass(frozen=True)
class Services:
    """What the routes work with."""

    daemon: Daemon
    configuration: ConfigurationCommands
    tokens: Tokens
    revocations: Revocations
    standing: Standing
    streams: Streams
    hub: Hub
    login: Login
    audit: AuditLog
    whole_lists: WholeLists

    @classmethod
    def from_settings(cls, settings: Settings) -> "Services":
        """To be called in the process that will use them, not before its fork."""
        ledger, synced = open_ledger(settings.ledger, synced=False), open_ledger(settings.ledger)
        pool = gevent.get_hub().threadpool
        client = Client(settings.core_socket, timeout=_CALL_TIMEOUT)
        calls = Calls(client)
        daemon = Daemon(calls)
        revocations = Revocations(ledger, synced, pool, time.time)
        standing = Standing(daemon, revocations, time.time)
        return cls(
            daemon=daemon,
            configuration=ConfigurationCommands(calls),
            tokens=Tokens(settings.secret, name_of(ledger), time.time),
            revocations=revocations,
            standing=standing,
            hub=Hub(Client(settings.hub_socket, timeout=_CALL_TIMEOUT)),
            streams=Streams(Events(client), standing.still_allowed),
            login=Login(Throttle(Failures(ledger, settings.secret), time.time), pool),
            audit=AuditLog(settings.audit, settings.audit_size, pool, beside=settings.token_audit),
            whole_lists=WholeLists(),
        )

    def stop(self) -> None:
        """Ends what would go on by itself."""
        self.streams.close()
