"""What happens to sessions, as it happens."""

from typing import Any

from flask import Blueprint, Response, request

from gateway_api.events.streams import Wanted
from gateway_api.web import access, parse, responses
from gateway_api.web.context import caller, services
from gateway_api.web.schemas.events import Gap, SessionDown, SessionUp
from gateway_api.web.schemas.queries import EventsQuery

routes = Blueprint("events", __name__, url_prefix="/api/v1/events")

# nginx and those who learned from it would hold events back until a buffer is full.
_HEADERS = {"X-Accel-Buffering": "no"}


@routes.get("/subscribers")
@access.any_role
@responses.stream({"session_up": SessionUp, "session_down": SessionDown, "gap": Gap}, errors=(429,))
@parse.query(EventsQuery)
def subscribers(query: dict[str, Any]) -> Response:
    """A stream without an end: what comes after an event, or from now on.

    A line with a colon comes every 15 s in which nothing happens. The stream ends with the token. Who comes
    back with the id of the last event it has seen gets exactly what came after it; where the core daemon
    doesn't hold that any more, one `gap` says so: list the sessions again, and go on.

        id: 84a7e8343baf37f9-57
        event: session_up
        data: {"id":7,"type":"PPPoE","username":"alice","ip_address":"100.64.0.5","at":1795271513,...}
    """
    # The header first: a source that comes back sends the newer id there, and the query of its URL again.
    wanted = Wanted(**{**query, "resume": parse.last_event_id() or query["resume"]})
    client = request.remote_addr or ""
    pieces = services().streams.open(caller(), client, wanted) if request.method == "GET" else ()
    return Response(pieces, mimetype="text/event-stream", headers=_HEADERS)
