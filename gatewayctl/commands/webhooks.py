"""Commands for webhooks, the receivers of events."""

import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import click

from gateway_client.errors import ExitStatus
from gateway_client.gateway import Record, RemoteGateway
from gateway_contract.core.sessions import EventName
from gateway_contract.events import DEFAULT_WEBHOOK_EVENTS
from gatewayctl import cli
from gatewayctl.completion import complete_field
from gatewayctl.errors import CommandError
from gatewayctl.results import HIGH, IDENTITY, LOW, WIDE, Column, Report, ResultList, Sheet
from gatewayctl.terminal import read_first_line
from gatewayctl.texts import escape, format_value

_WEBHOOKS_PATH = "/webhooks"
#: A receiver has 10 s to respond to a test.
_TEST_TIMEOUT_SECONDS = 12.0
_POLL_SECONDS = 0.25

_WEBHOOK_COLUMNS = (
    Column("id", IDENTITY), Column("url", IDENTITY), Column("events"), Column("origin", LOW),
    Column("state", HIGH), Column("failing_since"), Column("paused_until"),
)  # fmt: skip


def _describe_error(record: Record) -> str:
    drop_count = record.get("dropped")
    return f"{drop_count} dropped: the queue was full" if drop_count else format_value(record.get("error"))


_DELIVERY_COLUMNS = (
    Column("started_at", IDENTITY), Column("event"), Column("attempt"), Column("result", IDENTITY),
    Column("status"), Column("next_attempt_at"), Column("paused_until", LOW),
    Column("error", HIGH, value=_describe_error, can_wrap=True), Column("message_id", WIDE),
)  # fmt: skip

_webhook_argument = click.argument(
    "webhook", metavar="ID", type=complete_field(_WEBHOOKS_PATH, "webhooks", "id", "url")
)


def _get_webhook_path(webhook: str) -> str:
    return f"{_WEBHOOKS_PATH}/{quote(webhook, safe='')}"


@cli.group()
def webhooks() -> None:
    """Register and test the receivers of events.

    A restart of the API deletes webhooks that `add` registered. Webhooks in the configuration, at
    api.webhooks.receivers, stay.
    """


@webhooks.command("list")
@cli.read_command
def list_(gateway: RemoteGateway) -> ResultList:
    """List the webhooks."""
    return ResultList(gateway.get(_WEBHOOKS_PATH)["webhooks"], _WEBHOOK_COLUMNS)


@webhooks.command()
@click.argument("url")
@click.option(
    "--event", "events", metavar="NAME", multiple=True, default=DEFAULT_WEBHOOK_EVENTS,
    help=f"{', '.join(EventName)}; {' and '.join(DEFAULT_WEBHOOK_EVENTS)} by default.",
)  # fmt: skip
@click.option(
    "--secret-file", "secret", metavar="FILE",
    help="The secret for signatures is its first line; - is standard input.",
)  # fmt: skip
@cli.change_command
def add(gateway: RemoteGateway, url: str, events: Sequence[str], secret: str | None) -> Report:
    """Register a receiver, and print the id of the webhook."""
    body: dict[str, Any] = {"url": url, "events": list(events)}
    if secret is not None:
        body["secret"] = read_first_line(secret, "secret")
    webhook = gateway.send("POST", _WEBHOOKS_PATH, body)
    return Report(webhook["id"], webhook)


@webhooks.command()
@_webhook_argument
@cli.read_command
def show(gateway: RemoteGateway, webhook: str) -> Sheet:
    """Show one webhook."""
    return Sheet(gateway.get(_get_webhook_path(webhook)))


@webhooks.command()
@_webhook_argument
@cli.yes_option
@cli.change_command
def remove(gateway: RemoteGateway, webhook: str, yes: bool) -> Report:
    """Delete a webhook with its queue, after asking."""
    url = escape(gateway.get(_get_webhook_path(webhook))["url"])
    cli.confirm(f"Delete the webhook for {url}?", yes=yes, refusal="nothing was deleted")
    response = gateway.send("DELETE", _get_webhook_path(webhook))
    return Report(response["message"], response)


@webhooks.command()
@_webhook_argument
@cli.change_command
def test(gateway: RemoteGateway, webhook: str) -> Report:
    """Send a message to the receiver at once, and wait for the result."""
    id = gateway.send("POST", f"{_get_webhook_path(webhook)}/test")["message_id"]
    deadline = time.monotonic() + _TEST_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        for each in gateway.get(f"{_get_webhook_path(webhook)}/deliveries")["deliveries"]:
            if each["message_id"] == id and each["result"] == "delivered":
                return Report("delivered", each)
            if each["message_id"] == id:
                reason = each["error"] or f"status {each['status']}"
                raise CommandError(ExitStatus.REFUSED, f"not delivered: {escape(reason)}")
        time.sleep(_POLL_SECONDS)
    raise CommandError(
        ExitStatus.REFUSED, "the test has no result yet; gatewayctl webhooks deliveries shows it later"
    )


@webhooks.command()
@_webhook_argument
@cli.read_command
def deliveries(gateway: RemoteGateway, webhook: str) -> ResultList:
    """List the last deliveries of a webhook."""
    records = gateway.get(f"{_get_webhook_path(webhook)}/deliveries")["deliveries"]
    return ResultList(records, _DELIVERY_COLUMNS)
