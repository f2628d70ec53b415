"""Commands of lists that take filters and an order."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from gateway_api.cli.ctl.gateway import Record, RemoteGateway
from gateway_api.cli.ctl.invocation import filter_of
from gateway_api.cli.ctl.results import ResultList, ShownColumn


def list_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of such a command."""
    for option in (
        click.option("--limit", metavar="N", type=click.IntRange(1), help="The most records."),
        click.option("--sort", metavar="FIELD", help="A field of the records; -FIELD for descending order."),
        click.option(
            "--filter", "filters", metavar="FIELD=VALUE", multiple=True, callback=filter_of,
            help="Records with this value only, such as type=trunk; all filters must match.",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


def listing(
    gateway: RemoteGateway, path: str, key: str, columns: Sequence[ShownColumn], filters: Record, **more: Any
) -> ResultList:
    """The list at a path, with the options of the command. `key` names it in the data."""
    limit = more.pop("limit")
    return ResultList(gateway.pages(path, key, {**filters, **more}, limit), columns)
