"""Webhooks: receivers of the events."""

import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import click

from gateway_contract.core.sessions import EventName
from gateway_contract.events import DEFAULT_EVENTS
from gatewayctl.client.gateway import Record, RemoteGateway
from gatewayctl.command import group
from gatewayctl.completion import listed
from gatewayctl.failures import CommandFailure, ExitStatus
from gatewayctl.invocation import acts, confirm, reads, yes_option
from gatewayctl.results import Importance, Report, ResultList, Sheet, ShownColumn, WholeRecord
from gatewayctl.terminal import first_line
from gatewayctl.texts import line, plain

_LIST = "/webhooks"
#: A receiver has 10 s for a test.
_TEST_SECONDS = 12.0
_POLL_SECONDS = 0.25

_COLUMNS = (
    ShownColumn("id", importance=Importance.IDENTITY),
    ShownColumn("url", importance=Importance.IDENTITY),
    ShownColumn("events"),
    ShownColumn("origin", importance=Importance.LOW),
    ShownColumn("state", importance=Importance.HIGH),
    ShownColumn("failing_since"),
    ShownColumn("paused_until"),
)


def _error(record: Record) -> str:
    dropped = record.get("dropped")
    return f"{dropped} dropped: the queue was full" if dropped else plain(record.get("error"))


_DELIVERIES = (
    ShownColumn("started_at", importance=Importance.IDENTITY),
    ShownColumn("event"),
    ShownColumn("attempt"),
    ShownColumn("result", importance=Importance.IDENTITY),
    ShownColumn("status"),
    ShownColumn("next_attempt_at"),
    ShownColumn("paused_until", importance=Importance.LOW),
    WholeRecord("error", value=_error, importance=Importance.HIGH, wraps=True),
    ShownColumn("message_id", importance=Importance.WIDE),
)

webhook = click.argument("webhook", metavar="ID", type=listed(_LIST, "webhooks", "id", "url"))


def _path(webhook: str) -> str:
    return f"{_LIST}/{quote(webhook, safe='')}"


@group()
def webhooks() -> None:
    """Registers and tests the receivers of events.

    A restart of the API deletes what `add` registered; those in the configuration, at api.webhooks.receivers,
    stay.
    """


@webhooks.command("list")
@reads
def list_(gateway: RemoteGateway) -> ResultList:
    """Lists the webhooks."""
    return ResultList(gateway.get(_LIST)["webhooks"], _COLUMNS)


@webhooks.command()
@acts
@click.argument("url")
@click.option(
    "--event",
    "events",
    metavar="NAME",
    multiple=True,
    default=DEFAULT_EVENTS,
    help=f"{', '.join(EventName)}; {' and '.join(DEFAULT_EVENTS)} by default.",
)
@click.option(
    "--secret-file",
    "secret",
    metavar="FILE",
    help="Its first line is the secret for signatures; - is standard input.",
)
def add(gateway: RemoteGateway, url: str, events: Sequence[str], secret: str | None) -> Report:
    """Registers a receiver, and prints the id of the webhook."""
    body: dict[str, Any] = {"url": url, "events": list(events)}
    if secret is not None:
        body["secret"] = first_line(secret, "secret")
    made = gateway.send("POST", _LIST, body)
    return Report(made["id"], made)


@webhooks.command()
@reads
@webhook
def show(gateway: RemoteGateway, webhook: str) -> Sheet:
    """Shows one webhook."""
    return Sheet(gateway.get(_path(webhook)))


@webhooks.command()
@acts
@webhook
@yes_option
def remove(gateway: RemoteGateway, webhook: str, yes: bool) -> Report:
    """Deletes a webhook with its queue, after it has asked."""
    url = line(gateway.get(_path(webhook))["url"])
    confirm(f"Delete the webhook for {url}?", yes=yes, otherwise="nothing was deleted")
    done = gateway.send("DELETE", _path(webhook))
    return Report(done["message"], done)


@webhooks.command()
@acts
@webhook
def test(gateway: RemoteGateway, webhook: str) -> Report:
    """Sends a message to the receiver at once, and waits for the result."""
    id = gateway.send("POST", f"{_path(webhook)}/test")["message_id"]
    deadline = time.monotonic() + _TEST_SECONDS
    while time.monotonic() < deadline:
        for each in gateway.get(f"{_path(webhook)}/deliveries")["deliveries"]:
            if each["message_id"] == id and each["result"] == "delivered":
                return Report("delivered", each)
            if each["message_id"] == id:
                why = each["error"] or f"status {each['status']}"
                raise CommandFailure(ExitStatus.REFUSED, f"not delivered: {line(why)}")
        time.sleep(_POLL_SECONDS)
    raise CommandFailure(
        ExitStatus.REFUSED, "the test has no result yet; gatewayctl webhooks deliveries shows it later"
    )


@webhooks.command()
@reads
@webhook
def deliveries(gateway: RemoteGateway, webhook: str) -> ResultList:
    """Lists the last deliveries of a webhook."""
    return ResultList(gateway.get(f"{_path(webhook)}/deliveries")["deliveries"], _DELIVERIES)
