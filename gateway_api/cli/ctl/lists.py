"""Commands of lists that take filters and an order."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from gateway_api.cli.ctl.completion import conditions, fields_of, orders
from gateway_api.cli.ctl.invocation import filter_of
from gateway_api.cli.ctl.results import ResultList, ShownColumn
from gateway_api.client.gateway import Record, RemoteGateway
from gateway_api.wire.contract import Method


def list_options(method: type[Method[Any]]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options of such a command. `method` is that of the core which makes the list."""
    fields = fields_of(method)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            click.option("--limit", metavar="N", type=click.IntRange(1), help="The most records."),
            click.option(
                "--sort", metavar="FIELD", type=orders(fields),
                help="A field of the records; -FIELD for descending order.",
            ),
            click.option(
                "--filter", "filters", metavar="FIELD=VALUE", multiple=True, callback=filter_of,
                type=conditions(fields),
                help="Records with this value only, such as type=trunk; all filters must match.",
            ),
        ):  # fmt: skip
            function = option(function)
        return function

    return decorate


def listing(
    gateway: RemoteGateway, path: str, key: str, columns: Sequence[ShownColumn], filters: Record, **more: Any
) -> ResultList:
    """The list at a path, with the options of the command. `key` names it in the data."""
    limit = more.pop("limit")
    return ResultList(gateway.pages(path, key, {**filters, **more}, limit), columns)
