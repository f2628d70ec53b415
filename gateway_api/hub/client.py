"""What the workers ask of the hub, one method a call."""

from typing import Any, TypeVar

import msgspec

from gateway_api.base.errors import Conflict, HubUnavailable, NotFound
from gateway_api.wire.varlink.client import Client, Unreachable
from gateway_api.wire.varlink.message import ErrorReply

_INTERFACE = "org.gatewayapi.hub"

T = TypeVar("T")


class Counts(msgspec.Struct, frozen=True):
    """How many webhooks there are, how many of them are paused, how many messages wait for them, and what
    became of the others."""

    webhooks: int
    paused: int
    waiting: int
    delivered: int
    failed: int
    skipped: int
    dropped: int


class Hub:
    """Every method raises HubUnavailable when the hub can't be asked."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def counts(self) -> Counts:
        """For the metrics."""
        return msgspec.json.decode(self._call("GetCounts"), type=Counts)

    def webhooks(self) -> msgspec.Raw:
        """`webhooks` and `count`."""
        return self._call("ListWebhooks")

    def webhook(self, id: str) -> Any:
        """One registration. Raises NotFound."""
        return self._field("GetWebhook", "webhook", id=id)

    def add(self, url: str, events: list[str], secret: str | None) -> Any:
        """The new registration. Raises Conflict when there are too many."""
        return self._field("AddWebhook", "webhook", url=url, events=events, secret=secret)

    def remove(self, id: str) -> None:
        """Raises NotFound."""
        self._call("RemoveWebhook", id=id)

    def deliveries(self, id: str) -> msgspec.Raw:
        """`deliveries`, the newest first, and `count`. Raises NotFound."""
        return self._call("ListDeliveries", id=id)

    def test(self, id: str) -> str:
        """The id of the message that is under way. Raises NotFound."""
        return str(self._field("TestWebhook", "message_id", id=id))

    def _field(self, method: str, name: str, **parameters: Any) -> Any:
        return msgspec.json.decode(self._call(method, **parameters))[name]

    def _call(self, method: str, **parameters: Any) -> msgspec.Raw:
        try:
            return self._client.call(f"{_INTERFACE}.{method}", parameters)
        except Unreachable as error:
            raise HubUnavailable(str(error)) from error
        except ErrorReply as error:
            match error.name.removeprefix(f"{_INTERFACE}."):
                case "WebhookNotFound":
                    raise NotFound("No such webhook") from error
                case "TooManyWebhooks":
                    raise Conflict("There are 100 webhooks, which is the most there may be") from error
                case _:
                    raise HubUnavailable(f"the hub answered with {error.name}") from error
