"""`gateway-core linux`: the core daemon of a Debian machine with real subscribers."""

import sys
from collections.abc import Sequence
from pathlib import Path

from gateway_api.base.errors import GatewayApiError
from gateway_api.cli.core.daemon import CoreOptions, Opened, parser_of, serve
from gateway_api.core.configuration.sections import Configuration
from gateway_api.core.gateways.linux.assembly import LinuxMachine
from gateway_api.core.gateways.linux.health.requirements import SOURCES, preferred
from gateway_api.core.records.clock import Clock
from gateway_api.core.sessions.journal import Journal


class LinuxOptions(CoreOptions):
    """`source` has names of sources, each at most once for a session type."""

    source: list[str]


def run(arguments: Sequence[str]) -> int:
    """Exit status 0 after a signal, 1 if it could not start."""
    parser = parser_of("linux", "Serves real subscribers of this machine, until SIGTERM or SIGINT.")
    parser.add_argument(
        "--source", action="append", choices=SOURCES, default=[],
        help="of sessions, repeated for several; by default accel-ppp or else what Debian has, if installed",
    )  # fmt: skip
    options = parser.parse_args(arguments, LinuxOptions())
    try:
        machine = LinuxMachine(options.source or preferred(Path("/")))
    except GatewayApiError as error:
        sys.stderr.write(f"gateway-core linux: {error}\n")
        return 1

    def opened(configuration: Configuration, journal: Journal, clock: Clock) -> Opened:
        gateway = machine.gateway(configuration, journal, clock)
        return Opened(gateway, gateway.run)

    return serve(options, machine.services, opened)
