"""Failed sign-ons on Linux: what pppd's log says, and what the journal has of it."""

import logging
from itertools import islice
from typing import Any

import msgspec
import pytest

from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.linux.daemons.pppd import LogLine, PppdFailures, parse_refusal
from gateway_core.gateways.linux.daemons.source import SourceFailure, SourceUnavailable
from gateway_core.gateways.linux.sessions.tracker import SignOnWatch
from gateway_core.sessions.journal import Journal
from tests.support.documents import valid_document

COMMAND = "/usr/sbin/pppd pty \"/usr/sbin/pppoe -n -I trunk0.7 -e 5:02:00:00:00:00:0A -S ''\" file /x"
REFUSED = "Peer ann failed CHAP authentication"
SILENCE = "rc_send_server: no reply from RADIUS server 192.0.2.1:1812"


@pytest.mark.parametrize(
    ("line", "refusal"),
    [
        (REFUSED, ("rejected", "ann")),
        ("PAP peer authentication failed for ann", ("rejected", "ann")),
        (r"Peer a\"n\\n failed CHAP authentication", ("rejected", r"a\"n\n".replace(r"\"", '"'))),
        ("Peer  failed CHAP authentication", ("rejected", None)),
        ("LCP: timeout sending Config-Requests", ("no_response", None)),
        (f"CHAP peer authentication succeeded for {REFUSED}", None),
        ("CHAP peer authentication succeeded for ann", None),
        ("Connection terminated.", None),
        (SILENCE, None),
    ],
)
def test_a_line_tells_of_a_failed_sign_on(line: str, refusal: tuple[str, str | None] | None) -> None:
    assert parse_refusal(line) == refusal


class Lines:
    """The log of pppd."""

    def __init__(self) -> None:
        self.new: list[LogLine] = []
        self.failure: SourceUnavailable | None = None

    def log(self, pid: int, *texts: str, command: str = COMMAND) -> None:
        self.new += [LogLine(12.5, pid, command, text) for text in texts]

    def read_lines(self, place: str) -> list[LogLine]:
        if self.failure is not None:
            raise self.failure
        found, self.new = self.new, []
        return found


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def failures(lines: Lines) -> PppdFailures:
    return PppdFailures("pppoe-server", lines, 0)  # type: ignore[arg-type]


def test_a_failure_has_the_place_of_its_pppd(lines: Lines, failures: PppdFailures) -> None:
    lines.log(7, "No CHAP secret found for authenticating ann", REFUSED, "Connection terminated.", "Exit.")
    assert failures.read() == [SourceFailure(12.5, "rejected", "ann", "02:00:00:00:00:0a", "trunk0.7")]
    assert failures.read() == []


def test_the_silence_of_radius_is_the_reason_of_its_pppd_alone(lines: Lines, failures: PppdFailures) -> None:
    lines.log(7, SILENCE)
    assert failures.read() == []
    lines.log(8, REFUSED)
    lines.log(7, REFUSED, REFUSED)
    assert [failure.reason for failure in failures.read()] == ["rejected", "radius_timeout", "rejected"]
    # Nor is it that of the next pppd with its id.
    lines.log(7, SILENCE, "Exit.", "pppd 2.4.9 started by root, uid 0", REFUSED)
    assert [failure.reason for failure in failures.read()] == ["rejected"]


def test_a_pppd_that_serves_nobody_has_no_failure(lines: Lines, failures: PppdFailures) -> None:
    lines.log(7, REFUSED, command="pppd /dev/ttyS0")
    lines.log(8, REFUSED, command="")
    assert failures.read() == []


def told(journal: Journal) -> list[dict[str, Any]]:
    (reply,) = islice(journal.follow_failed_sign_ons("life", 0), 1)
    assert reply is not None
    found: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(reply.failures))
    return found


def test_the_journal_has_the_vlan_of_a_failure(lines: Lines, failures: PppdFailures) -> None:
    journal = Journal("life")
    watch = SignOnWatch(RunningConfiguration.of(valid_document()).sections, failures, journal)
    lines.log(7, REFUSED)
    lines.log(8, REFUSED, command=COMMAND.replace("trunk0.7", "trunk0.100.7"))
    lines.log(9, "LCP: timeout sending Config-Requests", command=COMMAND.replace("trunk0.7", "eth9"))
    watch.read(failures)
    one, two, none = told(journal)
    assert one == {
        "sequence": 1,
        "at": 12,
        "type": "PPPoE",
        "username": "ann",
        "mac_address": "02:00:00:00:00:0a",
        "access_interface": "trunk0.7",
        "outer_vlan_id": None,
        "inner_vlan_id": 7,
        "source": "pppoe-server",
        "reason": "rejected",
    }
    assert (two["outer_vlan_id"], two["inner_vlan_id"]) == (100, 7)
    assert (none["username"], none["reason"], none["inner_vlan_id"]) == (None, "no_response", None)


def test_a_log_that_cannot_be_read_is_named_once_and_read_on(
    lines: Lines, failures: PppdFailures, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal("life")
    watch = SignOnWatch(RunningConfiguration.of(valid_document()).sections, failures, journal)
    lines.failure = SourceUnavailable("cannot read the journal: journalctl ended with status 1")
    with caplog.at_level(logging.WARNING):
        watch.read(failures)
        watch.read(failures)
    assert [record.message for record in caplog.records] == [
        "cannot read failed sign-ons: cannot read the journal: journalctl ended with status 1"
    ]
    lines.failure = None
    lines.log(7, REFUSED)
    watch.read(failures)
    assert len(told(journal)) == 1
