"""The audit log is forwarded: each record once and in order, whatever fails; and its formats."""

import json
import logging
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from gateway_api.audit.forward import Forwarder, Progress, read_progress
from gateway_api.audit.log import AuditDatabase
from gateway_api.audit.record import RequestCount
from gateway_api.audit.syslog import MAX_MESSAGE_BYTES, ForwardedRecord
from gateway_contract.base.receivers import check_audit_receiver
from tests.support.audit import a_record, texts

HERE, THERE = "tls://one.example:6514", "tls://other.example:6514"
NOW = 1_800_000_000.0
DAY = 86_400


class Away(ConnectionRefusedError):
    pass


class Receiver:
    """A receiver in this process. `fail` is called before it takes a batch, `then` after that."""

    def __init__(self) -> None:
        self.records: list[ForwardedRecord] = []
        self.batches: list[str] = []
        self.fail: Callable[[], None] = lambda: None
        self.then: Callable[[], None] = lambda: None

    def __call__(self, destination: str, records: Sequence[ForwardedRecord]) -> None:
        self.batches.append(destination)
        self.fail()
        self.records += records
        self.then()

    @property
    def ids(self) -> list[str]:
        return [record.id for record in self.records]

    def go_away(self) -> None:
        def fail() -> None:
            raise Away("nobody is there")

        self.fail = fail

    def come_back(self) -> None:
        self.fail = lambda: None


class Gateway:
    """The trails of two programs in a folder, and their forwarder, at a time that only `sleep` changes."""

    def __init__(self, folder: Path, size: int = 4 << 20) -> None:
        self.folder, self.now = folder, NOW
        self.known = AuditDatabase(folder, "known", size)
        self.strangers = AuditDatabase(folder, "strangers", size, synced=False)
        self.token = folder / "token"
        self.token.mkdir()
        self.beside = AuditDatabase(self.token, "known", size)
        self.path = folder / "forward.json"
        self.receiver = Receiver()
        self.restart()

    def restart(self) -> None:
        reader = AuditDatabase(self.token, "known")
        trails = {"gateway-api": [self.known, self.strangers], "gateway-api-token": [reader]}
        self.forwarder = Forwarder(lambda: trails, self.path, self.receiver, lambda: self.now)

    def append(self, *names: object, trail: AuditDatabase | None = None) -> None:
        (trail or self.known).append(texts(*names, at=self.now))

    def forward(self, destination: str | None = HERE) -> None:
        while self.forwarder.forward_batch(destination):
            pass

    def progress(self) -> Progress:
        progress = read_progress(self.path)
        assert progress is not None
        return progress


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    made = Gateway(tmp_path)
    made.forward()
    return made


def numbered(first: int, last: int) -> list[str]:
    return [f"known-{number}" for number in range(first, last + 1)]


# Once and in order


def test_each_record_is_forwarded_once_and_in_order(gateway: Gateway) -> None:
    for batch in range(3):
        gateway.append(*range(400))
        gateway.forward()
        gateway.forward()
        assert gateway.receiver.ids == numbered(1, 400 * (batch + 1))
    assert gateway.progress().forwarded == 1200


def test_the_records_have_the_ids_and_the_content_of_the_api(gateway: Gateway) -> None:
    gateway.append("first")
    gateway.append("second", trail=gateway.beside)
    gateway.forward()
    first, second = gateway.receiver.records
    assert json.loads(first.text) == {"id": "known-1", **json.loads(texts("first", at=NOW)[0])}
    assert (first.program, second.program) == ("gateway-api", "gateway-api-token")
    assert second.id == "beside-known-1"


def test_records_that_were_not_confirmed_are_sent_again(gateway: Gateway) -> None:
    gateway.append(*range(10))
    gateway.receiver.then, then = lambda: (_ for _ in ()).throw(Away()), gateway.receiver.then
    assert not gateway.forwarder.forward_batch(HERE)
    gateway.receiver.then = then
    gateway.append(10)
    gateway.forward()
    assert gateway.receiver.ids == [*numbered(1, 10), *numbered(1, 11)]
    assert gateway.progress().forwarded == 11


def test_a_restart_continues_after_the_last_confirmed_record(gateway: Gateway) -> None:
    gateway.append(*range(10))
    gateway.forward()
    gateway.append(*range(5))
    gateway.restart()
    gateway.forward()
    assert gateway.receiver.ids == numbered(1, 15)


def test_a_kill_before_the_progress_is_stored_repeats_only_the_last_batch(gateway: Gateway) -> None:
    gateway.append(*range(250 + 7))
    assert gateway.forwarder.forward_batch(HERE)
    stored = gateway.path.read_bytes()
    assert gateway.forwarder.forward_batch(HERE)
    gateway.path.write_bytes(stored)
    gateway.restart()
    gateway.forward()
    assert gateway.receiver.ids == [*numbered(1, 257), *numbered(251, 257)]


def test_while_the_progress_cannot_be_stored_no_record_is_sent_twice(gateway: Gateway) -> None:
    gateway.path.unlink()
    gateway.path.mkdir()
    for name in range(3):
        gateway.append(name)
        with pytest.raises(IsADirectoryError):
            gateway.forward()
    assert gateway.receiver.ids == numbered(1, 3)


def test_a_new_destination_gets_the_records_that_the_former_one_has_not_confirmed(gateway: Gateway) -> None:
    gateway.append("a")
    gateway.forward()
    gateway.receiver.go_away()
    gateway.append("b")
    gateway.forward()
    gateway.now += 60
    gateway.forward(THERE)
    assert gateway.progress().failing_since == gateway.now
    gateway.receiver.come_back()
    gateway.forward(THERE)
    assert (gateway.receiver.ids, gateway.receiver.batches[-1]) == (numbered(1, 2), THERE)
    assert gateway.progress().failing_since is None


# What is forwarded


def test_forwarding_begins_with_the_records_of_the_last_seconds(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    gateway.append(*range(5))
    gateway.now += 6
    gateway.append("the commit")
    gateway.now += 3
    gateway.forward()
    assert gateway.receiver.ids == ["known-6"]
    assert gateway.progress().lost == 0


def test_what_is_recorded_while_forwarding_is_off_is_not_forwarded_later(gateway: Gateway) -> None:
    gateway.append("a")
    gateway.forward()
    gateway.forward(None)
    assert not gateway.path.exists()
    gateway.append("b")
    gateway.now += DAY
    gateway.append("c")
    gateway.forward()
    assert gateway.receiver.ids == ["known-1", "known-3"]


def test_counted_requests_are_forwarded_when_their_number_is_final(gateway: Gateway) -> None:
    failed_login = a_record(role=None, at=gateway.now, result="refused")
    for _ in range(3):
        gateway.strangers.count([RequestCount.of_record(failed_login)])
        gateway.now += 20
        gateway.forward()
    assert gateway.receiver.ids == []
    gateway.now += 60
    gateway.forward()
    (record,) = gateway.receiver.records
    assert (record.id, json.loads(record.text)["count"]) == ("strangers-1", 3)


def test_a_change_whose_reply_was_lost_is_forwarded_with_its_outcome(gateway: Gateway) -> None:
    gateway.known.append(texts("lost", at=gateway.now, result="unanswered", call_id="call-1"))
    gateway.append("next")
    gateway.forward()
    assert gateway.receiver.ids == []
    (call,) = gateway.known.list_open_calls(9)
    gateway.known.close_calls({call: ("done", "the change was made")})
    gateway.forward()
    assert [json.loads(record.text)["result"] for record in gateway.receiver.records] == ["done", "done"]


def test_a_change_whose_outcome_stays_unknown_holds_others_up_for_two_minutes(gateway: Gateway) -> None:
    gateway.known.append(texts("lost", at=gateway.now, result="unanswered", call_id="call-1"))
    gateway.append("next")
    gateway.now += 119
    gateway.forward()
    assert gateway.receiver.ids == []
    gateway.now += 2
    gateway.forward()
    assert gateway.receiver.ids == numbered(1, 2)


@pytest.mark.parametrize("forwarded_before", [1, 40])
def test_a_new_database_in_place_of_a_damaged_or_removed_one_is_forwarded_from_its_beginning(
    gateway: Gateway, forwarded_before: int
) -> None:
    gateway.append(*range(forwarded_before))
    gateway.forward()
    for path in gateway.folder.glob("known.sqlite*"):
        path.rename(path.with_suffix(".damaged"))
    gateway.now += 5
    gateway.append("new", "newer")
    gateway.forward()
    assert gateway.receiver.ids[forwarded_before:] == numbered(1, 2)
    assert gateway.progress().lost == 0


# Where records go


@pytest.mark.parametrize(
    "destination", ["journal", "tls://logs.example", "tls://192.0.2.7:6514", "tls://[2001:db8::7]:6514"]
)
def test_a_destination_is_the_journal_or_a_host(destination: str) -> None:
    assert check_audit_receiver(destination) == destination


@pytest.mark.parametrize(
    ("destination", "rule"),
    [
        ("", "must be journal, or tls:// with a host and a port"),
        ("Journal", "must be journal, or tls:// with a host and a port"),
        ("https://logs.example", "must be journal, or tls:// with a host and a port"),
        ("tls://logs.example/path", "must be journal, or tls:// with a host and a port"),
        ("tls://", "must name a host"),
        ("tls://logs.example:0", "must have a port from 1 to 65535, or none"),
        ("tls://user@logs.example", "must not hold a user or a password"),
        ("tls://2001:db8::7", "must name a host, and at most one port"),
        ("tls://127.1.1.1.1", "must name a host"),
        ("tls://169.254.169.254", "must not be a link-local"),
        ("tls://logs example", "must be printable ASCII"),
    ],
)
def test_any_other_destination_is_refused_with_its_rule(destination: str, rule: str) -> None:
    with pytest.raises(ValueError, match=re.escape(rule)):
        check_audit_receiver(destination)


# While the receiver is away


def run_for(gateway: Gateway, seconds: float) -> list[float]:
    """Run the forwarder for a time of its clock, and return its waits."""
    waits: list[float] = []

    class Over(BaseException):
        pass

    def sleep(wait: float) -> None:
        waits.append(wait)
        gateway.now += wait
        if sum(waits) >= seconds:
            raise Over

    with pytest.raises(Over):
        gateway.forwarder.run(lambda: HERE, sleep)
    return waits


def test_after_an_outage_all_records_arrive_once_and_the_log_has_said_so_once(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    gateway.receiver.go_away()
    for part in range(4):
        gateway.append("a", "b")
        waits = run_for(gateway, 900)
        assert max(waits) == 60
        if part == 2:
            gateway.restart()
    gateway.receiver.come_back()
    waits = run_for(gateway, 90)
    assert waits[0] <= 60
    assert waits[-1] == 1
    assert gateway.receiver.ids == numbered(1, 8)
    said = [record.getMessage() for record in caplog.records]
    # Once, and once more after the restart.
    failure = f"cannot forward the audit log to {HERE}, new records wait in the audit log: nobody is there"
    assert said == [failure, failure, f"the audit log is forwarded to {HERE} again"]


def test_the_progress_says_since_when_and_why_forwarding_fails(gateway: Gateway) -> None:
    gateway.receiver.go_away()
    gateway.append("a")
    began = gateway.now
    run_for(gateway, 600)
    assert (gateway.progress().failing_since, gateway.progress().failure) == (began, "nobody is there")
    gateway.receiver.come_back()
    run_for(gateway, 60)
    assert (gateway.progress().failing_since, gateway.progress().failure) == (None, "")


def test_records_that_the_log_drops_are_counted_and_reported_in_their_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = Gateway(tmp_path, size=1 << 20)
    gateway.append("kept")
    gateway.forward()
    gateway.receiver.go_away()
    for _ in range(10):
        gateway.append(*range(300))
        gateway.forward()
    gateway.restart()
    gateway.receiver.come_back()
    gateway.forward()
    kept, gap, *rest = gateway.receiver.records
    first = int(rest[0].id.removeprefix("known-"))
    lost_count = first - 2
    assert lost_count > 500
    assert [record.id for record in rest] == numbered(first, 3001)
    assert (kept.id, gap.id) == ("known-1", f"known-gap-{first - 1}")
    message = f"{lost_count} records up to known-{first - 1} were dropped before they could be forwarded"
    assert json.loads(gap.text)["message"] == message
    assert (gateway.progress().lost, gateway.progress().forwarded) == (lost_count, 1 + len(rest))
    said = [record.getMessage() for record in caplog.records]
    assert (
        said.count(f"the audit log reached its size limit, and drops records before they reach {HERE}") == 1
    )
    assert said[-1] == f"{lost_count} records of the audit log did not reach {HERE}"
    gateway.append("after")
    gateway.forward()
    assert gateway.receiver.ids[-2:] == numbered(3001, 3002)


def test_a_trail_that_cannot_be_read_is_read_later(gateway: Gateway) -> None:
    gateway.append("a")
    gateway.known._path.rename(gateway.folder / "elsewhere")
    gateway.known._path.mkdir()
    with pytest.raises(sqlite3.OperationalError):
        gateway.forward()
    gateway.known._path.rmdir()
    (gateway.folder / "elsewhere").rename(gateway.known._path)
    gateway.forward()
    assert gateway.receiver.ids == ["known-1"]


def test_an_unreadable_progress_begins_with_new_records(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    gateway.append("a")
    gateway.forward()
    gateway.path.write_bytes(b"{")
    gateway.now += DAY
    gateway.append("b")
    gateway.restart()
    gateway.forward()
    assert gateway.receiver.ids == numbered(1, 2)
    assert "cannot read the progress" in caplog.text


def test_no_database_is_open_between_two_reads(gateway: Gateway) -> None:
    gateway.append("a")
    with closing(sqlite3.connect(gateway.known._path)):
        pass
    gateway.forward()
    opened = {path.resolve() for path in Path("/proc/self/fd").iterdir()}
    # The writers of this test keep theirs.
    assert (gateway.token / "known.sqlite").resolve() not in opened


# Formats

#: RFC 5424 section 6, with an empty PROCID and no structured data.
MESSAGE = re.compile(
    rb"<(\d{1,3})>1 (\S+) ([!-~]{1,255}) ([!-~]{1,48}) - ([!-~]{1,32}) - (\{[ -~]*\})", re.DOTALL
)


def forwarded(**values: object) -> ForwardedRecord:
    return ForwardedRecord.of("gateway-api", "known-7", a_record(**values).text())


def parse(message: bytes) -> tuple[str, ...]:
    match = MESSAGE.fullmatch(message)
    assert match is not None, message
    return tuple(part.decode() for part in match.groups())


def test_a_message_has_the_header_of_rfc_5424() -> None:
    message = forwarded(at=1772366400.123).format_message("bng1.example")
    *header, text = parse(message)
    expected = ["109", "2026-03-01T12:00:00.123Z", "bng1.example", "gateway-api", "subscribers.change_rate"]
    assert header == expected
    assert json.loads(text)["id"] == "known-7"


@pytest.mark.parametrize(
    ("result", "severity"), [("done", 5), ("refused", 4), ("unanswered", 4), ("failed", 3)]
)
def test_the_priority_is_audit_with_a_severity_of_the_result(result: str, severity: int) -> None:
    assert parse(forwarded(result=result).format_message("h"))[0] == str(13 * 8 + severity)


@pytest.mark.parametrize(
    ("hostname", "action", "expected"),
    [
        ("", "", ("-", "-")),
        ("bng 1\n", "a\x00b]", ("bng_1_", "a_b]")),
        ("b\N{LATIN SMALL LETTER U WITH DIAERESIS}", "x" * 40, ("b_", "x" * 32)),
        ("h" * 300, "configuration.edit", ("h" * 255, "configuration.edit")),
    ],
)
def test_header_fields_are_printable_ascii_of_limited_length(
    hostname: str, action: str, expected: tuple[str, str]
) -> None:
    _, _, host, _, message_id, _ = parse(forwarded(action=action).format_message(hostname))
    assert (host, message_id) == expected


@pytest.mark.parametrize("text", ['"quoted" \\ ]', "line\nfeed\r\x00\x1b[31m\x7f", "M\xfcnchen \U0001f600"])
def test_any_text_arrives_as_ascii_and_unchanged(text: str) -> None:
    message = forwarded(message=text, user=text).format_message("h")
    record = json.loads(parse(message)[-1])
    assert (record["message"], record["user"]) == (text, text)
    # RFC 5424 section 6.4: only text that is declared as UTF-8 begins with it.
    assert b"\xef\xbb\xbf" not in message


def test_a_time_that_rfc_5424_cannot_express_is_unknown() -> None:
    assert parse(forwarded(at=1e300).format_message("h"))[1] == "-"


@pytest.mark.parametrize("character", ["x", '"', "\x00", "\U0001f600"])
@pytest.mark.parametrize("lengths", [(0, 4000), (4000, 4000), (60_000, 400)])
def test_a_long_record_is_cut_to_what_each_receiver_accepts(character: str, lengths: tuple[int, int]) -> None:
    text, value = (character * length for length in lengths)
    record = forwarded(
        **dict.fromkeys(("message", "user", "path", "request_id", "route", "address", "method"), text),
        **{name: {"value": value} for name in ("body", "before", "after")},
    )
    message = record.format_message("h" * 300)
    assert len(message) <= MAX_MESSAGE_BYTES
    assert json.loads(parse(message)[-1])["id"] == "known-7"


def test_only_a_record_that_is_too_long_is_cut() -> None:
    lengths = range(7000, 8300, 20)
    records = [forwarded(message="x" * length) for length in lengths]
    messages = [record.format_message("h" * 255) for record in records]
    assert max(map(len, messages)) <= MAX_MESSAGE_BYTES
    whole = [len(json.loads(record.text)["message"]) for record in records]
    assert whole[0] == 7000
    assert whole[-1] == 2000
    assert max(map(len, messages)) > MAX_MESSAGE_BYTES - 255


def test_a_cut_value_says_how_long_it_was() -> None:
    value = {"value": "x" * 4000}
    record = json.loads(forwarded(body=value, before=value, after=value).text)
    length = len(json.dumps(value, separators=(",", ":")))
    assert record["body"].keys() == {"cut", "characters", "beginning"}
    assert (record["body"]["cut"], record["body"]["characters"]) == (True, length)


def test_an_entry_of_the_journal_has_one_line_for_each_field() -> None:
    fields = dict(
        line.split("=", 1) for line in forwarded(message="a\nb").format_entry().decode().splitlines()
    )
    assert json.loads(fields.pop("MESSAGE"))["message"] == "a\nb"
    assert fields == {
        "PRIORITY": "5",
        "SYSLOG_FACILITY": "13",
        "SYSLOG_IDENTIFIER": "gateway-api-audit",
        "GATEWAY_AUDIT_ID": "known-7",
    }
