"""Self-signed certificates, for a server that has no certificate yet.

Each is that of a server and not of an authority: a stolen key signs for no other name. Each is its own trust
anchor: a client that trusts the file trusts this server alone.
"""

import os
import shutil
import subprocess
from pathlib import Path

from gateway_contract.base import durable
from gateway_contract.base.errors import GatewayApiError

#: Validity: the limit of browsers (CA/Browser Forum, Baseline Requirements 6.3.2), minus a day, as the last
#: second counts.
DAYS = 397
#: Seconds before the end at which a certificate is renewed.
_RENEWAL_SECONDS = 30 * 86400
#: Organization in the subject of certificates that this module made.
_ORGANIZATION = "gateway-api self-signed"
#: Limit for a call of openssl: a slow machine may wait for random numbers.
_TIMEOUT_SECONDS = 60


class NoCertificate(GatewayApiError):
    """Failure of openssl, with its reason."""


def ensure(certificate: Path, key: Path, name: str) -> bool:
    """Make a missing or incomplete certificate for a host's name, and a key if there is no complete one.
    Return True if a certificate was made. Raises NoCertificate and OSError."""
    if not _is_complete(key):
        # First: a power cut between the two must not leave a certificate of another key.
        certificate.unlink(missing_ok=True)
        durable.sync(certificate.parent)
        durable.replace(key, _call("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"))
    if _is_complete(certificate):
        return False
    _sign(certificate, key, name)
    return True


def renew(certificate: Path, key: Path, name: str) -> bool:
    """Renew a certificate that this module made and that ends soon, for the same key. Return True if it was
    renewed. Raises NoCertificate and OSError."""
    if not is_made_here(certificate):
        return False
    if (
        _run("x509", "-noout", "-checkend", str(_RENEWAL_SECONDS), given=certificate.read_bytes()).returncode
        == 0
    ):
        return False
    _sign(certificate, key, name)
    return True


def is_made_here(certificate: Path) -> bool:
    """Return True if this module made the certificate. Raises NoCertificate and OSError."""
    subject = _call("x509", "-noout", "-subject", "-nameopt", "RFC2253", given=certificate.read_bytes())
    return f"O={_ORGANIZATION}" in subject.decode(errors="replace").strip().removeprefix("subject=").split(
        ","
    )


def is_authority(certificate: Path) -> bool:
    """Return True if a certificate is self-signed and can sign others. Raises NoCertificate and OSError."""
    given = certificate.read_bytes()
    subject, issuer = (
        _call("x509", "-noout", f"-{which}", given=given).partition(b"=")[2]
        for which in ("subject", "issuer")
    )
    # A self-signed certificate without the constraint is an authority for clients that trust it.
    return subject == issuer and b"CA:FALSE" not in _call("x509", "-noout", "-text", given=given)


def _sign(certificate: Path, key: Path, name: str) -> None:
    names = dict.fromkeys((name, "localhost"))
    extensions = (
        "basicConstraints=critical,CA:FALSE",
        "keyUsage=critical,digitalSignature",
        "extendedKeyUsage=serverAuth",
        f"subjectAltName={','.join(f'DNS:{one}' for one in names)},IP:127.0.0.1,IP:::1",
    )
    made = _call(
        *("req", "-x509", "-new", "-key", "/dev/stdin", "-days", str(DAYS)),
        *("-subj", f"/O={_ORGANIZATION}/CN={name}"),
        *(word for extension in extensions for word in ("-addext", extension)),
        given=key.read_bytes(),
    )
    durable.replace(certificate, made, mode=0o644)


def _is_complete(path: Path) -> bool:
    """Return True if a PEM file has its end: a power cut may have left a part of it."""
    return path.exists() and b"-----END " in path.read_bytes()


def _call(*arguments: str, given: bytes = b"") -> bytes:
    """Return the output of openssl, which gets keys through pipes only. Raises NoCertificate."""
    done = _run(*arguments, given=given)
    if done.returncode:
        raise NoCertificate(f"openssl {arguments[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def _run(*arguments: str, given: bytes) -> "subprocess.CompletedProcess[bytes]":
    if shutil.which("openssl") is None:
        raise NoCertificate("openssl is not installed; it is needed to make a certificate")
    # The machine's own configuration of openssl would make the certificate that of an authority.
    environment = {**os.environ, "OPENSSL_CONF": os.devnull}
    command = ["openssl", *arguments]
    return subprocess.run(
        command, input=given, env=environment, capture_output=True, timeout=_TIMEOUT_SECONDS, check=False
    )
