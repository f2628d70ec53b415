"""The session events, as they happen."""

import queue
import re
import signal
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

import click

from gateway_contract.base.texts import format_rate
from gateway_contract.events import DEFAULT_STREAM_EVENTS, EVENTS
from gatewayctl.client.errors import ClientError
from gatewayctl.client.events import Event, EventFollower, Say, SignOnFollower
from gatewayctl.client.gateway import Record, RemoteGateway
from gatewayctl.command import SHARED, command
from gatewayctl.completion import Offered
from gatewayctl.failures import ExitStatus, status_of
from gatewayctl.invocation import (
    all_option,
    chosen_contexts,
    chosen_format,
    chosen_gateway,
    context_option,
    gateway_of,
    output_option,
)
from gatewayctl.results import CONTEXT, StreamPrinter
from gatewayctl.terminal import complain
from gatewayctl.texts import NOTHING, line, moment, plain


def _trunks(gateway: RemoteGateway, incomplete: str) -> Iterable[tuple[str, str]]:
    return [(trunk, "") for trunk in gateway.get("/system/config")["interfaces"]["trunks"]]


_ID = re.compile("[0-9a-z]+-[0-9]+", re.ASCII)
trunk_type = Offered(_trunks)
_REMEDY = "list the sessions again"


@command(params=[context_option(), all_option(), output_option()])
@click.option(
    "--event",
    "events",
    metavar="NAME",
    help=f"{', '.join(event.stream_name for event in EVENTS.values())}, several with commas between; "
    f"{' and '.join(DEFAULT_STREAM_EVENTS)} by default.",
)
@click.option("--type", metavar="TYPE", help="Of sessions of this type: pppoe or dhcp.")
@click.option(
    "--after", metavar="ID", help="Resumes after this event; the command prints the last id at its end."
)
@click.option("--user", metavar="NAME", help="Of this username.")
@click.option("--trunk", metavar="NAME", type=trunk_type, help="On this trunk, or on a VLAN of it.")
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
    """Follows the session events until Ctrl-C, one line per event.

    After a lost connection it resumes after the last event. A gap says that events were lost: list the
    sessions again. The format json has one object per line.
    """
    if after is not None and not _ID.fullmatch(after):
        # In a header, the API takes an invalid id for one that is too old.
        raise click.BadParameter("must be the id of an event", ctx, param_hint="--after")
    end = End()
    end.install()
    shown = _Shown(StreamPrinter(chosen_format(ctx), _FIELDS), user, trunk)
    query = {"events": events, "type": type}
    asked = chosen_contexts(ctx) if ctx.meta.get(f"{SHARED}all") else []
    gateways: list[tuple[str | None, RemoteGateway]] = [(each.name, gateway_of(ctx, each)) for each in asked]
    gateways = gateways or [(None, chosen_gateway(ctx))]
    followers: list[tuple[str | None, EventFollower | SignOnFollower]] = []
    for name, gateway in gateways:
        followers += [(name, EventFollower(gateway, query, after, _saying(end, name)))]
        if failed_sign_ons:
            followers += [
                (name, SignOnFollower(gateway, {"type": type, "username": user}, _saying(end, name)))
            ]
    try:
        if len(followers) == 1:
            _follow_one(followers[0][1], shown)
        else:
            if not asked:
                # A thread cannot ask for a password.
                gateways[0][1].get("/subscribers/summary")
            _follow_all(followers, shown)
    finally:
        for each in (follower for name, follower in followers if name is None):
            if isinstance(each, EventFollower) and each.last:
                complain([f"to continue: --after {each.last}"])


class End:
    """Ends the command by SIGINT or SIGTERM. Python drops what a signal's handler raises while it frees the
    files of a lost connection, so each loss of a connection has to look whether a signal has come."""

    def __init__(self) -> None:
        self._number: int | None = None

    def install(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def look(self) -> None:
        """Raises KeyboardInterrupt or click.exceptions.Exit if a signal has come. Only in the main thread,
        which ends the command."""
        if threading.current_thread() is not threading.main_thread():
            return
        if self._number == signal.SIGINT:
            raise KeyboardInterrupt
        if self._number is not None:
            raise click.exceptions.Exit(128 + self._number)

    def _handle(self, number: int, frame: Any) -> None:
        self._number = number
        self.look()


def _saying(end: End, context: str | None = None) -> Say:
    def say(text: str) -> None:
        end.look()
        complain([text], context)

    return say


def _follow_one(follower: EventFollower | SignOnFollower, shown: "_Shown") -> None:
    for event in follower.follow():
        shown.show(event)


def _follow_all(
    followers: Sequence[tuple[str | None, EventFollower | SignOnFollower]], shown: "_Shown"
) -> None:
    """One thread for each of them; a gateway that refuses does not stop the others."""
    found: queue.SimpleQueue[tuple[str | None, Event | ClientError]] = queue.SimpleQueue()

    def follow(name: str | None, follower: EventFollower | SignOnFollower) -> None:
        try:
            for event in follower.follow():
                found.put((name, event))
        except ClientError as failure:
            found.put((name, failure))

    for each in followers:
        threading.Thread(target=follow, args=each, daemon=True).start()
    left, worst = len(followers), ExitStatus.DONE
    while left:
        name, event = found.get()
        if isinstance(event, Event):
            shown.show(event, name)
        else:
            complain(event.lines, name)
            left, worst = left - 1, max(worst, status_of(event))
    raise click.exceptions.Exit(worst)


#: Of all events, as CSV has the same fields on each line.
_FIELDS = (
    "event_id", "event", "at", "id", "type", "username", "reason", "ip_address", "mac_address",
    "access_interface", "bytes_in", "bytes_out", "duration_seconds", "oldest", "newest", "attempts",
    "rate_down", "rate_up", "expires_at",
)  # fmt: skip


class _Shown:
    """Shows the events of a user and of a trunk, all for None. A gap concerns everybody."""

    def __init__(self, printer: StreamPrinter, user: str | None, trunk: str | None) -> None:
        self._printer = printer
        self._user = user
        self._trunk = trunk

    def show(self, event: Event, context: str | None = None) -> None:
        if event.name != "gap" and not self._is_wanted(event.data):
            return
        of = {} if context is None else {CONTEXT: context}
        record = {**of, "event_id": event.id or None, "event": event.name, **event.data}
        self._printer.show(record, "  ".join([*of.values(), _line_of(event)]))

    def _is_wanted(self, data: Record) -> bool:
        trunk, _, _ = str(data.get("access_interface")).partition(".")
        return self._user in (None, data.get("username")) and self._trunk in (None, trunk)


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
        case "session_rate":
            expires_at = data["expires_at"]
            until = "" if expires_at is None else f"  until {moment(expires_at)}"
            text = (
                f"rate  {data['id']}  {plain(data['username'])}  {format_rate(data['rate_down'])} down"
                f"  {format_rate(data['rate_up'])} up{until}"
            )
        case "sign_on_failed":
            text = (
                f"fail  {plain(data['username'])}  {data['reason']}  {_place(data)}"
                f"  attempts: {data['attempts']}"
            )
        case _:
            text = f"{event.name}  {data}"
    return f"{at}  {line(text)}"


def _place(data: Record) -> str:
    return f"{plain(data.get('mac_address'))}  {plain(data.get('access_interface'))}"
