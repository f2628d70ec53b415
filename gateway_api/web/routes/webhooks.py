"""Receivers of events, and what became of what was sent to them."""

from typing import Any

from flask import Blueprint, Response, url_for

from gateway_api.web import access, audit, parse, responses
from gateway_api.web.context import hub
from gateway_api.web.records import Message, TestSent, listing
from gateway_api.web.schemas.requests import NewWebhook
from gateway_api.wire.hub import DeliveriesReply, Webhook, WebhooksReply

routes = Blueprint("webhooks", __name__, url_prefix="/api/v1/webhooks")


@routes.get("")
@access.any_role
@responses.data(listing(WebhooksReply))
def list_webhooks() -> Response:
    """All registrations. None outlives a restart of the API.

    One that fails three times in a row is paused, see `paused_until`.
    """
    return responses.ok(hub().webhooks())


@routes.post("")
@access.admin
@responses.data(Webhook, status=201, headers=("Location",), errors=(409,))
@parse.body(NewWebhook)
def register(body: dict[str, Any]) -> Response:
    """Registers a receiver. 409 when there are too many."""
    record = hub().add(**body)
    audit.note(after=record)
    response = responses.ok(record, 201)
    response.headers["Location"] = url_for(".show", webhook=record["id"])
    return response


@routes.get("/<webhook>")
@access.any_role
@responses.data(Webhook)
def show(webhook: str) -> Response:
    """One registration."""
    return responses.ok(hub().webhook(webhook))


@routes.delete("/<webhook>")
@access.admin
@responses.data(Message)
def delete(webhook: str) -> Response:
    """Ends a registration, and with it all that waits for the receiver."""
    audit.note(before=hub().remove(webhook))
    return responses.ok(Message(f"Webhook {webhook} deleted"))


@routes.get("/<webhook>/deliveries")
@access.any_role
@responses.data(listing(DeliveriesReply))
def deliveries(webhook: str) -> Response:
    """The last 100 attempts, the newest first.

    The failure that began a pause has `paused_until`; until then only what was tried before is sent.
    """
    return responses.ok(hub().deliveries(webhook))


@routes.post("/<webhook>/test")
@access.admin
@responses.data(TestSent)
def test(webhook: str) -> Response:
    """Sends a message that is only a test; its delivery shows in the log.

    It is sent while the webhook is paused, too, and ends the pause if it arrives.
    """
    return responses.ok(TestSent("A test is under way", hub().test(webhook)))
