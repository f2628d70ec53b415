"""Which tokens still authorize their users."""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import pytest

from gateway_api.auth.ledger import Ledger
from gateway_api.auth.tokens import Authorization, Claims
from gateway_contract.base.errors import CoreUnavailable
from gateway_contract.core.configuration import AccessReply, ApiUser, Role
from tests.support.clocks import SteppedClock
from tests.support.ledger import lose, revocations_of

ALICE = ApiUser("alice", Role.OPERATOR, "1")


class Core:
    """What the core replies: nothing while it is `gone`."""

    def __init__(self) -> None:
        self.enabled = True
        self.users = (ALICE,)
        self.gone = False

    def check_access(self, usernames: Iterable[str]) -> AccessReply:
        if self.gone:
            raise CoreUnavailable("gone")
        return AccessReply(self.enabled, tuple(user for user in self.users if user.username in usernames))


@pytest.fixture
def core() -> Core:
    return Core()


@pytest.fixture
def authorization(core: Core, ledger: Ledger, clock: SteppedClock) -> Authorization:
    return Authorization(core, revocations_of(ledger, clock), clock)  # type: ignore[arg-type]


class Issuer(Protocol):
    """Makes the claims of a token for a minute."""

    def __call__(self, jti: str = "1f", user: ApiUser = ALICE) -> Claims: ...


@pytest.fixture
def token(ledger: Ledger, clock: SteppedClock) -> Issuer:
    def issue(jti: str = "1f", user: ApiUser = ALICE) -> Claims:
        now = int(clock())
        return Claims(
            "gateway-api", user.username, user.role, user.generation, ledger.name, now, now + 60, jti
        )

    return issue


@pytest.fixture(params=[False, True], ids=["with a core", "without a core"])
def either_way(core: Core, request: pytest.FixtureRequest) -> None:
    core.gone = request.param


def test_an_expired_token_authorizes_no_longer(
    authorization: Authorization, token: Issuer, clock: SteppedClock, either_way: None
) -> None:
    old = token()
    assert authorization.check_tokens([old]) == [True]
    clock.now += 60
    assert authorization.check_tokens([old, token("2f")]) == [False, True]


def test_a_revoked_token_authorizes_no_longer(
    authorization: Authorization, token: Issuer, ledger: Ledger, clock: SteppedClock, either_way: None
) -> None:
    revocations_of(ledger, clock).revoke("1f", int(clock()) + 60)
    assert authorization.check_tokens([token(), token("2f")]) == [False, True]


def test_without_a_ledger_an_expired_token_and_a_changed_user_end_a_stream(
    authorization: Authorization, token: Issuer, core: Core, clock: SteppedClock, tmp_path: Path
) -> None:
    bob = ApiUser("bob", Role.OPERATOR, "1")
    core.users = (ALICE, bob)
    old, of_bob = token(), token("2f", bob)
    clock.now += 30
    new = token("3f")
    lose(tmp_path / "ledger.sqlite")
    assert authorization.check_tokens([old, of_bob, new]) == [True, True, True]
    core.users = (ALICE,)
    assert authorization.check_tokens([old, of_bob, new]) == [True, False, True]
    clock.now += 30
    assert authorization.check_tokens([old, of_bob, new]) == [False, False, True]


@pytest.mark.parametrize(
    "user",
    [
        ApiUser("alice", Role.OPERATOR, "2"),
        ApiUser("alice", Role.ADMIN, "1"),
        ApiUser("bob", Role.OPERATOR, "1"),
    ],
    ids=["another generation", "another role", "another user"],
)
def test_a_token_authorizes_only_the_user_that_it_was_issued_for(
    authorization: Authorization, token: Issuer, core: Core, clock: SteppedClock, user: ApiUser
) -> None:
    core.users = (user,)
    assert authorization.check_tokens([token(), token("2f", user)]) == [False, True]
    access = core.check_access(["alice", "bob"])
    assert authorization.find_rejection(token(), access) == "the user was deleted or changed since the login"
    assert authorization.find_rejection(token("2f", user), access) is None


def test_no_token_authorizes_while_the_api_is_disabled(
    authorization: Authorization, token: Issuer, core: Core, clock: SteppedClock
) -> None:
    core.enabled = False
    assert authorization.check_tokens([token()]) == [False]
