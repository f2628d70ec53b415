"""The delivery log of one webhook."""

from collections import deque
from dataclasses import dataclass, replace

LOGGED = 100


@dataclass(frozen=True)
class Delivery:
    """An entry. `result` is delivered, failed (`next_attempt_at` says when it is tried again), skipped after
    the last attempt, or dropped: then `dropped` messages from this one on had no room. `paused_until` is set
    where the attempt began a pause of first attempts. Times are epoch seconds, `duration` is seconds."""

    message_id: str
    event: str
    attempt: int
    result: str
    status: int | None = None
    error: str | None = None
    started_at: float | None = None
    duration: float | None = None
    next_attempt_at: float | None = None
    paused_until: float | None = None
    dropped: int = 0


class DeliveryLog:
    """The last entries. Not for several threads at once."""

    def __init__(self) -> None:
        self._entries: deque[Delivery] = deque(maxlen=LOGGED)

    def add(self, entry: Delivery) -> None:
        """What is dropped goes on in one entry: or a lane that is full would push out all that tells why."""
        last = self._entries[-1] if self._entries else None
        if last is not None and entry.result == last.result == "dropped":
            self._entries[-1] = replace(last, dropped=last.dropped + entry.dropped)
        else:
            self._entries.append(entry)

    def newest_first(self) -> list[Delivery]:
        return list(reversed(self._entries))
