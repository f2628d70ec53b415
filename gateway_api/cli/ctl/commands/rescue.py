"""For root on the gateway, when the API is disabled or no user can log in: it calls the core, not the API."""

import os
import sys
from argparse import Namespace

import click

from gateway_api.base.errors import GatewayApiError
from gateway_api.cli.ctl import terminal
from gateway_api.cli.ctl.command import group
from gateway_api.cli.ctl.failures import CommandFailure, ExitStatus
from gateway_api.cli.ctl.prompts import STANDARD_INPUT, new_password
from gateway_api.cli.ctl.texts import lines


@group()
def rescue() -> None:
    """Repairs the access to the API, as root on the gateway, over the core's socket.

    GATEWAY_CORE_SOCKET names another socket. Each command takes effect at once, keeps the candidate, and is
    in the audit log.
    """


@rescue.command()
def enable() -> None:
    """Enables the API: sets api.enabled to true."""
    _rescue(Namespace(rescue="enable"))


@rescue.command()
@click.argument("user")
@click.option("--create-admin", is_flag=True, help="Creates the user with the role admin, if there is none.")
def password(user: str, create_admin: bool) -> None:
    """Sets the password of a user, which you type twice, or which is a line of standard input."""
    _rescue(Namespace(rescue="password", user=user, create_admin=create_admin))


@rescue.command()
def undo() -> None:
    """Undoes the last commit: the configuration before it runs again."""
    _rescue(Namespace(rescue="undo"))


def _rescue(arguments: Namespace) -> None:
    # Here, as only this command calls the core.
    from gateway_api.cli.rescue import rescue

    def ask() -> str:
        return new_password(arguments.user, None if sys.stdin.isatty() else STANDARD_INPUT)

    try:
        terminal.show(*lines(rescue(arguments, os.environ, ask)))
    except (GatewayApiError, ValueError, OSError) as error:
        raise CommandFailure(ExitStatus.REFUSED, str(error)) from error
