"""`gateway-core linux`: the core daemon of a Debian machine with real subscribers."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from gateway_api.base.errors import GatewayApiError
from gateway_api.cli.core.daemon import Opened, core_options, serve
from gateway_api.core.gateways.linux.assembly import LinuxMachine
from gateway_api.core.gateways.linux.health.requirements import SOURCES, preferred
from gateway_api.core.records.clock import Clock
from gateway_api.core.sessions.journal import Journal
from gateway_api.wire.configuration import Configuration


@click.command()
@core_options
@click.option(
    "--source", "sources", multiple=True, type=click.Choice(tuple(SOURCES)),
    help="of sessions, repeated for several; by default accel-ppp or else what Debian has, if installed",
)  # fmt: skip
def linux(sources: Sequence[str], **options: Any) -> int:
    """Serves real subscribers of this machine, until SIGTERM or SIGINT."""
    try:
        machine = LinuxMachine(sources or preferred(Path("/")))
    except GatewayApiError as error:
        sys.stderr.write(f"gateway-core linux: {error}\n")
        return 1

    def opened(configuration: Configuration, journal: Journal, clock: Clock) -> Opened:
        gateway = machine.gateway(configuration, journal, clock)
        return Opened(gateway, gateway.run)

    return serve(machine.services, opened, **options)
