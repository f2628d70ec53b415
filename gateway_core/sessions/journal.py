"""The events of sessions and sign-ons in one run of the core, for clients that follow them."""

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import asdict

from gateway_contract.base.ring import Ring
from gateway_contract.contract import Record, record_of
from gateway_contract.core.sessions import EventName, EventsReply, SessionEvent, SessionSummary
from gateway_contract.core.sign_ons import FailedSignOn, FailedSignOnsReply
from gateway_core.sessions.session import Counters

R = TypeVar("R")

#: An event has the rates of the session only if they changed.
_NO_RATES = {"rate_down": None, "rate_up": None}
#: Records in one reply: they fit into the buffers of any client.
_AT_ONCE = 1000
#: Without records, a follower gets an empty reply after so many waits, each of so many seconds.
_WAITS = 15
_WAIT = 1.0


class Feed(Generic[R]):
    """The records of one run of the core, which `boot_id` identifies. `held` is how many are kept. `reply`
    makes a reply from boot_id, oldest, newest, gap and the records."""

    def __init__(self, boot_id: str, held: int, reply: Callable[..., R]) -> None:
        self._boot_id = boot_id
        self._reply = reply
        self._ring: Ring[msgspec.Raw] = Ring(held)
        self._grown = threading.Condition()

    def add(self, record: Callable[[int], Record]) -> None:
        """Add a record, which is made of its number."""
        with self._grown:
            self._ring.add(msgspec.Raw(msgspec.json.encode(record(self._ring.newest + 1))))
            self._grown.notify_all()

    def follow(self, boot_id: str | None, after: int | None) -> Iterator[R | None]:
        """The records after one of a run, without end; from now on if both are None. When some of them are
        no longer kept, a reply has `gap`, and the next records are those from then on. Yields None each
        second without records, so that the caller can find out that the client has left."""
        with self._grown:
            position = self._ring.newest if boot_id is None and after is None else after or 0
            held = boot_id in (None, self._boot_id)
        while True:
            with self._grown:
                records = self._ring.after(position, _AT_ONCE) if held else None
                position = self._ring.newest if records is None else position + len(records)
                # The records are encoded already: a Raw is sent as it is.
                reply = self._reply(
                    self._boot_id, self._ring.oldest, self._ring.newest, records is None, records or []
                )
            held = True
            yield reply
            for _ in range(_WAITS):
                if self._has_grown(position):
                    break
                yield None

    def _has_grown(self, position: int) -> bool:
        with self._grown:
            return self._grown.wait_for(lambda: self._ring.newest > position, _WAIT)


#: Events that are kept, and failed sign-ons.
HELD = 1 << 17
HELD_FAILURES = 1 << 16


class Journal:
    """The events of one run of the core, which `boot_id` identifies. `held` is how many are kept. Any thread
    may call."""

    def __init__(self, boot_id: str, held: int = HELD) -> None:
        self.boot_id = boot_id
        self._events = Feed(boot_id, held, EventsReply)
        #: Apart: subscribers who try again every few seconds would push out the events of sessions.
        self._failures = Feed(boot_id, HELD_FAILURES, FailedSignOnsReply)
        self._lock = threading.Lock()
        #: Of sessions that are to end, by id.
        self._authors: dict[int, str | None] = {}

    def session_up(self, session: SessionSummary, at: float) -> None:
        """A session was established. `at` is epoch seconds."""
        self._add(EventName.UP, session, at)

    def session_down(self, session: SessionSummary, reason: str, at: float, counters: Counters) -> None:
        """A session ended. `reason` is an Acct-Terminate-Cause (RFC 2866 section 5.10) in snake_case, or
        admin_disconnect."""
        with self._lock:
            author = self._authors.pop(session.id, None)
        self._add(
            EventName.DOWN, session, at,
            # After an order that failed, the session may have ended otherwise.
            author=author if reason == "admin_disconnect" else None,
            reason=reason, **asdict(counters),
            # A clock that was set back would make it negative.
            duration_seconds=max(0, int(at) - session.started_at),
        )  # fmt: skip

    def session_rate(
        self, session: SessionSummary, at: float, expires_at: int | None, author: str | None
    ) -> None:
        """The rates of a session are other ones now, until `expires_at` in epoch seconds if it is given."""
        rates = {"rate_down": session.rate_down, "rate_up": session.rate_up, "rate_expires_at": expires_at}
        self._add(EventName.RATE, session, at, author=author, **rates)

    def disconnects(self, author: str | None, ids: Iterable[int]) -> None:
        """A user orders the end of sessions. The events of these ends name the user."""
        with self._lock:
            self._authors |= dict.fromkeys(ids, author)

    def sign_on_failed(self, reason: str, at: float, *known: object, **fields: Any) -> None:
        """A subscriber got no session, for a `reason` of FailedSignOn, `at` epoch seconds. Its other fields
        are those of what is `known` of the subscriber, and `fields`."""
        fields |= {"at": int(at), "reason": reason}
        self._failures.add(lambda number: record_of(FailedSignOn, *known, sequence=number, **fields))

    def follow(self, boot_id: str | None, after: int | None) -> Iterator[EventsReply | None]:
        """The session events, as `Feed.follow`."""
        return self._events.follow(boot_id, after)

    def follow_failed_sign_ons(
        self, boot_id: str | None, after: int | None
    ) -> Iterator[FailedSignOnsReply | None]:
        """The failed sign-ons, as `Feed.follow`."""
        return self._failures.follow(boot_id, after)

    def _add(self, name: EventName, session: SessionSummary, at: float, **more: Any) -> None:
        fields = {"event": name, "at": int(at), **_NO_RATES, **more}
        self._events.add(lambda number: record_of(SessionEvent, session, sequence=number, **fields))
