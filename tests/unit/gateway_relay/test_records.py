"""Commits, faults, health and audit records: which of them the relay publishes, and when."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway_client.errors import LoginRequired, Refused
from gateway_client.gateway import RemoteGateway
from gateway_relay.messages import Message, Reason, make_event
from gateway_relay.records import RecordPoller
from gateway_relay.spool import Spool

NOW = 1_795_271_513.0


class ShownGateway(RemoteGateway):
    """Gateway whose data the test sets: records of the real one need minutes to become final."""

    def __init__(self) -> None:
        self.role = "admin"
        self.commits: list[dict[str, Any]] = []
        self.refused_paths: set[str] = set()
        self.audit: list[dict[str, Any]] = []
        self.data: dict[str, Any] = {
            "/system/health/detail": {"state": "ok", "dependencies": [{"name": "core", "state": "ok"}]},
            "/system/faults": {"faults": [], "count": 0},
        }

    def get(self, path: str, **_: Any) -> Any:
        if path in self.refused_paths:
            raise Refused("the core does not have the method")
        if path == "/system/config/archive":
            return {"running": self.commits[-1], "revisions": self.commits[-2::-1]}
        if path == "/auth/token":
            return {"user": {"role": self.role}}
        return self.data[path]

    def list_records(self, path: str, key: str, query: dict[str, Any], limit: int | None = None) -> list[Any]:
        assert (path, key) == ("/audit", "records")
        if self.role != "admin":
            raise LoginRequired("the role is not sufficient")
        return [record for record in self.audit if record["at"] >= query.get("since", 0)][::-1]


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def make_commit(at: int, comment: str | None = None) -> dict[str, Any]:
    return {"committed_at": at, "author": "admin", "comment": comment}


def make_audit_record(number: int, label: str = "known", at: float = NOW, **more: Any) -> dict[str, Any]:
    return {"id": f"{label}-{number}", "at": at, "call_id": None, **more}


@pytest.fixture
def gateway() -> ShownGateway:
    made = ShownGateway()
    made.commits = [make_commit(int(NOW) - 9)]
    return made


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool.sqlite", 128 << 10)


@pytest.fixture
def poller(gateway: ShownGateway, spool: Spool, clock: Clock) -> RecordPoller:
    """A poller after its first contact."""
    made = RecordPoller(gateway, spool, clock)
    made.poll()
    spool.remove(spool.read(100))
    return made


def read_messages(poller: RecordPoller, spool: Spool) -> list[Message]:
    """Poll, and return the new messages."""
    poller.poll()
    entries = spool.read(100)
    spool.remove(entries)
    return [entry.content for entry in entries if isinstance(entry.content, Message)]


def poll(poller: RecordPoller, spool: Spool) -> list[str]:
    """Poll, and return the ids of the new messages; of an audit record, its own id."""
    return [
        f"audit-{json.loads(message.body)['id']}" if message.subject == "audit" else message.id
        for message in read_messages(poller, spool)
    ]


def test_the_first_contact_publishes_health_and_faults_and_no_earlier_record(
    gateway: ShownGateway, spool: Spool, clock: Clock
) -> None:
    gateway.audit = [make_audit_record(1)]
    RecordPoller(gateway, spool, clock).poll()
    subjects = [entry.content.subject for entry in spool.read(10) if isinstance(entry.content, Message)]
    assert subjects == ["health", "faults"]


def test_each_commit_is_published_once_in_order_also_two_of_one_second(
    gateway: ShownGateway, poller: RecordPoller, spool: Spool
) -> None:
    gateway.commits += [make_commit(100), make_commit(101, "a"), make_commit(101, "a")]
    assert poll(poller, spool) == ["commits-100-1", "commits-101-1", "commits-101-2"]
    assert poll(poller, spool) == []


def test_commits_that_leave_the_archive_are_not_published_again(
    gateway: ShownGateway, poller: RecordPoller, spool: Spool
) -> None:
    gateway.commits = [make_commit(100), make_commit(200)]
    poll(poller, spool)
    del gateway.commits[0]
    gateway.commits.append(make_commit(300))
    assert poll(poller, spool) == ["commits-300-1"]


def test_health_is_published_when_a_state_changes_and_not_when_a_text_does(
    gateway: ShownGateway, poller: RecordPoller, spool: Spool
) -> None:
    health = gateway.data["/system/health/detail"]
    health["dependencies"][0]["message"] = "another text"
    assert poll(poller, spool) == []
    health["dependencies"][0]["state"] = "failed"
    (id,) = poll(poller, spool)
    assert id == f"health-{round(NOW * 1000)}"


def test_a_state_that_returns_has_another_id(
    gateway: ShownGateway, poller: RecordPoller, spool: Spool, clock: Clock
) -> None:
    ids = []
    for faults in ([{"kind": "shaper"}], [], [{"kind": "shaper"}]):
        clock.now += 2
        gateway.data["/system/faults"] = {"faults": faults, "count": len(faults)}
        ids += poll(poller, spool)
    assert len(set(ids)) == 3


def test_an_audit_record_is_published_once(
    gateway: ShownGateway, poller: RecordPoller, spool: Spool, clock: Clock
) -> None:
    gateway.audit = [make_audit_record(number) for number in (1, 2)]
    assert poll(poller, spool) == ["audit-known-1", "audit-known-2"]
    clock.now += 1
    gateway.audit.append(make_audit_record(3, at=clock.now))
    assert poll(poller, spool) == ["audit-known-3"]
    assert poll(poller, spool) == []


@pytest.mark.parametrize(
    "record", [make_audit_record(1, call_id="a1"), make_audit_record(1, "strangers", count=7)]
)
def test_an_audit_record_that_can_change_waits_with_those_after_it_until_it_is_final(
    gateway: ShownGateway, poller: RecordPoller, spool: Spool, clock: Clock, record: dict[str, Any]
) -> None:
    label = record["id"].partition("-")[0]
    gateway.audit = [record, make_audit_record(2, label)]
    assert poll(poller, spool) == []
    clock.now += 121
    assert poll(poller, spool) == [f"audit-{label}-1", f"audit-{label}-2"]
    assert poll(poller, spool) == []


def test_a_record_that_waits_holds_no_record_of_the_other_file(
    gateway: ShownGateway, poller: RecordPoller, spool: Spool, clock: Clock
) -> None:
    gateway.audit = [make_audit_record(1, "strangers"), make_audit_record(1)]
    assert poll(poller, spool) == ["audit-known-1"]
    clock.now += 121
    assert poll(poller, spool) == ["audit-strangers-1"]


def test_the_records_of_a_new_audit_file_are_published_although_their_numbers_begin_again(
    gateway: ShownGateway, poller: RecordPoller, spool: Spool, clock: Clock
) -> None:
    gateway.audit = [make_audit_record(number) for number in range(1, 8)]
    before = read_messages(poller, spool)
    clock.now += 60
    gateway.audit = [make_audit_record(1, at=clock.now)]
    (message,) = read_messages(poller, spool)
    assert json.loads(message.body)["id"] == "known-1"
    # Otherwise JetStream would drop it.
    assert message.id not in {each.id for each in before}
    assert poll(poller, spool) == []


def test_the_audit_log_of_an_operator_is_not_read(
    gateway: ShownGateway, poller: RecordPoller, spool: Spool
) -> None:
    gateway.role = "operator"
    gateway.audit = [make_audit_record(1)]
    assert poll(poller, spool) == []
    gateway.role = "admin"
    assert poll(poller, spool) == ["audit-known-1"]


def test_records_wait_at_the_gateway_while_the_spool_is_half_full(
    gateway: ShownGateway, poller: RecordPoller, spool: Spool
) -> None:
    spool.add_snapshot(Reason.FIRST_CONTACT, "boot-0")
    number = 0
    while not spool.is_half_full():
        number += 1
        spool.add_event(make_event(f"boot-{number}", "session_up", {"id": number}))
    gateway.commits.append(make_commit(100))
    poller.poll()
    spool.remove(spool.read(10_000))
    assert poll(poller, spool) == ["commits-100-1"]


def test_a_poller_of_another_process_continues(
    gateway: ShownGateway, poller: RecordPoller, spool: Spool, clock: Clock
) -> None:
    gateway.audit = [make_audit_record(1)]
    gateway.commits.append(make_commit(100))
    poll(poller, spool)
    gateway.audit.append(make_audit_record(2))
    assert poll(RecordPoller(gateway, spool, clock), spool) == ["audit-known-2"]


def test_a_record_is_published_although_the_clock_was_set_back_an_hour(
    gateway: ShownGateway, poller: RecordPoller, spool: Spool, clock: Clock
) -> None:
    gateway.audit = [make_audit_record(1)]
    poll(poller, spool)
    clock.now -= 3600
    gateway.audit.append(make_audit_record(2, at=clock.now))
    assert poll(poller, spool) == ["audit-known-2"]


def test_a_record_behind_a_hole_is_looked_for_in_the_whole_log(
    gateway: ShownGateway, poller: RecordPoller, spool: Spool
) -> None:
    gateway.audit = [make_audit_record(1)]
    poll(poller, spool)
    # Written while the clock was wrong, and nobody polled.
    gateway.audit += [make_audit_record(2, at=NOW - 7200), make_audit_record(3)]
    assert poll(poller, spool) == ["audit-known-2", "audit-known-3"]


def test_records_that_the_gateway_no_longer_has_are_named_in_the_log(
    gateway: ShownGateway, poller: RecordPoller, spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    gateway.audit = [make_audit_record(1)]
    poll(poller, spool)
    gateway.audit = [make_audit_record(5)]
    assert poll(poller, spool) == ["audit-known-5"]
    assert "known-2 to known-4 are not published" in caplog.text


def test_a_core_without_an_archive_has_health_and_audit_records(
    gateway: ShownGateway, poller: RecordPoller, spool: Spool
) -> None:
    gateway.refused_paths = {"/system/config/archive"}
    gateway.data["/system/health/detail"]["state"] = "failed"
    gateway.audit = [make_audit_record(1)]
    assert [message.subject for message in read_messages(poller, spool)] == ["health", "audit"]
