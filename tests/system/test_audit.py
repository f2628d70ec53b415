"""The audit log beside the core: changes that bypass the API, and the API's own whose replies are lost. Each
is recorded once, whatever is killed or stopped meanwhile."""

import json
import os
import select
import shutil
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.audit import AuditedGateway, arbiter_of, kept_in
from tests.support.documents import valid_document
from tests.support.stack import (
    Api,
    call_core,
    children,
    core_of,
    running_api,
    running_core,
    running_stack,
    wait_for,
)

#: Gets the connection to the core, and the bytes of the call, which it may send or not.
Fault = Callable[[socket.socket, bytes], object]


class Relay:
    """Listens at `path`, and passes each connection on to the core at `core`."""

    def __init__(self, path: Path, core: Path) -> None:
        self._core = core
        self._faults: dict[bytes, Fault] = {}
        self._open: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_reply(self, method: str, fault: Fault) -> None:
        """Closes the connection of the next call of this method after `fault`, without a reply."""
        self._faults[f'.{method}"'.encode()] = fault

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for each in (self._listener, *self._open):
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        core = socket.socket(socket.AF_UNIX)
        # It stays open: a core that was stopped may read the call later.
        self._open.append(core)
        with suppress(OSError):
            core.connect(str(self._core))
            while self._pass_on(client, core):
                pass
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def _pass_on(self, client: socket.socket, core: socket.socket) -> bool:
        """Waits for data of either side. False at the end of a connection."""
        for source in select.select([client, core], [], [])[0]:
            data = source.recv(1 << 20)
            fault = next((self._faults.pop(name) for name in [*self._faults] if name in data), None)
            if fault is not None:
                fault(core, data)
            if fault is not None or not data:
                return False
            (core if source is client else client).sendall(data)
        return True


@contextmanager
def relayed(path: Path, core: Path) -> Iterator[Relay]:
    relay = Relay(path, core)
    try:
        yield relay
    finally:
        relay.close()


RATES = {"rate_down_bps": 5_000_000, "rate_up_bps": 1_000_000}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuditedGateway]:
    state = tmp_path_factory.mktemp("foreign")
    with running_stack(state, sessions=300) as (api, process):
        yield AuditedGateway(api, state, process)


def call(gateway: AuditedGateway, method: str, **parameters: Any) -> Any:
    """As somebody at the core's socket."""
    return call_core(Path(gateway.api.environment["CORE_SOCKET"]), method, **parameters)


def stage(gateway: AuditedGateway, path: str, value: str) -> None:
    call(gateway, "EditCandidate", edits=[{"action": "set", "path": path, "value_json": json.dumps(value)}])


def foreign(gateway: AuditedGateway, **query: Any) -> list[dict[str, Any]]:
    """The records of changes that bypassed the API, the newest first."""
    return [record for record in gateway.records(**query) if record["role"] == "system"]


def told(gateway: AuditedGateway, action: str) -> dict[str, Any]:
    """The one record of an action, once it is there."""
    (record,) = wait_for(action, lambda: foreign(gateway, action=action))
    return dict(record)


def test_changes_at_the_core_are_recorded_with_their_caller_and_without_secrets(
    gateway: AuditedGateway,
) -> None:
    session = gateway.api.get("/subscribers/7")
    began = time.time()
    call(gateway, "DisconnectSession", id=7)
    record = told(gateway, "subscribers.disconnect")
    assert (record["user"], record["result"], record["address"]) == ("root", "done", None)
    assert str(os.getpid()) in record["message"]
    assert began - 1 <= record["at"] <= time.time() + 1
    for name in ("id", "username", "ip_address", "access_interface", "rate_down_bps"):
        assert record["before"][name] == session[name]
    secret = "correct-horse-battery"
    stage(gateway, "radius.secret", secret)
    call(gateway, "DiscardCandidate")
    stage(gateway, "system.hostname", "console")
    call(gateway, "CommitCandidate", author="alice", comment="by hand")
    record = told(gateway, "configuration.commit")
    assert (record["user"], record["body"]) == ("root", {"author": "alice", "comment": "by hand"})
    assert '+ system.hostname = "console"' in record["before"]["diff"]
    # That of the API returns, as nobody confirms it.
    gateway.ask("POST", "/system/config/set", json={"path": "system.hostname", "value": "for-a-while"})
    assert gateway.ask("POST", "/system/config/commit", json={"confirm_seconds": 1}).ok
    record = told(gateway, "configuration.return")
    assert (record["user"], record["body"]["comment"]) == ("core", "not confirmed in time")
    assert gateway.ask("POST", "/system/config/discard").ok
    assert secret not in gateway.text()
    kept = gateway.state / "configuration" / "changes"
    assert [path for path in kept.iterdir() if secret.encode() in path.read_bytes()] == []


def test_only_changes_that_are_made_at_the_core_and_not_by_the_api_are_recorded_as_foreign(
    gateway: AuditedGateway,
) -> None:
    number = len(foreign(gateway))
    with pytest.raises(Exception, match="SessionNotFound"):
        call(gateway, "DisconnectSession", id=99_999)
    call(gateway, "DiscardCandidate")
    answers = [
        gateway.ask("PUT", "/subscribers/11/rate", json={"rate_down": "7 mbit", "rate_up": "1 mbit"}),
        gateway.ask("DELETE", "/subscribers/11"),
        gateway.ask("POST", "/subscribers/disconnect-by-interface", json={"interface": "trunk0.1000"}),
        gateway.ask("POST", "/system/config/set", json={"path": "system.hostname", "value": "by-api"}),
        gateway.ask("POST", "/system/config/commit", json={"confirm_seconds": 600}),
        gateway.ask("POST", "/system/config/confirm"),
        gateway.ask("POST", "/system/config/rollback", json={"revision": 1}),
        gateway.ask("POST", "/system/config/discard"),
    ]
    for answer in answers:
        assert answer.ok, answer.text
        assert len(gateway.records_of(answer)) == 1
    # A foreign one comes after them, or they were still under way.
    call(gateway, "SetSessionRate", id=12, **RATES)
    wait_for("a later record", lambda: len(foreign(gateway)) > number)
    assert len(foreign(gateway)) == number + 1


def test_a_change_that_a_hanging_core_has_got_is_kept_as_unanswered(gateway: AuditedGateway) -> None:
    core = core_of(gateway.process)
    gateway.api.token("admin")
    os.kill(core, signal.SIGSTOP)
    try:
        # A thread on another processor may still have replied.
        tasks = list(Path(f"/proc/{core}/task").iterdir())
        wait_for("it to stop", lambda: all(") T" in (task / "stat").read_text() for task in tasks))
        answer = gateway.ask("DELETE", "/subscribers/1")
    finally:
        os.kill(core, signal.SIGCONT)
    assert answer.status_code == 500
    record = gateway.counted(answer)
    # The core makes the change when it goes on.
    assert (record["result"], record["message"]) == ("unanswered", "Core daemon unreachable")


# A core and an API that are started and ended apart from each other


class Apart:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "core"

    @contextmanager
    def core(self) -> Iterator[int]:
        with running_core(self.socket, self.folder / "factory.json", "--sessions", "500") as process:
            yield process.pid

    @contextmanager
    def api(self) -> Iterator[int]:
        """The arbiter, which has two workers."""
        with running_api(self.socket, self.folder):
            yield arbiter_of(self.folder)

    def change(self, *ids: int) -> None:
        for id in ids:
            call_core(self.socket, "SetSessionRate", id=id, **RATES)

    def records(self) -> list[dict[str, Any]]:
        """Those in the file of the audit log, the oldest first."""
        try:
            path = self.folder / "alone" / "audit" / "known.sqlite"
            return [json.loads(record) for record in kept_in(path)] if path.exists() else []
        except sqlite3.OperationalError:
            # It is being made.
            return []

    def recorded(self) -> list[int]:
        """The numbers of foreign changes in the audit log, in the order of the records."""
        names = [record["request_id"] for record in self.records() if record["role"] == "system"]
        return [int(name.rpartition("-")[2]) for name in names]

    def results(self, action: str) -> list[str]:
        return [record["result"] for record in self.records() if record["action"] == action]

    def hostname(self) -> str:
        return str(call_core(self.socket, "GetConfiguration")["configuration"]["system"]["hostname"])


@pytest.fixture
def apart(tmp_path: Path, gateway: AuditedGateway) -> Apart:
    (tmp_path / "factory.json").write_text(json.dumps(valid_document()))
    for name in ("certificate.pem", "key.pem", "secret"):
        shutil.copy(gateway.state / name, tmp_path / name)
    return Apart(tmp_path)


def test_each_change_is_recorded_once_whichever_process_is_killed(apart: Apart) -> None:
    with apart.core():
        apart.change(1, 2, 3)
    random = Random(4711)
    for killed in ("workers", "arbiter", "core"):
        with apart.core() as core_process, apart.api() as arbiter:
            apart.change(*range(1, 6))
            time.sleep(random.uniform(0, 1))
            if killed == "core":
                os.kill(core_process, signal.SIGKILL)
                continue
            for pid in children(arbiter) if killed == "workers" else [arbiter]:
                os.kill(pid, signal.SIGKILL)
            apart.change(*range(6, 9))
    with apart.core(), apart.api():
        apart.change(9)
        # All that were answered; a core notes them in order, without holes.
        made = 3 + 3 * 5 + 2 * 3 + 1
        wait_for("the last record", lambda: len(apart.recorded()) >= made)
        assert apart.recorded() == list(range(1, made + 1))


# A change of the API whose reply is lost

COMMIT = "configuration.commit"
#: A client may send the same id with each request.
SAME = {"X-Request-ID": "the-same"}


@pytest.fixture
def relay(apart: Apart) -> Iterator[Relay]:
    with relayed(apart.folder / "relay", apart.socket) as made:
        yield made


@contextmanager
def api_behind(relay: Relay, apart: Apart, gateway: AuditedGateway) -> Iterator[Api]:
    """An API with a changed candidate, that reaches the core by the relay."""
    with running_api(apart.folder / "relay", apart.folder, workers=1) as url:
        made = Api({**gateway.api.environment, "GATEWAY_URL": url, "ADMIN_PASSWORD": "secret"})
        body = {"path": "system.hostname", "value": "after"}
        assert made.send("POST", "/system/config/set", json=body).ok
        yield made


def lose_commit(api: Api, apart: Apart) -> None:
    """Sends a commit whose reply the relay loses."""
    assert api.send("POST", "/system/config/commit", headers=SAME).status_code == 500
    assert apart.results(COMMIT) == ["unanswered"]


@pytest.mark.parametrize("is_made", [False, True])
def test_the_record_of_a_commit_says_what_a_killed_core_says_when_it_is_back(
    apart: Apart, relay: Relay, gateway: AuditedGateway, is_made: bool
) -> None:
    with ExitStack() as first:
        process = first.enter_context(apart.core())

        def kill(core: socket.socket, call: bytes) -> None:
            if is_made:
                core.sendall(call)
                # The reply.
                core.recv(1 << 20)
            os.kill(process, signal.SIGKILL)

        with api_behind(relay, apart, gateway) as api:
            relay.lose_reply("CommitCandidate", kill)
            lose_commit(api, apart)
            first.close()
            with apart.core():
                assert (apart.hostname() == "after") is is_made
                expected = "done" if is_made else "failed"
                wait_for("the outcome", lambda: apart.results(COMMIT) == [expected])
                (record,) = api.get("/audit", "admin", params={"action": COMMIT})["records"]
                assert (record["result"], record["status"]) == (expected, 500)
                message = f"The core's reply was lost: the change was {'' if is_made else 'not '}made"
                assert record["message"] == message
                # A later commit with the same X-Request-ID has a record of its own.
                assert api.send("POST", "/system/config/commit", headers=SAME).ok
                assert apart.results(COMMIT) == [expected, "done"]
