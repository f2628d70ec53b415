"""The lab's subscribers who cannot sign on again, and what their routers do about it."""

import heapq
import random
from typing import NamedTuple

from gateway_api.core.gateways.lab.access import LabSession
from gateway_api.core.sessions.journal import Journal
from gateway_api.wire.configuration import Demux
from gateway_api.wire.core.sessions import SessionSummary

#: Of the subscribers who leave.
_SHARE = 0.05
#: Why they cannot sign on, and how often each occurs.
_REASONS = ("rejected", "radius_timeout", "no_address", "session_limit"), (60, 15, 15, 10)
#: A router waits longer after each failure, in seconds, as most of them do.
_FIRST_WAIT, _LONGEST_WAIT = 5.0, 300.0
#: Then its owner turns it off.
_ATTEMPTS = 20
#: Routers that try at a time. Without a bound, a lab with thousands of departures a second would fill the
#: memory, as each of its routers tries for more than an hour.
MOST = 5000


class Attempt(NamedTuple):
    """A sign-on that fails. `at` is in the lab's own time; attempts sort by it. Each subscriber has another
    `number`."""

    at: float
    number: int
    wait: float
    left: int
    reason: str
    subscriber: SessionSummary

    @property
    def trunk(self) -> str:
        tags = 1 if self.subscriber.outer_vlan_id is None else 2
        return self.subscriber.access_interface.rsplit(".", tags)[0]


class LockedOut:
    """Some of those who leave try to come back, and fail: the `journal` has it. All of it comes from a seed,
    and from a generator of its own: the same subscribers arrive and leave with it as without it."""

    def __init__(self, seed: int, journal: Journal) -> None:
        self._random = random.Random(f"{seed} sign-ons")  # noqa: S311 - reproducible is what it has to be
        self._journal = journal
        self._next: list[Attempt] = []
        self._number = 0

    def configure(self, demux: Demux) -> None:
        """Nobody tries again on a trunk that these settings do not have."""
        self._next = [attempt for attempt in self._next if attempt.trunk in demux.trunks]
        heapq.heapify(self._next)

    def left(self, session: LabSession, now: float) -> None:
        """A session has ended. Its subscriber may try to come back."""
        share, wait = self._random.random(), self._random.uniform(1, _FIRST_WAIT)
        (reason,) = self._random.choices(*_REASONS)
        if share < _SHARE and len(self._next) < MOST:
            self._number += 1
            heapq.heappush(
                self._next, Attempt(now + wait, self._number, wait, _ATTEMPTS, reason, session.summary)
            )

    def advance(self, now: float, ahead: int, most: int) -> bool:
        """Makes the attempts that are due, at most so many; the journal has them `ahead` seconds later. True
        when more are due."""
        for _ in range(most):
            if not self._next or self._next[0].at > now:
                return False
            attempt = heapq.heappop(self._next)
            self._fail(attempt, ahead)
            if attempt.left > 1:
                wait = min(2 * attempt.wait, _LONGEST_WAIT)
                again = attempt._replace(at=attempt.at + wait, wait=wait, left=attempt.left - 1)
                heapq.heappush(self._next, again)
        return True

    def _fail(self, attempt: Attempt, ahead: int) -> None:
        known = attempt.subscriber
        self._journal.sign_on_failed(
            attempt.reason,
            attempt.at + ahead,
            type=known.type,
            username=known.username,
            mac_address=known.mac_address,
            access_interface=known.access_interface,
            outer_vlan_id=known.outer_vlan_id,
            inner_vlan_id=known.inner_vlan_id,
            source=known.source,
        )
