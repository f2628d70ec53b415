"""What the core keeps of the changes that the API didn't make."""

import json
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway_contract.varlink.client import Client
from tests.support.documents import SECRET_HASH
from tests.support.stack import running_core

FACTORY = Path(__file__).parents[2] / "etc" / "factory.json"
INTERFACE = "org.gatewayapi.core"


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
