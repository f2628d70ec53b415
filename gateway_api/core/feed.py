"""Records that clients follow. The last ones are kept, so that a client that reconnects misses none.

A record is encoded once, when it is added. Any thread may add and follow.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from gateway_api.base.ring import Ring
from gateway_api.wire.contract import Record

R = TypeVar("R")

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

    def add(self, record: Callable[..., Record], **fields: Any) -> None:
        """Adds a record with these fields, and its number as `sequence`."""
        with self._grown:
            numbered = record(sequence=self._ring.newest + 1, **fields)
            self._ring.add(msgspec.Raw(msgspec.json.encode(numbered)))
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
