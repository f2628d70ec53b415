"""The audit log."""

from typing import Any

import click

from gateway_api.cli.ctl.command import command
from gateway_api.cli.ctl.completion import recent
from gateway_api.cli.ctl.invocation import reads
from gateway_api.cli.ctl.results import Importance, ResultList, ShownColumn, WholeRecord
from gateway_api.cli.ctl.texts import line, plain
from gateway_api.cli.ctl.times import FORMS, TimeType
from gateway_api.client.gateway import Record, RemoteGateway

#: Records without `--limit`: the log may have a hundred thousand.
_DEFAULT_LIMIT = 100


def _what(record: Record) -> str:
    """The message of the response, with the difference that a commit made."""
    said = plain(record.get("message") or record.get("path"))
    match record:
        case {"before": {"diff": str(diff)}, "after": {"committed": True}} if diff:
            return f"{said}: {line(', '.join(diff.splitlines()))}"
        case {"action": str(action), "before": {"cut": True}} if action.endswith(".commit"):
            return f"{said}; the difference is too long for the audit log: gatewayctl config compare has it"
    return said


_COLUMNS = (
    ShownColumn("at", importance=Importance.IDENTITY),
    ShownColumn("user", importance=Importance.IDENTITY),
    ShownColumn("role", importance=Importance.LOW),
    ShownColumn("address"),
    ShownColumn("action", importance=Importance.HIGH),
    ShownColumn("result", importance=Importance.HIGH),
    ShownColumn("status", importance=Importance.LOW),
    ShownColumn("count", importance=Importance.LOW),
    WholeRecord("path", "Path or message", _what, Importance.IDENTITY, wraps=True),
)


@command()
@reads
@click.option("--user", metavar="NAME", help="Records of this user.")
@click.option(
    "--action", metavar="ACTION", type=recent("/audit", "records", "action"),
    help="Of this action, such as subscribers.change_rate.",
)  # fmt: skip
@click.option("--route", metavar="ROUTE", help="Of this route, such as /api/v1/subscribers/{id}/rate.")
@click.option("--result", metavar="RESULT", help="done, refused, failed or unanswered.")
@click.option("--since", metavar="TIME", type=TimeType(), help=f"From then on: {FORMS}.")
@click.option("--until", metavar="TIME", type=TimeType(), help="Before then.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1),
    default=_DEFAULT_LIMIT,
    show_default=True,
    help="The most records.",
)
def audit(gateway: RemoteGateway, limit: int, **query: Any) -> ResultList:
    """Lists the changes and the refused requests, the newest first. Requires the role admin."""
    return ResultList(gateway.pages("/audit", "records", query, limit), _COLUMNS)
