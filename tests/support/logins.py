"""Logins of tests: who they are of, with what they are checked, and how they fail."""

import threading
from collections.abc import Callable

import pytest

from gateway_api.auth.ledger import Ledger
from gateway_api.auth.login import Login, Throttle
from gateway_contract.base.errors import TooManyAttempts, WrongCredentials
from gateway_contract.core.configuration import ApiUser, LoginReply, Role
from gateway_contract.passwords import read_cost
from tests.support.clocks import SteppedClock
from tests.support.documents import SECRET_HASH

HERE = "192.0.2.1"
ELSEWHERE = "192.0.2.2"
ALICE = ApiUser("alice", Role.OPERATOR, "1")
HASHES = {"alice": SECRET_HASH, **{f"user{number}": SECRET_HASH for number in range(40)}}

SECRET = b"a secret of at least thirty-two bytes"

Check = Callable[[str, list[str]], bool]


def log_in(
    login: Login, username: str, password: str, address: str, hashes: dict[str, str] = HASHES
) -> ApiUser:
    """Log in, against a core that has users with these hashes."""
    held = hashes.get(username)
    user = ApiUser(username, Role.OPERATOR, "1") if held else None
    highest = max(map(read_cost, hashes.values()), default=None)
    return login.authenticate(LoginReply(3600, user, held, highest), username, password, address)


class InlinePool:
    """Pool that runs each check at once, notes the hashes, and holds checks while `gate` is closed."""

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


def throttle_of(ledger: Ledger, clock: SteppedClock) -> Throttle:
    return Throttle(ledger, SECRET, clock)


def fail(login: Login, times: int, username: str = "alice", address: str = HERE) -> None:
    for _ in range(times):
        with pytest.raises(WrongCredentials):
            log_in(login, username, "wrong", address)


def pause(throttle: Throttle, username: str = "alice", address: str = HERE) -> int:
    """Return the seconds that this caller is told to wait."""
    try:
        throttle.check(username, address)
    except TooManyAttempts as error:
        return error.retry_after
    return 0
