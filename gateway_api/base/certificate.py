"""The end of a TLS certificate (RFC 5280 section 4.1.2.5), and whether it is self-signed, from its DER: ssl
tells that of a peer only."""

import logging
import re
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from gateway_api.base.texts import utc_text

_log = logging.getLogger(__name__)

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
#: Tags of X.690: the version of a certificate, which may be missing, and the two kinds of time.
_VERSION, _UTC_TIME, _GENERALIZED_TIME = 0xA0, 0x17, 0x18
#: Of a certificate's fields from the serial number on.
_ISSUER, _VALIDITY, _SUBJECT = 2, 3, 4
#: Seconds between two lines about the same certificate.
_DAY = 86400.0
_FORMATS = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}


class _Element(NamedTuple):
    tag: int
    value: bytes


def end_of(certificate: Path) -> float | None:
    """The end of the first certificate in a PEM file, epoch seconds. None for one that cannot be read."""
    try:
        return _end(_fields(certificate))
    except (OSError, ValueError, IndexError, KeyError) as error:
        _log.warning("cannot read the end of the certificate %s: %s", certificate, error)
        return None


def is_self_signed(certificate: Path) -> bool:
    """Whether the first certificate in a PEM file names itself as its issuer. False for one that cannot be
    read."""
    try:
        fields = _fields(certificate)
        return fields[_ISSUER] == fields[_SUBJECT]
    except (OSError, ValueError, IndexError, KeyError):
        return False


def log_expiry(
    certificate: Path, sleep: Callable[[float], object], clock: Callable[[], float] = time.time
) -> None:
    """Logs an error at once and then daily, for ever, while the certificate has expired. It reads the file
    once: a server uses what it read at its start."""
    end = end_of(certificate)
    while end is not None:
        if clock() >= end:
            _log.error("the TLS certificate %s expired at %s: clients reject it", certificate, utc_text(end))
        sleep(_DAY)


def _fields(certificate: Path) -> list[_Element]:
    """The fields of the signed part, from the serial number on. Raises OSError, ValueError and IndexError."""
    found = _PEM.search(certificate.read_text("ascii"))
    if found is None:
        raise ValueError("it has no certificate")
    (whole,) = _elements(ssl.PEM_cert_to_DER_cert(found[0]))
    (signed, *_) = _elements(whole.value)
    return [field for field in _elements(signed.value) if field.tag != _VERSION]


def _end(fields: Sequence[_Element]) -> float:
    """Raises ValueError, IndexError and KeyError."""
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
