"""Services of one worker, and functions that return them to views."""

import time
from typing import cast

import gevent
from flask import current_app

from gateway_api.audit.log import AuditLog
from gateway_api.auth.ledger import Ledger, Revocations
from gateway_api.auth.login import Login, Throttle
from gateway_api.auth.tokens import AccessSettings, Authorization, Tokens
from gateway_api.base.core_events import Events
from gateway_api.base.settings import Settings
from gateway_api.events import Feeds, Streams
from gateway_api.history.reader import Reader
from gateway_api.hub.interface import Hub
from gateway_api.web.compression import Body, Compressor
from gateway_api.web.health import Host
from gateway_api.web.request import get_request
from gateway_api.web.whole_lists import WholeLists
from gateway_contract.core_client import CoreClient
from gateway_contract.varlink.client import Client

EXTENSION_NAME = "gateway-api"


class WorkerServices:
    """Services of one worker for the routes of both profiles. Must be created after the fork, in the process
    of the worker."""

    def __init__(self, settings: Settings, *, batches: bool = False) -> None:
        pool = gevent.get_hub().threadpool
        self.profile = settings.profile
        # Without users there are no batches: while lists are fetched, batches would delay health requests.
        self.core = CoreClient(Client(settings.core_socket, batches=batches))
        self.access = AccessSettings(self.core, settings.core_socket)
        self.audit = AuditLog(settings.audit, settings.max_audit_bytes, pool, settings.token_audit)
        self.whole_lists = WholeLists[Body]()
        self.compressor = Compressor()


class UserServices(WorkerServices):
    """Services of one worker for the routes of the profile USERS."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, batches=True)
        pool = gevent.get_hub().threadpool
        ledger = Ledger(settings.ledger, pool)
        self.tokens = Tokens(settings.secret, lambda: ledger.last_name, time.time)
        self.revocations = Revocations(ledger, time.time)
        self.authorization = Authorization(self.core, self.revocations, time.time)
        self.hub = Hub(Client(settings.hub_socket))
        self.history = Reader(settings.history, pool)
        self.streams = Streams(Events(self.core), self.authorization.check_tokens)
        self.traffic = Feeds(self.core)
        self.login = Login(Throttle(ledger, settings.secret, time.time), pool)
        self.host = Host.from_settings(settings, ledger)


def get_services() -> WorkerServices:
    """Return the services of this worker that both profiles have."""
    return cast(WorkerServices, current_app.extensions[EXTENSION_NAME])


def get_user_services() -> UserServices:
    """Return the services of this worker in the profile USERS."""
    return cast(UserServices, get_services())


def core() -> CoreClient:
    """Return the client of the core, for calls on behalf of the user of the current request."""
    request = get_request()
    return get_services().core.with_origin(request.user, request.make_call_id)


def hub() -> Hub:
    """Return the client of the hub."""
    return get_user_services().hub


def history() -> Reader:
    """Return the reader of the history, for the user of the current request."""
    return get_user_services().history.for_user(get_request().user or "")
