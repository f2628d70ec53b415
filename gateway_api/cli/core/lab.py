"""`gateway-core lab`: the core daemon with simulated subscribers."""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn, TypeVar

from gateway_api.cli.core.daemon import CoreOptions, Opened, parser_of, serve
from gateway_api.core.configuration.sections import Configuration
from gateway_api.core.gateways.lab.gateway import LabGateway, LabServices
from gateway_api.core.gateways.lab.kept_rates import KeptRates
from gateway_api.core.gateways.lab.population import Population
from gateway_api.core.gateways.lab.world import MAX_SESSIONS
from gateway_api.core.records.clock import Clock
from gateway_api.core.sessions.journal import Journal

#: Seconds between two advances.
_TICK = 0.05

T = TypeVar("T", int, float)


class LabOptions(CoreOptions):
    """`arrivals` is per second."""

    sessions: int
    arrivals: float
    seed: int
    full_rate: bool


def run(arguments: Sequence[str]) -> int:
    """Exit status 0 after a signal, 1 if it could not start."""
    options = _parser().parse_args(arguments, LabOptions())
    population = Population(options.sessions, options.arrivals, options.seed, options.full_rate)
    return serve(options, LabServices(), partial(_open, population, options.configuration / "lab"))


def _open(
    population: Population, folder: Path, configuration: Configuration, journal: Journal, clock: Clock
) -> Opened:
    gateway = LabGateway(configuration, population, journal, clock, KeptRates(folder))
    return Opened(gateway, partial(_advance, gateway))


def _advance(gateway: LabGateway) -> NoReturn:
    while True:
        gateway.advance()
        time.sleep(_TICK)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("lab", "Serves simulated subscribers, until SIGTERM or SIGINT.")
    parser.add_argument(
        "--sessions", type=_number(int, MAX_SESSIONS), default=200, help=f"at the start, 0 to {MAX_SESSIONS}"
    )
    parser.add_argument(
        "--arrivals", type=_number(float, 20_000), default=0.0, help="per second, at the mean"
    )
    parser.add_argument("--seed", type=int, default=1, help="the same seed, the same subscribers")
    parser.add_argument(
        "--full-rate",
        action="store_true",
        help="subscribers use all of their rates, and not as people do: by day and night, in bursts, or not",
    )
    return parser


def _number(parse: Callable[[str], T], most: int) -> Callable[[str], T]:
    def number(text: str) -> T:
        value = parse(text)
        if not 0 <= value <= most:
            raise argparse.ArgumentTypeError(f"must be 0 to {most}")
        return value

    return number
