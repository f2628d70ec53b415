"""Which VLANs are to exist: decisions from triggers, sessions and time, without a socket or a device.

Not thread-safe. Times are seconds of the `clock` that the caller gives.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Self

from gateway_api.base.vlan_names import short_name, vlan_name
from gateway_api.core.gateways.linux.demux.listener import Trigger
from gateway_api.core.records.clock import TokenBucket
from gateway_api.wire.configuration import Demux, VlanProfile
from gateway_api.wire.core.health import TriggerRefusal
from gateway_api.wire.core.network import VlanProtocol
from gateway_api.wire.core.sessions import SessionType

#: Seconds until another attempt at a VLAN that could not be made: a client sends PADI every few seconds.
HOLD_OFF = 10.0
#: Seconds that a sign-on may take, with RADIUS. A shorter idle timeout would remove the VLAN meanwhile.
_SIGN_ON = 30.0
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
        """The VLAN with the device of this name, on one of these trunks. None for any other name. The name of
        a trunk may have dots, too: the longest one counts."""
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


class VlanState(Enum):
    MAKING = "making"
    #: The device exists, and no source has been told.
    MADE = "made"
    SERVED = "served"
    REMOVING = "removing"


@dataclass(frozen=True, slots=True)
class ServedVlan:
    """A VLAN, with the source that serves it, and when it was made or adopted, and last in use: a trigger was
    seen, or it had a session."""

    vlan: AccessVlan
    kind: SessionType
    state: VlanState
    created_at: float
    used_at: float


class Admission:
    """All VLANs under management. `refusals` counts the triggers that made none.

    A VLAN that `decide` returns is under way until the caller calls `made` or `failed`; one that `adopt` or
    `expired` returns, until `removed` or `postponed`.
    """

    def __init__(self, demux: Demux, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._vlans: dict[AccessVlan, ServedVlan] = {}
        self._held_off: dict[AccessVlan, float] = {}
        self.refusals: Counter[TriggerRefusal] = Counter()
        self.configure(demux)

    def __iter__(self) -> Iterator[ServedVlan]:
        return iter(self._vlans.values())

    def configure(self, demux: Demux) -> None:
        """Applies another configuration, with a full bucket as after a start. VLANs that no profile has any
        longer expire when they have no session."""
        self._demux = demux
        self._profiles = VlanProfiles(demux)
        limits = demux.rate_limits
        self._bucket = TokenBucket(limits.vlans_per_second, limits.burst, self._clock())

    def decide(self, trigger: Trigger) -> AccessVlan | TriggerRefusal:
        """The VLAN to make, for one of its triggers; else why none."""
        decision = self._decide(trigger)
        if isinstance(decision, TriggerRefusal):
            self.refusals[decision] += 1
        return decision

    def made(self, vlan: AccessVlan) -> ServedVlan:
        """The device of a VLAN under way exists."""
        return self._change(vlan, VlanState.MADE)

    def failed(self, vlan: AccessVlan) -> None:
        """A VLAN under way could not be made. Its next triggers are refused for HOLD_OFF seconds."""
        if self._vlans.pop(vlan, None):
            self._held_off[vlan] = self._clock() + HOLD_OFF

    def served(self, vlan: AccessVlan) -> None:
        """The source has the VLAN."""
        self._change(vlan, VlanState.SERVED)

    def unserved(self) -> list[ServedVlan]:
        """The VLANs that the source is to be told of."""
        return [managed for managed in self if managed.state == VlanState.MADE]

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
                self._vlans[vlan] = ServedVlan(vlan, _kind(profile), VlanState.MADE, now, now)
        return vanished

    def restore(self, vlan: AccessVlan) -> bool:
        """Has a VLAN made that had a subscriber before a reboot: it is under way then, without a token of the
        bucket. False if it is under management, if no profile has it, or if there is no room."""
        profile = self._profiles.of(vlan)
        if profile is None or vlan in self._vlans or len(self._vlans) >= self._demux.rate_limits.max_vlans:
            return False
        now = self._clock()
        self._vlans[vlan] = ServedVlan(vlan, _kind(profile), VlanState.MAKING, now, now)
        return True

    def expired(self, occupied: Container[str] | None, most: int) -> list[AccessVlan]:
        """The VLANs to remove, at most so many: without a session and a trigger for the idle timeout, or
        without a session and a profile. `occupied` has the names of the devices with sessions. While a source
        does not reply it is None, and no VLAN expires: the sessions may live."""
        now, found = self._clock(), []
        timeout = max(_SIGN_ON, self._demux.idle_timeout)
        self._held_off = {vlan: until for vlan, until in self._held_off.items() if until > now}
        if occupied is None:
            return []
        for managed in list(self):
            if managed.state not in (VlanState.MADE, VlanState.SERVED):
                continue
            if managed.vlan.name in occupied:
                self._vlans[managed.vlan] = replace(managed, used_at=now)
                continue
            profile = self._profiles.of(managed.vlan)
            wanted = profile is not None and _kind(profile) == managed.kind
            if not wanted or now - managed.used_at >= timeout:
                self._change(managed.vlan, VlanState.REMOVING)
                found.append(managed.vlan)
                if len(found) == most:
                    break
        return found

    def removed(self, vlan: AccessVlan) -> None:
        """The device of a VLAN is gone."""
        self._vlans.pop(vlan, None)

    def postponed(self, vlan: AccessVlan) -> None:
        """A source did not take a VLAN, or it could not be removed. It is tried again, after all others."""
        self._vlans[vlan] = replace(self._vlans.pop(vlan), state=VlanState.MADE)

    def _decide(self, trigger: Trigger) -> AccessVlan | TriggerRefusal:
        vlan = AccessVlan(trigger.trunk, trigger.outer_vlan_id, trigger.vlan_id)
        if trigger.outer_protocol != vlan.protocol:
            return TriggerRefusal.OTHER_PROTOCOL
        now, managed = self._clock(), self._vlans.get(vlan)
        if managed is not None and managed.state not in (VlanState.MADE, VlanState.SERVED):
            return TriggerRefusal.UNDER_WAY
        profile = self._profiles.of(vlan)
        if profile is None:
            return TriggerRefusal.NO_PROFILE
        if _kind(profile) != trigger.kind:
            return TriggerRefusal.OTHER_KIND
        if managed is not None:
            # A client that is signing on must not lose its VLAN before it has a session.
            self._vlans[vlan] = replace(managed, used_at=now)
            return TriggerRefusal.SERVED
        if self._held_off.get(vlan, now) > now:
            return TriggerRefusal.HELD_OFF
        if len(self._vlans) >= self._demux.rate_limits.max_vlans:
            return TriggerRefusal.FULL
        if not self._bucket.take(now):
            return TriggerRefusal.RATE_LIMITED
        self._vlans[vlan] = ServedVlan(vlan, trigger.kind, VlanState.MAKING, now, now)
        return vlan

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


def _kind(profile: VlanProfile) -> SessionType:
    return SessionType.PPPOE if profile.type == "pppoe" else SessionType.DHCP
