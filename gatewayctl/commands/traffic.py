"""Commands that show traffic: the present traffic of sessions, and the traffic of all trunks over time."""

import time
from functools import partial
from typing import Any

import click

from gateway_client.errors import NoResponse
from gateway_client.gateway import Record, RemoteGateway, parse_events
from gateway_contract.core.traffic import TalkerOrder
from gatewayctl import cli
from gatewayctl.completion import KnownWords
from gatewayctl.results import HIGH, IDENTITY, LOW, WIDE, Column, ResultList, StreamPrinter
from gatewayctl.sessions import Target, find_session, format_address, get_session_path, target_argument
from gatewayctl.terminal import print_errors
from gatewayctl.texts import format_time, format_traffic
from gatewayctl.times import DurationType, TimeType

_TOP_COLUMNS = (
    Column("id", IDENTITY), Column("username", IDENTITY), Column("ip_address", value=format_address),
    Column("access_interface"), Column("down_bps", HIGH, "Down"), Column("up_bps", HIGH, "Up"),
    Column("rate_down", LOW), Column("rate_up", LOW), Column("type", WIDE), Column("interface", WIDE),
    Column("down_pps", WIDE), Column("up_pps", WIDE),
)  # fmt: skip
_SAMPLE_COLUMNS = (Column("at", IDENTITY), Column("down_bps", title="Down"), Column("up_bps", title="Up"))
_SAMPLE_FIELDS = ("at", "interval_ms", "down_bps", "up_bps", "down_pps", "up_pps")
#: Time without a sample after which a stream counts as lost. A sample arrives every second.
_MAX_SILENCE_SECONDS = 45.0
_RETRY_PAUSE_SECONDS = 1.0


@cli.command()
@click.option(
    "--sort", metavar="ORDER", type=KnownWords(TalkerOrder),
    help="-down, -up, down or up: by traffic; -down by default.",
)  # fmt: skip
@cli.create_limit_option("The largest number of sessions; 20 by default.")
@partial(cli.read_command, refresh=True)
def top(gateway: RemoteGateway, sort: str | None, limit: int | None) -> ResultList:
    """List the sessions with the most traffic now. On a terminal, refresh the list every two seconds until
    Ctrl-C."""
    talkers = gateway.get("/subscribers/traffic", sort=sort, limit=limit)["sessions"]
    return ResultList(talkers, _TOP_COLUMNS)


@cli.command()
@click.option("--since", type=TimeType(), help="Only from this time on; an hour ago by default.")
@click.option("--until", type=TimeType(), help="Only before this time; now by default.")
@click.option(
    "--step",
    type=DurationType(),
    help="The mean over this time: seconds, or with a unit such as 10m.",
)
@cli.read_command
def traffic(gateway: RemoteGateway, **query: Any) -> ResultList:
    """List the traffic of all trunks over time, oldest first.

    TIME is such as 2h (ago), 02:13 or yesterday 02:13, ISO 8601 or epoch seconds. The list has no samples for
    times in which the gateway did not measure.
    """
    return ResultList(gateway.get("/interfaces/traffic", **query)["samples"], _SAMPLE_COLUMNS)


@cli.command()
@cli.context_option
@cli.output_option
@target_argument
@click.pass_context
def watch(ctx: click.Context, target: Target) -> None:
    """Show the traffic of a session each second, until Ctrl-C or the end of the session.

    The format json has one object per line.
    """
    gateway = cli.get_gateway(ctx)
    id = find_session(gateway, target)["id"]
    _follow_samples(
        gateway, f"{get_session_path(id)}/traffic", StreamPrinter(cli.get_format(ctx), _SAMPLE_FIELDS)
    )
    print_errors([f"session {id} has ended"])


def _follow_samples(gateway: RemoteGateway, path: str, printer: StreamPrinter) -> None:
    """Print the samples of a session's traffic until the session ends. If the stream is lost, resume the
    stream. Raises ClientError if the gateway refuses a request, or does not respond to the first request."""
    has_begun = False
    while True:
        try:
            with gateway.stream(path, {}, {}, _MAX_SILENCE_SECONDS) as stream:
                for event in filter(None, parse_events(stream)):
                    if event.name == "ended":
                        return
                    has_begun = True
                    printer.print(event.data, _format_sample(event.data))
            print_errors(["the stream has ended; watching again"])
        except NoResponse as error:
            if not has_begun:
                raise
            print_errors([f"{error.lines[0]}; watching again"])
        time.sleep(_RETRY_PAUSE_SECONDS)


def _format_sample(sample: Record) -> str:
    down, up = format_traffic(sample["down_bps"]), format_traffic(sample["up_bps"])
    packets = f"{sample['down_pps']} / {sample['up_pps']} packets/s"
    return f"{format_time(sample['at'])}  down {down}  up {up}  {packets}"
