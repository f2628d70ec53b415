"""The audit log."""

from typing import Any

import click

from gateway_api.cli.ctl.gateway import Gateway, Record
from gateway_api.cli.ctl.invocation import reads
from gateway_api.cli.ctl.results import Column, Listing, Whole
from gateway_api.cli.ctl.texts import moment, plain

#: Records without `--limit`: the log may have a hundred thousand.
_DEFAULT_LIMIT = 100


def _what(record: Record) -> str:
    return plain(record.get("message") or record.get("path"))


_COLUMNS = (
    Column("at", "TIME", moment),
    Column("user"),
    Column("role"),
    Column("address"),
    Column("action"),
    Column("result"),
    Column("status"),
    Whole("path", "PATH OR MESSAGE", _what),
)


@click.command()
@reads
@click.option("--user", metavar="NAME", help="Records of this user.")
@click.option("--action", metavar="ACTION", help="Of this action, such as subscribers.change_rate.")
@click.option("--route", metavar="ROUTE", help="Of this route, such as /api/v1/subscribers/{id}/rate.")
@click.option("--result", metavar="RESULT", help="done, refused, failed or unanswered.")
@click.option("--since", metavar="TIME", help="From then on: ISO 8601 with an offset, or epoch seconds.")
@click.option("--until", metavar="TIME", help="Before then.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1),
    default=_DEFAULT_LIMIT,
    show_default=True,
    help="The most records.",
)
def audit(gateway: Gateway, limit: int, **query: Any) -> Listing:
    """Lists the changes and the refused requests, the newest first. Requires the role admin."""
    return Listing(gateway.pages("/audit", "records", query, limit), _COLUMNS)
