"""The end of a TLS certificate (RFC 5280 section 4.1.2.5), from its DER: ssl tells it of a peer only."""

import logging
import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

_log = logging.getLogger(__name__)

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
#: Tags of X.690: the version of a certificate, which may be missing, and the two kinds of time.
_VERSION, _UTC_TIME, _GENERALIZED_TIME = 0xA0, 0x17, 0x18
#: Of a certificate's fields from the serial number on.
_VALIDITY = 3
_FORMATS = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}


class _Element(NamedTuple):
    tag: int
    value: bytes


def end_of(certificate: Path) -> float | None:
    """The end of the first certificate in a PEM file, epoch seconds. None for one that cannot be read."""
    try:
        found = _PEM.search(certificate.read_text("ascii"))
        if found is None:
            raise ValueError("it has no certificate")
        return _end(ssl.PEM_cert_to_DER_cert(found[0]))
    except (OSError, ValueError, IndexError, KeyError) as error:
        _log.warning("cannot read the end of the certificate %s: %s", certificate, error)
        return None


def _end(der: bytes) -> float:
    """Raises ValueError, IndexError and KeyError."""
    (whole,) = _elements(der)
    (signed, *_) = _elements(whole.value)
    fields = [field for field in _elements(signed.value) if field.tag != _VERSION]
    _, end = _elements(fields[_VALIDITY].value)
    # RFC 5280 and Python differ about the years 50 to 68 only.
    return datetime.strptime(end.value.decode("ascii"), _FORMATS[end.tag]).replace(tzinfo=UTC).timestamp()


def _elements(der: bytes) -> Iterator[_Element]:
    """Elements one after the other (X.690 section 8.1). Raises ValueError and IndexError."""
    place = 0
    while place < len(der):
        tag, length = der[place], der[place + 1]
        place += 2
        if length >= 0x80:
            digits = length - 0x80
            length = int.from_bytes(der[place : place + digits])
            place += digits
        if place + length > len(der):
            raise ValueError("it is cut")
        yield _Element(tag, der[place : place + length])
        place += length
