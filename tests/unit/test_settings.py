"""What the process reads from its environment."""

import os
import re
from pathlib import Path

import pytest

from gateway_api.base.settings import KNOWN, TOKEN, USERS, BadSetting, Settings, has_secret

ROOT = Path(__file__).parents[2]

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


def test_what_is_not_set_has_the_usual_places() -> None:
    settings = Settings.from_environment(SECRET)
    assert settings.core_socket == Path("/run/gateway-core/core.sock")
    assert settings.runtime == Path("/run/gateway-api")


def test_what_is_set_to_nothing_has_the_usual_places() -> None:
    settings = Settings.from_environment({**SECRET, "GATEWAY_CORE_SOCKET": "", "GATEWAY_API_RUNTIME": ""})
    assert settings == Settings.from_environment(SECRET)


@pytest.mark.parametrize("environment", [{}, {"SVC_API_SECRET": ""}])
def test_a_missing_secret_is_named(environment: dict[str, str]) -> None:
    with pytest.raises(BadSetting, match="SVC_API_SECRET"):
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


def test_an_empty_credential_is_a_missing_secret(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="SVC_API_SECRET"):
        Settings.from_environment(credentials(tmp_path, b"\n"))


def test_credentials_without_a_secret_are_a_missing_secret(tmp_path: Path) -> None:
    environment = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert not has_secret(environment)
    with pytest.raises(BadSetting, match="SVC_API_SECRET"):
        Settings.from_environment(environment)


def test_a_credential_of_another_kind_is_no_secret(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="another kind"):
        Settings.from_environment(credentials(tmp_path, b"ssh-rsa " + b"A" * 32))


def test_a_secret_of_31_bytes_is_short() -> None:
    assert Settings.from_environment({"SVC_API_SECRET": "s" * 31}).secret_is_short


def test_a_secret_of_32_bytes_is_not_short() -> None:
    assert not Settings.from_environment({"SVC_API_SECRET": "s" * 32}).secret_is_short


def test_the_length_of_a_secret_counts_bytes_and_not_characters() -> None:
    assert not Settings.from_environment({"SVC_API_SECRET": "ä" * 16}).secret_is_short


def test_a_secret_of_bytes_that_are_no_text_is_those_bytes() -> None:
    secret = b"\xff\xfe" * 16
    assert Settings.from_environment({"SVC_API_SECRET": os.fsdecode(secret)}).secret == secret


def test_the_ledger_and_the_audit_log_lie_in_the_state_folder() -> None:
    settings = Settings.from_environment({**SECRET, "GATEWAY_API_STATE": "/a/state"})
    assert settings.ledger.parent == settings.audit.parent == Path("/a/state")


def test_other_variables_do_not_matter() -> None:
    assert Settings.from_environment({**SECRET, "PATH": "/bin"}) == Settings.from_environment(SECRET)


@pytest.mark.parametrize(
    "secret", ["ssh-rsa " + "A" * 32, "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"]
)
def test_a_key_of_another_kind_is_no_secret(secret: str) -> None:
    with pytest.raises(BadSetting, match="SVC_API_SECRET"):
        Settings.from_environment({"SVC_API_SECRET": secret})


@pytest.mark.parametrize("size", ["0", "1025", "99999", "-1", "1.5", "x", "\u0661"])
def test_a_size_of_the_audit_log_that_cannot_be_is_named(size: str) -> None:
    with pytest.raises(BadSetting, match="GATEWAY_API_AUDIT_MEBIBYTES"):
        Settings.from_environment({**SECRET, "GATEWAY_API_AUDIT_MEBIBYTES": size})


def test_the_audit_log_is_where_and_as_large_as_it_is_said_to_be() -> None:
    settings = Settings.from_environment(
        {**SECRET, "GATEWAY_API_AUDIT": "/a/audit", "GATEWAY_API_AUDIT_MEBIBYTES": "2"}
    )
    assert (settings.audit, settings.audit_size) == (Path("/a/audit"), 2 << 20)


def test_a_log_format_that_is_none_is_named() -> None:
    with pytest.raises(BadSetting, match="GATEWAY_API_LOG_FORMAT"):
        Settings.from_environment({**SECRET, "GATEWAY_API_LOG_FORMAT": "xml"})


def test_a_log_level_that_is_none_is_named() -> None:
    with pytest.raises(BadSetting, match="GATEWAY_API_LOG_LEVEL"):
        Settings.from_environment({**SECRET, "GATEWAY_API_LOG_LEVEL": "loud"})


@pytest.mark.parametrize("bind", ["127.0.0.2", ":", "127.0.0.1:https", "::1:8443", "127.0.0.1:8443 "])
def test_an_address_without_a_port_is_refused(bind: str) -> None:
    with pytest.raises(BadSetting, match="GATEWAY_API_BIND must be ADDRESS:PORT"):
        Settings.from_environment({**SECRET, "GATEWAY_API_BIND": bind})


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
    environment = {name: values.get(name, "/x") for name in KNOWN}
    assert Settings.from_environment({**environment, **SECRET}).audit == Path("/x")
    assert Settings.from_environment(environment, TOKEN).audit == Path("/x")


def test_the_known_variables_are_those_that_are_read_and_documented() -> None:
    def named(*files: Path) -> set[str]:
        return set(re.findall("GATEWAY_API_[A-Z][A-Z_]*", "".join(file.read_text() for file in files)))

    read = (ROOT / "gateway_api").rglob("*.py")
    assert named(*read, *(ROOT / "systemd").iterdir()) == KNOWN
    assert named(ROOT / "etc" / "gateway-api.env") == KNOWN
