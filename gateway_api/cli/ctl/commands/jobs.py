"""Jobs: work on many sessions, which the gateway does by itself."""

from typing import Any
from urllib.parse import quote

import click

from gateway_api.cli.ctl.command import group
from gateway_api.cli.ctl.completion import listed
from gateway_api.cli.ctl.invocation import acts, reads
from gateway_api.cli.ctl.jobs import PATH
from gateway_api.cli.ctl.lists import list_options, listing
from gateway_api.cli.ctl.results import Importance, Report, ResultList, Sheet, ShownColumn
from gateway_api.cli.ctl.texts import line
from gateway_api.client.gateway import RemoteGateway
from gateway_api.wire.core.jobs import ListJobs

_COLUMNS = (
    ShownColumn("id", importance=Importance.IDENTITY),
    ShownColumn("kind", importance=Importance.IDENTITY),
    ShownColumn("state", importance=Importance.IDENTITY),
    ShownColumn("total"),
    ShownColumn("done"),
    ShownColumn("gone"),
    ShownColumn("failed", importance=Importance.HIGH),
    ShownColumn("author"),
    ShownColumn("started_at"),
    ShownColumn("finished_at"),
)

job = click.argument("job", metavar="ID", type=listed(PATH, "jobs", "id", "state"))


def _path(job: str) -> str:
    return f"{PATH}/{quote(job, safe='')}"


@group()
def jobs() -> None:
    """Shows and cancels jobs: work on many sessions, which `--where` starts."""


@jobs.command("list")
@reads
@list_options(ListJobs)
def list_(gateway: RemoteGateway, **query: Any) -> ResultList:
    """Lists the last hundred jobs, the newest first."""
    return listing(gateway, PATH, "jobs", _COLUMNS, **query)


@jobs.command()
@reads
@job
def show(gateway: RemoteGateway, job: str) -> Sheet:
    """Shows one job with its failures."""
    return Sheet(gateway.get(_path(job)))


@jobs.command()
@acts
@job
def cancel(gateway: RemoteGateway, job: str) -> Report:
    """Cancels a job: it takes no further session."""
    done = gateway.send("DELETE", _path(job))
    return Report(f"job {done['id']} is {line(done['state'])} after {done['done']} of {done['total']}", done)
