"""`gateway-core lab`: the core daemon with simulated subscribers."""

import math
from pathlib import Path
from typing import Any

import click

from gateway_contract.configuration import Configuration
from gateway_core.commands.daemon import add_core_options, serve
from gateway_core.gateways.lab.gateway import LabGateway, LabServices
from gateway_core.gateways.lab.population import MAX_LABS, Population
from gateway_core.gateways.lab.world import MAX_SESSIONS
from gateway_core.records.clock import Clock
from gateway_core.sessions.journal import Journal


@click.command()
@add_core_options
@click.option(
    "--sessions", metavar="SESSIONS", type=click.IntRange(0, MAX_SESSIONS), default=200,
    help="sessions at the start",
)  # fmt: skip
@click.option(
    "--arrivals", metavar="ARRIVALS", type=click.FloatRange(0, 20_000), default=0.0,
    help="mean arrivals per second",
)  # fmt: skip
@click.option("--seed", metavar="SEED", type=int, default=1, help="the same seed gives the same subscribers")
@click.option(
    "--number", metavar="NUMBER", type=click.IntRange(0, MAX_LABS - 1), default=0,
    help="labs of different numbers have different subscribers and addresses",
)  # fmt: skip
@click.option(
    "--full-rate", is_flag=True,
    help="subscribers use their full rates all the time, instead of more in the evening than at night",
)  # fmt: skip
def lab(
    sessions: int,
    arrivals: float,
    seed: int,
    number: int,
    full_rate: bool,
    configuration: Path,
    **options: Any,
) -> int:
    """Serves simulated subscribers, until SIGTERM or SIGINT."""
    if math.isnan(arrivals):
        raise click.BadParameter("must be a number", param_hint="'--arrivals'")
    population = Population(sessions, arrivals, seed, full_rate, number)
    rates = configuration / "lab" / "rates.json"

    def open_gateway(running: Configuration, journal: Journal, clock: Clock) -> LabGateway:
        return LabGateway(running, population, journal, clock, rates)

    return serve(LabServices(), open_gateway, configuration=configuration, **options)
