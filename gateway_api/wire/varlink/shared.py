"""Reads that share exchanges: those that come while one is under way go out together after it.

An exchange costs both ends far more than another read in it. The same call of several reads, such as the
check of a user's access, goes out once. A read that comes while nothing is under way has an exchange of its
own, as without this module: its leader is this read itself. Each later exchange is led by the first read of
those that wait. The leader gives the lead to the next one when its exchange ends.

A read depends on others for half a second at most, and for half of its time at most. If its exchange fails or
takes longer, the read goes out once more, alone and with the rest of its time. So a fault that another read
has caused costs it time, and not its reply.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from gateway_api.base.errors import GatewayApiError
from gateway_api.wire.varlink.protocol import Reply

_log = logging.getLogger(__name__)

#: Of one exchange: the most reads, and the most bytes of their calls.
MOST_READS, MOST_BYTES = 16, 2048
#: The most seconds that a read depends on others.
LONGEST = 0.5


class Read:
    """The calls of one request, each a message, which a peer answers from memory. `deadline` is a monotonic
    time."""

    __slots__ = ("_woken", "calls", "deadline", "length", "replies")

    def __init__(self, calls: Sequence[bytes], deadline: float) -> None:
        self.calls = calls
        self.deadline = deadline
        #: Bytes of all calls.
        self.length = sum(map(len, calls))
        #: None until a shared exchange has them.
        self.replies: list[Reply] | None = None
        self._woken = threading.Lock()
        self._woken.acquire()

    def shared_until(self, now: float) -> float:
        """When it goes out alone, if it depends on others from now on."""
        return now + min(LONGEST, (self.deadline - now) / 2)

    def wait(self) -> bool:
        """Until `wake`; False if that does not come in time."""
        now = time.monotonic()
        return self._woken.acquire(timeout=max(self.shared_until(now) - now, 0))

    def wake(self) -> None:
        self._woken.release()


class SharedExchanges:
    """The exchanges of one client. `exchange` takes calls and a deadline, and raises OSError and
    GatewayApiError. `gather` gives another read the chance to join the next exchange: False when nobody is
    there. It gets whether one is expected, as the last exchange had several."""

    def __init__(
        self, exchange: Callable[[Sequence[bytes], float], list[Reply]], gather: Callable[[bool], bool]
    ) -> None:
        self._exchange = exchange
        self._gather = gather
        self._lock = threading.Lock()
        self._leader: Read | None = None
        self._waiting: list[Read] = []
        self._had_several = False

    def replies(self, read: Read) -> list[Reply]:
        """The replies to its calls. Raises what the exchange raises that it has alone."""
        if read.length <= MOST_BYTES:
            if self._leads(read):
                self._lead(read)
            if read.replies is not None:
                return read.replies
        return self._exchange(read.calls, read.deadline)

    def _leads(self, read: Read) -> bool:
        """Whether it leads an exchange. Else one that took it along has ended, or it has waited enough."""
        with self._lock:
            if self._leader is None:
                self._leader = read
                return True
            self._waiting.append(read)
        try:
            is_woken = read.wait()
        except BaseException:
            # Its greenlet is killed.
            self._leave(read)
            self._pass_on(read)
            raise
        if not is_woken:
            self._leave(read)
            # Those behind it would wait for the same exchange, and new ones, too.
            with self._lock:
                late = None if self._leader is read else self._leader
            if late is not None:
                self._pass_on(late)
        with self._lock:
            return self._leader is read

    def _leave(self, read: Read) -> None:
        with self._lock:
            if read in self._waiting:
                self._waiting.remove(read)

    def _lead(self, read: Read) -> None:
        group = [read]
        try:
            self._wait_for_others()
            group += self._others(read)
            self._had_several = len(group) > 1
            if len(group) > 1:
                self._share(group)
            else:
                read.replies = self._exchange(read.calls, read.deadline)
        finally:
            # First: the next exchange is under way while these go on.
            self._pass_on(read)
            for other in group[1:]:
                other.wake()

    def _wait_for_others(self) -> None:
        """Until one more chance brings no read."""
        before = -1
        while before < len(self._waiting) < MOST_READS - 1:
            before = len(self._waiting)
            if not self._gather(self._had_several):
                return

    def _others(self, leader: Read) -> list[Read]:
        """Takes those that go out with this one from the front of the queue."""
        with self._lock:
            room, number = MOST_BYTES - leader.length, 0
            for other in self._waiting[: MOST_READS - 1]:
                room -= other.length
                if room < 0:
                    break
                number += 1
            others = self._waiting[:number]
            del self._waiting[:number]
        return others

    def _share(self, group: list[Read]) -> None:
        now = time.monotonic()
        until = min(read.shared_until(now) for read in group)
        calls = list(dict.fromkeys(call for read in group for call in read.calls))
        try:
            replies = dict(zip(calls, self._exchange(calls, until), strict=True))
        except (OSError, GatewayApiError) as error:
            _log.info("send %d reads once more, each alone: their exchange failed: %s", len(group), error)
            return
        for read in group:
            read.replies = [replies[call] for call in read.calls]

    def _pass_on(self, leader: Read) -> None:
        """Gives the lead of this one, if it has it, to the first that waits."""
        with self._lock:
            if self._leader is not leader:
                return
            self._leader = self._waiting.pop(0) if self._waiting else None
            if self._leader is not None:
                self._leader.wake()
