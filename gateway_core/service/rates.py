"""Permanent and temporary changes of the rates of sessions."""

import logging
import threading
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec.structs import replace

from gateway_contract.base.errors import StepFailed
from gateway_contract.core.sessions import MAX_EXPIRY_SECONDS, SessionDetail
from gateway_contract.varlink.dispatcher import make_parameter_error
from gateway_core.gateways.protocols import Gateway
from gateway_core.records.clock import Clock, Expiry
from gateway_core.records.orders import Ordering
from gateway_core.sessions.journal import Journal
from gateway_core.sessions.session import Session
from gateway_core.sessions.table import SessionTable

#: Seconds between two attempts to restore the former rates of a session.
_RETRY_SECONDS = 5.0

_BY_ID_IF_TEMPORARY: Ordering[Any] = Ordering(attrgetter("summary.id"), attrgetter("expiry"))

_log = logging.getLogger(__name__)

#: A session before and after a change.
RateChange = tuple[SessionDetail, SessionDetail]


class NewRates(NamedTuple):
    """Rates to set, in bits per second: `down`, `up` or both. The rates last for `expires_in` seconds, or
    until the time `until` in epoch seconds. Without either, the rates are permanent."""

    down: int | None
    up: int | None
    expires_in: int | None
    until: int | None

    def check(self, clock: Clock) -> None:
        """Check that at least one rate is given, and that the end is neither in the past nor too far in the
        future. Raises ErrorReply (InvalidParameter) if a check fails."""
        if self.down is None and self.up is None:
            raise make_parameter_error("rate_down_bps")
        if self.until is not None:
            seconds_ahead = self.until - clock.wall()
            if self.expires_in is not None or not 0 < seconds_ahead <= MAX_EXPIRY_SECONDS:
                raise make_parameter_error("until")


class Rates:
    """Rates of a gateway's sessions. Each change is added to the `journal`. `on_return` is called with each
    session whose former rates were restored, before and after the change. Thread-safe."""

    def __init__(
        self, gateway: Gateway, journal: Journal, clock: Clock, on_return: Callable[[RateChange], None]
    ) -> None:
        self._gateway = gateway
        self._journal = journal
        self._sessions: SessionTable[Any] = gateway.sessions
        self._clock = clock
        self._on_return = on_return
        # Held from the look at a session until its change.
        self._lock = threading.Lock()
        #: The steady time of the next attempt, by the id of a session whose return failed.
        self._retry_at: dict[int, float] = {}

    def change(self, id: int, new_rates: NewRates, author: str | None = None) -> RateChange | None:
        """Change the rates of a session. Return the session before and after the change, or None for an
        unknown id. Raises StepFailed if the gateway cannot set the rates."""
        with self._lock:
            session = self._sessions.get(id)
            if session is None:
                return None
            summary = session.summary
            down = summary.rate_down if new_rates.down is None else new_rates.down
            up = summary.rate_up if new_rates.up is None else new_rates.up
            return self._set_rates(id, down, up, self._make_expiry(session, new_rates), author)

    def restore_due_rates(self) -> None:
        """Restore the former rates of each session whose temporary rates have expired. A failure is logged,
        and a later call tries again."""
        for session in self._sessions.snapshot(_BY_ID_IF_TEMPORARY):
            if self._clock.steady() >= self._retry_at.get(session.id, 0.0):
                self._check_expiry(session.id)
        if self._retry_at:
            self._retry_at = {
                id: at for id, at in self._retry_at.items() if self._sessions.get(id) is not None
            }

    def _check_expiry(self, id: int) -> None:
        """Restore the former rates of a session if its temporary rates have expired. Otherwise, update the
        displayed expiry time if the wall clock was set."""
        with self._lock:
            session = self._sessions.get(id)
            expiry = None if session is None else session.expiry
            if session is None or expiry is None:
                return
            try:
                if expiry.has_come(self._clock):
                    rate_change = self._set_rates(id, expiry.former_down, expiry.former_up)
                    if rate_change is not None:
                        self._on_return(rate_change)
                elif (new_expiry := expiry.refresh_shown_time(self._clock)) is not expiry:
                    summary = session.summary
                    self._gateway.set_rate(id, summary.rate_down, summary.rate_up, new_expiry)
            except StepFailed as error:
                text = "cannot restore the former rates of session %d, next attempt in %g s: %s"
                _log.error(text, id, _RETRY_SECONDS, error)
                self._retry_at[id] = self._clock.steady() + _RETRY_SECONDS
            else:
                self._retry_at.pop(id, None)

    def _set_rates(
        self, id: int, down: int, up: int, expiry: Expiry | None = None, author: str | None = None
    ) -> RateChange | None:
        rate_change = self._gateway.set_rate(id, down, up, expiry)
        session = self._sessions.get(id)
        if rate_change is not None and session is not None:
            expires_at = None if expiry is None else expiry.at
            self._journal.add_rate_change(session.summary, self._clock.wall(), expires_at, author)
        return rate_change

    def _make_expiry(self, session: Session, new_rates: NewRates) -> Expiry | None:
        summary = session.summary
        expiry = session.expiry or Expiry(former_down=summary.rate_down, former_up=summary.rate_up, at=0)
        expiry = replace(expiry, shows=None)
        if new_rates.until is not None:
            return expiry.schedule_at(new_rates.until, self._clock)
        return None if new_rates.expires_in is None else expiry.schedule_in(new_rates.expires_in, self._clock)
