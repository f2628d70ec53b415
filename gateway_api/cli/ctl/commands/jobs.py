"""Jobs: work on many sessions, which the gateway does by itself."""

from typing import Any
from urllib.parse import quote

import click

from gateway_api.cli.ctl.completion import listed
from gateway_api.cli.ctl.gateway import Gateway
from gateway_api.cli.ctl.invocation import acts, reads
from gateway_api.cli.ctl.jobs import PATH
from gateway_api.cli.ctl.lists import list_options, listing
from gateway_api.cli.ctl.results import Column, Listing, Report, Sheet
from gateway_api.cli.ctl.texts import line, moment

_COLUMNS = (
    Column("id"),
    Column("kind"),
    Column("state"),
    Column("total"),
    Column("done"),
    Column("gone"),
    Column("failed"),
    Column("author"),
    Column("started_at", "STARTED", moment),
    Column("finished_at", "FINISHED", moment),
)

job = click.argument("job", metavar="ID", type=listed(PATH, "jobs", "id", "state"))


def _path(job: str) -> str:
    return f"{PATH}/{quote(job, safe='')}"


@click.group()
def jobs() -> None:
    """Shows and cancels jobs: work on many sessions, which `--where` starts."""


@jobs.command("list")
@reads
@list_options
def list_(gateway: Gateway, **query: Any) -> Listing:
    """Lists the last hundred jobs, the newest first."""
    return listing(gateway, PATH, "jobs", _COLUMNS, **query)


@jobs.command()
@reads
@job
def show(gateway: Gateway, job: str) -> Sheet:
    """Shows one job with its failures."""
    return Sheet(gateway.get(_path(job)), {"started_at": moment, "finished_at": moment})


@jobs.command()
@acts
@job
def cancel(gateway: Gateway, job: str) -> Report:
    """Cancels a job: it takes no further session."""
    done = gateway.send("DELETE", _path(job))
    return Report(f"job {done['id']} is {line(done['state'])} after {done['done']} of {done['total']}", done)
