"""From a user's name and password to a user that the running configuration knows."""

from collections.abc import Callable

from gateway_api.auth.fair_queue import Turns
from gateway_api.auth.passwords import COST, cost, nobodys_hash, verify
from gateway_api.auth.throttle import Throttle
from gateway_api.base.errors import WrongCredentials
from gateway_api.base.threads import ThreadPool
from gateway_api.wire.core.configuration import ApiAccess, ApiUser

#: Behind so many, a login would wait for seconds; the client had better come back. And one address
#: alone must not take all the places.
_MOST_WAITING = 16
_MOST_WAITING_FROM_ONE = 4


class Login:
    """One password at a time is checked in each worker: bcrypt takes a whole core, and the other
    requests need it, too."""

    def __init__(
        self, throttle: Throttle, pool: ThreadPool, verify: Callable[[str, str], bool] = verify
    ) -> None:
        self._throttle = throttle
        self._pool = pool
        self._verify = verify
        self._turns = Turns(_MOST_WAITING, _MOST_WAITING_FROM_ONE)

    def authenticate(self, access: ApiAccess, username: str, password: str, address: str) -> ApiUser:
        """The user. Raises WrongCredentials and TooManyAttempts."""
        self._throttle.check(username, address)
        user = access.user(username)
        with self._turns.turn(address):
            # Again, for the many that came at once: each must see the failures before it.
            self._throttle.check(username, address)
            right = self._pool.apply(self._check, (password, _hashes(access, user)))
            if user is None or not right:
                self._throttle.failed(username, address)
                raise WrongCredentials
            self._throttle.succeeded(username, address)
        return user

    def _check(self, password: str, hashes: list[str]) -> bool:
        first, *others = hashes
        right = self._verify(password, first)
        for each in others:
            self._verify(password, each)
        return right


def _hashes(access: ApiAccess, user: ApiUser | None) -> list[str]:
    """What a password is checked against, so that the time doesn't tell whose it is: a user's hash, and after
    it hashes of nobody that add up to the cost of the dearest user's. A cost is a binary logarithm, so
    c, c + 1, ... m - 1 take as long as one of m, less one of c."""
    dearest = max((cost(each.password_hash) for each in access.users), default=0) or COST
    own = cost(user.password_hash) if user else 0
    if user is None or not own:
        return [nobodys_hash(dearest)]
    return [user.password_hash, *map(nobodys_hash, range(own, dearest))]
