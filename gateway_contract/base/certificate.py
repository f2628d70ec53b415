"""TLS certificate of a service: the copy that workers serve, the time of its expiry (RFC 5280 section
4.1.2.5), and whether the certificate is self-signed. Expiry and issuer are read from the DER of the
certificate, because Python's ssl module returns them only for the certificates of peers."""

import logging
import os
import re
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

from gateway_contract.base.texts import format_utc

_log = logging.getLogger(__name__)

_PEM_PATTERN = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
#: Tags of X.690: the version of a certificate, which may be missing, and the two kinds of time.
_VERSION_TAG, _UTC_TIME_TAG, _GENERALIZED_TIME_TAG = 0xA0, 0x17, 0x18
#: Indexes of a certificate's fields, counted from the serial number.
_ISSUER_INDEX, _VALIDITY_INDEX, _SUBJECT_INDEX = 2, 3, 4
#: Seconds between two lines about the same certificate.
_DAY_SECONDS = 86400.0
_TIME_FORMATS = {_UTC_TIME_TAG: "%y%m%d%H%M%SZ", _GENERALIZED_TIME_TAG: "%Y%m%d%H%M%SZ"}


class _Element(NamedTuple):
    tag: int
    value: bytes


def read_expiry(certificate: Path) -> float | None:
    """Return the time at which the first certificate in a PEM file expires, in epoch seconds. Return None if
    the expiry cannot be read."""
    try:
        return _parse_expiry(_read_fields(certificate))
    except (OSError, ValueError, IndexError, KeyError) as error:
        _log.warning(
            "cannot read the expiry of the certificate %s, which is not monitored: %s", certificate, error
        )
        return None


def is_self_signed(certificate: Path) -> bool:
    """Return True if the first certificate in a PEM file names itself as its issuer. Return False otherwise,
    or if the file cannot be read."""
    try:
        fields = _read_fields(certificate)
        return fields[_ISSUER_INDEX] == fields[_SUBJECT_INDEX]
    except (OSError, ValueError, IndexError, KeyError):
        return False


class ServedPair:
    """Certificate and key that all workers of a service serve: a checked copy of the operator's files in
    memory. A worker that starts later serves the same copy, even if the files have changed."""

    def __init__(self) -> None:
        self._copies: tuple[BinaryIO, ...] = ()
        #: The expiry of the certificate in epoch seconds. None if the expiry cannot be read, or nothing is
        #: served.
        self.end: float | None = None
        #: True if the last `load` failed: the pair of the `load` before it is served.
        self.is_former = False

    def load(self, certificate: Path, key: Path) -> None:
        """Check a certificate and its key, and serve both in all workers that are forked from now on. Raises
        OSError if a file cannot be read, and ValueError if the certificate and the key cannot be used
        together: the former certificate and key then stay in use."""
        self.is_former = True
        copies = _copy_to_memory(certificate), _copy_to_memory(key)
        try:
            load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), *map(_get_path, copies))
        except BaseException:
            _close_all(copies)
            raise
        _close_all(self._copies)
        self._copies = copies
        self.end = read_expiry(certificate)
        self.is_former = False

    def load_into(self, context: ssl.SSLContext) -> None:
        """Load the certificate and its key into a TLS context. Do nothing if nothing is served."""
        if self._copies:
            load_pair(context, *map(_get_path, self._copies))


#: The pair of this service. The arbiter loads it, and workers inherit it.
SERVED = ServedPair()


def load_pair(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Load a certificate and its key into a TLS context. Raises OSError if a file cannot be read, and
    ValueError if the certificate and the key cannot be used together."""
    try:
        # With an empty password, an encrypted key is an error. Without one, openssl would prompt.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        # The key's reader says no more than "PEM lib".
        hint = "; the key has a passphrase" if b"ENCRYPTED" in key.read_bytes() else ""
        raise ValueError(f"the certificate and the key can't be used together: {error}{hint}") from error


def log_expiry(
    certificate: Path,
    end: float | None,
    sleep: Callable[[float], object],
    clock: Callable[[], float] = time.time,
) -> None:
    """Log an error when the certificate has expired, and every day after that, without end. `end` is the
    expiry of the served certificate, in epoch seconds; the certificate in the file may be newer. Return at
    once if `end` is None."""
    while end is not None:
        if clock() >= end:
            _log.error(
                "the TLS certificate %s expired at %s: clients reject it", certificate, format_utc(end)
            )
        sleep(_DAY_SECONDS)


def _copy_to_memory(path: Path) -> BinaryIO:
    """Copy a file to memory that only this process and its children can see (memfd_create(2)). Raises OSError
    if the file cannot be read."""
    content = path.read_bytes()
    copy = os.fdopen(os.memfd_create("tls"), "wb")
    copy.write(content)
    copy.flush()
    return copy


def _get_path(copy: BinaryIO) -> Path:
    return Path(f"/proc/self/fd/{copy.fileno()}")


def _close_all(copies: Iterable[BinaryIO]) -> None:
    for copy in copies:
        copy.close()


def _read_fields(certificate: Path) -> list[_Element]:
    """Return the fields of the signed part of a certificate, from the serial number on. Raises OSError if the
    file cannot be read, and ValueError or IndexError if the file has no valid certificate."""
    match = _PEM_PATTERN.search(certificate.read_text("ascii"))
    if match is None:
        raise ValueError("it has no certificate")
    (certificate_element,) = _parse_elements(ssl.PEM_cert_to_DER_cert(match[0]))
    (signed_part, *_) = _parse_elements(certificate_element.value)
    return [field for field in _parse_elements(signed_part.value) if field.tag != _VERSION_TAG]


def _parse_expiry(fields: Sequence[_Element]) -> float:
    """Return the time at which a certificate expires, in epoch seconds. Raises ValueError, IndexError or
    KeyError if the fields are not those of a valid certificate."""
    _, end = _parse_elements(fields[_VALIDITY_INDEX].value)
    # RFC 5280 and Python differ about the years 50 to 68 only.
    return (
        datetime.strptime(end.value.decode("ascii"), _TIME_FORMATS[end.tag]).replace(tzinfo=UTC).timestamp()
    )


def _parse_elements(der: bytes) -> Iterator[_Element]:
    """Yield the elements in a piece of DER (X.690 section 8.1). Raises ValueError or IndexError if the DER is
    cut or not valid."""
    offset = 0
    while offset < len(der):
        tag, length = der[offset], der[offset + 1]
        offset += 2
        if length >= 0x80:
            digits = length - 0x80
            length = int.from_bytes(der[offset : offset + digits])
            offset += digits
        if offset + length > len(der):
            raise ValueError("it is cut")
        yield _Element(tag, der[offset : offset + length])
        offset += length
