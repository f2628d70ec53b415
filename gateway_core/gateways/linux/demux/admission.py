"""Admission of VLANs: decides which are to exist, from triggers, sessions and time, without a socket or a
device.

Not thread-safe. Times are seconds of the `clock` that the caller gives.
"""

import re
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import Any, Self

from gateway_contract.base.vlan_names import short_name, vlan_name
from gateway_contract.configuration import Demux, VlanProfile
from gateway_contract.core.health import TriggerRefusal
from gateway_contract.core.network import VlanProtocol
from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.demux.listener import Trigger
from gateway_core.records.clock import TokenBucket

#: Seconds until another attempt at a VLAN that could not be made: a client sends PADI every few seconds.
HOLD_OFF_SECONDS = 10.0
#: Seconds that a sign-on may take, with RADIUS. A shorter idle timeout would remove the VLAN meanwhile.
_SIGN_ON_SECONDS = 30.0
#: Share of the limits from which on VLANs that never had a session make room for others.
_SHORTAGE = 7 / 8
_MAX_VLAN_ID = 4094
#: The tags in the name of a device, after the name of its trunk.
_TAGS_PATTERN = re.compile(r"(?:\.([1-9][0-9]{0,3}))?\.([1-9][0-9]{0,3})", re.ASCII)

#: A trunk and an outer VLAN id, which is None for one tag.
OuterVlan = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class AccessVlan:
    """VLAN of a subscriber. With one tag, `outer_vlan_id` is None; with two, the outer one is 802.1ad."""

    trunk: str
    outer_vlan_id: int | None
    vlan_id: int

    @property
    def name(self) -> str:
        """Name of the VLAN's device."""
        if self.outer_vlan_id is None:
            return vlan_name(self.trunk, self.vlan_id)
        return vlan_name(self.trunk, self.outer_vlan_id, self.vlan_id)

    @property
    def outer(self) -> OuterVlan:
        """The outer VLAN, whose share of the limits the VLAN takes from."""
        return self.trunk, self.outer_vlan_id

    @property
    def protocol(self) -> VlanProtocol:
        """The protocol of the first tag."""
        return VlanProtocol.DOT1Q if self.outer_vlan_id is None else VlanProtocol.DOT1AD

    @classmethod
    def parse(cls, name: str, trunks: Iterable[str]) -> Self | None:
        """Return the VLAN with the device of this name, on one of these trunks. None for any other name. The
        name of a trunk may have dots, too: the longest one counts."""
        for trunk in sorted(trunks, key=len, reverse=True):
            for head in (trunk, short_name(trunk)):
                if name.startswith(head) and (match := _TAGS_PATTERN.fullmatch(name, len(head))):
                    outer, inner = None if match[1] is None else int(match[1]), int(match[2])
                    vlan = cls(trunk, outer, inner)
                    if max(outer or 1, inner) <= _MAX_VLAN_ID and vlan.name == name:
                        return vlan
        return None


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Access interfaces with sessions, and the session types that may have more: those whose source does not
    reply, or has a session that the disk has no room for."""

    interfaces: Container[str]
    unknown: Container[SessionType] = ()


class VlanState(Enum):
    """State of a VLAN under management."""

    #: Waits for its turn, or is being made.
    MAKING = "making"
    #: The device exists, and no source has been told.
    MADE = "made"
    SERVED = "served"
    REMOVING = "removing"


_SETTLED_STATES = (VlanState.MADE, VlanState.SERVED)


@dataclass(frozen=True, slots=True)
class ManagedVlan:
    """VLAN with the session type whose source serves it, and when it was made or adopted, when it was last in
    use, by a session or as a new one, and when the last trigger was seen."""

    vlan: AccessVlan
    type: SessionType
    state: VlanState
    created_at: float
    used_at: float
    heard_at: float
    had_session: bool = False


class Admission:
    """All VLANs under management. `refusals` counts the triggers that made none.

    An outer VLAN, or a trunk for VLANs with one tag, has no more than its share of the limits.

    A VLAN that `decide` returns waits for its turn until `take` returns it, and counts for all limits
    meanwhile. A VLAN is under way until the caller calls `mark_made` or `mark_failed`; one that `adopt` or
    `take_expired` returns, until `forget` or `postpone`.
    """

    def __init__(self, demux: Demux, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._vlans: dict[AccessVlan, ManagedVlan] = {}
        #: Number of VLANs of each outer VLAN.
        self._numbers: Counter[OuterVlan] = Counter()
        #: VLANs that wait to be made, in the order of their outer VLANs' turns. VLANs with one tag share the
        #: turn of their trunk, as they share its limits.
        self._waiting: dict[OuterVlan, deque[AccessVlan]] = {}
        self._held_off: dict[AccessVlan, float] = {}
        self.refusals: Counter[TriggerRefusal] = Counter()
        self.configure(demux)

    def __iter__(self) -> Iterator[ManagedVlan]:
        return iter(self._vlans.values())

    def configure(self, demux: Demux) -> None:
        """Apply another configuration, with full buckets. VLANs without a profile expire."""
        self._demux = demux
        self._profiles = VlanProfiles(demux)
        limits = demux.rate_limits
        self._bucket = TokenBucket(limits.vlans_per_second, limits.burst, self._clock())
        # Alone, an outer VLAN has all.
        self._share = limits.outer_vlan_share / 100 if self._profiles.outer_vlans > 1 else 1.0
        #: Limits of one outer VLAN: all its VLANs, and new ones at once.
        self._max_vlans = max(1, int(limits.max_vlans * self._share))
        self._max_burst = max(1, int(limits.burst * self._share))
        self._buckets: dict[OuterVlan, TokenBucket] = {}

    @property
    def has_waiting(self) -> bool:
        """True while `take` has a VLAN to return."""
        return bool(self._waiting)

    def take(self, limit: int) -> list[AccessVlan]:
        """Return the VLANs to make next, at most `limit`. Outer VLANs take turns, one VLAN in each: if one
        has thousands waiting, the next VLAN of another waits for one turn of each."""
        taken: list[AccessVlan] = []
        while self._waiting and len(taken) < limit:
            outer = next(iter(self._waiting))
            vlans = self._waiting.pop(outer)
            taken.append(vlans.popleft())
            if vlans:
                # After all others.
                self._waiting[outer] = vlans
        return taken

    def decide(self, trigger: Trigger) -> AccessVlan | TriggerRefusal:
        """Return the VLAN that is to be made for a trigger, or the reason why none is made."""
        decision = self._decide(trigger)
        if isinstance(decision, TriggerRefusal):
            self.refusals[decision] += 1
        return decision

    def mark_made(self, vlan: AccessVlan) -> ManagedVlan:
        """Note that the device of a VLAN under way exists."""
        return self._update(vlan, state=VlanState.MADE)

    def mark_failed(self, vlan: AccessVlan) -> None:
        """Note that a VLAN under way could not be made. Its triggers are refused for HOLD_OFF_SECONDS."""
        if self.forget(vlan):
            self._held_off[vlan] = self._clock() + HOLD_OFF_SECONDS

    def mark_served(self, vlan: AccessVlan) -> None:
        """Note that the source has a VLAN."""
        self._update(vlan, state=VlanState.SERVED)

    def list_unserved(self, type: SessionType, limit: int) -> list[AccessVlan]:
        """Return at most `limit` VLANs of a session type that the source is to be told of."""
        found = (each.vlan for each in self if each.state == VlanState.MADE and each.type == type)
        return list(islice(found, limit))

    def serve_again(self, type: SessionType) -> None:
        """Make `list_unserved` return all VLANs of a session type again."""
        for managed in list(self):
            if managed.type == type and managed.state == VlanState.SERVED:
                self._update(managed.vlan, state=VlanState.MADE)

    def adopt(self, trunk: str, existing: Iterable[AccessVlan]) -> list[AccessVlan]:
        """Take over the VLANs that have a device on the trunk now, if they have a profile. Return those under
        management that have lost their device: the source must release them before they may be made again.
        What is under way stays as it is."""
        existing, vanished = set(existing), []
        for managed in list(self):
            is_settled = managed.vlan.trunk == trunk and managed.state in _SETTLED_STATES
            if is_settled and managed.vlan not in existing:
                self._update(managed.vlan, state=VlanState.REMOVING)
                vanished.append(managed.vlan)
        for vlan in existing - self._vlans.keys():
            profile = self._profiles.find(vlan)
            if profile is not None and vlan.trunk == trunk:
                self._add(vlan, get_session_type(profile), VlanState.MADE)
        return vanished

    def adopt_former(self, vlans: Collection[AccessVlan]) -> None:
        """Take over VLANs without a profile, so that they expire: a core that was killed left them."""
        # `eth0.5.100` may be a VLAN of `eth0.5`, or two tags on `eth0`.
        known = {vlan.name for vlan in vlans if self._profiles.find(vlan) is not None}
        for vlan in vlans:
            if vlan not in self._vlans and vlan.name not in known:
                # Served, whatever their type was: no source is to be told of them.
                self._add(vlan, SessionType.PPPOE, VlanState.SERVED)

    def restore(self, vlan: AccessVlan) -> bool:
        """Put a VLAN under way that had a subscriber before a reboot, without a token of the bucket. Return
        False if it is under management, if no profile has it, or if there is no room."""
        profile = self._profiles.find(vlan)
        if profile is None or vlan in self._vlans or len(self._vlans) >= self._demux.rate_limits.max_vlans:
            return False
        self._add(vlan, get_session_type(profile), VlanState.MAKING, had_session=True)
        return True

    def is_managed(self, vlan: AccessVlan) -> bool:
        """Return True for a VLAN of a profile, and for one under management that is about to go."""
        return vlan in self._vlans or self._profiles.find(vlan) is not None

    def get_type(self, vlan: AccessVlan) -> SessionType:
        """Return the session type of a VLAN under management."""
        return self._vlans[vlan].type

    def take_expired(self, occupancy: Occupancy, limit: int) -> list[AccessVlan]:
        """Return at most `limit` VLANs to remove: without a session for the idle timeout, or without a
        profile, also with sessions, which the commit ends. While its source does not reply, no VLAN expires:
        the sessions may live, and the source cannot release it.

        Triggers do not count as use: a client that is signing on keeps its VLAN, for the time of one sign-on.
        Where there is little room, VLANs that never had a session go first, and have that time only."""
        now = self._clock()
        found: list[AccessVlan] = []
        self._held_off = {vlan: until for vlan, until in self._held_off.items() if until > now}
        staying = Counter(each.vlan.outer for each in self if each.state != VlanState.REMOVING)
        total, enough = staying.total(), self._demux.rate_limits.max_vlans * _SHORTAGE
        for managed in list(self):
            if managed.state not in _SETTLED_STATES or managed.type in occupancy.unknown:
                continue
            if managed.vlan.name in occupancy.interfaces and self._has_profile(managed):
                self._update(managed.vlan, used_at=now, had_session=True)
                continue
            outer = managed.vlan.outer
            is_short = total > enough or staying[outer] > self._max_vlans * _SHORTAGE
            if len(found) < limit and self._is_expired(managed, now, is_short):
                self._update(managed.vlan, state=VlanState.REMOVING)
                staying[outer] -= 1
                total -= 1
                found.append(managed.vlan)
        return found

    def forget(self, vlan: AccessVlan) -> bool:
        """Drop a VLAN without a device. Return False if it is unknown."""
        if self._vlans.pop(vlan, None) is None:
            return False
        self._numbers[vlan.outer] -= 1
        return True

    def postpone(self, vlan: AccessVlan) -> None:
        """Put a VLAN behind all others, which a source did not take, or which could not be removed."""
        self._vlans[vlan] = replace(self._vlans.pop(vlan), state=VlanState.MADE)

    def _decide(self, trigger: Trigger) -> AccessVlan | TriggerRefusal:
        vlan = AccessVlan(trigger.trunk, trigger.outer_vlan_id, trigger.vlan_id)
        profile = self._profiles.find(vlan)
        if trigger.outer_protocol != vlan.protocol:
            return TriggerRefusal.NO_PROFILE if profile is None else TriggerRefusal.OTHER_PROTOCOL
        now, managed = self._clock(), self._vlans.get(vlan)
        if managed is not None and managed.state not in _SETTLED_STATES:
            return TriggerRefusal.UNDER_WAY
        if profile is None:
            return TriggerRefusal.NO_PROFILE
        if get_session_type(profile) != trigger.type:
            return TriggerRefusal.OTHER_KIND
        if managed is not None:
            # A client that is signing on must not lose its VLAN before it has a session.
            self._update(vlan, heard_at=now)
            return TriggerRefusal.SERVED
        if self._held_off.get(vlan, now) > now:
            return TriggerRefusal.HELD_OFF
        if len(self._vlans) >= self._demux.rate_limits.max_vlans:
            return TriggerRefusal.FULL
        if self._share < 1:
            if self._numbers[vlan.outer] >= self._max_vlans:
                return TriggerRefusal.OUTER_VLAN_FULL
            # The bucket may allow more VLANs per second than the machine makes.
            if len(self._waiting.get(vlan.outer, ())) >= self._max_burst:
                return TriggerRefusal.OUTER_VLAN_RATE_LIMITED
            # Before the bucket of all: a flood behind one outer tag must leave the others tokens.
            if not self._get_bucket(vlan.outer, now).take(now):
                return TriggerRefusal.OUTER_VLAN_RATE_LIMITED
        if not self._bucket.take(now):
            return TriggerRefusal.RATE_LIMITED
        self._add(vlan, trigger.type, VlanState.MAKING)
        self._waiting.setdefault(vlan.outer, deque()).append(vlan)
        return vlan

    def _has_profile(self, managed: ManagedVlan) -> bool:
        profile = self._profiles.find(managed.vlan)
        return profile is not None and get_session_type(profile) == managed.type

    def _is_expired(self, managed: ManagedVlan, now: float, is_short: bool) -> bool:
        idle = now - managed.used_at
        if not self._has_profile(managed):
            return True
        if is_short and not managed.had_session and idle >= _SIGN_ON_SECONDS:
            return True
        timeout = max(_SIGN_ON_SECONDS, self._demux.idle_timeout)
        is_silent = now - managed.heard_at >= _SIGN_ON_SECONDS
        return idle >= timeout + _SIGN_ON_SECONDS or (idle >= timeout and is_silent)

    def _get_bucket(self, outer: OuterVlan, now: float) -> TokenBucket:
        if outer not in self._buckets:
            rate = self._demux.rate_limits.vlans_per_second * self._share
            self._buckets[outer] = TokenBucket(rate, self._max_burst, now)
        return self._buckets[outer]

    def _add(
        self, vlan: AccessVlan, type: SessionType, state: VlanState, *, had_session: bool = False
    ) -> None:
        now = self._clock()
        self._vlans[vlan] = ManagedVlan(vlan, type, state, now, now, now, had_session)
        self._numbers[vlan.outer] += 1

    def _update(self, vlan: AccessVlan, **changes: Any) -> ManagedVlan:
        changed = self._vlans[vlan] = replace(self._vlans[vlan], **changes)
        return changed


class VlanProfiles:
    """Profiles of VLANs, found by bisection: a flood must not search 256 profiles for each frame."""

    def __init__(self, demux: Demux) -> None:
        self._trunks = frozenset(demux.trunks)
        # By outer VLAN id, with None for one tag. No two of a list overlap.
        self._by_outer: dict[int | None, list[VlanProfile]] = {}
        for profile in sorted(demux.vlan_profiles, key=_get_first_id):
            outer = profile.outer_vlan_range
            for id in (None,) if outer is None else range(outer.first, outer.last + 1):
                self._by_outer.setdefault(id, []).append(profile)
        #: How many outer VLANs may carry subscribers. A trunk is one for VLANs with one tag.
        self.outer_vlans = len(self._trunks) * len(self._by_outer)

    def find(self, vlan: AccessVlan) -> VlanProfile | None:
        """Return the profile of a VLAN; None for a VLAN of no profile, or not on a trunk of the demux."""
        profiles = self._by_outer.get(vlan.outer_vlan_id)
        if profiles is None or vlan.trunk not in self._trunks:
            return None
        at = bisect_right(profiles, vlan.vlan_id, key=_get_first_id)
        profile = profiles[at - 1]
        return profile if at and vlan.vlan_id <= profile.vlan_range.last else None


def _get_first_id(profile: VlanProfile) -> int:
    return profile.vlan_range.first


def get_session_type(profile: VlanProfile) -> SessionType:
    """Return the type of the sessions on the VLANs of a profile."""
    return SessionType.PPPOE if profile.type == "pppoe" else SessionType.DHCP
