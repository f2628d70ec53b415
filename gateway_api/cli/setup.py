"""The command `gateway-api-setup`, which creates the system users, the secret, the certificate and the first
user of the API.

The command creates only missing or incomplete files. The package runs the command at each installation; after
`make install`, the operator runs it once. A timer runs it to renew the certificate.
"""

import json
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path

import click

from gateway_api.cli import certificates
from gateway_contract.base import durable
from gateway_contract.base.certificate import read_expiry
from gateway_contract.base.errors import CoreAbsent, GatewayApiError
from gateway_contract.base.texts import format_utc
from gateway_contract.base.variables import CONFIGURATION, ETC
from gateway_contract.passwords import hash_password
from gateway_contract.program import run

#: File with the certificate and the key that the API has used since its start or its last reload.
SERVED_PAIR = Path("/run/gateway-api-certificate/pair.pem")
#: Folders in which systemd looks for units.
UNIT_FOLDERS = tuple(
    Path(folder, "systemd/system") for folder in ("/etc", "/run", "/usr/local/lib", "/usr/lib")
)
#: The group of the core, which reads the first users.
CORE_GROUP = "gateway-core"


def main() -> int:
    """Run the command, and return the exit status: 0, 1 with an error message on standard error, or 2 for
    wrong arguments."""
    try:
        return run(setup, "gateway-api-setup")
    except (GatewayApiError, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"gateway-api-setup: {error}\n")
        return 1


@click.command()
@click.option(
    "--renew-certificate", "only_renew", is_flag=True,
    help="renew the certificate that gateway-api-setup made, if it ends soon, and do nothing else",
)  # fmt: skip
def setup(only_renew: bool) -> None:
    """Prepare an appliance."""
    if only_renew:
        renew_certificate(ETC)
        return
    subprocess.run(["systemd-sysusers", "gateway-api.conf"], check=True)
    prepare(ETC, CONFIGURATION, CORE_GROUP)
    units = [folder / "gateway-core.service" for folder in UNIT_FOLDERS]
    # A dangling link is an operator's choice, too.
    if not any(unit.exists() or unit.is_symlink() for unit in units):
        click.echo(CoreAbsent.HINT)


def prepare(etc: Path, configuration: Path, group: str | None) -> None:
    """Create missing or incomplete files, each of them atomically. The first user is created only while the
    core has no configuration. Members of `group` can read the file of the first user. Raises GatewayApiError
    if a certificate cannot be created, and OSError if a file cannot be read or written."""
    tls = etc / "tls"
    tls.mkdir(parents=True, exist_ok=True)
    tls.chmod(0o755)
    secret, certificate, users = etc / "secret", tls / "certificate.pem", etc / "first-users.json"
    # A short secret was made by an operator, and the API warns of it.
    if not (secret.exists() and secret.read_bytes().strip()):
        durable.replace(secret, f"{secrets.token_hex(32)}\n".encode())
    certificates.ensure(certificate, tls / "key.pem", socket.gethostname())
    if certificates.is_authority(certificate):
        click.echo(
            f"{certificate} is a CA certificate: with a stolen key, anybody signs for any name.\n"
            "Replace it by one with CA:FALSE. Or delete it and run gateway-api-setup, which creates one for "
            "this server only."
        )
    _warn_of_expiry(certificate)
    # The folder alone is no sign: the core creates the folder before it reads the first users.
    if not (configuration / "state.json").exists() and not _has_json(users):
        _make_first_user(etc, users, group)


def renew_certificate(etc: Path) -> None:
    """Renew the certificate if this command created the certificate and it expires soon. Reload the API if
    the API does not serve the new certificate yet. Raises GatewayApiError if openssl fails, OSError if a file
    cannot be read or written, and subprocess.SubprocessError if the reload fails."""
    certificate, key = etc / "tls" / "certificate.pem", etc / "tls" / "key.pem"
    if certificates.renew(certificate, key, socket.gethostname()):
        click.echo(
            f"{certificate} is renewed for {certificates.VALIDITY_DAYS} days: "
            "clients that trust the file need it"
        )
    _warn_of_expiry(certificate)
    # Also without a renewal: the reload after the last renewal may have failed.
    is_made_here = certificates.is_made_here(certificate)
    if is_made_here and SERVED_PAIR.exists() and certificate.read_bytes() not in SERVED_PAIR.read_bytes():
        subprocess.run(["systemctl", "try-reload-or-restart", "gateway-api.service"], check=True)


def _warn_of_expiry(certificate: Path) -> None:
    end = read_expiry(certificate)
    if end is not None and end <= time.time():
        click.echo(
            f"{certificate} expired at {format_utc(end)}: clients reject it.\n"
            "Replace it. Or delete it and run gateway-api-setup, which creates one, and reload gateway-api."
        )


def _has_json(path: Path) -> bool:
    """Return True if a file contains JSON that is not empty. After a power cut, a file may be incomplete."""
    try:
        return bool(json.loads(path.read_bytes()))
    except (FileNotFoundError, ValueError):
        return False


def _make_first_user(etc: Path, users: Path, group: str | None) -> None:
    password = secrets.token_urlsafe(18)
    admin = {"username": "admin", "role": "admin", "password_hash": hash_password(password)}
    # The password is written before its hash: a second run does nothing if the hash exists.
    durable.replace(etc / "first-password", f"{password}\n".encode())
    durable.replace(users, f"{json.dumps([admin])}\n".encode(), mode=0o640, group=group)
    click.echo(
        f"The first user of the API is admin. Only root can read the password, in {etc / 'first-password'}:\n"
        "log in with it, set your own by `gatewayctl users password admin --commit`, and delete the file."
    )


if __name__ == "__main__":
    sys.exit(main())
