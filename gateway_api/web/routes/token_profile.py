"""Routes of the alternative profile: seven paths that require one static token. Rates and times are texts."""

import time
from functools import lru_cache
from typing import Any

import msgspec
from flask import Blueprint

from gateway_api.web import records, responses
from gateway_api.web.access import ADMIN, ANY_ROLE
from gateway_api.web.operation import RawJson, WithETag, list_operation, operation
from gateway_api.web.request import get_request
from gateway_api.web.routes import configuration, network, subscribers
from gateway_api.web.schemas import queries
from gateway_api.web.services import core
from gateway_contract.base.texts import format_rate
from gateway_contract.base.turns import give_way
from gateway_contract.contract import record_of
from gateway_contract.core.sessions import GetHealth, Health, ListSessions, SessionDetail
from gateway_contract.core_client import Fields, ListParts, decode_part

#: Number of sessions that are encoded, in about a millisecond, before other requests are served.
_SESSIONS_PER_TURN = 250
#: Cached, because most sessions have one of a few rates.
_format_rate = lru_cache(1024)(format_rate)


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


class _Status(Health, frozen=True):
    uptime: str
    core_reachable: bool


token_profile = Blueprint("token_profile", __name__, url_prefix="/api/v1")


def encode_list(parts: ListParts) -> bytes:
    """Return a list of sessions as JSON in the format of this profile. Other requests are served
    meanwhile."""
    now, arrays = time.time(), []
    for array in parts.arrays:
        subscribers = []
        for number, session in enumerate(decode_part(list[_Summary], array)):
            if number % _SESSIONS_PER_TURN == 0:
                give_way()
            speeds = _format_rate(session.rate_down), _format_rate(session.rate_up)
            identity = session.id, session.username, session.ip_address, session.interface
            subscribers.append(_Subscriber(*identity, *speeds, format_uptime(session.started_at, now)))
        arrays.append(msgspec.Raw(msgspec.json.encode(subscribers)))
    return responses.encode_list(ListParts("subscribers", arrays, parts.others))


def format_uptime(since: float, now: float) -> str:
    """Return the time between two moments, in epoch seconds, as `1d 02:03:04`. A negative time counts as
    0."""
    minutes, seconds = divmod(max(0, int(now - since)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    clock = f"{hours:02}:{minutes:02}:{seconds:02}"
    return f"{days}d {clock}" if days else clock


@token_profile.get("/subscribers", endpoint="index")
@list_operation(ListSessions, queries.SubscribersQuery, encode=encode_list)
def list_sessions(query: queries.ListSelection) -> ListParts:
    """List the sessions that match the filters."""
    return core().list_sessions(query.filter, query.sort, query.page)


@token_profile.get("/subscribers/<id>")
@operation(ANY_ROLE)
def show(id: int) -> RawJson[SessionDetail]:
    """Return a session with its counters."""
    session = core().get_session(id)
    now, detail = time.time(), decode_part(_Detail, session)
    texts = {
        "speed_down": _format_rate(detail.rate_down_bps),
        "speed_up": _format_rate(detail.rate_up_bps),
        "uptime": format_uptime(detail.started_at, now),
    }
    return RawJson({**decode_part(Fields, session), **texts})


token_profile.add_url_rule("/subscribers/<id>", "disconnect", subscribers.disconnect, methods=["DELETE"])
token_profile.add_url_rule("/vlans", "vlans", network.list_vlans)
token_profile.add_url_rule("/config", "running", configuration.show_running)


@token_profile.put("/config", endpoint="replace")
@operation(ADMIN, body=records.Configuration)
def replace_configuration(body: dict[str, Any]) -> WithETag[records.Committed]:
    """Replace and commit the whole configuration, or change nothing on error. 409 while the candidate has
    changes."""
    return configuration.report_commit(core().replace(body, get_request().read_required_etags()))


@token_profile.get("/system/status", endpoint="status")
@operation(ANY_ROLE)
def show_status() -> _Status:
    """Return the state of this gateway; 500 while the core is unavailable."""
    health = core().call(GetHealth())
    since = format_uptime(0, health.uptime_seconds)
    return record_of(_Status, health, uptime=since, core_reachable=True)
