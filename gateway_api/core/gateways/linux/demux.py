"""VLANs on demand: a subscriber's first frame on a trunk makes the VLAN, and its device goes when it is idle.

A thread per trunk listens. All work on devices and sources is done by one thread, in `run`.
"""

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Protocol

from gateway_api.base.errors import GatewayApiError
from gateway_api.core.configuration.sections import Demux
from gateway_api.core.gateways.linux.admission import Admission, ManagedVlan, Refusal, Vlan
from gateway_api.core.gateways.linux.frames import SessionKind, Trigger
from gateway_api.core.gateways.linux.listener import Listener

#: VLANs made in one turn, before their sources are told: the first subscriber must not wait for the last.
_AT_ONCE = 64
#: Seconds between two sweeps for idle VLANs and for those that no source took.
_SWEEP = 5.0

_log = logging.getLogger(__name__)


class DemuxError(GatewayApiError):
    """A device or a source refused. The text is for the log."""


class Devices(Protocol):
    """The VLAN devices of the kernel. Each method raises DemuxError."""

    def existing(self, trunk: str) -> Iterable[Vlan]:
        """The VLANs on a trunk, by their tags; none for a trunk that is missing."""

    def make(self, vlan: Vlan) -> None:
        """Makes the device with the name of the VLAN, the outer one first where there are two tags, and sets
        both up. What exists stays."""

    def remove(self, vlan: Vlan) -> None:
        """Removes the device, if it exists, and the outer one when nothing else is on it."""


class Server(Protocol):
    """The sources that serve VLANs, by session type. Each method raises DemuxError."""

    def serve(self, kind: SessionKind, names: Sequence[str]) -> None:
        """Accepts subscribers on these devices. What is served already stays."""

    def release(self, kind: SessionKind, names: Sequence[str]) -> None:
        """Accepts none there any longer. What is not served is no error."""


class Demultiplexer:
    """Makes and removes VLANs, as the configuration allows.

    `occupied` returns the names of the devices with sessions, or None while a source does not say: then no
    VLAN is removed. `clock` gives steady seconds. Any thread may call any method.
    """

    def __init__(
        self,
        demux: Demux,
        devices: Devices,
        server: Server,
        occupied: Callable[[], Container[str] | None],
        clock: Callable[[], float],
    ) -> None:
        self._devices = devices
        self._server = server
        self._occupied = occupied
        self._clock = clock
        # Protects what follows; notified when `run` has work.
        self._work = threading.Condition()
        self._admission = Admission(demux, clock)
        self._trunks = frozenset(demux.trunks)
        self._to_adopt = set(demux.trunks)
        self._to_make: deque[Vlan] = deque()
        self._failure: BaseException | None = None
        self._stopping = False
        #: Frames that the kernel dropped because they came too fast.
        self.dropped_total = 0
        # Of the thread in `run` alone.
        self._listeners: dict[str, Listener] = {}
        self._unread: set[str] = set()

    def vlans(self) -> list[ManagedVlan]:
        """Times are those of the clock."""
        with self._work:
            return list(self._admission)

    def refusals(self) -> Counter[Refusal]:
        """How many triggers made no VLAN, by the reason."""
        with self._work:
            return self._admission.refusals.copy()

    @property
    def rate_limited_total(self) -> int:
        """How many triggers the rate limits refused."""
        return self._admission.rate_limited_total

    def configure(self, demux: Demux) -> None:
        """Applies another configuration."""
        with self._work:
            self._admission.configure(demux)
            self._trunks = frozenset(demux.trunks)
            self._to_adopt.update(demux.trunks)
            self._work.notify()

    def adopt(self, trunk: str) -> None:
        """Has `run` read which VLANs exist on a trunk, after devices came or went by other hands."""
        with self._work:
            self._to_adopt.add(trunk)
            self._work.notify()

    def source_restarted(self, kind: SessionKind) -> None:
        """A source may have forgotten its VLANs: at the next sweep it is told of them again."""
        with self._work:
            self._admission.source_restarted(kind)

    def stop(self) -> None:
        """Has `run` return."""
        with self._work:
            self._stopping = True
            self._work.notify()

    def run(self) -> None:
        """Works until `stop`; the VLANs stay. Raises the error that ended the thread of a trunk."""
        sweep_at = self._clock() + _SWEEP
        try:
            while True:
                with self._work:
                    self._work.wait_for(self._has_work, max(0.0, sweep_at - self._clock()))
                    if self._failure is not None:
                        raise self._failure
                    if self._stopping:
                        return
                self._turn()
                if self._clock() >= sweep_at:
                    self._sweep()
                    sweep_at = self._clock() + _SWEEP
        finally:
            self._listen(frozenset())

    def _has_work(self) -> bool:
        return bool(self._stopping or self._failure or self._to_adopt or self._to_make)

    def _turn(self) -> None:
        with self._work:
            to_adopt, self._to_adopt = self._to_adopt, set()
            to_make = [self._to_make.popleft() for _ in range(min(_AT_ONCE, len(self._to_make)))]
            trunks = self._trunks
        for trunk in sorted(to_adopt):
            self._adopt(trunk)
        # After the adoption: else frames on VLANs that exist would take tokens of the bucket.
        self._listen(trunks)
        self._serve(self._make(to_make))

    def _listen(self, trunks: frozenset[str]) -> None:
        for trunk in self._listeners.keys() - trunks:
            self._listeners.pop(trunk).stop()
        for trunk in sorted(trunks - self._listeners.keys()):
            self._listeners[trunk] = Listener(trunk, self._heard, self.adopt, self._failed)

    def _heard(self, triggers: list[Trigger], dropped: int) -> None:
        with self._work:
            self.dropped_total += dropped
            for trigger in triggers:
                decision = self._admission.decide(trigger)
                if isinstance(decision, Vlan):
                    self._to_make.append(decision)
                    self._work.notify()

    def _failed(self, error: BaseException) -> None:
        with self._work:
            self._failure = error
            self._work.notify()

    def _adopt(self, trunk: str) -> None:
        try:
            existing = list(self._devices.existing(trunk))
        except DemuxError as error:
            _log.error("cannot read the VLANs on %s: %s", trunk, error)
            self._unread.add(trunk)
            return
        with self._work:
            self._admission.adopt(trunk, existing)
            unserved = [managed for managed in self._admission.unserved() if managed.vlan.trunk == trunk]
        self._serve(unserved)

    def _make(self, vlans: Iterable[Vlan]) -> list[ManagedVlan]:
        made, failures = [], []
        for vlan in vlans:
            try:
                self._devices.make(vlan)
            except DemuxError as error:
                failures.append((vlan, error))
                with self._work:
                    self._admission.failed(vlan)
            else:
                with self._work:
                    made.append(self._admission.made(vlan))
        _report("make", failures)
        return made

    def _serve(self, vlans: Iterable[ManagedVlan]) -> None:
        for kind, group in _by_kind(vlans):
            try:
                self._server.serve(kind, [vlan.name for vlan in group])
            except DemuxError as error:
                _log.error(
                    "cannot have %d VLANs served, the first is %s: %s", len(group), group[0].name, error
                )
                continue
            with self._work:
                for vlan in group:
                    self._admission.served(vlan)

    def _sweep(self) -> None:
        unread, self._unread = self._unread, set()
        for trunk in unread:
            self._adopt(trunk)
        occupied = self._occupied()
        with self._work:
            expired = [] if occupied is None else self._admission.expired(occupied)
            unserved = self._admission.unserved()
        for kind, group in _by_kind(expired):
            self._remove(kind, group)
        self._serve(unserved)

    def _remove(self, kind: SessionKind, vlans: Sequence[Vlan]) -> None:
        # The source first: it must not be left with a device that is gone.
        try:
            self._server.release(kind, [vlan.name for vlan in vlans])
        except DemuxError as error:
            failures = [(vlan, error) for vlan in vlans]
        else:
            failures = list(self._removed(vlans))
        with self._work:
            for vlan, _ in failures:
                self._admission.kept(vlan)
        _report("remove", failures)

    def _removed(self, vlans: Iterable[Vlan]) -> Iterator[tuple[Vlan, DemuxError]]:
        """Removes the devices. Yields the failures."""
        for vlan in vlans:
            try:
                self._devices.remove(vlan)
            except DemuxError as error:
                yield vlan, error
            else:
                with self._work:
                    self._admission.removed(vlan)


def _by_kind(vlans: Iterable[ManagedVlan]) -> Iterator[tuple[SessionKind, list[Vlan]]]:
    groups: dict[SessionKind, list[Vlan]] = {}
    for managed in vlans:
        groups.setdefault(managed.kind, []).append(managed.vlan)
    return iter(groups.items())


def _report(verb: str, failures: Sequence[tuple[Vlan, DemuxError]]) -> None:
    """In one line: during a flood, each VLAN may fail."""
    if failures:
        vlan, error = failures[0]
        _log.error("cannot %s %d VLANs, the first is %s: %s", verb, len(failures), vlan.name, error)
