"""VLANs on demand: a subscriber's first frame on a trunk makes the VLAN, and its device goes when it is idle.

A thread per trunk listens. All work on devices and sources is done by one thread, in `run`. After a reboot,
it makes the VLANs of the subscribers that have a lease.
"""

import logging
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
from gateway_core.gateways.linux.demux.admission import AccessVlan, Admission, Occupancy, ServedVlan
from gateway_core.gateways.linux.demux.listener import Listener, Trigger
from gateway_core.gateways.linux.demux.vlan_devices import VlanDevices, VlanServing
from gateway_core.gateways.linux.threads import Crew

#: VLANs made in one turn, and told to the source at once: several daemons start in little more time than one.
#: A subscriber behind another outer tag who calls meanwhile waits for them.
_AT_ONCE = 16
#: VLANs of leases made in one turn, after which it rests so many times as long as that took: all programs of
#: the machine start at the same time.
_RESTORED_AT_ONCE = 32
_REST = 1.0
#: Seconds from the start in which what fails is tried again: a trunk may come late.
_RESTORING = 120.0
#: VLANs removed in one sweep: new ones must not wait for the end of all that a flood left, nor may a session
#: begin between the decision and the removal.
_REMOVED_AT_ONCE = 32
#: VLANs without a device that are released before new ones are made: each may take seconds to end sessions.
_RELEASED_AT_ONCE = 4
#: Seconds between two sweeps for idle VLANs, and for those that the source has not taken.
_SWEEP = 5.0
#: Seconds until a failure or refusal that goes on is logged again: each sweep, or each frame of a flood, may
#: have it.
_QUIET = 300.0
#: Refusals for which an operator may have to do something. `{}` is the outer VLAN with its trunk.
_NOTES = {
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
    """Makes and removes VLANs, as the configuration allows.

    `occupancy` returns the devices with sessions: a VLAN whose source does not reply is not removed. `clock`
    gives steady seconds, `leased` are the names of the devices whose subscribers have a lease at the start.
    Any thread may call any method.
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
        # Protects what follows; notified when `run` has work.
        self._work = threading.Condition()
        self._admission = Admission(demux, clock)
        self._trunks = frozenset(demux.trunks)
        self._to_adopt = set(demux.trunks)
        self._stopping = False
        #: How many times a source was to be told of all its VLANs again.
        self._again = Counter[SessionType]()
        self._restored = threading.Event()
        #: When a refusal was logged, by reason and trunk: not by outer VLAN, of which a flood may have all.
        self._noted: dict[tuple[TriggerRefusal, str], float] = {}
        # Of the thread in `run` alone.
        self._leased = deque(leased)
        self._unrestored: list[str] = []
        self._began = self._restore_at = clock()
        self._vanished: deque[AccessVlan] = deque()
        #: When a failure was logged, by its verb and error.
        self._logged: dict[tuple[str, str], float] = {}
        self._listeners: dict[str, Listener] = {}
        self._unread: set[str] = set()
        self._has_former = True
        # Types of sessions of which a source did not take all VLANs at the last attempt.
        self._refused: set[SessionType] = set()
        #: Types of sessions whose source is told of the VLANs that it has not taken, some in each turn.
        self._to_tell: set[SessionType] = set()

    def vlans(self) -> list[ServedVlan]:
        """Times are those of the clock."""
        with self._work:
            return list(self._admission)

    def refusals(self) -> Counter[TriggerRefusal]:
        """Return the triggers that made no VLAN since the start, by the reason."""
        with self._work:
            return self._admission.refusals.copy()

    def configure(self, demux: Demux) -> None:
        """Apply another configuration."""
        with self._work:
            self._admission.configure(demux)
            self._trunks = frozenset(demux.trunks)
            self._to_adopt.update(demux.trunks)
            self._work.notify()

    def manages(self, vlan: AccessVlan) -> bool:
        """Return True for a VLAN that the gateway makes and removes. Any other is the operator's."""
        with self._work:
            return self._admission.manages(vlan)

    def adopt(self, trunk: str) -> None:
        """Make `run` read the VLANs of a trunk again. Call it when devices appear or disappear."""
        with self._work:
            self._to_adopt.add(trunk)
            self._work.notify()

    def serve_again(self, kind: SessionType) -> None:
        """Tell the source of all VLANs of a session type again, at the next sweep."""
        with self._work:
            self._again[kind] += 1
            self._admission.serve_again(kind)

    def wait_until_restored(self, seconds: float) -> bool:
        """Wait until the VLANs of all leases were made, or could not be. False after so many seconds."""
        return self._restored.wait(seconds)

    def stop(self) -> None:
        """Has `run` return."""
        with self._work:
            self._stopping = True
            self._work.notify()

    def run(self, crew: Crew) -> None:
        """Works until `stop`; the VLANs stay."""
        # The first sweep has adopted VLANs served.
        sweep_at = self._clock()
        try:
            while True:
                with self._work:
                    wake_at = min(sweep_at, self._restore_at) if self._leased else sweep_at
                    self._work.wait_for(self._has_work, max(0.0, wake_at - self._clock()))
                    if self._stopping:
                        return
                self._turn(crew)
                self._restore()
                if self._clock() >= sweep_at:
                    is_done = self._sweep()
                    sweep_at = self._clock() + (_SWEEP if is_done else 0)
        finally:
            self._listen(frozenset(), crew)

    def _has_work(self) -> bool:
        has_turn = self._admission.has_waiting or self._vanished or self._to_tell
        return bool(self._stopping or self._to_adopt or has_turn)

    def _turn(self, crew: Crew) -> None:
        with self._work:
            to_adopt, self._to_adopt = self._to_adopt, set()
            to_make = self._admission.take(_AT_ONCE)
            trunks = self._trunks
        for trunk in sorted(to_adopt):
            self._adopt(trunk)
        # After the adoption: else frames on VLANs that exist would take tokens of the bucket.
        self._listen(trunks, crew)
        self._serve(self._make(to_make))
        self._tell()
        self._remove(_next(self._vanished, _RELEASED_AT_ONCE))

    def _listen(self, trunks: frozenset[str], crew: Crew) -> None:
        for trunk in self._listeners.keys() - trunks:
            self._listeners.pop(trunk).stop()
        for trunk in sorted(trunks - self._listeners.keys()):
            self._listeners[trunk] = Listener(trunk, self._heard, self.adopt, crew)

    def _heard(self, triggers: list[Trigger], dropped: int) -> None:
        with self._work:
            self._admission.refusals[TriggerRefusal.DROPPED] += dropped
            for trigger in triggers:
                decision = self._admission.decide(trigger)
                if isinstance(decision, AccessVlan):
                    self._work.notify()
                elif decision in _NOTES:
                    self._note(decision, trigger)

    def _note(self, refusal: TriggerRefusal, trigger: Trigger) -> None:
        now, key = self._clock(), (refusal, trigger.trunk)
        if key not in self._noted or now - self._noted[key] >= _QUIET:
            self._noted[key] = now
            tags = "" if trigger.outer_vlan_id is None else f", outer VLAN {trigger.outer_vlan_id}"
            _log.warning(_NOTES[refusal].format(f"trunk {trigger.trunk}{tags}"))

    def _adopt(self, trunk: str) -> None:
        try:
            existing = list(self._devices.existing(trunk))
        except GatewayApiError as error:
            _log.error("cannot read the VLANs on %s: %s", trunk, error)
            self._unread.add(trunk)
            return
        with self._work:
            vanished = self._admission.adopt(trunk, existing)
        if vanished:
            _log.warning("%d VLANs have lost their device, such as %s", len(vanished), vanished[0].name)
            self._vanished += vanished

    def _adopt_former(self) -> None:
        try:
            former = list(self._devices.former())
        except GatewayApiError as error:
            _log.error("cannot read the VLANs of an earlier life of the core: %s", error)
            return
        with self._work:
            self._admission.adopt_former(former)
        self._has_former = False

    def _make(self, vlans: Iterable[AccessVlan]) -> list[ServedVlan]:
        made, failed, errors = [], [], []
        for vlan in vlans:
            try:
                self._devices.make(vlan)
            except GatewayApiError as error:
                failed.append(vlan)
                errors.append(error)
                with self._work:
                    self._admission.failed(vlan)
            else:
                with self._work:
                    made.append(self._admission.made(vlan))
        if failed:
            self._log_failure("make", failed, errors[0])
        return made

    def _serve(self, made: Iterable[ServedVlan]) -> None:
        for kind, vlans in _by_kind(made):
            self._serve_kind(kind, vlans)

    def _tell(self) -> None:
        """Tell each source of some VLANs that it has not taken. After a failure, the next sweep goes on."""
        for kind in sorted(self._to_tell):
            with self._work:
                vlans = deque(self._admission.unserved(kind, _AT_ONCE))
            is_last = len(vlans) < _AT_ONCE
            if not self._serve_kind(kind, vlans) or is_last:
                self._to_tell.discard(kind)

    def _serve_kind(self, kind: SessionType, vlans: deque[AccessVlan]) -> bool:
        """Return False after a failure."""
        while vlans:
            # After a failure one by one: a VLAN that is refused must not keep the others.
            batch = list(islice(vlans, 1 if kind in self._refused else _AT_ONCE))
            with self._work:
                again = self._again[kind]
            try:
                self._serving.serve([vlan.name for vlan in batch], kind)
            except GatewayApiError as error:
                self._refused.add(kind)
                self._postpone("serve", vlans, error)
                return False
            with self._work:
                for vlan in batch:
                    # After a commit in the meantime, the source may have it as before.
                    if again == self._again[kind]:
                        self._admission.served(vlan)
                    vlans.popleft()
        self._refused.discard(kind)
        return True

    def _restore(self) -> None:
        """Make some of the VLANs of leases, if it is time."""
        began = self._clock()
        if began < self._restore_at:
            return
        names = _next(self._leased, _RESTORED_AT_ONCE)
        to_make = []
        with self._work:
            for name in names:
                vlan = AccessVlan.named(name, self._trunks)
                if vlan is not None and self._admission.restore(vlan):
                    to_make.append(vlan)
        made = self._make(to_make)
        self._serve(made)
        failed = {vlan.name for vlan in to_make} - {managed.vlan.name for managed in made}
        self._unrestored += sorted(failed)
        self._restore_at = self._clock() + _REST * (self._clock() - began)
        if not self._leased:
            self._restored.set()

    def _sweep(self) -> bool:
        """Return False when there may be more to remove."""
        now = self._clock()
        if now - self._began < _RESTORING:
            self._leased.extend(self._unrestored)
        self._unrestored.clear()
        self._logged = {failure: at for failure, at in self._logged.items() if now - at < _QUIET}
        unread, self._unread = self._unread, set()
        for trunk in sorted(unread):
            self._adopt(trunk)
        if self._has_former:
            self._adopt_former()
        occupancy = self._occupancy()
        with self._work:
            expired = self._admission.expired(occupancy, _REMOVED_AT_ONCE)
        # Before the sources are told: that may last until a deadline, and a session may begin meanwhile.
        is_removed = self._remove(deque(expired))
        self._to_tell = set(SessionType)
        return not expired or not is_removed

    def _remove(self, vlans: deque[AccessVlan]) -> bool:
        """Return False after a failure."""
        released: deque[AccessVlan] = deque()
        try:
            # The source first: it must not be left with a device that is gone.
            while vlans:
                with self._work:
                    type = self._admission.type_of(vlans[0])
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
                self._admission.removed(vlan)
        return not vlans

    def _postpone_removal(self, verb: str, group: deque[AccessVlan], error: GatewayApiError) -> None:
        self._postpone(verb, group, error)
        # Their devices may be gone: then no source must be told of them before it has released them.
        self._unread.update(vlan.trunk for vlan in group)

    def _postpone(self, verb: str, group: deque[AccessVlan], error: GatewayApiError) -> None:
        """After a failure, the others wait for the next sweep, too: if the source is down, each call lasts
        until its deadline. The one that failed is the last then."""
        self._log_failure(verb, group, error)
        group.rotate(-1)
        with self._work:
            for vlan in group:
                self._admission.postponed(vlan)

    def _log_failure(self, verb: str, vlans: Sequence[AccessVlan], error: GatewayApiError) -> None:
        """In one line: during a flood, each VLAN may fail."""
        failure = verb, str(error)
        if failure not in self._logged:
            self._logged[failure] = self._clock()
            _log.error("cannot %s %s: %s", verb, join_names([vlan.name for vlan in vlans], 1), error)


def _next(queue: deque[T], most: int) -> deque[T]:
    return deque(queue.popleft() for _ in range(min(most, len(queue))))


def _by_kind(vlans: Iterable[ServedVlan]) -> Iterable[tuple[SessionType, deque[AccessVlan]]]:
    groups: dict[SessionType, deque[AccessVlan]] = {}
    for managed in vlans:
        groups.setdefault(managed.kind, deque()).append(managed.vlan)
    return groups.items()
