"""Reads in batches, as a DataLoader sends them: an exchange costs both ends far more than another read in it.

The first read of a batch gives way, and the reads of requests that begin meanwhile join it. When that brings
no further read, the batch goes out in one exchange, with each different call once.

A read depends on others for half a second at most, and for half of its time at most. If its batch fails or
takes longer, it goes out alone, with the rest of its time: the fault of another read costs it time, and not
its reply.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from gateway_contract.base.errors import GatewayApiError
from gateway_contract.base.turns import give_way
from gateway_contract.varlink.protocol import Reply

_log = logging.getLogger(__name__)

#: Of one batch: the most reads, and the most bytes of their calls.
MOST_READS, MOST_BYTES = 16, 2048
#: The most seconds that a read depends on others.
LONGEST = 0.5


class _Batch:
    def __init__(self) -> None:
        self.reads = self.length = 0
        #: Each different call, in order.
        self.calls: dict[bytes, None] = {}
        #: The monotonic time at which the first read no longer depends on others.
        self.until = float("inf")
        self.ended = threading.Event()
        #: By call; empty unless the exchange has succeeded.
        self.replies: dict[bytes, Reply] = {}


class Batches:
    """The reads of one client. `exchange` takes calls, each a message, and a monotonic deadline. It raises
    OSError and GatewayApiError."""

    def __init__(self, exchange: Callable[[Sequence[bytes], float], list[Reply]]) -> None:
        self._exchange = exchange
        self._open: _Batch | None = None

    def replies(self, calls: Sequence[bytes], deadline: float) -> list[Reply]:
        """Return the replies to the calls of one read, which the peer answers from memory. Raises what its
        exchange alone raises."""
        length = sum(map(len, calls))
        if length > MOST_BYTES:
            return self._exchange(calls, deadline)
        batch = self._open
        is_first = batch is None or batch.reads == MOST_READS or batch.length + length > MOST_BYTES
        if batch is None or is_first:
            batch = self._open = _Batch()
        now = time.monotonic()
        until = now + min(LONGEST, (deadline - now) / 2)
        batch.calls |= dict.fromkeys(calls)
        batch.length += length
        batch.until = min(batch.until, until)
        batch.reads += 1
        if is_first:
            self._send(batch)
        else:
            batch.ended.wait(until - now)
        if batch.replies:
            return [batch.replies[call] for call in calls]
        return self._exchange(calls, deadline)

    def _send(self, batch: _Batch) -> None:
        """Send the batch, unless it has one read only."""
        try:
            try:
                before = 0
                while before < batch.reads:
                    before = batch.reads
                    give_way()
            finally:
                # Also when this greenlet is killed: nobody would send the batch.
                if self._open is batch:
                    self._open = None
            if batch.reads > 1:
                replies = self._exchange(list(batch.calls), batch.until)
                batch.replies = dict(zip(batch.calls, replies, strict=True))
        except (OSError, GatewayApiError) as error:
            _log.info("send %d reads once more, each alone: their batch failed: %s", batch.reads, error)
        finally:
            batch.ended.set()
