"""Program `gateway-core`, or `python -m gateway_core`."""

import sys
from collections.abc import Sequence

import click

from gateway_contract.program import Group, LateCommands, run
from gateway_contract.version import VERSION


def _load(name: str) -> click.Command:
    """Import the command, and so only what its gateway needs."""
    if name == "lab":
        from gateway_core.commands.lab import lab

        return lab
    if name == "check":
        from gateway_core.commands.check import check

        return check
    from gateway_core.commands.linux import linux, setup

    return setup if name == "setup" else linux


@click.command(cls=Group, commands=LateCommands(("linux", "lab", "setup", "check"), _load))
@click.version_option(VERSION, message="%(prog)s %(version)s")
def core() -> None:
    """The core daemon of the gateway."""


def main(words: Sequence[str] | None = None) -> int:
    """Run a command, by the arguments of the process unless `words` are given. Return the exit status; 2,
    with the usage on standard error, for an unknown command."""
    return run(core, "gateway-core", words)


if __name__ == "__main__":
    sys.exit(main())
