"""The session events. The last ones are kept, so that a client that reconnects misses none.

An event is encoded once, when it happens. Any thread may add and follow.
"""

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import asdict

from gateway_api.base.ring import Ring
from gateway_api.core.session import Counters
from gateway_api.wire.core.sessions import EventName, EventsReply, SessionEvent, SessionSummary

#: Events that are kept.
HELD = 1 << 17
#: Events in one reply: they fit into the buffers of any client.
_AT_ONCE = 1000
#: Without events, a follower gets an empty reply after so many waits, each of so many seconds.
_WAITS = 15
_WAIT = 1.0


class Journal:
    """The events of one run of the core, which `boot_id` identifies. `held` is how many are kept."""

    def __init__(self, boot_id: str, held: int = HELD) -> None:
        self.boot_id = boot_id
        self._ring: Ring[msgspec.Raw] = Ring(held)
        self._grown = threading.Condition()
        #: Of sessions that are to end, by id.
        self._authors: dict[int, str | None] = {}

    def session_up(self, session: SessionSummary, at: float) -> None:
        """A session was established. `at` is epoch seconds."""
        self._add(EventName.UP, session, at)

    def session_down(self, session: SessionSummary, reason: str, at: float, counters: Counters) -> None:
        """A session ended. `reason` is an Acct-Terminate-Cause (RFC 2866 section 5.10) in snake_case, or
        admin_disconnect."""
        with self._grown:
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
        with self._grown:
            self._authors |= dict.fromkeys(ids, author)

    def follow(self, boot_id: str | None, after: int | None) -> Iterator[EventsReply | None]:
        """The events after one of a run, without end; from now on if both are None. When some of them are
        no longer kept, a reply has `gap`, and the next events are those from then on. Yields None each second
        without events, so that the caller can find out that the client has left."""
        with self._grown:
            position = self._ring.newest if boot_id is None and after is None else after or 0
            held = boot_id in (None, self.boot_id)
        while True:
            with self._grown:
                events = self._ring.after(position, _AT_ONCE) if held else None
                position = self._ring.newest if events is None else position + len(events)
                reply = EventsReply(
                    boot_id=self.boot_id,
                    oldest=self._ring.oldest,
                    newest=self._ring.newest,
                    gap=events is None,
                    # Already encoded: a Raw is sent as it is.
                    events=events or [],  # type: ignore[arg-type]
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

    def _add(self, name: EventName, session: SessionSummary, at: float, **more: Any) -> None:
        with self._grown:
            event = SessionEvent(
                sequence=self._ring.newest + 1,
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
            self._ring.add(msgspec.Raw(msgspec.json.encode(event)))
            self._grown.notify_all()
