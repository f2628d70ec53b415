"""The certificate that we make: of a server and of nothing else, for a while, and made anew in time."""

import re
import socket
import ssl
import subprocess
from pathlib import Path

import pytest
import requests

from gateway_api.cli import certificates
from tests.support.stack import Api

NAME = "bng7.example.net"


class Pair:
    """A certificate and its key, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key = folder / "certificate.pem", folder / "key.pem"

    def ensure(self) -> bool:
        return certificates.ensure(self.certificate, self.key, NAME)

    def renew(self) -> bool:
        return certificates.renew(self.certificate, self.key, NAME)

    def assert_accepted(self) -> None:
        """By a strict client that trusts this certificate alone; and the key is its own."""
        openssl(
            *("verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", NAME),
            *("-CAfile", self.certificate, self.certificate),
        )
        its = openssl("x509", "-noout", "-pubkey", "-in", self.certificate)
        assert its == openssl("pkey", "-pubout", "-in", self.key)


def openssl(*arguments: str | Path) -> str:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    made = Pair(tmp_path)
    assert made.ensure()
    return made


def days_of(pair: Pair) -> float:
    """For how many days a certificate is made."""
    dates = openssl("x509", "-noout", "-startdate", "-enddate", "-in", pair.certificate)
    began, ends = (ssl.cert_time_to_seconds(line.partition("=")[2]) for line in dates.splitlines())
    return (ends - began) / 86400


def test_a_certificate_is_for_a_server_alone_for_397_days_with_a_private_key(pair: Pair) -> None:
    text = openssl("x509", "-noout", "-text", "-in", pair.certificate)
    assert re.search(r"Basic Constraints: critical\n\s+CA:FALSE\n", text)
    assert re.search(r"X509v3 Key Usage: critical\n\s+Digital Signature\n", text)
    assert re.search(r"Extended Key Usage: \n\s+TLS Web Server Authentication\n", text)
    assert f"DNS:{NAME}, DNS:localhost, IP Address:127.0.0.1, IP Address:0:0:0:0:0:0:0:1\n" in text
    assert days_of(pair) == 397
    assert pair.key.stat().st_mode & 0o777 == 0o600
    assert pair.certificate.stat().st_mode & 0o777 == 0o644
    pair.assert_accepted()


def test_what_is_signed_with_its_key_for_another_name_is_refused(pair: Pair, tmp_path: Path) -> None:
    key, request, forged = (tmp_path / f"forged.{end}" for end in ("key", "csr", "pem"))
    openssl(
        *("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
        *("-subj", "/CN=bank.example", "-addext", "subjectAltName=DNS:bank.example"),
        *("-keyout", key, "-out", request),
    )
    openssl(
        *("x509", "-req", "-in", request, "-copy_extensions", "copyall", "-days", "30"),
        *("-CA", pair.certificate, "-CAkey", pair.key, "-out", forged),
    )
    with pytest.raises(AssertionError, match="invalid CA certificate"):
        openssl("verify", "-CAfile", pair.certificate, forged)


def test_a_pair_that_is_whole_stays(pair: Pair) -> None:
    held = pair.certificate.read_bytes(), pair.key.read_bytes()
    assert not pair.ensure()
    assert (pair.certificate.read_bytes(), pair.key.read_bytes()) == held


@pytest.mark.parametrize("part", ["certificate", "key"])
@pytest.mark.parametrize("left", [None, b"-----BEGIN"])
def test_a_pair_of_which_one_file_is_missing_or_cut_off_is_mended(
    pair: Pair, part: str, left: bytes | None
) -> None:
    key, damaged = pair.key.read_bytes(), getattr(pair, part)
    damaged.unlink()
    if left is not None:
        damaged.write_bytes(left)
    assert pair.ensure()
    assert (pair.key.read_bytes() == key) == (part == "certificate")
    pair.assert_accepted()


@pytest.mark.parametrize(("days", "renewed"), [(29, True), (31, False)])
def test_a_certificate_of_the_setup_is_renewed_a_month_before_its_end(
    pair: Pair, days: int, renewed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = pair.key.read_bytes()
    pair.certificate.unlink()
    with monkeypatch.context() as patched:
        patched.setattr(certificates, "VALIDITY_DAYS", days)
        pair.ensure()
    assert pair.renew() == renewed
    assert days_of(pair) == (397 if renewed else days)
    assert pair.key.read_bytes() == key
    pair.assert_accepted()


def test_a_certificate_of_an_operator_is_never_renewed_and_an_authority_is_recognised(pair: Pair) -> None:
    assert not certificates.is_authority(pair.certificate)
    own = ("req", "-x509", "-new", "-key", pair.key, "-days", "1", "-subj", f"/CN={NAME}")
    openssl(*own, "-out", pair.certificate)
    held = pair.certificate.read_bytes()
    assert not pair.renew()
    assert pair.certificate.read_bytes() == held
    assert certificates.is_authority(pair.certificate)


@pytest.fixture
def running(api: Api) -> tuple[str, Path]:
    """Where the quick start's API listens, and its certificate."""
    return api.url.removeprefix("https://"), Path(api.environment["GATEWAY_CA"])


def test_strict_and_usual_clients_accept_the_running_server(running: tuple[str, Path]) -> None:
    host, port = running[0].split(":")
    strict = ssl.create_default_context(cafile=running[1])
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    with socket.create_connection((host, int(port)), 10) as plain:
        strict.wrap_socket(plain, server_hostname="localhost").close()
    url = f"https://{running[0]}/api/v1/health"
    assert requests.get(url, verify=running[1], timeout=60).ok
    subprocess.run(["curl", "--silent", "--fail", "--cacert", running[1], url], check=True)


@pytest.mark.parametrize(
    ("version", "offered", "taken"),
    [
        ("-tls1_2", "P-521:P-384:X448:P-256:X25519", "X25519"),
        ("-tls1_2", "P-521:P-384:X448:P-256", "P-256"),
        # Here the client's own first choice counts: it sends a share of a key with its first words.
        ("-tls1_3", "X25519:P-256:P-521", "X25519"),
        ("-tls1_3", "P-256:X25519:P-521", "P-256"),
    ],
)
def test_the_server_takes_x25519_and_p_256_before_others(
    running: tuple[str, Path], version: str, offered: str, taken: str
) -> None:
    where = ("-connect", running[0], "-CAfile", running[1], "-groups", offered, version)
    ended = subprocess.run(
        ["openssl", "s_client", *where], input="", capture_output=True, text=True, timeout=60, check=True
    )
    (key,) = re.findall(r"(?:Server|Peer) Temp Key: (?:ECDH, )?([^,\n]+)", ended.stdout)
    assert {"prime256v1": "P-256"}.get(key, key) == taken
