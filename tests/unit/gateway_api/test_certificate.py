"""What is told of a certificate that has expired, and which one is its own authority."""

import logging
import subprocess
from pathlib import Path

import pytest

from gateway_api.cli import certificates, setup
from gateway_contract.base.certificate import is_self_signed, log_expiry, read_expiry

DAY = 86400.0


class Ended(Exception):
    """Ends what would go on for ever."""


@pytest.fixture
def made(tmp_path: Path) -> Path:
    certificates.ensure(tmp_path / "certificate.pem", tmp_path / "key.pem", "localhost")
    return tmp_path / "certificate.pem"


def expire(certificate: Path, key: Path) -> None:
    """Signs it again, for a time that is over. OpenSSL 3.5 refuses one that ends before it begins."""
    signed = ["openssl", "x509", "-in", certificate, "-signkey", key, "-days", "0", "-out", certificate]
    subprocess.run(signed, check=True, capture_output=True, timeout=60)


def test_a_certificate_that_has_expired_is_in_the_log_each_day(
    made: Path, caplog: pytest.LogCaptureFixture
) -> None:
    end = read_expiry(made)
    assert end is not None
    now = end - 1.5 * DAY

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        if now > end + 2 * DAY:
            raise Ended

    with caplog.at_level(logging.ERROR), pytest.raises(Ended):
        log_expiry(made, end, sleep, lambda: now)
    said = [record.message for record in caplog.records]
    # Half a day after its end, and a day later.
    assert len(said) == 2
    assert all(f"the TLS certificate {made} expired at " in each for each in said)


def test_a_certificate_that_cannot_be_read_ends_the_watch(tmp_path: Path) -> None:
    certificate = tmp_path / "none.pem"
    log_expiry(certificate, read_expiry(certificate), pytest.fail)


def test_a_certificate_of_its_own_is_self_signed(made: Path) -> None:
    assert is_self_signed(made)


def test_a_certificate_of_an_authority_is_not_self_signed(made: Path, tmp_path: Path) -> None:
    key, request, leaf = tmp_path / "key.pem", tmp_path / "request.pem", tmp_path / "leaf.pem"
    for command in (
        f"req -new -key {key} -subj /CN=other -out {request}",
        f"x509 -req -in {request} -CA {made} -CAkey {key} -CAcreateserial -days 9 -out {leaf}",
    ):
        subprocess.run(["openssl", *command.split()], check=True, capture_output=True, timeout=60)
    assert not is_self_signed(leaf)
    assert not is_self_signed(tmp_path / "none.pem")


def test_the_setup_says_that_a_certificate_has_expired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setup.prepare(tmp_path, tmp_path / "none", None)
    certificate = tmp_path / "tls" / "certificate.pem"
    assert "expired" not in capsys.readouterr().out
    expire(certificate, tmp_path / "tls" / "key.pem")
    setup.prepare(tmp_path, tmp_path / "none", None)
    assert f"{certificate} expired at " in capsys.readouterr().out
