"""Register of the data plane's repairs, counted by kind, and of its faults. A fault is a part of the data
plane that cannot be repaired."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gateway_contract.base.texts import join_names
from gateway_contract.core.health import Fault, FaultKind
from gateway_core.gateways.linux.kernel.netlink import KernelError

#: Names in one line of the log.
MAX_LOGGED_NAMES = 5

_log = logging.getLogger(__name__)


class PlanePart(NamedTuple):
    """Part of the data plane, identified by a kind and a name. The name is a device, a table, a destination,
    or a policy rule."""

    kind: FaultKind
    object: str


class Outcome(NamedTuple):
    """Result of a repair: the parts that were repaired, and the error of each part that could not be
    repaired."""

    changed: tuple[PlanePart, ...]
    failed: Mapping[PlanePart, KernelError]


class FaultRegister:
    """Register of repairs and faults. Thread-safe. `wall` returns epoch seconds."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._lock = threading.Lock()
        self._repairs: Counter[FaultKind] = Counter()
        #: Faults by session id; the id None is for parts that belong to no session.
        self._faults: dict[int | None, dict[PlanePart, Fault]] = {}
        #: For the next report: repaired parts, faults that are new, and faults that ended.
        self._repaired: list[PlanePart] = []
        self._new: list[Fault] = []
        self._ended: list[Fault] = []

    def count_repairs(self) -> dict[FaultKind, int]:
        """Return the number of repairs since the start of the core, by kind. Every kind is included."""
        with self._lock:
            return {kind: self._repairs[kind] for kind in FaultKind}

    def list_faults(self) -> list[Fault]:
        """Return all current faults, in no particular order."""
        with self._lock:
            return [fault for faults in self._faults.values() for fault in faults.values()]

    def list_faults_of(self, session_id: int) -> list[Fault]:
        with self._lock:
            return list(self._faults.get(session_id, {}).values())

    def list_faulty_sessions(self) -> list[int | None]:
        """Return the ids of the sessions with a fault, ordered by the last repair attempt of each session,
        oldest first. The id None stands for kernel state that belongs to no session."""
        with self._lock:
            return list(self._faults)

    def add_repairs(self, parts: Sequence[PlanePart]) -> None:
        with self._lock:
            self._repaired += parts
            self._repairs.update(part.kind for part in parts)

    def set_faults(self, session_id: int | None, reasons: Mapping[PlanePart, object]) -> None:
        """Replace the faults of a session. `session_id` is None for parts that belong to no session.
        `reasons` maps each faulty part to the reason of the fault. A fault that is already registered keeps
        its start time."""
        with self._lock:
            before = self._faults.pop(session_id, {})
            since = int(self._wall())
            faults = {
                part: before.get(part) or Fault(part.kind, part.object, session_id, str(reason), since)
                for part, reason in reasons.items()
            }
            self._new += [fault for part, fault in faults.items() if part not in before]
            self._ended += [fault for part, fault in before.items() if part not in faults]
            if faults:
                # Behind the others, which are tried before it.
                self._faults[session_id] = faults

    def report(self) -> None:
        """Log the repairs, the new faults and the ended faults since the previous call of `report`. For each
        kind, at most one line is logged for repairs, one for new faults, and one for ended faults."""
        with self._lock:
            repaired, self._repaired = self._repaired, []
            new, self._new = self._new, []
            ended, self._ended = self._ended, []
        for kind in FaultKind:
            if names := [part.object for part in repaired if part.kind == kind]:
                _log.warning(
                    "repaired kernel state of kind %s: %s", kind, join_names(names, MAX_LOGGED_NAMES)
                )
            if faults := [fault for fault in new if fault.kind == kind]:
                names = [fault.object for fault in faults]
                _log.error(
                    "cannot repair kernel state of kind %s, the core tries again: %s: %s",
                    kind,
                    join_names(names, MAX_LOGGED_NAMES),
                    faults[0].reason,
                )
            if names := [fault.object for fault in ended if fault.kind == kind]:
                _log.info("faults of kind %s have ended: %s", kind, join_names(names, MAX_LOGGED_NAMES))
