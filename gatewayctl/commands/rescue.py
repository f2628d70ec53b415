"""For root on the gateway, when the API is disabled or no user can log in: it calls the core, not the API."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import click

from gateway_contract.base.errors import GatewayApiError
from gatewayctl import terminal
from gatewayctl.client.errors import ClientError
from gatewayctl.command import group
from gatewayctl.failures import CommandFailure, ExitStatus
from gatewayctl.terminal import STANDARD_INPUT, new_password
from gatewayctl.texts import lines


@group()
def rescue() -> None:
    """Repairs the access to the API, as root on the gateway, over the core's socket.

    GATEWAY_CORE_SOCKET names another socket. Each command takes effect at once, keeps the candidate, and is
    in the audit log.
    """


@rescue.command()
def enable() -> None:
    """Enables the API: sets api.enabled to true."""
    with _rescue() as core:
        terminal.show(*lines(core.enable(os.environ)))


@rescue.command()
@click.argument("user")
@click.option("--create-admin", is_flag=True, help="Creates the user with the role admin, if there is none.")
def password(user: str, create_admin: bool) -> None:
    """Sets the password of a user, which you type twice, or which is a line of standard input."""

    def ask() -> str:
        return new_password(user, None if sys.stdin.isatty() else STANDARD_INPUT)

    with _rescue() as core:
        terminal.show(*lines(core.set_password(os.environ, user, ask, create=create_admin)))


@rescue.command()
def undo() -> None:
    """Undoes the last commit: the configuration before it runs again."""
    with _rescue() as core:
        terminal.show(*lines(core.undo(os.environ)))


@contextmanager
def _rescue() -> Iterator[ModuleType]:
    """The calls to the core. Raises CommandFailure."""
    # Here, as only this command calls the core.
    from gateway_contract import rescue

    try:
        yield rescue
    except ClientError:
        raise
    except (GatewayApiError, ValueError, OSError) as error:
        raise CommandFailure(ExitStatus.REFUSED, str(error)) from error
