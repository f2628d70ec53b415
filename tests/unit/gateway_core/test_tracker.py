"""The sessions of the Linux gateway: what the table, the journal and the disk have when sources change."""

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway_contract.base.errors import StepFailed, StillConnected
from gateway_contract.core.sessions import SessionFilter, SessionType
from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.linux.daemons.source import SourceRefused, SourceUnavailable, Terminations
from gateway_core.gateways.linux.sessions import tracker
from gateway_core.gateways.linux.sessions.provision import DeviceCounters, Provision
from gateway_core.gateways.linux.sessions.session import NO_COUNTERS, LinuxSession
from gateway_core.gateways.linux.sessions.session_store import STORE_STEP
from gateway_core.gateways.linux.sessions.tracker import HookSocket
from gateway_core.gateways.linux.threads import ThreadGroup
from gateway_core.records.clock import Clock, Expiry
from gateway_core.sessions.session import Counters
from tests.support.clocks import NOW
from tests.support.core_clock import StillClock
from tests.support.documents import valid_document
from tests.support.links import KnownLinks
from tests.support.sources import CGNAT, TERMS, ListedSource, Lives, listed
from tests.support.stack import PATIENCE, wait_for
from tests.support.workspaces import many_descriptors, no_file_longer_than


@pytest.fixture
def source() -> ListedSource:
    return ListedSource()


@pytest.fixture
def lives(tmp_path: Path, source: ListedSource) -> Iterator[Lives]:
    made, threads = Lives(tmp_path / "state", source), threading.active_count()
    yield made
    # A disconnect may go on: it would open the store again.
    wait_for("the end of its threads", lambda: threading.active_count() <= threads)
    made.kill()


def told(lives: Lives) -> list[tuple[str, int]]:
    return [(event.event.removeprefix("session."), event.id) for event in lives.events]


def only(lives: Lives) -> LinuxSession:
    (session,) = lives.tracker.sessions.all()
    return session


def states(lives: Lives) -> list[str]:
    return [session.summary.state for session in lives.tracker.sessions.all()]


# Reboots


def test_after_a_reboot_each_session_has_ended_once_and_one_that_is_listed_is_another(
    lives: Lives, source: ListedSource
) -> None:
    source.up(listed("a"), listed("b"))
    lives.poll()
    lives.clock.now += 100
    lives.clock.reboot()
    source.down("a")
    lives.restart()
    # Whether its source replies or not.
    assert told(lives) == [("up", 1), ("up", 2), ("down", 1), ("down", 2)]
    assert list(lives.tracker.sessions.all()) == []
    lives.poll()
    lives.restart()
    lives.poll()
    assert told(lives)[4:] == [("up", 3)]
    downs = lives.events[2:4]
    assert [event.reason for event in downs] == ["nas_reboot"] * 2
    # It was up until the reboot, and not until the core started.
    assert {(event.at, event.duration_seconds) for event in downs} == {(lives.clock.boot_time(), 161)}
    assert only(lives).key.name == "b"


def test_a_start_that_no_event_told_before_a_reboot_is_told_with_its_end(
    lives: Lives, source: ListedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.up(listed("a"))
    monkeypatch.setattr(lives.store, "write", lambda **_: None)
    lives.poll()
    lives.clock.reboot()
    lives.restart()
    assert told(lives) == [("up", 1), ("up", 1), ("down", 1)]


def test_the_sessions_of_a_version_that_stored_no_boot_last_until_the_next_one(
    lives: Lives, source: ListedSource
) -> None:
    source.up(listed("a"))
    lives.poll()
    key, row = next(iter(lives.store.read_all().items()))
    former = row.record.replace(b'"boot_id":"boot 1"', b'"boot_id":null')
    assert former != row.record
    lives.store.write(records={key: former})
    lives.restart()
    lives.poll()
    assert told(lives) == [("up", 1)]
    lives.clock.reboot()
    lives.restart()
    assert told(lives) == [("up", 1), ("down", 1)]


# Starts and ends


def test_a_session_is_up_once_and_down_once(lives: Lives, source: ListedSource) -> None:
    source.up(listed("a", username="we|ird\r\n"))
    lives.poll()
    lives.poll()
    source.down("a", "user_request")
    lives.poll()
    lives.poll()
    assert told(lives) == [("up", 1), ("down", 1)]
    up, down = lives.events
    assert (up.username, up.access_interface, up.at) == ("we|ird\r\n", "trunk0.100", lives.clock.now)
    assert (down.reason, down.bytes_in, down.bytes_out, down.duration_seconds) == (
        "user_request",
        1000,
        2000,
        60,
    )


def test_the_table_has_what_the_source_lists(lives: Lives, source: ListedSource) -> None:
    source.up(listed("a", ipv6_address="2001:db8::2", delegated_prefixes=("2001:db8:8::/56",)))
    lives.poll()
    summary = only(lives).summary
    assert (summary.source, summary.ip_address, summary.ipv6_address) == (
        "accel-ppp",
        "100.64.0.10",
        "2001:db8::2",
    )
    assert (summary.delegated_prefixes, summary.inner_vlan_id) == (("2001:db8:8::/56",), 100)
    assert (summary.state, only(lives).gateway, only(lives).vrf_steered) == ("active", "100.64.0.1", True)


def test_a_session_without_ipv4_is_not_steered(lives: Lives, source: ListedSource) -> None:
    source.up(listed("a", ip_address=None, ipv6_address="2001:db8::2"))
    lives.poll()
    assert (only(lives).summary.ip_address, only(lives).gateway, only(lives).vrf_steered) == (
        None,
        None,
        False,
    )


def test_a_subscriber_that_comes_back_is_another_session(lives: Lives, source: ListedSource) -> None:
    source.up(listed("a"))
    lives.poll()
    source.down("a")
    source.up(listed("b"))
    lives.poll()
    assert told(lives) == [("up", 1), ("down", 1), ("up", 2)]


def test_sources_with_the_same_key_and_user_do_not_mix(tmp_path: Path) -> None:
    one, two = ListedSource("accel-ppp"), ListedSource("pppoe-server")
    lives = Lives(tmp_path, one, two)
    one.up(listed("a", username="alice"))
    two.up(listed("a", username="alice"))
    lives.poll()
    one.down("a", "user_request")
    two.fails = True
    lives.poll()
    assert told(lives) == [("up", 1), ("up", 2), ("down", 1)]
    assert (only(lives).summary.source, only(lives).summary.state) == ("pppoe-server", "stale")
    lives.kill()


def test_ids_ascend_in_the_table_whichever_source_replies_first(tmp_path: Path) -> None:
    one, two = ListedSource("accel-ppp"), ListedSource("pppoe-server")
    lives = Lives(tmp_path, one, two)
    for number in range(3):
        one.up(listed(f"a{number}"))
        two.up(listed(f"b{number}"))
        lives.poll()
    one.fails = True
    lives.restart()
    lives.poll()
    assert [session.id for session in lives.tracker.sessions.all()] == [1, 2, 3, 4, 5, 6]
    assert states(lives) == ["stale", "active"] * 3
    lives.kill()


def test_a_key_twice_is_an_error_of_the_source(
    lives: Lives, source: ListedSource, caplog: pytest.LogCaptureFixture
) -> None:
    source.up(listed("a"))
    lives.poll()
    source.twice = True
    lives.poll()
    assert (told(lives), states(lives)) == ([("up", 1)], ["stale"])
    assert "the source lists two sessions with the same key" in caplog.text


# Sources that fail


def test_sessions_of_a_source_that_does_not_reply_are_stale(
    lives: Lives, source: ListedSource, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    source.up(listed("a"))
    assert lives.tracker.unavailable_sources == ["accel-ppp"]
    lives.poll()
    assert lives.tracker.unavailable_sources == []
    source.fails = True
    for _ in range(3):
        lives.poll()
    assert (states(lives), lives.tracker.unavailable_sources) == (["stale"], ["accel-ppp"])
    source.fails = False
    for _ in range(3):
        lives.poll()
    assert (states(lives), told(lives)) == (["active"], [("up", 1)])
    assert [record.getMessage() for record in caplog.records] == [
        "accel-ppp does not reply, its sessions are stale: cannot reach accel-ppp",
        "accel-ppp replies again",
    ]


def test_many_ends_are_asked_for_together(lives: Lives, source: ListedSource) -> None:
    keys = [str(number) for number in range(200)]
    source.up(*map(listed, keys))
    lives.poll()
    for key in keys:
        source.down(key, "lost_carrier")
    lives.poll()
    assert sum(source.asked) == 200 and len(source.asked) == 2
    assert [event.reason for event in lives.events[200:]] == ["lost_carrier"] * 200


def test_without_a_word_of_the_source_the_reason_of_an_end_is_unknown(
    lives: Lives, source: ListedSource
) -> None:
    source.up(listed("a"))
    lives.poll()
    source.down("a", "user_request")
    source.forgets = True
    lives.poll()
    assert told(lives) == [("up", 1), ("down", 1)]
    assert lives.events[1].reason == "unknown"


def test_a_source_that_lost_its_sessions_ends_them(lives: Lives, source: ListedSource) -> None:
    source.up(listed("a"), listed("b"))
    lives.poll()
    source.fails = True
    lives.poll()
    source.fails = False
    source.listed.clear()
    lives.poll()
    assert told(lives) == [("up", 1), ("up", 2), ("down", 1), ("down", 2)]
    assert {event.reason for event in lives.events[2:]} == {"unknown"}


# Changes


def test_an_address_that_comes_later_is_no_event(lives: Lives, source: ListedSource) -> None:
    source.up(listed("a"))
    lives.poll()
    source.up(listed("a", ipv6_address="2001:db8::2", ip_address="198.51.100.7"))
    lives.poll()
    assert told(lives) == [("up", 1)]
    assert only(lives).summary.ipv6_address == "2001:db8::2"
    assert not only(lives).vrf_steered
    assert lives.tracker.sessions.find(SessionFilter(ip_address="198.51.100.7")) == [only(lives)]
    assert lives.tracker.sessions.find(SessionFilter(ip_address="100.64.0.10")) == []
    lives.restart()
    assert only(lives).summary.ipv6_address == "2001:db8::2"


def test_the_last_change_of_a_rate_is_in_force(lives: Lives, source: ListedSource) -> None:
    def rates() -> tuple[int, int]:
        return only(lives).summary.rate_down, only(lives).summary.rate_up

    source.up(listed("a", rate_down=20_000_000))
    lives.poll()
    assert rates() == (20_000_000, TERMS.rate_up)
    lives.tracker.set_rates(1, 7_000_000, 3_000_000)
    # Of the metrics module alone, which has no rates; then an address, with the rate as before.
    source.up(listed("a"))
    lives.poll()
    source.up(listed("a", rate_down=20_000_000, ipv6_address="2001:db8::2"))
    lives.poll()
    assert rates() == (7_000_000, 3_000_000)
    lives.restart()
    lives.poll()
    assert rates() == (7_000_000, 3_000_000)
    source.up(listed("a", rate_down=40_000_000, rate_up=9_000_000))
    lives.poll()
    assert rates() == (40_000_000, 9_000_000)
    lives.tracker.set_rates(1, 7_000_000, 3_000_000)
    source.up(listed("a", rate_down=40_000_000, rate_up=9_000_000, ipv6_address="2001:db8::3"))
    lives.poll()
    assert rates() == (7_000_000, 3_000_000)


def test_a_temporary_rate_outlasts_a_restart_and_ends_with_a_rate_of_the_source(
    lives: Lives, source: ListedSource
) -> None:
    source.up(listed("a", rate_down=20_000_000))
    lives.poll()
    expiry = Expiry(20_000_000, TERMS.rate_up, at=NOW + 60)
    lives.tracker.set_rates(1, 7_000_000, 3_000_000, expiry)
    lives.restart()
    assert only(lives).expiry == expiry
    source.up(listed("a", rate_down=20_000_000, ipv6_address="2001:db8::2"))
    lives.poll()
    assert only(lives).expiry == expiry
    source.up(listed("a", rate_down=40_000_000))
    lives.poll()
    assert (only(lives).expiry, only(lives).summary.rate_down) == (None, 40_000_000)


def test_a_change_of_rates_returns_the_session_before_and_after(lives: Lives, source: ListedSource) -> None:
    source.up(listed("a"))
    lives.poll()
    changed = lives.tracker.set_rates(1, 7, 3)
    assert changed is not None
    before, after = changed
    assert (before.summary.rate_down, after.summary.rate_down, after.summary.rate_up) == (50_000_000, 7, 3)
    assert only(lives) == after
    assert lives.tracker.set_rates(2, 7, 3) is None


def test_what_follows_is_told_in_order(lives: Lives, source: ListedSource) -> None:
    source.up(listed("a"), listed("b"))
    lives.poll()
    lives.tracker.set_rates(2, 7, 3)
    for _ in range(2):
        lives.tracker.configure(replace(CGNAT, enabled=not CGNAT.enabled))
    source.down("a")
    lives.poll()
    source.fails = True
    lives.poll()
    assert lives.surroundings.calls == [
        ("appeared", [1, 2]),
        ("changed", [2]),
        ("changed", [1, 2]),
        ("gone", [1]),
    ]


# Restarts of the core


def test_a_session_that_lives_through_a_restart_has_no_event(lives: Lives, source: ListedSource) -> None:
    source.up(listed("a"), listed("b"))
    lives.poll()
    lives.tracker.set_rates(2, 7, 3)
    source.down("a")
    lives.poll()
    lives.restart()
    assert (states(lives), lives.tracker.unavailable_sources) == (["stale"], ["accel-ppp"])
    # An uptime in whole seconds gives another start.
    source.up(listed("b", started_at=source.listed["b"].started_at + 2))
    lives.poll()
    assert told(lives) == [("up", 1), ("up", 2), ("down", 1)]
    summary = only(lives).summary
    assert (summary.id, summary.state, summary.rate_down, summary.rate_up) == (2, "active", 7, 3)
    assert summary.started_at == lives.clock.now - 60


def test_a_session_that_ended_during_a_restart_is_down_once(lives: Lives, source: ListedSource) -> None:
    source.up(listed("a", username="alice"))
    lives.poll()
    lives.kill()
    source.down("a", "lost_carrier")
    source.fails = True
    lives.start()
    lives.poll()
    assert (told(lives), states(lives)) == ([("up", 1)], ["stale"])
    source.fails = False
    lives.poll()
    lives.restart()
    lives.poll()
    assert told(lives) == [("up", 1), ("down", 1)]
    down = lives.events[1]
    assert (down.username, down.reason, down.interface) == ("alice", "lost_carrier", "ppp0")


def test_a_start_that_moved_far_follows_the_clock(lives: Lives, source: ListedSource) -> None:
    source.up(listed("a"))
    lives.poll()
    source.up(listed("a", started_at=source.listed["a"].started_at + 86_400))
    lives.poll()
    assert only(lives).summary.started_at == source.listed["a"].started_at


def test_a_record_of_another_version_is_forgotten(
    lives: Lives, source: ListedSource, caplog: pytest.LogCaptureFixture
) -> None:
    source.up(listed("a"))
    lives.poll()
    lives.store.write(records=dict.fromkeys(lives.store.read_all(), b'{"other": 1}'))
    lives.restart()
    lives.poll()
    assert [session.id for session in lives.tracker.sessions.all()] == [2]
    assert "cannot read 1 of the sessions on disk: the record of session 1: " in caplog.text


class Killed(BaseException):
    """As by SIGKILL: nothing that follows in the core is done."""


def killed(*_: object, **more: object) -> None:
    raise Killed


def poll_until_killed(lives: Lives) -> None:
    with pytest.raises(Killed):
        lives.poll()
    lives.kill()


@pytest.mark.parametrize("ends", [False, True])
def test_a_start_that_was_not_announced_is_so_by_the_next_core(
    lives: Lives, source: ListedSource, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    source.up(listed("a"), listed("b"))
    monkeypatch.setattr(lives.journal, "add_session_up", killed)
    poll_until_killed(lives)
    if ends:
        source.down("a", "user_request")
    lives.start()
    lives.poll()
    assert sorted(told(lives)) == ([("down", 1)] if ends else []) + [("up", 1), ("up", 2)]


@pytest.mark.parametrize("ends", [False, True])
def test_an_event_that_is_not_on_disk_comes_again_with_the_same_id(
    lives: Lives, source: ListedSource, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    source.up(listed("a"))
    if ends:
        lives.poll()
        source.down("a", "user_request")
    monkeypatch.setattr(lives.store, "write", killed)
    poll_until_killed(lives)
    lives.start()
    lives.poll()
    lives.poll()
    assert told(lives) == ([("up", 1), ("down", 1), ("down", 1)] if ends else [("up", 1), ("up", 1)])


# Disks that fail


def full(lives: Lives) -> int:
    return (lives.folder / "sessions.sqlite").stat().st_size


def test_with_a_full_disk_no_session_starts_and_ends_are_events(
    lives: Lives, source: ListedSource, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    source.up(listed("a"))
    lives.poll()
    many = [listed(f"b{number}") for number in range(200)]
    source.up(*many)
    with no_file_longer_than(full(lives)):
        for _ in range(3):
            lives.poll()
        assert [session.id for session in lives.tracker.sessions.all()] == [1]
        source.down("a")
        lives.poll()
        assert told(lives) == [("up", 1), ("down", 1)]
    lives.poll()
    lives.restart()
    lives.poll()
    assert len(lives.tracker.sessions) == len(lives.store.read_all()) == 200
    assert len(told(lives)) == 202
    ids = [session.id for session in lives.tracker.sessions.all()]
    assert ids == sorted(ids)
    logged = [record.getMessage() for record in caplog.records]
    assert len(logged) == 2
    assert logged[0].startswith("cannot give ids to sessions, trying again: ")
    assert logged[1] == "the core can give ids to sessions again"


def test_rates_that_cannot_be_stored_do_not_change(lives: Lives, source: ListedSource) -> None:
    source.up(listed("a"))
    lives.poll()
    with no_file_longer_than(0), pytest.raises(StepFailed, match="cannot store sessions"):
        lives.tracker.set_rates(1, 7, 3)
    assert only(lives).summary.rate_down == TERMS.rate_down
    lives.restart()
    assert only(lives).summary.rate_down == TERMS.rate_down


def test_rates_that_are_on_disk_after_a_failure_do_not_return(
    lives: Lives, source: ListedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = lives.store.write

    def fail_late(**what: Any) -> None:
        write(**what)
        raise StepFailed(STORE_STEP, "no reply")

    source.up(listed("a"))
    lives.poll()
    with monkeypatch.context() as patched, pytest.raises(StepFailed):
        patched.setattr(lives.store, "write", fail_late)
        lives.tracker.set_rates(1, 7, 3)
    lives.poll()
    lives.restart()
    assert only(lives).summary.rate_down == TERMS.rate_down


def test_a_key_that_comes_back_before_its_release_is_another_session(
    lives: Lives, source: ListedSource
) -> None:
    source.up(listed("a"))
    lives.poll()
    source.down("a")
    with no_file_longer_than(0):
        lives.poll()
        source.up(listed("a"))
        lives.poll()
        assert told(lives) == [("up", 1), ("down", 1)]
    lives.poll()
    lives.restart()
    lives.poll()
    assert told(lives) == [("up", 1), ("down", 1), ("up", 2)]


# Disconnects


def test_a_disconnect_returns_the_session_at_its_end(lives: Lives, source: ListedSource) -> None:
    source.up(listed("a"))
    lives.poll()
    (end,) = lives.tracker.disconnect([1])
    assert (end.session.id, end.reason, end.traffic) == (1, "admin_disconnect", lives.surroundings.counted)
    assert told(lives) == [("up", 1), ("down", 1)]
    assert lives.tracker.disconnect([1]) == []


def test_a_session_that_ended_by_itself_is_not_disconnected(lives: Lives, source: ListedSource) -> None:
    source.up(listed("a"))
    lives.poll()
    source.down("a", "user_request")
    assert lives.tracker.disconnect([1]) == []
    assert (source.terminated, lives.events[1].reason) == ([], "user_request")


def test_a_session_that_does_not_end_is_requested_twice(lives: Lives, source: ListedSource) -> None:
    source.up(listed("a"))
    lives.poll()
    source.at_terminate = lambda key: source.down(key) if len(source.terminated) == 2 else None
    began = lives.clock.now
    assert len(lives.tracker.disconnect([1])) == 1
    assert source.terminated == ["a", "a"]
    assert lives.clock.now - began == pytest.approx(1.7, abs=0.2)


def test_a_session_that_stays_is_an_error(lives: Lives, source: ListedSource) -> None:
    source.up(listed("a"), listed("b"))
    lives.poll()
    source.at_terminate = lambda key: source.down(key) if key == "b" else None
    began = lives.clock.now
    with pytest.raises(StillConnected, match=r"not gone after 2\.5 s") as caught:
        lives.tracker.disconnect([1, 2, 3])
    assert lives.clock.now - began == pytest.approx(2.5, abs=0.2)
    assert caught.value.connected == 1
    assert told(lives)[-1] == ("down", 2)
    assert [ended.id for ended in caught.value.ended] == [2]
    assert states(lives) == ["active"]


def test_a_stale_session_cannot_be_disconnected(lives: Lives, source: ListedSource) -> None:
    source.up(listed("a"))
    lives.poll()
    source.fails = True
    for _ in range(2):
        with pytest.raises(StillConnected, match="accel-ppp does not reply"):
            lives.tracker.disconnect([1])
    assert (states(lives), source.polls) == (["stale"], 2)


@pytest.mark.parametrize("call", ["at_poll", "at_terminate"])
def test_a_source_that_hangs_does_not_delay_the_reply(lives: Lives, source: ListedSource, call: str) -> None:
    go_on = threading.Event()

    def hang(*_: str) -> None:
        assert go_on.wait(60)

    source.up(listed("a"))
    lives.poll()
    setattr(source, call, hang)
    with pytest.raises(StillConnected, match=r"The session is still connected: .*, may end later") as caught:
        lives.tracker.disconnect([1], seconds=0.1)
    assert caught.value.connected == 1
    go_on.set()


def test_an_end_that_is_under_way_at_the_deadline_is_returned(lives: Lives, source: ListedSource) -> None:
    source.up(listed("a"))
    lives.poll()
    lives.surroundings.at_end = lambda: time.sleep(5)
    ends = lives.tracker.disconnect([1], seconds=4)
    assert [(end.session.id, end.reason) for end in ends] == [(1, "admin_disconnect")]


def test_a_source_that_hangs_does_not_keep_the_sessions_of_another(tmp_path: Path) -> None:
    one, two = ListedSource("accel-ppp"), ListedSource("pppoe-server")
    lives = Lives(tmp_path, one, two)
    one.up(listed("a"))
    two.up(listed("b"))
    lives.poll()
    one.at_poll = lambda: wait_for("the end of the other", lambda: ("down", 2) in told(lives))
    ends = lives.tracker.disconnect([1, 2], seconds=120)
    assert [end.session.id for end in ends] == [1, 2]
    lives.kill()


def test_a_source_that_refuses_is_an_error_at_once(
    lives: Lives, source: ListedSource, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: str) -> None:
        raise SourceRefused("cannot signal pppd 7")

    source.up(listed("a"))
    lives.poll()
    source.at_terminate = refuse
    began = lives.clock.now
    with pytest.raises(StillConnected, match="accel-ppp refused"):
        lives.tracker.disconnect([1])
    assert lives.clock.now == began
    assert "cannot disconnect session 1: cannot signal pppd 7" in caplog.text


def present(lives: Lives) -> list[int]:
    return [session.id for session in lives.tracker.sessions.all()]


def test_sessions_are_ended_again_until_they_are_gone(
    lives: Lives, source: ListedSource, caplog: pytest.LogCaptureFixture
) -> None:
    source.up(listed("a"), listed("b"))
    lives.poll()
    source.at_terminate = lambda key: source.down(key) if len(source.terminated) > 4 else None
    lives.tracker.end(lambda: {1, 3}.intersection(present(lives)))
    assert present(lives) == [2]
    assert source.terminated == ["a"] * 5
    assert (
        caplog.text.count(
            "cannot end the sessions of a commit, trying again in 60 s: The session is still connected"
        )
        == 2
    )


def test_a_session_that_is_not_to_end_any_more_goes_on(lives: Lives, source: ListedSource) -> None:
    source.up(listed("a"))
    lives.poll()
    source.at_terminate = lambda _: None
    lives.tracker.end(lambda: [] if source.terminated else [1])
    assert states(lives) == ["active"]


def test_a_session_ends_once_its_source_replies(
    lives: Lives, source: ListedSource, caplog: pytest.LogCaptureFixture
) -> None:
    source.up(listed("a"))
    lives.poll()
    source.fails = True
    lives.poll()
    waits = 0

    def left() -> list[int]:
        nonlocal waits
        waits += 1
        if waits == 3:
            source.fails = False
            lives.poll()
        return present(lives)

    lives.tracker.end(left)
    assert (source.terminated, waits) == (["a"], 4)
    assert "cannot end sessions" not in caplog.text


def test_callers_at_the_same_time_share_a_poll(lives: Lives, source: ListedSource) -> None:
    started, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        started.set()
        assert go_on.wait(60)

    source.at_poll = wait
    first = threading.Thread(target=lives.poll)
    first.start()
    assert started.wait(60)
    # They come too late for the poll that is under way, and one more serves those that wait.
    others = [threading.Thread(target=lives.poll) for _ in range(20)]
    for other in others:
        other.start()
    go_on.set()
    for thread in (first, *others):
        thread.join()
    assert 2 <= source.polls < 20


# Traffic and terms


def test_a_dhcp_session_counts_from_its_start(lives: Lives, source: ListedSource) -> None:
    source.up(listed("a", type=SessionType.DHCP, interface="trunk0.100"), listed("b"))
    lives.poll()
    lives.restart()
    lives.surroundings.counted = Counters(1500, 2700, 15, 27)
    source.listed.clear()
    lives.poll()
    counted = [(event.bytes_in, event.bytes_out) for event in lives.events[2:]]
    assert counted == [(500, 700), (1500, 2700)]


def test_a_device_that_was_made_anew_counts_from_zero(lives: Lives, source: ListedSource) -> None:
    source.up(listed("a", type=SessionType.DHCP, interface="trunk0.100"))
    lives.poll()
    assert only(lives).count_traffic(Counters(5, 6, 1, 1)) == Counters(5, 6, 1, 1)
    assert only(lives).count_traffic(lives.surroundings.counted) == NO_COUNTERS


@pytest.mark.parametrize(
    ("interface", "type", "tags", "overhead"),
    [
        ("trunk0.100", SessionType.PPPOE, (None, 100), "pppoe_ethernet"),
        ("trunk0.50.7", SessionType.PPPOE, (50, 7), "pppoe_qinq"),
        ("trunk0.50.7", SessionType.DHCP, (50, 7), "ipoe_qinq"),
        ("trunk0.2000", SessionType.PPPOE, (None, 2000), "none"),
        ("trunk0.2000", SessionType.DHCP, (None, 2000), "ipoe_ethernet"),
        ("trunk0.5.2000", SessionType.PPPOE, (None, 2000), "pppoe_ethernet"),
        ("trunk0.4095", SessionType.PPPOE, (None, None), "pppoe_ethernet"),
        ("trunk0.0100", SessionType.PPPOE, (None, None), "pppoe_ethernet"),
        ("trunk0.1.2.3", SessionType.PPPOE, (None, None), "pppoe_ethernet"),
        ("other0.100", SessionType.DHCP, (None, None), "ipoe_ethernet"),
    ],
)
def test_terms_go_by_the_access_interface(
    interface: str, type: SessionType, tags: tuple[int | None, int | None], overhead: str
) -> None:
    document = valid_document()
    # A trunk may have a name like that of a VLAN.
    document["interfaces"]["trunks"] = ["trunk0", "trunk0.5"]
    document["demux"]["trunks"] = ["trunk0"]
    document["demux"]["vlan_profiles"] = [
        {"name": "a", "type": "pppoe", "vlan_range": "2000-2001", "outer_vlan_range": None,
         "overhead_profile": "none"},
    ]  # fmt: skip
    configuration = RunningConfiguration.of(document).sections
    found = Provision(configuration, DeviceCounters(KnownLinks())).make_terms(
        listed("a", access_interface=interface, type=type)
    )
    assert ((found.outer_vlan_id, found.inner_vlan_id), found.overhead_profile) == (tags, overhead)
    assert (found.gateway, found.rate_down > found.rate_up > 0) == ("100.64.0.1", True)


# Threads


@pytest.fixture
def hooks(tmp_path: Path) -> Iterator[HookSocket]:
    with HookSocket(tmp_path / "hooks") as made:
        yield made


@pytest.fixture
def running(lives: Lives, hooks: HookSocket) -> Iterator[threading.Thread]:
    """The tracker on threads, after its first poll."""
    thread = threading.Thread(target=lives.tracker.run, args=(hooks, ThreadGroup()))
    thread.start()
    wait_for("the first poll", lambda: not lives.tracker.unavailable_sources)
    yield thread
    hooks.stop()
    thread.join()


def send(path: Path, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(data, str(path))


@pytest.fixture
def unswept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a trigger makes the tracker poll."""
    monkeypatch.setattr(tracker, "_POLL_SECONDS", 10 * PATIENCE)


@pytest.mark.parametrize("data", [b"", b"<13>Nov 22 10:00:00 ip-up", b"\0" * 100_000])
@pytest.mark.usefixtures("unswept", "running")
def test_any_datagram_of_a_hook_has_the_sources_polled(
    lives: Lives, source: ListedSource, tmp_path: Path, data: bytes
) -> None:
    wait_for("the polls at the start", lambda: settled(source))
    source.up(listed("a"))
    send(tmp_path / "hooks", data)
    wait_for("the session", lambda: told(lives) == [("up", 1)])


def settled(source: ListedSource) -> bool:
    before = source.polls
    time.sleep(0.3)
    return source.polls == before


@pytest.mark.usefixtures("running")
def test_changes_are_found_without_a_trigger(lives: Lives, source: ListedSource) -> None:
    source.up(listed("a"))
    wait_for("the session", lambda: told(lives) == [("up", 1)])


@pytest.mark.usefixtures("running")
def test_triggers_without_end_do_not_poll_without_end(lives: Lives, source: ListedSource) -> None:
    before, began = source.polls, time.monotonic()
    # They go on until there were some polls, which a busy machine does not do in a second.
    while (took := time.monotonic() - began) < 1 or (source.polls - before <= 2 and took < PATIENCE):
        lives.tracker.trigger()
        time.sleep(0.001)
    # One in 0.05 s, and one that is under way.
    assert 2 < source.polls - before < 2 + 20 * (time.monotonic() - began)


def test_a_slow_source_rests_for_as_long_as_a_poll_takes(
    lives: Lives, source: ListedSource, hooks: HookSocket
) -> None:
    source.at_poll = lambda: time.sleep(0.2)
    lives.clock = Clock("boot")
    lives.restart()
    thread = threading.Thread(target=lives.tracker.run, args=(hooks, ThreadGroup()))
    thread.start()
    began = time.monotonic()
    while (took := time.monotonic() - began) < 2 or (source.polls <= 1 and took < PATIENCE):
        lives.tracker.trigger()
        time.sleep(0.01)
    polls, took = source.polls, time.monotonic() - began
    hooks.stop()
    thread.join()
    # A poll and its rest take 0.4 s; the first may have begun before.
    assert 1 < polls < 2 + took / 0.4


def test_sessions_of_an_earlier_life_appear_before_all_others(
    lives: Lives, source: ListedSource, hooks: HookSocket
) -> None:
    source.up(listed("a"), listed("b"))
    lives.poll()
    source.up(listed("c"))
    source.down("a")
    lives.restart()
    lives.surroundings.calls.clear()
    thread = threading.Thread(target=lives.tracker.run, args=(hooks, ThreadGroup()))
    thread.start()
    wait_for("the session", lambda: len(told(lives)) == 4)
    hooks.stop()
    thread.join()
    assert lives.surroundings.calls == [("appeared", [1, 2]), ("gone", [1]), ("appeared", [3])]


def test_sessions_of_a_source_that_there_is_no_longer_end(tmp_path: Path, hooks: HookSocket) -> None:
    one, two = ListedSource("accel-ppp"), ListedSource("pppoe-server")
    lives = Lives(tmp_path, one, two)
    one.up(listed("a"))
    two.up(listed("a"))
    lives.poll()
    lives.sources = (two,)
    lives.restart()
    assert lives.tracker.disconnect([1]) == []
    hooks.stop()
    lives.tracker.run(hooks, ThreadGroup())
    assert told(lives) == [("up", 1), ("up", 2), ("down", 1)]
    assert lives.events[2].reason == "unknown"
    lives.kill()


def test_an_unexpected_error_of_a_source_comes_to_the_crew(
    lives: Lives, source: ListedSource, hooks: HookSocket
) -> None:
    def fail() -> None:
        raise RuntimeError("no error that a source may raise")

    source.at_poll = fail
    thread_group = ThreadGroup()
    thread = thread_group.start(lambda: lives.tracker.run(hooks, thread_group))
    with pytest.raises(RuntimeError, match="no error that a source may raise"):
        thread_group.wait()
    hooks.stop()
    thread.join()


def test_hooks_of_other_users_may_send(hooks: HookSocket, tmp_path: Path) -> None:
    assert (tmp_path / "hooks").stat().st_mode & 0o777 == 0o666
    assert [path.name for path in tmp_path.iterdir()] == ["hooks"]


def test_a_socket_that_was_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "hooks"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left:
        left.bind(str(path))
    with HookSocket(path) as hooks:
        send(path, b"")
        assert hooks.wait()
    assert not path.exists()


def test_hooks_are_heard_beside_many_connections(tmp_path: Path) -> None:
    with many_descriptors(), HookSocket(tmp_path / "hooks") as hooks:
        send(tmp_path / "hooks", b"")
        assert hooks.wait()


def test_another_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "hooks"
    path.write_text("of an operator")
    with pytest.raises(FileExistsError):
        HookSocket(path)
    assert path.read_text() == "of an operator"


def test_a_request_counts_before_it_is_made_and_for_a_minute() -> None:
    clock = StillClock()
    terminations = Terminations(clock)
    with terminations.record("a", "b"):
        assert "a" in terminations
    clock.now += 59
    assert "a" in terminations
    assert "b" in terminations
    assert "c" not in terminations
    clock.now += 1
    assert "a" not in terminations


def test_a_request_that_fails_does_not_count_and_one_before_it_does() -> None:
    terminations = Terminations(StillClock())
    with terminations.record("a"):
        pass
    with pytest.raises(SourceUnavailable), terminations.record("a", "b"):
        raise SourceUnavailable("no reply")
    assert "a" in terminations
    assert "b" not in terminations
