"""Commands for the users of the API. The configuration stores the users at `api.users`, so a change goes to
the candidate."""

import click

from gateway_client.errors import ExitStatus
from gateway_client.gateway import Record, RemoteGateway
from gateway_contract.base.texts import PathSegment, format_path
from gateway_contract.core.configuration import MAX_COMMENT_LENGTH, Role
from gatewayctl import cli
from gatewayctl.commands.configuration import CONFIGURATION_PATH, RemoteCandidate
from gatewayctl.completion import GatewayWords
from gatewayctl.errors import CommandError
from gatewayctl.results import IDENTITY, Column, Report, ResultList
from gatewayctl.terminal import ask_password
from gatewayctl.texts import escape

_USER_COLUMNS = (Column("username", IDENTITY), Column("role", IDENTITY))


def _list_users(gateway: RemoteGateway) -> list[Record]:
    users: list[Record] = gateway.get(CONFIGURATION_PATH)["api"]["users"]
    return users


def _get_user_path(username: str, *fields: str) -> str:
    if '"' in username or not username.isprintable() or not username:
        raise CommandError(ExitStatus.USAGE, f"no user can have the name {username!r}")
    return format_path(PathSegment(each) for each in ("api", "users", username, *fields))


_user_argument = click.argument(
    "username",
    type=GatewayWords(lambda gateway, _: [(each["username"], each["role"]) for each in _list_users(gateway)]),
)
_role_option = click.option(
    "--role", type=click.Choice([each.value for each in Role]), required=True, help="The rights of the user."
)
_password_option = click.option(
    "--password-file", metavar="FILE", help="The password is its first line; - is standard input."
)
_commit_option = click.option(
    "--commit", is_flag=True, help="Commit the change at once, if the candidate has no others."
)


@cli.group()
def users() -> None:
    """Manage the users of the API and their roles.

    A change goes to the candidate; `gatewayctl config commit`, or --commit, makes it effective. A new
    password or role, or the removal of the user, ends all tokens of the user.
    """


@users.command("list")
@cli.read_command
def list_(gateway: RemoteGateway) -> ResultList:
    """List the users of the running configuration."""
    return ResultList(_list_users(gateway), _USER_COLUMNS)


@users.command()
@click.argument("username")
@_role_option
@_password_option
@_commit_option
@cli.change_command
def add(gateway: RemoteGateway, username: str, role: str, password_file: str | None, commit: bool) -> Report:
    """Add a user. Type the password twice."""
    path = _get_user_path(username)
    if any(each["username"] == username for each in _list_users(gateway)):
        raise CommandError(ExitStatus.REFUSED, f"there is a user {escape(username)} already")
    hashed = _ask_password_hash(username, password_file)
    value = {"username": username, "password_hash": hashed, "role": role}
    return _apply_operation(gateway, {"op": "set", "path": path, "value": value}, commit)


@users.command()
@_user_argument
@_password_option
@_commit_option
@cli.change_command
def password(gateway: RemoteGateway, username: str, password_file: str | None, commit: bool) -> Report:
    """Set the password of a user. Type the password twice."""
    _require_user(gateway, username)
    path, value = _get_user_path(username, "password_hash"), _ask_password_hash(username, password_file)
    return _apply_operation(gateway, {"op": "set", "path": path, "value": value}, commit)


@users.command()
@_user_argument
@_role_option
@_commit_option
@cli.change_command
def role(gateway: RemoteGateway, username: str, role: str, commit: bool) -> Report:
    """Set the role of a user."""
    _require_user(gateway, username)
    return _apply_operation(
        gateway, {"op": "set", "path": _get_user_path(username, "role"), "value": role}, commit
    )


@users.command()
@_user_argument
@_commit_option
@cli.yes_option
@cli.change_command
def remove(gateway: RemoteGateway, username: str, commit: bool, yes: bool) -> Report:
    """Remove a user, after asking."""
    _require_user(gateway, username)
    cli.confirm(f"Remove the user {escape(username)}?", yes=yes, refusal="nothing was removed")
    return _apply_operation(gateway, {"op": "delete", "path": _get_user_path(username)}, commit)


@users.command()
@_user_argument
@cli.change_command
def logout(gateway: RemoteGateway, username: str) -> Report:
    """End all tokens of a user immediately, without a change of the configuration."""
    response = gateway.send("POST", "/auth/logout-everywhere", {"username": username})
    return Report(response["message"], response)


def _require_user(gateway: RemoteGateway, username: str) -> None:
    if all(each["username"] != username for each in _list_users(gateway)):
        raise CommandError(ExitStatus.REFUSED, f"there is no user {escape(username)}")


def _ask_password_hash(username: str, password_file: str | None) -> str:
    """Return the hash of the password in a file. If `password_file` is None, the user types the password.
    Raises CommandError if the file cannot be read, there is no terminal, or the password is not allowed."""
    # Imported here, because bcrypt is a compiled module.
    from gateway_contract.passwords import hash_password

    try:
        return hash_password(ask_password(username, password_file, is_new=True))
    except ValueError as error:
        raise CommandError(ExitStatus.USAGE, str(error)) from error


def _apply_operation(gateway: RemoteGateway, operation: Record, commit: bool) -> Report:
    """Stage an operation in the candidate. With `commit`, also commit the candidate. Raises ClientError if a
    request fails, or if the candidate already has changes that would be committed, too."""
    candidate = RemoteCandidate(gateway)
    path = operation["path"]
    if not commit:
        candidate.edit(operation)
        message = f"{path} is changed in the candidate; gatewayctl config commit makes it effective"
        return Report(message, {"path": path, "committed": False})
    candidate.require_clean(discard=False, remedy="no --commit")
    try:
        candidate.edit(operation)
        response = candidate.commit({"comment": f"{operation['op']} {path}"[:MAX_COMMENT_LENGTH]})
    finally:
        candidate.unstage()
    return Report(response["message"], response)
