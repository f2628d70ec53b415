"""`gateway-core`, or `python -m gateway_api.cli.core`: its commands."""

import sys
from collections.abc import Iterator, Sequence

import click

from gateway_api.cli.program import Group, run
from gateway_api.version import VERSION


class _Commands(Group):
    """Imports a command when it is used: it imports what its own gateway needs, and nothing of another."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        match cmd_name:
            case "linux":
                from gateway_api.cli.core.linux import linux

                return linux
            case "lab":
                from gateway_api.cli.core.lab import lab

                return lab
            case "setup":
                from gateway_api.cli.core.linux import setup

                return setup
            case "check":
                from gateway_api.cli.core.check import check_core

                return check_core
        return None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return ["linux", "lab", "setup", "check"]

    def sections(self) -> Iterator[tuple[str, list[tuple[str, click.Command]]]]:
        context = click.Context(self)
        commands = {name: self.get_command(context, name) for name in self.list_commands(context)}
        yield "Commands", [(name, command) for name, command in commands.items() if command]


@click.command(cls=_Commands)
@click.version_option(VERSION, message="%(prog)s %(version)s")
def core() -> None:
    """The core daemon of the gateway."""


def main(words: Sequence[str] | None = None) -> int:
    """The exit status of the command; 2, with the usage on standard error, without a known one. Without
    `words`, those of the process count."""
    return run(core, "gateway-core", words)


if __name__ == "__main__":
    sys.exit(main())
