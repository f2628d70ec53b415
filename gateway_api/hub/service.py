"""The methods of the hub's interface, answered from a registry."""

import time
from importlib.resources import files
from typing import Any

import msgspec

from gateway_api.base.errors import NotFound
from gateway_api.hub.message import test_message
from gateway_api.hub.registry import MOST, Full, Registry, Webhook
from gateway_api.version import PRODUCT, VERSION
from gateway_api.wire.varlink.dispatcher import Identity, Interface, Method, NoParameters
from gateway_api.wire.varlink.message import ErrorReply

INTERFACE = "org.gatewayapi.hub"

IDENTITY = Identity("gateway-api", f"{PRODUCT} hub", VERSION, "urn:gateway-api")


class AddWebhookCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str
    events: tuple[str, ...]
    secret: str | None = None


class WebhookCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str


class HubService:
    """Serves one registry. What the workers send has been checked by them."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def interface(self) -> Interface:
        """The interface with a handler for each of its methods."""
        return Interface(
            (files("gateway_api.wire") / f"{INTERFACE}.varlink").read_text(),
            {
                "GetCounts": Method(NoParameters, self.get_counts),
                "ListWebhooks": Method(NoParameters, self.list_webhooks),
                "GetWebhook": Method(WebhookCall, self.get_webhook),
                "AddWebhook": Method(AddWebhookCall, self.add_webhook),
                "RemoveWebhook": Method(WebhookCall, self.remove_webhook),
                "ListDeliveries": Method(WebhookCall, self.list_deliveries),
                "TestWebhook": Method(WebhookCall, self.test_webhook),
            },
        )

    def get_counts(self, _: NoParameters) -> dict[str, Any]:
        webhooks, paused, waiting, counts = self._registry.counts()
        return {"webhooks": webhooks, "paused": paused, "waiting": waiting, **vars(counts)}

    def list_webhooks(self, _: NoParameters) -> dict[str, Any]:
        webhooks = [_record(*found) for found in self._registry.webhooks()]
        return {"webhooks": webhooks, "count": len(webhooks)}

    def get_webhook(self, call: WebhookCall) -> dict[str, Any]:
        try:
            return {"webhook": _record(*self._registry.webhook(call.id))}
        except NotFound as error:
            raise _not_found(call.id) from error

    def add_webhook(self, call: AddWebhookCall) -> dict[str, Any]:
        try:
            return {"webhook": _record(self._registry.add(call.url, call.events, call.secret), None)}
        except Full as error:
            raise ErrorReply.of(f"{INTERFACE}.TooManyWebhooks", most=MOST) from error

    def remove_webhook(self, call: WebhookCall) -> dict[str, Any]:
        try:
            self._registry.remove(call.id)
        except NotFound as error:
            raise _not_found(call.id) from error
        return {}

    def list_deliveries(self, call: WebhookCall) -> dict[str, Any]:
        try:
            deliveries = self._registry.lane(call.id).log()
        except NotFound as error:
            raise _not_found(call.id) from error
        return {"deliveries": deliveries, "count": len(deliveries)}

    def test_webhook(self, call: WebhookCall) -> dict[str, Any]:
        message = test_message(time.time())
        try:
            self._registry.lane(call.id).test(message)
        except NotFound as error:
            raise _not_found(call.id) from error
        return {"message_id": message.id}


def _record(webhook: Webhook, paused_until: float | None) -> dict[str, Any]:
    shown = {"id": webhook.id, "url": webhook.url, "events": webhook.events}
    return {**shown, "paused_until": paused_until}


def _not_found(id: str) -> ErrorReply:
    return ErrorReply.of(f"{INTERFACE}.WebhookNotFound", id=id)
