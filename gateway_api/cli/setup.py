"""`gateway-api-setup`: makes the system users, the secret, the certificate and the first user of the API.

It makes what is missing or incomplete. The package runs it at each installation; after `make install`, run it
once. A timer runs it to renew its certificate.
"""

import argparse
import json
import secrets
import socket
import subprocess
import sys
from pathlib import Path

from gateway_api.auth.passwords import hash_password
from gateway_api.base import durable
from gateway_api.base.errors import CoreAbsent, GatewayApiError
from gateway_api.cli import certificates

ETC = Path("/etc/gateway-api")
CONFIGURATION = Path("/var/lib/gateway-core/configuration")
#: Certificate and key of the API since its start or its last reload.
SERVED = Path("/run/gateway-api-certificate/pair.pem")
UNITS = tuple(Path(folder, "systemd/system") for folder in ("/etc", "/run", "/usr/local/lib", "/usr/lib"))
#: The group of the core, which reads the first users.
GROUP = "gateway-core"

_SECRET_BYTES = 32


def main() -> int:
    """Exit status 0, or 1 with a sentence on standard error."""
    arguments = _parser().parse_args()
    try:
        if arguments.renew_certificate:
            renew_certificate(ETC)
        else:
            subprocess.run(["systemd-sysusers", "gateway-api.conf"], check=True)
            prepare(ETC, CONFIGURATION, GROUP)
            if not any(_is_there(folder / "gateway-core.service") for folder in UNITS):
                _say(CoreAbsent.HINT)
    except (GatewayApiError, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"gateway-api-setup: {error}\n")
        return 1
    return 0


def prepare(etc: Path, configuration: Path, group: str | None) -> None:
    """Makes missing or incomplete files, each atomically. The first user is for a core without a
    configuration, and readable for `group`. Raises GatewayApiError and OSError."""
    tls = etc / "tls"
    tls.mkdir(parents=True, exist_ok=True)
    tls.chmod(0o755)
    if not _is_filled(etc / "secret"):
        durable.replace(etc / "secret", f"{secrets.token_hex(_SECRET_BYTES)}\n".encode())
    certificates.ensure(tls / "certificate.pem", tls / "key.pem", socket.gethostname())
    if certificates.is_authority(tls / "certificate.pem"):
        _say(
            f"{tls / 'certificate.pem'} is a CA certificate: with a stolen key, anybody signs for any name.\n"
            "Delete it and run gateway-api-setup to have one of a server alone."
        )
    # Not the folder: the core makes it before it reads the first users.
    if not (configuration / "state.json").exists() and not _are_users(etc / "first-users.json"):
        _make_first_user(etc, group)


def renew_certificate(etc: Path) -> None:
    """Renews a certificate of ours that ends soon, and reloads the API. Raises GatewayApiError, OSError and
    SubprocessError."""
    certificate, key = etc / "tls" / "certificate.pem", etc / "tls" / "key.pem"
    if certificates.renew(certificate, key, socket.gethostname()):
        _say(f"{certificate} is renewed for {certificates.DAYS} days: clients that trust the file need it")
    # Also without a renewal: the reload after the last one may have failed.
    if (
        certificates.is_ours(certificate)
        and SERVED.exists()
        and certificate.read_bytes() not in SERVED.read_bytes()
    ):
        subprocess.run(["systemctl", "try-reload-or-restart", "gateway-api.service"], check=True)


def _make_first_user(etc: Path, group: str | None) -> None:
    password = secrets.token_urlsafe(18)
    users = [{"username": "admin", "role": "admin", "password_hash": hash_password(password)}]
    # Before its hash: a second run does nothing when the hash exists.
    durable.replace(etc / "first-password", f"{password}\n".encode())
    durable.replace(etc / "first-users.json", f"{json.dumps(users)}\n".encode(), mode=0o640, group=group)
    _say(
        f"The first user of the API is admin. The password is in {etc / 'first-password'}, for root's eyes:\n"
        "log in with it, commit a hash of another to api.users.admin.password_hash, delete the file."
    )


def _is_filled(path: Path) -> bool:
    """Whether it has more than whitespace. A short secret is an operator's, and the API warns of it."""
    return path.exists() and bool(path.read_bytes().strip())


def _are_users(path: Path) -> bool:
    try:
        return bool(json.loads(path.read_bytes()))
    except (FileNotFoundError, ValueError):
        return False


def _is_there(unit: Path) -> bool:
    # A dangling link is an operator's choice, too.
    return unit.exists() or unit.is_symlink()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gateway-api-setup", description="Prepares an appliance.")
    parser.add_argument(
        "--renew-certificate",
        action="store_true",
        help="only make the certificate that was made here anew, if it ends soon",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
