"""Self-signed certificates, for a server that has no certificate yet.

Each certificate is a server certificate and not a CA certificate: a stolen key cannot sign for other names.
Each certificate is its own trust anchor: a client that trusts the file trusts only this server.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path

from gateway_contract.base import durable
from gateway_contract.base.certificate import is_self_signed, read_expiry
from gateway_contract.base.errors import GatewayApiError

#: Validity in days: the limit of browsers (CA/Browser Forum, Baseline Requirements 6.3.2) minus one day.
VALIDITY_DAYS = 397
#: Remaining validity below which a certificate is renewed, in seconds.
_RENEWAL_SECONDS = 30 * 86400
#: Organization in the subject of certificates that this module made.
_ORGANIZATION = "gateway-api self-signed"
#: Timeout for a call of openssl, in seconds: a slow machine may wait for random numbers.
_TIMEOUT_SECONDS = 60


class OpensslFailed(GatewayApiError):
    """Error of a call of openssl. The text is the reason that openssl gave."""


def ensure(certificate: Path, key: Path, name: str) -> bool:
    """Create the certificate for the host name `name` if the certificate is missing or incomplete, and the
    key if the key is missing or incomplete. Return True if a certificate was created. Raises OpensslFailed if
    openssl fails, and OSError if a file cannot be read or written."""
    if not _is_complete(key):
        # Removed first: a power cut must not leave the certificate of another key.
        certificate.unlink(missing_ok=True)
        durable.sync(certificate.parent)
        durable.replace(
            key, _run_openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
        )
    if _is_complete(certificate):
        return False
    _sign(certificate, key, name)
    return True


def renew(certificate: Path, key: Path, name: str) -> bool:
    """Renew the certificate for the host name `name` if this module created the certificate and it expires
    soon. The key stays the same. Return True if the certificate was renewed. Raises OpensslFailed if openssl
    fails, and OSError if a file cannot be read or written."""
    end = read_expiry(certificate)
    if not is_made_here(certificate) or (end is not None and end > time.time() + _RENEWAL_SECONDS):
        return False
    _sign(certificate, key, name)
    return True


def is_made_here(certificate: Path) -> bool:
    """Return True if this module created the certificate. Raises OpensslFailed if openssl fails, and OSError
    if the file cannot be read."""
    output = _run_openssl(
        "x509", "-noout", "-subject", "-nameopt", "RFC2253", standard_input=certificate.read_bytes()
    )
    subject = output.decode(errors="replace").strip().removeprefix("subject=")
    return f"O={_ORGANIZATION}" in subject.split(",")


def is_authority(certificate: Path) -> bool:
    """Return True if a certificate is self-signed and can sign other certificates. Raises OpensslFailed if
    openssl fails, and OSError if the file cannot be read."""
    # Without the constraint CA:FALSE, clients that trust a self-signed certificate treat it as an authority.
    text = _run_openssl("x509", "-noout", "-text", standard_input=certificate.read_bytes())
    return is_self_signed(certificate) and b"CA:FALSE" not in text


def _sign(certificate: Path, key: Path, name: str) -> None:
    names = dict.fromkeys((name, "localhost"))
    extensions = (
        "basicConstraints=critical,CA:FALSE",
        "keyUsage=critical,digitalSignature",
        "extendedKeyUsage=serverAuth",
        f"subjectAltName={','.join(f'DNS:{each}' for each in names)},IP:127.0.0.1,IP:::1",
    )
    pem = _run_openssl(
        *("req", "-x509", "-new", "-key", "/dev/stdin", "-days", str(VALIDITY_DAYS)),
        *("-subj", f"/O={_ORGANIZATION}/CN={name}"),
        *(word for extension in extensions for word in ("-addext", extension)),
        standard_input=key.read_bytes(),
    )
    durable.replace(certificate, pem, mode=0o644)


def _is_complete(path: Path) -> bool:
    """Return True if a PEM file exists and has its end marker. After a power cut, a file may be
    incomplete."""
    return path.exists() and b"-----END " in path.read_bytes()


def _run_openssl(*arguments: str, standard_input: bytes = b"") -> bytes:
    """Run openssl with the given arguments and input, and return the output. Pass a key only as
    `standard_input`. Raises OpensslFailed if openssl is not installed or fails."""
    if shutil.which("openssl") is None:
        raise OpensslFailed("openssl is not installed; it is needed to make a certificate")
    result = subprocess.run(
        ["openssl", *arguments],
        input=standard_input,
        # With the machine's own configuration, openssl would create a CA certificate.
        env={**os.environ, "OPENSSL_CONF": os.devnull},
        capture_output=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    if result.returncode:
        raise OpensslFailed(f"openssl {arguments[0]}: {result.stderr.decode(errors='replace').strip()}")
    return result.stdout
