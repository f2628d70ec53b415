"""Commands about jobs. A job changes many sessions, and continues on the gateway if this command ends."""

import time
from urllib.parse import quote

import click

from gateway_client.errors import ExitStatus
from gateway_client.gateway import Record, RemoteGateway
from gateway_contract.core.jobs import ListJobs
from gateway_contract.core.sessions import SessionFilter, SessionTypeFilter
from gatewayctl import cli
from gatewayctl.commands.network import create_list_command
from gatewayctl.completion import complete_condition, complete_field
from gatewayctl.errors import CommandError
from gatewayctl.results import HIGH, IDENTITY, Column, Report, Sheet
from gatewayctl.sessions import is_id, list_affected
from gatewayctl.terminal import print_errors, show_progress
from gatewayctl.texts import escape

_JOBS_PATH = "/subscribers/jobs"
_POLL_SECONDS = 0.5


where_option = click.option(
    "--where", "filter", metavar="FIELD=VALUE", multiple=True, callback=cli.parse_filters,
    type=complete_condition({**dict.fromkeys(SessionFilter.__struct_fields__), "type": SessionTypeFilter}),
    help="All sessions that match, as a job of the gateway: type, username, interface, search, ...",
)  # fmt: skip
per_second_option = click.option(
    "--per-second", metavar="N", type=int, help="The largest number of sessions per second, for a job."
)


def preview_change(gateway: RemoteGateway, path: str, body: Record) -> tuple[Report, bool]:
    """Return a report about the sessions that a request would change, and True if there are such sessions.
    The request is sent as a dry run."""
    preview = gateway.send("POST", path, {**body, "dry_run": True})
    report = Report(preview["message"], preview, table=list_affected(preview["sessions"]))
    return report, preview["count"] > 0


def run_job(
    gateway: RemoteGateway,
    path: str,
    body: Record,
    question: str,
    per_second: int | None,
    dry_run: bool,
    yes: bool,
) -> Report:
    """Show the sessions that match the filter of a request, ask for confirmation, start the job, and return a
    report about its end. With `dry_run`, only return the report about the sessions. `per_second` limits the
    number of sessions per second. Raises ClientError if a request fails, if the user does not agree, or if
    the search of the filter is ambiguous and may match sessions that the user does not expect."""
    search = body["filter"].get("search", "")
    if is_id(search):
        raise CommandError(
            ExitStatus.USAGE,
            f"--where search: {search} may be a session id, a VLAN id or a part of a name",
            f"nothing was done; say which: the TARGET id:{search} or user:{search}, or --where with "
            f"username={search}, interface=NAME, or search=user:{search}",
        )
    report, has_sessions = preview_change(gateway, path, body)
    if dry_run or not has_sessions:
        return report
    cli.confirm(question, yes=yes, refusal="nothing was changed", report=report, always_report=True)
    pace = {} if per_second is None else {"per_second": per_second}
    return _follow_job(gateway, gateway.send("POST", path, {**body, **pace}))


def _follow_job(gateway: RemoteGateway, job: Record) -> Report:
    """Show the progress of a job until the job ends, and return a report about the job."""
    name = f"job {job['id']}"
    print_errors([f"{name} runs on the gateway; gatewayctl jobs cancel {job['id']} stops it"])
    try:
        with show_progress(job["total"]) as update:
            while True:
                update(job["done"] + job["gone"] + job["failed"], job["failed"], ())
                if job["state"] != "running":
                    break
                time.sleep(_POLL_SECONDS)
                job = gateway.get(f"{_JOBS_PATH}/{job['id']}")
    except KeyboardInterrupt:
        print_errors([f"{name} continues on the gateway"])
        raise
    print_errors(f"session {each['session_id']}: {escape(each['message'])}" for each in job["errors"])
    is_complete = job["state"] == "done" and job["failed"] == 0
    counts = ", ".join(f"{job[name]} {name}" for name in ("done", "gone", "failed"))
    text = f"job {job['id']} is {escape(job['state'])}: {counts}, of {job['total']}"
    return Report(text, job, status=ExitStatus.SUCCESS if is_complete else ExitStatus.REFUSED)


_JOB_COLUMNS = (
    Column("id", IDENTITY), Column("kind", IDENTITY), Column("state", IDENTITY), Column("total"),
    Column("done"), Column("gone"), Column("failed", HIGH), Column("author"), Column("started_at"),
    Column("finished_at"),
)  # fmt: skip

_job_argument = click.argument("job", metavar="ID", type=complete_field(_JOBS_PATH, "jobs", "id", "state"))


def _get_job_path(job: str) -> str:
    return f"{_JOBS_PATH}/{quote(job, safe='')}"


@cli.group()
def jobs() -> None:
    """Show and cancel jobs. A job changes many sessions; `--where` starts a job."""


jobs.add_command(
    create_list_command(
        "list", "List the last hundred jobs, the newest first.", _JOBS_PATH, ListJobs, _JOB_COLUMNS,
        hidden=["per_second"],
    )
)  # fmt: skip


@jobs.command()
@_job_argument
@cli.read_command
def show(gateway: RemoteGateway, job: str) -> Sheet:
    """Show one job with its failures."""
    return Sheet(gateway.get(_get_job_path(job)))


@jobs.command()
@_job_argument
@cli.change_command
def cancel(gateway: RemoteGateway, job: str) -> Report:
    """Cancel a job: the job changes no further sessions."""
    record = gateway.send("DELETE", _get_job_path(job))
    state, done, total = escape(record["state"]), record["done"], record["total"]
    return Report(f"job {record['id']} is {state} after {done} of {total}", record)
