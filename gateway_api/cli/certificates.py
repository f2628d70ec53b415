"""Self-signed certificates, for a server that has none yet.

They are for a server and not for an authority: a stolen key signs for no other name. Each is its own trust
anchor: a client that trusts the file trusts this server alone.
"""

import os
import shutil
import subprocess
from pathlib import Path

from gateway_contract.base import durable
from gateway_contract.base.errors import GatewayApiError

#: The limit of browsers (CA/Browser Forum, Baseline Requirements 6.3.2), minus a day: the last second counts.
DAYS = 397
#: Seconds before the end at which a certificate is renewed.
_RENEWAL = 30 * 86400
_MADE_HERE = "gateway-api self-signed"  # in the subject
# Seconds: a slow machine may wait for random numbers.
_TIMEOUT = 60


class NoCertificate(GatewayApiError):
    """openssl failed; the text has its reason."""


def ensure(certificate: Path, key: Path, name: str) -> bool:
    """Make both for a host's name where one is missing or incomplete, but keep a complete key. True when it
    made a certificate. Raises NoCertificate and OSError."""
    if not _is_whole(key):
        # First: a power cut between the two must not leave a certificate of another key.
        certificate.unlink(missing_ok=True)
        durable.sync(certificate.parent)
        durable.replace(key, _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"))
    if _is_whole(certificate):
        return False
    _sign(certificate, key, name)
    return True


def renew(certificate: Path, key: Path, name: str) -> bool:
    """Renew a certificate of ours that ends soon, for the same key. True when it did. Raises NoCertificate
    and OSError."""
    if not is_ours(certificate):
        return False
    if _run("x509", "-noout", "-checkend", str(_RENEWAL), given=certificate.read_bytes()).returncode == 0:
        return False
    _sign(certificate, key, name)
    return True


def is_ours(certificate: Path) -> bool:
    """Return True if this module made it. Raises NoCertificate and OSError."""
    subject = _openssl("x509", "-noout", "-subject", "-nameopt", "RFC2253", given=certificate.read_bytes())
    return f"O={_MADE_HERE}" in subject.decode(errors="replace").strip().removeprefix("subject=").split(",")


def is_authority(certificate: Path) -> bool:
    """Return True if it is self-signed and can sign others. Raises NoCertificate and OSError."""
    given = certificate.read_bytes()
    subject, issuer = (
        _openssl("x509", "-noout", f"-{which}", given=given).partition(b"=")[2]
        for which in ("subject", "issuer")
    )
    # A self-signed certificate without the constraint is an authority for clients that trust it.
    return subject == issuer and b"CA:FALSE" not in _openssl("x509", "-noout", "-text", given=given)


def _sign(certificate: Path, key: Path, name: str) -> None:
    names = dict.fromkeys((name, "localhost"))
    extensions = (
        "basicConstraints=critical,CA:FALSE",
        "keyUsage=critical,digitalSignature",
        "extendedKeyUsage=serverAuth",
        f"subjectAltName={','.join(f'DNS:{one}' for one in names)},IP:127.0.0.1,IP:::1",
    )
    made = _openssl(
        *("req", "-x509", "-new", "-key", "/dev/stdin", "-days", str(DAYS)),
        *("-subj", f"/O={_MADE_HERE}/CN={name}"),
        *(word for extension in extensions for word in ("-addext", extension)),
        given=key.read_bytes(),
    )
    durable.replace(certificate, made, mode=0o644)


def _is_whole(path: Path) -> bool:
    """Return True if a PEM file has its end: a power cut may have left a part."""
    return path.exists() and b"-----END " in path.read_bytes()


def _openssl(*arguments: str, given: bytes = b"") -> bytes:
    """Its output. Keys go through pipes only."""
    done = _run(*arguments, given=given)
    if done.returncode:
        raise NoCertificate(f"openssl {arguments[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def _run(*arguments: str, given: bytes) -> "subprocess.CompletedProcess[bytes]":
    if shutil.which("openssl") is None:
        raise NoCertificate("openssl is not installed; it is needed to make a certificate")
    # The machine's own configuration of openssl would make an authority of it.
    environment = {**os.environ, "OPENSSL_CONF": os.devnull}
    command = ["openssl", *arguments]
    return subprocess.run(
        command, input=given, env=environment, capture_output=True, timeout=_TIMEOUT, check=False
    )
