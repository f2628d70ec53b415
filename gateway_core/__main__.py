"""`gateway-core`, or `python -m gateway_core`: its commands."""

import sys
from collections.abc import Sequence

import click

from gateway_contract.program import Group, LateCommands, run
from gateway_contract.version import VERSION


def _load(name: str) -> click.Command:
    """Import what the gateway of the command needs, and nothing of another."""
    match name:
        case "linux":
            from gateway_core.commands.linux import linux

            return linux
        case "lab":
            from gateway_core.commands.lab import lab

            return lab
        case "setup":
            from gateway_core.commands.linux import setup

            return setup
        case _:
            from gateway_core.commands.check import check_core

            return check_core


@click.command(cls=Group, commands=LateCommands(("linux", "lab", "setup", "check"), _load))
@click.version_option(VERSION, message="%(prog)s %(version)s")
def core() -> None:
    """The core daemon of the gateway."""


def main(words: Sequence[str] | None = None) -> int:
    """Return the exit status of the command; 2, with the usage on standard error, without a known one.
    Without `words`, those of the process count."""
    return run(core, "gateway-core", words)


if __name__ == "__main__":
    sys.exit(main())
