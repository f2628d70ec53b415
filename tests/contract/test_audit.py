"""The audit log of a running API: every change and every refusal, on disk before its answer goes out."""

import json
import os
import random
import re
import secrets
import signal
import socket
import sqlite3
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gevent
import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_api.audit.record import gap
from gateway_api.audit.trail import Filter, Trail
from gateway_api.base.logs import MASK
from gateway_api.base.settings import USERS, Settings
from gateway_api.web import app as application
from gateway_api.web.operation import Access, ApiOperation, Routes
from gateway_api.web.records import AuditRecordList
from gateway_api.web.services import UserProfileParts
from gateway_api.wire.core.configuration import AccessReply, ApiUser, Role
from tests.support.documents import SECRET_HASH
from tests.support.records import assert_is
from tests.support.stack import PATIENCE, Api, core_of, running_stack, wait_for

Process = subprocess.Popen[bytes]
RATES = {"rate_down": "50 mbit", "rate_up": "10 mbit"}


@dataclass
class Gateway:
    """A stack of its own."""

    api: Api
    state: Path
    process: Process
    #: Sessions to spend.
    ids: Iterator[int] = field(default_factory=lambda: iter(range(1, 1000)))

    def __post_init__(self) -> None:
        core = core_of(self.process)
        (self.arbiter,) = (pid for pid in children(self.process.pid) if pid != core)

    def ask(self, method: str, path: str, role: str | None = "admin", **more: Any) -> requests.Response:
        """With a request id of its own, that `record` looks for."""
        headers = {"X-Request-ID": secrets.token_hex(8), **more.pop("headers", {})}
        return self.api.send(method, path, role, headers=headers, **more)

    def records(self, **query: Any) -> list[dict[str, Any]]:
        return list(self.api.get("/audit", "admin", params=query)["records"])

    def records_of(self, answer: requests.Response) -> list[dict[str, Any]]:
        request_id = answer.headers["X-Request-ID"]
        return [record for record in self.records() if record["request_id"] == request_id]

    def counted(self, answer: requests.Response) -> dict[str, Any]:
        """The record that the request of a client without a token began, as soon as it is written."""
        (record,) = wait_for("the record", lambda: self.records_of(answer))
        return dict(record)

    def record(self, method: str, path: str, role: str | None = "admin", **more: Any) -> dict[str, Any]:
        """The one record of a request."""
        (record,) = self.records_of(self.ask(method, path, role, **more))
        return record

    def kept(self) -> list[str]:
        """All records as they are in the files."""
        return [record for path in (self.state / "audit").glob("*.sqlite") for record in kept_in(path)]

    def text(self) -> str:
        """All that is in the files."""
        files = (path.read_bytes().decode("latin-1") for path in (self.state / "audit").iterdir())
        return "\n".join([*self.kept(), *files])

    def log(self) -> str:
        return (self.state / "log").read_text()

    @property
    def workers(self) -> list[int]:
        return children(self.arbiter)


def kept_in(path: Path) -> list[str]:
    """The records in one database, the oldest first."""
    with closing(sqlite3.connect(path)) as connection:
        return [record for (record,) in connection.execute("SELECT record FROM record ORDER BY number")]


def children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in listed.split()]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    state = tmp_path_factory.mktemp("audit")
    with running_stack(state, sessions=300) as (api, process):
        yield Gateway(api, state, process)


# What is kept


def test_a_change_says_who_did_what_from_where_and_what_came_of_it(gateway: Gateway) -> None:
    id = next(gateway.ids)
    began = time.time()
    username = gateway.api.get(f"/subscribers/{id}")["username"]
    record = gateway.record("PUT", f"/subscribers/{id}/rate", json=RATES)
    assert began - 1 < record.pop("at") < time.time() + 1
    assert re.fullmatch(r"known-\d+", record.pop("id"))
    assert record.pop("before")["rate_down_bps"] == 100_000_000
    assert re.fullmatch(r"[0-9a-f]{16}", record.pop("request_id"))
    assert record == {
        "user": "admin",
        "role": "admin",
        "address": "127.0.0.1",
        "method": "PUT",
        "action": "subscribers.change_rate",
        "route": "/api/v1/subscribers/{id}/rate",
        "path": f"/api/v1/subscribers/{id}/rate",
        "status": 200,
        "result": "done",
        "message": f"Rate change requested for session {id} ({username}, 50 Mbit/s down, 10 Mbit/s up)",
        "body": RATES,
        "after": {"rate_down_bps": 50_000_000, "rate_up_bps": 10_000_000},
        "count": 1,
        "last_at": None,
        "call_id": None,
    }


def test_reading_is_no_change(gateway: Gateway) -> None:
    before = len(gateway.records())
    for path in ("/subscribers", "/system/config/candidate", "/audit", "/subscribers/99999", "/nowhere"):
        gateway.ask("GET", path)
    gateway.ask("HEAD", "/subscribers")
    gateway.ask("GET", "/health", None)
    assert len(gateway.records()) == before


def test_a_disconnect_keeps_who_it_was(gateway: Gateway) -> None:
    id = next(gateway.ids)
    session = gateway.api.get(f"/subscribers/{id}")
    record = gateway.record("DELETE", f"/subscribers/{id}")
    before = record["before"]
    assert record["message"] == f"Session {id} disconnected ({session['username']})"
    assert before == {name: session[name] for name in before}
    assert {"id", "username", "ip_address", "access_interface"} <= set(before)


def test_a_disconnect_of_an_interface_keeps_who_they_were(gateway: Gateway) -> None:
    id = next(gateway.ids)
    session = gateway.api.get(f"/subscribers/{id}")
    body = {"interface": session["access_interface"]}
    record = gateway.record("POST", "/subscribers/disconnect-by-interface", json={**body, "dry_run": True})
    assert record["before"] is None
    record = gateway.record("POST", "/subscribers/disconnect-by-interface", json=body)
    gone = {name: session[name] for name in ("id", "username", "ip_address")}
    assert gone in record["before"]["sessions"]


def test_an_edit_keeps_the_old_value_and_the_new(gateway: Gateway) -> None:
    old = gateway.api.get("/system/config/candidate", "admin")["system"]["hostname"]
    body = {"path": "system.hostname", "value": "bng7"}
    record = gateway.record("POST", "/system/config/set", json=body)
    assert record["body"] == body
    assert record["before"] == [{"path": "system.hostname", "value": old}]
    assert record["after"] == [body]


def test_an_edit_of_a_user_whose_name_is_a_number_keeps_the_values_of_that_user(gateway: Gateway) -> None:
    user = {"password_hash": SECRET_HASH, "role": "operator"}
    gateway.ask("POST", "/system/config/set", json={"path": 'api.users."0"', "value": user})
    for path, kept, old, new in (
        ('api.users."0".role', 'api.users."0".role', "operator", "admin"),
        ("api.users.2.role", 'api.users."0".role', "admin", "operator"),
    ):
        record = gateway.record("POST", "/system/config/set", json={"path": path, "value": new})
        assert record["before"] == [{"path": kept, "value": old}]
        assert record["after"] == [{"path": kept, "value": new}]
    gateway.ask("POST", "/system/config/discard")


def test_a_deletion_keeps_what_was_there(gateway: Gateway) -> None:
    path = 'bgp.neighbors."10.255.0.6".remote_as'
    record = gateway.record("POST", "/system/config/delete", json={"path": path.rpartition(".")[0]})
    assert record["before"][0]["value"]["remote_as"] == 64513
    assert record["after"] == [{"path": path.rpartition(".")[0], "value": None}]


def test_all_operations_of_an_edit_are_kept(gateway: Gateway) -> None:
    operations = [
        {"op": "set", "path": "system.hostname", "value": "bng8"},
        {"op": "set", "path": "demux.idle_timeout", "value": 600},
    ]
    record = gateway.record("POST", "/system/config/edit", json={"operations": operations})
    assert [held["path"] for held in record["before"]] == ["system.hostname", "demux.idle_timeout"]
    assert [held["value"] for held in record["after"]] == ["bng8", 600]


def test_a_commit_keeps_what_it_changed_and_what_it_made(gateway: Gateway) -> None:
    gateway.ask("POST", "/system/config/set", json={"path": "qos.default_up", "value": "33mbit"})
    compared = gateway.ask("GET", "/system/config/compare")
    answer = gateway.ask("POST", "/system/config/commit", json={"comment": "why not"})
    (record,) = gateway.records_of(answer)
    assert "+ qos.default_up = " in record["before"]["diff"]
    assert f'"{record["before"]["etag"]}"' == compared.headers["ETag"]
    assert f'"{record["after"]["etag"]}"' == answer.headers["ETag"]
    assert record["after"]["archived_revision"] == 1
    assert record["after"]["impact"]["sessions_dropped"] == 0
    assert record["body"] == {"comment": "why not"}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/system/config/rollback", {"revision": 1}),
        ("POST", "/system/config/discard", None),
        ("PUT", "/system/config/candidate", {"bgp": None}),
    ],
)
def test_what_drops_what_is_staged_keeps_it(gateway: Gateway, method: str, path: str, body: Any) -> None:
    gateway.ask("POST", "/system/config/set", json={"path": "qos.default_up", "value": "34mbit"})
    gateway.ask("POST", "/system/config/commit")
    gateway.ask("POST", "/system/config/set", json={"path": "system.hostname", "value": "staged"})
    record = gateway.record(method, path, json=body)
    assert '+ system.hostname = "staged"' in record["before"]["diff"]
    gateway.ask("POST", "/system/config/discard")


def test_a_rollback_is_kept_with_how_many_values_a_commit_would_change(gateway: Gateway) -> None:
    gateway.ask("POST", "/system/config/set", json={"path": "qos.default_up", "value": "35mbit"})
    gateway.ask("POST", "/system/config/commit")
    record = gateway.record("POST", "/system/config/rollback", json={"revision": 1})
    assert record["after"]["changes"] == 1
    gateway.ask("POST", "/system/config/discard")


def test_a_webhook_is_kept_without_its_secret(gateway: Gateway) -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = {"url": "http://127.0.0.1:9/hook", "events": ["session.up"], "secret": secret}
    record = gateway.record("POST", "/webhooks", json=body)
    assert record["body"] == {**body, "secret": MASK}
    kept = record["after"]
    state = {"paused_until": None, "origin": "registered", "state": "well", "failing_since": None}
    assert kept == {"id": kept["id"], "url": body["url"], "events": body["events"], **state}
    assert gateway.record("DELETE", f"/webhooks/{kept['id']}")["before"] == kept


def test_a_login_is_kept_with_who_it_is(gateway: Gateway) -> None:
    answer = gateway.api.log_in("operator", gateway.api.environment["OPERATOR_PASSWORD"])
    (record,) = gateway.records_of(answer)
    assert (record["user"], record["role"], record["result"]) == ("operator", "operator", "done")
    assert record["body"] == {"username": "operator", "password": MASK}


def test_a_logout_is_kept_and_its_token_is_nobody_s_afterwards(gateway: Gateway) -> None:
    token = gateway.api.new_token("operator")
    (record,) = gateway.records_of(gateway.ask("POST", "/auth/logout", token=token))
    assert (record["user"], record["result"]) == ("operator", "done")
    record = gateway.counted(gateway.ask("GET", "/qos", token=token))
    assert (record["user"], record["role"], record["status"]) == (None, None, 401)


def test_the_end_of_all_tokens_of_a_user_is_kept_with_the_user(gateway: Gateway) -> None:
    record = gateway.record("POST", "/auth/logout-everywhere", json={"username": "operator"})
    assert (record["user"], record["result"], record["body"]) == ("admin", "done", {"username": "operator"})
    gateway.api.forget_tokens()


def test_a_failed_login_of_a_user_names_the_user_and_no_role(gateway: Gateway) -> None:
    record = gateway.counted(gateway.api.log_in("operator", "wrong"))
    assert (record["user"], record["role"], record["status"]) == ("operator", None, 401)
    assert record["id"].startswith("strangers-")
    assert record["message"] == "Incorrect username or password"


def test_a_name_that_is_no_user_s_may_be_a_password_and_is_not_kept(gateway: Gateway) -> None:
    mark = secrets.token_hex(8)
    record = gateway.counted(gateway.api.log_in(mark, "wrong"))
    assert record["user"] is None
    assert mark not in gateway.text()


def test_a_throttled_login_is_kept(gateway: Gateway) -> None:
    mark = secrets.token_hex(8)
    answers = [gateway.api.log_in(mark, "x") for _ in range(7)]
    record = gateway.counted(next(answer for answer in answers if answer.status_code == 429))
    assert (record["status"], record["result"]) == (429, "refused")


def test_an_operator_that_may_not_is_kept(gateway: Gateway) -> None:
    record = gateway.record("DELETE", "/subscribers/1", "operator")
    assert (record["user"], record["role"], record["status"]) == ("operator", "operator", 403)
    assert record["message"] == "Admin role required"


def test_an_operator_that_may_not_read_is_kept(gateway: Gateway) -> None:
    assert gateway.record("GET", "/system/config/candidate", "operator")["status"] == 403


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_whoever_has_no_token_is_kept_among_strangers(gateway: Gateway, method: str) -> None:
    record = gateway.counted(gateway.ask(method, "/webhooks", None))
    assert (record["user"], record["status"], record["body"]) == (None, 401, None)
    assert record["id"].startswith("strangers-")


def test_wrong_passwords_of_a_user_within_a_minute_are_one_record_with_their_number_and_times(
    alone: Gateway,
) -> None:
    def guesses() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = alone.records(user="operator", result="refused")
        return found if sum(record["count"] for record in found) == 5 else []

    began = time.time()
    answers = [alone.api.log_in("operator", "wrong") for _ in range(5)]
    ended = time.time()
    assert [answer.status_code for answer in answers] == [401] * 5
    found = wait_for("all of them", guesses)
    # The minute may have ended in between.
    assert len(found) <= 1 + ended // 60 - began // 60
    assert found[-1]["request_id"] == answers[0].headers["X-Request-ID"]
    if len(found) == 1:
        assert began - 1 < found[0]["at"] < found[0]["last_at"] < ended + 1


@pytest.mark.parametrize(
    ("status", "method", "path", "more"),
    [
        (400, "PUT", "/subscribers/1/rate", {"json": {"rate_down": "fast", "rate_up": "1m"}}),
        (400, "POST", "/system/config/set", {"data": b"{"}),
        (404, "PUT", "/subscribers/99999/rate", {"json": RATES}),
        (404, "DELETE", "/webhooks/wh_none", {}),
        (409, "POST", "/system/config/confirm", {}),
        (412, "POST", "/system/config/discard", {"headers": {"If-Match": '"old"'}}),
        (413, "POST", "/system/config/set", {"data": b"x" * 1_100_000}),
    ],
)
def test_a_change_that_was_refused_is_kept(
    gateway: Gateway, status: int, method: str, path: str, more: dict[str, Any]
) -> None:
    record = gateway.record(method, path, **more)
    assert (record["status"], record["result"], record["user"]) == (status, "refused", "admin")
    assert record["message"]
    assert record["after"] is None


def test_a_change_without_the_core_is_kept_as_failed(gateway: Gateway) -> None:
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
    (record,) = wait_for("the record", lambda: gateway.records_of(answer))
    assert (record["result"], record["message"]) == ("failed", "Core daemon unreachable")


def test_a_long_body_is_cut_and_says_so(gateway: Gateway) -> None:
    operations = [{"op": "set", "path": "system.hostname", "value": f"bng{n}"} for n in range(900)]
    record = gateway.record("POST", "/system/config/edit", json={"operations": operations})
    assert record["body"]["cut"] is True
    assert record["body"]["characters"] > 40_000
    assert len(json.dumps(record)) < 20_000


def test_whatever_is_in_a_request_the_records_are_ascii(gateway: Gateway) -> None:
    gateway.ask(
        "POST", "/system/config/set", json={"path": "system.hostname", "value": "\u202e\x1b[31m\n\u2028"}
    )
    gateway.ask("POST", "/webhooks/%0a%1b%e2%80%a8%ff/test")
    for record in gateway.kept():
        assert all(32 <= ord(character) < 127 for character in record)
        json.loads(record)


# Secrets

marks = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=20, max_size=30)


@settings(max_examples=4)
@given(marks)
def test_a_secret_is_nowhere_in_the_files(gateway: Gateway, mark: str) -> None:
    mark = f"s3cret{mark}"
    webhook = {"url": "http://127.0.0.1:9/", "events": ["session.up"]}
    bodies: list[tuple[str, Any]] = [
        ("/auth/login", {"username": "admin", "password": mark}),
        ("/auth/login", {"username": mark, "password": mark}),
        ("/auth/login", {"username": "admin", "passwrd": mark}),
        ("/auth/login", {"username": "admin", "password": {"a": mark}}),
        ("/auth/login", [mark]),
        ("/auth/login", mark),
        ("/webhooks", {**webhook, "secret": mark}),
        ("/webhooks", {**webhook, "secrt": mark}),
        ("/webhooks", {**webhook, "url": f"http://admin:{mark}@127.0.0.1/"}),
        ("/system/config/rollback", {"revision": mark}),
        ("/subscribers/disconnect-by-interface", {"interface": "none", "dry_run": mark}),
        ("/system/config/commit", {"confirm_seconds": mark}),
    ]
    for path in (
        "radius.secret",
        'radius."secret"',
        "radius.secrets",
        "radius secret",
        f"radius.secret {mark}",
    ):
        bodies.append(("/system/config/set", {"path": path, "value": mark}))
        bodies.append(("/system/config/edit", {"operations": [{"op": "set", "path": path, "value": mark}]}))
    for path in (f"radius.secret.{mark}", f"api.users.admin.password_hash.{mark}"):
        bodies.append(("/system/config/delete", {"path": path}))
        bodies.append(("/system/config/edit", {"operations": [{"op": "delete", "path": path}]}))
    for value in (mark, [mark], {"secret": mark}, json.dumps({"server": None, "secret": mark})):
        bodies.append(("/system/config/set", {"path": "radius", "value": value}))
        bodies.append(("/system/config/set", {"path": "qos.default_down", "value": value}))
        gateway.ask("PUT", "/system/config/candidate", json={"radius": value, "passwrd": value})
    user = {"username": "carol", "password_hash": SECRET_HASH, "role": mark}
    bodies.append(("/system/config/set", {"path": "api.users.carol", "value": user}))
    for path, body in bodies:
        gateway.ask("POST", path, json=body)
        gateway.ask("POST", path, None, json=body, headers={"Authorization": f"Bearer {mark}"})
    gateway.ask("POST", "/system/config/commit", params={"token": mark})
    gateway.ask("POST", "/system/config/discard")
    assert mark not in gateway.text()
    assert SECRET_HASH not in gateway.text()
    assert mark not in gateway.log()


def test_a_token_is_nowhere_in_the_files(gateway: Gateway) -> None:
    for role in ("admin", "operator"):
        assert gateway.api.token(role) not in gateway.text()


# Reading


def test_an_operator_may_not_read_it(gateway: Gateway) -> None:
    assert gateway.ask("GET", "/audit", "operator").status_code == 403


def test_records_are_as_the_schema_says(gateway: Gateway) -> None:
    data = gateway.api.get("/audit", "admin")
    assert_is(AuditRecordList, data)
    assert "next_cursor" not in data


def test_the_newest_comes_first(gateway: Gateway) -> None:
    # What is only counted may come some seconds later.
    times = [record["at"] for record in gateway.records() if record["role"]]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("name", ["user", "action", "route", "result"])
def test_a_filter_leaves_what_is_equal(gateway: Gateway, name: str) -> None:
    whole = gateway.records()
    for value in {record[name] for record in whole if record[name]}:
        expected = [record["id"] for record in whole if record[name] == value]
        assert [record["id"] for record in gateway.records(**{name: value})] == expected


def test_a_time_leaves_what_is_from_then_on_or_before(gateway: Gateway) -> None:
    whole = gateway.records()
    middle = whole[len(whole) // 2]["at"]
    since = [record["id"] for record in gateway.records(since=middle)]
    until = [record["id"] for record in gateway.records(until=middle)]
    assert since + until == [record["id"] for record in whole]


def test_a_time_may_be_iso_8601(gateway: Gateway) -> None:
    assert gateway.records(since="2999-01-01T00:00:00Z") == []
    assert gateway.records(since="2000-01-01T00:00:00+02:00") == gateway.records()


def test_a_filter_that_is_none_is_400(gateway: Gateway) -> None:
    for name, value in (
        *(("since", value) for value in ("yesterday", "", "2026-03-01T00:00:00", "-1", "1e9", "nan", "inf")),
        *(("result", value) for value in ("ok", "")),
        *(("limit", value) for value in ("0", "10001", "x")),
        ("usr", "admin"),
    ):
        answer = gateway.ask("GET", "/audit", params={name: value})
        assert answer.status_code == 400
        assert answer.json()["errors"][0]["path"] == name


def test_what_the_alternative_profile_recorded_is_read_with_the_rest(tmp_path: Path) -> None:
    with running_stack(tmp_path, sessions=20, GATEWAY_API_TOKEN_AUDIT=str(tmp_path / "beside")) as (
        api,
        process,
    ):
        gateway = Gateway(api, tmp_path, process)
        first, second = (gateway.record("DELETE", f"/subscribers/{id}") for id in (1, 2))
        # Its files are as ours: what is written in between, is read in between.
        beside = tmp_path / "beside"
        beside.mkdir()
        theirs = {**second, "at": (first["at"] + second["at"]) / 2, "user": "static token", "role": "token"}
        del theirs["id"]
        Trail(beside, "known", 1 << 20).append([json.dumps(theirs)])
        newest = gateway.records(limit=3, action="subscribers.disconnect")
        assert [record["user"] for record in newest] == ["admin", "static token", "admin"]
        assert len({record["id"] for record in newest}) == 3


def test_a_bad_cursor_is_400(gateway: Gateway) -> None:
    answer = gateway.ask("GET", "/audit", params={"limit": "2", "cursor": "x"})
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (400, "cursor")


def test_the_pages_together_are_the_whole_though_more_comes_meanwhile(gateway: Gateway) -> None:
    whole = [record["id"] for record in gateway.records()]
    pages: list[str] = []
    query = {"limit": "7"}
    while True:
        data = gateway.api.get("/audit", "admin", params=query)
        pages += [record["id"] for record in data["records"]]
        if data["next_cursor"] is None:
            break
        query["cursor"] = data["next_cursor"]
        gateway.ask("DELETE", "/subscribers/99999")
        gateway.ask("GET", "/qos", None)
    assert pages == whole


# A disk that is slow, fails, or is full


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Gateway]:
    """A stack of its own with one worker."""
    with running_stack(tmp_path, sessions=20, WORKERS=1) as (api, process):
        api.token("admin")
        api.token("operator")
        yield Gateway(api, tmp_path, process)


#: What a disk does to a call, as strace has it.
SYNCS = "fsync,fdatasync"
FULL = ("-e", "inject=pwrite64:error=ENOSPC")


@contextmanager
def traced(pid: int, calls: str, *options: str) -> Iterator[None]:
    """strace on some calls of all threads of a process, in the block."""
    command = ["strace", "-f", "-o", os.devnull, "-e", f"trace={calls}", *options, "-p", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
        assert strace.stderr is not None
        line = strace.stderr.readline()
        assert "attached" in line, line
        try:
            yield
        finally:
            strace.terminate()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path", "role", "status"),
    [
        ("DELETE", "/subscribers/1", "admin", 200),
        ("DELETE", "/subscribers/2", "operator", 403),
    ],
)
def test_the_answer_waits_for_the_disk_and_others_do_not(
    alone: Gateway, method: str, path: str, role: str, status: int
) -> None:
    (worker,) = alone.workers
    with traced(worker, SYNCS, "-e", "inject=fsync,fdatasync:delay_exit=3000000"):
        took: list[float] = []
        done = threading.Event()

        def look() -> None:
            while not done.is_set():
                began = time.monotonic()
                alone_session.get(f"{alone.api.url}/api/v1/health", verify=verify, timeout=10)
                took.append(time.monotonic() - began)

        verify = alone.api.environment["GATEWAY_CA"]
        with requests.Session() as alone_session:
            looking = threading.Thread(target=look)
            looking.start()
            began = time.monotonic()
            answer = alone.ask(method, path, role)
            waited = time.monotonic() - began
            done.set()
            looking.join()
    assert answer.status_code == status
    assert waited >= 3
    # One alone would wait as long.
    assert len(took) > 10
    assert max(took) < 2.5


@contextmanager
def counted_syncs(pids: list[int], output: Path) -> Iterator[Callable[[], list[str]]]:
    """The files that these processes sync in the block, each as often as it is synced. Not the history of
    sessions: no request writes it."""
    command = ["strace", "-f", "-y", "-o", str(output), "-e", f"trace={SYNCS}", *(f"-p{pid}" for pid in pids)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
        assert strace.stderr is not None
        for _ in pids:
            line = strace.stderr.readline()
            assert "attached" in line, line
        try:
            yield lambda: [
                path
                for path in re.findall(r"sync\(\d+<([^>]+)>", output.read_text())
                if "history" not in path
            ]
        finally:
            strace.terminate()


def has_open(pid: int, name: str) -> bool:
    return any(link.resolve().name == name for link in Path(f"/proc/{pid}/fd").iterdir())


def test_a_flood_of_requests_without_a_valid_token_costs_at_most_one_sync_a_second(tmp_path: Path) -> None:
    with running_stack(tmp_path, sessions=20, WORKERS=2, GATEWAY_API_AUDIT_MEBIBYTES=1) as (api, process):
        gateway = Gateway(api, tmp_path, process)
        api.token("admin")
        statuses = []
        done = threading.Event()

        def knock(path: str) -> None:
            with requests.Session() as session:
                session.trust_env, session.verify = False, api.environment["GATEWAY_CA"]
                session.headers["Authorization"] = "Bearer x"
                while not done.is_set():
                    statuses.append(session.get(f"{api.url}/api/v1/{path}", timeout=30).status_code)

        def log_in() -> None:
            with requests.Session() as session:
                session.trust_env, session.verify = False, api.environment["GATEWAY_CA"]
                body = {"username": "admin", "password": "wrong"}
                while not done.is_set():
                    session.post(f"{api.url}/api/v1/auth/login", json=body, timeout=30)

        threads = [
            threading.Thread(target=knock, args=(path,), daemon=True)
            for path in ("qos", "subscribers/7", "audit")
        ]
        threads.append(threading.Thread(target=log_in, daemon=True))
        for thread in threads:
            thread.start()

        def files_are_open() -> bool:
            # On a connection of its own: all those of the flood may be one worker's.
            requests.get(f"{api.url}/api/v1/qos", verify=api.environment["GATEWAY_CA"], timeout=30)
            return all(has_open(pid, "strangers.sqlite-wal") for pid in gateway.workers)

        # New files are synced once.
        wait_for("the files", files_are_open)
        with counted_syncs(gateway.workers, tmp_path / "trace") as synced:
            statuses.clear()
            began = time.monotonic()
            wait_for("several seconds", lambda: time.monotonic() - began > 8 and len(statuses) >= 400)
            done.set()
            for thread in threads:
                thread.join()
            took = time.monotonic() - began
            files = synced()
            assert len(files) <= took, files
            # The count sees what a sync is: a change of a user waits for one.
            assert gateway.ask("PUT", "/subscribers/1/rate", json=RATES).ok
            wait_for("the sync of a change", lambda: any("known.sqlite" in path for path in synced()))
        assert set(statuses) == {401}


def rates_of(gateway: Gateway, id: int) -> Any:
    session = gateway.api.get(f"/subscribers/{id}")
    return session["rate_down_bps"], session["rate_up_bps"]


def test_on_a_full_disk_nothing_changes_and_everything_is_read(alone: Gateway) -> None:
    (worker,) = alone.workers
    with traced(worker, "pwrite64", "-P", str(alone.state / "audit" / "known.sqlite-wal"), *FULL):
        changes_on_a_full_disk(alone)
    assert alone.ask("PUT", "/subscribers/2/rate", json=RATES).ok
    newest, gap = alone.records(limit=2)
    assert newest["action"] == "subscribers.change_rate"
    assert gap["action"] == "audit.gap"
    assert alone.workers == [worker]


def changes_on_a_full_disk(alone: Gateway) -> None:
    # The first is done before anybody knows.
    assert alone.ask("PUT", "/subscribers/1/rate", json=RATES, headers={"X-Request-ID": "first"}).ok
    assert rates_of(alone, 1) == (50_000_000, 10_000_000)
    told = [line for line in alone.log().splitlines() if "level=critical" in line]
    assert len(told) == 1
    assert "request_id=first" in told[0]
    assert "database or disk is full" in told[0]
    assert "subscribers.change_rate" in told[0]
    for method, path, body in (
        ("PUT", "/subscribers/2/rate", RATES),
        ("DELETE", "/subscribers/2", None),
        ("POST", "/system/config/set", {"path": "system.hostname", "value": "x"}),
        ("POST", "/webhooks", {"url": "http://127.0.0.1:9/", "events": ["session.up"]}),
    ):
        answer = alone.ask(method, path, json=body)
        assert (answer.status_code, answer.json()["message"]) == (500, "Cannot write the audit log")
    assert rates_of(alone, 2) == (100_000_000, 20_000_000)
    assert alone.api.get("/webhooks")["count"] == 0
    assert alone.ask("GET", "/qos", None).status_code == 401
    assert alone.ask("DELETE", "/subscribers/2", "operator").status_code == 403
    assert alone.api.new_token("admin")


def test_a_sync_that_fails_is_told_of_and_the_worker_goes_on(alone: Gateway) -> None:
    (worker,) = alone.workers
    with traced(worker, SYNCS, "-e", "inject=fsync,fdatasync:error=EIO"):
        assert alone.ask("DELETE", "/subscribers/1").ok
        assert alone.ask("DELETE", "/subscribers/2").status_code == 500
    assert alone.ask("DELETE", "/subscribers/2").ok
    assert "level=critical" in alone.log()
    assert alone.workers == [worker]


def test_a_client_that_leaves_before_its_answer_is_recorded(alone: Gateway) -> None:
    context = ssl.create_default_context(cafile=alone.api.environment["GATEWAY_CA"])
    port = int(alone.api.url.rpartition(":")[2])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        head = "DELETE /api/v1/subscribers/3 HTTP/1.1\r\nHost: x\r\nX-Request-ID: gone\r\n"
        tls.sendall(f"{head}Authorization: Bearer {alone.api.token('admin')}\r\n\r\n".encode())
    wait_for("the record", lambda: [r for r in alone.records() if r["request_id"] == "gone"])


# Workers that are killed

ANSWERED = 300


@pytest.mark.slow
def test_every_change_that_was_answered_is_there_once_though_workers_are_killed(tmp_path: Path) -> None:
    with running_stack(tmp_path, sessions=50, WORKERS=3, GATEWAY_API_AUDIT_MEBIBYTES=8) as (api, process):
        answered, sent = hammer(Gateway(api, tmp_path, process))
        listed = rates_changed(api)
    assert len(answered) > ANSWERED
    assert len(listed) == len(set(listed))
    assert answered <= set(listed) <= sent


@pytest.mark.slow
def test_a_full_log_keeps_its_size_and_every_newest_change_though_workers_are_killed(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    folder.mkdir()
    full = Trail(folder, "known", 1 << 20)
    older = gap(1.0, "x" * 400, user="admin", role="admin").text()
    while first_number(folder) <= 1:
        full.append([older] * 50)
    sizes = []

    def measure() -> None:
        with suppress(FileNotFoundError):
            sizes.append(sum((folder / f"known.sqlite{suffix}").stat().st_size for suffix in ("", "-wal")))

    began_at = first_number(folder)
    with running_stack(tmp_path, sessions=50, WORKERS=3, GATEWAY_API_AUDIT_MEBIBYTES=1) as (api, process):
        answered, sent = hammer(Gateway(api, tmp_path, process), between=measure)
        listed = rates_changed(api)
    assert max(sizes) <= 1 << 20
    # Every change took the place of older records.
    assert len(answered) > ANSWERED
    assert first_number(folder) > began_at + len(answered) // 2
    assert len(listed) == len(set(listed))
    assert answered <= set(listed) <= sent
    with closing(sqlite3.connect(folder / "known.sqlite")) as connection:
        assert ("ok",) in connection.execute("PRAGMA integrity_check")
        # No hole: only the oldest make room.
        ((rows, first, last),) = connection.execute("SELECT count(*), min(number), max(number) FROM record")
        assert rows == last - first + 1


def first_number(folder: Path) -> int:
    """The number of the oldest record; 0 without one."""
    if not (folder / "known.sqlite").exists():
        return 0
    with closing(sqlite3.connect(folder / "known.sqlite")) as connection:
        return int(connection.execute("SELECT coalesce(min(number), 0) FROM record").fetchone()[0])


def rates_changed(api: Api) -> list[str]:
    """The request ids of all changes of rates in the audit log, the newest first."""
    listed = []
    query = {"limit": "100", "action": "subscribers.change_rate"}
    while True:
        data = api.get("/audit", "admin", params=query)
        listed += [record["request_id"] for record in data["records"]]
        if data["next_cursor"] is None:
            return listed
        query["cursor"] = data["next_cursor"]


def hammer(gateway: Gateway, between: Callable[[], None] = lambda: None) -> tuple[set[str], set[str]]:
    """Changes from several clients while workers are killed: the ids of those that were answered, and of all.
    So few that none is pushed out. Calls `between` after each kill."""
    answered: set[str] = set()
    sent: set[str] = set()
    deadline = time.monotonic() + 10 * PATIENCE
    token = gateway.api.token("admin")

    def change(client: int) -> None:
        with requests.Session() as session:
            session.trust_env, session.verify = False, gateway.api.environment["GATEWAY_CA"]
            for number in range(500):
                if len(answered) > ANSWERED or time.monotonic() > deadline:
                    return
                request_id = f"{client}-{number}"
                headers = {"Authorization": f"Bearer {token}", "X-Request-ID": request_id}
                sent.add(request_id)
                url = f"{gateway.api.url}/api/v1/subscribers/{client + 1}/rate"
                try:
                    if session.put(url, json=RATES, headers=headers, timeout=10).ok:
                        answered.add(request_id)
                except requests.RequestException:
                    time.sleep(0.05)

    threads = [threading.Thread(target=change, args=(client,)) for client in range(4)]
    for thread in threads:
        thread.start()
    choice = random.Random(1)
    while any(thread.is_alive() for thread in threads):
        time.sleep(choice.uniform(0.2, 0.6))
        os.kill(choice.choice(gateway.workers), signal.SIGKILL)
        between()
        wait_for("a worker in its place", lambda: len(gateway.workers) == 3)
    for thread in threads:
        thread.join()
    wait_for("an answer", lambda: is_served(gateway))
    return answered, sent


def is_served(gateway: Gateway) -> bool:
    try:
        return gateway.api.send("GET", "/health", None).ok
    except requests.ConnectionError:
        # The worker that took it was killed.
        return False


# A request that breaks off


def test_a_change_that_broke_off_is_kept_as_unanswered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = UserProfileParts.from_settings(
        Settings(tmp_path / "none", tmp_path, b"-" * 32, tmp_path, audit=tmp_path)
    )
    access = AccessReply(True, (ApiUser("admin", Role.ADMIN, "1"),))
    parts.daemon.check_access = lambda _: access  # type: ignore[method-assign]

    def stopped(id: int) -> None:
        raise gevent.GreenletExit

    row = ApiOperation("DELETE", "/<session:id>", stopped, Access.ADMIN, name="disconnect")
    routes = Routes("subscribers", "/api/v1/subscribers", row)
    monkeypatch.setitem(application.ROUTES, USERS, (routes,))
    app = application.create_app(parts)
    headers = {"Authorization": f"Bearer {parts.tokens.issue('admin', 'admin', '1', 60)}"}
    with pytest.raises(gevent.GreenletExit):
        app.test_client().delete("/api/v1/subscribers/1", headers=headers)
    (record,) = (json.loads(bytes(record)) for record in parts.audit.read(Filter(), None).records)
    assert (record["user"], record["action"]) == ("admin", "subscribers.disconnect")
    assert (record["status"], record["result"]) == (None, "unanswered")
