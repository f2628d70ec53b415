"""The systemd units start what there is, with files where the project puts them."""

import ctypes
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from gateway_api.base.settings import KNOWN_VARIABLES, Settings
from gateway_api.base.settings import TOKEN as TOKEN_PROFILE
from gateway_api.base.settings import USERS as USERS_PROFILE
from gateway_api.serving import users as configuration
from gateway_api.serving.configuration import make_settings
from gateway_contract.base.variables import log_format, log_level
from gateway_core.gateways.linux.daemons import daemon, dnsmasq, pppd, pppoe_server
from gateway_core.gateways.linux.sessions.tracker import TRIGGER_SOCKET
from tests.support.stack import Api, free_port, wait_for

REPOSITORY = Path(__file__).parents[2]
UNITS = sorted((REPOSITORY / "systemd").iterdir())
PROGRAMS = [unit for unit in UNITS if unit.suffix == ".service"]
ONCE = ("gateway-api-certificate", "gateway-api-renewal")
#: Debian's daemons, which the core starts and stops.
DAEMONS = ("gateway-dnsmasq", "gateway-pppoe@")
#: It serves no clients, and has no watchdog.
RELAY = "gateway-relay"
SERVICES = [unit for unit in PROGRAMS if unit.stem not in (*ONCE, *DAEMONS, RELAY)]
CORES = ("gateway-core-lab", "gateway-core-linux")
_API = {"User": "gateway-api", "Restart": "always", "MemoryMax": "1G"}
_CORE = {"User": "gateway-core", "Restart": "always", "MemoryMax": "3G", "ProcSubset": "pid"}
_CAPABILITIES = "CAP_NET_ADMIN CAP_NET_RAW CAP_KILL"
SETTINGS = {
    "gateway-api": {**_API, "LoadCredential": "secret:/etc/gateway-api/secret"},
    "gateway-api-token": {**_API, "User": "gateway-api-token"},
    "gateway-api-certificate": {"LoadCredential": "key:/etc/gateway-api/tls/key.pem"},
    RELAY: {
        "User": "gateway-relay",
        "Restart": "always",
        "LoadCredential": "relay:/etc/gateway-api/gateway-relay",
    },
    "gateway-core-lab": _CORE,
    "gateway-core-linux": {
        **_CORE,
        **dict.fromkeys(("CapabilityBoundingSet", "AmbientCapabilities"), _CAPABILITIES),
    },
    # By itself, systemd takes it for a clean end (systemd.service(5)).
    "gateway-pppoe@": {"RestartForceExitStatus": "SIGHUP"},
}
#: For an accel-ppp that the operator built.
EXAMPLE = REPOSITORY / "packaging" / "accel-ppp.service"
#: Of 10, by systemd's own count.
MOST_EXPOSED = {
    "gateway-api": 1.0,
    "gateway-api-token": 1.0,
    "gateway-api-certificate": 0.3,
    "gateway-api-renewal": 1.0,
    "gateway-core-lab": 0.3,
    "gateway-core-linux": 2.1,
    "gateway-relay": 1.0,
    "gateway-dnsmasq": 1.8,
    # As root, with /dev/ppp and PPPoE sockets.
    "gateway-pppoe@": 3.1,
    "accel-ppp": 3.0,
}


def read(name: str) -> ConfigParser:
    unit = ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(REPOSITORY / "systemd" / name)
    return unit


def service(name: str) -> dict[str, str]:
    return dict(read(name)["Service"])


def command(name: str, root: Path) -> list[str]:
    """What the unit starts, with its folders below `root` and this environment's programs."""
    text = service(name)["ExecStart"]
    text = text.replace("/opt/gateway-api/bin", str(Path(sys.executable).parent))
    return re.sub(r"(?<= )/(run|etc|var/lib)/[\w-]+", str(root), text).split()


@pytest.mark.parametrize(("name", "wanted"), SETTINGS.items())
def test_a_service_has_its_user_its_limits_and_what_only_root_reads(
    name: str, wanted: dict[str, str]
) -> None:
    settings = service(f"{name}.service")
    assert {key: settings[key] for key in wanted} == wanted


def test_a_unit_starts_in_its_order_however_often_it_is_started() -> None:
    assert {read(unit.name)["Unit"]["StartLimitIntervalSec"] for unit in UNITS} == {"0"}
    for unit in SERVICES:
        assert "time-sync.target" in read(unit.name)["Unit"]["After"].split()
        # A busy machine is slow, and hangs not.
        assert int(service(unit.name)["WatchdogSec"]) >= 30


@pytest.mark.parametrize("core", CORES)
def test_a_core_is_told_its_boot_and_runs_only_where_it_is_enabled(core: str) -> None:
    assert "--boot-id %b" in service(f"{core}.service")["ExecStart"]
    assert read(f"{core}.service")["Install"]["Alias"] == "gateway-core.service"
    assert not (REPOSITORY / "systemd" / "gateway-core.service").exists()


@pytest.mark.parametrize("unit", [*PROGRAMS, EXAMPLE], ids=lambda unit: unit.name)
def test_a_unit_is_hardly_exposed(unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(unit)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (exposure,) = re.findall(r"Overall exposure level for \S+: ([0-9.]+) ", said)
    assert float(exposure) <= MOST_EXPOSED[unit.stem], said


def test_the_core_and_its_daemons_meet_in_the_same_places() -> None:
    of_pppoe, of_dnsmasq = service("gateway-pppoe@.service"), service("gateway-dnsmasq.service")
    folder, state = REPOSITORY / "packaging" / "pppoe", Path("/var/lib", of_dnsmasq["StateDirectory"])
    options = (folder / "options").read_text().splitlines()
    assert Path("/run", of_pppoe["RuntimeDirectory"]) == pppd.RECORDS_FOLDER
    assert f"set GATEWAY_SESSIONS={pppd.RECORDS_FOLDER}" in options
    assert f"set GATEWAY_TRIGGER={TRIGGER_SOCKET}" in options
    assert of_dnsmasq["Environment"] == f"GATEWAY_TRIGGER={TRIGGER_SOCKET} BOOT_ID=%b"
    assert f"settings={pppoe_server.SETTINGS_FOLDER}/$interface" in (folder / "server").read_text()
    radius = (folder / "options.radius").read_text()
    assert f"radius-config-file {daemon.SERVICES_FOLDER}/radiusclient.conf" in radius
    assert of_dnsmasq["PIDFile"] == str(dnsmasq.PID_FILE)
    assert of_dnsmasq["LoadCredential"] == f"dnsmasq.conf:{daemon.SERVICES_FOLDER}/dnsmasq.conf"
    assert state == dnsmasq.LEASE_FILE.parent == dnsmasq.RECORDS_FOLDER.parent
    assert Path("/run", of_dnsmasq["RuntimeDirectory"]) == dnsmasq.PID_FILE.parent
    assert Path("/run", service("gateway-core-linux.service")["RuntimeDirectory"]) == TRIGGER_SOCKET.parent


def test_pppd_requires_only_what_its_radius_client_can_check() -> None:
    options = (REPOSITORY / "packaging" / "pppoe" / "options").read_text().splitlines()
    # Without any of them, pppd asks for EAP first.
    required = {option for option in options if option.startswith("require-")}
    assert required == {"require-pap", "require-chap", "require-mschap-v2"}


def test_a_pppoe_server_that_a_reload_ends_before_it_can_take_one_starts_again(tmp_path: Path) -> None:
    program = [REPOSITORY / "packaging" / "pppoe" / "server", "none0.300"]
    libc = ctypes.CDLL(None, use_errno=True)
    environment = {"PATH": os.environ["PATH"], "RUNTIME_DIRECTORY": str(tmp_path)}
    # A traced process stops when it has become the program, before the first step of it (ptrace(2)).
    trace_me, detach = 0, 17
    with subprocess.Popen(
        program, env=environment, preexec_fn=lambda: libc.ptrace(trace_me, 0, None, None)
    ) as server:
        os.waitid(os.P_PID, server.pid, os.WSTOPPED)
        server.send_signal(signal.SIGHUP)
        assert libc.ptrace(detach, server.pid, None, None) == 0
        assert server.wait(60) == -signal.SIGHUP


@pytest.mark.parametrize("program", ["server", "pppd"])
def test_shellcheck_has_nothing_to_say_of_the_programs_of_pppoe_server(program: str) -> None:
    path = REPOSITORY / "packaging" / "pppoe" / program
    said = subprocess.run(["shellcheck", path], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout


@contextmanager
def listening_as_systemd(folder: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(folder / "notify"))
        systemd.settimeout(60)
        yield systemd


def is_silent(systemd: socket.socket, seconds: float) -> bool:
    """True if nothing more is reported in this time."""
    systemd.settimeout(seconds)
    try:
        systemd.recv(1000)
    except TimeoutError:
        return True
    finally:
        systemd.settimeout(60)
    return False


def of_the_api(folder: Path, state: Path, **settings: str) -> dict[str, str]:
    """The environment that its unit gives it."""
    return {
        "GATEWAY_API_RUNTIME": str(folder),
        "GATEWAY_API_STATE": str(folder),
        "GATEWAY_API_AUDIT": str(folder / "audit"),
        "GATEWAY_API_BIND": "127.0.0.1:0",
        "GATEWAY_API_CERTIFICATE": str(state / "certificate.pem"),
        "GATEWAY_API_KEY": str(state / "key.pem"),
        **settings,
    }


def test_systemd_is_told_when_the_api_answers_and_the_watchdog_hears_it_until_its_arbiter_hangs(
    tmp_path: Path, api: Api, state: Path
) -> None:
    port, log = free_port(), tmp_path / "log"
    own = {"GATEWAY_API_BIND": f"127.0.0.1:{port}", "NOTIFY_SOCKET": str(tmp_path / "notify")}
    environment = of_the_api(tmp_path, state, **own, WATCHDOG_USEC="1000000")
    with listening_as_systemd(tmp_path) as systemd, log.open("wb") as said:
        process = subprocess.Popen(command("gateway-api.service", tmp_path), env=environment, stderr=said)
        try:
            wait_for("its readiness", lambda: systemd.recv(1000) == b"READY=1")
            url = f"https://localhost:{port}/api/v1/system/version"
            assert requests.get(url, verify=state / "certificate.pem", timeout=60).ok
            assert {systemd.recv(1000) for _ in range(3)} == {b"WATCHDOG=1"}
            arbiter = int(re.findall(r"Listening at: \S+ \((\d+)\)", log.read_text())[-1])
            os.kill(arbiter, signal.SIGSTOP)
            try:
                wait_for("silence", lambda: is_silent(systemd, 3))
            finally:
                os.kill(arbiter, signal.SIGCONT)
            assert systemd.recv(1000) == b"WATCHDOG=1"
        finally:
            process.terminate()
            process.wait(60)


def test_the_watchdog_hears_the_core_until_it_does_not_reply(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    (tmp_path / "factory.json").write_text(json.dumps(document))
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000"}
    with listening_as_systemd(tmp_path) as systemd, socket.socket(socket.AF_UNIX) as silent:
        process = subprocess.Popen(command("gateway-core-lab.service", tmp_path), env=environment)
        try:
            assert [systemd.recv(1000) for _ in range(4)] == [b"READY=1", *[b"WATCHDOG=1"] * 3]
            # What the core finds at its socket accepts calls, and does not reply: so does a core that hangs.
            silent.bind(str(tmp_path / "silent"))
            silent.listen()
            (tmp_path / "silent").rename(tmp_path / "core.sock")
            wait_for("silence", lambda: is_silent(systemd, 3))
        finally:
            process.terminate()
            assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("GATEWAY_API_RUNTIME", "{0}/none", "GATEWAY_API_RUNTIME"),
        (
            "GATEWAY_API_STATE",
            "{0}/damaged",
            "cannot open or create the login ledger {0}/damaged/logins.sqlite (GATEWAY_API_STATE): ",
        ),
        ("GATEWAY_API_AUDIT", "{0}/none/audit", "GATEWAY_API_AUDIT"),
        ("GATEWAY_API_WORKER", "4", "GATEWAY_API_WORKER is not a known variable; "),
    ],
)
def test_a_setting_with_which_the_api_cannot_start_gets_one_sentence(
    tmp_path: Path, api: Api, state: Path, variable: str, value: str, sentence: str
) -> None:
    (tmp_path / "damaged" / "logins.sqlite").mkdir(parents=True)
    environment = of_the_api(tmp_path, state, **{variable: value.format(tmp_path)}, SVC_API_SECRET="x" * 32)
    started = command("gateway-api.service", tmp_path)
    ended = subprocess.run(started, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert f"cannot start the gateway API: {sentence.format(tmp_path)}" in ended.stderr


def test_the_state_of_the_api_is_in_a_folder_that_outlives_a_reboot() -> None:
    folder = Path("/var/lib", service("gateway-api.service")["StateDirectory"])
    assert (Settings.state, Settings.audit.parent) == (folder, folder)


def test_the_environment_file_names_every_variable_with_its_default() -> None:
    secret = {"SVC_API_SECRET": "s" * 32}
    users, token = (Settings.from_environment(secret, profile) for profile in (USERS_PROFILE, TOKEN_PROFILE))
    gunicorn = [vars(configuration), make_settings(TOKEN_PROFILE)]
    named = {
        "SVC_API_SECRET": "",
        "GATEWAY_CORE_SOCKET": users.core_socket,
        "GATEWAY_API_RUNTIME": users.runtime,
        "GATEWAY_API_STATE": users.state,
        "GATEWAY_API_BIND": configuration.bind,
        "GATEWAY_API_CERTIFICATE": configuration.certfile,
        "GATEWAY_API_KEY": configuration.keyfile,
        "GATEWAY_API_WORKERS": gunicorn[0]["workers"],
        "GATEWAY_API_WEBHOOK_CERTIFICATES": users.webhook_certificates or "",
        "GATEWAY_API_AUDIT": users.audit,
        "GATEWAY_API_AUDIT_MEBIBYTES": users.max_audit_bytes >> 20,
        "GATEWAY_API_LOG_FORMAT": log_format({}),
        "GATEWAY_API_LOG_LEVEL": logging.getLevelName(log_level({})).lower(),
        "GATEWAY_API_TOKEN_BEYOND_LOOPBACK": "yes" if token.beyond_loopback else "no",
        "GATEWAY_API_TOKEN_AUDIT": token.audit,
        "GATEWAY_API_TOKEN_RUNTIME": token.runtime,
        "GATEWAY_API_TOKEN_WORKERS": gunicorn[1]["workers"],
    }
    assert users.token_audit == token.audit
    assert (gunicorn[0]["worker_tmp_dir"], gunicorn[1]["worker_tmp_dir"]) == (
        str(users.runtime),
        str(token.runtime),
    )
    assert named.keys() - {"SVC_API_SECRET", "GATEWAY_CORE_SOCKET"} == KNOWN_VARIABLES
    text = (REPOSITORY / "etc" / "gateway-api.env").read_text()
    assert dict(re.findall(r"^#([A-Z_]+)=(.*)$", text, re.MULTILINE)) == {
        name: str(value) for name, value in named.items()
    }
