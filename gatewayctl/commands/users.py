"""The users of the API. They are in the configuration, at `api.users`: a change is one of the candidate."""

from typing import Any

import click

from gateway_contract.base.texts import PathSegment, format_path
from gateway_contract.core.configuration import LONGEST_COMMENT, Role
from gatewayctl.candidate import RemoteCandidate
from gatewayctl.client.gateway import Record, RemoteGateway
from gatewayctl.command import group
from gatewayctl.completion import Offered
from gatewayctl.failures import CommandFailure, ExitStatus
from gatewayctl.invocation import acts, confirm, reads, yes_option
from gatewayctl.results import Importance, Report, ResultList, ShownColumn
from gatewayctl.terminal import new_password
from gatewayctl.texts import line

_COLUMNS = (
    ShownColumn("username", importance=Importance.IDENTITY),
    ShownColumn("role", importance=Importance.IDENTITY),
)


def _users(gateway: RemoteGateway) -> list[Record]:
    users: list[Record] = gateway.get("/system/config")["api"]["users"]
    return users


def _path(username: str, *fields: str) -> str:
    if '"' in username or not username.isprintable() or not username:
        raise CommandFailure(ExitStatus.USAGE, f"no user can have the name {username!r}")
    return format_path(PathSegment(each) for each in ("api", "users", username, *fields))


user = click.argument(
    "username",
    type=Offered(lambda gateway, _: [(each["username"], each["role"]) for each in _users(gateway)]),
)
role_option = click.option(
    "--role", type=click.Choice([each.value for each in Role]), required=True, help="The rights of the user."
)
password_option = click.option(
    "--password-file", metavar="FILE", help="The password is its first line; - is standard input."
)
commit_option = click.option(
    "--commit", is_flag=True, help="Commits the change at once, if the candidate has no others."
)


@group()
def users() -> None:
    """Manages the users of the API and their roles.

    A change goes to the candidate; `gatewayctl config commit`, or --commit, makes it effective. A new
    password or role, or the removal of the user, ends all tokens of the user.
    """


@users.command("list")
@reads
def list_(gateway: RemoteGateway) -> ResultList:
    """Lists the users of the running configuration."""
    return ResultList(_users(gateway), _COLUMNS)


@users.command()
@acts
@click.argument("username")
@role_option
@password_option
@commit_option
def add(gateway: RemoteGateway, username: str, role: str, password_file: str | None, commit: bool) -> Report:
    """Adds a user, with a password that you type twice."""
    path = _path(username)
    if any(each["username"] == username for each in _users(gateway)):
        raise CommandFailure(ExitStatus.REFUSED, f"there is a user {line(username)} already")
    hashed = _hashed(username, password_file)
    value = {"username": username, "password_hash": hashed, "role": role}
    return _changed(gateway, {"op": "set", "path": path, "value": value}, commit)


@users.command()
@acts
@user
@password_option
@commit_option
def password(gateway: RemoteGateway, username: str, password_file: str | None, commit: bool) -> Report:
    """Sets the password of a user; you type it twice."""
    _require(gateway, username)
    value = _hashed(username, password_file)
    return _changed(gateway, {"op": "set", "path": _path(username, "password_hash"), "value": value}, commit)


@users.command()
@acts
@user
@role_option
@commit_option
def role(gateway: RemoteGateway, username: str, role: str, commit: bool) -> Report:
    """Sets the role of a user."""
    _require(gateway, username)
    return _changed(gateway, {"op": "set", "path": _path(username, "role"), "value": role}, commit)


@users.command()
@acts
@user
@commit_option
@yes_option
def remove(gateway: RemoteGateway, username: str, commit: bool, yes: bool) -> Report:
    """Removes a user, after it has asked."""
    _require(gateway, username)
    confirm(f"Remove the user {line(username)}?", yes=yes, otherwise="nothing was removed")
    return _changed(gateway, {"op": "delete", "path": _path(username)}, commit)


@users.command()
@acts
@user
def logout(gateway: RemoteGateway, username: str) -> Report:
    """Ends all tokens of a user at once, without a change of the configuration."""
    done = gateway.send("POST", "/auth/logout-everywhere", {"username": username})
    return Report(done["message"], done)


def _require(gateway: RemoteGateway, username: str) -> None:
    if all(each["username"] != username for each in _users(gateway)):
        raise CommandFailure(ExitStatus.REFUSED, f"there is no user {line(username)}")


def _hashed(username: str, password_file: str | None) -> str:
    # Here, as no other command needs bcrypt.
    from gateway_contract.passwords import hash_password

    try:
        return hash_password(new_password(username, password_file))
    except ValueError as error:
        raise CommandFailure(ExitStatus.USAGE, str(error)) from error


def _changed(gateway: RemoteGateway, operation: Record, commit: bool) -> Report:
    candidate = RemoteCandidate(gateway)
    path = operation["path"]
    if not commit:
        candidate.edit(operation)
        said = f"{path} is changed in the candidate; gatewayctl config commit makes it effective"
        return Report(said, {"path": path, "committed": False})
    candidate.require_clean(discard=False, remedy="no --commit")
    try:
        candidate.edit(operation)
        done: dict[str, Any] = candidate.commit({"comment": f"{operation['op']} {path}"[:LONGEST_COMMENT]})
    finally:
        candidate.unstage()
    return Report(done["message"], done)
