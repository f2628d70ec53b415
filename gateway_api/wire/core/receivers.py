"""The core's contract for the receivers of webhooks that the configuration declares."""

from typing import Annotated

from gateway_api.wire.contract import Method, Record, about


class Receiver(Record, frozen=True):
    """A receiver of webhooks. No other has its URL."""

    url: Annotated[str, about("Receiver of the events.", "https://noc.example/hook")]
    events: Annotated[tuple[str, ...], about("session.up, session.down or both.", ["session.up"])]
    secret: Annotated[str | None, about("Signs what is sent: base64 of 24 to 64 bytes; null for none.")] = (
        None
    )


class ReceiversReply(Record, frozen=True):
    receivers: Annotated[tuple[Receiver, ...], about("All of them.")]


class FollowReceivers(Method[ReceiversReply], frozen=True):
    """The receivers of the running configuration with their secrets: those of now, and all of them again
    after each commit. Call it with more. A reply comes at least every 15 seconds."""

    streams = True
