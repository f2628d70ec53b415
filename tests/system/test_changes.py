"""What the core keeps of the changes that the API didn't make."""

import json
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from gateway_api.core.records.changes import HELD, ChangeLog
from gateway_api.wire.varlink.client import Client
from tests.support.documents import SECRET_HASH
from tests.support.stack import running_core
from tests.unit.test_changes import note

FACTORY = Path(__file__).parents[2] / "etc" / "factory.json"
INTERFACE = "org.gatewayapi.core"


def test_as_many_changes_as_are_promised_outlive_the_process_however_large() -> None:
    # In memory: each of them waits for its disk.
    with TemporaryDirectory(dir="/dev/shm") as folder:
        log = ChangeLog(Path(folder), "log")
        text, line = "x" * 2046, "\U0001f600" * 256
        for _ in range(HELD + 1):
            log.add(note(before=text, after=text, author=line, comment=line))
        told = ChangeLog(Path(folder), "log").after("log", 0)
        assert told.changes[0].before == text
        assert (told.oldest, told.newest) == (2, HELD + 1)


# The core


@contextmanager
def core(folder: Path) -> Iterator[tuple[Client, Any]]:
    started = running_core(folder / "core", FACTORY, "--users", str(folder / "users"), "--sessions", "5")
    with started as process, closing(Client(folder / "core", timeout=10)) as client:
        yield client, process


def changes(client: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(bytes(client.call(f"{INTERFACE}.ListChanges", {})))["changes"]
    return found


def commit(client: Client, hostname: str, **more: Any) -> None:
    edit = {"action": "set", "path": "system.hostname", "value_json": f'"{hostname}"'}
    client.call(f"{INTERFACE}.EditCandidate", {"edits": [edit], "request_id": "of-the-api"})
    client.call(f"{INTERFACE}.CommitCandidate", {"author": "alice", **more})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    users = [{"username": "admin", "password_hash": SECRET_HASH, "role": "admin"}]
    (tmp_path / "users").write_text(json.dumps(users))
    return tmp_path


def test_a_change_with_a_request_s_id_is_the_api_s_and_not_noted(folder: Path) -> None:
    with core(folder) as (client, _):
        commit(client, "bng2", request_id="of-the-api")
        client.call(f"{INTERFACE}.DisconnectSession", {"id": 1, "request_id": "of-the-api"})
        assert changes(client) == []


def test_a_commit_that_was_not_noted_before_a_crash_is_noted_at_the_next_start(folder: Path) -> None:
    with core(folder) as (client, process):
        commit(client, "bng2")
        noted = changes(client)
        assert [change["action"] for change in noted] == ["configuration.commit"]
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    (folder / "core").unlink()
    # As if it had ended between the two.
    (file,) = (folder / "configuration" / "changes").iterdir()
    file.write_bytes(b"")
    for _ in range(2):
        with core(folder) as (client, _):
            assert changes(client) == noted
