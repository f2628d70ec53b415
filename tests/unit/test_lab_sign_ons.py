"""The lab's subscribers who cannot sign on again."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from gateway_api.core.configuration.running import RunningConfiguration
from gateway_api.core.gateways.lab import population
from gateway_api.core.gateways.lab.gateway import LabGateway
from gateway_api.core.gateways.lab.population import LockedOut, Population
from gateway_api.core.sessions.journal import Journal
from tests.support.clocks import NOW, StillClock
from tests.support.documents import valid_document

START = float(NOW)


class Lab:
    def __init__(self, seed: int = 1, arrivals: float = 1.0) -> None:
        self.clock, self.journal = StillClock(START), Journal("life")
        sections = RunningConfiguration.of(valid_document()).sections
        self.gateway = LabGateway(sections, Population(100, arrivals, seed), self.journal, self.clock)

    def pass_time(self, seconds: float) -> "Lab":
        self.clock.now += seconds
        self.gateway.advance()
        return self

    def failures(self) -> list[dict[str, Any]]:
        return whole(self.journal.follow_failed_sign_ons, "failures")

    def events(self) -> list[dict[str, Any]]:
        return whole(self.journal.follow, "events")


def whole(follow: Callable[[str, int], Iterator[Any]], name: str) -> list[dict[str, Any]]:
    """All records that are held."""
    found: list[dict[str, Any]] = []
    for reply in follow("life", 0):
        found += msgspec.json.decode(msgspec.json.encode(reply))[name]
        if len(found) == reply.newest:
            break
    return found


def test_some_of_those_who_left_fail_to_sign_on_again_where_they_were() -> None:
    lab = Lab().pass_time(300)
    left = {event["username"]: event for event in lab.events() if event["event"] == "session.down"}
    failures = lab.failures()
    assert failures
    for failure in failures:
        before = left[failure["username"]]
        assert before["at"] <= failure["at"]
        for field in ("type", "mac_address", "access_interface", "outer_vlan_id", "inner_vlan_id"):
            assert failure[field] == before[field]
    assert 0 < len({failure["username"] for failure in failures}) < len(left) / 5


def test_there_are_at_most_so_many_routers_that_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(population, "MOST_LOCKED_OUT", 2)
    lab = Lab().pass_time(300)
    assert len({failure["username"] for failure in lab.failures()}) == 2


def test_a_router_tries_again_later_and_later_for_the_same_reason_and_then_no_more() -> None:
    lab, tried = Lab().pass_time(100), defaultdict(list)
    known = {failure["username"] for failure in lab.failures()}
    lab.pass_time(7200)
    for failure in lab.failures():
        tried[failure["username"]].append(failure)
    assert known
    for username in known:
        waits = [b["at"] - a["at"] for a, b in pairwise(tried[username])]
        assert len({failure["reason"] for failure in tried[username]}) == 1
        assert len(waits) == 19
        assert all(b >= a - 1 for a, b in pairwise(waits))


def test_failures_come_in_their_order_from_the_seed_however_time_passes() -> None:
    at_once, bit_by_bit = Lab().pass_time(120), Lab()
    for _ in range(120):
        bit_by_bit.pass_time(1)
    assert at_once.failures() == bit_by_bit.failures()
    assert [failure["at"] for failure in at_once.failures()] == sorted(
        failure["at"] for failure in at_once.failures()
    )
    assert at_once.failures() != Lab(seed=2).pass_time(120).failures()


def test_the_sessions_are_the_same_as_if_nobody_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    with_failures = Lab().pass_time(120).events()
    monkeypatch.setattr(LockedOut, "left", lambda *_: None)
    without = Lab().pass_time(120)
    assert without.failures() == []
    assert without.events() == with_failures


def test_nobody_fails_in_a_lab_without_arrivals() -> None:
    lab = Lab(arrivals=0.0)
    for session in lab.gateway.sessions.all():
        lab.gateway.disconnect(session.id)
    assert lab.pass_time(3600).failures() == []


def test_nobody_tries_again_on_a_trunk_that_is_gone() -> None:
    lab = Lab().pass_time(100)
    document = valid_document()
    document["demux"]["trunks"] = ["trunk0"]
    lab.gateway.configure(RunningConfiguration.of(document).sections)
    before = lab.failures()
    lab.pass_time(3600)
    later = lab.failures()[len(before) :]
    assert {failure["access_interface"].partition(".")[0] for failure in before} == {"trunk0", "trunk1"}
    assert {failure["access_interface"].partition(".")[0] for failure in later} == {"trunk0"}


def test_failures_are_dated_by_a_clock_that_was_set() -> None:
    lab = Lab()
    lab.clock.ahead = 86_400
    lab.pass_time(60)
    assert lab.failures()
    assert all(START + 86_400 <= failure["at"] <= START + 86_460 for failure in lab.failures())
