"""The traffic: of sessions now, and of all trunks over time."""

import time
from typing import Any

import click

from gateway_contract.core.traffic import TalkerOrder
from gatewayctl.client.errors import NoResponse
from gatewayctl.client.events import events
from gatewayctl.client.gateway import Record, RemoteGateway
from gatewayctl.command import command
from gatewayctl.completion import Known
from gatewayctl.invocation import (
    chosen_format,
    chosen_gateway,
    context_option,
    output_option,
    reads,
    refreshes,
)
from gatewayctl.results import Importance, ResultList, ShownColumn, StreamPrinter, WholeRecord
from gatewayctl.sessions import address, session_path
from gatewayctl.targets import Target, TargetType, find_session
from gatewayctl.terminal import complain
from gatewayctl.texts import moment, speed
from gatewayctl.times import DurationType, TimeType

_TALKERS = (
    ShownColumn("id", importance=Importance.IDENTITY),
    ShownColumn("username", importance=Importance.IDENTITY),
    WholeRecord("ip_address", value=address),
    ShownColumn("access_interface"),
    ShownColumn("down_bps", "Down", importance=Importance.HIGH),
    ShownColumn("up_bps", "Up", importance=Importance.HIGH),
    ShownColumn("rate_down", importance=Importance.LOW),
    ShownColumn("rate_up", importance=Importance.LOW),
    ShownColumn("type", importance=Importance.WIDE),
    ShownColumn("interface", importance=Importance.WIDE),
    ShownColumn("down_pps", importance=Importance.WIDE),
    ShownColumn("up_pps", importance=Importance.WIDE),
)
_SAMPLES = (
    ShownColumn("at", importance=Importance.IDENTITY),
    ShownColumn("down_bps", "Down"),
    ShownColumn("up_bps", "Up"),
)
_FIELDS = ("at", "interval_ms", "down_bps", "up_bps", "down_pps", "up_pps")
#: Seconds without a sample, of which there is one a second.
_SILENCE = 45.0
_PAUSE = 1.0


@command()
@refreshes
@click.option(
    "--sort", metavar="ORDER", type=Known(TalkerOrder),
    help="-down, -up, down or up: by traffic; -down by default.",
)  # fmt: skip
@click.option("--limit", metavar="N", type=click.IntRange(1), help="The most sessions; 20 by default.")
def top(gateway: RemoteGateway, sort: str | None, limit: int | None) -> ResultList:
    """Lists the sessions with the most traffic now. On a terminal, every few seconds until Ctrl-C."""
    return ResultList(gateway.get("/subscribers/traffic", sort=sort, limit=limit)["sessions"], _TALKERS)


@command()
@reads
@click.option("--since", metavar="TIME", type=TimeType(), help="From then on; an hour ago by default.")
@click.option("--until", metavar="TIME", type=TimeType(), help="Before then; now by default.")
@click.option(
    "--step", metavar="TIME", type=DurationType(), help="The mean of each so many seconds, or of 10m."
)
def traffic(gateway: RemoteGateway, **query: Any) -> ResultList:
    """Lists the traffic of all trunks over time, the oldest first.

    TIME is such as 2h (ago), 02:13 or yesterday 02:13, ISO 8601 or epoch seconds. A time in which nothing was
    measured is missing.
    """
    return ResultList(gateway.get("/interfaces/traffic", **query)["samples"], _SAMPLES)


@command(params=[context_option(), output_option()])
@click.argument("target", type=TargetType())
@click.pass_context
def watch(ctx: click.Context, target: Target) -> None:
    """Shows the traffic of a session each second, until Ctrl-C or the end of the session.

    The format json has one object per line.
    """
    gateway = chosen_gateway(ctx)
    id = find_session(gateway, target)["id"]
    _follow(gateway, f"{session_path(id)}/traffic", StreamPrinter(chosen_format(ctx), _FIELDS))
    complain([f"session {id} has ended"])


def _follow(gateway: RemoteGateway, path: str, printer: StreamPrinter) -> None:
    """Prints the samples until the end of the session, also after a lost stream. Raises ClientError if the
    gateway refuses the request, or does not respond to the first one."""
    has_begun = False
    while True:
        try:
            with gateway.stream(path, {}, {}, _SILENCE) as stream:
                for event in filter(None, events(stream)):
                    if event.name == "ended":
                        return
                    has_begun = True
                    printer.show(event.data, _line_of(event.data))
            complain(["the stream has ended; watching again"])
        except NoResponse as failure:
            if not has_begun:
                raise
            complain([f"{failure.lines[0]}; watching again"])
        time.sleep(_PAUSE)


def _line_of(sample: Record) -> str:
    packets = f"{sample['down_pps']} / {sample['up_pps']} packets/s"
    return (
        f"{moment(sample['at'])}  down {speed(sample['down_bps'])}  up {speed(sample['up_bps'])}  {packets}"
    )
