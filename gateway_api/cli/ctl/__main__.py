"""`gatewayctl`: all commands, as its help and the man pages show them."""

import io
import os
import sys

import click

from gateway_api.cli.ctl import terminal
from gateway_api.cli.ctl.command import group
from gateway_api.cli.ctl.commands import (
    configuration,
    events,
    history,
    jobs,
    login,
    network,
    rates,
    rescue,
    status,
    subscribers,
    traffic,
    users,
    webhooks,
)
from gateway_api.cli.ctl.completion import completion
from gateway_api.cli.ctl.failures import MEANINGS, ExitStatus, status_of
from gateway_api.cli.ctl.invocation import all_option, columns_option, context_option, output_option
from gateway_api.cli.ctl.terminal import complain
from gateway_api.client.errors import ClientError
from gateway_api.version import PACKAGE

_EPILOG = "Exit status: " + "; ".join(f"{int(status)}, {about}" for status, about in MEANINGS.items()) + "."


@group(params=[context_option(), all_option(), output_option(), columns_option()], epilog=_EPILOG)
@click.version_option(package_name=PACKAGE, message="%(prog)s %(version)s")
def gatewayctl() -> None:
    """The command line of a subscriber gateway's management API.

    `gatewayctl login` first, then for example `gatewayctl subscribers find alice`. The options --context,
    --all and -o may also stand after the command.
    """


for _title, _commands in {
    "Login": (login.login, login.logout, login.contexts),
    "Subscribers": (subscribers.subscribers, jobs.jobs, events.events),
    "Network": (*network.COMMANDS, traffic.over_time),
    "Configuration": (configuration.config, users.users, configuration.backup, configuration.restore),
    "Operation": (
        status.status,
        status.health,
        status.version,
        history.audit,
        webhooks.webhooks,
        rescue.rescue,
        completion,
    ),
}.items():
    gatewayctl.add_section(_title, _commands)

for _title, _commands in {
    "Sessions": (subscribers.list_, subscribers.find, subscribers.show, subscribers.summary),
    "Changes": (subscribers.disconnect, rates.rate),
    "Past": (history.history, history.timeline, history.failed_sign_ons, history.flapping),
    "Traffic": (traffic.watch, traffic.top),
}.items():
    subscribers.subscribers.add_section(_title, _commands)


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
