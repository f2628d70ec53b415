"""`gateway-api prove-backup`, as an operator runs it beside a running gateway."""

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway_api.cli import certificates
from tests.support.by_api import commit, set_value
from tests.support.stack import Api, running_stack, wait_for
from tests.system.test_cli import COMMAND

ETC = "etc/gateway-api"
STATE = "var/lib/gateway-api"
CONFIGURATION = "var/lib/gateway-core/configuration"
LEASES = "var/lib/gateway-dnsmasq/leases"


@dataclass
class Gateway:
    """A running gateway, and a shell beside it."""

    state: Path
    api: Api | None = None

    def prove(self, backup: Path) -> "subprocess.CompletedProcess[str]":
        here = {"GATEWAY_CORE_SOCKET": str(self.state / "core.sock"), "GATEWAY_API_STATE": str(self.state)}
        return subprocess.run(
            [COMMAND, "prove-backup", str(backup)],
            env={**os.environ, **here},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def proven(self, backup: Path) -> dict[str, str]:
        """The lines of a backup that restores, by their labels."""
        ended = self.prove(backup)
        assert (ended.returncode, ended.stderr) == (0, "")
        *lines, last = ended.stdout.splitlines()
        assert last == "The backup restores."
        return {line[:18].strip(): line[18:] for line in lines}

    def reasons(self, backup: Path) -> list[str]:
        """The reasons why a backup does not restore."""
        ended = self.prove(backup)
        assert ended.returncode == 1
        assert ended.stdout.endswith("\nThe backup does not restore.\n")
        lines = ended.stderr.splitlines()
        assert lines
        assert all(line.startswith("gateway-api: ") for line in lines)
        return [line.removeprefix("gateway-api: ") for line in lines]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    state = tmp_path_factory.mktemp("state")
    with running_stack(state, sessions=20) as (api, _):
        for hostname in ("north", "south"):
            rename(api, hostname)
        yield Gateway(state, api)


def rename(api: Api, hostname: str) -> None:
    set_value(api, "system.hostname", hostname)
    commit(api)


@pytest.fixture(scope="module")
def made(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of the gateway, as the page makes it."""
    made, state = tmp_path_factory.mktemp("made"), gateway.state
    (made / ETC / "tls").mkdir(parents=True)
    shutil.copy(state / "secret", made / ETC)
    for name in ("certificate.pem", "key.pem"):
        shutil.copy(state / name, made / ETC / "tls")
    (made / ETC / "gateway-api.env").write_text("# Settings\nGATEWAY_API_WORKERS=2\n")
    ignore = shutil.ignore_patterns("*.sqlite*")
    shutil.copytree(state / "configuration", made / CONFIGURATION, ignore=ignore)
    back_up(state / "configuration", made / CONFIGURATION)
    for name in ("audit/known.sqlite", "history.sqlite", "logins.sqlite"):
        wait_for(name, (state / name).exists)
    back_up(state, made / STATE, "configuration")
    leases = made / LEASES
    leases.parent.mkdir()
    leases.write_text("1795271513 02:00:00:00:00:01 100.64.0.16 * 01:02:00:00:00:00:01\nduid 00:01\n")
    return made


def back_up(source: Path, target: Path, without: str = "none") -> None:
    for path in source.rglob("*.sqlite"):
        if without not in path.parts:
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(path)) as database, closing(sqlite3.connect(copy)) as other:
                database.backup(other)


@pytest.fixture
def backup(made: Path, tmp_path: Path) -> Path:
    """A copy of the backup, for a test to damage."""
    return Path(shutil.copytree(made, tmp_path / "backup"))


def digest(folder: Path) -> dict[str, tuple[int, str]]:
    """The times and contents of all files."""
    return {
        str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in folder.rglob("*")
        if path.is_file()
    }


def change_running(backup: Path, change: Callable[[dict[str, Any]], None]) -> None:
    running = json.loads((backup / CONFIGURATION / "state.json").read_text())["running"]
    path = backup / CONFIGURATION / "revisions" / str(running) / "configuration.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def test_a_backup_that_restores_is_as_the_gateway(gateway: Gateway, made: Path) -> None:
    lines = gateway.proven(made)
    for label in ("configuration", "history", "logins"):
        assert lines[label].endswith("; as on this gateway"), label
    assert "by admin" in lines["configuration"]
    assert lines["archive"] == "2 earlier configurations"
    assert lines["users"] == "admin (admin), operator (operator)"
    assert lines["history"].startswith("20 sessions, until ")
    assert lines["leases"] == "1 of DHCP"


def test_a_proof_changes_no_file_of_the_backup(gateway: Gateway, backup: Path) -> None:
    before = digest(backup)
    gateway.proven(backup)
    assert digest(backup) == before


def test_a_proof_changes_no_file_of_a_gateway_that_is_stopped(made: Path, tmp_path: Path) -> None:
    state = Path(shutil.copytree(made / STATE, tmp_path / "state"))
    before = digest(state)
    assert Gateway(state).proven(made)["history"].endswith("; as on this gateway")
    assert digest(state) == before


def test_an_older_backup_restores_and_the_report_says_what_the_gateway_has_since(
    made: Path, tmp_path: Path
) -> None:
    state = tmp_path / "newer"
    with running_stack(state, sessions=25) as (api, _):
        rename(api, "newer")
        lines = Gateway(state, api).proven(made)
    assert "; this gateway runs another one, committed at " in lines["configuration"]
    assert "; this gateway has 5 newer, until " in lines["history"]


def test_without_a_gateway_there_is_nothing_to_compare_with(made: Path, tmp_path: Path) -> None:
    lines = Gateway(tmp_path).proven(made)
    for label in ("configuration", "history", "logins", "audit, known"):
        assert lines[label].endswith("; no gateway here to compare with"), label


@pytest.mark.parametrize("part", [ETC, STATE, CONFIGURATION])
def test_a_missing_folder_is_a_reason(gateway: Gateway, backup: Path, part: str) -> None:
    shutil.rmtree(backup / part)
    assert gateway.reasons(backup) == [f"{part}: the folder is missing in {backup}"]


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (f"{ETC}/secret", f"{ETC}/secret: SVC_API_SECRET is not set, and the credential can't be read"),
        (f"{ETC}/tls/key.pem", f"{ETC}/tls/certificate.pem: {{}}/{ETC}/tls/key.pem is missing"),
        (f"{STATE}/history.sqlite", f"{STATE}/history.sqlite: the database is missing"),
        (f"{STATE}/logins.sqlite", f"{STATE}/logins.sqlite: the database is missing"),
        (f"{STATE}/audit/known.sqlite", f"{STATE}/audit/known.sqlite: the database is missing"),
        (
            f"{CONFIGURATION}/state.json",
            f"{CONFIGURATION}: cannot start the core daemon: {{}}/{CONFIGURATION} has revisions, but no ",
        ),
    ],
)
def test_a_missing_file_is_a_reason(gateway: Gateway, backup: Path, file: str, reason: str) -> None:
    (backup / file).unlink()
    (found,) = gateway.reasons(backup)
    assert found.startswith(reason.format(backup))


@pytest.mark.parametrize(
    "file", [f"{STATE}/history.sqlite", f"{STATE}/audit/known.sqlite", f"{CONFIGURATION}/jobs/jobs.sqlite"]
)
def test_a_truncated_database_is_a_reason(gateway: Gateway, backup: Path, file: str) -> None:
    os.truncate(backup / file, (backup / file).stat().st_size // 2)
    (found,) = gateway.reasons(backup)
    assert found.startswith(f"{file}: ")
    assert "malformed" in found


def test_a_database_with_a_damaged_page_is_a_reason(gateway: Gateway, backup: Path) -> None:
    file = f"{CONFIGURATION}/changes/changes.sqlite"
    with (backup / file).open("r+b") as database:
        # A page of SQLite.
        database.seek(-4096, os.SEEK_END)
        database.write(bytes(4096))
    (found,) = gateway.reasons(backup)
    assert found.startswith(f"{file}: SQLite finds a fault: ")


def test_a_database_whose_tables_this_version_cannot_use_is_a_reason(gateway: Gateway, backup: Path) -> None:
    with closing(sqlite3.connect(backup / STATE / "history.sqlite")) as database:
        database.execute("ALTER TABLE session RENAME COLUMN started TO began")
    assert gateway.reasons(backup) == [f"{STATE}/history.sqlite: no such column: started"]


def test_the_key_of_another_certificate_is_a_reason(gateway: Gateway, backup: Path, tmp_path: Path) -> None:
    certificates.ensure(tmp_path / "certificate.pem", backup / ETC / "tls" / "other.pem", "localhost")
    (backup / ETC / "tls" / "other.pem").rename(backup / ETC / "tls" / "key.pem")
    (found,) = gateway.reasons(backup)
    assert found.startswith(f"{ETC}/tls/certificate.pem: the certificate and the key can't be used together")


def test_a_variable_that_stops_the_api_is_a_reason(gateway: Gateway, backup: Path) -> None:
    (backup / ETC / "gateway-api.env").write_text("GATEWAY_API_WORKER=2\n")
    (found,) = gateway.reasons(backup)
    assert found.startswith(f"{ETC}/secret: GATEWAY_API_WORKER is not a known variable")


def test_a_configuration_that_is_not_json_is_a_reason(gateway: Gateway, backup: Path) -> None:
    for path in backup.joinpath(CONFIGURATION, "revisions").rglob("configuration.json"):
        path.write_text(path.read_text()[:-20])
    (found,) = gateway.reasons(backup)
    assert found.startswith(
        f"{CONFIGURATION}: cannot start the core daemon: cannot read the configuration in "
    )


def test_a_configuration_of_a_newer_version_is_a_reason(gateway: Gateway, backup: Path) -> None:
    change_running(backup, lambda document: document["system"].update(colour="blue"))
    (found,) = gateway.reasons(backup)
    assert found.startswith(f"{CONFIGURATION}: cannot start the core daemon: ")
    assert "system.colour" in found


def test_an_archived_configuration_that_cannot_be_read_is_a_reason(gateway: Gateway, backup: Path) -> None:
    archived = json.loads((backup / CONFIGURATION / "state.json").read_text())["archive"][0]
    (backup / CONFIGURATION / "revisions" / str(archived) / "configuration.json").write_text("{")
    (found,) = gateway.reasons(backup)
    assert found.startswith(f"{CONFIGURATION}: ")


def test_a_configuration_without_an_admin_is_a_reason(gateway: Gateway, backup: Path) -> None:
    change_running(backup, lambda document: document["api"]["users"].pop(0))
    (found,) = gateway.reasons(backup)
    assert "api.users: must hold an admin" in found


def test_a_cut_file_of_leases_is_a_reason(gateway: Gateway, backup: Path) -> None:
    (backup / LEASES).write_text("1795271513 02:00:00:00:00:01 100.64.0.16 * 01:02:00:00:0")
    assert gateway.reasons(backup) == [f"{LEASES}: the last line is cut: make the backup again"]


def test_all_reasons_are_told_at_once(gateway: Gateway, backup: Path) -> None:
    (backup / ETC / "secret").unlink()
    (backup / STATE / "history.sqlite").write_text("no database")
    (backup / CONFIGURATION / "state.json").write_text("{")
    assert [reason.partition(": ")[0] for reason in gateway.reasons(backup)] == [
        f"{ETC}/secret",
        f"{STATE}/history.sqlite",
        CONFIGURATION,
    ]
