"""`gatewayctl`: all commands, as its help and the man pages show them."""

import io
import os
import sys

import click

from gateway_api.cli.ctl import terminal
from gateway_api.cli.ctl.command import group
from gateway_api.cli.ctl.failures import MEANINGS, ExitStatus, status_of
from gateway_api.cli.ctl.invocation import all_option, columns_option, context_option, output_option
from gateway_api.cli.ctl.summaries import SUMMARIES
from gateway_api.cli.ctl.terminal import complain
from gateway_api.cli.program import LateCommands
from gateway_api.client.errors import ClientError
from gateway_api.version import PACKAGE

_EPILOG = "Exit status: " + "; ".join(f"{int(status)}, {about}" for status, about in MEANINGS.items()) + "."


_SECTIONS = {
    "Login": ("login", "logout", "contexts"),
    "Subscribers": ("subscribers", "jobs", "events"),
    "Network": (
        *("interfaces", "vlans", "qos", "routes", "bgp", "cgnat", "demux", "faults"),
        "traffic",
    ),
    "Configuration": ("config", "users", "backup", "restore"),
    "Operation": ("status", "health", "version", "audit", "webhooks", "rescue", "completion"),
}


def _load(name: str) -> click.Command:
    """A command of the first level. Imports its module, and what that needs."""
    found: click.Command
    match name:
        case "login" | "logout" | "contexts":
            from gateway_api.cli.ctl.commands import login

            found = getattr(login, name)
        case "subscribers":
            found = _subscribers()
        case "jobs":
            from gateway_api.cli.ctl.commands import jobs

            found = jobs.jobs
        case "events":
            from gateway_api.cli.ctl.commands import events

            found = events.events
        case "traffic":
            from gateway_api.cli.ctl.commands import traffic

            found = traffic.over_time
        case "config" | "backup" | "restore":
            from gateway_api.cli.ctl.commands import configuration

            found = getattr(configuration, name)
        case "users":
            from gateway_api.cli.ctl.commands import users

            found = users.users
        case "status" | "health" | "version":
            from gateway_api.cli.ctl.commands import status

            found = getattr(status, name)
        case "audit":
            from gateway_api.cli.ctl.commands import history

            found = history.audit
        case "webhooks":
            from gateway_api.cli.ctl.commands import webhooks

            found = webhooks.webhooks
        case "rescue":
            from gateway_api.cli.ctl.commands import rescue

            found = rescue.rescue
        case "completion":
            from gateway_api.cli.ctl.completion import completion

            found = completion
        case _:
            from gateway_api.cli.ctl.commands import network

            found = next(each for each in network.COMMANDS if each.name == name)
    return found


def _subscribers() -> click.Group:
    from gateway_api.cli.ctl.commands import history, rates, subscribers, traffic

    for title, commands in {
        "Sessions": (subscribers.list_, subscribers.find, subscribers.show, subscribers.summary),
        "Changes": (subscribers.disconnect, rates.rate),
        "Past": (history.history, history.timeline, history.failed_sign_ons, history.flapping),
        "Traffic": (traffic.watch, traffic.top),
    }.items():
        subscribers.subscribers.add_section(title, commands)
    return subscribers.subscribers


@group(
    params=[context_option(), all_option(), output_option(), columns_option()],
    epilog=_EPILOG,
    commands=LateCommands((name for names in _SECTIONS.values() for name in names), _load),
    sections=_SECTIONS,
    summaries=SUMMARIES,
)
@click.version_option(package_name=PACKAGE, message="%(prog)s %(version)s")
def gatewayctl() -> None:
    """The command line of a subscriber gateway's management API.

    `gatewayctl login` first, then for example `gatewayctl subscribers find alice`. The options --context,
    --all and -o may also stand after the command.
    """


def main() -> int:
    """The exit status, one of ExitStatus or 128 and the number of a signal."""
    terminal.prepare()
    try:
        status = gatewayctl.main(prog_name="gatewayctl", standalone_mode=False)
        return status if isinstance(status, int) else ExitStatus.DONE
    except ClientError as failure:
        complain(failure.lines)
        return status_of(failure)
    except click.UsageError as error:
        said = io.StringIO()
        error.show(said)
        # It repeats the arguments.
        for each in said.getvalue().splitlines():
            terminal.tell(each)
        return ExitStatus.USAGE
    except (click.Abort, KeyboardInterrupt):
        terminal.tell("")
        return ExitStatus.INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has seen enough. The interpreter would complain at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitStatus.DONE


if __name__ == "__main__":
    sys.exit(main())
