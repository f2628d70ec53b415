"""`org.gatewayapi.hub`: the contract between the workers of the API and the hub, which delivers to
webhooks."""

from typing import Annotated

from gateway_api.wire.contract import Contract, Enumeration, Failure, Method, Record, about, count


class DeliveryResult(Enumeration):
    """What came of an attempt."""

    DELIVERED = "delivered", "The receiver accepted the message."
    FAILED = "failed", "The attempt failed."
    SKIPPED = "skipped", "The last attempt failed, and there is no other."
    DROPPED = "dropped", "There was no room for so many messages from this one on."


WebhookId = Annotated[str, about("Webhook id, given by the service.", "wh_0123456789abcdef")]
Url = Annotated[str, about("Where events are posted to.", "https://noc.example/hook")]
Events = Annotated[
    tuple[Annotated[str, about("Event name.", enum=["session.up", "session.down"])], ...],
    about("Events that it gets.", ["session.up", "session.down"]),
]
MessageId = Annotated[str, about("Same for every attempt of a message.", "84a7e8343baf37f9-57")]


class Webhook(Record, frozen=True):
    """A registration."""

    id: WebhookId
    url: Url
    events: Events
    paused_until: Annotated[
        float | None,
        about(
            "Set while the receiver is paused, because it failed in a row: when one message is sent to it, "
            "or the next one to come after that, Unix epoch seconds. Null otherwise.",
            None,
        ),
    ]


class Delivery(Record, frozen=True):
    """An entry of a delivery log."""

    message_id: MessageId
    event: Annotated[str, about("Event name.", "session.up")]
    attempt: Annotated[int, count("Number of the attempt, from 1 on; 0 for none.", 1)]
    result: Annotated[DeliveryResult, about("What came of it.", "delivered")]
    status: Annotated[int | None, about("HTTP status of the receiver, null without one.", 204)] = None
    error: Annotated[str | None, about("Why it failed, null when it didn't.", None)] = None
    started_at: Annotated[float | None, about("When it began, Unix epoch seconds.", 1795271513.25)] = None
    duration: Annotated[float | None, about("How long it took, seconds.", 0.012)] = None
    next_attempt_at: Annotated[
        float | None, about("When it is tried again, Unix epoch seconds; null for never.", None)
    ] = None
    paused_until: Annotated[
        float | None,
        about("Until when its failure paused the receiver, Unix epoch seconds; null if it didn't.", None),
    ] = None
    dropped: Annotated[int, count("Messages dropped, since too many waited.", 0)] = 0


class WebhookCounts(Record, frozen=True):
    """How many webhooks and messages there are, and what became of the messages before."""

    webhooks: Annotated[int, count("Registrations.", 1)]
    paused: Annotated[int, count("Registrations whose receiver is paused.", 0)]
    waiting: Annotated[int, count("Messages that wait to be delivered.", 0)]
    delivered: Annotated[int, count("Messages that were delivered.", 57)]
    failed: Annotated[int, count("Attempts that failed.", 0)]
    skipped: Annotated[int, count("Messages that were given up after the last attempt.", 0)]
    dropped: Annotated[int, count("Messages for which there was no room.", 0)]


class GetCounts(Method[WebhookCounts], frozen=True):
    """How many webhooks there are, how many of them are paused, how many messages wait for them, and what
    became of the others."""


class WebhooksReply(Record, frozen=True):
    """The registrations."""

    webhooks: Annotated[tuple[Webhook, ...], about("All registrations, the oldest first.")]
    count: Annotated[int, count("How many there are.", 1)]


class ListWebhooks(Method[WebhooksReply], frozen=True):
    """All registrations, the oldest first."""


class WebhookReply(Record, frozen=True):
    """One registration."""

    webhook: Annotated[Webhook, about("The registration.")]


class GetWebhook(Method[WebhookReply], frozen=True):
    """One registration."""

    id: WebhookId


class AddWebhook(Method[WebhookReply], frozen=True):
    """Registers a receiver."""

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
    """Ends a registration, and with it all that waits for the receiver. The reply has it as it was."""

    id: WebhookId


class DeliveriesReply(Record, frozen=True):
    """A delivery log."""

    deliveries: Annotated[tuple[Delivery, ...], about("Attempts, the newest first.")]
    count: Annotated[int, count("How many there are.", 1)]


class ListDeliveries(Method[DeliveriesReply], frozen=True):
    """The last 100 entries of a webhook's delivery log, newest first."""

    id: WebhookId


class TestReply(Record, frozen=True):
    """A test that is under way."""

    message_id: MessageId


class TestWebhook(Method[TestReply], frozen=True):
    """Sends a message that is only a test, and is tried again like any other. It is sent in a pause, too, and
    may end the pause."""

    id: WebhookId


class WebhookNotFoundError(Failure, frozen=True):
    """There is no registration of that id."""

    id: WebhookId


class TooManyWebhooksError(Failure, frozen=True):
    """There are as many registrations as there may be."""

    most: Annotated[int, about("How many there may be.", 100)]


HUB = Contract(
    "org.gatewayapi.hub",
    """The hub of the management API: what is one for all of its workers. It serves them at a socket of their
    own, and nobody else is meant to call it. Times are Unix epoch seconds.""",
    (GetCounts, ListWebhooks, GetWebhook, AddWebhook, RemoveWebhook, ListDeliveries, TestWebhook),
    (WebhookNotFoundError, TooManyWebhooksError),
)
