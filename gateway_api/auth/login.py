"""Logins: the check of a password, and pauses for clients after several failed logins in a row.

A client is a user name and a network: with the name alone, anyone could lock an operator out.
"""

import hmac
import logging
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from gateway_api.auth.ledger import Ledger
from gateway_contract.base.databases import get_result_code
from gateway_contract.base.errors import TooManyAttempts, WrongCredentials
from gateway_contract.base.process import ThreadPool
from gateway_contract.base.texts import identify_client
from gateway_contract.base.turns import FairQueue
from gateway_contract.core.configuration import ApiUser, LoginReply
from gateway_contract.passwords import COST, make_decoy_hash, read_cost, verify

#: Clients that a worker counts in memory while it cannot write to the ledger.
_MAX_UNSAVED = 10_000
#: The failure that begins the pauses.
_FIRST_PAUSED = 5
_MAX_PAUSE_SECONDS = 300.0
#: Seconds after the last failure until all failures of the client are forgotten.
_FORGET_SECONDS = 900.0

#: Logins in the queue, and those of one address. More would wait for seconds.
_MAX_WAITING = 16
_MAX_WAITING_OF_ADDRESS = 4
#: Seconds after which a rejected client should try again.
_RETRY_AFTER = 2

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FailureCount:
    """Failures of a client in a row: their number, and the time of the last one in epoch seconds."""

    count: int
    last: float


_NO_FAILURES = FailureCount(0, 0.0)


class Throttle:
    """Pauses of clients. The fifth failure in a row begins a pause of 1 s. Each further one doubles the
    pause, up to 5 minutes. `clock` gives epoch seconds.

    The failures are in the ledger for all workers, or in the worker's memory while it cannot write to the
    ledger. A name may be a password in the wrong field, so only a digest of the client is kept, keyed by
    `secret`."""

    def __init__(self, ledger: Ledger, secret: bytes, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._secret = secret
        self._clock = clock
        #: Failures that replace those in the ledger, by client.
        self._unsaved: OrderedDict[bytes, FailureCount] = OrderedDict()
        self._is_writable = True
        self._was_locked = False

    def check(self, username: str, address: str) -> None:
        """Raise TooManyAttempts during a pause."""
        client = self._digest(username, address)
        failed = self._read(client)
        if not failed.count:
            return
        now = self._clock()
        since = now - failed.last
        if since < 0:
            # The clock was stepped back. Without a restart, the pause would last until the old time.
            self._restart(client, now)
            since = 0.0
        if failed.count < _FIRST_PAUSED or since > _FORGET_SECONDS:
            return
        pause = min(_MAX_PAUSE_SECONDS, 2.0 ** min(failed.count - _FIRST_PAUSED, 16))
        if since < pause:
            raise TooManyAttempts(max(1, ceil(pause - since)))

    def add_failure(self, username: str, address: str) -> None:
        """Count a failed login, and remove failures that are forgotten."""
        client, now = self._digest(username, address), self._clock()
        self._write("DELETE FROM failure WHERE last < ?", (now - _FORGET_SECONDS,))
        before = self._read(client)
        self._unsaved.pop(client, None)
        counted = FailureCount(before.count + 1 if now - before.last <= _FORGET_SECONDS else 1, now)
        is_stored = self._write(
            # Failures that another worker has counted since stay.
            "INSERT INTO failure VALUES (:client, :count, :now) ON CONFLICT DO UPDATE"
            " SET count = iif(last > :before, max(count + 1, :count), :count), last = :now",
            {"client": client, "count": counted.count, "now": now, "before": before.last},
        )
        if not is_stored:
            self._keep(client, counted)

    def clear_failures(self, username: str, address: str) -> None:
        """Forget the failures of a client, after a login that succeeded."""
        client = self._digest(username, address)
        self._unsaved.pop(client, None)
        if self._read_saved(client).count and not self._write(
            "DELETE FROM failure WHERE client = ?", (client,)
        ):
            self._keep(client, FailureCount(0, self._clock()))

    def _digest(self, username: str, address: str) -> bytes:
        text = f"{identify_client(address)}\0{username}"
        return hmac.digest(self._secret, text.encode(errors="surrogatepass"), "sha256")

    def _read(self, client: bytes) -> FailureCount:
        return self._unsaved.get(client) or self._read_saved(client)

    def _restart(self, client: bytes, now: float) -> None:
        """Keep the number of failures, with the last one now."""
        unsaved = self._unsaved.get(client)
        if unsaved or not self._write("UPDATE failure SET last = ? WHERE client = ?", (now, client)):
            self._keep(client, FailureCount(self._read(client).count, now))

    def _read_saved(self, client: bytes) -> FailureCount:
        try:
            rows = self._ledger.execute("SELECT count, last FROM failure WHERE client = ?", (client,))
        except (OSError, sqlite3.Error) as error:
            self._log_fault("read", error)
            return _NO_FAILURES
        return FailureCount(*rows[0]) if rows else _NO_FAILURES

    def _write(self, statement: str, values: Sequence[object] | Mapping[str, object]) -> bool:
        """Return False if the ledger cannot be written now."""
        try:
            self._ledger.execute(statement, values)
        except (OSError, sqlite3.Error) as error:
            self._log_fault("write", error)
            return False
        self._is_writable = True
        return True

    def _log_fault(self, verb: str, error: OSError | sqlite3.Error) -> None:
        # Logged once, or each guess of a password would add a line.
        if isinstance(error, sqlite3.Error) and get_result_code(error) == sqlite3.SQLITE_BUSY:
            # Another process waits for the disk. The ledger is writable again soon.
            if not self._was_locked:
                _log.warning("the login ledger is locked for long, this worker counts in memory: %s", error)
            self._was_locked = True
            return
        if self._is_writable:
            _log.error("cannot %s the login ledger, this worker counts in memory: %s", verb, error)
        self._is_writable = False

    def _keep(self, client: bytes, failed: FailureCount) -> None:
        self._unsaved[client] = failed
        self._unsaved.move_to_end(client)
        if len(self._unsaved) > _MAX_UNSAVED:
            self._unsaved.popitem(last=False)


class Login:
    """Login with a password. Each worker checks one password at a time, as bcrypt uses a whole processor
    core."""

    def __init__(
        self, throttle: Throttle, pool: ThreadPool, verify: Callable[[str, str], bool] = verify
    ) -> None:
        self._throttle = throttle
        self._pool = pool
        self._verify = verify
        self._turns = FairQueue(_MAX_WAITING, _MAX_WAITING_OF_ADDRESS, lambda: TooManyAttempts(_RETRY_AFTER))

    def authenticate(self, known: LoginReply, username: str, password: str, address: str) -> ApiUser:
        """Return the user if the password is right. `known` is the core's reply for the name. Raises
        WrongCredentials and TooManyAttempts."""
        self._throttle.check(username, address)
        with self._turns.turn(identify_client(address)):
            # Again, as other logins may have failed in the meantime.
            self._throttle.check(username, address)
            right = self._pool.apply(self._check, (password, _list_hashes(known)))
            if known.user is None or not right:
                self._throttle.add_failure(username, address)
                raise WrongCredentials
            self._throttle.clear_failures(username, address)
        return known.user

    def _check(self, password: str, hashes: list[str]) -> bool:
        """Check the password against all hashes, and return True if it is that of the first."""
        first, *others = hashes
        right = self._verify(password, first)
        for each in others:
            self._verify(password, each)
        return right


def _list_hashes(known: LoginReply) -> list[str]:
    """Return the hashes to check a password against. The time must not tell whether the name is a user's, so
    hashes of no password follow the user's, up to the time of the highest cost of all users. Costs are binary
    logarithms: c, c, c + 1, ... m - 1 take as long as m."""
    highest = known.highest_cost or COST
    own = read_cost(known.password_hash or "")
    if known.password_hash is None or not own:
        return [make_decoy_hash(highest)]
    return [known.password_hash, *map(make_decoy_hash, range(own, highest))]
