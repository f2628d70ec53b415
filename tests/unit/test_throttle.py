"""Pauses after failed logins, for all workers, whatever the ledger and the clock do."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gateway_api.auth.ledger import Ledger, SharedState
from gateway_api.auth.login import Failures, Login, Throttle
from gateway_api.base.errors import TooManyAttempts
from tests.support.clocks import SteppedClock
from tests.support.ledger import ledger_at, lose
from tests.support.logins import ALICE, ELSEWHERE, HERE, SECRET, InlinePool, fail, log_in, pause, throttle_of


def test_an_attempt_that_has_to_wait_does_not_take_bcrypt(login: Login, pool: InlinePool) -> None:
    fail(login, 5)
    with pytest.raises(TooManyAttempts):
        log_in(login, "alice", "secret", HERE)
    assert len(pool.checked) == 5


def test_an_unknown_user_has_to_wait_as_a_known_one_has(login: Login) -> None:
    fail(login, 5, username="nobody")
    with pytest.raises(TooManyAttempts):
        log_in(login, "nobody", "wrong", HERE)


def test_the_pause_doubles_with_each_failure_up_to_five_minutes(
    throttle: Throttle, clock: SteppedClock
) -> None:
    pauses = []
    for _ in range(16):
        throttle.failed("alice", HERE)
        pauses.append(pause(throttle))
        clock.now += pauses[-1]
    assert pauses == [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    for _ in range(1100):
        throttle.failed("alice", HERE)
    assert pause(throttle) == 300


def test_the_pause_lasts_until_its_end(throttle: Throttle, clock: SteppedClock) -> None:
    for _ in range(8):
        throttle.failed("alice", HERE)
    clock.now += 7.5
    assert pause(throttle) == 1
    clock.now += 0.5
    assert pause(throttle) == 0


def test_after_the_pause_one_more_failure_makes_a_longer_one(login: Login, clock: SteppedClock) -> None:
    fail(login, 5)
    clock.now += 1
    fail(login, 1)
    with pytest.raises(TooManyAttempts) as caught:
        log_in(login, "alice", "secret", HERE)
    assert caught.value.retry_after == 2


def test_a_success_clears_the_failures(login: Login) -> None:
    fail(login, 4)
    log_in(login, "alice", "secret", HERE)
    fail(login, 5)


def test_fifteen_minutes_without_a_failure_clear_them(login: Login, clock: SteppedClock) -> None:
    fail(login, 4)
    clock.now += 901
    fail(login, 5)


def test_another_address_is_not_affected(login: Login) -> None:
    fail(login, 5)
    assert log_in(login, "alice", "secret", ELSEWHERE) == ALICE


def test_a_success_elsewhere_does_not_end_the_pause_here(login: Login, throttle: Throttle) -> None:
    fail(login, 5)
    log_in(login, "alice", "secret", ELSEWHERE)
    assert pause(throttle) == 1


def test_the_addresses_of_an_ipv6_network_wait_together(login: Login) -> None:
    for number in range(5):
        fail(login, 1, address=f"2001:db8::{number}")
    with pytest.raises(TooManyAttempts):
        log_in(login, "alice", "secret", "2001:db8::ffff")
    assert log_in(login, "alice", "secret", "2001:db8:0:1::1") == ALICE


def test_a_success_clears_the_failures_of_the_whole_ipv6_network(login: Login) -> None:
    fail(login, 4, address="2001:db8::1")
    log_in(login, "alice", "secret", "2001:db8::2")
    fail(login, 5, address="2001:db8::1")


@pytest.mark.parametrize("username", ["p4ssw0rd-in-the-wrong-field", "alice", "\ud800" * 9])
def test_the_user_name_of_a_failed_login_is_not_in_the_ledger_s_files(
    login: Login, tmp_path: Path, username: str
) -> None:
    fail(login, 3, username=username)
    held = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert username.encode(errors="surrogatepass") not in held


def test_what_stands_for_a_client_cannot_be_computed_without_the_secret(ledger: Ledger) -> None:
    clients = {Failures(ledger, secret).client("alice", HERE) for secret in (SECRET, SECRET[:-1])}
    assert len(clients) == 2


def test_another_user_at_the_same_address_is_not_affected(login: Login) -> None:
    fail(login, 5)
    assert log_in(login, "user1", "secret", HERE).username == "user1"


def test_failures_in_both_workers_add_up(
    throttle: Throttle, neighbours_ledger: Ledger, clock: SteppedClock
) -> None:
    neighbour = throttle_of(neighbours_ledger, clock)
    for each in (throttle, neighbour, throttle, neighbour, throttle):
        each.failed("alice", HERE)
    assert pause(throttle) == pause(neighbour) == 1
    neighbour.succeeded("alice", HERE)
    assert pause(throttle) == 0


def test_after_a_success_in_one_worker_failures_in_another_count_in_both(
    throttle: Throttle, neighbours_ledger: Ledger, clock: SteppedClock
) -> None:
    throttle.failed("alice", HERE)
    throttle.succeeded("alice", HERE)
    neighbour = throttle_of(neighbours_ledger, clock)
    for _ in range(7):
        neighbour.failed("alice", HERE)
    assert pause(throttle) == pause(neighbour) == 4


def test_a_worker_without_a_ledger_counts_the_newest_of_very_many_clients(
    tmp_path: Path, ledger: Ledger, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway_api.auth.login._MOST_UNSAVED", 100)
    throttle = throttle_of(ledger, clock)
    lose(tmp_path / "ledger.sqlite")
    for number in (*[0] * 5, *range(1, 101)):
        throttle.failed(f"user{number}", HERE)
    for _ in range(6):
        throttle.failed("user100", HERE)
    assert pause(throttle, "user100") == 4
    # The oldest client is forgotten.
    assert pause(throttle, "user0") == 0


def test_the_failures_outlive_a_worker(tmp_path: Path, clock: SteppedClock) -> None:
    with closing(ledger_at(tmp_path / "ledger.sqlite", SharedState())) as ledger:
        for _ in range(7):
            throttle_of(ledger, clock).failed("alice", HERE)
    with closing(ledger_at(tmp_path / "ledger.sqlite", SharedState())) as ledger:
        assert pause(throttle_of(ledger, clock)) == 4


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process writes, and its disk is slow, until the end of the block."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_a_failure_while_the_ledger_is_locked_is_counted_at_once(
    tmp_path: Path, ledger: Ledger, clock: SteppedClock
) -> None:
    throttle = throttle_of(ledger, clock)
    with locked(tmp_path / "ledger.sqlite"):
        for _ in range(5):
            throttle.failed("alice", HERE)
        assert pause(throttle) == 1
    # The worker does nothing else meanwhile: milliseconds.
    assert list(ledger.execute("PRAGMA busy_timeout")) == [(50,)]
    throttle.failed("alice", HERE)
    assert pause(throttle_of(ledger, clock)) == 2


def test_a_success_while_the_ledger_is_locked_clears_the_failures(
    tmp_path: Path, ledger: Ledger, clock: SteppedClock
) -> None:
    throttle = throttle_of(ledger, clock)
    for _ in range(7):
        throttle.failed("alice", HERE)
    clock.now += 60
    with locked(tmp_path / "ledger.sqlite"):
        throttle.succeeded("alice", HERE)
    clock.now += 1
    throttle.failed("alice", HERE)
    assert pause(throttle) == 0


def test_fifteen_minutes_without_a_failure_clear_those_of_a_locked_ledger(
    tmp_path: Path, ledger: Ledger, clock: SteppedClock
) -> None:
    throttle = throttle_of(ledger, clock)
    with locked(tmp_path / "ledger.sqlite"):
        for _ in range(7):
            throttle.failed("alice", HERE)
    clock.now += 901
    throttle.failed("alice", HERE)
    assert pause(throttle) == 0


def test_a_ledger_that_breaks_after_it_was_locked_is_an_error(
    tmp_path: Path, ledger: Ledger, clock: SteppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    throttle = throttle_of(ledger, clock)
    with locked(tmp_path / "ledger.sqlite"):
        throttle.failed("alice", HERE)
    lose(tmp_path / "ledger.sqlite")
    throttle.failed("alice", HERE)
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]


def test_a_clock_that_was_stepped_back_does_not_make_the_pause_longer(
    throttle: Throttle, clock: SteppedClock
) -> None:
    for _ in range(7):
        throttle.failed("alice", HERE)
    clock.now -= 3600
    # The first look at the new time may start the pause anew, and no more than that.
    assert pause(throttle) <= 4
    clock.now += 4
    assert pause(throttle) == 0
