"""Command that prints session events when they happen."""

import queue
import re
import signal
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import click

from gateway_client.errors import ClientError, ExitStatus
from gateway_client.gateway import Event, EventFollower, Record, SignOnFollower
from gateway_contract.base.texts import format_rate
from gateway_contract.events import DEFAULT_STREAM_EVENTS, EVENTS
from gatewayctl import cli
from gatewayctl.completion import GatewayWords
from gatewayctl.errors import get_exit_status_of_many
from gatewayctl.results import CONTEXT, StreamPrinter
from gatewayctl.terminal import print_errors
from gatewayctl.texts import NOTHING, escape, format_time, format_value

_trunk_type = GatewayWords(
    lambda gateway, _: [(name, "") for name in gateway.get("/system/config")["interfaces"]["trunks"]]
)
_EVENT_ID_PATTERN = re.compile("[0-9a-z]+-[0-9]+", re.ASCII)
#: Fields of all events: CSV has the same fields on each line.
_RECORD_FIELDS = (
    "event_id", "event", "at", "id", "type", "username", "reason", "ip_address", "mac_address",
    "access_interface", "bytes_in", "bytes_out", "duration_seconds", "oldest", "newest", "attempts",
    "rate_down", "rate_up", "expires_at",
)  # fmt: skip
_EVENT_NAMES = [event.stream_name for event in EVENTS.values()]


class _Source(NamedTuple):
    """Follower of one gateway's events. `context` is the name of the gateway's context with `--all` or
    `--on`, and otherwise None."""

    context: str | None
    follower: EventFollower | SignOnFollower


@cli.command()
@cli.context_option
@cli.all_option
@cli.on_option
@cli.output_option
@click.option(
    "--event", "events", metavar="NAME",
    help=f"Only these events, separated by commas: {', '.join(_EVENT_NAMES)}; "
    f"{' and '.join(DEFAULT_STREAM_EVENTS)} by default.",
)  # fmt: skip
@click.option("--type", metavar="TYPE", help="Only sessions of this type: pppoe or dhcp.")
@click.option(
    "--after", metavar="ID", help="Resume after this event; the command prints the last id at its end."
)
@click.option("--user", metavar="NAME", help="Only this username.")
@click.option("--trunk", metavar="NAME", type=_trunk_type, help="Only this trunk and its VLANs.")
@click.option("--failed-sign-ons", is_flag=True, help="Also sign-ons that fail, some seconds later.")
@click.pass_context
def events(
    ctx: click.Context,
    events: str | None,
    type: str | None,
    after: str | None,
    user: str | None,
    trunk: str | None,
    failed_sign_ons: bool,
) -> None:
    """Follow the session events until Ctrl-C, one line per event.

    After a lost connection, the command resumes after the last event. A gap means that events were lost:
    list the sessions again. The format json has one object per line.
    """
    if after is not None and not _EVENT_ID_PATTERN.fullmatch(after):
        # The API treats an invalid id in a header like an expired id.
        raise click.BadParameter("must be the id of an event", ctx, param_hint="--after")
    signals = SignalWatcher()
    print_event = partial(_print_event, StreamPrinter(cli.get_format(ctx), _RECORD_FIELDS), user, trunk)
    has_many = cli.has_many_gateways(ctx)
    gateways = cli.get_gateways(ctx)
    sources = []
    for gateway in gateways:
        context = gateway.context.name if has_many else None
        notify = partial(_notify, signals, context)
        query = {"events": events, "type": type}
        sources.append(_Source(context, EventFollower(gateway, query, after, notify)))
        if failed_sign_ons:
            query = {"type": type, "username": user}
            sources.append(_Source(context, SignOnFollower(gateway, query, notify)))
    try:
        if len(sources) == 1:
            for event in sources[0].follower.follow():
                print_event(event, None)
        else:
            if not has_many:
                # Only the main thread can ask for a password.
                gateways[0].get("/subscribers/summary")
            _follow_all(sources, print_event)
    finally:
        for context, follower in sources:
            if context is None and isinstance(follower, EventFollower) and follower.last_id:
                print_errors([f"to continue: --after {follower.last_id}"])


class SignalWatcher:
    """Watcher for SIGINT and SIGTERM, which end the command.

    Python discards an exception of a signal handler that runs while objects of a lost connection are freed.
    The handler therefore stores the signal, and each loss of a connection calls `check`.
    """

    def __init__(self) -> None:
        self._number: int | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._store_signal)

    def check(self) -> None:
        """Raise KeyboardInterrupt if SIGINT was received, or click.exceptions.Exit if SIGTERM was received.
        Do nothing outside the main thread, because only the main thread can end the command."""
        if threading.current_thread() is not threading.main_thread():
            return
        if self._number == signal.SIGINT:
            raise KeyboardInterrupt
        if self._number is not None:
            raise click.exceptions.Exit(128 + self._number)

    def _store_signal(self, number: int, frame: Any) -> None:
        self._number = number
        self.check()


def _notify(signals: SignalWatcher, context: str | None, text: str) -> None:
    signals.check()
    print_errors([text], context)


def _follow_all(sources: Sequence[_Source], print_event: Callable[[Event, str | None], None]) -> None:
    """Follow each source in a thread of its own. If one gateway refuses a request, the threads of the other
    gateways continue."""
    results: queue.SimpleQueue[tuple[str | None, Event | ClientError]] = queue.SimpleQueue()

    def follow(source: _Source) -> None:
        try:
            for event in source.follower.follow():
                results.put((source.context, event))
        except ClientError as error:
            results.put((source.context, error))

    for source in sources:
        threading.Thread(target=follow, args=[source], daemon=True).start()
    remaining_count, status = len(sources), ExitStatus.SUCCESS
    while remaining_count:
        context, event = results.get()
        if isinstance(event, Event):
            print_event(event, context)
        else:
            print_errors(event.lines, context)
            remaining_count, status = remaining_count - 1, max(status, event.status)
    contexts = {source.context for source in sources}
    raise click.exceptions.Exit(status if contexts == {None} else get_exit_status_of_many(len(contexts)))


def _print_event(
    printer: StreamPrinter, user: str | None, trunk: str | None, event: Event, context: str | None
) -> None:
    """Print an event if the session of the event has the given user and trunk. None matches all users or
    trunks. A gap is always printed. `context` is the name of the gateway's context, or None."""
    event_trunk, _, _ = str(event.data.get("access_interface")).partition(".")
    is_wanted = user in (None, event.data.get("username")) and trunk in (None, event_trunk)
    if event.name == "gap" or is_wanted:
        contexts = {} if context is None else {CONTEXT: context}
        record = {**contexts, "event_id": event.id or None, "event": event.name, **event.data}
        printer.print(record, "  ".join([*contexts.values(), _format_event(event)]))


def _format_event(event: Event) -> str:
    data = event.data
    match event.name:
        case "gap":
            id_range = f"{data['oldest']} to {data['newest']}"
            text = f"GAP   events are lost; the gateway holds {id_range}: list the sessions again"
        case "session_up":
            address = format_value(data.get("ip_address") or data.get("ipv6_address"))
            username = format_value(data["username"])
            text = f"up    {data['id']}  {username}  {data['type']}  {address}  {_format_access_line(data)}"
        case "session_down":
            seconds = data.get("duration_seconds")
            username, reason = format_value(data["username"]), format_value(data["reason"])
            duration = NOTHING if seconds is None else f"{seconds} s"
            text = f"down  {data['id']}  {username}  {reason}  {_format_access_line(data)}  {duration}"
        case "session_rate":
            expires_at = data["expires_at"]
            until = "" if expires_at is None else f"  until {format_time(expires_at)}"
            rates = f"{format_rate(data['rate_down'])} down  {format_rate(data['rate_up'])} up{until}"
            text = f"rate  {data['id']}  {format_value(data['username'])}  {rates}"
        case "sign_on_failed":
            username, attempts = format_value(data["username"]), data["attempts"]
            text = f"fail  {username}  {data['reason']}  {_format_access_line(data)}  attempts: {attempts}"
        case _:
            text = f"{event.name}  {data}"
    return f"{format_time(data.get('at', int(time.time())))}  {escape(text)}"


def _format_access_line(data: Record) -> str:
    """Return a text with the MAC address and the access interface of a subscriber, which identify the
    subscriber's line."""
    return f"{format_value(data.get('mac_address'))}  {format_value(data.get('access_interface'))}"
