"""Health and version of the gateway. They require no token."""

import click

from gateway_api.cli.ctl.failures import ExitStatus
from gateway_api.cli.ctl.gateway import Gateway
from gateway_api.cli.ctl.invocation import reads
from gateway_api.cli.ctl.results import Sheet
from gateway_api.cli.ctl.texts import duration


@click.command()
@reads
def health(gateway: Gateway) -> Sheet:
    """Shows whether the gateway and its core respond, and the sources of sessions that do not.

    Exit status 1 while a source of sessions does not respond.
    """
    found = gateway.get("/system/health")
    status = ExitStatus.REFUSED if found["unavailable_sources"] else ExitStatus.DONE
    return Sheet(found, {"uptime_seconds": duration}, status)


@click.command()
@reads
def version(gateway: Gateway) -> Sheet:
    """Shows the version of the gateway; `gatewayctl --version` shows that of this command."""
    return Sheet(gateway.get("/system/version"))
