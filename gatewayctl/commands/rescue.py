"""Commands for root on the gateway that repair the access to the API when the API is disabled or no user can
log in. The commands call the core directly."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import click

from gateway_client.errors import ClientError, ExitStatus
from gateway_contract.base.errors import GatewayApiError
from gatewayctl import cli, terminal
from gatewayctl.errors import CommandError
from gatewayctl.terminal import STANDARD_INPUT, ask_password
from gatewayctl.texts import escape_lines


@cli.group()
def rescue() -> None:
    """Repair the access to the API, as root on the gateway, over the core's socket.

    GATEWAY_CORE_SOCKET names another socket. Each command takes effect at once, keeps the candidate, and is
    in the audit log.
    """


@rescue.command()
def enable() -> None:
    """Enable the API: set api.enabled to true."""
    from gateway_contract import rescue as core_rescue

    with _translate_errors():
        terminal.show(*escape_lines(core_rescue.enable(os.environ)))


@rescue.command()
@click.argument("user")
@click.option("--create-admin", is_flag=True, help="Create the user with the role admin, if there is none.")
def password(user: str, create_admin: bool) -> None:
    """Set the password of a user. Type the password twice, or pass one line of standard input."""
    from gateway_contract import rescue as core_rescue

    ask = partial(ask_password, user, None if sys.stdin.isatty() else STANDARD_INPUT, is_new=True)
    with _translate_errors():
        terminal.show(*escape_lines(core_rescue.set_password(os.environ, user, ask, create=create_admin)))


@rescue.command()
def undo() -> None:
    """Undo the last commit: restore the configuration before the last commit."""
    from gateway_contract import rescue as core_rescue

    with _translate_errors():
        terminal.show(*escape_lines(core_rescue.undo(os.environ)))


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Turn errors of a rescue that are raised in the body of the with statement into CommandErrors."""
    try:
        yield
    except ClientError:
        raise
    except (GatewayApiError, ValueError, OSError) as error:
        raise CommandError(ExitStatus.REFUSED, str(error)) from error
