"""What happens to sessions, as it happens."""

from typing import Any

from flask import Blueprint, Response, request

from gateway_api.events.streams import Wanted
from gateway_api.web import access, parse
from gateway_api.web.context import caller, services
from gateway_api.web.schemas.requests import EventsQuery

routes = Blueprint("events", __name__, url_prefix="/api/v1/events")

_HEADERS = {
    "Cache-Control": "no-store",
    # nginx and those who learned from it would hold events back until a buffer is full.
    "X-Accel-Buffering": "no",
}


@routes.get("/subscribers")
@access.any_role
@parse.query(EventsQuery)
def subscribers(query: dict[str, Any]) -> Response:
    """A stream without an end: what comes after an event, or from now on."""
    # The header first: a source that comes back sends the newer id there, and the query of its URL again.
    wanted = Wanted(**{**query, "resume": parse.last_event_id() or query["resume"]})
    client = request.remote_addr or ""
    pieces = services().streams.open(caller(), client, wanted) if request.method == "GET" else ()
    return Response(pieces, mimetype="text/event-stream", headers=_HEADERS)
