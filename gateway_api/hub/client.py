"""What the workers ask of the hub, one method a call."""

from typing import Any

import msgspec

from gateway_api.base.errors import Conflict, HubUnavailable, NotFound
from gateway_api.wire import hub as wire
from gateway_api.wire.contract import Method
from gateway_api.wire.hub import HUB
from gateway_api.wire.varlink.client import Client, Unreachable
from gateway_api.wire.varlink.protocol import ErrorReply


class Hub:
    """Every method raises HubUnavailable when the hub can't be asked."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def counts(self) -> wire.WebhookCounts:
        """For the metrics."""
        return msgspec.json.decode(self._call(wire.GetCounts()), type=wire.WebhookCounts)

    def webhooks(self) -> msgspec.Raw:
        """`webhooks` and `count`."""
        return self._call(wire.ListWebhooks())

    def webhook(self, id: str) -> Any:
        """One registration. Raises NotFound."""
        return self._field(wire.GetWebhook(id), "webhook")

    def add(self, url: str, events: list[str], secret: str | None) -> Any:
        """The new registration. Raises Conflict when there are too many."""
        return self._field(wire.AddWebhook(url, tuple(events), secret), "webhook")

    def remove(self, id: str) -> Any:
        """Ends a registration, and returns it. Raises NotFound."""
        return self._field(wire.RemoveWebhook(id), "webhook")

    def deliveries(self, id: str) -> msgspec.Raw:
        """`deliveries`, the newest first, and `count`. Raises NotFound."""
        return self._call(wire.ListDeliveries(id))

    def test(self, id: str) -> str:
        """The id of the message that is under way. Raises NotFound."""
        return str(self._field(wire.TestWebhook(id), "message_id"))

    def _field(self, call: Method[Any], name: str) -> Any:
        return msgspec.json.decode(self._call(call))[name]

    def _call(self, call: Method[Any]) -> msgspec.Raw:
        try:
            return self._client.call(HUB.method(type(call)), call)
        except Unreachable as error:
            raise HubUnavailable(str(error)) from error
        except ErrorReply as error:
            match error.name.removeprefix(f"{HUB.name}."):
                case "WebhookNotFound":
                    raise NotFound("No such webhook") from error
                case "TooManyWebhooks":
                    raise Conflict("There are 100 webhooks, which is the most there may be") from error
                case _:
                    raise HubUnavailable(f"the hub answered with {error.name}") from error
