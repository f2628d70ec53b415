"""The services of one worker, and how views reach them."""

import time
from dataclasses import dataclass
from typing import Any, cast

import gevent
from flask import current_app

from gateway_api.audit.log import AuditLog
from gateway_api.auth.ledger import Ledger, Revocations
from gateway_api.auth.login import Failures, Login, Throttle
from gateway_api.auth.tokens import AccessSettings, Authorization, Tokens
from gateway_api.base.core_events import Events
from gateway_api.base.settings import Profile, Settings
from gateway_api.events.streams import Feeds, Streams
from gateway_api.history.reader import Reader
from gateway_api.hub.interface import Hub
from gateway_api.web.compression import Body, Compressor
from gateway_api.web.health import Host
from gateway_api.web.request import current
from gateway_api.web.whole_lists import WholeLists
from gateway_contract.core_client import CoreClient
from gateway_contract.varlink.client import Client

EXTENSION = "gateway-api"


@dataclass(frozen=True, kw_only=True)
class WorkerServices:
    """Used by the routes of either profile."""

    profile: Profile
    core: CoreClient
    access: AccessSettings
    audit: AuditLog
    whole_lists: WholeLists[Body]
    compressor: Compressor

    @classmethod
    def from_settings(cls, settings: Settings) -> "WorkerServices":
        """To be called in the process that uses them, not before its fork."""
        # Without batches: beside lists, health would take longer than it gains alone.
        return WorkerServices(**_common(settings, Client(settings.core_socket)))


@dataclass(frozen=True, kw_only=True)
class UserServices(WorkerServices):
    """Used by the routes of the profile with users."""

    tokens: Tokens
    revocations: Revocations
    authorization: Authorization
    streams: Streams
    traffic: Feeds
    hub: Hub
    history: Reader
    login: Login
    host: Host

    @classmethod
    def from_settings(cls, settings: Settings) -> "UserServices":
        common = _common(settings, Client(settings.core_socket, batches=True))
        core = common["core"]
        pool = gevent.get_hub().threadpool
        ledger = Ledger(settings.ledger, pool)
        revocations = Revocations(ledger, time.time)
        authorization = Authorization(core, revocations, time.time)
        return cls(
            **common,
            tokens=Tokens(settings.secret, lambda: ledger.last_name, time.time),
            revocations=revocations,
            authorization=authorization,
            hub=Hub(Client(settings.hub_socket)),
            history=Reader(settings.history, pool),
            streams=Streams(Events(core), authorization.still_allowed),
            host=Host.from_settings(settings, ledger),
            traffic=Feeds(core),
            login=Login(Throttle(Failures(ledger, settings.secret), time.time), pool),
        )


def _common(settings: Settings, client: Client) -> dict[str, Any]:
    core = CoreClient(client)
    return {
        "profile": settings.profile,
        "core": core,
        "access": AccessSettings(core, settings.core_socket),
        "audit": AuditLog(
            settings.audit, settings.audit_size, gevent.get_hub().threadpool, settings.token_audit
        ),
        "whole_lists": WholeLists(),
        "compressor": Compressor(),
    }


def services() -> WorkerServices:
    """Return the services of this worker that the routes of either profile use."""
    return cast(WorkerServices, current_app.extensions[EXTENSION])


def user_services() -> UserServices:
    """Return the services of this worker in the profile with users."""
    return cast(UserServices, services())


def core() -> CoreClient:
    """Return the core, for calls by the user of this request."""
    request = current()
    return services().core.with_origin(request.user, request.new_call_id)


def hub() -> Hub:
    return user_services().hub


def history() -> Reader:
    """Return the history, for the user of this request."""
    return user_services().history.for_user(current().user or "")
