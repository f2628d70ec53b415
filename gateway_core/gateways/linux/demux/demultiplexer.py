"""Demultiplexer of trunks: a subscriber's first frame makes the VLAN, and its device goes when the VLAN is
idle.

A thread per trunk listens. All work on devices and sources is done by one thread, in `run`. After a reboot,
it makes the VLANs of the subscribers that have a lease.
"""

import logging
import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

from gateway_contract.base.errors import GatewayApiError
from gateway_contract.base.texts import join_names
from gateway_contract.configuration import Demux
from gateway_contract.core.health import TriggerRefusal
from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.demux.admission import AccessVlan, Admission, ManagedVlan, Occupancy
from gateway_core.gateways.linux.demux.listener import Listener, Trigger
from gateway_core.gateways.linux.demux.vlan_devices import VlanDevices, VlanServing
from gateway_core.gateways.linux.threads import Crew

#: VLANs made in one turn, and told to the source at once: several daemons start in little more time than one.
#: A subscriber behind another outer tag who calls meanwhile waits for them.
_VLANS_PER_TURN = 16
#: VLANs of leases made in one turn, after which it rests so many times as long as that took: all programs of
#: the machine start at the same time.
_RESTORED_PER_TURN = 32
_RESTORE_REST_FACTOR = 1.0
#: Seconds from the start in which what fails is tried again: a trunk may come late.
_RESTORE_SECONDS = 120.0
#: VLANs removed in one sweep: new ones must not wait for the end of all that a flood left, nor may a session
#: begin between the decision and the removal.
_REMOVALS_PER_SWEEP = 32
#: VLANs without a device that are released before new ones are made: each may take seconds to end sessions.
_RELEASES_PER_TURN = 4
#: Seconds between two sweeps for idle VLANs, and for those that the source has not taken.
_SWEEP_SECONDS = 5.0
#: Seconds until a failure or refusal is logged again: each sweep, or each frame of a flood, may repeat it.
_QUIET_SECONDS = 300.0
#: Refusals for which an operator may have to do something. `{}` is the outer VLAN with its trunk.
_REFUSAL_TEXTS = {
    TriggerRefusal.OTHER_PROTOCOL: (
        "first frames on {} make no VLAN: the first of two tags must be 802.1ad (0x88a8), a single one "
        "802.1Q (0x8100)"
    ),
    TriggerRefusal.FULL: "no VLAN is made on {}: max_vlans is reached",
    TriggerRefusal.OUTER_VLAN_FULL: "no VLAN is made on {}: it has its outer_vlan_share of max_vlans",
    TriggerRefusal.OUTER_VLAN_RATE_LIMITED: "{} has too many new VLANs per second: some are refused",
}

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Demultiplexer:
    """Thread that makes and removes VLANs, as the configuration allows. Thread-safe.

    `occupancy` returns the devices with sessions: a VLAN whose source does not reply is not removed. `clock`
    gives monotonic seconds, `leased` names the devices whose subscribers have a lease at the start.
    """

    def __init__(
        self,
        demux: Demux,
        devices: VlanDevices,
        serving: VlanServing,
        occupancy: Callable[[], Occupancy],
        clock: Callable[[], float],
        leased: Iterable[str] = (),
    ) -> None:
        self._devices = devices
        self._serving = serving
        self._occupancy = occupancy
        self._clock = clock
        # Protects the attributes below; notified when `run` has work.
        self._work = threading.Condition()
        self._admission = Admission(demux, clock)
        self._trunks = frozenset(demux.trunks)
        self._to_adopt = set(demux.trunks)
        self._is_stopping = False
        #: How many times a source was to be told of all its VLANs again.
        self._again = Counter[SessionType]()
        self._restored = threading.Event()
        #: When a failure was logged, by its verb and error; or a refusal, by its reason and trunk: not by
        #: outer VLAN, of which a flood may have all.
        self._logged: dict[tuple[str, str], float] = {}
        # The attributes below are of the thread in `run` alone.
        self._leased = deque(leased)
        self._unrestored: list[str] = []
        self._began = self._restore_at = clock()
        self._vanished: deque[AccessVlan] = deque()
        self._listeners: dict[str, Listener] = {}
        self._unread: set[str] = set()
        self._has_former = True
        #: Types of sessions of which a source did not take all VLANs at the last attempt.
        self._refused: set[SessionType] = set()
        #: Types of sessions whose source is told of the VLANs that it has not taken, some in each turn.
        self._to_tell: set[SessionType] = set()

    def list_vlans(self) -> list[ManagedVlan]:
        """Return the VLANs under management. Times are those of the clock."""
        with self._work:
            return list(self._admission)

    def count_refusals(self) -> Counter[TriggerRefusal]:
        """Return the number of triggers that made no VLAN since the start, by the reason."""
        with self._work:
            return self._admission.refusals.copy()

    def configure(self, demux: Demux) -> None:
        """Apply another configuration."""
        with self._work:
            self._admission.configure(demux)
            self._trunks = frozenset(demux.trunks)
            self._to_adopt.update(demux.trunks)
            self._work.notify()

    def is_managed(self, vlan: AccessVlan) -> bool:
        """Return True for a VLAN that the gateway makes and removes. Any other is the operator's."""
        with self._work:
            return self._admission.is_managed(vlan)

    def adopt(self, trunk: str) -> None:
        """Make `run` read the VLANs of a trunk again. Call it when devices appear or disappear."""
        with self._work:
            self._to_adopt.add(trunk)
            self._work.notify()

    def serve_again(self, type: SessionType) -> None:
        """Tell the source of all VLANs of a session type again, at the next sweep."""
        with self._work:
            self._again[type] += 1
            self._admission.serve_again(type)

    def wait_until_restored(self, seconds: float) -> bool:
        """Wait until the VLANs of all leases were made, or could not be. Return False after `seconds`."""
        return self._restored.wait(seconds)

    def stop(self) -> None:
        """Make `run` return."""
        with self._work:
            self._is_stopping = True
            self._work.notify()

    def run(self, crew: Crew) -> None:
        """Make and remove VLANs until `stop`. The VLANs stay."""
        # The first sweep has adopted VLANs served.
        sweep_at = self._clock()
        try:
            while True:
                with self._work:
                    wake_at = min(sweep_at, self._restore_at) if self._leased else sweep_at
                    self._work.wait_for(self._has_work, max(0.0, wake_at - self._clock()))
                    if self._is_stopping:
                        return
                self._run_once(crew)
                self._restore()
                if self._clock() >= sweep_at:
                    is_done = self._sweep()
                    sweep_at = self._clock() + (_SWEEP_SECONDS if is_done else 0)
        finally:
            self._listen(frozenset(), crew)

    def _has_work(self) -> bool:
        has_turn = self._admission.has_waiting or self._vanished or self._to_tell
        return bool(self._is_stopping or self._to_adopt or has_turn)

    def _run_once(self, crew: Crew) -> None:
        with self._work:
            to_adopt, self._to_adopt = self._to_adopt, set()
            to_make = self._admission.take(_VLANS_PER_TURN)
            trunks = self._trunks
        for trunk in sorted(to_adopt):
            self._adopt(trunk)
        # After the adoption: else frames on VLANs that exist would take tokens of the bucket.
        self._listen(trunks, crew)
        self._make_and_serve(to_make)
        self._tell_sources()
        self._remove(_take(self._vanished, _RELEASES_PER_TURN))

    def _listen(self, trunks: frozenset[str], crew: Crew) -> None:
        for trunk in self._listeners.keys() - trunks:
            self._listeners.pop(trunk).stop()
        for trunk in sorted(trunks - self._listeners.keys()):
            self._listeners[trunk] = Listener(trunk, self._hear, self.adopt, crew)

    def _hear(self, triggers: list[Trigger], dropped: int) -> None:
        with self._work:
            self._admission.refusals[TriggerRefusal.DROPPED] += dropped
            for trigger in triggers:
                decision = self._admission.decide(trigger)
                if isinstance(decision, AccessVlan):
                    self._work.notify()
                elif decision in _REFUSAL_TEXTS and self._is_new((decision, trigger.trunk)):
                    outer = trigger.outer_vlan_id
                    tags = "" if outer is None else f", outer VLAN {outer}"
                    _log.warning(_REFUSAL_TEXTS[decision].format(f"trunk {trigger.trunk}{tags}"))

    def _adopt(self, trunk: str) -> None:
        try:
            existing = list(self._devices.find_vlans(trunk))
        except GatewayApiError as error:
            _log.error("cannot read the VLANs on %s: %s; trying again", trunk, error)
            self._unread.add(trunk)
            return
        with self._work:
            vanished = self._admission.adopt(trunk, existing)
        if vanished:
            text = "%d VLANs have lost their device, such as %s: their sources release them"
            _log.warning(text, len(vanished), vanished[0].name)
            self._vanished += vanished

    def _adopt_former(self) -> None:
        try:
            former = list(self._devices.find_former_vlans())
        except GatewayApiError as error:
            _log.error("cannot read the VLANs of an earlier life of the core: %s; trying again", error)
            return
        with self._work:
            self._admission.adopt_former(former)
        self._has_former = False

    def _make_and_serve(self, vlans: Iterable[AccessVlan]) -> list[AccessVlan]:
        """Make VLANs, tell their sources, and return the VLANs that could not be made."""
        made: list[ManagedVlan] = []
        failed, errors = [], []
        for vlan in vlans:
            try:
                self._devices.make(vlan)
            except GatewayApiError as error:
                failed.append(vlan)
                errors.append(error)
                with self._work:
                    self._admission.mark_failed(vlan)
            else:
                with self._work:
                    made.append(self._admission.mark_made(vlan))
        if failed:
            self._log_failure("make", failed, errors[0])
        for type in dict.fromkeys(each.type for each in made):
            self._serve(type, deque(each.vlan for each in made if each.type == type))
        return failed

    def _tell_sources(self) -> None:
        """Tell each source of some VLANs that it has not taken. After a failure, the next sweep goes on."""
        for type in sorted(self._to_tell):
            with self._work:
                vlans = deque(self._admission.list_unserved(type, _VLANS_PER_TURN))
            is_last = len(vlans) < _VLANS_PER_TURN
            if not self._serve(type, vlans) or is_last:
                self._to_tell.discard(type)

    def _serve(self, type: SessionType, vlans: deque[AccessVlan]) -> bool:
        """Tell the source of VLANs. Return False after a failure."""
        while vlans:
            # After a failure one by one: a VLAN that is refused must not keep the others.
            batch = list(islice(vlans, 1 if type in self._refused else _VLANS_PER_TURN))
            with self._work:
                again = self._again[type]
            try:
                self._serving.serve([vlan.name for vlan in batch], type)
            except GatewayApiError as error:
                self._refused.add(type)
                self._postpone("serve", vlans, error)
                return False
            with self._work:
                for vlan in batch:
                    # After a commit in the meantime, the source may have it as before.
                    if again == self._again[type]:
                        self._admission.mark_served(vlan)
                    vlans.popleft()
        self._refused.discard(type)
        return True

    def _restore(self) -> None:
        """Make some of the VLANs of leases, if it is time."""
        began = self._clock()
        if began < self._restore_at:
            return
        to_make = []
        with self._work:
            for name in _take(self._leased, _RESTORED_PER_TURN):
                vlan = AccessVlan.parse(name, self._trunks)
                if vlan is not None and self._admission.restore(vlan):
                    to_make.append(vlan)
        self._unrestored += sorted({vlan.name for vlan in self._make_and_serve(to_make)})
        self._restore_at = self._clock() + _RESTORE_REST_FACTOR * (self._clock() - began)
        if not self._leased:
            self._restored.set()

    def _sweep(self) -> bool:
        """Try again what has failed, and remove expired VLANs. Return False when more may have expired."""
        now = self._clock()
        if now - self._began < _RESTORE_SECONDS:
            self._leased.extend(self._unrestored)
        self._unrestored.clear()
        unread, self._unread = self._unread, set()
        for trunk in sorted(unread):
            self._adopt(trunk)
        if self._has_former:
            self._adopt_former()
        occupancy = self._occupancy()
        with self._work:
            self._logged = {key: at for key, at in self._logged.items() if now - at < _QUIET_SECONDS}
            expired = self._admission.take_expired(occupancy, _REMOVALS_PER_SWEEP)
        # Before the sources are told: that may last until a deadline, and a session may begin meanwhile.
        is_removed = self._remove(deque(expired))
        self._to_tell = set(SessionType)
        return not expired or not is_removed

    def _remove(self, vlans: deque[AccessVlan]) -> bool:
        """Release VLANs at their sources, and remove their devices. Return False after a failure."""
        released: deque[AccessVlan] = deque()
        try:
            # The source first: it must not be left with a device that is gone.
            while vlans:
                with self._work:
                    type = self._admission.get_type(vlans[0])
                self._serving.release(vlans[0].name, [type])
                released.append(vlans.popleft())
        except GatewayApiError as error:
            self._postpone_removal("release", vlans, error)
        if released:
            try:
                self._devices.remove(released)
            except GatewayApiError as error:
                self._postpone_removal("remove", released, error)
                return False
        with self._work:
            for vlan in released:
                self._admission.forget(vlan)
        return not vlans

    def _postpone_removal(self, verb: str, vlans: deque[AccessVlan], error: GatewayApiError) -> None:
        self._postpone(verb, vlans, error)
        # Their devices may be gone: then no source must be told of them before it has released them.
        self._unread.update(vlan.trunk for vlan in vlans)

    def _postpone(self, verb: str, vlans: deque[AccessVlan], error: GatewayApiError) -> None:
        """Leave VLANs to the next sweep, after the first one has failed: if the source is down, each call
        lasts until its deadline. The one that failed is the last then."""
        self._log_failure(verb, vlans, error)
        vlans.rotate(-1)
        with self._work:
            for vlan in vlans:
                self._admission.postpone(vlan)

    def _log_failure(self, verb: str, vlans: Sequence[AccessVlan], error: GatewayApiError) -> None:
        """Log a failure in one line: during a flood, each VLAN may fail."""
        if self._is_new((verb, str(error))):
            _log.error("cannot %s %s: %s", verb, join_names([vlan.name for vlan in vlans], 1), error)

    def _is_new(self, key: tuple[str, str]) -> bool:
        """Return True if a failure or refusal was not logged for _QUIET_SECONDS, and note that it is now."""
        now = self._clock()
        with self._work:
            if now - self._logged.get(key, -math.inf) < _QUIET_SECONDS:
                return False
            self._logged[key] = now
        return True


def _take(queue: deque[T], limit: int) -> deque[T]:
    """Remove the first items of a queue, at most `limit`, and return them."""
    return deque(queue.popleft() for _ in range(min(limit, len(queue))))
