"""Reconciler of the data plane. Every few seconds, and when the kernel reports a change, the reconciler
compares the kernel with the sessions, and repairs differences."""

import logging
import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence, Set
from itertools import accumulate, chain, islice
from typing import NamedTuple, Protocol

from gateway_contract.base.errors import GatewayApiError
from gateway_contract.base.texts import join_names
from gateway_contract.core.health import DelayCount, FaultKind, LimitDelays
from gateway_core.gateways.linux.dataplane.fault_register import (
    MAX_LOGGED_NAMES,
    FaultRegister,
    Outcome,
    PlanePart,
)
from gateway_core.gateways.linux.dataplane.plane import (
    EMPTY_STATE,
    LIMIT_KINDS,
    DataPlane,
    KernelState,
    WantedSession,
)
from gateway_core.gateways.linux.dataplane.routes import RouteState
from gateway_core.gateways.linux.kernel.fib import FibEntry
from gateway_core.gateways.linux.kernel.links import LinkEntry
from gateway_core.gateways.linux.kernel.netlink import KernelError
from gateway_core.gateways.linux.kernel.watcher import ALL_PARTS, ChangedPart, Watcher
from gateway_core.gateways.linux.threads import ThreadGroup
from gateway_core.records.clock import Clock

#: Seconds between two sweeps, and from a change in the kernel to a sweep, for changes that follow.
_SWEEP_INTERVAL_SECONDS, _DEBOUNCE_SECONDS = 5.0, 0.2
#: A sweep rests so many times as long as it read and compared: changes without an end must not take the whole
#: processor. What it makes does not count: the more there is to make, the longer a fault would stay.
_REST_FACTOR = 10
#: Seconds after which all is read again, even if the kernel reported no change; and in which every session's
#: rates and redirect are compared once: each costs queries of its own.
_ROUND_SECONDS = 60.0
#: Seconds that a device, or a VLAN, may be missing while its session ends.
_GRACE_SECONDS = 2 * _SWEEP_INTERVAL_SECONDS
#: Sessions that are made at once, in less than half a second. New sessions come before the next batch.
_SESSIONS_PER_BATCH = 256
_REPAIRS_PER_SWEEP = 4 * _SESSIONS_PER_BATCH
#: Seconds after which a session is made as it must be, though nobody reported the change.
_MAX_PENDING_SECONDS = 5.0
#: Sessions with a fault that one comparison tries to repair again.
_MAX_RETRIES_PER_SWEEP = 50
#: Bounds of the histogram in seconds: dense around the second within which a limit is to be there.
_DELAY_BOUNDS_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

#: Sessions to create or repair, each with the state that was applied before.
_SessionChanges = Sequence[tuple[WantedSession, WantedSession | None]]

_log = logging.getLogger(__name__)


class DelayHistogram:
    """Histogram of the delay from the start of a session to its rate limits in the kernel, in seconds.
    Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Sessions by the bound that their delay does not exceed; at the end those beyond all bounds.
        self._sessions = [0] * (len(_DELAY_BOUNDS_SECONDS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        with self._lock:
            self._sessions[bisect_left(_DELAY_BOUNDS_SECONDS, seconds)] += 1
            self._sum += seconds

    def read(self) -> LimitDelays:
        with self._lock:
            sessions, seconds = list(accumulate(self._sessions)), self._sum
        return LimitDelays(tuple(map(DelayCount, _DELAY_BOUNDS_SECONDS, sessions)), sessions[-1], seconds)


class Differences(NamedTuple):
    """Result of a comparison: the sessions to repair, the missing devices that the data plane cannot create,
    and the expected routes."""

    sessions_to_apply: _SessionChanges
    #: Missing devices that the data plane cannot create, by session id, with the reason.
    missing: Mapping[int, tuple[PlanePart, str]]
    #: All routes that may be there; None when nothing changed, and only some sessions were compared.
    routes: Set[FibEntry] | None


class Comparison:
    """Repeated comparison of the wanted sessions with the kernel. `clock` returns monotonic seconds. Not
    thread-safe."""

    def __init__(self, plane: DataPlane, clock: Callable[[], float]) -> None:
        self._plane = plane
        self._now = clock
        #: What the kernel had at the last reading.
        self.state: KernelState = EMPTY_STATE
        #: Where the round of all sessions goes on, and when it stopped.
        self._position, self._stopped_at = 0, clock()
        self._is_lacking = False
        #: Time since which the wanted state of a session differs from its applied state.
        self._pending: dict[int, float] = {}

    def read(self, changed: frozenset[ChangedPart]) -> None:
        """Read the parts of the kernel state that changed since the previous call of `read`. Raises
        KernelError if the kernel cannot be read."""
        self.state = self._plane.read(changed, self.state)

    def compare(
        self,
        present: Mapping[int, WantedSession],
        applied: Mapping[int, WantedSession],
        changed: frozenset[ChangedPart],
        shaped_indexes: Set[int],
        faulty_ids: Sequence[int | None],
    ) -> Differences:
        """Compare the sessions in `present` with the kernel state of the last `read`. `present` is the wanted
        state of each session by session id, and `applied` is the state that was applied before. `changed` are
        the parts that the last `read` has read again. `shaped_indexes` are the indexes of the devices whose
        qdiscs changed. `faulty_ids` are the ids of the sessions with a fault: at most _MAX_RETRIES_PER_SWEEP
        of these sessions are repaired again. Raises KernelError if a request to the kernel fails."""
        retried, due = set(faulty_ids[:_MAX_RETRIES_PER_SWEEP]), self._select_due(present, shaped_indexes)
        faulty_set = set(faulty_ids)
        is_quiet = not (changed or faulty_set or self._is_lacking) and present == applied
        sessions_to_apply: list[tuple[WantedSession, WantedSession | None]] = []
        missing: dict[int, tuple[PlanePart, str]] = {}
        routes: list[FibEntry] = []
        now, pending = self._now(), {}
        for id in due if is_quiet else present:
            wanted, before = present[id], applied.get(id)
            link = self.state.links.get(wanted.device)
            own_routes = self._list_routes(wanted, link)
            routes += own_routes
            missing_device = _find_missing_device(wanted, self.state)
            if missing_device is not None:
                missing[id] = missing_device
            elif before is not None and before != wanted:
                # A new rate is in the kernel a moment before it is in the table of sessions.
                routes += self._list_routes(before, link)
                pending[id] = self._pending.get(id, now)
                if now - pending[id] >= _MAX_PENDING_SECONDS:
                    sessions_to_apply.append((wanted, before))
            elif id in faulty_set:
                if id in retried:
                    sessions_to_apply.append((wanted, before))
            elif self._plane.has_differences(wanted, self.state, own_routes) or (
                id in due and not self._plane.has_exact_limits(wanted, self.state)
            ):
                sessions_to_apply.append((wanted, before))
            elif before is None:
                self._plane.mark_applied(wanted)
        self._pending, self._is_lacking = pending, bool(missing)
        return Differences(sessions_to_apply, missing, None if is_quiet else set(routes))

    def _list_routes(self, wanted: WantedSession, link: LinkEntry | None) -> list[FibEntry]:
        return [] if link is None else [route for _, route in self._plane.list_routes(wanted, link.ifindex)]

    def _select_due(self, present: Mapping[int, WantedSession], shaped_indexes: Set[int]) -> set[int]:
        """Return the ids of the sessions whose rates and redirect are due for a comparison. Due are the next
        sessions of the round, which compares all sessions within _ROUND_SECONDS, and the sessions with a
        device index in `shaped_indexes`."""
        now = self._now()
        number = min(len(present), int(len(present) * (now - self._stopped_at) / _ROUND_SECONDS) + 1)
        start = self._position % (len(present) or 1)
        due = set(islice(chain(present, present), start, start + number))
        self._position, self._stopped_at = start + number, now
        if shaped_indexes:
            names = {name for name, link in self.state.links.items() if link.ifindex in shaped_indexes}
            due.update(id for id, wanted in present.items() if wanted.device in names or wanted.ifb in names)
        return due


def _find_missing_device(wanted: WantedSession, state: KernelState) -> tuple[PlanePart, str] | None:
    """Return the device that a session needs but the data plane cannot create, with the reason why the device
    counts as missing. Return None if no device is missing."""
    if wanted.access_interface not in state.links:
        return PlanePart(FaultKind.VLAN, wanted.access_interface), "there is no such device"
    link = state.links.get(wanted.device)
    if link is not None and link.is_up:
        return None
    reason = "there is no such device" if link is None else "the device is down"
    return PlanePart(FaultKind.SHAPER, wanted.device), reason


class DesiredState(Protocol):
    """Wanted state of the kernel: the sessions whose state must be in the kernel. Thread-safe."""

    def get_wanted(self) -> Mapping[int, WantedSession]:
        """Return the wanted sessions by session id. The returned mapping never changes."""

    def is_complete(self) -> bool:
        """Return True if every source has replied since the start of the core. Kernel state without a session
        may be removed only if the wanted state is complete."""

    def is_fresh(self) -> bool:
        """Return True if every source replied to the last request. Then no session is stale."""

    def restore_vlan(self, interface: str) -> bool:
        """Recreate the network device of a VLAN. Return False if the VLAN does not belong to the gateway.
        Raises GatewayApiError if the device cannot be created."""


class Reconciler:
    """Thread that creates the kernel state of new sessions, removes the kernel state of ended sessions, and
    repairs kernel state that differs from the wanted state. The first creation of a session's state does not
    count as a repair. `fault_register` contains the repairs and the faults. Any thread may call `apply_soon`
    and `stop`."""

    def __init__(self, plane: DataPlane, desired: DesiredState, clock: Clock) -> None:
        self.fault_register = FaultRegister(clock.wall)
        #: A session whose limits the kernel refuses at first is a fault, and not among the delays.
        self.limit_delays = DelayHistogram()
        self._plane = plane
        self._desired = desired
        self._now = clock.steady
        self._work = threading.Condition()
        self._is_stopping = False
        #: Ids of sessions to apply, in the order of the calls.
        self._changed: dict[int, None] = {}
        #: Since when sessions wait to be made for the first time, or to be compared.
        self._waiting: dict[int, float] = {}
        self._sweep_at = self._rest_until = self._read_at = self._now()
        self._comparison = Comparison(plane, self._now)
        #: Parts of the kernel that changed since the last sweep: all, unless `run` watches it.
        self._unread = ALL_PARTS
        self._is_watching = self._was_complete = False
        #: Since when sessions lack something that the data plane can't make.
        self._missing: dict[int, float] = {}
        self._take_shaped: Callable[[], set[int]] = set

    def apply_soon(self, *ids: int) -> None:
        """Make `run` apply the wanted state of sessions as soon as possible. `ids` are the ids of new,
        changed or ended sessions."""
        with self._work:
            now = self._now()
            for id in ids:
                self._changed[id] = None
                self._waiting.setdefault(id, now)
            self._work.notify()

    def stop(self) -> None:
        """Make `run` return."""
        with self._work:
            self._is_stopping = True
            self._work.notify()

    def run(self, thread_group: ThreadGroup) -> None:
        """Reconcile until `stop` is called. The kernel state of the sessions stays after the return."""
        with Watcher() as watcher:
            self._take_shaped, self._is_watching = watcher.take_shaped_indexes, True
            thread = thread_group.start(lambda: self._watch(watcher), "kernel watcher")
            try:
                while self._wait():
                    self._run_once()
            finally:
                watcher.close()
                thread.join()

    def sweep(self) -> None:
        """Compare all sessions with the kernel, and repair the differences of at most _REPAIRS_PER_SWEEP
        sessions. Raises KernelError if a request to the kernel fails."""
        started = self._now()
        # Before the sessions: a source that replies in between has its sessions in the next sweep.
        is_complete, is_fresh = self._desired.is_complete(), self._desired.is_fresh()
        # Before the sessions too: one that appears in between must not count as gone.
        applied = self._plane.get_applied_sessions()
        present = self._desired.get_wanted()
        with self._work:
            changed, self._unread = self._unread, frozenset() if self._is_watching else ALL_PARTS
        if started - self._read_at >= _ROUND_SECONDS or is_complete != self._was_complete:
            changed, self._read_at, self._was_complete = ALL_PARTS, started, is_complete
        with self._work:
            self._waiting = {
                id: at
                for id, at in self._waiting.items()
                if id in self._changed or (id in present and id not in applied)
            }
        if present != applied:
            self._plane.set_owners(present.values())
            self._remove_ended([wanted for id, wanted in applied.items() if id not in present], present)
        began = self._now()
        self._comparison.read(changed)
        seconds = self._now() - began
        # Of thousands of sessions, reading and comparison take a while each. Not during the reading: the
        # routes of a session that is not among those present would be surplus.
        self._apply_changed()
        began = self._now()
        faulty_ids = self.fault_register.list_faulty_sessions()
        differences = self._comparison.compare(present, applied, changed, self._take_shaped(), faulty_ids)
        seconds += self._now() - began
        self._handle_missing_devices(differences.missing, started, is_fresh)
        self._repair_common(self._comparison.state)
        self._rest_until = self._now() + _REST_FACTOR * seconds
        is_done = self._repair(differences.sessions_to_apply)
        if is_complete and differences.routes is not None:
            removed_names = self._plane.remove_surplus(self._comparison.state, differences.routes)
            if removed_names:
                _log.info(
                    "removed kernel state that belongs to no session: %s",
                    join_names(removed_names, MAX_LOGGED_NAMES),
                )
        self.fault_register.report()
        with self._work:
            now = self._now()
            if is_done:
                self._sweep_at = max(now + _SWEEP_INTERVAL_SECONDS, self._rest_until)
            else:
                # New sessions come first, and one comparison serves many of them.
                self._sweep_at = self._rest_until if self._changed else now

    def _wait(self) -> bool:
        """Wait until sessions have changed or the next sweep is due. Return False if `stop` was called."""
        with self._work:
            while not (self._is_stopping or self._changed):
                wait_seconds = self._sweep_at - self._now()
                if wait_seconds <= 0:
                    break
                self._work.wait(wait_seconds)
            return not self._is_stopping

    def _run_once(self) -> None:
        try:
            self._apply_changed()
            if self._sweep_at <= self._now():
                self.sweep()
        except KernelError as error:
            text = "cannot compare the data plane with the sessions: %s; trying again in %g s"
            _log.warning(text, error, _SWEEP_INTERVAL_SECONDS)
            with self._work:
                self._unread = ALL_PARTS
                self._sweep_at = self._now() + _SWEEP_INTERVAL_SECONDS

    def _watch(self, watcher: Watcher) -> None:
        for changed in watcher:
            with self._work:
                self._unread |= changed
                next_sweep_at = max(self._now() + _DEBOUNCE_SECONDS, self._rest_until)
                if next_sweep_at < self._sweep_at:
                    self._sweep_at = next_sweep_at
                    self._work.notify()

    def _apply_changed(self) -> None:
        with self._work:
            ids = list(islice(self._changed, _SESSIONS_PER_BATCH))
            for id in ids:
                del self._changed[id]
        if not ids:
            return
        applied = self._plane.get_applied_sessions()
        present = self._desired.get_wanted()
        new = [present[id] for id in ids if id in present and present[id] != applied.get(id)]
        # Before the others go: a new session may have the device of a former one.
        self._plane.assign_owners(new)
        self._remove_ended([applied[id] for id in ids if id in applied and id not in present], present)
        self._apply_batch([(wanted, applied.get(wanted.session_id)) for wanted in new])
        self.fault_register.report()

    def _remove_ended(self, gone: list[WantedSession], present: Mapping[int, WantedSession]) -> None:
        # First: the kernel may refuse to remove something.
        for id in self.fault_register.list_faulty_sessions():
            if id is not None and id not in present:
                self.fault_register.set_faults(id, {})
        if gone:
            self._plane.remove(*gone)

    def _handle_missing_devices(
        self, missing: Mapping[int, tuple[PlanePart, str]], now: float, is_fresh: bool
    ) -> None:
        """Recreate VLAN devices that have been missing for _GRACE_SECONDS. Record every other device that has
        been missing for _GRACE_SECONDS, and every VLAN device that cannot be recreated, as a fault. `missing`
        contains the missing device of each session and the reason, by session id. `now` is in monotonic
        seconds. `is_fresh` is True if no session is stale."""
        # While a source does not reply, its sessions may be over: the time does not count.
        self._missing = {id: self._missing.get(id, now) if is_fresh else now for id in missing}
        reasons: dict[PlanePart, str | None] = {}
        for id, (part, reason) in missing.items():
            if now - self._missing[id] < _GRACE_SECONDS:
                continue
            if part not in reasons:
                is_vlan = part.kind == FaultKind.VLAN
                reasons[part] = self._restore_vlan(part, reason) if is_vlan else reason
            final_reason = reasons[part]
            self.fault_register.set_faults(id, {} if final_reason is None else {part: final_reason})

    def _restore_vlan(self, part: PlanePart, reason: str) -> str | None:
        """Recreate the device of a VLAN. Return None on success. Return the reason why the device is still
        missing otherwise: `reason` if the VLAN does not belong to the gateway, or the text of the error."""
        try:
            if not self._desired.restore_vlan(part.object):
                return reason
        except GatewayApiError as error:
            return str(error)
        self.fault_register.add_repairs([part])
        return None

    def _repair_common(self, state: KernelState) -> None:
        outcome = self._plane.repair_common(state)
        if outcome is None:
            return
        self.fault_register.set_faults(None, outcome.failed)
        if outcome.changed:
            self.fault_register.add_repairs(outcome.changed)
            with self._work:
                self._unread = ALL_PARTS

    def _repair(self, todo: _SessionChanges) -> bool:
        """Create or repair the kernel state of sessions in batches. Return False if some sessions are left,
        because new sessions must be applied first or because the limit of the sweep is reached."""
        for first in range(0, len(todo), _SESSIONS_PER_BATCH):
            if first and (first >= _REPAIRS_PER_SWEEP or self._changed):
                return False
            self._apply_batch(todo[first : first + _SESSIONS_PER_BATCH], self._comparison.state.routes)
        return True

    def _apply_batch(self, todo: _SessionChanges, known_routes: RouteState | None = None) -> None:
        for (wanted, before), outcome in zip(todo, self._plane.repair(todo, known_routes), strict=True):
            if outcome is None:
                # The session is changing, or its device is gone: the next comparison sees it.
                continue
            self.fault_register.set_faults(wanted.session_id, outcome.failed)
            self._record_delay(wanted.session_id, before, outcome)
            if before == wanted:
                self.fault_register.add_repairs(outcome.changed)

    def _record_delay(self, id: int, before: WantedSession | None, outcome: Outcome) -> None:
        with self._work:
            since = self._waiting.pop(id, None)
        is_limited = LIMIT_KINDS.isdisjoint(part.kind for part in outcome.failed)
        # A session of an earlier life of the core may have had its limits.
        is_changed = not LIMIT_KINDS.isdisjoint(part.kind for part in outcome.changed)
        if since is not None and before is None and is_limited and is_changed:
            self.limit_delays.observe(self._now() - since)
