"""The traffic of sessions now."""

from functools import partial
from typing import Any

from flask import Blueprint, Response, request

from gateway_api.web import access, parse, responses
from gateway_api.web.schemas.queries import TalkersQuery
from gateway_api.web.services import caller, daemon, services
from gateway_api.wire.core.traffic import TalkersReply, TrafficReply, WatchTraffic
from gateway_api.wire.events import Ended

routes = Blueprint("traffic", __name__, url_prefix="/api/v1/subscribers")


@routes.get("/traffic")
@access.any_role
@access.together
@responses.data(TalkersReply, errors=(501,))
@parse.query(TalkersQuery)
def index(query: dict[str, Any]) -> Response:
    """The sessions with the most traffic now, or the least.

    The core daemon reads the counters of all sessions at most every five seconds, and only while a client
    requests them. The first request after a pause takes a second, in which the counters are read twice.
    """
    return responses.ok(daemon().talkers(query))


@routes.get("/<session:id>/traffic")
@access.any_role
@responses.ViewResponse(
    media_type=responses.EVENT_STREAM,
    events={"traffic": TrafficReply, "ended": Ended},
    resumable=False,
    errors=(429, 501),
)
def watch(id: str) -> Response:
    """The traffic of a session each second, as an endless stream of events.

    The rates are the difference of two samples of the counters, divided by the time between them. A client
    that reads slowly gets the newest event next. The stream ends with the token, and with the session: its
    last event is `ended`.

        event: traffic
        data: {"at":1795271513,"interval_ms":1000,"down_bps":5213400,"up_bps":301120,"down_pps":543,...}
    """
    session, parts = parse.session_id(id), services()
    daemon().session(session)
    daemon().require(WatchTraffic(session))
    parts.traffic.check(session)
    follow = partial(parts.traffic.pieces, id=session)
    client = request.remote_addr or ""
    pieces = parts.streams.open_with(caller(), client, follow) if request.method == "GET" else ()
    return Response(
        pieces, mimetype=responses.EVENT_STREAM, headers=responses.UNBUFFERED, direct_passthrough=True
    )
