"""What happens to sessions and sign-ons in one run of the core: the events, for clients that follow them."""

import threading
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import asdict

from gateway_api.core.feed import Feed
from gateway_api.core.session import Counters
from gateway_api.wire.core.sessions import EventName, EventsReply, SessionEvent, SessionSummary
from gateway_api.wire.core.sign_ons import FailedSignOn, FailedSignOnsReply

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

    def sign_on_failed(self, reason: str, at: float, **subscriber: Any) -> None:
        """A subscriber got no session. `reason` and `subscriber` have fields of FailedSignOn, `at` is epoch
        seconds."""
        self._failures.add(FailedSignOn, at=int(at), reason=reason, **subscriber)

    def follow(self, boot_id: str | None, after: int | None) -> Iterator[EventsReply | None]:
        """The session events, as `Feed.follow`."""
        return self._events.follow(boot_id, after)

    def follow_failed_sign_ons(
        self, boot_id: str | None, after: int | None
    ) -> Iterator[FailedSignOnsReply | None]:
        """The same for failed sign-ons."""
        return self._failures.follow(boot_id, after)

    def _add(self, name: EventName, session: SessionSummary, at: float, **more: Any) -> None:
        self._events.add(
            SessionEvent,
            event=name,
            at=int(at),
            id=session.id,
            type=session.type,
            username=session.username,
            ip_address=session.ip_address,
            interface=session.interface,
            mac_address=session.mac_address,
            access_interface=session.access_interface,
            ipv6_address=session.ipv6_address,
            ipv6_prefix=session.ipv6_prefix,
            delegated_prefixes=session.delegated_prefixes,
            outer_vlan_id=session.outer_vlan_id,
            inner_vlan_id=session.inner_vlan_id,
            started_at=session.started_at,
            **more,
        )
