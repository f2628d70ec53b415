"""The alternative profile: seven paths, behind one token. Rates and times are texts for people."""

import time
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec
from flask import Blueprint, Response

from gateway_api.auth.tokens import AUTHOR
from gateway_api.base.texts import rate_text
from gateway_api.base.turns import Turns
from gateway_api.core_client.calls import decoded
from gateway_api.web import access, headers, lists, parse, responses
from gateway_api.web.routes import configuration, network, subscribers
from gateway_api.web.schemas.queries import SubscribersQuery
from gateway_api.web.services import daemon
from gateway_api.wire.core.sessions import GetHealth

#: Sessions. A list of 100,000 would block the worker for half a second.
_TURN = 1000
#: Most sessions have one of a few rates.
_rate_text = lru_cache(1024)(rate_text)

routes = Blueprint("token_profile", __name__, url_prefix="/api/v1")


class _Summary(msgspec.Struct, gc=False):
    id: int
    username: str
    ip_address: str | None
    interface: str
    rate_down: int
    rate_up: int
    started_at: int


class _Detail(msgspec.Struct):
    rate_down_bps: int
    rate_up_bps: int
    started_at: int


class _Subscriber(msgspec.Struct, frozen=True, gc=False):
    id: int
    username: str
    ip_address: str | None
    interface: str
    speed_down: str
    speed_up: str
    uptime: str


@routes.get("/subscribers")
@access.any_role
@lists.query(SubscribersQuery)
def index(query: dict[str, Any]) -> Response:
    """All sessions that match the filters, or a page of them."""
    found = daemon().list_sessions(**query)
    return responses.ok({"subscribers": _subscribers(found.arrays, time.time()), **found.others})


@routes.get("/subscribers/<id>")
@access.any_role
def show(id: str) -> Response:
    """One session with its counters."""
    session, now = daemon().session(parse.session_id(id)), time.time()
    detail = decoded(_Detail, session)
    texts = {
        "speed_down": _rate_text(detail.rate_down_bps),
        "speed_up": _rate_text(detail.rate_up_bps),
        "uptime": uptime(detail.started_at, now),
    }
    return responses.ok({**decoded(dict[str, msgspec.Raw], session), **texts})


# The same views as in the other profile.
routes.delete("/subscribers/<id>")(subscribers.disconnect)
routes.get("/vlans")(network.vlans)
routes.get("/config")(configuration.running)


@routes.put("/config")
@access.admin
def replace() -> Response:
    """Commits a whole configuration, or changes nothing. 409 while the candidate has changes."""
    committed = daemon().replace(parse.json_object(), AUTHOR, headers.if_match())
    return configuration.committed_response(committed)


@routes.get("/system/status")
@access.any_role
def status() -> Response:
    """The state of this gateway; 500 while the core is unavailable."""
    health = daemon().reply(GetHealth())
    since = {"uptime": uptime(0, health.uptime_seconds), "core_reachable": True}
    return responses.ok({**msgspec.structs.asdict(health), **since})


def _subscribers(arrays: Iterable[msgspec.Raw], now: float) -> list[_Subscriber]:
    made, turns = [], Turns(_TURN)
    for session in chain.from_iterable(decoded(list[_Summary], array) for array in arrays):
        turns.worked(1)
        made.append(
            _Subscriber(
                session.id,
                session.username,
                session.ip_address,
                session.interface,
                _rate_text(session.rate_down),
                _rate_text(session.rate_up),
                uptime(session.started_at, now),
            )
        )
    return made


def uptime(since: float, now: float) -> str:
    """Between two moments, in epoch seconds, as `1d 02:03:04`. Never negative: two clocks may differ."""
    minutes, seconds = divmod(max(0, int(now - since)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    clock = f"{hours:02}:{minutes:02}:{seconds:02}"
    return f"{days}d {clock}" if days else clock
