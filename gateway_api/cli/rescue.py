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
from gateway_api.daemon.calls import Calls
from gateway_api.daemon.commands import Daemon
from gateway_api.daemon.configuration import ConfigurationCommands, Edit
from gateway_api.wire.core.configuration import EditAction
from gateway_api.wire.varlink.client import Client

#: The author of its commits in the archive.
_AUTHOR = "root"
_CALL_TIMEOUT = 3.0
_NEWEST = 1
_ADMIN = "admin"


class Refused(GatewayApiError):
    """The reason, in one sentence."""


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands."""
    commands = parser.add_subparsers(dest="rescue", required=True)
    commands.add_parser("enable", help="set api.enabled to true")
    password = commands.add_parser(
        "password", help="set the password of a user, read without echo or from standard input"
    )
    password.add_argument("user", metavar="USER")
    password.add_argument(
        "--create-admin", action="store_true", help="make the user, with the role admin, if there is none"
    )
    commands.add_parser("undo", help="undo the last commit: what ran before it runs again")


def rescue(arguments: argparse.Namespace, environment: Mapping[str, str], ask: Callable[[], str]) -> str:
    """Returns a sentence about the result. `ask` returns a password. Raises ValueError for an invalid one,
    and Refused."""
    if os.geteuid() != 0:
        raise Refused("only root may do this")
    path = core_socket(environment)
    _join_the_group_of(path)
    with closing(Client(path, timeout=_CALL_TIMEOUT)) as client:
        calls = Calls(client)
        try:
            return _do(arguments, Daemon(calls), ConfigurationCommands(calls), ask)
        except CoreUnavailable as error:
            raise Refused(_why_unavailable(path, error)) from error
        except Refused:
            raise
        except GatewayApiError as error:
            raise Refused(f"the core refuses: {error}") from error


def _do(
    arguments: argparse.Namespace,
    daemon: Daemon,
    configuration: ConfigurationCommands,
    ask: Callable[[], str],
) -> str:
    match arguments.rescue:
        case "enable":
            return _enable(configuration)
        case "password":
            return _set_password(daemon, configuration, arguments.user, ask, create=arguments.create_admin)
        case _:
            return _undo(configuration)


def _enable(configuration: ConfigurationCommands) -> str:
    edit = Edit(EditAction.SET, "api.enabled", True)
    done = configuration.amend([edit], _AUTHOR, "rescue.enable")
    return "The API is enabled." if done.committed else "The API is enabled already; nothing was changed."


def _set_password(
    daemon: Daemon, configuration: ConfigurationCommands, user: str, ask: Callable[[], str], *, create: bool
) -> str:
    if '"' in user or not user.isprintable():
        raise Refused("no user can have such a name")
    # Before the password is typed.
    known = daemon.check_access([user]).user(user)
    if known is None and not create:
        raise Refused(f"there is no user {user}; --create-admin makes one, with the role admin")
    hashed, path = hash_password(ask()), f'api.users."{user}"'
    if known is None:
        value = {"username": user, "password_hash": hashed, "role": _ADMIN}
        configuration.amend([Edit(EditAction.SET, path, value)], _AUTHOR, "rescue.password")
        return f"There is a new user {user} with the role admin and this password."
    configuration.amend([Edit(EditAction.SET, f"{path}.password_hash", hashed)], _AUTHOR, "rescue.password")
    return f"The password of {user}, whose role is {known.role}, is set."


def _undo(configuration: ConfigurationCommands) -> str:
    try:
        done = configuration.restore(_NEWEST, _AUTHOR, "rescue.undo")
    except NotFound as error:
        raise Refused("nothing was ever committed, so there is nothing to undo") from error
    values = f"{done.changes} value{'' if done.changes == 1 else 's'}"
    if not done.committed:
        return "What ran before the last commit is what runs; nothing was changed."
    return f"The last commit is undone: {values} changed back. To undo this, undo again."


def _join_the_group_of(path: Path) -> None:
    """The core trusts peers of its group, which is that of its socket."""
    try:
        os.setegid(path.stat().st_gid)
    except FileNotFoundError as error:
        raise Refused(_not_running(path)) from error
    except OSError as error:
        raise Refused(f"cannot look at the core's socket {path}: {error.strerror}") from error


def _why_unavailable(path: Path, error: CoreUnavailable) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError | FileNotFoundError):
            return _not_running(path)
        cause = cause.__cause__
    return f"the core daemon does not answer as it should: {error}"


def _not_running(path: Path) -> str:
    return (
        f"the core daemon is not running: nobody listens at {path}; "
        "GATEWAY_CORE_SOCKET names another socket, systemctl start gateway-core starts it"
    )
