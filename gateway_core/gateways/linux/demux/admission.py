"""Which VLANs are to exist: decisions from triggers, sessions and time, without a socket or a device.

Not thread-safe. Times are seconds of the `clock` that the caller gives.
"""

import re
from bisect import bisect_right
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import Self

from gateway_contract.base.vlan_names import short_name, vlan_name
from gateway_contract.configuration import Demux, VlanProfile
from gateway_contract.core.health import TriggerRefusal
from gateway_contract.core.network import VlanProtocol
from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.demux.listener import Trigger
from gateway_core.records.clock import TokenBucket

#: Seconds until another attempt at a VLAN that could not be made: a client sends PADI every few seconds.
HOLD_OFF = 10.0
#: Seconds that a sign-on may take, with RADIUS. A shorter idle timeout would remove the VLAN meanwhile.
_SIGN_ON = 30.0
#: Of the VLANs that are allowed: from here on, those that never had a session make room for others.
_SHORT = 7 / 8
_LAST_VLAN = 4094
#: Of a device, after the name of its trunk.
_TAGS = re.compile(r"(?:\.([1-9][0-9]{0,3}))?\.([1-9][0-9]{0,3})", re.ASCII)


@dataclass(frozen=True, slots=True)
class AccessVlan:
    """The VLAN of a subscriber. With one tag, `outer_vlan_id` is None; with two, the outer one is 802.1ad."""

    trunk: str
    outer_vlan_id: int | None
    vlan_id: int

    @property
    def name(self) -> str:
        """The name of its device."""
        if self.outer_vlan_id is None:
            return vlan_name(self.trunk, self.vlan_id)
        return vlan_name(self.trunk, self.outer_vlan_id, self.vlan_id)

    @classmethod
    def named(cls, name: str, trunks: Iterable[str]) -> Self | None:
        """Return the VLAN with the device of this name, on one of these trunks. None for any other name. The
        name of a trunk may have dots, too: the longest one counts."""
        for trunk in sorted(trunks, key=len, reverse=True):
            for head in (trunk, short_name(trunk)):
                if name.startswith(head) and (match := _TAGS.fullmatch(name, len(head))):
                    outer, inner = None if match[1] is None else int(match[1]), int(match[2])
                    vlan = cls(trunk, outer, inner)
                    if max(outer or 1, inner) <= _LAST_VLAN and vlan.name == name:
                        return vlan
        return None

    @property
    def protocol(self) -> VlanProtocol:
        """The protocol of the first tag."""
        return VlanProtocol.DOT1Q if self.outer_vlan_id is None else VlanProtocol.DOT1AD


#: A trunk and an outer VLAN id, which is None for one tag.
OuterVlan = tuple[str, int | None]


def outer_vlan(vlan: AccessVlan) -> OuterVlan:
    """Return the share that a VLAN belongs to."""
    return vlan.trunk, vlan.outer_vlan_id


class TurnQueue:
    """VLANs that wait to be made. Outer VLANs take turns, one VLAN in each: if one has thousands waiting,
    the next VLAN of another waits for one turn of each. VLANs with one tag share the turn of their trunk, as
    they share its limits."""

    def __init__(self) -> None:
        #: In the order of their turns. Each has at least one VLAN.
        self._waiting: OrderedDict[OuterVlan, deque[AccessVlan]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def waiting(self, outer: OuterVlan) -> int:
        """Return how many VLANs of an outer VLAN wait."""
        return len(self._waiting.get(outer, ()))

    def add(self, vlan: AccessVlan) -> None:
        self._waiting.setdefault(outer_vlan(vlan), deque()).append(vlan)

    def take(self) -> AccessVlan:
        """Remove the VLAN whose turn it is. Raises KeyError if none waits."""
        outer, vlans = self._waiting.popitem(last=False)
        taken = vlans.popleft()
        if vlans:
            # After all others.
            self._waiting[outer] = vlans
        return taken


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The access interfaces with sessions, and the session types that may have more: those whose source does
    not reply, or has a session that the disk has no room for."""

    interfaces: Container[str]
    unknown: Container[SessionType] = ()


class VlanState(Enum):
    #: Waits for its turn, or is being made.
    MAKING = "making"
    #: The device exists, and no source has been told.
    MADE = "made"
    SERVED = "served"
    REMOVING = "removing"


@dataclass(frozen=True, slots=True)
class ServedVlan:
    """A VLAN, with the source that serves it, and when it was made or adopted, when it was last in use, by a
    session or as a new one, and when the last trigger was seen."""

    vlan: AccessVlan
    kind: SessionType
    state: VlanState
    created_at: float
    used_at: float
    heard_at: float
    had_session: bool = False


class Admission:
    """All VLANs under management. `refusals` counts the triggers that made none.

    An outer VLAN, or a trunk for VLANs with one tag, has no more than its share of the limits: what one port
    sends leaves the others something.

    A VLAN that `decide` returns waits for its turn until `take` returns it, and counts for all limits
    meanwhile. A VLAN is under way until the caller calls `made` or `failed`; one that `adopt` or `expired`
    returns, until `removed` or `postponed`.
    """

    def __init__(self, demux: Demux, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._vlans: dict[AccessVlan, ServedVlan] = {}
        #: How many of them an outer VLAN has.
        self._numbers: Counter[OuterVlan] = Counter()
        self._queue = TurnQueue()
        self._held_off: dict[AccessVlan, float] = {}
        self.refusals: Counter[TriggerRefusal] = Counter()
        self.configure(demux)

    def __iter__(self) -> Iterator[ServedVlan]:
        return iter(self._vlans.values())

    def configure(self, demux: Demux) -> None:
        """Apply another configuration, with a full bucket as after a start. VLANs that no profile has any
        longer expire, with their sessions."""
        self._demux = demux
        self._profiles = VlanProfiles(demux)
        limits = demux.rate_limits
        self._bucket = TokenBucket(limits.vlans_per_second, limits.burst, self._clock())
        # Alone, an outer VLAN has all.
        self._share = limits.outer_vlan_share / 100 if self._profiles.outer_vlans > 1 else 1.0
        self._buckets: dict[OuterVlan, TokenBucket] = {}

    @property
    def has_waiting(self) -> bool:
        """True while `take` has a VLAN to return."""
        return bool(self._queue)

    def take(self, most: int) -> list[AccessVlan]:
        """Return the VLANs to make next, at most so many: outer VLANs take turns."""
        taken: list[AccessVlan] = []
        while self._queue and len(taken) < most:
            taken.append(self._queue.take())
        return taken

    def decide(self, trigger: Trigger) -> AccessVlan | TriggerRefusal:
        """Return the VLAN that is to be made, for one of its triggers; else why none."""
        decision = self._decide(trigger)
        if isinstance(decision, TriggerRefusal):
            self.refusals[decision] += 1
        return decision

    def made(self, vlan: AccessVlan) -> ServedVlan:
        """The device of a VLAN under way exists."""
        return self._change(vlan, VlanState.MADE)

    def failed(self, vlan: AccessVlan) -> None:
        """A VLAN under way could not be made. Its next triggers are refused for HOLD_OFF seconds."""
        if self._forget(vlan):
            self._held_off[vlan] = self._clock() + HOLD_OFF

    def served(self, vlan: AccessVlan) -> None:
        """The source has the VLAN."""
        self._change(vlan, VlanState.SERVED)

    def unserved(self, kind: SessionType, most: int) -> list[AccessVlan]:
        """Return VLANs of a session type that the source is to be told of, at most so many."""
        found = (each.vlan for each in self if each.state == VlanState.MADE and each.kind == kind)
        return list(islice(found, most))

    def serve_again(self, kind: SessionType) -> None:
        """The source is to be told of all its VLANs again."""
        for managed in list(self):
            if managed.kind == kind and managed.state == VlanState.SERVED:
                self._change(managed.vlan, VlanState.MADE)

    def adopt(self, trunk: str, existing: Iterable[AccessVlan]) -> list[AccessVlan]:
        """These VLANs, and no others, have a device on the trunk now. Those of a profile come under
        management. Returns those that lost their device: the source must release them before they may be made
        again. What is under way stays as it is."""
        existing, vanished = set(existing), []
        for managed in list(self):
            settled = managed.state in (VlanState.MADE, VlanState.SERVED)
            if managed.vlan.trunk == trunk and settled and managed.vlan not in existing:
                self._change(managed.vlan, VlanState.REMOVING)
                vanished.append(managed.vlan)
        now = self._clock()
        for vlan in existing - self._vlans.keys():
            profile = self._profiles.of(vlan)
            if profile is not None and vlan.trunk == trunk:
                self._add(ServedVlan(vlan, session_type(profile), VlanState.MADE, now, now, now))
        return vanished

    def adopt_former(self, vlans: Collection[AccessVlan]) -> None:
        """These VLANs are of an earlier life of the core. Those of no profile expire: it was killed before it
        removed them."""
        # `eth0.5.100` may be a VLAN of `eth0.5`, or two tags on `eth0`.
        known = {vlan.name for vlan in vlans if self._profiles.of(vlan) is not None}
        now = self._clock()
        for vlan in vlans:
            if vlan not in self._vlans and vlan.name not in known:
                # Served, whatever their type was: no source is to be told of them.
                self._add(ServedVlan(vlan, SessionType.PPPOE, VlanState.SERVED, now, now, now))

    def restore(self, vlan: AccessVlan) -> bool:
        """Has a VLAN made that had a subscriber before a reboot: it is under way then, without a token of the
        bucket. False if it is under management, if no profile has it, or if there is no room."""
        profile = self._profiles.of(vlan)
        if profile is None or vlan in self._vlans or len(self._vlans) >= self._demux.rate_limits.max_vlans:
            return False
        now = self._clock()
        self._add(ServedVlan(vlan, session_type(profile), VlanState.MAKING, now, now, now, had_session=True))
        return True

    def manages(self, vlan: AccessVlan) -> bool:
        """Return True for a VLAN of a profile, and for one under management that is about to go."""
        return vlan in self._vlans or self._profiles.of(vlan) is not None

    def type_of(self, vlan: AccessVlan) -> SessionType:
        """Return the session type of a VLAN under management."""
        return self._vlans[vlan].kind

    def expired(self, occupancy: Occupancy, most: int) -> list[AccessVlan]:
        """Return the VLANs to remove, at most so many: without a session for the idle timeout, or without a
        profile, also with sessions, which the commit ends. As long as its source does not reply, no VLAN
        expires: the sessions may live, and the source cannot release it.

        Triggers are no use: a client that is signing on keeps its VLAN, for the time of one sign-on. Where
        there is little room, VLANs that never had a session go first, and have that time only."""
        now = self._clock()
        found: list[AccessVlan] = []
        self._held_off = {vlan: until for vlan, until in self._held_off.items() if until > now}
        staying = Counter(outer_vlan(each.vlan) for each in self if each.state != VlanState.REMOVING)
        total, enough = staying.total(), self._demux.rate_limits.max_vlans * _SHORT
        for managed in list(self):
            if managed.state not in (VlanState.MADE, VlanState.SERVED) or managed.kind in occupancy.unknown:
                continue
            if managed.vlan.name in occupancy.interfaces and self._has_profile(managed):
                self._vlans[managed.vlan] = replace(managed, used_at=now, had_session=True)
                continue
            outer = outer_vlan(managed.vlan)
            is_short = total > enough or staying[outer] > self._most() * _SHORT
            if len(found) < most and self._is_over(managed, now, is_short):
                self._change(managed.vlan, VlanState.REMOVING)
                staying[outer] -= 1
                total -= 1
                found.append(managed.vlan)
        return found

    def removed(self, vlan: AccessVlan) -> None:
        """The device of a VLAN is gone."""
        self._forget(vlan)

    def postponed(self, vlan: AccessVlan) -> None:
        """A source did not take a VLAN, or it could not be removed. It is tried again, after all others."""
        self._vlans[vlan] = replace(self._vlans.pop(vlan), state=VlanState.MADE)

    def _decide(self, trigger: Trigger) -> AccessVlan | TriggerRefusal:
        vlan = AccessVlan(trigger.trunk, trigger.outer_vlan_id, trigger.vlan_id)
        profile = self._profiles.of(vlan)
        if trigger.outer_protocol != vlan.protocol:
            return TriggerRefusal.NO_PROFILE if profile is None else TriggerRefusal.OTHER_PROTOCOL
        now, managed = self._clock(), self._vlans.get(vlan)
        if managed is not None and managed.state not in (VlanState.MADE, VlanState.SERVED):
            return TriggerRefusal.UNDER_WAY
        if profile is None:
            return TriggerRefusal.NO_PROFILE
        if session_type(profile) != trigger.kind:
            return TriggerRefusal.OTHER_KIND
        if managed is not None:
            # A client that is signing on must not lose its VLAN before it has a session.
            self._vlans[vlan] = replace(managed, heard_at=now)
            return TriggerRefusal.SERVED
        if self._held_off.get(vlan, now) > now:
            return TriggerRefusal.HELD_OFF
        if len(self._vlans) >= self._demux.rate_limits.max_vlans:
            return TriggerRefusal.FULL
        outer = outer_vlan(vlan)
        if self._share < 1:
            if self._numbers[outer] >= self._most():
                return TriggerRefusal.OUTER_VLAN_FULL
            # The bucket may allow more VLANs per second than the machine makes.
            if self._queue.waiting(outer) >= self._most_at_once():
                return TriggerRefusal.OUTER_VLAN_RATE_LIMITED
            # Before the others': a flood behind one outer tag must leave them tokens.
            if not self._bucket_of(outer, now).take(now):
                return TriggerRefusal.OUTER_VLAN_RATE_LIMITED
        if not self._bucket.take(now):
            return TriggerRefusal.RATE_LIMITED
        self._add(ServedVlan(vlan, trigger.kind, VlanState.MAKING, now, now, now))
        self._queue.add(vlan)
        return vlan

    def _has_profile(self, managed: ServedVlan) -> bool:
        profile = self._profiles.of(managed.vlan)
        return profile is not None and session_type(profile) == managed.kind

    def _is_over(self, managed: ServedVlan, now: float, is_short: bool) -> bool:
        idle = now - managed.used_at
        if not self._has_profile(managed):
            return True
        if is_short and not managed.had_session and idle >= _SIGN_ON:
            return True
        timeout = max(_SIGN_ON, self._demux.idle_timeout)
        return idle >= timeout + _SIGN_ON or (idle >= timeout and now - managed.heard_at >= _SIGN_ON)

    def _most(self) -> int:
        """VLANs of one outer VLAN."""
        return max(1, int(self._demux.rate_limits.max_vlans * self._share))

    def _most_at_once(self) -> int:
        """New VLANs of one outer VLAN."""
        return max(1, int(self._demux.rate_limits.burst * self._share))

    def _bucket_of(self, outer: OuterVlan, now: float) -> TokenBucket:
        bucket = self._buckets.get(outer)
        if bucket is None:
            rate = self._demux.rate_limits.vlans_per_second * self._share
            bucket = self._buckets[outer] = TokenBucket(rate, self._most_at_once(), now)
        return bucket

    def _add(self, managed: ServedVlan) -> None:
        self._vlans[managed.vlan] = managed
        self._numbers[outer_vlan(managed.vlan)] += 1

    def _forget(self, vlan: AccessVlan) -> bool:
        """Return False if it is unknown."""
        if self._vlans.pop(vlan, None) is None:
            return False
        self._numbers[outer_vlan(vlan)] -= 1
        return True

    def _change(self, vlan: AccessVlan, state: VlanState) -> ServedVlan:
        changed = self._vlans[vlan] = replace(self._vlans[vlan], state=state)
        return changed


class VlanProfiles:
    """The profile of a VLAN, found by bisection: a flood must not search 256 profiles for each frame."""

    def __init__(self, demux: Demux) -> None:
        self._trunks = frozenset(demux.trunks)
        # By outer VLAN id, with None for one tag. No two of a list overlap.
        self._by_outer: dict[int | None, list[VlanProfile]] = {}
        for profile in sorted(demux.vlan_profiles, key=_first):
            outer = profile.outer_vlan_range
            for id in (None,) if outer is None else range(outer.first, outer.last + 1):
                self._by_outer.setdefault(id, []).append(profile)
        #: How many outer VLANs may carry subscribers. A trunk is one for VLANs with one tag.
        self.outer_vlans = len(self._trunks) * len(self._by_outer)

    def of(self, vlan: AccessVlan) -> VlanProfile | None:
        """None for a VLAN of no profile, or not on a trunk of the demux."""
        profiles = self._by_outer.get(vlan.outer_vlan_id)
        if profiles is None or vlan.trunk not in self._trunks:
            return None
        at = bisect_right(profiles, vlan.vlan_id, key=_first)
        profile = profiles[at - 1]
        return profile if at and vlan.vlan_id <= profile.vlan_range.last else None


def _first(profile: VlanProfile) -> int:
    return profile.vlan_range.first


def session_type(profile: VlanProfile) -> SessionType:
    """Return the type of the sessions on the VLANs of a profile."""
    return SessionType.PPPOE if profile.type == "pppoe" else SessionType.DHCP
