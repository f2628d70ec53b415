"""Proof that a backup restores, for `gateway-api prove-backup`.

The backup is copied into a temporary folder, as a restore copies it to a gateway. There, the code that reads
a part on a gateway reads the part of the copy, and a core with simulated subscribers starts on the
configuration: every core reads its configuration in the same way, and this core does not touch the machine.
The API does not start, because it would deliver webhooks. Neither the backup nor the gateway of this machine
changes.
"""

import importlib.util
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext

import msgspec

from gateway_api.audit.log import AuditDatabase
from gateway_api.audit.record import Filter
from gateway_api.auth.ledger import open_ledger
from gateway_api.base.settings import USERS, Settings
from gateway_api.history.database import HistoryWriter
from gateway_contract.base import databases
from gateway_contract.base.certificate import load_pair, read_expiry
from gateway_contract.base.errors import CoreUnavailable, GatewayApiError
from gateway_contract.base.texts import format_utc
from gateway_contract.base.variables import CONFIGURATION, ETC, core_socket, value
from gateway_contract.core.configuration import ArchiveReply, GetConfiguration, ListArchive
from gateway_contract.core_client import CoreClient
from gateway_contract.varlink.client import Client, join_group_of
from gateway_contract.version import VERSION

#: The folders of a backup, each with its path on a gateway. A gateway with another core has no configuration.
_ETC = ETC.relative_to("/")
_STATE = Path("var/lib", USERS.name)
_CONFIGURATION = CONFIGURATION.relative_to("/")
_LEASES = Path("var/lib/gateway-dnsmasq/leases")
#: Time for the core to start on the copy, in seconds.
_START_SECONDS = 60.0
#: Timeout for a call of the core on the copy, in seconds.
_CALL_SECONDS = 60.0
_LOCK_SECONDS = 5.0
_AUDIT_BYTES = 1 << 30
_NOT_COMPARED = "no gateway here to compare with"
_EQUAL = "as on this gateway"


class NotRestorable(GatewayApiError):
    """Fault of a part of a backup. The text is the rule that the part breaks."""


@dataclass(frozen=True)
class _Table:
    """Table whose rows show how old a copy of its database is. Newer rows have higher numbers. `time` is the
    SQL expression of a row's time, in epoch seconds."""

    label: str
    path: Path
    name: str
    rows: str
    time: str
    #: Opens the database as its owner does.
    open: Callable[[Path], None]
    #: False if the API creates the database only for its first row.
    is_required: bool = True


def _open_trail(path: Path) -> None:
    trail = AuditDatabase(path.parent, path.stem, _AUDIT_BYTES)
    # Opens the database for writing, and adds nothing.
    trail.count([])
    with trail.read_newest(Filter(), None) as (_, records):
        for _ in records:
            pass


_TABLES = (
    *(
        _Table(
            f"audit, {name}", Path("audit", f"{name}.sqlite"), "record", "records", "at", _open_trail,
            is_required=False,
        )
        for name in ("known", "strangers")
    ),
    _Table(
        "history", Path("history.sqlite"), "session", "sessions", "coalesce(ended, started)",
        lambda path: HistoryWriter(path).close(),
    ),
    _Table(
        "logins", Path("logins.sqlite"), "revoked", "revoked tokens", "null",
        lambda path: open_ledger(path).close(),
    ),
)  # fmt: skip


@dataclass
class Proof:
    """Result of a proof: the `lines` of its report, and the `reasons` why the backup does not restore, each
    with the file and the rule."""

    lines: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def add(self, label: str, *texts: str) -> None:
        """Add a line about a part of the backup."""
        self.lines.append(f"{label:<18}{'; '.join(filter(None, texts))}")

    @contextmanager
    def part(self, path: Path) -> Iterator[None]:
        """Make an error of the with block a reason about the file or folder `path` of the backup."""
        try:
            yield
        except (GatewayApiError, ValueError, OSError, sqlite3.Error) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            # In one line: a text of SQLite has several.
            self.reasons.append(f"{path}: {' '.join(reason.split())}")


def prove(backup: Path, environment: Mapping[str, str]) -> Proof:
    """Restore the backup in the folder `backup` into a temporary folder, check each part, and compare it with
    the gateway of this machine. The variables of `environment` name the files of this gateway. Raises OSError
    if the backup cannot be copied."""
    proof = Proof()
    with tempfile.TemporaryDirectory(prefix="gateway-backup-") as folder:
        copy = Path(folder)
        _copy(backup, copy, proof)
        proof.add("backup", f"{backup}, restored into a temporary folder")
        proof.add("proof", f"at {format_utc(time.time())} by gateway-api {VERSION}")
        if (copy / _ETC).is_dir():
            _check_files(copy, proof)
        if (copy / _STATE).is_dir():
            _check_databases(copy, Path(value(environment, "GATEWAY_API_STATE")), proof)
        # After the check of the databases: the core replaces a damaged one by a new one.
        if (copy / _CONFIGURATION).is_dir():
            with proof.part(_CONFIGURATION):
                _check_configuration(copy, environment, proof)
        _check_leases(copy, proof)
        proof.reasons = [reason.replace(folder, str(backup)) for reason in proof.reasons]
        proof.lines = [line.replace(folder, str(backup)) for line in proof.lines]
    return proof


def _copy(backup: Path, copy: Path, proof: Proof) -> None:
    required = [_ETC, _STATE]
    if _has_core():
        required.append(_CONFIGURATION)
    for part in required:
        if not (backup / part).is_dir():
            proof.reasons.append(f"{part}: the folder is missing in {backup}")
    for source in (backup / _ETC, *sorted(backup.glob("var/lib/gateway-*"))):
        if source.is_dir():
            shutil.copytree(source, copy / source.relative_to(backup), symlinks=True)


def _has_core() -> bool:
    return importlib.util.find_spec("gateway_core") is not None


def _check_files(copy: Path, proof: Proof) -> None:
    """Check the environment file, the secret, the certificate and its key."""
    etc = copy / _ETC
    variables: dict[str, str] = {}
    with proof.part(_ETC / "gateway-api.env"):
        variables = _read_variables(etc / "gateway-api.env")
    with proof.part(_ETC / "secret"):
        Settings.from_environment({**variables, "CREDENTIALS_DIRECTORY": str(etc)})
        proof.add("secret", _compare_files(etc, Path("secret")))
    paths = [Path(value(variables, f"GATEWAY_API_{name}")) for name in ("CERTIFICATE", "KEY")]
    for path in paths:
        if not path.is_relative_to(ETC):
            proof.add("note", f"{path} is not in the backup: copy the file, too")
    certificate, key = (etc / path.relative_to(ETC) if path.is_relative_to(ETC) else path for path in paths)
    with proof.part(certificate.relative_to(copy) if certificate.is_relative_to(copy) else certificate):
        for path in (certificate, key):
            if not path.exists():
                raise NotRestorable(f"{path} is missing")
        load_pair(SSLContext(PROTOCOL_TLS_SERVER), certificate, key)
        end = read_expiry(certificate)
        validity = (
            "" if end is None else f"{'expired' if end <= time.time() else 'valid until'} {format_utc(end)}"
        )
        compared = (
            _compare_files(etc, certificate.relative_to(etc)) if certificate.is_relative_to(etc) else ""
        )
        proof.add("certificate, key", validity, compared)


def _read_variables(path: Path) -> dict[str, str]:
    """Return the variables of an environment file of systemd. Return none if there is no file."""
    if not path.exists():
        return {}
    words = shlex.split(path.read_text(), comments=True)
    return dict(word.split("=", 1) for word in words if "=" in word)


def _compare_files(etc: Path, name: Path) -> str:
    try:
        is_equal = (ETC / name).read_bytes() == (etc / name).read_bytes()
    except OSError:
        return _NOT_COMPARED
    return _EQUAL if is_equal else f"another one than {ETC / name} of this gateway"


def _check_configuration(copy: Path, environment: Mapping[str, str], proof: Proof) -> None:
    """Start a core on the copy of the configuration, and read the configuration and its archive. Raises
    NotRestorable if the core does not start, and GatewayApiError if the core cannot read a file."""
    if not _has_core():
        raise NotRestorable("only gateway-core can read the folder, and gateway-core is not installed here")
    log = copy / "core.log"
    with _run_core(copy / _CONFIGURATION, copy / "core.sock", log) as core:
        archive = core.ask(ListArchive())
        for revision in archive.revisions:
            core.get_archived_revision(revision.revision)
        sections, etag = core.get_sections(GetConfiguration())
    users = msgspec.json.decode(sections["api"])["users"]
    proof.add("configuration", _describe_commit(archive), _compare_configuration(etag, environment))
    proof.add("archive", f"{len(archive.revisions)} earlier configurations")
    proof.add("users", ", ".join(f"{user['username']} ({user['role']})" for user in users))
    for message in _read_messages(log, "warning", "error"):
        proof.add("note", message)


@contextmanager
def _run_core(configuration: Path, socket: Path, log: Path) -> Iterator[CoreClient]:
    """Run a core without subscribers on a configuration for a with block, and yield its client. Raises
    NotRestorable if the core does not start."""
    command = [sys.executable, "-P", "-m", "gateway_core", "lab", "--sessions", "0"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--socket", socket, "--configuration", configuration],
            # Without the variables of systemd, to which this core does not report.
            env={"PATH": os.defpath, "GATEWAY_API_LOG_FORMAT": "json"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        end = time.monotonic() + _START_SECONDS
        while not socket.exists():
            if process.poll() is not None:
                raise NotRestorable(
                    "; ".join(_read_messages(log, "critical")) or "the core ends at its start"
                )
            if time.monotonic() > end:
                raise NotRestorable(f"the core does not start within {_START_SECONDS:.0f} s")
            time.sleep(0.05)
        with closing(Client(socket, timeout=_CALL_SECONDS)) as client:
            yield CoreClient(client)
    finally:
        process.kill()
        process.wait()


def _read_messages(log: Path, *levels: str) -> list[str]:
    """Return the messages of a core's log that have one of the levels."""
    messages = []
    for line in log.read_bytes().splitlines():
        try:
            fields = msgspec.json.decode(line, type=dict[str, object])
        except msgspec.DecodeError:
            continue
        if fields.get("level") in levels:
            messages.append(str(fields.get("message")))
    return messages


def _describe_commit(archive: ArchiveReply) -> str:
    if archive.running is None:
        return ""
    return f"committed at {format_utc(archive.running.committed_at)} by {archive.running.author}"


def _compare_configuration(etag: str, environment: Mapping[str, str]) -> str:
    socket = core_socket(environment)
    if not socket.exists():
        return _NOT_COMPARED
    with closing(Client(socket)) as client:
        core = CoreClient(client)
        try:
            join_group_of(socket)
            # The key of the ETags is part of the configuration, so ETags of two cores are equal only for
            # equal values, secrets included.
            if core.get_sections(GetConfiguration())[1] == etag:
                return _EQUAL
            return f"this gateway runs another one, {_describe_commit(core.ask(ListArchive()))}"
        except (CoreUnavailable, OSError):
            return f"not compared: no reply at {socket}"


def _check_databases(copy: Path, state: Path, proof: Proof) -> None:
    """Check all databases of the copy, and compare those of the API with the databases in the folder `state`
    of this gateway."""
    for table in _TABLES:
        path, here = copy / _STATE / table.path, state / table.path
        with proof.part(_STATE / table.path):
            if path.exists():
                _check_integrity(path)
                table.open(path)
                proof.add(table.label, *_describe(table, path, here))
            elif table.is_required or here.exists():
                raise NotRestorable("the database is missing")
    known = {copy / _STATE / table.path for table in _TABLES}
    for path in sorted(set(copy.glob("var/lib/gateway-*/**/*.sqlite")) - known):
        with proof.part(path.relative_to(copy)):
            _check_integrity(path)


def _check_integrity(path: Path) -> None:
    with closing(databases.connect_with_query("mode=rw", path, _LOCK_SECONDS)) as connection:
        faults = [fault for (fault,) in connection.execute("PRAGMA integrity_check(1)")]
    if faults != ["ok"]:
        raise NotRestorable(f"SQLite finds a fault: {faults[0]}")


def _describe(table: _Table, path: Path, here: Path) -> tuple[str, str]:
    """Return the number and age of a table's rows, and the comparison with the database `here`."""
    query = f"SELECT count(*), max(number), max({table.time}) FROM {table.name}"  # noqa: S608 - constants
    with closing(databases.connect_with_query("mode=ro", path, _LOCK_SECONDS)) as connection:
        copied = connection.execute(query).fetchone()
    found = f"{copied[0]} {table.rows}{_describe_time(copied[2])}"
    if not here.exists():
        return found, _NOT_COMPARED
    # Without a write-ahead log no process uses the file, and SQLite would make files beside it.
    mode = "mode=ro" if here.with_name(f"{here.name}-wal").exists() else "mode=ro&immutable=1"
    try:
        with closing(databases.connect_with_query(mode, here, _LOCK_SECONDS)) as connection:
            present = connection.execute(query).fetchone()
            newer, _, at = connection.execute(f"{query} WHERE number > ?", (copied[1] or 0,)).fetchone()
    except sqlite3.Error as error:
        return found, f"not compared: {here}: {error}"
    if present == copied:
        return found, _EQUAL
    if newer:
        return found, f"this gateway has {newer} newer{_describe_time(at)}"
    return found, f"this gateway has {present[0]}{_describe_time(present[2])}"


def _describe_time(at: float | None) -> str:
    return "" if at is None else f", until {format_utc(at)}"


def _check_leases(copy: Path, proof: Proof) -> None:
    """Check the leases of DHCP subscribers, which only a gateway with dnsmasq has."""
    path = copy / _LEASES
    if not path.exists():
        return
    with proof.part(_LEASES):
        text = path.read_text()
        if text and not text.endswith("\n"):
            raise NotRestorable("the last line is cut: make the backup again")
        proof.add("leases", f"{sum(len(line.split()) == 5 for line in text.splitlines())} of DHCP")
