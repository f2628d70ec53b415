"""The results of a comparison with the kernel: repairs by kind, and what cannot be repaired."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gateway_contract.base.texts import join_names
from gateway_contract.core.health import Fault, FaultKind
from gateway_core.gateways.linux.kernel.netlink import KernelError

#: Names in one line of the log.
NAMED = 5

_log = logging.getLogger(__name__)


class Place(NamedTuple):
    """A part of the data plane: its kind, and the name of the device or table, the destination of the route,
    or the rule."""

    kind: FaultKind
    object: str


class Outcome(NamedTuple):
    """The places that were missing or different and are right now, and those that could not be made right."""

    changed: tuple[Place, ...]
    failed: Mapping[Place, KernelError]


class FaultRegister:
    """Repairs and faults. Any thread may call. `wall` gives epoch seconds."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._lock = threading.Lock()
        self._repairs: Counter[FaultKind] = Counter()
        self._faults: dict[int | None, dict[Place, Fault]] = {}
        #: What `report` logs next.
        self._repaired: list[Place] = []
        self._failed: list[Fault] = []
        self._over: list[Fault] = []

    def repairs(self) -> dict[FaultKind, int]:
        """Return the successful repairs of every kind."""
        with self._lock:
            return {kind: self._repairs[kind] for kind in FaultKind}

    def faults(self) -> list[Fault]:
        """Return all faults, in no order."""
        with self._lock:
            return [fault for held in self._faults.values() for fault in held.values()]

    def faults_of(self, session_id: int) -> list[Fault]:
        with self._lock:
            return list(self._faults.get(session_id, {}).values())

    def faulty(self) -> list[int | None]:
        """Ids of the sessions with a fault, the one that was tried last at the end; None for what belongs to
        no session."""
        with self._lock:
            return list(self._faults)

    def repaired(self, places: Sequence[Place]) -> None:
        """Count repairs."""
        with self._lock:
            self._repaired += places
            self._repairs.update(place.kind for place in places)

    def settle(self, session_id: int | None, failed: Mapping[Place, object]) -> None:
        """Replace the faults of a session, by their reasons. A fault that stays keeps its time."""
        with self._lock:
            held = self._faults.get(session_id, {})
            since = int(self._wall())
            found = {
                place: held.get(place) or Fault(place.kind, place.object, session_id, str(reason), since)
                for place, reason in failed.items()
            }
            self._failed += [fault for place, fault in found.items() if place not in held]
            self._over += [fault for place, fault in held.items() if place not in found]
            self._faults.pop(session_id, None)
            if found:
                # Behind the others, which are tried before it.
                self._faults[session_id] = found

    def report(self) -> None:
        """Log what is new since the last call, one line for each kind."""
        with self._lock:
            repaired, self._repaired = self._repaired, []
            failed, self._failed = self._failed, []
            over, self._over = self._over, []
        for kind in FaultKind:
            names = [place.object for place in repaired if place.kind == kind]
            if names:
                _log.warning("repaired %d of kind %s: %s", len(names), kind, join_names(names, NAMED))
            faults = [fault for fault in failed if fault.kind == kind]
            if faults:
                names = [fault.object for fault in faults]
                _log.error(
                    "cannot repair %s of kind %s: %s", join_names(names, NAMED), kind, faults[0].reason
                )
            names = [fault.object for fault in over if fault.kind == kind]
            if names:
                _log.info("no fault any more of kind %s: %s", kind, join_names(names, NAMED))
