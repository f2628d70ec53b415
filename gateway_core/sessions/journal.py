"""Journal of session events and failed sign-ons in one run of the core, for clients that follow it."""

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

MAX_EVENTS = 1 << 17
MAX_FAILED_SIGN_ONS = 1 << 16
#: An event has rates only if it is a change of rates.
_NO_RATES = {"rate_down": None, "rate_up": None}
#: Maximum number of records in one reply, which fits into the buffers of any client.
_RECORDS_PER_REPLY = 1000
#: A follower without new records gets an empty reply after 15 waits of one second.
_MAX_WAITS, _WAIT_SECONDS = 15, 1.0


class Feed(Generic[R]):
    """Feed of numbered records of one run of the core, which `boot_id` identifies. The feed stores the newest
    `size` records. `reply` makes a reply from the boot id, the numbers of the oldest and the newest record,
    the gap flag, and the records. Thread-safe."""

    def __init__(self, boot_id: str, size: int, reply: Callable[..., R]) -> None:
        self._boot_id = boot_id
        self._reply = reply
        self._ring: Ring[msgspec.Raw] = Ring(size)
        self._record_added = threading.Condition()

    def add(self, make_record: Callable[[int], Record]) -> None:
        """Call `make_record` with the next number, and add the record that `make_record` returns."""
        with self._record_added:
            self._ring.add(msgspec.Raw(msgspec.json.encode(make_record(self._ring.newest + 1))))
            self._record_added.notify_all()

    def follow(self, boot_id: str | None, after: int | None) -> Iterator[R | None]:
        """Yield replies without end: first the records after number `after` of the run `boot_id`, then new
        records. If both arguments are None, yield only new records. A reply has `gap` if the feed no longer
        stores some of the requested records. Yield None after each second without records, so that the caller
        checks the connection."""
        with self._record_added:
            position = self._ring.newest if boot_id is None and after is None else after or 0
            is_this_run = boot_id in (None, self._boot_id)
        while True:
            with self._record_added:
                records = self._ring.after(position, _RECORDS_PER_REPLY) if is_this_run else None
                position = self._ring.newest if records is None else position + len(records)
                reply = self._reply(
                    self._boot_id, self._ring.oldest, self._ring.newest, records is None, records or []
                )
            is_this_run = True
            yield reply
            for _ in range(_MAX_WAITS):
                if self._wait_for_record(position):
                    break
                yield None

    def _wait_for_record(self, position: int) -> bool:
        """Wait until the feed has a record after the number `position`. Return False if there is no such
        record within a second."""
        with self._record_added:
            return self._record_added.wait_for(lambda: self._ring.newest > position, _WAIT_SECONDS)


class Journal:
    """Journal of session events and failed sign-ons in one run of the core, which `boot_id` identifies. Times
    are in epoch seconds. Thread-safe."""

    def __init__(self, boot_id: str, size: int = MAX_EVENTS) -> None:
        self.boot_id = boot_id
        self._events = Feed(boot_id, size, EventsReply)
        #: A feed of their own: subscribers who try again every few seconds would push out the events of
        #: sessions.
        self._failed_sign_ons = Feed(boot_id, MAX_FAILED_SIGN_ONS, FailedSignOnsReply)
        self._lock = threading.Lock()
        #: The users who ordered the end of sessions, by the id of the session.
        self._authors: dict[int, str | None] = {}

    def add_session_up(self, session: SessionSummary, at: float) -> None:
        """Add an event: a session started."""
        self._add(EventName.UP, session, at)

    def add_session_down(self, session: SessionSummary, reason: str, at: float, counters: Counters) -> None:
        """Add an event: a session ended. `reason` is an Acct-Terminate-Cause (RFC 2866 section 5.10) in
        snake_case, or admin_disconnect."""
        with self._lock:
            author = self._authors.pop(session.id, None)
        self._add(
            EventName.DOWN, session, at,
            # After an order that failed, the session may end for another reason.
            author=author if reason == "admin_disconnect" else None,
            reason=reason, **asdict(counters),
            # A clock that was set back would make it negative.
            duration_seconds=max(0, int(at) - session.started_at),
        )  # fmt: skip

    def add_rate_change(
        self, session: SessionSummary, at: float, expires_at: int | None, author: str | None
    ) -> None:
        """Add an event: the rates of a session changed. The new rates last until `expires_at`, in epoch
        seconds; None means permanent rates."""
        rates = {"rate_down": session.rate_down, "rate_up": session.rate_up, "rate_expires_at": expires_at}
        self._add(EventName.RATE, session, at, author=author, **rates)

    def note_disconnect(self, author: str | None, ids: Iterable[int]) -> None:
        """Record that the user `author` disconnects the sessions `ids`. The events of their ends will name
        this user."""
        with self._lock:
            self._authors |= dict.fromkeys(ids, author)

    def add_failed_sign_on(self, reason: str, at: float, *subscriber_records: object, **fields: Any) -> None:
        """Add a failed sign-on. `reason` is a reason of FailedSignOn. The other fields of FailedSignOn are
        taken from the `subscriber_records` and from `fields`."""
        fields |= {"at": int(at), "reason": reason}
        self._failed_sign_ons.add(
            lambda number: record_of(FailedSignOn, *subscriber_records, sequence=number, **fields)
        )

    def follow(self, boot_id: str | None, after: int | None) -> Iterator[EventsReply | None]:
        """Yield replies with session events without end. The arguments are those of `Feed.follow`."""
        return self._events.follow(boot_id, after)

    def follow_failed_sign_ons(
        self, boot_id: str | None, after: int | None
    ) -> Iterator[FailedSignOnsReply | None]:
        """Yield replies with failed sign-ons without end. The arguments are those of `Feed.follow`."""
        return self._failed_sign_ons.follow(boot_id, after)

    def _add(self, name: EventName, session: SessionSummary, at: float, **more: Any) -> None:
        fields = {"event": name, "at": int(at), **_NO_RATES, **more}
        self._events.add(lambda number: record_of(SessionEvent, session, sequence=number, **fields))
