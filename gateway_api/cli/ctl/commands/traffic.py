"""The traffic: of sessions now, and of all trunks over time."""

import time
from typing import Any

import click

from gateway_api.cli.ctl.command import command
from gateway_api.cli.ctl.completion import Known
from gateway_api.cli.ctl.invocation import (
    chosen_format,
    chosen_gateway,
    context_option,
    output_option,
    reads,
    refreshes,
)
from gateway_api.cli.ctl.results import Importance, ResultList, ShownColumn, StreamPrinter, WholeRecord
from gateway_api.cli.ctl.sessions import TargetType, address, session_id, session_path
from gateway_api.cli.ctl.terminal import complain
from gateway_api.cli.ctl.texts import moment, speed
from gateway_api.cli.ctl.times import DurationType, TimeType
from gateway_api.client.events import events
from gateway_api.client.gateway import Record, RemoteGateway
from gateway_api.wire.core.traffic import TalkerOrder

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
def watch(ctx: click.Context, target: str) -> None:
    """Shows the traffic of a session each second, until Ctrl-C or the end of the session.

    The format json has one object per line.
    """
    gateway = chosen_gateway(ctx)
    id = session_id(gateway, target)
    printer = StreamPrinter(chosen_format(ctx), _FIELDS)
    while not _has_ended(gateway, f"{session_path(id)}/traffic", printer):
        complain(["the stream has ended; watching again"])
        time.sleep(_PAUSE)
    complain([f"session {id} has ended"])


def _has_ended(gateway: RemoteGateway, path: str, printer: StreamPrinter) -> bool:
    """Prints the samples of a stream. False if it was lost. Raises ClientError."""
    with gateway.stream(path, {}, {}, _SILENCE) as stream:
        for event in events(stream):
            if event is not None and event.name == "ended":
                return True
            if event is not None:
                printer.show(event.data, _line_of(event.data))
    return False


def _line_of(sample: Record) -> str:
    packets = f"{sample['down_pps']} / {sample['up_pps']} packets/s"
    return (
        f"{moment(sample['at'])}  down {speed(sample['down_bps'])}  up {speed(sample['up_bps'])}  {packets}"
    )
