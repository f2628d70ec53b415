"""Views of session events: the event stream, and the webhooks."""

from collections.abc import Iterable
from dataclasses import replace

from flask import Blueprint, Response, url_for

from gateway_api.events import StreamFilter, StreamTimes
from gateway_api.hub import interface as wire
from gateway_api.hub.interface import FAILURES_BEFORE_PAUSE, MAX_LOG_ENTRIES
from gateway_api.web import audit, records, responses
from gateway_api.web.access import ADMIN, ANY_ROLE
from gateway_api.web.operation import Created, operation, select_records
from gateway_api.web.request import get_caller_claims, get_request
from gateway_api.web.responses import EVENT_STREAM
from gateway_api.web.schemas import queries, requests
from gateway_api.web.services import get_user_services, hub
from gateway_contract.events import DEFAULT_STREAM_EVENTS, EVENTS, Gap

events = Blueprint("events", __name__, url_prefix="/api/v1/events")
webhooks = Blueprint("webhooks", __name__, url_prefix="/api/v1/webhooks")


def _join_names(names: Iterable[str]) -> str:
    """Return the names as a list in a sentence: `a`, `b` and `c`."""
    *others, last = (f"`{name}`" for name in names)
    return f"{', '.join(others)} and {last}"


_STREAM_DESCRIPTION = f"""\
Stream events without an end, from now on or after a given event.

After {StreamTimes.heartbeat:g} s without an event, a comment is sent, a line that begins with a colon. The
stream ends when the token ends. A client that reconnects with the id of its last event gets exactly the
events after this event. If the core daemon no longer holds these events, the client gets one `gap`: list the
sessions again, and continue.

A stream has the events {_join_names(DEFAULT_STREAM_EVENTS)}, unless `events` names other events of
{_join_names(event.stream_name for event in EVENTS.values())}. Webhooks send the same events with the names
{_join_names(EVENTS)}.

    id: 84a7e8343baf37f9-57
    event: session_up
    data: {{"id":7,"type":"PPPoE","username":"alice","ip_address":"100.64.0.5","at":1795271513,...}}
"""


@events.get("/subscribers", endpoint="subscribers")
@operation(
    ANY_ROLE,
    _STREAM_DESCRIPTION,
    query=queries.EventsQuery,
    media_type=EVENT_STREAM,
    events={**{event.stream_name: event.stream_data for event in EVENTS.values()}, "gap": Gap},
    errors=(429,),
)
def stream_events(query: StreamFilter) -> Response:
    """Stream events, without an end."""
    # The header has priority: a client that reconnects sends the newer id in the header, and the old query.
    stream_filter = replace(query, resume=get_request().read_last_event_id() or query.resume)
    return responses.make_stream(
        lambda address: get_user_services().streams.open(get_caller_claims(), address, stream_filter)
    )


_WEBHOOKS_DESCRIPTION = f"""\
List all webhooks: registered webhooks, which a restart of the API ends, and webhooks that the configuration
declares.

A webhook whose receiver fails {FAILURES_BEFORE_PAUSE} times in a row is paused, see `paused_until`.
"""


@webhooks.get("")
@operation(
    ANY_ROLE,
    _WEBHOOKS_DESCRIPTION,
    query=queries.make_list_query(wire.ListWebhooks),
    data=(records.make_list_record(wire.ListWebhooks),),
)
def list_webhooks(query: queries.ListSelection) -> wire.WebhooksReply:
    """List all webhooks."""
    return select_records(wire.ListWebhooks, hub().call(wire.ListWebhooks()), query)


_REGISTRATION_DESCRIPTION = f"""\
Register a receiver of events. 409 if there are too many webhooks.

The names of the events are {_join_names(EVENTS)}. The event stream has the same events with the names
{_join_names(event.stream_name for event in EVENTS.values())}.
"""


@webhooks.post("")
@operation(
    ADMIN, _REGISTRATION_DESCRIPTION, body=requests.WebhookRegistrationSchema, status=201, errors=(409,)
)
def register(body: wire.AddWebhook) -> Created[wire.Webhook]:
    """Register a receiver of events."""
    record = hub().call(body).webhook
    audit.note(after=record)
    return Created(record, url_for("webhooks.show", webhook=record.id))


@webhooks.get("/<webhook>")
@operation(ANY_ROLE)
def show(webhook: str) -> wire.Webhook:
    """Return a webhook."""
    return hub().call(wire.GetWebhook(webhook)).webhook


@webhooks.delete("/<webhook>")
@operation(ADMIN, errors=(409,))
def delete(webhook: str) -> records.Message:
    """Delete a registration, and the messages that wait for its receiver. 409 for a webhook that the
    configuration declares: a commit deletes such a webhook."""
    audit.note(before=hub().call(wire.RemoveWebhook(webhook)).webhook)
    return records.Message(f"Webhook {webhook} deleted")


_DELIVERIES_DESCRIPTION = f"""\
List the last {MAX_LOG_ENTRIES} delivery attempts, newest first.

The failure that began a pause has `paused_until`. Until this time, only retries are sent, and no new message.
"""


@webhooks.get("/<webhook>/deliveries", endpoint="deliveries")
@operation(
    ANY_ROLE,
    _DELIVERIES_DESCRIPTION,
    query=queries.make_list_query(wire.ListDeliveries),
    data=(records.make_list_record(wire.ListDeliveries),),
)
def list_deliveries(query: queries.ListSelection, webhook: str) -> wire.DeliveriesReply:
    """List the last delivery attempts, newest first."""
    return select_records(wire.ListDeliveries, hub().call(wire.ListDeliveries(webhook)), query)


@webhooks.post("/<webhook>/test")
@operation(ADMIN)
def test(webhook: str) -> records.TestSent:
    """Send a test message to a webhook. The log of deliveries shows the result.

    The message is also sent during a pause, and ends the pause if it arrives."""
    return records.TestSent("A test is under way", hub().call(wire.TestWebhook(webhook)).message_id)
