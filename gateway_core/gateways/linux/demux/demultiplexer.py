"""Demultiplexer of trunks: creates the VLAN of a subscriber at the subscriber's first frame, and removes idle
VLANs.

One thread for each trunk listens for first frames. The thread in `run` creates and removes devices, and calls
the sources. After a reboot, the thread in `run` creates the VLANs of the subscribers that have a DHCP lease.
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
from gateway_core.gateways.linux.demux.vlan_devices import VlanDevices, VlanService
from gateway_core.gateways.linux.threads import ThreadGroup

#: VLANs that are created in one turn and passed to the source in one call: starting several daemons takes
#: little more time than starting one. A new subscriber in another outer VLAN waits for the end of the turn.
_MAX_VLANS_PER_TURN = 16
#: VLANs of leases that are created in one turn. After a turn, `run` pauses for the duration of the turn times
#: the factor, because all programs of the machine start at the same time.
_MAX_RESTORED_PER_TURN = 32
_RESTORE_PAUSE_FACTOR = 1.0
#: Seconds after the start in which failed VLANs of leases are tried again: a trunk may appear late.
_RESTORE_RETRY_SECONDS = 120.0
#: Maximum number of VLANs that one sweep removes. Without the limit, new VLANs would wait for the removal of
#: all VLANs of a flood, and a session could start between the decision and the removal.
_MAX_REMOVALS_PER_SWEEP = 32
#: VLANs without a device that are released in one turn. A release may take seconds, because sessions end.
_MAX_RELEASES_PER_TURN = 4
#: Seconds between two sweeps for idle VLANs and for VLANs that the source does not serve yet.
_SWEEP_SECONDS = 5.0
#: Seconds until the same failure or refusal is logged again: each sweep, or each frame of a flood, may repeat
#: the failure.
_LOG_REPEAT_SECONDS = 300.0
#: Log lines of refusals that may need an action of the operator. `{}` is the trunk with the outer VLAN.
_REFUSAL_TEXTS = {
    TriggerRefusal.OTHER_PROTOCOL: (
        "first frames on {} are ignored: the outer of two tags must be 802.1ad (0x88a8), a single tag 802.1Q "
        "(0x8100)"
    ),
    TriggerRefusal.FULL: "no VLAN is made on {}: max_vlans is reached",
    TriggerRefusal.OUTER_VLAN_FULL: "no VLAN is made on {}: it has its outer_vlan_share of max_vlans",
    TriggerRefusal.OUTER_VLAN_RATE_LIMITED: "{} has too many new VLANs per second: some are refused",
}

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Demultiplexer:
    """Demultiplexer that creates and removes VLANs by the configuration. Thread-safe.

    `occupancy` returns the access interfaces with sessions. `clock` returns monotonic seconds.
    `leased_interfaces` are the names of the VLAN devices whose subscribers have a DHCP lease at the start.
    """

    def __init__(
        self,
        demux: Demux,
        devices: VlanDevices,
        serving: VlanService,
        occupancy: Callable[[], Occupancy],
        clock: Callable[[], float],
        leased_interfaces: Iterable[str] = (),
    ) -> None:
        self._devices = devices
        self._vlan_service = serving
        self._find_occupancy = occupancy
        self._clock = clock
        # Protects the attributes below; notified when `run` has work.
        self._work = threading.Condition()
        self._admission = Admission(demux, clock)
        self._trunks = frozenset(demux.trunks)
        self._trunks_to_adopt = set(demux.trunks)
        self._is_stopping = False
        #: Number of calls of `serve_again`, by session type.
        self._serve_again_counts = Counter[SessionType]()
        self._restored_event = threading.Event()
        #: Time of the last log line: of a failure by verb and error, of a refusal by reason and trunk. Not by
        #: outer VLAN, because a flood may use all outer VLANs.
        self._log_times: dict[tuple[str, str], float] = {}
        # Only the thread in `run` uses the attributes below.
        self._leased_interfaces = deque(leased_interfaces)
        self._unrestored_interfaces: list[str] = []
        self._started_at = self._restore_at = clock()
        self._vanished_vlans: deque[AccessVlan] = deque()
        self._listeners: dict[str, Listener] = {}
        self._unread_trunks: set[str] = set()
        self._has_former_vlans = True
        #: Session types whose source refused a VLAN at the last attempt.
        self._refusing_types: set[SessionType] = set()
        #: Session types whose source must be told to serve more VLANs, some in each turn.
        self._types_to_serve: set[SessionType] = set()

    def list_vlans(self) -> list[ManagedVlan]:
        """Return the managed VLANs. Times are in seconds of `clock`."""
        with self._work:
            return list(self._admission)

    def count_refusals(self) -> Counter[TriggerRefusal]:
        """Return the number of triggers that created no VLAN since the start, by reason."""
        with self._work:
            return self._admission.refusals.copy()

    def configure(self, demux: Demux) -> None:
        """Apply a new configuration: read the VLANs of the trunks again, and create and remove VLANs by the
        new configuration."""
        with self._work:
            self._admission.configure(demux)
            self._trunks = frozenset(demux.trunks)
            self._trunks_to_adopt.update(demux.trunks)
            self._work.notify()

    def is_managed(self, vlan: AccessVlan) -> bool:
        """Return True if the gateway creates and removes this VLAN. All other VLANs belong to the
        operator."""
        with self._work:
            return self._admission.is_managed(vlan)

    def adopt(self, trunk: str) -> None:
        """Request that `run` reads the VLANs of a trunk again. The caller must call this method after devices
        appeared or disappeared on the trunk."""
        with self._work:
            self._trunks_to_adopt.add(trunk)
            self._work.notify()

    def serve_again(self, type: SessionType) -> None:
        """Request that the source of a session type is told again, at the next sweep, to serve all VLANs of
        this type."""
        with self._work:
            self._serve_again_counts[type] += 1
            self._admission.mark_unserved(type)

    def wait_until_restored(self, seconds: float) -> bool:
        """Wait until the creation of the VLANs of all leases has succeeded or failed. Return False if this
        takes longer than `seconds`."""
        return self._restored_event.wait(seconds)

    def stop(self) -> None:
        """Request that `run` returns."""
        with self._work:
            self._is_stopping = True
            self._work.notify()

    def run(self, thread_group: ThreadGroup) -> None:
        """Create and remove VLANs until `stop` is called. Existing VLANs stay after `stop`."""
        # The first sweep makes the sources serve adopted VLANs.
        sweep_at = self._clock()
        try:
            while True:
                with self._work:
                    wake_at = min(sweep_at, self._restore_at) if self._leased_interfaces else sweep_at
                    self._work.wait_for(self._has_work, max(0.0, wake_at - self._clock()))
                    if self._is_stopping:
                        return
                self._run_once(thread_group)
                self._restore()
                if self._clock() >= sweep_at:
                    is_done = self._sweep()
                    sweep_at = self._clock() + (_SWEEP_SECONDS if is_done else 0)
        finally:
            self._listen(frozenset(), thread_group)

    def _has_work(self) -> bool:
        has_turn = self._admission.has_waiting or self._vanished_vlans or self._types_to_serve
        return bool(self._is_stopping or self._trunks_to_adopt or has_turn)

    def _run_once(self, thread_group: ThreadGroup) -> None:
        with self._work:
            trunks_to_adopt, self._trunks_to_adopt = self._trunks_to_adopt, set()
            vlans_to_make = self._admission.take(_MAX_VLANS_PER_TURN)
            trunks = self._trunks
        for trunk in sorted(trunks_to_adopt):
            self._adopt(trunk)
        # After the adoption: otherwise frames on existing VLANs would take tokens of the bucket.
        self._listen(trunks, thread_group)
        self._make_and_serve(vlans_to_make)
        self._tell_sources()
        self._remove(_pop_first(self._vanished_vlans, _MAX_RELEASES_PER_TURN))

    def _listen(self, trunks: frozenset[str], thread_group: ThreadGroup) -> None:
        for trunk in self._listeners.keys() - trunks:
            self._listeners.pop(trunk).stop()
        for trunk in sorted(trunks - self._listeners.keys()):
            self._listeners[trunk] = Listener(trunk, self._handle_triggers, self.adopt, thread_group)

    def _handle_triggers(self, triggers: list[Trigger], drop_count: int) -> None:
        with self._work:
            self._admission.refusals[TriggerRefusal.DROPPED] += drop_count
            for trigger in triggers:
                decision = self._admission.decide(trigger)
                if isinstance(decision, AccessVlan):
                    self._work.notify()
                elif decision in _REFUSAL_TEXTS and self._is_log_due((decision, trigger.trunk)):
                    outer = trigger.outer_vlan_id
                    tags = "" if outer is None else f", outer VLAN {outer}"
                    _log.warning(_REFUSAL_TEXTS[decision].format(f"trunk {trigger.trunk}{tags}"))

    def _adopt(self, trunk: str) -> None:
        try:
            existing_vlans = list(self._devices.find_vlans(trunk))
        except GatewayApiError as error:
            _log.error("cannot read the VLANs on trunk %s, trying again: %s", trunk, error)
            self._unread_trunks.add(trunk)
            return
        with self._work:
            vanished_vlans = self._admission.adopt(trunk, existing_vlans)
        if vanished_vlans:
            text = "the devices of %d VLANs, such as %s, have disappeared: sources end their sessions"
            _log.warning(text, len(vanished_vlans), vanished_vlans[0].name)
            self._vanished_vlans += vanished_vlans

    def _adopt_former(self) -> None:
        try:
            former_vlans = list(self._devices.find_former_vlans())
        except GatewayApiError as error:
            _log.error("cannot read the VLANs from before the core's restart, trying again: %s", error)
            return
        with self._work:
            self._admission.adopt_former(former_vlans)
        self._has_former_vlans = False

    def _make_and_serve(self, vlans: Iterable[AccessVlan]) -> list[AccessVlan]:
        """Create VLANs, and tell the sources to serve the VLANs. Return the VLANs that could not be
        created."""
        managed_vlans: list[ManagedVlan] = []
        failed_vlans, errors = [], []
        for vlan in vlans:
            try:
                self._devices.make(vlan)
            except GatewayApiError as error:
                failed_vlans.append(vlan)
                errors.append(error)
                with self._work:
                    self._admission.mark_failed(vlan)
            else:
                with self._work:
                    managed_vlans.append(self._admission.mark_made(vlan))
        if failed_vlans:
            self._log_failure("make", failed_vlans, errors[0])
        for type in dict.fromkeys(each.type for each in managed_vlans):
            self._serve(type, deque(each.vlan for each in managed_vlans if each.type == type))
        return failed_vlans

    def _tell_sources(self) -> None:
        """Tell each source to serve some of the VLANs that are not served yet. After a failure, the next
        sweep tries again."""
        for type in sorted(self._types_to_serve):
            with self._work:
                vlans = deque(self._admission.list_unserved(type, _MAX_VLANS_PER_TURN))
            is_last = len(vlans) < _MAX_VLANS_PER_TURN
            if not self._serve(type, vlans) or is_last:
                self._types_to_serve.discard(type)

    def _serve(self, type: SessionType, vlans: deque[AccessVlan]) -> bool:
        """Tell the source of a session type to serve VLANs. Return False if the source failed or refused a
        VLAN."""
        while vlans:
            # After a failure, one VLAN per call: a refused VLAN must not block the others.
            batch = list(islice(vlans, 1 if type in self._refusing_types else _MAX_VLANS_PER_TURN))
            with self._work:
                request_count = self._serve_again_counts[type]
            try:
                self._vlan_service.serve([vlan.name for vlan in batch], type)
            except GatewayApiError as error:
                self._refusing_types.add(type)
                self._postpone("serve", vlans, error)
                return False
            with self._work:
                for vlan in batch:
                    # After a call of `serve_again` meanwhile, the source must be told again.
                    if request_count == self._serve_again_counts[type]:
                        self._admission.mark_served(vlan)
                    vlans.popleft()
        self._refusing_types.discard(type)
        return True

    def _restore(self) -> None:
        """Create some of the VLANs that have a DHCP lease, unless the previous call was too short a time
        ago."""
        started_at = self._clock()
        if started_at < self._restore_at:
            return
        vlans_to_make = []
        with self._work:
            for name in _pop_first(self._leased_interfaces, _MAX_RESTORED_PER_TURN):
                vlan = AccessVlan.parse(name, self._trunks)
                if vlan is not None and self._admission.restore(vlan):
                    vlans_to_make.append(vlan)
        self._unrestored_interfaces += sorted({vlan.name for vlan in self._make_and_serve(vlans_to_make)})
        self._restore_at = self._clock() + _RESTORE_PAUSE_FACTOR * (self._clock() - started_at)
        if not self._leased_interfaces:
            self._restored_event.set()

    def _sweep(self) -> bool:
        """Repeat failed steps, and remove expired VLANs. Return False if more expired VLANs may remain, which
        the next sweep removes."""
        now = self._clock()
        if now - self._started_at < _RESTORE_RETRY_SECONDS:
            self._leased_interfaces.extend(self._unrestored_interfaces)
        self._unrestored_interfaces.clear()
        unread_trunks, self._unread_trunks = self._unread_trunks, set()
        for trunk in sorted(unread_trunks):
            self._adopt(trunk)
        if self._has_former_vlans:
            self._adopt_former()
        occupancy = self._find_occupancy()
        with self._work:
            self._log_times = {
                key: at for key, at in self._log_times.items() if now - at < _LOG_REPEAT_SECONDS
            }
            expired_vlans = self._admission.take_expired(occupancy, _MAX_REMOVALS_PER_SWEEP)
        # Before the calls of sources, which may last until a deadline: a session may start meanwhile.
        is_removed = self._remove(deque(expired_vlans))
        self._types_to_serve = set(SessionType)
        return not expired_vlans or not is_removed

    def _remove(self, vlans: deque[AccessVlan]) -> bool:
        """Tell the sources to release VLANs, and remove the devices of the VLANs. Return False if a VLAN
        could not be released or removed."""
        released_vlans: deque[AccessVlan] = deque()
        try:
            # The source first: it must not serve a device that no longer exists.
            while vlans:
                with self._work:
                    type = self._admission.get_session_type(vlans[0])
                self._vlan_service.release(vlans[0].name, [type])
                released_vlans.append(vlans.popleft())
        except GatewayApiError as error:
            self._postpone_removal("release", vlans, error)
        if released_vlans:
            try:
                self._devices.remove(released_vlans)
            except GatewayApiError as error:
                self._postpone_removal("remove", released_vlans, error)
                return False
        with self._work:
            for vlan in released_vlans:
                self._admission.forget(vlan)
        return not vlans

    def _postpone_removal(self, verb: str, vlans: deque[AccessVlan], error: GatewayApiError) -> None:
        self._postpone(verb, vlans, error)
        # The devices may no longer exist: then the source must release the VLANs before they are served
        # again.
        self._unread_trunks.update(vlan.trunk for vlan in vlans)

    def _postpone(self, verb: str, vlans: deque[AccessVlan], error: GatewayApiError) -> None:
        """Postpone VLANs to the next sweep, after the first VLAN has failed. The other VLANs are not tried
        now, because each call lasts until a deadline if the source is down. The failed VLAN is the last in
        the next sweep."""
        self._log_failure(verb, vlans, error)
        vlans.rotate(-1)
        with self._work:
            for vlan in vlans:
                self._admission.postpone(vlan)

    def _log_failure(self, verb: str, vlans: Sequence[AccessVlan], error: GatewayApiError) -> None:
        """Log the failure of several VLANs in one line, because every VLAN of a flood may fail."""
        if self._is_log_due((verb, str(error))):
            _log.error(
                "cannot %s VLAN %s, trying again: %s",
                verb,
                join_names([vlan.name for vlan in vlans], 1),
                error,
            )

    def _is_log_due(self, key: tuple[str, str]) -> bool:
        """Return True if a failure or refusal was not logged within _LOG_REPEAT_SECONDS. The caller must then
        log the failure or refusal."""
        now = self._clock()
        with self._work:
            if now - self._log_times.get(key, -math.inf) < _LOG_REPEAT_SECONDS:
                return False
            self._log_times[key] = now
        return True


def _pop_first(queue: deque[T], limit: int) -> deque[T]:
    """Remove the first items of a queue, at most `limit`, and return these items."""
    return deque(queue.popleft() for _ in range(min(limit, len(queue))))
