"""From a user's name and password to a user that the running configuration knows."""

from collections.abc import Callable
from typing import Protocol

from gateway_api.auth.passwords import NOBODYS_HASH, cost, verify
from gateway_api.auth.throttle import Throttle
from gateway_api.auth.turns import Turns
from gateway_api.daemon.commands import ApiAccess, User
from gateway_api.errors import WrongCredentials

#: Behind so many, a login would wait for seconds; the client had better come back. And one address
#: alone must not take all the places.
_MOST_WAITING = 16
_MOST_WAITING_FROM_ONE = 4
#: A name of any length would go into the ledger; no configured user's is longer.
_LONGEST_USERNAME = 64


class Pool(Protocol):
    """Runs a function on a thread of its own, and meanwhile lets others go on (gevent's ThreadPool)."""

    def apply(self, function: Callable[[str, str], bool], args: tuple[str, str]) -> bool: ...


class Login:
    """One password at a time is checked in each worker: bcrypt takes a whole core, and the other
    requests need it, too."""

    def __init__(self, throttle: Throttle, pool: Pool) -> None:
        self._throttle = throttle
        self._pool = pool
        self._turns = Turns(_MOST_WAITING, _MOST_WAITING_FROM_ONE)

    def authenticate(self, access: ApiAccess, username: str, password: str, address: str) -> User:
        """The user. Raises WrongCredentials and TooManyAttempts."""
        remembered = username[:_LONGEST_USERNAME].encode(errors="replace").decode()
        self._throttle.check(remembered, address)
        user = access.user(username)
        with self._turns.turn(address):
            # Again, for the many that came at once: each must see the failures before it.
            self._throttle.check(remembered, address)
            password_hash = user.password_hash if user else self._decoy(access)
            right = self._pool.apply(verify, (password, password_hash))
            if user is None or not right:
                self._throttle.failed(remembered, address)
                raise WrongCredentials
            self._throttle.succeeded(remembered, address)
        return user

    def _decoy(self, access: ApiAccess) -> str:
        """What somebody who isn't there has checked, so that the time doesn't tell: a hash that costs
        as much as the dearest of those who are."""
        hashes = (user.password_hash for user in access.users if cost(user.password_hash))
        return max(hashes, key=cost, default=NOBODYS_HASH)
