"""Finds the sessions for which the kernel has not what it must have."""

from collections.abc import Callable, Mapping, Sequence, Set
from itertools import chain, islice
from typing import NamedTuple

from gateway_api.core.gateways.linux.dataplane.fault_register import Place
from gateway_api.core.gateways.linux.dataplane.plane import DataPlane
from gateway_api.core.gateways.linux.dataplane.wanted import NOT_READ, KernelState, WantedSession
from gateway_api.core.gateways.linux.kernel.fib import FibEntry
from gateway_api.core.gateways.linux.kernel.links import LinkEntry
from gateway_api.core.gateways.linux.kernel.watcher import Changed
from gateway_api.wire.core.health import FaultKind

#: Seconds in which every session's rates and redirect are looked at: each costs questions of its own.
_ROUND = 60.0
#: Seconds after which a session is made as it must be, though nobody told of the change.
_PENDING = 5.0
#: Attempts in one comparison at what could not be repaired before.
_RETRIES = 50


class Differences(NamedTuple):
    """The findings of a comparison."""

    #: Sessions to make or repair, each with what was applied.
    to_make: Sequence[tuple[WantedSession, WantedSession | None]]
    #: By session: what it lacks that the data plane can't make, and the reason.
    missing: Mapping[int, tuple[Place, str]]
    #: All routes that may be there; None when nothing changed, and only some sessions were looked at.
    routes: Set[FibEntry] | None


class Comparison:
    """Compares the sessions with the kernel, again and again. One thread calls. `clock` gives steady
    seconds."""

    def __init__(self, plane: DataPlane, clock: Callable[[], float]) -> None:
        self._plane = plane
        self._now = clock
        #: What the kernel had at the last comparison.
        self.state: KernelState = NOT_READ
        #: Where the round of all sessions goes on, and since when it rests.
        self._place, self._looked_at = 0, clock()
        self._is_lacking = False
        #: Since when a session must have something else than what was applied.
        self._pending: dict[int, float] = {}

    def compare(
        self,
        present: Mapping[int, WantedSession],
        applied: Mapping[int, WantedSession],
        changed: frozenset[Changed],
        shaped: Set[int],
        faulty: Sequence[int | None],
    ) -> Differences:
        """`changed` since the last time are these parts of the kernel, and the qdiscs of the devices with the
        indexes `shaped`. Sessions that are `faulty` are tried, some at a time. Raises KernelError."""
        self.state = self._plane.read(changed, self.state)
        retried, due = set(faulty[:_RETRIES]), self._due(present, shaped)
        failed = set(faulty)
        is_quiet = not (changed or failed or self._is_lacking) and present == applied
        to_make: list[tuple[WantedSession, WantedSession | None]] = []
        missing: dict[int, tuple[Place, str]] = {}
        routes: list[FibEntry] = []
        now, pending = self._now(), {}
        for id in due if is_quiet else present:
            wanted, before = present[id], applied.get(id)
            link = self.state.links.get(wanted.device)
            own = self._routes(wanted, link)
            routes += own
            lacking = _lacking(wanted, self.state)
            if lacking is not None:
                missing[id] = lacking
            elif before is not None and before != wanted:
                # A new rate is in the kernel a moment before it is in the table of sessions.
                routes += self._routes(before, link)
                pending[id] = self._pending.get(id, now)
                if now - pending[id] >= _PENDING:
                    to_make.append((wanted, before))
            elif id in failed:
                if id in retried:
                    to_make.append((wanted, before))
            elif self._plane.differs(wanted, self.state, own) or (
                (before is None or id in due) and not self._plane.is_exact(wanted, self.state)
            ):
                to_make.append((wanted, before))
            elif before is None:
                self._plane.mark_applied(wanted)
        self._pending, self._is_lacking = pending, bool(missing)
        return Differences(to_make, missing, None if is_quiet else set(routes))

    def _routes(self, wanted: WantedSession, link: LinkEntry | None) -> list[FibEntry]:
        return [] if link is None else [route for _, route in self._plane.routes(wanted, link.ifindex)]

    def _due(self, present: Mapping[int, WantedSession], shaped: Set[int]) -> set[int]:
        """Ids of the sessions whose rates and redirect are looked at: in turn, and those that the kernel told
        of."""
        now = self._now()
        number = min(len(present), int(len(present) * (now - self._looked_at) / _ROUND) + 1)
        start = self._place % (len(present) or 1)
        due = set(islice(chain(present, present), start, start + number))
        self._place, self._looked_at = start + number, now
        if shaped:
            names = {name for name, link in self.state.links.items() if link.ifindex in shaped}
            due.update(id for id, wanted in present.items() if wanted.device in names or wanted.ifb in names)
        return due


def _lacking(wanted: WantedSession, state: KernelState) -> tuple[Place, str] | None:
    """The thing that a session needs, and the data plane cannot make."""
    if wanted.access_interface not in state.links:
        return Place(FaultKind.VLAN, wanted.access_interface), "there is no such device"
    link = state.links.get(wanted.device)
    if link is None:
        return Place(FaultKind.SHAPER, wanted.device), "there is no such device"
    if not link.is_up:
        return Place(FaultKind.SHAPER, wanted.device), "the device is down"
    return None
