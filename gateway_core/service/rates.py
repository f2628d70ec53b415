"""Changes of the rates of sessions, for good or for a time."""

import logging
import threading
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec.structs import replace

from gateway_contract.base.errors import StepFailed
from gateway_contract.core.sessions import LONGEST_EXPIRY, SessionDetail
from gateway_contract.varlink.dispatcher import invalid_parameter
from gateway_core.gateways.protocols import Gateway
from gateway_core.records.clock import Clock, Expiry
from gateway_core.records.orders import Ordering
from gateway_core.sessions.journal import Journal
from gateway_core.sessions.session import Session
from gateway_core.sessions.table import SessionTable

#: Seconds until a return that failed is tried again.
_AGAIN = 5.0

#: Of the sessions with temporary rates.
_TEMPORARY: Ordering[Any] = Ordering(attrgetter("summary.id"), attrgetter("expiry"))

_log = logging.getLogger(__name__)

Changed = tuple[SessionDetail, SessionDetail]


class Wanted(NamedTuple):
    """Rates in bits per second, of one direction or of both; for good, for `expires_in` seconds, or `until`
    a time in epoch seconds."""

    down: int | None
    up: int | None
    expires_in: int | None
    until: int | None

    def checked(self, clock: Clock) -> "Wanted":
        """Check the rates and their end, and return itself. Raises ErrorReply: InvalidParameter."""
        if self.down is None and self.up is None:
            raise invalid_parameter("rate_down_bps")
        if self.until is not None:
            ahead = self.until - clock.wall()
            if self.expires_in is not None or not 0 < ahead <= LONGEST_EXPIRY:
                raise invalid_parameter("until")
        return self


class Rates:
    """The rates of a gateway's sessions. Their changes are in the `journal`. `returned` is called with the
    records of a session before and after its former rates have returned. Any thread may call."""

    def __init__(
        self, gateway: Gateway, journal: Journal, clock: Clock, returned: Callable[[Changed], None]
    ) -> None:
        self._gateway = gateway
        self._journal = journal
        self._sessions: SessionTable[Any] = gateway.sessions
        self._clock = clock
        self._returned = returned
        # Between a look at a session and its change, no other change may come.
        self._lock = threading.Lock()
        #: By the id of a session whose return failed, the time of the next attempt.
        self._again: dict[int, float] = {}

    def change(self, id: int, wanted: Wanted, author: str | None = None) -> Changed | None:
        """Return the session before and after. None for an unknown id. Raises StepFailed."""
        with self._lock:
            session = self._sessions.get(id)
            if session is None:
                return None
            now = session.summary
            down = now.rate_down if wanted.down is None else wanted.down
            up = now.rate_up if wanted.up is None else wanted.up
            return self._set(id, down, up, self._expiry(session, wanted), author)

    def return_due(self) -> None:
        """Return the former rates whose time has come. A failure is logged, and tried again later."""
        for session in self._sessions.ordered(_TEMPORARY):
            if self._clock.steady() >= self._again.get(session.id, 0.0):
                self._follow(session.id)
        if self._again:
            self._again = {id: at for id, at in self._again.items() if self._sessions.get(id) is not None}

    def _follow(self, id: int) -> None:
        with self._lock:
            session = self._sessions.get(id)
            expiry = None if session is None else session.expiry
            if session is None or expiry is None:
                return
            try:
                if expiry.has_come(self._clock):
                    changed = self._set(id, expiry.former_down, expiry.former_up)
                    if changed is not None:
                        self._returned(changed)
                elif (showing := expiry.showing(self._clock)) is not expiry:
                    now = session.summary
                    self._gateway.set_rate(id, now.rate_down, now.rate_up, showing)
            except StepFailed as error:
                _log.error("the former rates of session %d do not return yet: %s", id, error.sentence)
                self._again[id] = self._clock.steady() + _AGAIN
            else:
                self._again.pop(id, None)

    def _set(
        self, id: int, down: int, up: int, expiry: Expiry | None = None, author: str | None = None
    ) -> Changed | None:
        changed = self._gateway.set_rate(id, down, up, expiry)
        session = self._sessions.get(id)
        if changed is not None and session is not None:
            expires_at = None if expiry is None else expiry.at
            self._journal.session_rate(session.summary, self._clock.wall(), expires_at, author)
        return changed

    def _expiry(self, session: Session, wanted: Wanted) -> Expiry | None:
        if wanted.expires_in is None and wanted.until is None:
            return None
        former = session.expiry or Expiry(session.summary.rate_down, session.summary.rate_up, at=0)
        former = replace(former, shows=None)
        if wanted.until is not None:
            return former.at_time(wanted.until, self._clock)
        assert wanted.expires_in is not None  # noqa: S101 - one of the two is given
        return former.after(wanted.expires_in, self._clock)
