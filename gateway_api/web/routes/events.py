"""Events of sessions: as a stream, and to webhooks."""

from collections.abc import Iterable
from dataclasses import replace

from flask import Blueprint, Response, url_for

from gateway_api.events.broadcast import StreamTimes
from gateway_api.events.streams import StreamFilter
from gateway_api.hub import interface as wire
from gateway_api.hub.interface import LOGGED, PAUSE_AFTER
from gateway_api.web import audit, responses
from gateway_api.web.access import ADMIN, ANY_ROLE
from gateway_api.web.lists import select_records
from gateway_api.web.operation import Created, operation
from gateway_api.web.records import Message, TestSent, listing
from gateway_api.web.request import caller, current
from gateway_api.web.responses import EVENT_STREAM
from gateway_api.web.schemas.queries import EventsQuery, ListSelection, list_query
from gateway_api.web.schemas.requests import WebhookRegistrationSchema
from gateway_api.web.services import hub, user_services
from gateway_contract.events import DEFAULT_STREAM_EVENTS, EVENTS, Gap

events = Blueprint("events", __name__, url_prefix="/api/v1/events")
webhooks = Blueprint("webhooks", __name__, url_prefix="/api/v1/webhooks")


def _names(names: Iterable[str]) -> str:
    """Return the names as a list in a sentence."""
    *others, last = (f"`{name}`" for name in names)
    return f"{', '.join(others)} and {last}"


_HEARTBEAT = StreamTimes.heartbeat
_STREAM = f"""\
An endless stream of events: those after a given event, or those from now on.

After {_HEARTBEAT:g} s without an event, a comment is sent, a line that begins with a colon. The stream
ends with the token. A client that reconnects with the id of its last event gets exactly the events after it.
If the core daemon no longer holds them, the client gets one `gap`: list the sessions again, and continue.

A stream has {_names(DEFAULT_STREAM_EVENTS)}, unless `events` names others of
{_names(event.stream_name for event in EVENTS.values())}. Webhooks send the same events with the names
{_names(EVENTS)}.

    id: 84a7e8343baf37f9-57
    event: session_up
    data: {{"id":7,"type":"PPPoE","username":"alice","ip_address":"100.64.0.5","at":1795271513,...}}
"""


@events.get("/subscribers")
@operation(
    ANY_ROLE,
    _STREAM,
    query=EventsQuery,
    media_type=EVENT_STREAM,
    events={**{event.stream_name: event.stream_data for event in EVENTS.values()}, "gap": Gap},
    errors=(429,),
)
def subscribers(query: StreamFilter) -> Response:
    """An endless stream of events."""
    # The header first: a client that reconnects sends the newer id there, and the same query again.
    wanted = replace(query, resume=current().last_event_id() or query.resume)
    return responses.stream(lambda address: user_services().streams.open(caller(), address, wanted))


_WEBHOOKS = f"""\
All webhooks: those that were registered, which a restart of the API ends, and those that the configuration
declares.

A webhook whose receiver fails {PAUSE_AFTER} times in a row is paused, see `paused_until`.
"""


@webhooks.get("")
@operation(ANY_ROLE, _WEBHOOKS, query=list_query(wire.ListWebhooks), data=(listing(wire.ListWebhooks),))
def list_webhooks(query: ListSelection) -> wire.WebhooksReply:
    """All webhooks."""
    return select_records(wire.ListWebhooks, hub().call(wire.ListWebhooks()), query)


_REGISTRATION = f"""\
Registers a receiver. 409 when there are too many.

The names of the events are {_names(EVENTS)}. The event stream has the same events with the names
{_names(event.stream_name for event in EVENTS.values())}.
"""


@webhooks.post("")
@operation(ADMIN, _REGISTRATION, body=WebhookRegistrationSchema, status=201, errors=(409,))
def register(body: wire.AddWebhook) -> Created[wire.Webhook]:
    """Registers a receiver."""
    record = hub().call(body).webhook
    audit.note(after=record)
    return Created(record, url_for("webhooks.show", webhook=record.id))


@webhooks.get("/<webhook>")
@operation(ANY_ROLE)
def show(webhook: str) -> wire.Webhook:
    """One webhook."""
    return hub().call(wire.GetWebhook(webhook)).webhook


@webhooks.delete("/<webhook>")
@operation(ADMIN, errors=(409,))
def delete(webhook: str) -> Message:
    """Deletes a registration, and the messages that wait for its receiver. 409 for a declared one: a commit
    deletes it."""
    audit.note(before=hub().call(wire.RemoveWebhook(webhook)).webhook)
    return Message(f"Webhook {webhook} deleted")


_DELIVERIES = f"""\
The last {LOGGED} attempts, the newest first.

The failure that began a pause has `paused_until`. Until then, no new message is sent, only retries.
"""


@webhooks.get("/<webhook>/deliveries")
@operation(ANY_ROLE, _DELIVERIES, query=list_query(wire.ListDeliveries), data=(listing(wire.ListDeliveries),))
def deliveries(query: ListSelection, webhook: str) -> wire.DeliveriesReply:
    """The last attempts, the newest first."""
    return select_records(wire.ListDeliveries, hub().call(wire.ListDeliveries(webhook)), query)


@webhooks.post("/<webhook>/test")
@operation(ADMIN)
def test(webhook: str) -> TestSent:
    """Sends a test message. The log of deliveries shows the result.

    It is also sent during a pause, and ends the pause if it arrives.
    """
    return TestSent("A test is under way", hub().call(wire.TestWebhook(webhook)).message_id)
