"""The end of a TLS certificate.

Uses `_ssl._test_decode_cert`, read in CPython 3.11 and 3.13: ssl itself decodes a peer's certificate only. A
test fails when it is gone.
"""

import logging
import ssl
from _ssl import _test_decode_cert  # type: ignore[attr-defined]
from pathlib import Path

_log = logging.getLogger(__name__)


def end_of(certificate: Path) -> float | None:
    """The end of the first certificate in a PEM file, epoch seconds. None for one that cannot be read."""
    try:
        return ssl.cert_time_to_seconds(str(_test_decode_cert(certificate)["notAfter"]))
    except (OSError, ValueError, KeyError) as error:
        _log.warning("cannot read the end of the certificate %s: %s", certificate, error)
        return None
