"""The methods of the hub's interface, answered from a registry."""

import time

from gateway_api.base.errors import NotFound
from gateway_api.hub.message import test_message
from gateway_api.hub.registry import MOST, Full, Registration, Registry
from gateway_api.version import PRODUCT, VERSION
from gateway_api.wire import hub as wire
from gateway_api.wire.contract import served
from gateway_api.wire.hub import HUB
from gateway_api.wire.varlink.dispatcher import Identity, ServedInterface
from gateway_api.wire.varlink.protocol import ErrorReply

IDENTITY = Identity("gateway-api", f"{PRODUCT} hub", VERSION, "urn:gateway-api")


class HubService:
    """Serves one registry. What the workers send has been checked by them."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def interface(self) -> ServedInterface:
        """The interface with a handler for each of its methods."""
        return served(HUB, self)

    def get_counts(self, _: wire.GetCounts) -> wire.WebhookCounts:
        webhooks, paused, waiting, counts = self._registry.counts()
        return wire.WebhookCounts(webhooks, paused, waiting, **vars(counts))

    def list_webhooks(self, _: wire.ListWebhooks) -> wire.WebhooksReply:
        webhooks = tuple(_record(*found) for found in self._registry.webhooks())
        return wire.WebhooksReply(webhooks, len(webhooks))

    def get_webhook(self, call: wire.GetWebhook) -> wire.WebhookReply:
        try:
            return wire.WebhookReply(_record(*self._registry.webhook(call.id)))
        except NotFound as error:
            raise _not_found(call.id) from error

    def add_webhook(self, call: wire.AddWebhook) -> wire.WebhookReply:
        try:
            return wire.WebhookReply(_record(self._registry.add(call.url, call.events, call.secret), None))
        except Full as error:
            raise HUB.error(wire.TooManyWebhooksError(MOST)) from error

    def remove_webhook(self, call: wire.RemoveWebhook) -> wire.WebhookReply:
        try:
            return wire.WebhookReply(_record(*self._registry.remove(call.id)))
        except NotFound as error:
            raise _not_found(call.id) from error

    def list_deliveries(self, call: wire.ListDeliveries) -> wire.DeliveriesReply:
        try:
            deliveries = tuple(self._registry.queue(call.id).log())
        except NotFound as error:
            raise _not_found(call.id) from error
        return wire.DeliveriesReply(deliveries, len(deliveries))

    def test_webhook(self, call: wire.TestWebhook) -> wire.TestReply:
        message = test_message(time.time())
        try:
            self._registry.queue(call.id).test(message)
        except NotFound as error:
            raise _not_found(call.id) from error
        return wire.TestReply(message.id)


def _record(registration: Registration, paused_until: float | None) -> wire.Webhook:
    return wire.Webhook(registration.id, registration.url, registration.events, paused_until)


def _not_found(id: str) -> ErrorReply:
    return HUB.error(wire.WebhookNotFoundError(id))
