"""Logging in: passwords, pauses after failures, and the queue before bcrypt."""

import sqlite3
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import bcrypt
import pytest

from gateway_api.auth.ledger import open_ledger
from gateway_api.auth.login import Login
from gateway_api.auth.passwords import cost, verify
from gateway_api.auth.throttle import Failures, Throttle
from gateway_api.base.errors import TooManyAttempts, WrongCredentials
from gateway_api.wire.core.configuration import ApiUser, LoginReply, Role
from tests.support.clocks import SteppedClock
from tests.support.documents import SECRET_HASH
from tests.support.ledger import SamePool

HERE = "192.0.2.1"
ELSEWHERE = "192.0.2.2"
ALICE = ApiUser("alice", Role.OPERATOR, "1")
HASHES = {"alice": SECRET_HASH, **{f"user{number}": SECRET_HASH for number in range(40)}}

SECRET = b"a secret of at least thirty-two bytes"

Check = Callable[[str, list[str]], bool]


def log_in(
    login: Login, username: str, password: str, address: str, hashes: dict[str, str] = HASHES
) -> ApiUser:
    """As the core replies that has users with these hashes."""
    held = hashes.get(username)
    user = ApiUser(username, Role.OPERATOR, "1") if held else None
    highest = max(map(cost, hashes.values()), default=None)
    return login.authenticate(LoginReply(3600, user, held, highest), username, password, address)


class InlinePool:
    """Runs each check at once and remembers the hashes. Holds checks back while `gate` is closed."""

    def __init__(self) -> None:
        self.checked: list[tuple[str, str]] = []
        self.at_once = 0
        self.most_at_once = 0
        self.gate = threading.Event()
        self.gate.set()

    def apply(self, function: Check, args: tuple[str, list[str]]) -> bool:
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        password, hashes = args
        self.checked += [(password, each) for each in hashes]
        assert self.gate.wait(20)
        try:
            return function(*args)
        finally:
            self.at_once -= 1


@pytest.fixture
def pool() -> InlinePool:
    return InlinePool()


@pytest.fixture
def throttle(ledger: sqlite3.Connection, clock: SteppedClock) -> Throttle:
    return throttle_of(ledger, clock)


def throttle_of(ledger: sqlite3.Connection, clock: SteppedClock) -> Throttle:
    return Throttle(Failures(ledger, SECRET), clock)


@pytest.fixture
def login(throttle: Throttle, pool: InlinePool) -> Login:
    return Login(throttle, pool)


def fail(login: Login, times: int, username: str = "alice", address: str = HERE) -> None:
    for _ in range(times):
        with pytest.raises(WrongCredentials):
            log_in(login, username, "wrong", address)


def pause(throttle: Throttle, username: str = "alice", address: str = HERE) -> int:
    """The seconds that this caller is told to wait."""
    try:
        throttle.check(username, address)
    except TooManyAttempts as error:
        return error.retry_after
    return 0


def test_the_right_password_gives_the_user(login: Login) -> None:
    assert log_in(login, "alice", "secret", HERE) == ALICE


def test_a_wrong_password_is_refused(login: Login) -> None:
    with pytest.raises(WrongCredentials):
        log_in(login, "alice", "Secret", HERE)


def test_an_unknown_user_is_refused_as_a_wrong_password_is(login: Login) -> None:
    with pytest.raises(WrongCredentials):
        log_in(login, "nobody", "secret", HERE)


def test_a_wrong_password_takes_bcrypt_once(login: Login, pool: InlinePool) -> None:
    fail(login, 1)
    assert pool.checked == [("wrong", SECRET_HASH)]


def test_an_unknown_user_takes_bcrypt_once(login: Login, pool: InlinePool) -> None:
    fail(login, 1, username="nobody")
    assert [password for password, _ in pool.checked] == ["wrong"]


def test_an_unknown_user_costs_as_much_as_the_dearest_known_one(login: Login, pool: InlinePool) -> None:
    dear = bcrypt.hashpw(b"secret", bcrypt.gensalt(6)).decode()
    hashes = {"alice": SECRET_HASH, "bob": dear, "carol": SECRET_HASH}
    with pytest.raises(WrongCredentials):
        log_in(login, "nobody", "wrong", HERE, hashes)
    assert [cost(used) for _, used in pool.checked] == [6]


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
def test_whoever_logs_in_takes_as_many_rounds_as_the_dearest_hash(
    throttle: Throttle, pool: InlinePool, username: str, password: str
) -> None:
    rounds = []

    def counting(password: str, password_hash: str) -> bool:
        rounds.append(2 ** cost(password_hash))
        return verify(password, password_hash)

    with suppress(WrongCredentials):
        log_in(Login(throttle, pool, counting), username, password, HERE, OF_ALL_COSTS)
    assert sum(rounds) == 1024


def test_a_cheap_hash_takes_as_long_as_a_dear_one_and_as_nobody_s(throttle: Throttle) -> None:
    login = Login(throttle, SamePool())
    spent: dict[str, list[float]] = {"cost4": [], "cost10": [], "nobody": []}
    # In turn, and in processor time: what else the machine does must not count.
    for number in range(9):
        for username, times in spent.items():
            began = time.thread_time()
            with pytest.raises(WrongCredentials):
                log_in(login, username, "wrong", f"192.0.2.{number}", OF_ALL_COSTS)
            times.append(time.thread_time() - began)
    medians = [statistics.median(times) for times in spent.values()]
    assert max(medians) / min(medians) < 1.5


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
    assert [cost(used) for _, used in pool.checked] == [5]


@pytest.mark.parametrize("username", ["", "\0", "\ud800", "x" * 100_000, "' OR 1=1 --"])
def test_any_text_for_a_name_is_an_unknown_user(login: Login, username: str) -> None:
    fail(login, 1, username=username)


def test_five_failures_are_free(login: Login) -> None:
    fail(login, 5)


def test_the_sixth_attempt_has_to_wait(login: Login) -> None:
    fail(login, 5)
    with pytest.raises(TooManyAttempts):
        log_in(login, "alice", "secret", HERE)


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


def test_after_very_many_failures_the_pause_is_still_five_minutes(throttle: Throttle) -> None:
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


def test_what_stands_for_a_client_cannot_be_computed_without_the_secret(ledger: sqlite3.Connection) -> None:
    clients = {Failures(ledger, secret).client("alice", HERE) for secret in (SECRET, SECRET[:-1])}
    assert len(clients) == 2


def test_another_user_at_the_same_address_is_not_affected(login: Login) -> None:
    fail(login, 5)
    assert log_in(login, "user1", "secret", HERE).username == "user1"


def test_the_pause_is_the_same_in_both_workers(
    throttle: Throttle, neighbours_ledger: sqlite3.Connection, clock: SteppedClock
) -> None:
    for _ in range(7):
        throttle.failed("alice", HERE)
    assert pause(throttle_of(neighbours_ledger, clock)) == pause(throttle) == 4


def test_failures_in_both_workers_add_up(
    throttle: Throttle, neighbours_ledger: sqlite3.Connection, clock: SteppedClock
) -> None:
    neighbour = throttle_of(neighbours_ledger, clock)
    for each in (throttle, neighbour, throttle, neighbour, throttle):
        each.failed("alice", HERE)
    assert pause(throttle) == 1


def test_a_success_in_one_worker_ends_the_pause_in_both(
    throttle: Throttle, neighbours_ledger: sqlite3.Connection, clock: SteppedClock
) -> None:
    for _ in range(7):
        throttle.failed("alice", HERE)
    throttle_of(neighbours_ledger, clock).succeeded("alice", HERE)
    assert pause(throttle) == 0


def test_after_a_success_in_one_worker_failures_in_another_count_in_both(
    throttle: Throttle, neighbours_ledger: sqlite3.Connection, clock: SteppedClock
) -> None:
    throttle.failed("alice", HERE)
    throttle.succeeded("alice", HERE)
    neighbour = throttle_of(neighbours_ledger, clock)
    for _ in range(7):
        neighbour.failed("alice", HERE)
    assert pause(throttle) == pause(neighbour) == 4


def test_a_worker_without_a_ledger_counts_the_newest_of_very_many_clients(
    ledger: sqlite3.Connection, clock: SteppedClock
) -> None:
    throttle = throttle_of(ledger, clock)
    ledger.close()
    for number in range(10_001):
        throttle.failed(f"user{number}", HERE)
    for _ in range(6):
        throttle.failed("user10000", HERE)
    assert pause(throttle, "user10000") == 4


def test_the_failures_outlive_a_worker(tmp_path: Path, clock: SteppedClock) -> None:
    with closing(open_ledger(tmp_path / "ledger.sqlite")) as ledger:
        for _ in range(7):
            throttle_of(ledger, clock).failed("alice", HERE)
    with closing(open_ledger(tmp_path / "ledger.sqlite")) as ledger:
        assert pause(throttle_of(ledger, clock)) == 4


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process writes, and its disk is slow, until the end of the block."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@pytest.fixture
def unsynced(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """The ledger as the event loop has it."""
    with closing(open_ledger(tmp_path / "ledger.sqlite", synced=False)) as made:
        yield made


def test_a_failure_while_the_ledger_is_locked_is_counted_at_once(
    tmp_path: Path, unsynced: sqlite3.Connection, clock: SteppedClock
) -> None:
    throttle = throttle_of(unsynced, clock)
    took = []
    with locked(tmp_path / "ledger.sqlite"):
        for _ in range(5):
            began = time.monotonic()
            throttle.failed("alice", HERE)
            took.append(time.monotonic() - began)
        assert pause(throttle) == 1
    # The worker does nothing else meanwhile.
    assert min(took) < 0.25
    throttle.failed("alice", HERE)
    assert pause(throttle_of(unsynced, clock)) == 2


def test_a_ledger_that_is_locked_now_and_then_is_one_warning_and_no_error(
    tmp_path: Path, unsynced: sqlite3.Connection, clock: SteppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    throttle = throttle_of(unsynced, clock)
    for _ in range(3):
        with locked(tmp_path / "ledger.sqlite"):
            throttle.failed("alice", HERE)
        throttle.failed("alice", HERE)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "locked" in caplog.text


def test_a_ledger_that_breaks_after_it_was_locked_is_an_error(
    tmp_path: Path, unsynced: sqlite3.Connection, clock: SteppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    throttle = throttle_of(unsynced, clock)
    with locked(tmp_path / "ledger.sqlite"):
        throttle.failed("alice", HERE)
    unsynced.execute("DROP TABLE failure")
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
            log_in(login, username, password, f"192.0.2.{number % addresses}")
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


def test_a_full_line_from_one_address_leaves_places_for_others(login: Login, pool: InlinePool) -> None:
    outcomes = together(login, pool, 10, "secret", addresses=2, refused=2)
    assert outcomes == ["TooManyAttempts"] * 2 + ["in"] * 8


def test_sixteen_waiting_logins_are_all_looked_at(login: Login) -> None:
    with ThreadPoolExecutor(16) as threads:
        users = threads.map(lambda n: log_in(login, f"user{n}", "secret", f"10.0.0.{n}"), range(16))
        assert len(list(users)) == 16


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
