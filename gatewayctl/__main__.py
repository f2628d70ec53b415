"""Program `gatewayctl`: all commands, in the sections of its help."""

import io
import sys
from pathlib import Path
from types import ModuleType

import click

from gateway_client.errors import ClientError, ExitStatus
from gateway_contract.program import LateCommands
from gateway_contract.version import VERSION
from gatewayctl import terminal
from gatewayctl.cli import (
    all_option,
    columns_option,
    context_option,
    deadline_option,
    group,
    on_option,
    output_option,
)
from gatewayctl.completion import COMPLETION_VARIABLE
from gatewayctl.errors import EXIT_STATUSES
from gatewayctl.terminal import print_errors

_EPILOG = f"Exit status: {'; '.join(f'{status}, {meaning}' for status, meaning in EXIT_STATUSES)}."

_SECTIONS = {
    "Login": ("login", "logout", "contexts"),
    "Subscribers": ("subscribers", "jobs", "events"),
    "Network": (*("interfaces", "vlans", "qos", "routes", "bgp", "cgnat", "demux", "faults"), "traffic"),
    "Configuration": ("config", "rollout", "drift", "users", "backup", "restore"),
    "Operation": ("status", "health", "version", "audit", "webhooks", "rescue", "completion"),
}


def _load_command(name: str) -> click.Command:
    """Import the module of the command `name`, and return the command."""
    module: ModuleType
    match name:
        case "login" | "logout" | "contexts":
            from gatewayctl.commands import login as module
        case "subscribers":
            from gatewayctl.commands import subscribers as module
        case "jobs":
            from gatewayctl.commands import jobs as module
        case "events":
            from gatewayctl.commands import events as module
        case "traffic":
            from gatewayctl.commands import traffic as module
        case "config" | "backup" | "restore":
            from gatewayctl.commands import configuration as module
        case "rollout" | "drift":
            from gatewayctl.commands import rollout as module
        case "users":
            from gatewayctl.commands import users as module
        case "status" | "health" | "version":
            from gatewayctl.commands import status as module
        case "audit":
            from gatewayctl.commands import history as module
        case "webhooks":
            from gatewayctl.commands import webhooks as module
        case "rescue":
            from gatewayctl.commands import rescue as module
        case "completion":
            from gatewayctl import completion as module
        case _:
            from gatewayctl.commands import network as module
    command: click.Command = getattr(module, name)
    return command


@group(
    epilog=_EPILOG,
    commands=LateCommands((name for names in _SECTIONS.values() for name in names), _load_command),
    sections=_SECTIONS,
)
@context_option
@all_option
@on_option
@deadline_option
@output_option
@columns_option
@click.version_option(VERSION, message="%(prog)s %(version)s")
def gatewayctl() -> None:
    """The command line of a subscriber gateway's management API.

    `gatewayctl login` first, then for example `gatewayctl subscribers find alice`. The options below
    may also stand after the command.
    """


def main() -> int:
    """Run the command that the arguments of the process name. Return the exit status of the command, or 128
    plus the number of the signal that ended the process."""
    terminal.prepare_output()
    try:
        # As the user called it, such as gatewayctl.pyz.
        name = Path(sys.argv[0]).name
        status = gatewayctl.main(prog_name=name, complete_var=COMPLETION_VARIABLE, standalone_mode=False)
        return status if isinstance(status, int) else ExitStatus.SUCCESS
    except ClientError as error:
        print_errors(error.lines)
        return error.status
    except click.UsageError as error:
        message = io.StringIO()
        error.show(message)
        # The message contains the arguments, which may contain control characters.
        for each in message.getvalue().splitlines():
            terminal.tell(each)
        return ExitStatus.USAGE
    except UnicodeEncodeError as error:
        # Arguments of a terminal with another encoding: the API and the configuration are UTF-8.
        print_errors([f"{error.object!r} is not UTF-8"])
        return ExitStatus.USAGE
    except (click.Abort, KeyboardInterrupt):
        terminal.tell("")
        return ExitStatus.INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
