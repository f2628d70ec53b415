"""`gateway-api`: for operators at a shell, and for the unit that prepares the API's certificate."""

import argparse
import getpass
import os
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path

from gateway_api.auth.passwords import hash_password
from gateway_api.base.errors import GatewayApiError
from gateway_api.cli.rescue import add_commands, rescue
from gateway_api.version import VERSION


def main(words: Sequence[str] | None = None) -> int:
    """Exit status 0, or 1 with a sentence on standard error. Without `words`, those of the process count."""
    arguments = _parser().parse_args(words)
    try:
        if arguments.command == "routes":
            # Flask takes time that the unit's `join-certificate` need not spend.
            from gateway_api.cli.routes import routes

            sys.stdout.write(routes())
        elif arguments.command == "join-certificate":
            _join_certificate(arguments.certificate, arguments.key, arguments.pair)
        elif arguments.command == "rescue":
            sys.stdout.write(f"{rescue(arguments, os.environ, _ask)}\n")
        else:
            sys.stdout.write(f"{hash_password(_ask())}\n")
    except (GatewayApiError, ValueError, OSError) as error:
        sys.stderr.write(f"gateway-api: {error}\n")
        return 1
    except (EOFError, KeyboardInterrupt):
        more = "; the audit log shows whether it took effect" if arguments.command == "rescue" else ""
        sys.stderr.write(f"\ngateway-api: stopped before the end{more}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gateway-api", description="Tools for the operation of the API.")
    parser.add_argument("--version", action="version", version=f"gateway-api {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")

    command("hash-password", "read a password without echo, print its hash for api.users")
    command("routes", "list all routes with their access and profile")
    join = command("join-certificate", "write certificate and key to a file, if they match")
    for name in ("certificate", "key", "pair"):
        join.add_argument(name, type=Path)
    add_commands(
        command("rescue", "as root on the gateway: enable the API, set a password, undo the last commit")
    )
    return parser


def _join_certificate(certificate: Path, key: Path, pair: Path) -> None:
    """Atomically: a worker may read the file meanwhile."""
    try:
        # With an empty password, an encrypted key is an error. Without one, openssl would prompt.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        # The key's reader says no more than "PEM lib".
        hint = "; the key has a passphrase" if b"ENCRYPTED" in key.read_bytes() else ""
        raise ValueError(f"the certificate and the key can't be used together: {error}{hint}") from error
    draft = pair.with_suffix(".new")
    draft.touch(mode=0o600)
    draft.write_bytes(certificate.read_bytes() + b"\n" + key.read_bytes())
    draft.replace(pair)


def _ask() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    password = getpass.getpass("Password: ")
    if getpass.getpass("Once more: ") != password:
        raise ValueError("the two don't match")
    return password
