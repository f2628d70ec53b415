"""The page of all commands of gatewayctl, from the same tree as `--help`."""

from collections.abc import Iterator

import click

from gateway_api.cli.ctl.__main__ import gatewayctl
from gateway_api.cli.ctl.failures import MEANINGS
from gateway_api.cli.documents.markdown import code, paragraph, table

_INTRODUCTION = """
Every command has `--help`, and a man page such as gatewayctl-subscribers(1). Almost every command takes
`--context`, `--all` and `--output`: see [gatewayctl](gatewayctl.md).
"""
_SHARED = frozenset({"context", "all", "output", "help"})


def page() -> str:
    return "".join(_page())


def _page() -> Iterator[str]:
    yield "# Commands of gatewayctl\n\n" + paragraph(_INTRODUCTION)
    for name, command in gatewayctl.commands.items():
        yield f"## gatewayctl {name}\n\n"
        if isinstance(command, click.Group):
            yield paragraph(command.help or "")
            for inner_name, inner in command.commands.items():
                yield f"### gatewayctl {name} {inner_name}\n\n"
                yield from _command(f"gatewayctl {name} {inner_name}", inner)
        else:
            yield from _command(f"gatewayctl {name}", command)
    yield "## Exit status\n\n"
    yield table(("status", "meaning"), ((str(int(status)), about) for status, about in MEANINGS.items()))
    yield "\nWith `--all`, it is the highest of all gateways.\n\n"
    yield "## See also\n\n- [gatewayctl](gatewayctl.md): contexts, output formats\n"
    yield "- [Many gateways](../how-to/many-gateways.md)\n"


def _command(path: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command)
    yield f"    {' '.join([path, *command.collect_usage_pieces(context)])}\n\n"
    yield paragraph(command.help or "")
    options = [each for each in command.params if isinstance(each, click.Option) and each.name not in _SHARED]
    records = [record for each in options if (record := each.get_help_record(context))]
    if records:
        yield table(("option", "meaning"), ((code(name), about) for name, about in records)) + "\n"
