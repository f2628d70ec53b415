"""Admission of VLANs: the decision which VLANs must exist, by triggers, sessions and time. The module uses
neither sockets nor devices.

The module is not thread-safe. Times are in seconds of the caller's `clock`.
"""

import re
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import Any, Self

from gateway_contract.base.vlan_names import make_vlan_name, short_name
from gateway_contract.configuration import Demux, VlanProfile
from gateway_contract.core.health import TriggerRefusal
from gateway_contract.core.network import VlanProtocol
from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.demux.listener import Trigger
from gateway_core.records.clock import TokenBucket

#: Seconds until the next attempt after a VLAN could not be created: a client sends PADI every few seconds.
HOLD_OFF_SECONDS = 10.0
#: Maximum duration of a sign-on, with RADIUS. A shorter idle timeout would remove the VLAN during the
#: sign-on.
_MAX_SIGN_ON_SECONDS = 30.0
#: Share of a VLAN limit above which VLANs that never had a session expire early, to make room for others.
_SHORTAGE_SHARE = 7 / 8
_MAX_VLAN_ID = 4094
#: The tags in the name of a device, after the name of its trunk.
_TAGS_PATTERN = re.compile(r"(?:\.([1-9][0-9]{0,3}))?\.([1-9][0-9]{0,3})", re.ASCII)

#: Trunk and outer VLAN id; the id is None for VLANs with one tag.
OuterVlan = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class AccessVlan:
    """VLAN of a subscriber. `outer_vlan_id` is None for a VLAN with one tag, which is an 802.1Q tag. With two
    tags, the outer tag is an 802.1ad tag."""

    trunk: str
    outer_vlan_id: int | None
    vlan_id: int

    @property
    def name(self) -> str:
        """Name of the VLAN's network device."""
        if self.outer_vlan_id is None:
            return make_vlan_name(self.trunk, self.vlan_id)
        return make_vlan_name(self.trunk, self.outer_vlan_id, self.vlan_id)

    @property
    def outer(self) -> OuterVlan:
        """Outer VLAN to whose share of the limits this VLAN counts."""
        return self.trunk, self.outer_vlan_id

    @property
    def protocol(self) -> VlanProtocol:
        """Protocol of the outermost tag: 802.1Q or 802.1ad."""
        return VlanProtocol.DOT1Q if self.outer_vlan_id is None else VlanProtocol.DOT1AD

    @classmethod
    def parse(cls, name: str, trunks: Iterable[str]) -> Self | None:
        """Parse the name of a VLAN device on one of these trunks. Return None if `name` is not the name of
        such a device. The name of a trunk may contain dots: the longest trunk name that matches is used."""
        for trunk in sorted(trunks, key=len, reverse=True):
            for prefix in (trunk, short_name(trunk)):
                if name.startswith(prefix) and (match := _TAGS_PATTERN.fullmatch(name, len(prefix))):
                    outer_id, inner_id = None if match[1] is None else int(match[1]), int(match[2])
                    vlan = cls(trunk, outer_id, inner_id)
                    if max(outer_id or 1, inner_id) <= _MAX_VLAN_ID and vlan.name == name:
                        return vlan
        return None


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Access interfaces with sessions. `unknown` are the session types whose sessions are not all known,
    because the source does not reply or because a session could not be stored on disk."""

    interfaces: Container[str]
    unknown: Container[SessionType] = ()


class VlanState(Enum):
    """State of a managed VLAN."""

    #: The VLAN waits for its turn, or its device is being created.
    MAKING = "making"
    #: The device exists, and no source serves the VLAN yet.
    MADE = "made"
    SERVED = "served"
    REMOVING = "removing"


_SETTLED_STATES = (VlanState.MADE, VlanState.SERVED)


@dataclass(frozen=True, slots=True)
class ManagedVlan:
    """VLAN that the gateway creates and removes, with the session type whose source serves the VLAN.

    `created_at` is the time of creation or adoption. `last_used_at` is the last time at which the VLAN was
    new or had a session. `last_trigger_at` is the time of the last trigger.
    """

    vlan: AccessVlan
    type: SessionType
    state: VlanState
    created_at: float
    last_used_at: float
    last_trigger_at: float
    had_session: bool = False


class Admission:
    """Table of all managed VLANs. `refusals` counts the triggers that created no VLAN, by reason.

    An outer VLAN cannot use more than its share of the limits. All VLANs with one tag on a trunk count as one
    outer VLAN.

    A VLAN that `decide` returns waits until `take` returns the VLAN, and counts for all limits while waiting.
    For each VLAN that `take` returns, the caller must call `mark_made` or `mark_failed`. For each VLAN that
    `adopt` or `take_expired` returns, the caller must call `forget` or `postpone`.
    """

    def __init__(self, demux: Demux, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._vlans: dict[AccessVlan, ManagedVlan] = {}
        #: Number of VLANs in each outer VLAN.
        self._vlan_counts: Counter[OuterVlan] = Counter()
        #: VLANs that wait for creation, by outer VLAN in the order of turns. VLANs with one tag share the
        #: turn of their trunk, as they share its limits.
        self._waiting_vlans: dict[OuterVlan, deque[AccessVlan]] = {}
        self._hold_off_ends: dict[AccessVlan, float] = {}
        self.refusals: Counter[TriggerRefusal] = Counter()
        self.configure(demux)

    def __iter__(self) -> Iterator[ManagedVlan]:
        return iter(self._vlans.values())

    def configure(self, demux: Demux) -> None:
        """Apply a new configuration, and refill the token buckets. VLANs without a profile expire."""
        self._demux = demux
        self._profiles = VlanProfiles(demux)
        limits = demux.rate_limits
        self._common_bucket = TokenBucket(limits.vlans_per_second, limits.burst, self._clock())
        # A single outer VLAN may use the whole limits.
        self._outer_vlan_share = limits.outer_vlan_share / 100 if self._profiles.outer_vlan_count > 1 else 1.0
        #: Limits of one outer VLAN: the number of its VLANs, and the burst of new VLANs.
        self._max_vlans = max(1, int(limits.max_vlans * self._outer_vlan_share))
        self._max_burst = max(1, int(limits.burst * self._outer_vlan_share))
        self._bucket_of_outer_vlan: dict[OuterVlan, TokenBucket] = {}

    @property
    def has_waiting(self) -> bool:
        """True while a VLAN waits for `take`."""
        return bool(self._waiting_vlans)

    def take(self, limit: int) -> list[AccessVlan]:
        """Return the VLANs to create next, at most `limit`. Outer VLANs take turns, with one VLAN per turn,
        so that an outer VLAN with thousands of waiting VLANs delays each other outer VLAN by one VLAN
        only."""
        next_vlans: list[AccessVlan] = []
        while self._waiting_vlans and len(next_vlans) < limit:
            outer_vlan = next(iter(self._waiting_vlans))
            vlans = self._waiting_vlans.pop(outer_vlan)
            next_vlans.append(vlans.popleft())
            if vlans:
                # Behind all other outer VLANs.
                self._waiting_vlans[outer_vlan] = vlans
        return next_vlans

    def decide(self, trigger: Trigger) -> AccessVlan | TriggerRefusal:
        """Return the VLAN to create for a trigger, or the reason why no VLAN is created."""
        decision = self._decide(trigger)
        if isinstance(decision, TriggerRefusal):
            self.refusals[decision] += 1
        return decision

    def mark_made(self, vlan: AccessVlan) -> ManagedVlan:
        """Record that the device of a VLAN was created."""
        return self._update(vlan, state=VlanState.MADE)

    def mark_failed(self, vlan: AccessVlan) -> None:
        """Record that the device of a VLAN could not be created. Triggers on the VLAN are refused for
        HOLD_OFF_SECONDS."""
        if self.forget(vlan):
            self._hold_off_ends[vlan] = self._clock() + HOLD_OFF_SECONDS

    def mark_served(self, vlan: AccessVlan) -> None:
        """Record that the source of the VLAN's session type serves a VLAN."""
        self._update(vlan, state=VlanState.SERVED)

    def list_unserved(self, type: SessionType, limit: int) -> list[AccessVlan]:
        """Return the VLANs of a session type that the source of this type does not serve yet, at most
        `limit`."""
        unserved_vlans = (each.vlan for each in self if each.state == VlanState.MADE and each.type == type)
        return list(islice(unserved_vlans, limit))

    def mark_unserved(self, type: SessionType) -> None:
        """Mark all VLANs of a session type as not served, so that `list_unserved` returns these VLANs
        again."""
        for managed in list(self):
            if managed.type == type and managed.state == VlanState.SERVED:
                self._update(managed.vlan, state=VlanState.MADE)

    def adopt(self, trunk: str, existing_vlans: Iterable[AccessVlan]) -> list[AccessVlan]:
        """Take over the VLANs with a profile whose devices exist on the trunk. Return the managed VLANs whose
        device has disappeared. The source must release these VLANs before the VLANs can be created again.
        VLANs that are being created or removed do not change."""
        existing_vlans, vanished_vlans = set(existing_vlans), []
        for managed in list(self):
            is_settled = managed.vlan.trunk == trunk and managed.state in _SETTLED_STATES
            if is_settled and managed.vlan not in existing_vlans:
                self._update(managed.vlan, state=VlanState.REMOVING)
                vanished_vlans.append(managed.vlan)
        for vlan in existing_vlans - self._vlans.keys():
            profile = self._profiles.find(vlan)
            if profile is not None and vlan.trunk == trunk:
                self._add(vlan, get_session_type(profile), VlanState.MADE)
        return vanished_vlans

    def adopt_former(self, vlans: Collection[AccessVlan]) -> None:
        """Take over the VLANs without a profile that a killed core has left, so that these VLANs expire."""
        # `eth0.5.100` may be a VLAN of `eth0.5`, or two tags on `eth0`.
        profile_vlan_names = {vlan.name for vlan in vlans if self._profiles.find(vlan) is not None}
        for vlan in vlans:
            if vlan not in self._vlans and vlan.name not in profile_vlan_names:
                # In the state SERVED, whatever the type was: no source needs to be told to serve them.
                self._add(vlan, SessionType.PPPOE, VlanState.SERVED)

    def restore(self, vlan: AccessVlan) -> bool:
        """Start the creation of a VLAN that had a subscriber before a reboot. The creation takes no token
        from the bucket. Return False if the VLAN is already managed, if the VLAN has no profile, or if
        `max_vlans` is reached."""
        profile = self._profiles.find(vlan)
        if profile is None or vlan in self._vlans or len(self._vlans) >= self._demux.rate_limits.max_vlans:
            return False
        self._add(vlan, get_session_type(profile), VlanState.MAKING, had_session=True)
        return True

    def is_managed(self, vlan: AccessVlan) -> bool:
        """Return True if a VLAN has a profile, or if the VLAN has lost the profile but is not removed yet."""
        return vlan in self._vlans or self._profiles.find(vlan) is not None

    def get_session_type(self, vlan: AccessVlan) -> SessionType:
        """Return the session type of a managed VLAN."""
        return self._vlans[vlan].type

    def take_expired(self, occupancy: Occupancy, limit: int) -> list[AccessVlan]:
        """Return the VLANs to remove, at most `limit`, and mark these VLANs as REMOVING.

        A VLAN expires when it had no session for the idle timeout. A VLAN without a profile expires at once,
        even with sessions, because the commit ends these sessions. While the source of a VLAN does not reply,
        the VLAN does not expire: the VLAN may have sessions, and the source cannot release the VLAN.

        A trigger does not restart the idle timeout, but may postpone the expiry of a VLAN by at most the
        duration of one sign-on. When a limit is nearly reached, VLANs that never had a session expire after
        the duration of one sign-on.
        """
        now = self._clock()
        expired_vlans: list[AccessVlan] = []
        self._hold_off_ends = {vlan: until for vlan, until in self._hold_off_ends.items() if until > now}
        vlan_counts = Counter(each.vlan.outer for each in self if each.state != VlanState.REMOVING)
        vlan_count, shortage_count = vlan_counts.total(), self._demux.rate_limits.max_vlans * _SHORTAGE_SHARE
        for managed in list(self):
            if managed.state not in _SETTLED_STATES or managed.type in occupancy.unknown:
                continue
            if managed.vlan.name in occupancy.interfaces and self._has_profile(managed):
                self._update(managed.vlan, last_used_at=now, had_session=True)
                continue
            outer = managed.vlan.outer
            has_vlan_shortage = (
                vlan_count > shortage_count or vlan_counts[outer] > self._max_vlans * _SHORTAGE_SHARE
            )
            if len(expired_vlans) < limit and self._is_expired(managed, now, has_vlan_shortage):
                self._update(managed.vlan, state=VlanState.REMOVING)
                vlan_counts[outer] -= 1
                vlan_count -= 1
                expired_vlans.append(managed.vlan)
        return expired_vlans

    def forget(self, vlan: AccessVlan) -> bool:
        """Remove a VLAN from the table. The device of the VLAN must not exist. Return False if the VLAN is
        not in the table."""
        if self._vlans.pop(vlan, None) is None:
            return False
        self._vlan_counts[vlan.outer] -= 1
        return True

    def postpone(self, vlan: AccessVlan) -> None:
        """Move a VLAN behind all other VLANs, after the source has refused the VLAN or the removal of the
        VLAN has failed."""
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
            self._update(vlan, last_trigger_at=now)
            return TriggerRefusal.SERVED
        if self._hold_off_ends.get(vlan, now) > now:
            return TriggerRefusal.HELD_OFF
        if len(self._vlans) >= self._demux.rate_limits.max_vlans:
            return TriggerRefusal.FULL
        if self._outer_vlan_share < 1:
            if self._vlan_counts[vlan.outer] >= self._max_vlans:
                return TriggerRefusal.OUTER_VLAN_FULL
            # The bucket may allow more VLANs per second than the machine can create.
            if len(self._waiting_vlans.get(vlan.outer, ())) >= self._max_burst:
                return TriggerRefusal.OUTER_VLAN_RATE_LIMITED
            # Before the common bucket: a flood in one outer VLAN must leave tokens for the other outer VLANs.
            if not self._get_bucket(vlan.outer, now).take(now):
                return TriggerRefusal.OUTER_VLAN_RATE_LIMITED
        if not self._common_bucket.take(now):
            return TriggerRefusal.RATE_LIMITED
        self._add(vlan, trigger.type, VlanState.MAKING)
        self._waiting_vlans.setdefault(vlan.outer, deque()).append(vlan)
        return vlan

    def _has_profile(self, managed: ManagedVlan) -> bool:
        profile = self._profiles.find(managed.vlan)
        return profile is not None and get_session_type(profile) == managed.type

    def _is_expired(self, managed: ManagedVlan, now: float, has_vlan_shortage: bool) -> bool:
        idle = now - managed.last_used_at
        if not self._has_profile(managed):
            return True
        if has_vlan_shortage and not managed.had_session and idle >= _MAX_SIGN_ON_SECONDS:
            return True
        timeout = max(_MAX_SIGN_ON_SECONDS, self._demux.idle_timeout)
        is_silent = now - managed.last_trigger_at >= _MAX_SIGN_ON_SECONDS
        return idle >= timeout + _MAX_SIGN_ON_SECONDS or (idle >= timeout and is_silent)

    def _get_bucket(self, outer: OuterVlan, now: float) -> TokenBucket:
        if outer not in self._bucket_of_outer_vlan:
            rate = self._demux.rate_limits.vlans_per_second * self._outer_vlan_share
            self._bucket_of_outer_vlan[outer] = TokenBucket(rate, self._max_burst, now)
        return self._bucket_of_outer_vlan[outer]

    def _add(
        self, vlan: AccessVlan, type: SessionType, state: VlanState, *, had_session: bool = False
    ) -> None:
        now = self._clock()
        self._vlans[vlan] = ManagedVlan(vlan, type, state, now, now, now, had_session)
        self._vlan_counts[vlan.outer] += 1

    def _update(self, vlan: AccessVlan, **changes: Any) -> ManagedVlan:
        managed = self._vlans[vlan] = replace(self._vlans[vlan], **changes)
        return managed


class VlanProfiles:
    """Index of the VLAN profiles. Searches use bisection, because a flood must not cause a search through 256
    profiles for each frame."""

    def __init__(self, demux: Demux) -> None:
        self._trunks = frozenset(demux.trunks)
        # By outer VLAN id, None for one tag. The profiles of a list do not overlap.
        self._profiles_of_outer_id: dict[int | None, list[VlanProfile]] = {}
        for profile in sorted(demux.vlan_profiles, key=_get_first_id):
            outer = profile.outer_vlan_range
            for id in (None,) if outer is None else range(outer.first, outer.last + 1):
                self._profiles_of_outer_id.setdefault(id, []).append(profile)
        #: Number of outer VLANs that may have subscribers. VLANs with one tag on a trunk count as one.
        self.outer_vlan_count = len(self._trunks) * len(self._profiles_of_outer_id)

    def find(self, vlan: AccessVlan) -> VlanProfile | None:
        """Return the profile of a VLAN; None for a VLAN without a profile or outside `demux.trunks`."""
        profiles = self._profiles_of_outer_id.get(vlan.outer_vlan_id)
        if profiles is None or vlan.trunk not in self._trunks:
            return None
        position = bisect_right(profiles, vlan.vlan_id, key=_get_first_id)
        profile = profiles[position - 1]
        return profile if position and vlan.vlan_id <= profile.vlan_range.last else None


def _get_first_id(profile: VlanProfile) -> int:
    return profile.vlan_range.first


def get_session_type(profile: VlanProfile) -> SessionType:
    """Return the type of the sessions on the VLANs of a profile."""
    return SessionType.PPPOE if profile.type == "pppoe" else SessionType.DHCP
