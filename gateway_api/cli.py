"""`gateway-api`: what an operator does at a shell."""

import argparse
import getpass
import sys

from gateway_api.auth.passwords import hash_password


def main() -> int:
    """Exit status 0, or 1 with a sentence on standard error."""
    parser = argparse.ArgumentParser(prog="gateway-api", description="Helps to run the gateway API.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("hash-password", help="read a password without echo, print its hash for api.users")
    parser.parse_args()
    try:
        sys.stdout.write(f"{hash_password(_ask())}\n")
    except ValueError as error:
        sys.stderr.write(f"gateway-api: {error}\n")
        return 1
    except (EOFError, KeyboardInterrupt):
        sys.stderr.write("\ngateway-api: no password, no hash\n")
        return 1
    return 0


def _ask() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    password = getpass.getpass("Password: ")
    if getpass.getpass("Once more: ") != password:
        raise ValueError("the two don't match")
    return password
