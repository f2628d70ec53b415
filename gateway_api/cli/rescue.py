"""`gateway-api rescue`: for root on the gateway, when the API is disabled or no user can log in.

It calls the core, never edits files, and keeps the candidate.
"""

import argparse
import os
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from gateway_api.auth.passwords import hash_password
from gateway_api.base.errors import CoreUnavailable, GatewayApiError, NotFound
from gateway_api.base.settings import core_socket
from gateway_api.core_client.commands import Daemon, Edit
from gateway_api.wire.core.configuration import EditAction
from gateway_api.wire.varlink.client import Client, join_group_of

#: The author of its commits in the archive.
_AUTHOR = "root"
_NEWEST = 1


class CannotRescue(GatewayApiError):
    """The reason, in one sentence."""


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands."""
    commands = parser.add_subparsers(dest="rescue", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")

    command("enable", "set api.enabled to true")
    password = command("password", "set the password of a user, read without echo or from standard input")
    password.add_argument("user", metavar="USER")
    password.add_argument(
        "--create-admin", action="store_true", help="create the user with the role admin, if there is none"
    )
    command("undo", "undo the last commit: the configuration before it runs again")


def rescue(arguments: argparse.Namespace, environment: Mapping[str, str], ask: Callable[[], str]) -> str:
    """Returns a sentence about the result. `ask` returns a password. Raises ValueError for an invalid one,
    and CannotRescue."""
    if os.geteuid() != 0:
        raise CannotRescue("only root may do this")
    path = core_socket(environment)
    with closing(Client(path)) as client:
        daemon = Daemon(client)
        try:
            join_group_of(path)
            match arguments.rescue:
                case "enable":
                    return _enable(daemon)
                case "password":
                    return _set_password(daemon, arguments.user, ask, arguments.create_admin)
                case _:
                    return _undo(daemon)
        except CannotRescue:
            raise
        except CoreUnavailable as error:
            raise CannotRescue(_why_unavailable(path, error)) from error
        except GatewayApiError as error:
            raise CannotRescue(f"the core daemon refuses: {error}") from error


def _enable(daemon: Daemon) -> str:
    done = daemon.amend([Edit(EditAction.SET, "api.enabled", True)], _AUTHOR, "rescue.enable")
    return "The API is enabled." if done.committed else "The API is enabled already; nothing was changed."


def _set_password(daemon: Daemon, user: str, ask: Callable[[], str], create: bool) -> str:
    if '"' in user or not user.isprintable():
        raise CannotRescue("no user can have such a name")
    # Before the operator types the password.
    known = daemon.check_access([user]).user(user)
    if known is None and not create:
        raise CannotRescue(f"there is no user {user}; --create-admin makes one, with the role admin")
    path, hashed = f'api.users."{user}"', hash_password(ask())
    if known is None:
        edit = Edit(EditAction.SET, path, {"username": user, "password_hash": hashed, "role": "admin"})
        done = f"There is a new user {user} with the role admin and this password."
    else:
        edit = Edit(EditAction.SET, f"{path}.password_hash", hashed)
        done = f"The password of {user}, whose role is {known.role}, is set."
    daemon.amend([edit], _AUTHOR, "rescue.password")
    return done


def _undo(daemon: Daemon) -> str:
    try:
        done = daemon.restore(_NEWEST, _AUTHOR, "rescue.undo")
    except NotFound as error:
        raise CannotRescue("there was no commit yet, so there is nothing to undo") from error
    if not done.committed:
        return "The configuration before the last commit is the running one; nothing was changed."
    values = f"{done.changes} value{'' if done.changes == 1 else 's'}"
    return f"The last commit is undone: {values} changed back. To undo this, undo again."


def _why_unavailable(path: Path, error: CoreUnavailable) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError | FileNotFoundError):
            return (
                f"the core daemon is not running: nothing listens at {path}; "
                "GATEWAY_CORE_SOCKET names another socket, systemctl start gateway-core starts it"
            )
        cause = cause.__cause__
    return f"no usable reply from the core daemon: {error}"
