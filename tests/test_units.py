"""The systemd units start what there is, with files where the project puts them."""

import json
import re
import socket
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest

from gateway_api.settings import Settings
from tests.stack import Api, wait_for

REPOSITORY = Path(__file__).parent.parent
UNITS = sorted((REPOSITORY / "systemd").glob("*.service"))


def service(name: str) -> dict[str, str]:
    unit = ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(REPOSITORY / "systemd" / name)
    return dict(unit["Service"])


def command(name: str, root: Path) -> list[str]:
    """What the unit starts, with its folders below `root` and this environment's programs."""
    text = service(name)["ExecStart"]
    text = text.replace("/opt/gateway-api/bin", str(Path(sys.executable).parent))
    text = text.replace("/etc/gateway-api/gunicorn.conf.py", str(REPOSITORY / "etc" / "gunicorn.conf.py"))
    return re.sub(r"(?<= )/(run|etc|var/lib)/[\w-]+", str(root), text).split()


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_runs_as_a_user_of_its_own_and_comes_back(unit: Path) -> None:
    section = service(unit.name)
    assert section["User"] == unit.stem
    assert section["Restart"] == "always"


def test_the_core_s_unit_starts_a_core(tmp_path: Path, document: dict[str, Any]) -> None:
    (tmp_path / "factory.json").write_text(json.dumps(document))
    process = subprocess.Popen(command("gateway-core.service", tmp_path))
    try:
        wait_for("the core's socket", (tmp_path / "core.sock").exists)
    finally:
        process.terminate()
    assert process.wait(10) == 0


def test_the_api_s_unit_tells_systemd_when_it_listens(tmp_path: Path, api: Api, state: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(30)
        environment = {
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "GATEWAY_CORE_SOCKET": api.environment["CORE_SOCKET"],
            "GATEWAY_API_RUNTIME": str(tmp_path),
            "GATEWAY_API_AUDIT": str(tmp_path / "audit"),
            "GATEWAY_API_BIND": "127.0.0.1:0",
            "GATEWAY_API_CERTIFICATE": str(state / "certificate.pem"),
            "GATEWAY_API_KEY": str(state / "key.pem"),
        }
        process = subprocess.Popen(command("gateway-api.service", tmp_path), env=environment)
        try:
            assert systemd.recv(1000).startswith(b"READY=1")
        finally:
            process.terminate()
    assert process.wait(10) == 0


def test_a_restart_keeps_what_was_logged_out() -> None:
    assert service("gateway-api.service")["RuntimeDirectoryPreserve"] == "yes"


def refusal(tmp_path: Path, state: Path, **settings: str) -> str:
    """What the API's unit says when it can't start: a sentence, and no traceback."""
    environment = {
        "SVC_API_SECRET": "x" * 32,
        "GATEWAY_API_RUNTIME": str(tmp_path),
        "GATEWAY_API_AUDIT": str(tmp_path / "audit"),
        "GATEWAY_API_BIND": "127.0.0.1:0",
        "GATEWAY_API_CERTIFICATE": str(state / "certificate.pem"),
        "GATEWAY_API_KEY": str(state / "key.pem"),
        **settings,
    }
    started = command("gateway-api.service", tmp_path)
    ended = subprocess.run(started, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    return ended.stderr


def test_a_runtime_folder_that_is_not_there_gets_one_sentence(tmp_path: Path, api: Api, state: Path) -> None:
    said = refusal(tmp_path, state, GATEWAY_API_RUNTIME=str(tmp_path / "none"))
    assert "cannot start the gateway API: GATEWAY_API_RUNTIME" in said


def test_an_audit_folder_that_cannot_be_gets_one_sentence(tmp_path: Path, api: Api, state: Path) -> None:
    said = refusal(tmp_path, state, GATEWAY_API_AUDIT=str(tmp_path / "none" / "audit"))
    assert "cannot start the gateway API: GATEWAY_API_AUDIT" in said


def test_the_audit_log_is_in_a_folder_that_the_unit_makes() -> None:
    section = service("gateway-api.service")
    assert Settings.audit.parent == Path("/var/lib", section["StateDirectory"])


def test_a_secret_that_cannot_sign_gets_one_sentence(tmp_path: Path, api: Api, state: Path) -> None:
    said = refusal(tmp_path, state, SVC_API_SECRET="ssh-rsa AAAA")
    assert "cannot start the gateway API: SVC_API_SECRET" in said


def test_a_log_format_that_is_none_gets_one_sentence(tmp_path: Path, api: Api, state: Path) -> None:
    said = refusal(tmp_path, state, GATEWAY_API_LOG_FORMAT="xml")
    assert "cannot start the gateway API: GATEWAY_API_LOG_FORMAT must be keyvalue or json" in said


def test_the_environment_file_names_every_variable_with_its_default() -> None:
    text = (REPOSITORY / "etc" / "gateway-api.env").read_text()
    readers = "".join(
        (REPOSITORY / path).read_text() for path in ("etc/gunicorn.conf.py", "gateway_api/settings.py")
    )
    named = dict(re.findall(r"^#([A-Z_]+)=(.*)$", text, re.MULTILINE))
    assert set(named) == set(re.findall(r'"((?:GATEWAY|SVC)_[A-Z_]+)"', readers))
    for value in filter(None, named.values()):
        assert f'"{value}"' in readers
