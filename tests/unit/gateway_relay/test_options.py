"""The options of the relay: each wrong one is an error that names the option and the rule."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway_relay.__main__ import relay
from tests.support.nats import make_seed


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    """Options with which the relay starts."""
    password = tmp_path / "password"
    password.write_text("secret\n")
    return {
        "--nats": "tls://nats.example.net:4222",
        "--user": "relay",
        "--password-file": str(password),
        "--name": "bng-1",
        "--state": str(tmp_path / "state"),
    }


def read_error(options: dict[str, str], *more: str, **variables: str) -> str:
    """Return the error that the relay prints for wrong options."""
    words = [word for pair in options.items() for word in pair]
    result = CliRunner().invoke(relay, [*words, *more], env=variables)
    assert result.exit_code == 2, result.output
    return result.output.partition("Error: ")[2].strip()


def assert_wrong(said: str, option: str, rule: str) -> None:
    assert said.startswith(f"Invalid value for '{option}'")
    assert said.endswith(f": {rule}")


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("--nats", "nats.example.net", "must be tls://HOST:PORT"),
        ("--nats", "http://nats.example.net", "must be tls://HOST:PORT"),
        ("--nats", "tls://user:password@host", "must be tls://HOST:PORT"),
        ("--nats", "tls://nats.example.net:99999", "must be tls://HOST:PORT"),
        ("--nats", "tls://nats.example.net:nats", "must be tls://HOST:PORT"),
        ("--nats", "tls://[2001:db8::1", "must be tls://HOST:PORT"),
        ("--nats", "nats://192.0.2.1:4222", "must begin with tls:// for another machine"),
        ("--name", "", "must be 1 to 64 letters, digits, hyphens and underscores"),
        ("--name", "bng.1", "must be 1 to 64 letters, digits, hyphens and underscores"),
        ("--name", "bng>", "must be 1 to 64 letters, digits, hyphens and underscores"),
        ("--name", "b" * 65, "must be 1 to 64 letters, digits, hyphens and underscores"),
        ("--name", "bräu", "must be 1 to 64 letters, digits, hyphens and underscores"),
        ("--spool-mebibytes", "0", "0 is not in the range 1<=x<=65536."),
        ("--spool-mebibytes", "many", "'many' is not a valid integer range."),
        ("--password-file", "/nowhere", "File '/nowhere' does not exist."),
        ("--nkey", "/nowhere", "File '/nowhere' does not exist."),
    ],
)
def test_a_wrong_value_is_an_error_with_the_option_and_the_rule(
    options: dict[str, str], option: str, value: str, error: str
) -> None:
    assert_wrong(read_error({**options, option: value}), option, error)


def test_a_url_of_the_api_must_have_https(options: dict[str, str]) -> None:
    assert read_error({**options, "--url": "http://gateway"}).startswith("Invalid value for '--url': ")


@pytest.mark.parametrize("option", ["--nats", "--user", "--password-file"])
def test_a_missing_option_is_named(options: dict[str, str], option: str) -> None:
    del options[option]
    assert read_error(options).startswith(f"Missing option '{option}'")


def test_all_servers_have_tls_or_none(options: dict[str, str]) -> None:
    error = read_error({**options, "--nats": "nats://localhost:4222"}, "--nats", "tls://localhost:4222")
    assert_wrong(error, "--nats", "must begin with tls:// for all servers or for none")


@pytest.mark.parametrize("option", ["--ca", "--nats-ca"])
def test_a_file_without_a_certificate_is_named(options: dict[str, str], option: str, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    error = read_error({**options, option: str(tmp_path / "ca.pem")})
    assert error.startswith(f"Invalid value for '{option}': must be a file of certificates in PEM: ")


@pytest.mark.parametrize("text", [b"", b"no seed", b"\xff\xfe", b"SUAAAA", b"S" * 58])
def test_a_file_without_a_seed_is_named(options: dict[str, str], tmp_path: Path, text: bytes) -> None:
    (tmp_path / "nkey").write_bytes(text)
    error = read_error({**options, "--nkey": str(tmp_path / "nkey")})
    assert error == "Invalid value for '--nkey': must contain the seed of a user, which begins with SU"


@pytest.mark.parametrize(
    "text",
    [
        "",
        make_seed(),
        f"-----BEGIN USER NKEY SEED-----\n{make_seed()}\n------END USER NKEY SEED------\n",
        "-----BEGIN NATS USER JWT-----\na.b.c\n------END NATS USER JWT------\n",
    ],
    # A seed is random, and each process of the tests must give a case the same name.
    ids=["nothing", "a seed alone", "a framed seed", "a JWT alone"],
)
def test_a_file_without_a_jwt_and_a_seed_is_named(options: dict[str, str], tmp_path: Path, text: str) -> None:
    (tmp_path / "creds").write_text(text)
    assert read_error({**options, "--credentials": str(tmp_path / "creds")}) == (
        "Invalid value for '--credentials': must contain the JWT and the seed of a user, as nsc writes them"
    )


def test_nkey_and_credentials_exclude_each_other(options: dict[str, str], tmp_path: Path) -> None:
    seed = make_seed()
    (tmp_path / "nkey").write_text(seed)
    (tmp_path / "creds").write_text(
        "-----BEGIN NATS USER JWT-----\na.b.c\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
    files: dict[str, Any] = {"--nkey": str(tmp_path / "nkey"), "--credentials": str(tmp_path / "creds")}
    assert read_error({**options, **files}) == "--nkey and --credentials exclude each other."


def test_a_variable_is_as_good_as_an_option(options: dict[str, str]) -> None:
    del options["--nats"]
    error = read_error(options, GATEWAY_RELAY_NATS="tls://one:4222 two")
    assert_wrong(error, "--nats", "must be tls://HOST:PORT")
