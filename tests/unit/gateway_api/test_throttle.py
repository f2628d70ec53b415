"""Pauses after failed logins, for all workers, whatever the ledger and the clock do."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway_api.auth.ledger import Ledger
from gateway_api.auth.login import Login, Throttle
from gateway_contract.base.errors import TooManyAttempts
from tests.support.clocks import SteppedClock
from tests.support.ledger import lose
from tests.support.logins import ALICE, ELSEWHERE, HERE, SECRET, InlinePool, fail, log_in, pause, throttle_of


def test_the_pause_doubles_with_each_failure_up_to_five_minutes(
    throttle: Throttle, clock: SteppedClock
) -> None:
    pauses = []
    for _ in range(16):
        throttle.add_failure("alice", HERE)
        pauses.append(pause(throttle))
        clock.now += pauses[-1]
    assert pauses == [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    for _ in range(1100):
        throttle.add_failure("alice", HERE)
    assert pause(throttle) == 300


def test_the_pause_lasts_until_its_end(throttle: Throttle, clock: SteppedClock) -> None:
    for _ in range(8):
        throttle.add_failure("alice", HERE)
    clock.now += 7.5
    assert pause(throttle) == 1
    clock.now += 0.5
    assert pause(throttle) == 0


def test_fifteen_minutes_without_a_failure_clear_them(login: Login, clock: SteppedClock) -> None:
    fail(login, 4)
    clock.now += 901
    fail(login, 5)


def test_another_address_and_another_user_are_not_affected_and_end_no_pause(
    login: Login, throttle: Throttle, pool: InlinePool
) -> None:
    fail(login, 5)
    assert log_in(login, "alice", "secret", ELSEWHERE) == ALICE
    assert log_in(login, "user1", "secret", HERE).username == "user1"
    assert pause(throttle) == 1
    checked = len(pool.checked)
    with pytest.raises(TooManyAttempts):
        log_in(login, "alice", "secret", HERE)
    # An attempt that has to wait takes no bcrypt.
    assert len(pool.checked) == checked


def test_the_addresses_of_an_ipv6_network_wait_together_and_a_success_clears_their_failures(
    login: Login,
) -> None:
    fail(login, 4, address="2001:db8::1")
    log_in(login, "alice", "secret", "2001:db8::2")
    for number in range(5):
        fail(login, 1, address=f"2001:db8::{number}")
    with pytest.raises(TooManyAttempts):
        log_in(login, "alice", "secret", "2001:db8::ffff")
    assert log_in(login, "alice", "secret", "2001:db8:0:1::1") == ALICE


@pytest.mark.parametrize("username", ["alice", "\ud800" * 9])
def test_the_user_name_of_a_failed_login_is_not_in_the_ledger_s_files(
    login: Login, tmp_path: Path, username: str
) -> None:
    fail(login, 3, username=username)
    held = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert username.encode(errors="surrogatepass") not in held


def test_what_stands_for_a_client_cannot_be_computed_without_the_secret(ledger: Ledger) -> None:
    throttles = [Throttle(ledger, secret, SteppedClock()) for secret in (SECRET, SECRET[:-1])]
    assert len({throttle._digest("alice", HERE) for throttle in throttles}) == 2


def test_failures_in_both_workers_add_up(
    throttle: Throttle, neighbours_ledger: Ledger, clock: SteppedClock
) -> None:
    neighbour = throttle_of(neighbours_ledger, clock)
    for each in (throttle, neighbour, throttle, neighbour, throttle):
        each.add_failure("alice", HERE)
    assert pause(throttle) == pause(neighbour) == 1
    neighbour.clear_failures("alice", HERE)
    assert pause(throttle) == 0


def test_a_worker_without_a_ledger_counts_the_newest_of_very_many_clients(
    tmp_path: Path, ledger: Ledger, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway_api.auth.login._MAX_UNSAVED", 100)
    throttle = throttle_of(ledger, clock)
    lose(tmp_path / "ledger.sqlite")
    for number in (*[0] * 5, *range(1, 101)):
        throttle.add_failure(f"user{number}", HERE)
    for _ in range(6):
        throttle.add_failure("user100", HERE)
    assert pause(throttle, "user100") == 4
    # The oldest client is forgotten.
    assert pause(throttle, "user0") == 0


def test_failures_and_a_success_while_another_process_writes_the_ledger_count_at_once(
    tmp_path: Path, ledger: Ledger, clock: SteppedClock
) -> None:
    throttle = throttle_of(ledger, clock)
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for _ in range(5):
            throttle.add_failure("alice", HERE)
        assert pause(throttle) == 1
        other.execute("ROLLBACK")
        # The worker does nothing else meanwhile: milliseconds.
        assert list(ledger.execute("PRAGMA busy_timeout")) == [(50,)]
        throttle.add_failure("alice", HERE)
        assert pause(throttle_of(ledger, clock)) == 2
        other.execute("BEGIN IMMEDIATE")
        throttle.clear_failures("alice", HERE)
        other.execute("ROLLBACK")
    throttle.add_failure("alice", HERE)
    assert pause(throttle) == 0


def test_a_clock_that_was_stepped_back_does_not_make_the_pause_longer(
    throttle: Throttle, clock: SteppedClock
) -> None:
    for _ in range(7):
        throttle.add_failure("alice", HERE)
    clock.now -= 3600
    # The first look at the new time may start the pause anew, and no more than that.
    assert pause(throttle) <= 4
    clock.now += 4
    assert pause(throttle) == 0
