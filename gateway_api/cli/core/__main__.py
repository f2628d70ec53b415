"""`gateway-core`, or `python -m gateway_api.cli.core`: its commands."""

import argparse
import sys
from collections.abc import Sequence

from gateway_api.version import VERSION


def main(words: Sequence[str] | None = None) -> int:
    """The exit status of the command; 2, with the usage on standard error, without a known one. Without
    `words`, those of the process count."""
    parser = argparse.ArgumentParser(prog="gateway-core", description="The core daemon of the gateway.")
    parser.add_argument("--version", action="version", version=f"gateway-core {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True)
    # Each command's own module has its options, --help too.
    commands.add_parser("linux", help="serve real subscribers of this machine", add_help=False)
    commands.add_parser("lab", help="serve simulated subscribers", add_help=False)
    help = "check this machine for a gateway on Linux, and write its first configuration"
    commands.add_parser("setup", help=help, add_help=False)
    commands.add_parser("check", help="try a core daemon against the interface of the API", add_help=False)
    arguments, options = parser.parse_known_args(words)
    # Late: a command imports what its own gateway needs, and nothing of another.
    match arguments.command:
        case "linux":
            from gateway_api.cli.core import linux

            return linux.run(options)
        case "lab":
            from gateway_api.cli.core import lab

            return lab.run(options)
        case "check":
            from gateway_api.cli.core import check

            return check.run(options)
    from gateway_api.cli.core import setup

    return setup.run(options)


if __name__ == "__main__":
    sys.exit(main())
