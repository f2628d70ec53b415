"""Logging in: who is let in, who has to wait, and which tokens were given back."""

import multiprocessing
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import bcrypt
import pytest

from gateway_api.auth.ledger import open_ledger, prepare_ledger
from gateway_api.auth.login import Login
from gateway_api.auth.revocations import Revocations
from gateway_api.auth.throttle import Throttle
from gateway_api.daemon.commands import ApiAccess, User
from gateway_api.errors import TooManyAttempts, WrongCredentials
from tests.conftest import SECRET_HASH

HERE = "192.0.2.1"
ELSEWHERE = "192.0.2.2"
ALICE = User("alice", SECRET_HASH, "admin", "1")
ACCESS = ApiAccess(True, 3600, [ALICE, *(User(f"user{n}", SECRET_HASH, "operator", "1") for n in range(40))])

Check = Callable[[str, str], bool]


class Clock:
    """Epoch seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


class InlinePool:
    """Runs each check at once and remembers it. Holds checks back while `gate` is closed."""

    def __init__(self) -> None:
        self.checked: list[tuple[str, str]] = []
        self.at_once = 0
        self.most_at_once = 0
        self.gate = threading.Event()
        self.gate.set()

    def apply(self, function: Check, args: tuple[str, str]) -> bool:
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        self.checked.append(args)
        assert self.gate.wait(20)
        try:
            return function(*args)
        finally:
            self.at_once -= 1


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pool() -> InlinePool:
    return InlinePool()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_ledger(tmp_path / "ledger.sqlite")) as made:
        yield made


@pytest.fixture
def neighbours_ledger(tmp_path: Path, ledger: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """The same file as another worker has it."""
    with closing(open_ledger(tmp_path / "ledger.sqlite")) as made:
        yield made


@pytest.fixture
def throttle(ledger: sqlite3.Connection, clock: Clock) -> Throttle:
    return Throttle(ledger, clock)


@pytest.fixture
def login(throttle: Throttle, pool: InlinePool) -> Login:
    return Login(throttle, pool)


def fail(login: Login, times: int, username: str = "alice", address: str = HERE) -> None:
    for _ in range(times):
        with pytest.raises(WrongCredentials):
            login.authenticate(ACCESS, username, "wrong", address)


def pause(throttle: Throttle, username: str = "alice", address: str = HERE) -> int:
    """The seconds that this caller is told to wait."""
    try:
        throttle.check(username, address)
    except TooManyAttempts as error:
        return error.retry_after
    return 0


def test_the_right_password_gives_the_user(login: Login) -> None:
    assert login.authenticate(ACCESS, "alice", "secret", HERE) == ALICE


def test_a_wrong_password_is_refused(login: Login) -> None:
    with pytest.raises(WrongCredentials):
        login.authenticate(ACCESS, "alice", "Secret", HERE)


def test_an_unknown_user_is_refused_as_a_wrong_password_is(login: Login) -> None:
    with pytest.raises(WrongCredentials):
        login.authenticate(ACCESS, "nobody", "secret", HERE)


def test_a_wrong_password_takes_bcrypt_once(login: Login, pool: InlinePool) -> None:
    fail(login, 1)
    assert pool.checked == [("wrong", SECRET_HASH)]


def test_an_unknown_user_takes_bcrypt_once(login: Login, pool: InlinePool) -> None:
    fail(login, 1, username="nobody")
    assert [password for password, _ in pool.checked] == ["wrong"]


def test_an_unknown_user_costs_as_much_as_the_dearest_known_one(login: Login, pool: InlinePool) -> None:
    dear = bcrypt.hashpw(b"secret", bcrypt.gensalt(6)).decode()
    users = [ALICE, User("bob", dear, "operator", "1"), User("carol", SECRET_HASH, "operator", "1")]
    with pytest.raises(WrongCredentials):
        login.authenticate(ApiAccess(True, 3600, users), "nobody", "wrong", HERE)
    assert pool.checked == [("wrong", dear)]


def test_an_unknown_user_where_nobody_is_known_takes_bcrypt_at_its_usual_cost(
    login: Login, pool: InlinePool
) -> None:
    with pytest.raises(WrongCredentials):
        login.authenticate(ApiAccess(True, 3600, []), "nobody", "wrong", HERE)
    assert [used[:7] for _, used in pool.checked] == ["$2b$12$"]


@pytest.mark.parametrize("broken", ["", "x", "$2b$99$" + "a" * 53, "not 99 hash"])
def test_an_unknown_user_takes_a_real_hash_where_a_known_one_has_a_broken_one(
    login: Login, pool: InlinePool, broken: str
) -> None:
    users = [User("bob", broken, "operator", "1"), ALICE]
    with pytest.raises(WrongCredentials):
        login.authenticate(ApiAccess(True, 3600, users), "nobody", "wrong", HERE)
    assert pool.checked == [("wrong", SECRET_HASH)]


@pytest.mark.parametrize("password", ["secret", "nobody's", "-", ""])
def test_no_password_lets_an_unknown_user_in(login: Login, password: str) -> None:
    with pytest.raises(WrongCredentials):
        login.authenticate(ACCESS, "nobody", password, HERE)


def test_a_user_whose_hash_is_broken_is_refused(login: Login) -> None:
    broken = ApiAccess(True, 3600, [User("alice", "not a hash", "admin", "1")])
    with pytest.raises(WrongCredentials):
        login.authenticate(broken, "alice", "secret", HERE)


@pytest.mark.parametrize("username", ["", "\0", "\ud800", "x" * 100_000, "' OR 1=1 --"])
def test_any_text_for_a_name_is_an_unknown_user(login: Login, username: str) -> None:
    fail(login, 1, username=username)


def test_five_failures_are_free(login: Login) -> None:
    fail(login, 5)


def test_the_sixth_attempt_has_to_wait(login: Login) -> None:
    fail(login, 5)
    with pytest.raises(TooManyAttempts):
        login.authenticate(ACCESS, "alice", "secret", HERE)


def test_an_attempt_that_has_to_wait_does_not_take_bcrypt(login: Login, pool: InlinePool) -> None:
    fail(login, 5)
    with pytest.raises(TooManyAttempts):
        login.authenticate(ACCESS, "alice", "secret", HERE)
    assert len(pool.checked) == 5


def test_an_unknown_user_has_to_wait_as_a_known_one_has(login: Login) -> None:
    fail(login, 5, username="nobody")
    with pytest.raises(TooManyAttempts):
        login.authenticate(ACCESS, "nobody", "wrong", HERE)


def test_names_that_agree_in_what_is_remembered_wait_together(login: Login) -> None:
    for number in range(5):
        fail(login, 1, username="x" * 64 + str(number))
    with pytest.raises(TooManyAttempts):
        login.authenticate(ACCESS, "x" * 64, "wrong", HERE)


def test_the_pause_doubles_with_each_failure_up_to_five_minutes(throttle: Throttle, clock: Clock) -> None:
    pauses = []
    for _ in range(16):
        throttle.failed("alice", HERE)
        pauses.append(pause(throttle))
        clock.now += pauses[-1]
    assert pauses == [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_after_very_many_failures_the_pause_is_still_five_minutes(throttle: Throttle) -> None:
    for _ in range(1100):
        throttle.failed("alice", HERE)
    assert pause(throttle) == 300


def test_the_pause_lasts_until_its_end(throttle: Throttle, clock: Clock) -> None:
    for _ in range(8):
        throttle.failed("alice", HERE)
    clock.now += 7.5
    assert pause(throttle) == 1
    clock.now += 0.5
    assert pause(throttle) == 0


def test_after_the_pause_one_more_failure_makes_a_longer_one(login: Login, clock: Clock) -> None:
    fail(login, 5)
    clock.now += 1
    fail(login, 1)
    with pytest.raises(TooManyAttempts) as caught:
        login.authenticate(ACCESS, "alice", "secret", HERE)
    assert caught.value.retry_after == 2


def test_a_success_clears_the_failures(login: Login) -> None:
    fail(login, 4)
    login.authenticate(ACCESS, "alice", "secret", HERE)
    fail(login, 5)


def test_fifteen_minutes_without_a_failure_clear_them(login: Login, clock: Clock) -> None:
    fail(login, 4)
    clock.now += 901
    fail(login, 5)


def test_another_address_is_not_affected(login: Login) -> None:
    fail(login, 5)
    assert login.authenticate(ACCESS, "alice", "secret", ELSEWHERE) == ALICE


def test_a_success_elsewhere_does_not_end_the_pause_here(login: Login, throttle: Throttle) -> None:
    fail(login, 5)
    login.authenticate(ACCESS, "alice", "secret", ELSEWHERE)
    assert pause(throttle) == 1


def test_another_user_at_the_same_address_is_not_affected(login: Login) -> None:
    fail(login, 5)
    assert login.authenticate(ACCESS, "user1", "secret", HERE).username == "user1"


def test_the_pause_is_the_same_in_both_workers(
    throttle: Throttle, neighbours_ledger: sqlite3.Connection, clock: Clock
) -> None:
    for _ in range(7):
        throttle.failed("alice", HERE)
    assert pause(Throttle(neighbours_ledger, clock)) == pause(throttle) == 4


def test_failures_in_both_workers_add_up(
    throttle: Throttle, neighbours_ledger: sqlite3.Connection, clock: Clock
) -> None:
    neighbour = Throttle(neighbours_ledger, clock)
    for each in (throttle, neighbour, throttle, neighbour, throttle):
        each.failed("alice", HERE)
    assert pause(throttle) == 1


def test_a_success_in_one_worker_ends_the_pause_in_both(
    throttle: Throttle, neighbours_ledger: sqlite3.Connection, clock: Clock
) -> None:
    for _ in range(7):
        throttle.failed("alice", HERE)
    Throttle(neighbours_ledger, clock).succeeded("alice", HERE)
    assert pause(throttle) == 0


def test_the_failures_outlive_a_worker(tmp_path: Path, clock: Clock) -> None:
    with closing(open_ledger(tmp_path / "ledger.sqlite")) as ledger:
        for _ in range(7):
            Throttle(ledger, clock).failed("alice", HERE)
    with closing(open_ledger(tmp_path / "ledger.sqlite")) as ledger:
        assert pause(Throttle(ledger, clock)) == 4


def test_a_clock_that_was_stepped_back_does_not_make_the_pause_longer(
    throttle: Throttle, clock: Clock
) -> None:
    for _ in range(7):
        throttle.failed("alice", HERE)
    clock.now -= 3600
    # The first look at the new time may start the pause anew, and no more than that.
    assert pause(throttle) <= 4
    clock.now += 4
    assert pause(throttle) == 0


def together(
    login: Login, pool: InlinePool, attempts: int, password: str, addresses: int, refused: int = 1
) -> list[str]:
    """What comes of so many logins at once, from so many addresses in turn. Each user and address is
    another, unless there is one address. No check ends before so many logins were sent away."""
    pool.gate.clear()
    sent_away = threading.Semaphore(0)

    def attempt(number: int) -> str:
        username = "alice" if addresses == 1 else f"user{number}"
        try:
            login.authenticate(ACCESS, username, password, f"192.0.2.{number % addresses}")
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
        users = threads.map(
            lambda n: login.authenticate(ACCESS, f"user{n}", "secret", f"10.0.0.{n}"), range(10)
        )
        assert len(list(users)) == 10
    assert pool.most_at_once == 1


def test_the_seventeenth_waiting_login_is_sent_away(login: Login, pool: InlinePool) -> None:
    assert together(login, pool, 17, "secret", addresses=17) == ["TooManyAttempts", *["in"] * 16]


def test_the_fifth_waiting_login_from_one_address_is_sent_away(login: Login, pool: InlinePool) -> None:
    assert together(login, pool, 5, "secret", addresses=1) == ["TooManyAttempts", *["in"] * 4]


def test_a_full_line_from_one_address_leaves_places_for_others(login: Login, pool: InlinePool) -> None:
    outcomes = together(login, pool, 10, "secret", addresses=2, refused=2)
    assert outcomes == ["TooManyAttempts"] * 2 + ["in"] * 8


def test_sixteen_waiting_logins_are_all_looked_at(login: Login) -> None:
    with ThreadPoolExecutor(16) as threads:
        users = threads.map(
            lambda n: login.authenticate(ACCESS, f"user{n}", "secret", f"10.0.0.{n}"), range(16)
        )
        assert len(list(users)) == 16


def test_a_login_that_waited_in_line_counts_the_failures_before_it(login: Login, pool: InlinePool) -> None:
    fail(login, 3, address="192.0.2.0")
    outcomes = together(login, pool, 5, "wrong", addresses=1)
    assert outcomes == ["TooManyAttempts"] * 3 + ["WrongCredentials"] * 2
    assert len(pool.checked) == 5


def test_a_login_whose_check_broke_leaves_its_place(throttle: Throttle, pool: InlinePool) -> None:
    class Breaking(InlinePool):
        def apply(self, function: Check, args: tuple[str, str]) -> bool:
            if args[0] == "break":
                raise RuntimeError
            return super().apply(function, args)

    login = Login(throttle, Breaking())
    for _ in range(20):
        with pytest.raises(RuntimeError):
            login.authenticate(ACCESS, "alice", "break", HERE)
    assert login.authenticate(ACCESS, "alice", "secret", HERE) == ALICE


def test_a_token_that_nobody_gave_back_is_not_revoked(ledger: sqlite3.Connection, clock: Clock) -> None:
    assert not Revocations(ledger, clock).is_revoked("1f")


def test_a_token_that_was_given_back_is_revoked_in_both_workers(
    ledger: sqlite3.Connection, neighbours_ledger: sqlite3.Connection, clock: Clock
) -> None:
    Revocations(ledger, clock).revoke("1f", int(clock()) + 60)
    assert [Revocations(each, clock).is_revoked("1f") for each in (ledger, neighbours_ledger)] == [True, True]


def test_revoking_one_token_revokes_no_other(ledger: sqlite3.Connection, clock: Clock) -> None:
    Revocations(ledger, clock).revoke("1f", int(clock()) + 60)
    assert not Revocations(ledger, clock).is_revoked("2f")


def test_revoking_a_token_twice_is_no_error(ledger: sqlite3.Connection, clock: Clock) -> None:
    for _ in range(2):
        Revocations(ledger, clock).revoke("1f", int(clock()) + 60)
    assert Revocations(ledger, clock).is_revoked("1f")


def test_a_revocation_lasts_as_long_as_its_token(ledger: sqlite3.Connection, clock: Clock) -> None:
    revocations = Revocations(ledger, clock)
    revocations.revoke("1f", int(clock()) + 60)
    clock.now += 59
    revocations.revoke("2f", int(clock()) + 60)
    assert revocations.is_revoked("1f")


def test_revocations_of_tokens_that_have_expired_do_not_pile_up(
    ledger: sqlite3.Connection, clock: Clock
) -> None:
    revocations = Revocations(ledger, clock)
    for number in range(10):
        revocations.revoke(str(number), int(clock()) + 60)
    clock.now += 61
    revocations.revoke("last", int(clock()) + 60)
    assert ledger.execute("SELECT jti FROM revoked").fetchall() == [("last",)]


def test_a_prepared_ledger_and_what_lies_beside_it_are_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    prepare_ledger(path)
    with closing(open_ledger(path)) as ledger:
        ledger.execute("INSERT INTO revoked VALUES ('1f', 1)")
        modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert modes == {"ledger.sqlite": 0o600, "ledger.sqlite-wal": 0o600, "ledger.sqlite-shm": 0o600}


def test_preparing_a_ledger_again_keeps_what_it_knows(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "ledger.sqlite"
    prepare_ledger(path)
    with closing(open_ledger(path)) as ledger:
        Revocations(ledger, clock).revoke("1f", int(clock()) + 60)
    prepare_ledger(path)
    with closing(open_ledger(path)) as ledger:
        assert Revocations(ledger, clock).is_revoked("1f")


@pytest.mark.parametrize("broken", [b"garbage" * 1000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_broken_ledger_is_begun_anew(tmp_path: Path, clock: Clock, broken: bytes) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(broken)
    prepare_ledger(path)
    with closing(open_ledger(path)) as ledger:
        assert not Revocations(ledger, clock).is_revoked("1f")
    assert path.stat().st_mode & 0o777 == 0o600


def _open_together(folder: str, rounds: int, start: threading.Barrier) -> None:
    errors = []
    for turn in range(rounds):
        start.wait(20)
        try:
            open_ledger(Path(folder) / f"{turn}.sqlite").close()
        except sqlite3.Error as error:
            errors.append(error)
    if errors:
        sys.exit(f"{len(errors)} of {rounds}: {errors[0]!r}")


def test_workers_that_start_together_all_open_the_ledger(tmp_path: Path) -> None:
    rounds, workers = 60, 8
    for turn in range(rounds):
        prepare_ledger(tmp_path / f"{turn}.sqlite")
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(workers)
    started = [
        context.Process(target=_open_together, args=(str(tmp_path), rounds, start)) for _ in range(workers)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(40)
    assert [process.exitcode for process in started] == [0] * workers
