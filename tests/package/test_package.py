"""The Debian packages, built and installed on a machine with a real systemd: it serves, comes back, reloads
and stops."""

import json
import os
import re
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import requests

from gateway_contract.base.errors import CoreAbsent
from gateway_contract.version import VERSION
from tests.support.machine import booted, gone
from tests.support.package import PROGRAMS, Installed, choose_the_lab, install, state_of
from tests.support.receivers import Receiver
from tests.support.sse import listen
from tests.support.stack import Api, wait_for

REPOSITORY = Path(__file__).parents[2]
SERVICES = ("gateway-core", "gateway-core-lab", "gateway-api")
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def installation(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    with booted(tmp_path_factory.mktemp("machine") / "root") as machine, machine.network():
        fresh = Installed(machine, install(machine, packages.values()))
        fresh.alone = fresh.api().send("GET", "/health", None).json()
        fresh.logged = machine.run("journalctl", "--unit=gateway-api", "--output=cat")
        choose_the_lab(machine)
        yield fresh


@pytest.fixture
def installed(installation: Installed) -> Iterator[Installed]:
    """With the machine's network around the test."""
    with installation.machine.network():
        yield installation


@pytest.fixture
def api(installed: Installed) -> Api:
    return installed.api()


def test_without_a_core_output_log_and_health_tell_how_to_choose_one(installed: Installed) -> None:
    absent = {"status": "error", "message": "Core daemon unreachable", "hint": CoreAbsent.HINT}
    assert installed.alone == absent
    assert CoreAbsent.HINT in installed.said
    (line,) = (line for line in installed.logged.splitlines() if CoreAbsent.HINT in line)
    assert "level=error" in line


def test_the_services_run_once_the_lab_is_chosen_and_start_with_the_machine(installed: Installed) -> None:
    for service in (*SERVICES, "gateway-api-renewal.timer"):
        assert installed.machine.run("systemctl", "is-active", service) == "active\n"
        state = "alias" if service == "gateway-core" else "enabled"
        assert installed.machine.run("systemctl", "is-enabled", service) == f"{state}\n"


def test_systemd_finds_nothing_wrong_with_the_units(installed: Installed) -> None:
    units = [f"/usr/lib/systemd/system/{unit.name}" for unit in (REPOSITORY / "systemd").iterdir()]
    assert installed.machine.run("systemd-analyze", "verify", *units) == ""


def test_the_installation_tells_the_first_user_and_where_its_password_is(
    installed: Installed, api: Api
) -> None:
    assert "The first user of the API is admin." in installed.said
    assert "/etc/gateway-api/first-password" in installed.said
    assert api.environment["ADMIN_PASSWORD"] not in installed.said


def test_only_root_reads_what_is_secret_and_the_core_s_group_asks_it(installed: Installed) -> None:
    socket = installed.machine.run("stat", "--format=%a %U %G", "/run/gateway-core/core.sock")
    assert socket == "660 gateway-core gateway-core\n"
    for name in ("secret", "tls/key.pem", "first-password", "gateway-api.env"):
        held = (installed.machine.root / "etc" / "gateway-api" / name).stat()
        assert (held.st_uid, oct(held.st_mode & 0o777)) == (0, "0o600"), name


def test_nothing_in_the_packages_knows_where_it_was_built(installed: Installed) -> None:
    found = installed.machine.attempt("grep", "-rlF", str(REPOSITORY), PROGRAMS, "/usr/lib/gatewayctl")
    assert (found.returncode, found.stdout) == (1, "")


def list_files(package: Path) -> list[str]:
    """Return the paths of files and links in a package."""
    command = ["dpkg-deb", "--contents", package]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line.split()[5].removeprefix(".") for line in listed.splitlines() if not line.startswith("d")]


def test_the_packages_have_programs_man_pages_and_completions_but_no_tests_linters_or_caches(
    packages: dict[str, Path],
) -> None:
    names = [name for package in packages.values() for name in list_files(package)]
    assert len(names) == len(set(names)), "two packages share a file"
    wanted = {
        f"{PROGRAMS}/bin/gunicorn",
        *(f"/usr/share/man/{name}.gz" for name in ("man1/gatewayctl.1", "man1/gatewayctl-subscribers.1")),
        *(f"/usr/share/man/{name}.gz" for name in ("man5/gateway-api.env.5", "man8/gateway-core.8")),
        "/usr/share/man/man8/gateway-relay.8.gz",
        "/usr/share/gateway-relay/asyncapi.json",
        *(f"{PROGRAMS}/share/doc/gateway-api/html/gatewayctl.pyz{end}" for end in ("", ".sha256")),
        "/usr/share/bash-completion/completions/gatewayctl",
        "/usr/share/zsh/vendor-completions/_gatewayctl",
        "/usr/share/fish/vendor_completions.d/gatewayctl.fish",
    }
    assert wanted <= set(names)
    unwanted = re.compile(
        r"/tests/|/gevent/testing/|/__pycache__/|\.pyc$|/[Aa]ctivate"
        r"|/site-packages/(?:pytest|mypy|ruff|hypothesis|pip|setuptools)/|\.dist-info/(?:RECORD|direct_url)"
    )
    assert [name for name in names if unwanted.search(name)] == []


def test_lintian_finds_no_error_in_the_packages(packages: dict[str, Path]) -> None:
    command = ["lintian", "--fail-on=error", "--no-tag-display-limit", "--allow-root", *packages.values()]
    judged = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert judged.returncode == 0, judged.stdout + judged.stderr


def test_each_command_is_on_the_path(installed: Installed) -> None:
    for command in ("gatewayctl", "gateway-api", "check_gateway"):
        said = installed.machine.attempt(f"/usr/bin/{command}", "--version").stdout
        assert said == f"{command} {VERSION}\n"


def test_the_documentation_is_there_and_served(installed: Installed, api: Api) -> None:
    page = api.session.get(f"{api.url}/docs/how-to/commit.html", timeout=10)
    installed_page = installed.machine.run("cat", "/usr/share/doc/gateway-api/html/how-to/commit.html")
    assert page.text == installed_page


def test_the_first_user_signs_in_on_the_machine(installed: Installed, api: Api) -> None:
    in_it = ("env", "HOME=/root", "GATEWAY_CA=/etc/gateway-api/tls/certificate.pem", "gatewayctl")
    first = ("--user", "admin", "--password-file", "/etc/gateway-api/first-password")
    installed.machine.run(*in_it, "login", *first)
    assert "subscriber" in installed.machine.run(*in_it, "subscribers", "list")


def test_a_certificate_of_ours_that_ends_soon_is_renewed_and_served(installed: Installed) -> None:
    certificate = installed.machine.root / "etc/gateway-api/tls/certificate.pem"
    certificate.unlink()
    make = "from gateway_api.cli import certificates as c, setup; c.VALIDITY_DAYS = 20; setup.main()"
    installed.machine.run(f"{PROGRAMS}/bin/python", "-c", make)
    installed.machine.run("systemctl", "reload", "gateway-api")
    before = certificate.read_text()
    # A worker that has not stopped yet may accept a connection, and has the one before it.
    wait_for("the certificate that ends soon", lambda: shown_certificate() == before, 20)
    installed.machine.run("systemctl", "start", "gateway-api-renewal")
    assert certificate.read_text() != before
    wait_for("the new certificate", lambda: shown_certificate() == certificate.read_text(), 20)
    assert installed.serves()


def test_the_package_serves_lists_commits_streams_and_webhooks(installed: Installed, api: Api) -> None:
    assert api.get("/subscribers?limit=10000", role="admin")["count"] > 100
    change = {"path": "qos.default_down", "value": "321mbit"}
    assert api.send("POST", "/system/config/set", json=change).ok
    assert api.send("POST", "/system/config/commit").json()["data"]["committed"]
    assert api.get("/system/config", role="admin")["qos"]["default_down"] == "321mbit"
    with Receiver() as receiver, listen(api, role="admin") as stream:
        registration = {"url": receiver.url, "events": ["session.down"]}
        assert api.send("POST", "/webhooks", json=registration).status_code == 201
        assert api.send("DELETE", "/subscribers/12").ok
        wait_for("the delivery", lambda: receiver.ids)
        stream.until(lambda message: message.name == "session_down" and message.data["id"] == 12)


def test_journalctl_shows_the_error_of_a_request_that_failed(installed: Installed) -> None:
    machine = installed.machine
    assert state_of(machine, "gateway-core") == "active"
    machine.run("systemctl", "stop", "gateway-core")
    try:
        answer = installed.api().send("GET", "/health", None)
    finally:
        machine.run("systemctl", "start", "gateway-core")
    assert answer.status_code == 500
    errors = machine.run("journalctl", "--unit=gateway-api", "--priority=err", "--output=cat")
    lines = [line for line in errors.splitlines() if answer.headers["X-Request-ID"] in line]
    assert len(lines) == 1
    assert lines[0].startswith("time=")
    assert "level=error" in lines[0]
    assert "level=info" not in errors
    assert "level=info" in machine.run("journalctl", "--unit=gateway-core-lab", "--output=cat")


def test_the_alternative_profile_serves_beside_the_other_once_there_is_a_token(
    installed: Installed, api: Api
) -> None:
    machine, token = installed.machine, "a-token-for-scripts"
    machine.attempt("systemctl", "start", "gateway-api-token")
    assert state_of(machine, "gateway-api-token") == "failed"

    def ended() -> str:
        said = machine.run("journalctl", "--unit=gateway-api-token")
        return said if "status=78" in said else ""

    # systemd's own line may be in the journal a moment later.
    assert "Scheduled restart job" not in wait_for("the end of its process", ended)
    assert api.send("POST", "/system/config/set", json={"path": "api.auth_token", "value": token}).ok
    assert api.send("POST", "/system/config/commit").ok
    machine.run("systemctl", "start", "gateway-api-token")
    headers = {"Authorization": f"Bearer {token}"}
    url = "http://127.0.0.1:8080/api/v1/subscribers?limit=3"
    listed = requests.get(url, headers=headers, timeout=60).json()["data"]["subscribers"]
    # A core that a test before has restarted gives them what another has committed.
    rates = [one["rate_down"] // 10**6 for one in api.get("/subscribers?limit=3", role="admin")["sessions"]]
    assert [one["speed_down"] for one in listed] == [f"{rate} Mbit/s" for rate in rates]
    assert installed.serves()
    machine.run("systemctl", "stop", "gateway-api-token")


def test_the_audit_logs_of_both_profiles_reach_the_journal(installed: Installed, api: Api) -> None:
    machine, token = installed.machine, "a-token-for-scripts"
    for path, value in (("api.auth_token", token), ("api.audit.forward", "journal")):
        assert api.send("POST", "/system/config/set", json={"path": path, "value": value}).ok
    assert api.send("POST", "/system/config/commit").ok
    machine.run("systemctl", "start", "gateway-api-token")
    url, headers = "http://127.0.0.1:8080/api/v1", {"Authorization": f"Bearer {token}"}
    requests.delete(f"{url}/subscribers/999999", headers=headers, timeout=60)
    machine.run("systemctl", "restart", "systemd-journald")
    api.send("DELETE", "/subscribers/999999")

    def list_records(identifier: str) -> list[dict[str, Any]]:
        lines = machine.run("journalctl", f"--identifier={identifier}", "--output=cat").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def arrived() -> bool:
        actions = [record["action"] for record in list_records("gateway-api-audit")]
        return "subscribers.disconnect" in actions and bool(list_records("gateway-api-token-audit"))

    wait_for("the records", arrived)
    ids = [record["id"] for record in list_records("gateway-api-audit")]
    assert len(ids) == len(set(ids))
    (record,) = list_records("gateway-api-token-audit")
    assert (record["id"], record["path"]) == ("beside-known-1", "/api/v1/subscribers/999999")
    assert api.send("POST", "/system/config/delete", json={"path": "api.audit.forward"}).ok
    assert api.send("POST", "/system/config/commit").ok
    machine.run("systemctl", "stop", "gateway-api-token")


@pytest.mark.parametrize("word", ["gunicorn", "gateway_core"])
def test_the_api_serves_again_after_the_first_process_of_a_service_is_killed(
    installed: Installed, word: str
) -> None:
    going = installed.machine.processes(word)
    os.kill(going[0], signal.SIGKILL)
    wait_for("the killed to be gone", lambda: all(map(gone, going)))
    wait_for("a response", installed.serves)


def test_a_restart_returns_when_the_api_serves_and_a_token_outlives_it(
    installed: Installed, api: Api
) -> None:
    token = api.token("admin")
    installed.machine.run("systemctl", "restart", "gateway-core", "gateway-api")
    assert installed.serves()
    assert installed.api().send("GET", "/subscribers/20", token=token).ok


def shown_certificate() -> str:
    return ssl.get_server_certificate(("localhost", 8443), timeout=60)


def test_a_request_that_has_begun_is_answered_though_a_reload_comes(installed: Installed, api: Api) -> None:
    wait_for("the API", installed.serves)
    old = installed.machine.processes("gunicorn")[1:]
    body = json.dumps({"path": "system.hostname", "value": "slow"}).encode()

    def slowly() -> Iterator[bytes]:
        yield body[:5]
        installed.machine.run("systemctl", "reload", "gateway-api")
        # Longer than a worker waits for connections without a request.
        wait_for("the others to have gone", lambda: any(map(gone, old)), 20)
        time.sleep(3)
        yield body[5:]

    answered = api.send("POST", "/system/config/set", data=slowly(), headers=JSON)
    assert answered.status_code == 200
    assert api.send("POST", "/system/config/discard").ok
    wait_for("the old workers to go", lambda: all(map(gone, old)), 10)


def test_a_reload_takes_a_new_certificate_and_drops_no_request(installed: Installed, tmp_path: Path) -> None:
    wait_for("the API", installed.serves)
    before, old = shown_certificate(), installed.machine.processes("gunicorn")[1:]
    new = tmp_path / "new"
    make = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", "/CN=renewed", "-addext", "subjectAltName=DNS:localhost"),
        *("-keyout", f"{new}.key", "-out", f"{new}.crt"),
    ]
    subprocess.run(make, check=True, capture_output=True)
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(before + Path(f"{new}.crt").read_text())
    done, answers = threading.Event(), []

    def ask() -> None:
        while not done.is_set():
            # A connection each, as the next client may come any time.
            answers.append(
                requests.get("https://localhost:8443/api/v1/health", verify=trusted, timeout=60).status_code
            )

    asking = [threading.Thread(target=ask) for _ in range(4)]
    for thread in asking:
        thread.start()
    try:
        wait_for("answers", lambda: len(answers) > 20, 10)
        for name, target in (("key", "key.pem"), ("crt", "certificate.pem")):
            place = installed.machine.root / "etc/gateway-api/tls" / target
            place.write_bytes(Path(f"{new}.{name}").read_bytes())
        installed.machine.run("systemctl", "reload", "gateway-api")
        wait_for("the old workers to go", lambda: all(gone(pid) for pid in old), 20)
        enough = len(answers) + 20
        wait_for("answers", lambda: len(answers) > enough, 10)
    finally:
        done.set()
        for thread in asking:
            thread.join()
    assert set(answers) == {200}
    assert shown_certificate() != before


def test_a_reload_with_a_certificate_that_does_not_fit_fails_and_the_old_one_stays(
    installed: Installed,
) -> None:
    wait_for("the API", installed.serves)
    before = shown_certificate()
    key = installed.machine.root / "etc" / "gateway-api" / "tls" / "key.pem"
    held = key.read_bytes()
    installed.machine.run("openssl", "genrsa", "-out", "/etc/gateway-api/tls/key.pem", "2048")
    refused = installed.machine.attempt("systemctl", "reload", "gateway-api")
    key.write_bytes(held)
    assert refused.returncode != 0
    assert shown_certificate() == before


def test_the_api_stops_by_itself_though_50_streams_are_open(installed: Installed, api: Api) -> None:
    wait_for("the API", installed.serves)
    with ExitStack() as streams:
        for _ in range(50):
            streams.enter_context(listen(api, role="admin"))
        installed.machine.run("systemctl", "stop", "gateway-api")
    result = installed.machine.run("systemctl", "show", "--property=Result", "--value", "gateway-api")
    installed.machine.run("systemctl", "start", "gateway-api")
    # The result is "timeout" if systemd had to kill a process.
    assert result == "success\n"
