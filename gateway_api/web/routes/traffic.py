"""The traffic of sessions now."""

from functools import partial
from typing import Any

import msgspec
from flask import Response, request

from gateway_api.web import responses
from gateway_api.web.operation import ANY_ROLE, EVENT_STREAM, GET, Passed, Routes
from gateway_api.web.request import caller
from gateway_api.web.schemas.queries import TalkersQuery
from gateway_api.web.services import daemon, services
from gateway_api.wire.core.traffic import TalkersReply, TrafficReply, WatchTraffic
from gateway_api.wire.events import Ended


def index(talkers: msgspec.Raw, query: dict[str, Any]) -> Passed[TalkersReply]:
    """The sessions with the most traffic now, or the least.

    The core daemon reads the counters of all sessions at most every five seconds, and only while a client
    requests them. The first request after a pause takes a second, in which the counters are read twice.
    """
    return Passed(talkers)


def watch(id: int) -> Response:
    """The traffic of a session each second, as an endless stream of events.

    The rates are the difference of two samples of the counters, divided by the time between them. A client
    that reads slowly gets the newest event next. The stream ends with the token, and with the session: its
    last event is `ended`.

        event: traffic
        data: {"at":1795271513,"interval_ms":1000,"down_bps":5213400,"up_bps":301120,"down_pps":543,...}
    """
    parts = services()
    daemon().session(id)
    daemon().require(WatchTraffic(id))
    parts.traffic.check(id)
    follow = partial(parts.traffic.pieces, id=id)
    client = request.remote_addr or ""
    is_head = request.method != "GET"
    return responses.stream(() if is_head else parts.streams.open_with(caller(), client, follow))


routes = Routes(
    "traffic",
    "/api/v1/subscribers",
    GET(
        "/traffic",
        index,
        ANY_ROLE,
        query=TalkersQuery,
        read=lambda core, query: core.talkers(query),
        errors=(501,),
    ),
    GET(
        "/<session:id>/traffic",
        watch,
        ANY_ROLE,
        media_type=EVENT_STREAM,
        events={"traffic": TrafficReply, "ended": Ended},
        resumable=False,
        errors=(429, 501),
    ),
)
