"""Checks a user's password."""

from collections.abc import Callable

from gateway_api.auth.passwords import COST, cost, decoy_hash, verify
from gateway_api.auth.throttle import Throttle
from gateway_api.base.errors import TooManyAttempts, WrongCredentials
from gateway_api.base.fair_queue import FairQueue
from gateway_api.base.process import ThreadPool
from gateway_api.base.texts import client_network
from gateway_api.wire.core.configuration import ApiUser, LoginReply

#: Logins in the queue, and those of one address. More would wait for seconds.
_MOST_WAITING = 16
_MOST_WAITING_FROM_ONE = 4
#: Seconds after which a rejected client should try again.
_RETRY_AFTER = 2


class Login:
    """Each worker checks one password at a time, as bcrypt uses a whole processor core."""

    def __init__(
        self, throttle: Throttle, pool: ThreadPool, verify: Callable[[str, str], bool] = verify
    ) -> None:
        self._throttle = throttle
        self._pool = pool
        self._verify = verify
        self._turns = FairQueue(_MOST_WAITING, _MOST_WAITING_FROM_ONE, lambda: TooManyAttempts(_RETRY_AFTER))

    def authenticate(self, known: LoginReply, username: str, password: str, address: str) -> ApiUser:
        """The user. `known` is the core's reply for the name. Raises WrongCredentials and TooManyAttempts."""
        self._throttle.check(username, address)
        with self._turns.turn(client_network(address)):
            # Again, as other logins may have failed in the meantime.
            self._throttle.check(username, address)
            right = self._pool.apply(self._check, (password, _hashes(known)))
            if known.user is None or not right:
                self._throttle.failed(username, address)
                raise WrongCredentials
            self._throttle.succeeded(username, address)
        return known.user

    def _check(self, password: str, hashes: list[str]) -> bool:
        first, *others = hashes
        right = self._verify(password, first)
        for each in others:
            self._verify(password, each)
        return right


def _hashes(known: LoginReply) -> list[str]:
    """The hashes to check a password against. The time must not tell whether the name is a user's, so hashes
    of no password follow the user's, up to the time of the highest cost of all users. Costs are binary
    logarithms: c, c, c + 1, ... m - 1 take as long as m."""
    highest = known.highest_cost or COST
    own = cost(known.password_hash or "")
    if known.password_hash is None or not own:
        return [decoy_hash(highest)]
    return [known.password_hash, *map(decoy_hash, range(own, highest))]
