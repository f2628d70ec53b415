"""Logging in: passwords, what they cost, the queue before bcrypt, pauses after failures, and the ledger."""

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bcrypt
import pytest

from gateway_api.auth.ledger import Ledger, Revocations, SharedState, open_ledger, prepare_ledger, read_name
from gateway_api.auth.login import Login, Throttle
from gateway_contract.base.errors import LedgerUnavailable, TooManyAttempts, WrongCredentials
from gateway_contract.core.configuration import LoginReply
from gateway_contract.passwords import read_cost, verify
from tests.support.clocks import SteppedClock
from tests.support.documents import SECRET_HASH
from tests.support.ledger import ledger_at, lose, revocations_of
from tests.support.logins import (
    ALICE,
    ELSEWHERE,
    HERE,
    SECRET,
    Check,
    InlinePool,
    fail,
    log_in,
    pause,
    throttle_of,
)


def test_the_right_password_gives_the_user(login: Login) -> None:
    assert log_in(login, "alice", "secret", HERE) == ALICE


@pytest.mark.parametrize("username", ["alice", "nobody"])
def test_a_wrong_password_and_an_unknown_user_are_refused_and_take_bcrypt_once(
    login: Login, pool: InlinePool, username: str
) -> None:
    fail(login, 1, username)
    ((password, used),) = pool.checked
    assert (password, used == SECRET_HASH) == ("wrong", username == "alice")


def test_an_unknown_user_where_nobody_is_known_takes_bcrypt_at_its_usual_cost(
    login: Login, pool: InlinePool
) -> None:
    with pytest.raises(WrongCredentials):
        log_in(login, "nobody", "wrong", HERE, {})
    assert [used[:7] for _, used in pool.checked] == ["$2b$12$"]


def hashed(rounds: int) -> str:
    return bcrypt.hashpw(b"secret", bcrypt.gensalt(rounds)).decode()


#: Users whose hashes cost from 16 to 1024 rounds.
OF_ALL_COSTS = {f"cost{cost}": hashed(cost) for cost in (4, 5, 7, 10)}


@pytest.mark.parametrize("username", ["cost4", "cost5", "cost7", "cost10", "nobody"])
@pytest.mark.parametrize("password", ["secret", "wrong"])
def test_each_login_takes_as_many_rounds_as_the_most_expensive_hash(
    throttle: Throttle, pool: InlinePool, username: str, password: str
) -> None:
    rounds = []

    def counting(password: str, password_hash: str) -> bool:
        rounds.append(2 ** read_cost(password_hash))
        return verify(password, password_hash)

    with suppress(WrongCredentials):
        log_in(Login(throttle, pool, counting), username, password, HERE, OF_ALL_COSTS)
    assert sum(rounds) == 1024


@pytest.mark.parametrize("password", ["secret", "nobody's", "-", ""])
def test_no_password_lets_an_unknown_user_in(login: Login, password: str) -> None:
    with pytest.raises(WrongCredentials):
        log_in(login, "nobody", password, HERE)


@pytest.mark.parametrize("broken", ["", "x", "$2b$99$" + "a" * 53, "not 99 hash"])
def test_a_user_whose_hash_is_broken_is_refused_at_the_usual_cost(
    login: Login, pool: InlinePool, broken: str
) -> None:
    known = LoginReply(3600, ALICE, broken, 5)
    with pytest.raises(WrongCredentials):
        login.authenticate(known, "alice", "secret", HERE)
    assert [read_cost(used) for _, used in pool.checked] == [5]


@pytest.mark.parametrize("username", ["", "\0", "\ud800", "x" * 100_000, "' OR 1=1 --"])
def test_any_text_for_a_name_is_an_unknown_user(login: Login, username: str) -> None:
    fail(login, 1, username=username)


def together(
    login: Login,
    pool: InlinePool,
    attempts: int,
    password: str,
    addresses: int,
    refused: int = 1,
    address: str = "192.0.2.{}",
) -> list[str]:
    """What comes of so many logins at once, from so many addresses in turn. Each user and address is
    another, unless there is one address. No check ends before so many logins were sent away."""
    pool.gate.clear()
    sent_away = threading.Semaphore(0)

    def attempt(number: int) -> str:
        username = "alice" if addresses == 1 else f"user{number}"
        try:
            log_in(login, username, password, address.format(number % addresses))
        except (TooManyAttempts, WrongCredentials) as error:
            sent_away.release()
            return type(error).__name__
        return "in"

    with ThreadPoolExecutor(attempts) as threads:
        under_way = [threads.submit(attempt, number) for number in range(attempts)]
        were_sent_away = [sent_away.acquire(timeout=10) for _ in range(refused)]
        pool.gate.set()
        outcomes = sorted(each.result() for each in under_way)
    assert all(were_sent_away)
    return outcomes


def test_one_password_at_a_time_is_checked(login: Login, pool: InlinePool) -> None:
    with ThreadPoolExecutor(10) as threads:
        users = threads.map(lambda n: log_in(login, f"user{n}", "secret", f"10.0.0.{n}"), range(10))
        assert len(list(users)) == 10
    assert pool.most_at_once == 1


def test_the_seventeenth_waiting_login_is_sent_away(login: Login, pool: InlinePool) -> None:
    assert together(login, pool, 17, "secret", addresses=17) == ["TooManyAttempts", *["in"] * 16]


def test_the_fifth_waiting_login_from_one_address_is_sent_away(login: Login, pool: InlinePool) -> None:
    assert together(login, pool, 5, "secret", addresses=1) == ["TooManyAttempts", *["in"] * 4]


def test_the_addresses_of_an_ipv6_network_are_one(login: Login, pool: InlinePool) -> None:
    outcomes = together(login, pool, 5, "secret", addresses=5, address="2001:db8::{}")
    assert outcomes == ["TooManyAttempts", *["in"] * 4]


def test_a_full_line_from_one_address_leaves_places_for_others(login: Login, pool: InlinePool) -> None:
    outcomes = together(login, pool, 10, "secret", addresses=2, refused=2)
    assert outcomes == ["TooManyAttempts"] * 2 + ["in"] * 8


def test_a_login_that_waited_in_line_counts_the_failures_before_it(login: Login, pool: InlinePool) -> None:
    fail(login, 3, address="192.0.2.0")
    outcomes = together(login, pool, 5, "wrong", addresses=1)
    assert outcomes == ["TooManyAttempts"] * 3 + ["WrongCredentials"] * 2
    assert len(pool.checked) == 5


def test_a_login_whose_check_broke_leaves_its_place(throttle: Throttle, pool: InlinePool) -> None:
    class Breaking(InlinePool):
        def apply(self, function: Check, args: tuple[str, list[str]]) -> bool:
            if args[0] == "break":
                raise RuntimeError
            return super().apply(function, args)

    login = Login(throttle, Breaking())
    for _ in range(20):
        with pytest.raises(RuntimeError):
            log_in(login, "alice", "break", HERE)
    assert log_in(login, "alice", "secret", HERE) == ALICE


def test_a_prepared_ledger_and_what_lies_beside_it_are_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    prepare_ledger(path, SharedState())
    with closing(open_ledger(path)) as ledger:
        ledger.execute("INSERT INTO revoked (jti, expires) VALUES ('1f', 1)")
        modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    names = [f"ledger.sqlite{suffix}" for suffix in ("", "-wal", "-shm", ".reserve")]
    assert modes == dict.fromkeys(names, 0o600)


def test_preparing_a_ledger_again_keeps_what_it_knows(tmp_path: Path, clock: SteppedClock) -> None:
    path = tmp_path / "ledger.sqlite"
    prepare_ledger(path, SharedState())
    with closing(ledger_at(path, SharedState())) as ledger:
        name = ledger.name
        revocations_of(ledger, clock).revoke("1f", int(clock()) + 60)
    prepare_ledger(path, SharedState())
    with closing(ledger_at(path, SharedState())) as ledger:
        assert ledger.name == name
        assert revocations_of(ledger, clock).is_revoked("1f", name)


def test_space_of_which_a_killed_start_kept_only_a_part_is_kept_by_the_next(tmp_path: Path) -> None:
    path, reserve = tmp_path / "ledger.sqlite", tmp_path / "ledger.sqlite.reserve"
    prepare_ledger(path, SharedState())
    whole = reserve.stat().st_size
    reserve.write_bytes(bytes(1000))
    prepare_ledger(path, SharedState())
    assert reserve.stat().st_size == whole >= 100_000
    assert reserve.stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob(".*"))


def test_a_broken_ledger_is_begun_anew_under_another_name(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with closing(open_ledger(path)) as ledger:
        name = read_name(ledger)
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    prepare_ledger(path, SharedState())
    with closing(open_ledger(path)) as ledger:
        assert read_name(ledger) != name
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_logout_is_on_the_disk_and_waits_for_a_lock_of_a_few_hundred_milliseconds(ledger: Ledger) -> None:
    def settings(each: Any) -> list[int]:
        names = ("synchronous", "busy_timeout")
        return [each.execute(f"PRAGMA {name}").fetchone()[0] for name in names]

    # FULL: SQLite has the disk written before it returns.
    assert ledger.write(settings) == [2, 500]


def test_a_token_that_another_worker_revokes_is_no_longer_known_to_be_valid(
    ledger: Ledger, neighbours_ledger: Ledger, clock: SteppedClock
) -> None:
    revocations = revocations_of(ledger, clock)
    for jti in ("1f", "2f"):
        # The revocation of one revokes no other.
        assert not revocations.is_revoked(jti, ledger.name)
        revocations_of(neighbours_ledger, clock).revoke(jti, int(clock()) + 60)
        assert revocations.is_revoked(jti, ledger.name)


def interrupted(ledger: Ledger, after: Callable[[], object]) -> Any:
    """A ledger, of which `after` is called after each statement that changes or selects revocations."""

    def execute(statement: str, values: tuple[object, ...]) -> Any:
        rows = ledger.execute(statement, values)
        after()
        return rows

    made = SimpleNamespace(name=ledger.name, shared=ledger.shared, execute=execute)
    made.write = lambda work: work(made)
    return made


def test_a_token_that_is_revoked_just_after_a_look_up_is_rejected_from_then_on(
    ledger: Ledger, neighbours_ledger: Ledger, clock: SteppedClock
) -> None:
    neighbour = revocations_of(neighbours_ledger, clock)
    revokes = interrupted(ledger, lambda: neighbour.revoke("1f", int(clock()) + 60))
    revocations = revocations_of(revokes, clock)
    assert [revocations.is_revoked("1f", ledger.name) for _ in range(2)] == [False, True]


def test_a_revocation_whose_write_failed_half_way_counts_where_it_is_in_the_ledger(
    ledger: Ledger, neighbours_ledger: Ledger, clock: SteppedClock
) -> None:
    def fails() -> None:
        raise sqlite3.OperationalError("disk I/O error")

    neighbour = revocations_of(neighbours_ledger, clock)
    assert not neighbour.is_revoked("1f", ledger.name)
    with pytest.raises(LedgerUnavailable):
        revocations_of(interrupted(ledger, fails), clock).revoke("1f", int(clock()) + 60)
    assert neighbour.is_revoked("1f", ledger.name)


def test_a_token_that_is_known_to_be_valid_is_not_looked_up_again(
    ledger: Ledger, clock: SteppedClock
) -> None:
    revocations = revocations_of(ledger, clock)
    name = ledger.name
    assert not revocations.is_revoked("1f", name)
    ledger.execute("DROP TABLE revoked")
    assert not revocations.is_revoked("1f", name)


def test_a_revocation_lasts_as_long_as_its_token_and_outlives_a_clock_that_jumps(
    ledger: Ledger, clock: SteppedClock
) -> None:
    revocations = revocations_of(ledger, clock)
    # Twice is no error.
    for _ in range(2):
        revocations.revoke("1f", int(clock()) + 60)
    for passed in (59, 86_400):
        clock.now += passed
        revocations.revoke("2f", int(clock()) + 60)
    clock.now -= 86_400
    assert revocations.is_revoked("1f", ledger.name)


def test_of_many_revocations_the_newest_stay_and_of_the_others_those_that_have_not_expired(
    ledger: Ledger, clock: SteppedClock
) -> None:
    revocations = revocations_of(ledger, clock, kept=3)
    revocations.revoke("long", int(clock()) + 600)
    for number in range(5):
        revocations.revoke(str(number), int(clock()) + 60)
    clock.now += 61
    revocations.revoke("last", int(clock()) + 60)
    assert revocations.find_revoked(dict.fromkeys(["long", *map(str, range(5)), "last"], ledger.name)) == {
        "long",
        "3",
        "4",
        "last",
    }


def test_a_token_is_not_taken_for_valid_where_the_ledger_cannot_be_read(
    tmp_path: Path, ledger: Ledger, clock: SteppedClock
) -> None:
    revocations, name = revocations_of(ledger, clock), ledger.name
    lose(tmp_path / "ledger.sqlite")
    with pytest.raises(LedgerUnavailable):
        revocations.is_revoked("1f", name)


# A ledger that is damaged, removed or replaced while workers use it


def damage(path: Path) -> None:
    path.write_bytes(b"garbage" * 1000)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def restore(path: Path) -> None:
    """Puts a backup in its place: without the revocations since."""
    path.with_name("backup").replace(path)


@pytest.fixture
def revoked_since(
    tmp_path: Path, ledger: Ledger, neighbours_ledger: Ledger, clock: SteppedClock
) -> tuple[Revocations, Revocations]:
    """Both workers know tokens 1f and 2f, of which 2f was revoked after the backup."""
    both = revocations_of(ledger, clock), revocations_of(neighbours_ledger, clock)
    with closing(sqlite3.connect(tmp_path / "backup")) as backup:
        ledger.write(lambda connection: connection.backup(backup))
    both[0].revoke("2f", int(clock()) + 60)
    # Or SQLite would find all pages in its log, and miss nothing.
    ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    name = ledger.name
    assert [[one.is_revoked(jti, name) for jti in ("1f", "2f")] for one in both] == 2 * [[False, True]]
    return both


@pytest.mark.parametrize("fault", [damage, empty, Path.unlink, restore])
def test_all_tokens_end_with_their_ledger_in_each_worker_and_later_ones_count(
    tmp_path: Path,
    ledger: Ledger,
    revoked_since: tuple[Revocations, Revocations],
    clock: SteppedClock,
    fault: Callable[[Path], None],
) -> None:
    former = ledger.name
    fault(tmp_path / "ledger.sqlite")
    # SQLite notices damage when it reads the file: a new worker does.
    with closing(ledger_at(tmp_path / "ledger.sqlite", ledger.shared, clock)):
        for worker in revoked_since:
            assert worker.find_revoked({"1f": former, "2f": former}) == {"1f", "2f"}
            assert [worker.is_revoked(jti, former) for jti in ("1f", "2f")] == [True, True]
    one, other = revoked_since
    assert not one.is_revoked("3f", ledger.name)
    other.revoke("3f", int(clock()) + 60)
    assert one.is_revoked("3f", name := ledger.name)
    # It is stored in the ledger that took the place of the other.
    with closing(ledger_at(tmp_path / "ledger.sqlite", SharedState())) as later:
        assert (later.name, revocations_of(later, clock).is_revoked("3f", name)) == (name, True)


def test_a_damaged_ledger_is_kept_beside_the_new_one_and_the_log_says_so(
    tmp_path: Path, ledger: Ledger, clock: SteppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    damage(path)
    ledger_at(path, ledger.shared, clock).close()
    assert (tmp_path / "ledger.sqlite.damaged").read_bytes() == b"garbage" * 1000
    damaged, new = (record.getMessage() for record in caplog.records)
    assert f"{path}.damaged" in damaged
    assert "all users must log in again" in new


def test_a_worker_that_finds_the_new_ledger_of_another_worker_begins_none(
    ledger: Ledger, neighbours_ledger: Ledger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ledger.sqlite").unlink()
    assert ledger.name == neighbours_ledger.name == ledger.name
    assert len(caplog.records) == 1


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
    monkeypatch.setattr("gateway_api.auth.login._MAX_UNSAVED_CLIENTS", 100)
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
