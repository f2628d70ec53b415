"""The stream of session events."""

from typing import Any

from flask import Blueprint, Response, request

from gateway_api.events.streams import Wanted
from gateway_api.web import access, parse, responses
from gateway_api.web.context import caller, services
from gateway_api.web.schemas.queries import EventsQuery
from gateway_api.wire.events import Gap, SessionDown, SessionUp

routes = Blueprint("events", __name__, url_prefix="/api/v1/events")

# Without it nginx, and proxies that follow its convention, hold events back until a buffer is full.
_HEADERS = {"X-Accel-Buffering": "no"}


@routes.get("/subscribers")
@access.any_role
@responses.ViewResponse(
    media_type=responses.EVENT_STREAM,
    events={"session_up": SessionUp, "session_down": SessionDown, "gap": Gap},
    errors=(429,),
)
@parse.query(EventsQuery)
def subscribers(query: dict[str, Any]) -> Response:
    """A stream without an end: the events after a given one, or from now on.

    After 15 s without an event comes a line with a colon. The stream ends with the token. A client that
    reconnects with the id of its last event gets exactly the events after it. If the core daemon no longer
    holds them, it gets one `gap`: list the sessions again, and continue.

        id: 84a7e8343baf37f9-57
        event: session_up
        data: {"id":7,"type":"PPPoE","username":"alice","ip_address":"100.64.0.5","at":1795271513,...}
    """
    # The header first: a client that reconnects sends the newer id there, and the same query again.
    wanted = Wanted(**{**query, "resume": parse.last_event_id() or query["resume"]})
    client = request.remote_addr or ""
    pieces = services().streams.open(caller(), client, wanted) if request.method == "GET" else ()
    return Response(pieces, mimetype=responses.EVENT_STREAM, headers=_HEADERS)
