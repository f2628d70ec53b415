"""The audit log as clients see it: a record of every change and every refusal, and how it is read."""

import json
import re
import secrets
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from gateway_api.audit.log import AuditDatabase
from gateway_api.web.records import AuditRecordList
from gateway_contract.base.logs import MASK
from tests.support.audit import RATES, AuditedGateway
from tests.support.documents import SECRET_HASH
from tests.support.records import assert_is
from tests.support.stack import running_stack, wait_for


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuditedGateway]:
    state = tmp_path_factory.mktemp("audit")
    with running_stack(state, sessions=100, GATEWAY_API_TOKEN_AUDIT=str(state / "beside")) as (api, process):
        yield AuditedGateway(api, state, process)


@pytest.fixture(scope="module")
def ids() -> Iterator[int]:
    """Sessions to spend."""
    return count(1)


def edit(gateway: AuditedGateway, path: str, value: Any) -> dict[str, Any]:
    return gateway.record("POST", "/system/config/set", json={"path": path, "value": value})


def known(gateway: AuditedGateway) -> list[dict[str, Any]]:
    """The records of users. Others are only counted, and may come some seconds later."""
    return [record for record in gateway.records() if record["role"]]


# What is kept


def test_a_change_says_who_did_what_from_where_and_what_came_of_it(
    gateway: AuditedGateway, ids: Iterator[int]
) -> None:
    id = next(ids)
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


def test_reading_is_no_change(gateway: AuditedGateway) -> None:
    before = known(gateway)
    for path in ("/subscribers", "/audit", "/subscribers/99999", "/nowhere"):
        gateway.ask("GET", path)
    gateway.ask("HEAD", "/subscribers")
    gateway.ask("DELETE", "/nowhere")
    assert known(gateway) == before


def test_disconnects_keep_their_sessions(gateway: AuditedGateway, ids: Iterator[int]) -> None:
    first, second = (gateway.api.get(f"/subscribers/{next(ids)}") for _ in range(2))
    record = gateway.record("DELETE", f"/subscribers/{first['id']}")
    assert record["message"] == f"Session {first['id']} disconnected ({first['username']})"
    assert record["before"] == {name: first[name] for name in record["before"]}
    assert {"id", "username", "ip_address", "access_interface"} <= set(record["before"])
    body = {"interface": second["access_interface"]}
    record = gateway.record("POST", "/subscribers/disconnect-by-interface", json={**body, "dry_run": True})
    assert record["before"] is None
    record = gateway.record("POST", "/subscribers/disconnect-by-interface", json=body)
    assert {name: second[name] for name in ("id", "username", "ip_address")} in record["before"]["sessions"]


def test_edits_keep_the_old_values_and_the_new(gateway: AuditedGateway) -> None:
    old = gateway.api.get("/system/config/candidate", "admin")
    record = edit(gateway, "system.hostname", "bng7")
    assert record["body"] == {"path": "system.hostname", "value": "bng7"}
    assert record["before"] == [{"path": "system.hostname", "value": old["system"]["hostname"]}]
    assert record["after"] == [record["body"]]
    operations = [
        {"op": "set", "path": "system.hostname", "value": "bng8"},
        {"op": "set", "path": "demux.idle_timeout", "value": 600},
    ]
    record = gateway.record("POST", "/system/config/edit", json={"operations": operations})
    assert [held["path"] for held in record["before"]] == ["system.hostname", "demux.idle_timeout"]
    assert [held["value"] for held in record["after"]] == ["bng8", 600]
    body = {"path": 'bgp.neighbors."10.255.0.6"'}
    record = gateway.record("POST", "/system/config/delete", json=body)
    assert record["before"][0]["value"]["remote_as"] == 64513
    assert record["after"] == [{**body, "value": None}]


def test_a_commit_keeps_what_it_changed_and_what_it_made(gateway: AuditedGateway) -> None:
    edit(gateway, "qos.default_up", "33mbit")
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
    ("method", "path", "body", "changes"),
    [
        ("POST", "/system/config/rollback", {"revision": 1}, 1),
        ("POST", "/system/config/discard", None, None),
        ("PUT", "/system/config/candidate", {"bgp": None}, None),
    ],
)
def test_whatever_replaces_the_candidate_keeps_its_changes(
    gateway: AuditedGateway, method: str, path: str, body: Any, changes: int | None
) -> None:
    edit(gateway, "qos.default_up", f"{secrets.randbelow(10**6) + 1} kbit")
    gateway.ask("POST", "/system/config/commit")
    edit(gateway, "system.hostname", "staged")
    record = gateway.record(method, path, json=body)
    assert '+ system.hostname = "staged"' in record["before"]["diff"]
    if changes:
        assert record["after"]["changes"] == changes
    gateway.ask("POST", "/system/config/discard")


def test_a_webhook_is_kept_without_its_secret(gateway: AuditedGateway) -> None:
    body = {"url": "http://127.0.0.1:9/hook", "events": ["session.up"]}
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    record = gateway.record("POST", "/webhooks", json={**body, "secret": secret})
    assert record["body"] == {**body, "secret": MASK}
    kept = record["after"]
    state = {"paused_until": None, "origin": "registered", "state": "well", "failing_since": None}
    assert kept == {"id": kept["id"], **body, **state}
    assert gateway.record("DELETE", f"/webhooks/{kept['id']}")["before"] == kept


def test_logins_and_logouts_are_kept_with_their_user(gateway: AuditedGateway) -> None:
    answer = gateway.api.log_in("operator", gateway.api.environment["OPERATOR_PASSWORD"])
    (record,) = gateway.records_of(answer)
    assert (record["user"], record["role"], record["result"]) == ("operator", "operator", "done")
    assert record["body"] == {"username": "operator", "password": MASK}
    token = answer.json()["access_token"]
    (record,) = gateway.records_of(gateway.ask("POST", "/auth/logout", token=token))
    assert (record["user"], record["result"]) == ("operator", "done")
    record = gateway.counted(gateway.ask("GET", "/qos", token=token))
    assert (record["user"], record["role"], record["status"]) == (None, None, 401)
    record = gateway.record("POST", "/auth/logout-everywhere", json={"username": "operator"})
    assert (record["user"], record["result"], record["body"]) == ("admin", "done", {"username": "operator"})
    gateway.api.forget_tokens()


def test_a_failed_login_names_only_a_user_of_the_gateway(gateway: AuditedGateway) -> None:
    record = gateway.counted(gateway.api.log_in("operator", "wrong"))
    assert (record["user"], record["role"], record["status"]) == ("operator", None, 401)
    assert record["body"] == {"username": "operator", "password": MASK}
    assert record["id"].startswith("strangers-")
    assert record["message"] == "Incorrect username or password"
    # Any other name may be a password.
    other = secrets.token_hex(8)
    record = gateway.counted(gateway.api.log_in(other, "wrong"))
    assert (record["user"], record["body"]) == (None, {"username": MASK, "password": MASK})
    answers = [gateway.api.log_in(other, "x") for _ in range(7)]
    record = gateway.counted(next(answer for answer in answers if answer.status_code == 429))
    assert (record["status"], record["result"]) == (429, "refused")
    assert other not in gateway.text()


@pytest.mark.parametrize(
    ("method", "path"), [("DELETE", "/subscribers/99"), ("GET", "/system/config/candidate")]
)
def test_a_request_that_an_operator_may_not_send_is_kept(
    gateway: AuditedGateway, method: str, path: str
) -> None:
    record = gateway.record(method, path, "operator")
    assert (record["user"], record["role"], record["status"]) == ("operator", "operator", 403)
    assert (record["result"], record["message"]) == ("refused", "Admin role required")


def test_requests_without_a_token_within_a_minute_are_one_record_with_their_number(
    gateway: AuditedGateway,
) -> None:
    def found() -> list[dict[str, Any]]:
        records = gateway.records(route="/api/v1/subscribers/{id}/rate", result="refused")
        records = [record for record in records if record["status"] == 401]
        return records if sum(record["count"] for record in records) == 5 else []

    began = time.time()
    answers = [gateway.ask("PUT", f"/subscribers/{number}/rate", None) for number in range(1, 6)]
    ended = time.time()
    records = wait_for("all of them", found)
    # The minute may have ended in between.
    assert len(records) <= 1 + ended // 60 - began // 60
    assert records[-1]["request_id"] in {answer.headers["X-Request-ID"] for answer in answers}
    assert (records[-1]["user"], records[-1]["status"], records[-1]["body"]) == (None, 401, None)
    assert began - 1 < records[-1]["at"] < (records[0]["last_at"] or records[0]["at"]) < ended + 1


@pytest.mark.parametrize(
    ("status", "method", "path", "more"),
    [
        (400, "PUT", "/subscribers/99/rate", {"json": {"rate_down": "fast", "rate_up": "1m"}}),
        (404, "PUT", "/subscribers/99999/rate", {"json": RATES}),
        (412, "POST", "/system/config/discard", {"headers": {"If-Match": '"old"'}}),
        (413, "POST", "/system/config/set", {"data": b"x" * 1_100_000}),
    ],
)
def test_a_refused_change_is_kept(
    gateway: AuditedGateway, status: int, method: str, path: str, more: dict[str, Any]
) -> None:
    record = gateway.record(method, path, **more)
    assert (record["status"], record["result"], record["user"]) == (status, "refused", "admin")
    assert record["message"]
    assert record["after"] is None


def test_a_secret_is_nowhere_in_the_files(gateway: AuditedGateway) -> None:
    mark = f"s3cret{secrets.token_hex(12)}"
    webhook = {"url": "http://127.0.0.1:9/", "events": ["session.up"]}
    bodies: list[tuple[str, Any]] = [
        ("/auth/login", {"username": "admin", "password": mark}),
        ("/auth/login", {"username": "admin", "passwrd": mark}),
        ("/auth/login", [mark]),
        ("/webhooks", {**webhook, "secrt": mark}),
        ("/webhooks", {**webhook, "url": f"http://admin:{mark}@127.0.0.1/"}),
        ("/system/config/rollback", {"revision": mark}),
        ("/system/config/set", {"path": "radius.secret", "value": mark}),
        ("/system/config/set", {"path": "radius", "value": json.dumps({"server": None, "secret": mark})}),
        ("/system/config/set", {"path": "qos.default_down", "value": mark}),
        ("/system/config/delete", {"path": f"api.users.admin.password_hash.{mark}"}),
        ("/system/config/edit", {"operations": [{"op": "set", "path": "radius.secret", "value": mark}]}),
    ]
    for path, body in bodies:
        gateway.ask("POST", path, json=body)
    gateway.ask("PUT", "/system/config/candidate", json={"radius": {"secret": mark}, "passwrd": mark})
    gateway.ask("POST", "/system/config/commit", None, headers={"Authorization": f"Bearer {mark}"})
    gateway.ask("POST", "/system/config/commit", params={"token": mark})
    gateway.ask("POST", "/system/config/discard")
    for secret in (mark, SECRET_HASH, gateway.api.token("admin")):
        assert secret not in gateway.text()
    assert mark not in gateway.log()


# Reading


@pytest.fixture(scope="module")
def some_records(gateway: AuditedGateway, ids: Iterator[int]) -> None:
    for role in ("admin", "operator", "admin"):
        gateway.ask("DELETE", f"/subscribers/{next(ids)}", role)
    gateway.ask("PUT", "/subscribers/99999/rate", json=RATES)


@pytest.mark.usefixtures("some_records")
def test_records_are_as_the_schema_says_and_the_newest_comes_first(gateway: AuditedGateway) -> None:
    data = gateway.api.get("/audit", "admin")
    assert_is(AuditRecordList, data)
    assert "next_cursor" not in data
    times = [record["at"] for record in known(gateway)]
    assert times == sorted(times, reverse=True)
    assert gateway.ask("GET", "/audit", "operator").status_code == 403


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("since", "yesterday"),
        ("until", "-1"),
        ("result", "ok"),
        ("limit", "0"),
        ("usr", "a"),
        ("cursor", "x"),
    ],
)
def test_a_wrong_parameter_is_400(gateway: AuditedGateway, name: str, value: str) -> None:
    answer = gateway.ask("GET", "/audit", params={"limit": "2", name: value})
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (400, name)


def test_the_records_of_the_token_profile_are_read_with_the_rest(
    gateway: AuditedGateway, ids: Iterator[int]
) -> None:
    first, second = (gateway.record("DELETE", f"/subscribers/{next(ids)}") for _ in range(2))
    beside = gateway.state / "beside"
    beside.mkdir()
    theirs = {**second, "at": (first["at"] + second["at"]) / 2, "user": "static token", "role": "token"}
    del theirs["id"]
    AuditDatabase(beside, "known", 1 << 20).append([json.dumps(theirs)])
    newest = gateway.records(limit=3, action="subscribers.disconnect")
    assert [record["user"] for record in newest] == ["admin", "static token", "admin"]
    assert newest[1]["id"] == "beside-known-1"
