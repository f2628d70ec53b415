"""Events of sessions: as a stream, and to webhooks."""

from typing import Any

from flask import Blueprint, Response, request, url_for

from gateway_api.events.streams import StreamFilter
from gateway_api.web import access, audit, headers, parse, responses
from gateway_api.web.records import Message, TestSent, listing
from gateway_api.web.schemas.queries import EventsQuery, short_list_query
from gateway_api.web.schemas.requests import NewWebhook
from gateway_api.web.services import caller, hub, services
from gateway_api.web.short_lists import selected
from gateway_api.wire import hub as wire
from gateway_api.wire.events import Gap, SessionDown, SessionUp

routes = Blueprint("events", __name__, url_prefix="/api/v1/events")
webhooks = Blueprint("webhooks", __name__, url_prefix="/api/v1/webhooks")


@routes.get("/subscribers")
@access.any_role
@responses.ViewResponse(
    media_type=responses.EVENT_STREAM,
    events={"session_up": SessionUp, "session_down": SessionDown, "gap": Gap},
    errors=(429,),
)
@parse.query(EventsQuery)
def subscribers(query: dict[str, Any]) -> Response:
    """An endless stream of events: those after a given event, or those from now on.

    After 15 s without an event, a comment is sent, a line that begins with a colon. The stream ends with the
    token. A client that reconnects with the id of its last event gets exactly the events after it. If the
    core daemon no longer holds them, it gets one `gap`: list the sessions again, and continue.

    The names of the events are `session_up` and `session_down`. Webhooks send the same events with the names
    `session.up` and `session.down`.

        id: 84a7e8343baf37f9-57
        event: session_up
        data: {"id":7,"type":"PPPoE","username":"alice","ip_address":"100.64.0.5","at":1795271513,...}
    """
    # The header first: a client that reconnects sends the newer id there, and the same query again.
    wanted = StreamFilter(**{**query, "resume": headers.last_event_id() or query["resume"]})
    client = request.remote_addr or ""
    pieces = services().streams.open(caller(), client, wanted) if request.method == "GET" else ()
    # The worker gets the pieces, and nothing around them that would live as long.
    return Response(
        pieces, mimetype=responses.EVENT_STREAM, headers=responses.UNBUFFERED, direct_passthrough=True
    )


@webhooks.get("")
@access.any_role
@responses.data(listing(wire.ListWebhooks))
@parse.query(short_list_query(wire.ListWebhooks))
def list_webhooks(query: dict[str, Any]) -> Response:
    """All webhooks: those that were registered, which a restart of the API ends, and those that the
    configuration declares.

    One that fails three times in a row is paused, see `paused_until`.
    """
    return responses.ok(selected(wire.ListWebhooks, hub().reply(wire.ListWebhooks()), **query))


@webhooks.post("")
@access.admin
@responses.data(wire.Webhook, status=201, headers=("Location",), errors=(409,))
@parse.body(NewWebhook)
def register(body: dict[str, Any]) -> Response:
    """Registers a receiver. 409 when there are too many.

    The names of the events are `session.up` and `session.down`. The event stream has the same events with the
    names `session_up` and `session_down`.
    """
    record = hub().reply(wire.AddWebhook(**body)).webhook
    audit.note(after=record)
    response = responses.ok(record, 201)
    response.headers["Location"] = url_for(".show", webhook=record.id)
    return response


@webhooks.get("/<webhook>")
@access.any_role
@responses.data(wire.Webhook)
def show(webhook: str) -> Response:
    """One webhook."""
    return responses.ok(hub().reply(wire.GetWebhook(webhook)).webhook)


@webhooks.delete("/<webhook>")
@access.admin
@responses.data(Message, errors=(409,))
def delete(webhook: str) -> Response:
    """Deletes a registration, and the messages that wait for its receiver. 409 for a declared one: a commit
    deletes it."""
    audit.note(before=hub().reply(wire.RemoveWebhook(webhook)).webhook)
    return responses.ok(Message(f"Webhook {webhook} deleted"))


@webhooks.get("/<webhook>/deliveries")
@access.any_role
@responses.data(listing(wire.ListDeliveries))
@parse.query(short_list_query(wire.ListDeliveries))
def deliveries(query: dict[str, Any], webhook: str) -> Response:
    """The last 100 attempts, the newest first.

    The failure that began a pause has `paused_until`. Until then, no new message is sent, only retries.
    """
    return responses.ok(selected(wire.ListDeliveries, hub().reply(wire.ListDeliveries(webhook)), **query))


@webhooks.post("/<webhook>/test")
@access.admin
@responses.data(TestSent)
def test(webhook: str) -> Response:
    """Sends a test message. The log of deliveries shows the result.

    It is also sent during a pause, and ends the pause if it arrives.
    """
    return responses.ok(TestSent("A test is under way", hub().reply(wire.TestWebhook(webhook)).message_id))
