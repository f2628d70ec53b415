"""Keeps the data plane as it must be.

It compares the kernel with the sessions, every few seconds and when the kernel tells of a change, and repairs
what differs.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence, Set
from itertools import chain, islice
from typing import NamedTuple, Protocol

from gateway_contract.base.errors import GatewayApiError
from gateway_contract.base.texts import join_names
from gateway_contract.core.health import FaultKind
from gateway_core.gateways.linux.dataplane.fault_register import NAMED, FaultRegister, Outcome, Place
from gateway_core.gateways.linux.dataplane.limit_delays import DelayHistogram
from gateway_core.gateways.linux.dataplane.plane import LIMITS, DataPlane
from gateway_core.gateways.linux.dataplane.wanted import NOT_READ, KernelState, RouteState, WantedSession
from gateway_core.gateways.linux.kernel.fib import FibEntry
from gateway_core.gateways.linux.kernel.links import LinkEntry
from gateway_core.gateways.linux.kernel.netlink import KernelError
from gateway_core.gateways.linux.kernel.watcher import EVERYTHING, Changed, Watcher
from gateway_core.gateways.linux.threads import Crew
from gateway_core.records.clock import Clock

#: Seconds between two sweeps.
_INTERVAL = 5.0
#: Seconds after a change in the kernel, for others that follow.
_DEBOUNCE = 0.2
#: A sweep rests so many times as long as it read and compared: changes without an end must not take the whole
#: processor. What it makes does not count: the more there is to make, the longer a fault would stay.
_REST = 10
#: Seconds after which all is read again, even if the kernel told of no change; and in which every session's
#: rates and redirect are looked at: each costs questions of its own.
_ROUND = 60.0
#: Seconds that a device, or a VLAN, may be missing while its session ends.
_GRACE = 2 * _INTERVAL
#: Sessions that are made at once, in less than half a second. Before the next ones, new sessions are looked
#: for.
_BATCH = 256
#: Repairs in one sweep.
_AT_ONCE = 4 * _BATCH
#: Seconds after which a session is made as it must be, though nobody told of the change.
_PENDING = 5.0
#: Attempts in one comparison at what could not be repaired before.
_RETRIES = 50

_log = logging.getLogger(__name__)


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

    def read(self, changed: frozenset[Changed]) -> None:
        """Read these parts of the kernel, which changed since the last time. Raises KernelError."""
        self.state = self._plane.read(changed, self.state)

    def compare(
        self,
        present: Mapping[int, WantedSession],
        applied: Mapping[int, WantedSession],
        changed: frozenset[Changed],
        shaped: Set[int],
        faulty: Sequence[int | None],
    ) -> Differences:
        """Compare with what was read last. `changed` since the reading before are these parts of the kernel,
        and the qdiscs of the devices with the indexes `shaped`. Sessions that are `faulty` are tried, some at
        a time. Raises KernelError."""
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
                id in due and not self._plane.is_exact(wanted, self.state)
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
    """Return the thing that a session needs, and the data plane cannot make."""
    if wanted.access_interface not in state.links:
        return Place(FaultKind.VLAN, wanted.access_interface), "there is no such device"
    link = state.links.get(wanted.device)
    if link is None:
        return Place(FaultKind.SHAPER, wanted.device), "there is no such device"
    if not link.is_up:
        return Place(FaultKind.SHAPER, wanted.device), "the device is down"
    return None


class DesiredState(Protocol):
    """The sessions that must be in the kernel. Any thread may call."""

    def wanted(self) -> Mapping[int, WantedSession]:
        """By session id. Nobody changes it afterwards."""

    def is_complete(self) -> bool:
        """Every source has replied since the start: what belongs to no session is left over."""

    def is_fresh(self) -> bool:
        """Every source replied when it was last asked: no session is stale."""

    def restore_vlan(self, interface: str) -> bool:
        """Make the device of a VLAN again. False if it is none of the gateway's. Raises GatewayApiError, with
        a text for the log."""


class Reconciler:
    """Makes what new sessions need, removes what former ones had, and repairs. What it makes for the first
    time is no repair. `fault_register` has the repairs and the faults. Any thread may call `changed` and
    `stop`."""

    def __init__(self, plane: DataPlane, desired: DesiredState, clock: Clock) -> None:
        self.fault_register = FaultRegister(clock.wall)
        #: A session whose limits the kernel refuses at first is a fault, and not among them.
        self.limit_delays = DelayHistogram()
        self._plane = plane
        self._desired = desired
        self._now = clock.steady
        self._work = threading.Condition()
        self._stopping = False
        #: In the order of the calls.
        self._changed: dict[int, None] = {}
        #: Since when sessions wait to be made for the first time, and others to be looked at.
        self._waiting: dict[int, float] = {}
        self._sweep_at = self._rest_until = self._read_at = self._now()
        self._comparison = Comparison(plane, self._now)
        #: What changed in the kernel since the last sweep: all, unless `run` watches it.
        self._unread = EVERYTHING
        self._is_watching = self._was_complete = False
        #: Since when something of a session is missing that is not ours to make.
        self._missing: dict[int, float] = {}
        self._shaped: Callable[[], set[int]] = set

    def changed(self, *ids: int) -> None:
        """Apply sessions soon: those that are new, different or gone."""
        with self._work:
            now = self._now()
            for id in ids:
                self._changed[id] = None
                self._waiting.setdefault(id, now)
            self._work.notify()

    def stop(self) -> None:
        """Has `run` return."""
        with self._work:
            self._stopping = True
            self._work.notify()

    def run(self, crew: Crew) -> None:
        """Works until `stop`; what the sessions have stays."""
        with Watcher() as watcher:
            self._shaped, self._is_watching = watcher.take_shaped, True
            thread = crew.start(lambda: self._watch(watcher), "kernel watcher")
            try:
                while self._is_running():
                    self._turn()
            finally:
                watcher.close()
                thread.join()

    def sweep(self) -> None:
        """Compare all, and repair what differs, or a part of it. Raises KernelError when the kernel cannot be
        read."""
        started = self._now()
        # Before the sessions: a source that replies in between has its sessions in the next sweep.
        is_complete, is_fresh = self._desired.is_complete(), self._desired.is_fresh()
        # Before the sessions too: one that appears in between must not count as gone.
        applied = self._plane.applied()
        present = self._desired.wanted()
        with self._work:
            changed, self._unread = self._unread, frozenset() if self._is_watching else EVERYTHING
        if started - self._read_at >= _ROUND or is_complete != self._was_complete:
            changed, self._read_at, self._was_complete = EVERYTHING, started, is_complete
        with self._work:
            self._waiting = {
                id: at
                for id, at in self._waiting.items()
                if id in self._changed or (id in present and id not in applied)
            }
        if present != applied:
            self._plane.set_owners(present.values())
            self._forget([wanted for id, wanted in applied.items() if id not in present], present)
        began = self._now()
        self._comparison.read(changed)
        seconds = self._now() - began
        # Of thousands of sessions, reading and comparison take a while each. Not amid the reading: the routes
        # of a session that is not among those present would be left over.
        self._apply_changed()
        began = self._now()
        found = self._comparison.compare(
            present, applied, changed, self._shaped(), self.fault_register.faulty()
        )
        seconds += self._now() - began
        self._note_missing(found.missing, started, is_fresh)
        self._settle(self._comparison.state)
        self._rest_until = self._now() + _REST * seconds
        is_done = self._repair(found.to_make)
        if is_complete and found.routes is not None:
            removed = self._plane.remove_surplus(self._comparison.state, found.routes)
            if removed:
                _log.info("removed what belongs to no session: %s", join_names(removed, NAMED))
        self.fault_register.report()
        with self._work:
            now = self._now()
            if is_done:
                self._sweep_at = max(now + _INTERVAL, self._rest_until)
            else:
                # New sessions come first, and one comparison serves many of them.
                self._sweep_at = self._rest_until if self._changed else now

    def _is_running(self) -> bool:
        """Wait for work. False after `stop`."""
        with self._work:
            while not (self._stopping or self._changed):
                rest = self._sweep_at - self._now()
                if rest <= 0:
                    break
                self._work.wait(rest)
            return not self._stopping

    def _turn(self) -> None:
        try:
            self._apply_changed()
            if self._sweep_at <= self._now():
                self.sweep()
        except KernelError as error:
            _log.warning("cannot compare the data plane with the sessions: %s", error)
            self._read_again()
            with self._work:
                self._sweep_at = self._now() + _INTERVAL

    def _watch(self, watcher: Watcher) -> None:
        for changed in watcher:
            with self._work:
                self._unread |= changed
                soon = max(self._now() + _DEBOUNCE, self._rest_until)
                if soon < self._sweep_at:
                    self._sweep_at = soon
                    self._work.notify()

    def _apply_changed(self) -> None:
        with self._work:
            ids = list(islice(self._changed, _BATCH))
            for id in ids:
                del self._changed[id]
        if not ids:
            return
        applied = self._plane.applied()
        present = self._desired.wanted()
        new = [present[id] for id in ids if id in present and present[id] != applied.get(id)]
        # Before the others go: a new one may have the device of a former one.
        self._plane.take_over(new)
        self._forget([applied[id] for id in ids if id in applied and id not in present], present)
        self._make([(wanted, applied.get(wanted.session_id)) for wanted in new])
        self.fault_register.report()

    def _forget(self, gone: list[WantedSession], present: Mapping[int, WantedSession]) -> None:
        # First: the kernel may refuse to remove something.
        for id in self.fault_register.faulty():
            if id is not None and id not in present:
                self.fault_register.settle(id, {})
        if gone:
            self._plane.remove(*gone)

    def _note_missing(self, missing: Mapping[int, tuple[Place, str]], now: float, is_fresh: bool) -> None:
        """Restore VLANs, and make faults of what is missing for long."""
        # While a source does not reply, its sessions may be over: the time does not count.
        self._missing = {id: self._missing.get(id, now) if is_fresh else now for id in missing}
        outcomes: dict[Place, str | None] = {}
        for id, (place, reason) in missing.items():
            if now - self._missing[id] < _GRACE:
                continue
            if place not in outcomes:
                is_vlan = place.kind == FaultKind.VLAN
                outcomes[place] = self._restored(place.object, reason) if is_vlan else reason
            failed = outcomes[place]
            self.fault_register.settle(id, {} if failed is None else {place: failed})

    def _restored(self, vlan: str, reason: str) -> str | None:
        """None, or why it is still missing."""
        try:
            if not self._desired.restore_vlan(vlan):
                return reason
        except GatewayApiError as error:
            return str(error)
        self.fault_register.repaired([Place(FaultKind.VLAN, vlan)])
        return None

    def _settle(self, state: KernelState) -> None:
        outcome = self._plane.settle(state)
        if outcome is None:
            return
        self.fault_register.settle(None, outcome.failed)
        if outcome.changed:
            self.fault_register.repaired(outcome.changed)
            self._read_again()

    def _read_again(self) -> None:
        with self._work:
            self._unread = EVERYTHING

    def _repair(self, todo: Sequence[tuple[WantedSession, WantedSession | None]]) -> bool:
        """Return True when all were tried."""
        for first in range(0, len(todo), _BATCH):
            if first and (first >= _AT_ONCE or self._changed):
                return False
            self._make(todo[first : first + _BATCH], self._comparison.state.routes)
        return True

    def _make(
        self,
        todo: Sequence[tuple[WantedSession, WantedSession | None]],
        known: RouteState | None = None,
    ) -> None:
        for (wanted, before), outcome in zip(todo, self._plane.repair(todo, known), strict=True):
            if outcome is None:
                # It is changing, or its device is gone: the next comparison sees it.
                continue
            self.fault_register.settle(wanted.session_id, outcome.failed)
            self._note_delay(wanted.session_id, before, outcome)
            if before == wanted:
                self.fault_register.repaired(outcome.changed)

    def _note_delay(self, id: int, before: WantedSession | None, outcome: Outcome) -> None:
        with self._work:
            since = self._waiting.pop(id, None)
        is_limited = LIMITS.isdisjoint(place.kind for place in outcome.failed)
        # One of an earlier life of the core may have had its limits.
        is_changed = not LIMITS.isdisjoint(place.kind for place in outcome.changed)
        if since is not None and before is None and is_limited and is_changed:
            self.limit_delays.observe(self._now() - since)
