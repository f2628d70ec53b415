"""Rescue operations for root on the gateway, for use when the API is disabled or no user can log in.

Each operation calls the core. No operation edits files or changes the candidate.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from gateway_contract.base.errors import CoreUnavailable, GatewayApiError, NotFound
from gateway_contract.base.variables import core_socket
from gateway_contract.core.configuration import Edit, EditAction
from gateway_contract.core_client import CoreClient
from gateway_contract.passwords import hash_password
from gateway_contract.varlink.client import Client, join_group_of

#: The author of the commits of a rescue in the archive.
_AUTHOR = "root"
_NEWEST_REVISION = 1


class CannotRescue(GatewayApiError):
    """Failure of a rescue operation. The message is the reason, in one sentence."""


def enable(environment: Mapping[str, str]) -> str:
    """Set api.enabled to true, and return a sentence about the result. Raises CannotRescue if the user is not
    root, or if the core does not reply or refuses the change."""
    with _open_core(environment) as core:
        result = core.commit_edits([Edit(EditAction.SET, "api.enabled", True)], _AUTHOR, "rescue.enable")
    return "The API is enabled." if result.committed else "The API is enabled already; nothing was changed."


def set_password(environment: Mapping[str, str], user: str, ask: Callable[[], str], *, create: bool) -> str:
    """Set the password of a user, and return a sentence about the result. With `create`, create the user as
    an admin if the user does not exist. `ask` returns the password. Raises ValueError if the password is
    invalid, and CannotRescue if the password cannot be set for any other reason."""
    with _open_core(environment) as core:
        if '"' in user or not user.isprintable():
            raise CannotRescue("no user can have such a name")
        # Checked before the operator types the password.
        account = core.check_access([user]).user(user)
        if account is None and not create:
            raise CannotRescue(f"there is no user {user}; --create-admin makes one, with the role admin")
        path, password_hash = f'api.users."{user}"', hash_password(ask())
        if account is None:
            edit = Edit(
                EditAction.SET, path, {"username": user, "password_hash": password_hash, "role": "admin"}
            )
            message = f"There is a new user {user} with the role admin and this password."
        else:
            edit = Edit(EditAction.SET, f"{path}.password_hash", password_hash)
            message = f"The password of {user}, whose role is {account.role}, is set."
        core.commit_edits([edit], _AUTHOR, "rescue.password")
    return message


def undo(environment: Mapping[str, str]) -> str:
    """Undo the last commit, and return a sentence about the result. Raises CannotRescue if there is no commit
    to undo, if the user is not root, or if the core does not reply or refuses the change."""
    with _open_core(environment) as core:
        try:
            result = core.restore(_NEWEST_REVISION, _AUTHOR, "rescue.undo")
        except NotFound as error:
            raise CannotRescue("there was no commit yet, so there is nothing to undo") from error
    if not result.committed:
        return "The configuration before the last commit is the running one; nothing was changed."
    values = f"{result.changes} value{'' if result.changes == 1 else 's'}"
    return f"The last commit is undone: {values} changed back. To undo this, undo again."


@contextmanager
def _open_core(environment: Mapping[str, str]) -> Iterator[CoreClient]:
    """Open a client of the core for a with block. Raises CannotRescue if the user is not root, and for each
    error of the core in the block."""
    if os.geteuid() != 0:
        raise CannotRescue("only root may do this")
    path = core_socket(environment)
    with closing(Client(path)) as client:
        try:
            join_group_of(path)
            yield CoreClient(client)
        except CannotRescue:
            raise
        except CoreUnavailable as error:
            raise CannotRescue(_explain_unavailable(path, error)) from error
        except GatewayApiError as error:
            raise CannotRescue(f"the core daemon refuses the change: {error}") from error


def _explain_unavailable(path: Path, error: CoreUnavailable) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError | FileNotFoundError):
            return (
                f"the core daemon is not running: nothing listens at {path}; a rescue works "
                "only on the gateway itself: GATEWAY_CORE_SOCKET names another socket, "
                "systemctl start gateway-core starts it"
            )
        cause = cause.__cause__
    return f"no usable reply from the core daemon: {error}"
