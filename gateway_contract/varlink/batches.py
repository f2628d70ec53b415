"""Batches of reads, as in a DataLoader: one exchange with two reads costs far less than two exchanges.

The first read of a batch lets other greenlets run, and their reads join the batch. When no further read
joins, the batch is sent in one exchange. Equal calls are sent once.

A read waits for its batch for at most half a second, and for at most half of the time until its own deadline.
If the batch fails or takes longer, the read is sent alone in the remaining time: a fault of another read in
the batch costs time, but no reply.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from gateway_contract.base.errors import GatewayApiError
from gateway_contract.base.turns import give_way
from gateway_contract.varlink.protocol import Reply

_log = logging.getLogger(__name__)

#: Maximum number of reads in one batch, and of bytes in their calls.
MAX_READS, MAX_BYTES = 16, 2048
#: Maximum time for which a read waits for its batch, in seconds.
MAX_WAIT_SECONDS = 0.5


class _Batch:
    def __init__(self) -> None:
        self.reads = self.length = 0
        #: Each different call, in order.
        self.calls: dict[bytes, None] = {}
        #: The monotonic time at which the first read stops waiting for the batch.
        self.wait_end = float("inf")
        self.ended = threading.Event()
        #: The replies by call; empty unless the exchange has succeeded.
        self.replies: dict[bytes, Reply] = {}


class Batches:
    """Batches of the reads of one client. `exchange` sends calls, each encoded as a message, until a deadline
    in monotonic seconds, and returns their replies. `exchange` raises OSError or GatewayApiError if the
    exchange fails."""

    def __init__(self, exchange: Callable[[Sequence[bytes], float], list[Reply]]) -> None:
        self._exchange = exchange
        self._open: _Batch | None = None

    def replies(self, calls: Sequence[bytes], deadline: float) -> list[Reply]:
        """Return the replies to the calls of one read. If the batch of the read fails, the read is sent
        alone. Raises the error of `exchange` if this exchange fails, too."""
        length = sum(map(len, calls))
        if length > MAX_BYTES:
            return self._exchange(calls, deadline)
        batch = self._open
        is_first = batch is None or batch.reads == MAX_READS or batch.length + length > MAX_BYTES
        if batch is None or is_first:
            batch = self._open = _Batch()
        now = time.monotonic()
        wait_end = now + min(MAX_WAIT_SECONDS, (deadline - now) / 2)
        batch.calls |= dict.fromkeys(calls)
        batch.length += length
        batch.wait_end = min(batch.wait_end, wait_end)
        batch.reads += 1
        if is_first:
            self._send(batch)
        else:
            batch.ended.wait(wait_end - now)
        if batch.replies:
            return [batch.replies[call] for call in calls]
        return self._exchange(calls, deadline)

    def _send(self, batch: _Batch) -> None:
        """Wait for further reads, and send the batch if it has more than one read."""
        try:
            try:
                read_count_before = 0
                while read_count_before < batch.reads:
                    read_count_before = batch.reads
                    give_way()
            finally:
                # Also when this greenlet is killed: a read that joined later would wait for nobody.
                if self._open is batch:
                    self._open = None
            if batch.reads > 1:
                replies = self._exchange(list(batch.calls), batch.wait_end)
                batch.replies = dict(zip(batch.calls, replies, strict=True))
        except (OSError, GatewayApiError) as error:
            _log.info("a batch of %d reads failed, each read is sent again alone: %s", batch.reads, error)
        finally:
            batch.ended.set()
