"""Health and version of the gateway. They require no token."""

import click

from gateway_api.cli.ctl.command import command
from gateway_api.cli.ctl.failures import ExitStatus
from gateway_api.cli.ctl.invocation import reads
from gateway_api.cli.ctl.results import Importance, ResultList, Sheet, ShownColumn
from gateway_api.client.gateway import Record, RemoteGateway

#: States of dependencies that need nobody.
_WELL = {"ok", "unused", "unknown"}
_DEPENDENCIES = (
    ShownColumn("name", "Dependency", importance=Importance.IDENTITY),
    ShownColumn("state", importance=Importance.IDENTITY),
    ShownColumn("message", importance=Importance.IDENTITY, wraps=True),
)


def is_well(dependency: Record) -> bool:
    """Whether its state needs nobody."""
    return dependency["state"] in _WELL


@command()
@reads
@click.option("--detail", is_flag=True, help="Lists what the gateway depends on, each with a sentence.")
def health(gateway: RemoteGateway, detail: bool) -> Sheet | ResultList:
    """Shows whether the gateway and its core respond, and the sources of sessions that do not.

    Exit status 1 while a source of sessions does not respond or, with --detail, a dependency is degraded or
    has failed. Only --detail requires a login.
    """
    if detail:
        dependencies = gateway.get("/system/health/detail")["dependencies"]
        well = all(map(is_well, dependencies))
        return ResultList(dependencies, _DEPENDENCIES, ExitStatus.DONE if well else ExitStatus.REFUSED)
    found = gateway.get("/system/health")
    status = ExitStatus.REFUSED if found["unavailable_sources"] else ExitStatus.DONE
    return Sheet(found, status)


@command()
@reads
def version(gateway: RemoteGateway) -> Sheet:
    """Shows the version of the gateway; `gatewayctl --version` shows that of this command."""
    return Sheet(gateway.get("/system/version"))
