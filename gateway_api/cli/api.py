"""The command `gateway-api`, for operators at a shell, and for the unit that prepares the certificate."""

import getpass
import os
import ssl
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import click

from gateway_api.base.dependencies import LOCKED_ON, list_environments, list_packages
from gateway_api.base.settings import TOKEN, USERS
from gateway_contract import rescue
from gateway_contract.base.certificate import load_pair
from gateway_contract.base.errors import GatewayApiError
from gateway_contract.passwords import hash_password
from gateway_contract.program import Group, run
from gateway_contract.version import VERSION

_PATH_TYPE = click.Path(path_type=Path)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command, and return the exit status: 0, 1 with an error message on standard error, or 2 for
    wrong arguments. `words` are the arguments; by default, the arguments of the process."""
    try:
        return run(api, "gateway-api", words)
    except (GatewayApiError, ValueError, OSError) as error:
        sys.stderr.write(f"gateway-api: {error}\n")
        return 1


def _print_bill_of_materials(ctx: click.Context, _option: click.Parameter, is_requested: bool) -> None:
    """Print the bill of materials and end the program, as `--version` does."""
    if is_requested and not ctx.resilient_parsing:
        sys.stdout.write(format_bill_of_materials(list_environments()))
        ctx.exit()


def format_bill_of_materials(environments: Iterable[Path]) -> str:
    """Return the Python packages of the environments, one per line, and the day of their versions."""
    rows = [("# package", "version", "license", "environment")]
    rows.extend(
        (each.name, each.version, each.license, each.environment) for each in list_packages(environments)
    )
    return f"# versions of {LOCKED_ON}\n{_format_columns(rows)}"


@click.command(cls=Group)
@click.version_option(VERSION, message="%(prog)s %(version)s")
@click.option(
    "--bill-of-materials",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_bill_of_materials,
    help="List the Python packages that are installed with the gateway, with their versions and licenses.",
)
def api() -> None:
    """Tools for the operation of the API."""


@api.command("hash-password")
def print_hash() -> None:
    """Read a password without echo, print its hash for api.users."""
    sys.stdout.write(f"{hash_password(_ask_password())}\n")


@api.command("routes")
def print_routes() -> None:
    """List all routes with their access and profile."""
    sys.stdout.write(format_routes())


def format_routes() -> str:
    """Return all routes of both profiles, one per line: method, path, access and profile."""
    # Imported here, so that the unit's `join-certificate` does not wait for the import of Flask.
    from gateway_api.web.app import list_routes

    rows = [("# method", "path", "access", "profile")]
    for profile in (USERS, TOKEN):
        rows.extend(
            (route.method, route.path, route.operation.access.value, profile.name)
            for route in list_routes(profile)
        )
    return _format_columns(rows)


def _format_columns(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join(f"{'  '.join(map(str.ljust, row, widths)).rstrip()}\n" for row in rows)


@api.command("join-certificate")
@click.argument("certificate", type=_PATH_TYPE)
@click.argument("key", type=_PATH_TYPE)
@click.argument("pair", type=_PATH_TYPE)
def join_certificate(certificate: Path, key: Path, pair: Path) -> None:
    """Write certificate and key to a file, if they match."""
    load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key)
    # The file is replaced atomically, because a worker may read it meanwhile.
    draft = pair.with_suffix(".new")
    draft.touch(mode=0o600)
    draft.write_bytes(certificate.read_bytes() + b"\n" + key.read_bytes())
    draft.replace(pair)


@api.command("prove-backup")
@click.argument("backup", type=click.Path(path_type=Path, exists=True, file_okay=False))
def prove_backup(backup: Path) -> int:
    """Restore a backup into a temporary folder, and compare it with this gateway."""
    # Imported here, so that the unit's `join-certificate` does not wait for these imports.
    from gateway_api.cli.backup import prove

    proof = prove(backup, os.environ)
    sys.stdout.writelines(f"{line}\n" for line in proof.lines)
    sys.stdout.flush()
    sys.stderr.writelines(f"gateway-api: {reason}\n" for reason in proof.reasons)
    sys.stdout.write("The backup does not restore.\n" if proof.reasons else "The backup restores.\n")
    return 1 if proof.reasons else 0


@api.group("rescue")
def rescue_group() -> None:
    """As root on the gateway: enable the API, set a password, undo the last commit."""


@rescue_group.command("enable")
def enable_api() -> None:
    """Set api.enabled to true."""
    _run_rescue(partial(rescue.enable, os.environ))


@rescue_group.command("password")
@click.argument("user")
@click.option("--create-admin", is_flag=True, help="create the user with the role admin, if there is none")
def set_password(user: str, create_admin: bool) -> None:
    """Set the password of a user, read without echo or from standard input."""
    _run_rescue(partial(rescue.set_password, os.environ, user, _ask_password, create=create_admin))


@rescue_group.command("undo")
def undo_commit() -> None:
    """Undo the last commit: the configuration before it runs again."""
    _run_rescue(partial(rescue.undo, os.environ))


def _run_rescue(rescue_action: Callable[[], str]) -> None:
    """Run the given action of a rescue command, and print the text that the action returns."""
    try:
        sys.stdout.write(f"{rescue_action()}\n")
    except (EOFError, KeyboardInterrupt):
        sys.stderr.write("\n")
        raise click.Abort("; the audit log shows whether it took effect") from None


def _ask_password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().removeprefix("\ufeff").rstrip("\n")
    password = getpass.getpass("Password: ")
    if getpass.getpass("Once more: ") != password:
        raise ValueError("the two don't match")
    return password
