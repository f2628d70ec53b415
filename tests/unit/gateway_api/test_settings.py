"""What the process reads from its environment."""

import os
import re
from pathlib import Path

import pytest

from gateway_api.base.settings import KNOWN_VARIABLES, TOKEN, USERS, Settings, has_secret
from gateway_contract.base.variables import BadSetting

ROOT = Path(__file__).parents[3]

SECRET = {"SVC_API_SECRET": "s" * 32}


def test_everything_comes_from_the_environment() -> None:
    settings = Settings.from_environment(
        {"GATEWAY_CORE_SOCKET": "/a/core.sock", "GATEWAY_API_RUNTIME": "/a/run", "SVC_API_SECRET": "secret"}
    )
    assert (settings.core_socket, settings.runtime, settings.secret) == (
        Path("/a/core.sock"),
        Path("/a/run"),
        b"secret",
    )


def test_what_is_not_set_or_set_to_nothing_has_the_usual_places() -> None:
    for more in ({}, {"GATEWAY_CORE_SOCKET": "", "GATEWAY_API_RUNTIME": ""}, {"PATH": "/bin"}):
        settings = Settings.from_environment({**SECRET, **more})
        assert settings.core_socket == Path("/run/gateway-core/core.sock")
        assert settings.runtime == Path("/run/gateway-api")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SVC_API_SECRET", ""),
        ("SVC_API_SECRET", "ssh-rsa " + "A" * 32),
        ("SVC_API_SECRET", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"),
        *(("GATEWAY_API_AUDIT_MEBIBYTES", size) for size in ("0", "1025", "-1", "1.5", "x", "\u0661")),
        ("GATEWAY_API_LOG_FORMAT", "xml"),
        ("GATEWAY_API_LOG_LEVEL", "loud"),
        *(("GATEWAY_API_BIND", bind) for bind in ("127.0.0.2", ":", "127.0.0.1:https", "::1:8443", "a:1 ")),
    ],
)
def test_a_value_that_cannot_be_is_named(name: str, value: str) -> None:
    with pytest.raises(BadSetting, match=name):
        Settings.from_environment({**SECRET, name: value})


@pytest.mark.parametrize(
    ("secret", "is_short"), [("s" * 31, True), ("s" * 32, False), ("\u00e4" * 16, False)]
)
def test_a_secret_of_less_than_32_bytes_is_short(secret: str, is_short: bool) -> None:
    assert Settings.from_environment({"SVC_API_SECRET": secret}).has_short_secret is is_short


@pytest.mark.parametrize("secret", [None, b"\n", b"ssh-rsa " + b"A" * 32], ids=["none", "empty", "a key"])
def test_credentials_without_a_secret_are_a_missing_secret(tmp_path: Path, secret: bytes | None) -> None:
    environment = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    if secret is not None:
        environment = credentials(tmp_path, secret)
    assert has_secret(environment) is (secret is not None)
    with pytest.raises(BadSetting, match=r"SVC_API_SECRET|another kind"):
        Settings.from_environment(environment)


def credentials(folder: Path, secret: bytes) -> dict[str, str]:
    (folder / "secret").write_bytes(secret)
    return {"CREDENTIALS_DIRECTORY": str(folder)}


def test_a_secret_comes_from_systemd_s_credentials(tmp_path: Path) -> None:
    # With the byte-order mark of an editor, which is no part of the secret.
    environment = credentials(tmp_path, b"\xef\xbb\xbf" + b"c" * 32 + b"\n")
    assert has_secret(environment)
    assert Settings.from_environment(environment).secret == b"c" * 32


def test_a_secret_in_the_environment_comes_before_a_credential(tmp_path: Path) -> None:
    environment = {**credentials(tmp_path, b"c" * 32), **SECRET}
    assert Settings.from_environment(environment).secret == b"s" * 32


def test_a_secret_of_bytes_that_are_no_text_is_those_bytes() -> None:
    secret = b"\xff\xfe" * 16
    assert Settings.from_environment({"SVC_API_SECRET": os.fsdecode(secret)}).secret == secret


def test_the_ledger_and_the_audit_log_lie_in_the_state_folder() -> None:
    settings = Settings.from_environment({**SECRET, "GATEWAY_API_STATE": "/a/state"})
    assert settings.ledger.parent == settings.audit.parent == Path("/a/state")


def test_the_audit_log_is_where_and_as_large_as_it_is_said_to_be() -> None:
    settings = Settings.from_environment(
        {**SECRET, "GATEWAY_API_AUDIT": "/a/audit", "GATEWAY_API_AUDIT_MEBIBYTES": "2"}
    )
    assert (settings.audit, settings.max_audit_bytes) == (Path("/a/audit"), 2 << 20)


@pytest.mark.parametrize("bind", ["0.0.0.0:8443", "[::]:8443", ":8443", "bng1.example.net:443"])
def test_an_address_and_a_port_are_accepted(bind: str) -> None:
    Settings.from_environment({**SECRET, "GATEWAY_API_BIND": bind})


def test_an_unknown_variable_is_named_with_the_nearest_known_one() -> None:
    for profile in (USERS, TOKEN):
        for name, nearest in (
            ("GATEWAY_API_WORKER", "GATEWAY_API_WORKERS"),
            ("GATEWAY_API_LOGFORMAT", "GATEWAY_API_LOG_FORMAT"),
            ("GATEWAY_API_AUDIT_MEGABYTES", "GATEWAY_API_AUDIT_MEBIBYTES"),
            ("GATEWAY_API_bind", "GATEWAY_API_BIND"),
            ("GATEWAY_API_COLOUR", None),
            ("GATEWAY_API_", None),
        ):
            with pytest.raises(BadSetting) as said:
                Settings.from_environment({**SECRET, name: ""}, profile)
            hint = f"; did you mean {nearest}?" if nearest else ""
            assert str(said.value) == f"{name} is not a known variable{hint}"


def test_each_profile_takes_the_variables_of_the_other() -> None:
    values = {
        "GATEWAY_API_AUDIT_MEBIBYTES": "2",
        "GATEWAY_API_BIND": "127.0.0.1:8443",
        "GATEWAY_API_LOG_FORMAT": "json",
        "GATEWAY_API_LOG_LEVEL": "error",
        "GATEWAY_API_TOKEN_BEYOND_LOOPBACK": "no",
    }
    environment = {name: values.get(name, "/x") for name in KNOWN_VARIABLES}
    assert Settings.from_environment({**environment, **SECRET}).audit == Path("/x")
    assert Settings.from_environment(environment, TOKEN).audit == Path("/x")


def test_the_known_variables_are_those_that_are_read_and_documented() -> None:
    def named(*files: Path) -> set[str]:
        return set(re.findall("GATEWAY_API_[A-Z][A-Z_]*", "".join(file.read_text() for file in files)))

    read = ROOT.glob("gateway*/**/*.py")
    assert named(*read, *(ROOT / "systemd").iterdir()) == KNOWN_VARIABLES
    assert named(ROOT / "etc" / "gateway-api.env") == KNOWN_VARIABLES
