"""The session events, as they happen."""

import queue
import re
import signal
import threading
import time
from typing import Any, NoReturn

import click

from gateway_api.cli.ctl.command import SHARED, command
from gateway_api.cli.ctl.failures import CommandFailure, ExitStatus, complain
from gateway_api.cli.ctl.follower import EventFollower, Say
from gateway_api.cli.ctl.gateway import Record
from gateway_api.cli.ctl.invocation import (
    all_option,
    chosen_contexts,
    chosen_format,
    chosen_gateway,
    context_option,
    gateway_of,
    output_option,
)
from gateway_api.cli.ctl.printing import CONTEXT, StreamPrinter
from gateway_api.cli.ctl.sse import Event
from gateway_api.cli.ctl.texts import NOTHING, line, moment, plain

_ID = re.compile("[0-9a-z]+-[0-9]+", re.ASCII)
_REMEDY = "list the sessions again"


@command(params=[context_option(), all_option(), output_option()])
@click.option("--event", "events", metavar="NAME", help="session_up or session_down; both by default.")
@click.option("--type", metavar="TYPE", help="Of sessions of this type: pppoe or dhcp.")
@click.option(
    "--after", metavar="ID", help="Resumes after this event; the command prints the last id at its end."
)
@click.pass_context
def events(ctx: click.Context, events: str | None, type: str | None, after: str | None) -> None:
    """Follows the session events until Ctrl-C, one line per event.

    After a lost connection it resumes after the last event. A gap says that events were lost: list the
    sessions again. The format json has one object per line.
    """
    if after is not None and not _ID.fullmatch(after):
        # In a header, the API takes an invalid id for one that is too old.
        raise click.BadParameter("must be the id of an event", ctx, param_hint="--after")
    query = {"events": events, "type": type}
    signal.signal(signal.SIGTERM, _terminated)
    printer = StreamPrinter(chosen_format(ctx), _FIELDS)
    if not ctx.meta.get(f"{SHARED}all"):
        _follow_one(EventFollower(chosen_gateway(ctx), query, after, _saying()), printer)
    else:
        _follow_all(ctx, query, printer)


def _saying(context: str | None = None) -> Say:
    return lambda text: complain([text], context)


def _terminated(number: int, frame: Any) -> NoReturn:
    raise click.exceptions.Exit(128 + number)


def _follow_one(follower: EventFollower, printer: StreamPrinter) -> None:
    try:
        for event in follower.follow():
            _show(printer, event)
    finally:
        if follower.last:
            complain([f"to continue: --after {follower.last}"])


def _follow_all(ctx: click.Context, query: Record, printer: StreamPrinter) -> None:
    """One thread for each gateway; a gateway that refuses does not stop the others."""
    found: queue.SimpleQueue[tuple[str, Event | CommandFailure]] = queue.SimpleQueue()

    def follow(name: str, follower: EventFollower) -> None:
        try:
            for event in follower.follow():
                found.put((name, event))
        except CommandFailure as failure:
            found.put((name, failure))

    contexts = chosen_contexts(ctx)
    for context in contexts:
        follower = EventFollower(gateway_of(ctx, context), query, None, _saying(context.name))
        threading.Thread(target=follow, args=(context.name, follower), daemon=True).start()
    left, worst = len(contexts), ExitStatus.DONE
    while left:
        name, event = found.get()
        if isinstance(event, Event):
            _show(printer, event, name)
        else:
            complain(event.lines, name)
            left, worst = left - 1, max(worst, event.status)
    raise click.exceptions.Exit(worst)


#: Of all events, as CSV has the same fields on each line.
_FIELDS = (
    "event_id", "event", "at", "id", "type", "username", "reason", "ip_address", "mac_address",
    "access_interface", "bytes_in", "bytes_out", "duration_seconds", "oldest", "newest",
)  # fmt: skip


def _show(printer: StreamPrinter, event: Event, context: str | None = None) -> None:
    of = {} if context is None else {CONTEXT: context}
    record = {**of, "event_id": event.id, "event": event.name, **event.data}
    printer.show(record, "  ".join([*of.values(), _line_of(event)]))


def _line_of(event: Event) -> str:
    data = event.data
    at = moment(data.get("at", int(time.time())))
    match event.name:
        case "gap":
            text = f"GAP   events are lost; the gateway holds {data['oldest']} to {data['newest']}: {_REMEDY}"
        case "session_up":
            address = plain(data.get("ip_address") or data.get("ipv6_address"))
            text = f"up    {data['id']}  {plain(data['username'])}  {data['type']}  {address}  {_place(data)}"
        case "session_down":
            seconds = data.get("duration_seconds")
            text = (
                f"down  {data['id']}  {plain(data['username'])}  {plain(data['reason'])}  {_place(data)}"
                f"  {NOTHING if seconds is None else f'{seconds} s'}"
            )
        case _:
            text = f"{event.name}  {data}"
    return f"{at}  {line(text)}"


def _place(data: Record) -> str:
    return f"{plain(data.get('mac_address'))}  {plain(data.get('access_interface'))}"
