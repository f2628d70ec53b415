"""The contract `org.gatewayapi.hub` between the API's workers and the hub, which delivers messages to
webhooks; and the client of the hub."""

from typing import Annotated, Any

from gateway_contract.base.errors import Conflict, GatewayApiError, HubUnavailable, NotFound
from gateway_contract.contract import Contract, Enumeration, Failure, Method, Record, about, count
from gateway_contract.contract_client import ContractClient, decode
from gateway_contract.core.sessions import EventName
from gateway_contract.events import DEFAULT_WEBHOOK_EVENTS
from gateway_contract.varlink.client import Unreachable
from gateway_contract.varlink.protocol import ErrorReply

# The schedule of deliveries

#: Seconds for an attempt, from the connection to the status.
TIMEOUT = 10.0
#: Seconds from the end of a failed attempt to the next.
RETRY_DELAYS_SECONDS = (5.0, 30.0, 300.0)
#: Failures in a row that begin a pause.
FAILURES_BEFORE_PAUSE = 3
#: Seconds of the first pause, and of the longest: within the longest, the hub finds a receiver that is back.
SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 5.0, 15.0
#: Entries of a delivery log.
MAX_LOG_ENTRIES = 100


class DeliveryResult(Enumeration):
    """Result of an attempt to deliver a message."""

    DELIVERED = "delivered", "The receiver accepted the message."
    FAILED = "failed", "The attempt failed."
    SKIPPED = "skipped", "The last attempt failed, and there is no other."
    DROPPED = "dropped", "The queue was full: this message and those after it were dropped."


WebhookId = Annotated[str, about("Webhook id, given by the service.", "wh_0123456789abcdef")]
Url = Annotated[str, about("Receiver of the events.", "https://noc.example/hook")]
Events = Annotated[
    tuple[Annotated[str, about("Event name.", enum=[*EventName])], ...],
    about("Events to deliver.", [*DEFAULT_WEBHOOK_EVENTS]),
]
MessageId = Annotated[str, about("Same for every attempt of a message.", "84a7e8343baf37f9-57")]


class WebhookOrigin(Enumeration):
    """Origin of a webhook."""

    REGISTERED = "registered", "A request registered it. It ends with the API."
    DECLARED = "declared", "The running configuration declares it."


class WebhookState(Enumeration):
    """State of the deliveries of a webhook."""

    WELL = "well", "The last attempt succeeded, or there was none yet."
    FAILING = "failing", "The last attempt failed."
    PAUSED = "paused", "Attempts failed in a row. New messages wait for the end of the pause."


class Webhook(Record, frozen=True):
    """Receiver of events, registered by a request or declared in the configuration."""

    id: WebhookId
    url: Url
    events: Events
    paused_until: Annotated[
        float | None,
        about(
            "Set while the receiver is paused after failures in a row: when the next message may be sent to "
            "it, Unix epoch seconds. Null otherwise.",
            None,
        ),
    ]
    origin: Annotated[WebhookOrigin, about("Where it comes from.", "registered")] = WebhookOrigin.REGISTERED
    state: Annotated[WebhookState, about("How its deliveries go.", "well")] = WebhookState.WELL
    failing_since: Annotated[
        float | None,
        about("First failure since the last success, Unix epoch seconds; null while it is well.", None),
    ] = None


class Delivery(Record, frozen=True):
    """Entry of a delivery log."""

    message_id: MessageId
    event: Annotated[str, about("Event name.", "session.up")]
    attempt: Annotated[int, count("Number of the attempt, from 1 on; 0 for none.", 1)]
    result: Annotated[DeliveryResult, about("Result of the attempt.", "delivered")]
    status: Annotated[int | None, about("HTTP status of the receiver, null without one.", 204)] = None
    error: Annotated[str | None, about("Reason of a failure, else null.", "Connection refused")] = None
    started_at: Annotated[float | None, about("When it began, Unix epoch seconds.", 1795271513.25)] = None
    duration: Annotated[float | None, about("How long it took, seconds.", 0.012)] = None
    next_attempt_at: Annotated[
        float | None, about("Next attempt, Unix epoch seconds; null for none.", None)
    ] = None
    paused_until: Annotated[
        float | None, about("End of the pause that its failure began, Unix epoch seconds, or null.", None)
    ] = None
    dropped: Annotated[int, count("Messages dropped, because too many waited.", 0)] = 0


class WebhookCounts(Record, frozen=True):
    webhooks: Annotated[int, count("Webhooks.", 1)]
    paused: Annotated[int, count("Webhooks whose receiver is paused.", 0)]
    waiting: Annotated[int, count("Messages that wait to be delivered.", 0)]
    delivered: Annotated[int, count("Messages that were delivered.", 57)]
    failed: Annotated[int, count("Attempts that failed.", 0)]
    skipped: Annotated[int, count("Messages that were given up after the last attempt.", 0)]
    dropped: Annotated[int, count("Messages for which there was no room.", 0)]


class GetCounts(Method[WebhookCounts], frozen=True):
    """Return the number of webhooks, and the numbers of waiting, delivered, failed and dropped messages."""


class WebhooksReply(Record, frozen=True):
    """List of the hub's webhooks."""

    webhooks: Annotated[tuple[Webhook, ...], about("All webhooks, the oldest first.")]
    count: Annotated[int, count("How many there are.", 1)]


class ListWebhooks(Method[WebhooksReply], frozen=True):
    """List all webhooks, oldest first."""


class WebhookReply(Record, frozen=True):
    webhook: Annotated[Webhook, about("The registration.")]


class GetWebhook(Method[WebhookReply], frozen=True):
    """Return a webhook."""

    id: WebhookId


class AddWebhook(Method[WebhookReply], frozen=True):
    """Register a webhook."""

    url: Url
    events: Events
    secret: Annotated[
        str | None,
        about(
            "Signs what is sent: base64 of 24 to 64 bytes, with `whsec_` before it or without.",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        ),
    ] = None


class RemoveWebhook(Method[WebhookReply], frozen=True):
    """Delete a registered webhook and its waiting messages. The reply contains the last record of the
    webhook. Fails for a declared webhook."""

    id: WebhookId


class DeliveriesReply(Record, frozen=True):
    """Delivery log of a webhook."""

    deliveries: Annotated[tuple[Delivery, ...], about("Attempts, the newest first.")]
    count: Annotated[int, count("How many there are.", 1)]


class ListDeliveries(Method[DeliveriesReply], frozen=True):
    """List the last 100 entries of the delivery log of a webhook, newest first."""

    id: WebhookId


class TestReply(Record, frozen=True):
    message_id: MessageId


class TestWebhook(Method[TestReply], frozen=True):
    """Send a test message, with the same retries as other messages. The message is sent even during a pause,
    and its success ends the pause."""

    id: WebhookId


class WebhookNotFoundError(Failure, frozen=True):
    """Error about a webhook: no webhook has that id."""

    id: WebhookId


class WebhookDeclaredError(Failure, frozen=True):
    """Refusal to remove a webhook: the configuration declares the webhook, and only a commit can remove
    it."""

    path: Annotated[
        str, about("Its path in the configuration.", 'api.webhooks.receivers."https://noc.example/hook"')
    ]


class TooManyWebhooksError(Failure, frozen=True):
    """Refusal to add a webhook: the number of registered webhooks is at its limit."""

    most: Annotated[int, about("The limit.", 100)]


HUB = Contract(
    "org.gatewayapi.hub",
    """The hub of the management API, one for all of its workers. Only they call it, at a socket of their own.
    Times are Unix epoch seconds.""",
    (GetCounts, ListWebhooks, GetWebhook, AddWebhook, RemoveWebhook, ListDeliveries, TestWebhook),
    (WebhookNotFoundError, WebhookDeclaredError, TooManyWebhooksError),
)


class Hub(ContractClient):
    """Client of the hub. Methods raise HubUnavailable, NotFound for an unknown webhook, and Conflict if there
    are too many webhooks or if a declared webhook would be removed."""

    contract, unavailable = HUB, HubUnavailable

    def translate_error(self, error: Unreachable | ErrorReply, call: Method[Any]) -> GatewayApiError:
        if not isinstance(error, ErrorReply):
            return super().translate_error(error, call)
        match error.name.removeprefix(f"{HUB.name}."):
            case "WebhookNotFound":
                return NotFound("No such webhook")
            case "WebhookDeclared":
                path = decode(WebhookDeclaredError, error.parameters, HubUnavailable).path
                return Conflict(f"The configuration declares it: delete {path}, and commit")
            case "TooManyWebhooks":
                most = decode(TooManyWebhooksError, error.parameters, HubUnavailable).most
                return Conflict(f"There are {most} webhooks, which is the most there may be")
            case _:
                return HubUnavailable(f"the hub replied with {error.name}")
