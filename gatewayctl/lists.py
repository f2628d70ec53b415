"""Commands of lists that take filters and an order, each from one row."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click

from gateway_contract.contract import Method, list_field
from gatewayctl.client.gateway import RemoteGateway
from gatewayctl.command import CliCommand, command
from gatewayctl.completion import conditions, fields_of, orders
from gatewayctl.invocation import filter_of, reads
from gatewayctl.results import Result, ResultList, ShownColumn, completed


class Instead(NamedTuple):
    """A flag of the command, with which it shows something else."""

    flag: str
    help: str
    read: Callable[[RemoteGateway], Result]


class ListCommand(NamedTuple):
    """A list of the API at `path`. `method` is that of the core which makes it. Its columns are
    `completed`."""

    name: str
    help: str
    path: str
    method: type[Method[Any]]
    columns: Sequence[ShownColumn] = ()
    instead: Instead | None = None
    hidden: tuple[str, ...] = ()

    def command(self) -> CliCommand:
        def function(gateway: RemoteGateway, **query: Any) -> Result:
            if self.instead and query.pop("instead"):
                return self.instead.read(gateway)
            filters, limit = query.pop("filters"), query.pop("limit")
            found = gateway.pages(self.path, list_field(self.method), {**filters, **query}, limit)
            return ResultList(found, completed(self.columns, fields_of(self.method), self.hidden))

        for option in self._options():
            function = option(function)
        return command(self.name, help=self.help)(reads(function))

    def _options(self) -> Sequence[Callable[[Any], Any]]:
        """The last one comes first in the help."""
        fields = fields_of(self.method)
        options = [
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
        ]  # fmt: skip
        if self.instead:
            options.append(click.option(self.instead.flag, "instead", is_flag=True, help=self.instead.help))
        return options
