"""Logging in: passwords, what they cost, and the queue before bcrypt."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import bcrypt
import pytest

from gateway_api.auth.login import Login, Throttle
from gateway_contract.base.errors import TooManyAttempts, WrongCredentials
from gateway_contract.core.configuration import LoginReply
from gateway_contract.passwords import read_cost, verify
from tests.support.documents import SECRET_HASH
from tests.support.logins import ALICE, HERE, Check, InlinePool, fail, log_in


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
