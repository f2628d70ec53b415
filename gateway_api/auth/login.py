"""Logins: password checks, and pauses for clients after several failed logins in a row.

A client is a user name together with the network of the client's address. If a client were only the user
name, anyone could lock an operator out.
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
_MAX_UNSAVED_CLIENTS = 10_000
#: The failure that begins the pauses.
_FIRST_PAUSED_FAILURE = 5
_MAX_PAUSE_SECONDS = 300.0
#: Seconds after the last failure until all failures of the client are forgotten.
_FAILURE_EXPIRY_SECONDS = 900.0

#: Logins in the queue, and those of one address. More would wait for seconds.
_MAX_WAITING_LOGINS = 16
_MAX_WAITING_LOGINS_OF_ADDRESS = 4
#: Seconds after which a rejected client should try again.
_RETRY_AFTER_SECONDS = 2

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FailureCount:
    """Number of a client's failed logins in a row, and the time of the last failure in epoch seconds."""

    count: int
    last_at: float


_NO_FAILURES = FailureCount(0, 0.0)


class Throttle:
    """Pauses in which the logins of a client are rejected after failed logins. The fifth failure in a row
    begins a pause of 1 second. Each further failure doubles the pause, up to 5 minutes. `clock` returns epoch
    seconds.

    The failures are stored in the ledger, for all workers. While a worker cannot write to the ledger, the
    worker counts failures in its own memory. A user may type a password into the name field, so only a digest
    of the client is stored, keyed with `secret`."""

    def __init__(self, ledger: Ledger, secret: bytes, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._secret = secret
        self._clock = clock
        #: Failures that replace those in the ledger, by client.
        self._unsaved: OrderedDict[bytes, FailureCount] = OrderedDict()
        self._is_writable = True
        self._was_locked = False

    def check(self, username: str, address: str) -> None:
        """Raise TooManyAttempts if logins of the client are paused. The client is the user name together with
        the network of the address."""
        client = self._digest(username, address)
        failures = self._read(client)
        if not failures.count:
            return
        now = self._clock()
        elapsed = now - failures.last_at
        if elapsed < 0:
            # The clock was stepped back. Without a restart, the pause would last until the old time.
            self._restart_pause(client, now)
            elapsed = 0.0
        if failures.count < _FIRST_PAUSED_FAILURE or elapsed > _FAILURE_EXPIRY_SECONDS:
            return
        pause = min(_MAX_PAUSE_SECONDS, 2.0 ** min(failures.count - _FIRST_PAUSED_FAILURE, 16))
        if elapsed < pause:
            raise TooManyAttempts(max(1, ceil(pause - elapsed)))

    def add_failure(self, username: str, address: str) -> None:
        """Count a failed login of the client, and delete expired failures of all clients."""
        client, now = self._digest(username, address), self._clock()
        self._write("DELETE FROM failure WHERE last < ?", (now - _FAILURE_EXPIRY_SECONDS,))
        former_failures = self._read(client)
        self._unsaved.pop(client, None)
        new_failures = FailureCount(
            former_failures.count + 1 if now - former_failures.last_at <= _FAILURE_EXPIRY_SECONDS else 1, now
        )
        is_stored = self._write(
            # Failures that another worker has counted since stay.
            "INSERT INTO failure VALUES (:client, :count, :now) ON CONFLICT DO UPDATE"
            " SET count = iif(last > :before, max(count + 1, :count), :count), last = :now",
            {"client": client, "count": new_failures.count, "now": now, "before": former_failures.last_at},
        )
        if not is_stored:
            self._count_in_memory(client, new_failures)

    def clear_failures(self, username: str, address: str) -> None:
        """Clear the failure count of a client after a successful login."""
        client = self._digest(username, address)
        self._unsaved.pop(client, None)
        if self._read_saved(client).count and not self._write(
            "DELETE FROM failure WHERE client = ?", (client,)
        ):
            self._count_in_memory(client, FailureCount(0, self._clock()))

    def _digest(self, username: str, address: str) -> bytes:
        text = f"{identify_client(address)}\0{username}"
        return hmac.digest(self._secret, text.encode(errors="surrogatepass"), "sha256")

    def _read(self, client: bytes) -> FailureCount:
        return self._unsaved.get(client) or self._read_saved(client)

    def _restart_pause(self, client: bytes, now: float) -> None:
        """Restart the pause of a client: set the time of the client's last failure to `now`, in epoch
        seconds, and keep the number of failures."""
        unsaved = self._unsaved.get(client)
        if unsaved or not self._write("UPDATE failure SET last = ? WHERE client = ?", (now, client)):
            self._count_in_memory(client, FailureCount(self._read(client).count, now))

    def _read_saved(self, client: bytes) -> FailureCount:
        try:
            rows = self._ledger.execute("SELECT count, last FROM failure WHERE client = ?", (client,))
        except (OSError, sqlite3.Error) as error:
            self._log_fault("read", error)
            return _NO_FAILURES
        return FailureCount(*rows[0]) if rows else _NO_FAILURES

    def _write(self, statement: str, values: Sequence[object] | Mapping[str, object]) -> bool:
        """Execute a statement on the ledger. Return True if the statement succeeded. If the ledger cannot be
        written now, log the error and return False."""
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
                _log.warning(
                    "the login ledger stays locked, this worker counts failed logins in memory: %s", error
                )
            self._was_locked = True
            return
        if self._is_writable:
            _log.error(
                "cannot %s the login ledger, this worker counts failed logins in memory: %s", verb, error
            )
        self._is_writable = False

    def _count_in_memory(self, client: bytes, failures: FailureCount) -> None:
        self._unsaved[client] = failures
        self._unsaved.move_to_end(client)
        if len(self._unsaved) > _MAX_UNSAVED_CLIENTS:
            self._unsaved.popitem(last=False)


class Login:
    """Logins with a password. Each worker checks one password at a time, because bcrypt keeps a whole
    processor core busy."""

    def __init__(
        self, throttle: Throttle, pool: ThreadPool, verify: Callable[[str, str], bool] = verify
    ) -> None:
        self._throttle = throttle
        self._pool = pool
        self._verify = verify
        self._turns = FairQueue(
            _MAX_WAITING_LOGINS, _MAX_WAITING_LOGINS_OF_ADDRESS, lambda: TooManyAttempts(_RETRY_AFTER_SECONDS)
        )

    def authenticate(self, login_reply: LoginReply, username: str, password: str, address: str) -> ApiUser:
        """Check a password and return the user. `login_reply` is the core's reply to GetLogin for this user
        name. Raises WrongCredentials if the user does not exist or the password is wrong. Raises
        TooManyAttempts if logins of the client are paused or too many logins wait."""
        self._throttle.check(username, address)
        with self._turns.turn(identify_client(address)):
            # Again, as other logins may have failed in the meantime.
            self._throttle.check(username, address)
            is_correct = self._pool.apply(self._check, (password, _list_hashes(login_reply)))
            if login_reply.user is None or not is_correct:
                self._throttle.add_failure(username, address)
                raise WrongCredentials
            self._throttle.clear_failures(username, address)
        return login_reply.user

    def _check(self, password: str, hashes: list[str]) -> bool:
        """Check the password against every hash, also after a match. Return True if the password matches the
        first hash."""
        first, *others = hashes
        is_correct = self._verify(password, first)
        for each in others:
            self._verify(password, each)
        return is_correct


def _list_hashes(login_reply: LoginReply) -> list[str]:
    """Return the hashes to check a password against: the user's hash first, then decoy hashes that match no
    password. If the user does not exist, return only one decoy hash. The decoys make each check as slow as a
    check of the highest cost of all users, so that the time does not tell whether the user exists. The cost
    of a bcrypt hash is log2 of its rounds, so hashes of the costs c, c, c + 1, ... m - 1 together take as
    long as one hash of the cost m."""
    highest = login_reply.highest_cost or COST
    own = read_cost(login_reply.password_hash or "")
    if login_reply.password_hash is None or not own:
        return [make_decoy_hash(highest)]
    return [login_reply.password_hash, *map(make_decoy_hash, range(own, highest))]
