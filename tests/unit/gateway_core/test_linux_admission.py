"""Subscribers' first frames, and the VLANs that exist for them."""

from collections.abc import Callable, Container
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from gateway_contract.configuration import Demux, RateLimits, VlanProfile, VlanRange
from gateway_contract.core.health import TriggerRefusal
from gateway_contract.core.network import VlanProtocol
from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.demux.admission import (
    HOLD_OFF_SECONDS,
    AccessVlan,
    Admission,
    Occupancy,
    VlanState,
)
from gateway_core.gateways.linux.demux.listener import Trigger, parse_trigger
from tests.support.clocks import SteppedClock
from tests.support.first_frames import (
    DOT1AD,
    DOT1Q,
    FIRST,
    OFFERED_BY,
    OTHER,
    REQUESTED,
    dhcp,
    padi,
    received,
    tagged,
)

PPPOE = VlanProfile("pppoe", "pppoe", VlanRange(100, 499), None, "pppoe_ethernet")
IPOE = VlanProfile("ipoe", "dhcp", VlanRange(600, 699), None, "ipoe_ethernet")
QINQ = VlanProfile("qinq", "pppoe", VlanRange(1, 4094), VlanRange(50, 59), "pppoe_qinq")
DEMUX = Demux(
    ("trunk0", "trunk1"), (IPOE, QINQ, PPPOE), RateLimits(10, 20, 100, outer_vlan_share=100), idle_timeout=300
)
#: As DEMUX, with the shares of outer VLANs.
SHARED = replace(DEMUX, rate_limits=RateLimits(10, 20, 100, outer_vlan_share=75))

SINGLE = AccessVlan("trunk0", None, 300)
DOUBLE = AccessVlan("trunk0", 50, 7)

PPP = SessionType.PPPOE

Make = Callable[..., Admission]


# Names of devices.


@pytest.mark.parametrize(
    ("vlan", "name"),
    [
        (SINGLE, "trunk0.300"),
        (DOUBLE, "trunk0.50.7"),
        (AccessVlan("enp1s0", 999, 4094), "enp1s0.999.4094"),
        (AccessVlan("enp1s0", 4094, 4094), "np1s0.4094.4094"),
        (AccessVlan("enp129s0f1.1234", 5, 6), "1234.5.6"),
    ],
)
def test_a_device_has_the_name_of_its_trunk_or_the_end_of_it(vlan: AccessVlan, name: str) -> None:
    assert vlan.name == name
    assert AccessVlan.parse(name, (vlan.trunk, "trunk1")) == vlan


_TRUNKS = some.from_regex(r"[A-Za-z0-9._@][A-Za-z0-9._@+-]{0,14}", fullmatch=True)
_TAGS = some.integers(1, 4094)


@given(_TRUNKS, some.none() | _TAGS, _TAGS)
def test_any_name_fits_and_tells_its_vlan(trunk: str, outer: int | None, inner: int) -> None:
    vlan = AccessVlan(trunk, outer, inner)
    assert len(vlan.name) <= 15
    assert AccessVlan.parse(vlan.name, (trunk,)) == vlan
    assert vlan.protocol is (VlanProtocol.DOT1Q if outer is None else VlanProtocol.DOT1AD)
    # A short name that is not needed is another device.
    assert AccessVlan.parse("np1s0.50.7", ("enp1s0",)) is None


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def make(clock: SteppedClock) -> Make:
    def made(**changes: Any) -> Admission:
        return Admission(replace(DEMUX, **changes), clock)

    return made


@pytest.fixture
def admission(make: Make) -> Admission:
    return make()


def trigger(vlan: AccessVlan, kind: SessionType = PPP, protocol: VlanProtocol | None = None) -> Trigger:
    return Trigger(vlan.trunk, vlan.outer_vlan_id, protocol or vlan.protocol, vlan.vlan_id, kind)


def serve(admission: Admission, vlan: AccessVlan, kind: SessionType = PPP) -> None:
    assert admission.decide(trigger(vlan, kind)) == vlan
    assert admission.take(1) == [vlan]
    admission.mark_made(vlan)
    admission.mark_served(vlan)


def unserved(admission: Admission) -> list[str]:
    return sorted(vlan.name for kind in SessionType for vlan in admission.list_unserved(kind, 100))


def expired(
    admission: Admission, occupied: Container[str], unknown: Container[SessionType] = ()
) -> list[str]:
    return sorted(vlan.name for vlan in admission.take_expired(Occupancy(occupied, unknown), 100))


@pytest.mark.parametrize(
    ("vlan", "kind", "refusal"),
    [
        *((AccessVlan("trunk1", None, id), PPP, None) for id in (100, 499)),
        *((AccessVlan("trunk0", outer, 4094), PPP, None) for outer in (50, 59)),
        (AccessVlan("trunk1", None, 600), SessionType.DHCP, None),
        *((AccessVlan("trunk0", None, id), PPP, TriggerRefusal.NO_PROFILE) for id in (99, 500)),
        (AccessVlan("trunk0", 49, 300), PPP, TriggerRefusal.NO_PROFILE),
        (AccessVlan("trunk2", None, 300), PPP, TriggerRefusal.NO_PROFILE),
        (AccessVlan("trunk0", None, 300), SessionType.DHCP, TriggerRefusal.OTHER_KIND),
    ],
)
def test_a_trigger_in_a_range_makes_the_vlan_and_no_other_does(
    admission: Admission, vlan: AccessVlan, kind: SessionType, refusal: TriggerRefusal | None
) -> None:
    assert admission.decide(trigger(vlan, kind)) == (refusal or vlan)
    assert admission.refusals == ({refusal: 1} if refusal else {})
    assert len(list(admission)) == (not refusal)


def test_another_protocol_of_the_first_tag_makes_none(admission: Admission) -> None:
    for vlan, protocol in ((SINGLE, VlanProtocol.DOT1AD), (DOUBLE, VlanProtocol.DOT1Q)):
        assert admission.decide(trigger(vlan, protocol=protocol)) == TriggerRefusal.OTHER_PROTOCOL
        foreign = replace(vlan, vlan_id=99, outer_vlan_id=49)
        assert admission.decide(trigger(foreign, protocol=protocol)) == TriggerRefusal.NO_PROFILE


def test_a_vlan_under_way_or_served_is_decided_once(admission: Admission) -> None:
    serve(admission, DOUBLE)
    assert admission.decide(trigger(SINGLE)) == SINGLE
    assert {admission.decide(trigger(SINGLE)) for _ in range(100)} == {TriggerRefusal.UNDER_WAY}
    assert admission.decide(trigger(DOUBLE)) == TriggerRefusal.SERVED
    assert admission.refusals == {TriggerRefusal.UNDER_WAY: 100, TriggerRefusal.SERVED: 1}


def test_a_burst_is_made_at_once_and_then_so_many_a_second(admission: Admission, clock: SteppedClock) -> None:
    vlans = behind(None, 100)
    assert [admission.decide(trigger(vlan)) for vlan in vlans[:25]] == vlans[:20] + [
        TriggerRefusal.RATE_LIMITED
    ] * 5
    clock.now += 0.25
    assert [admission.decide(trigger(vlan)) for vlan in vlans[20:23]] == [*vlans[20:22], "rate_limited"]
    clock.now += 3600
    decisions = [admission.decide(trigger(vlan)) for vlan in vlans[25:50]]
    assert decisions.count(TriggerRefusal.RATE_LIMITED) == 5


def test_no_more_vlans_exist_than_the_configuration_allows(admission: Admission) -> None:
    serve(admission, SINGLE)
    admission.configure(replace(DEMUX, rate_limits=RateLimits(10, 20, 2, outer_vlan_share=100)))
    assert admission.decide(trigger(DOUBLE)) == DOUBLE
    assert admission.decide(trigger(AccessVlan("trunk0", 50, 8))) == TriggerRefusal.FULL
    assert admission.refusals == {TriggerRefusal.FULL: 1}


def test_a_vlan_that_failed_is_tried_again_after_a_while(admission: Admission, clock: SteppedClock) -> None:
    assert admission.decide(trigger(SINGLE)) == SINGLE
    admission.mark_failed(SINGLE)
    assert list(admission) == []
    clock.now += HOLD_OFF_SECONDS / 2
    assert admission.decide(trigger(SINGLE)) == TriggerRefusal.HELD_OFF
    clock.now += HOLD_OFF_SECONDS / 2
    assert admission.decide(trigger(SINGLE)) == SINGLE


@pytest.mark.parametrize("adopted", [True, False])
def test_a_vlan_expires_at_the_idle_timeout_after_its_start_or_its_last_session(
    admission: Admission, clock: SteppedClock, adopted: bool
) -> None:
    if adopted:
        admission.adopt("trunk0", [SINGLE])
    else:
        serve(admission, SINGLE)
        clock.now += 1000
        assert expired(admission, {"trunk0.300"}) == []
    clock.now += 299
    assert expired(admission, ()) == []
    clock.now += 1
    assert expired(admission, ()) == ["trunk0.300"]
    assert admission.decide(trigger(SINGLE)) == TriggerRefusal.UNDER_WAY
    # It could not be removed, then it could.
    admission.postpone(SINGLE)
    assert unserved(admission) == expired(admission, ()) == ["trunk0.300"]
    admission.forget(SINGLE)
    assert list(admission) == []
    assert admission.decide(trigger(SINGLE)) == SINGLE


@pytest.mark.parametrize(("timeout", "last_trigger"), [(1, 0), (300, 299)])
def test_a_client_that_is_signing_on_has_thirty_seconds(
    make: Make, clock: SteppedClock, timeout: int, last_trigger: int
) -> None:
    admission = make(idle_timeout=timeout)
    serve(admission, SINGLE)
    clock.now += last_trigger
    assert admission.decide(trigger(SINGLE)) == TriggerRefusal.SERVED
    clock.now += 29
    assert expired(admission, ()) == []
    clock.now += 1
    assert expired(admission, ()) == ["trunk0.300"]


def test_triggers_without_end_do_not_keep_a_vlan(admission: Admission, clock: SteppedClock) -> None:
    serve(admission, SINGLE)
    clock.now += 329
    assert admission.decide(trigger(SINGLE)) == TriggerRefusal.SERVED
    assert expired(admission, ()) == []
    clock.now += 1
    assert expired(admission, ()) == ["trunk0.300"]


@pytest.mark.parametrize(("silent", "gone"), [(SessionType.DHCP, "trunk0.300"), (PPP, "trunk0.600")])
def test_a_source_that_does_not_reply_keeps_its_own_vlans_alone(
    admission: Admission, clock: SteppedClock, silent: SessionType, gone: str
) -> None:
    serve(admission, SINGLE)
    serve(admission, AccessVlan("trunk0", None, 600), SessionType.DHCP)
    clock.now += 300
    assert expired(admission, (), unknown={silent}) == [gone]


def behind(outer: int | None, number: int) -> list[AccessVlan]:
    """So many VLANs behind an outer tag, or with one tag."""
    return [AccessVlan("trunk0", outer, id) for id in range(100, 100 + number)]


def waiting(admission: Admission, *vlans: AccessVlan) -> None:
    for vlan in vlans:
        assert admission.decide(trigger(vlan)) == vlan


def test_vlans_with_one_tag_have_every_other_turn_beside_one_outer_vlan(make: Make) -> None:
    admission = make(rate_limits=RateLimits(1000, 1000, 1000, outer_vlan_share=75))
    walked, others = behind(50, 200), behind(None, 200)
    waiting(admission, *walked, *others)
    taken = admission.take(100)
    # In the order in which they came.
    assert [vlan for vlan in taken if vlan.outer_vlan_id is None] == others[:50]
    assert [vlan for vlan in taken if vlan.outer_vlan_id == 50] == walked[:50]
    assert len(admission.take(1000)) == 300
    assert not admission.has_waiting


def test_an_outer_vlan_with_its_share_waiting_is_refused_until_some_go(
    make: Make, clock: SteppedClock
) -> None:
    admission = make(rate_limits=RateLimits(100, 20, 1000, outer_vlan_share=75))
    for vlan in behind(50, 200):
        admission.decide(trigger(vlan))
        # There are tokens again.
        clock.now += 0.1
    assert admission.refusals == {TriggerRefusal.OUTER_VLAN_RATE_LIMITED: 200 - 15}
    waiting(admission, SINGLE)
    assert admission.take(2) == [*behind(50, 1), SINGLE]
    waiting(admission, AccessVlan("trunk0", 50, 4094))


def test_of_vlans_with_one_tag_each_trunk_has_a_share(clock: SteppedClock) -> None:
    admission = Admission(SHARED, clock)
    decisions = [admission.decide(trigger(vlan)) for vlan in behind(None, 20)]
    assert decisions[15:] == [TriggerRefusal.OUTER_VLAN_RATE_LIMITED] * 5
    assert admission.decide(trigger(AccessVlan("trunk1", None, 300))) == AccessVlan("trunk1", None, 300)


def test_the_only_outer_vlan_has_all(clock: SteppedClock) -> None:
    admission = Admission(replace(SHARED, trunks=("trunk0",), vlan_profiles=(PPPOE,)), clock)
    vlans = behind(None, 21)
    assert [admission.decide(trigger(vlan)) for vlan in vlans] == [*vlans[:20], TriggerRefusal.RATE_LIMITED]


def test_the_share_is_free_again_when_vlans_go(clock: SteppedClock) -> None:
    admission = Admission(replace(SHARED, rate_limits=RateLimits(10, 20, 2, outer_vlan_share=50)), clock)
    one, other = behind(50, 2)
    for gone in (admission.mark_failed, admission.forget):
        assert admission.decide(trigger(one)) == one
        assert admission.decide(trigger(other)) == TriggerRefusal.OUTER_VLAN_FULL
        gone(one)
        clock.now += HOLD_OFF_SECONDS


def test_with_little_room_a_vlan_that_never_had_a_session_goes_first(make: Make, clock: SteppedClock) -> None:
    admission = make(rate_limits=RateLimits(10, 20, 8, outer_vlan_share=100))
    used, *walked = behind(50, 8)
    for vlan in (used, *walked):
        serve(admission, vlan)
    assert expired(admission, {used.name}) == []
    assert admission.decide(trigger(SINGLE)) == TriggerRefusal.FULL
    clock.now += 29
    assert expired(admission, ()) == []
    for vlan in walked:
        admission.decide(trigger(vlan))
    clock.now += 1
    # One is enough: a part of the places stays free.
    assert expired(admission, ()) == [walked[0].name]
    admission.forget(walked[0])
    serve(admission, SINGLE)


def test_the_share_of_an_outer_vlan_has_room_for_its_newcomers(clock: SteppedClock) -> None:
    admission = Admission(replace(SHARED, rate_limits=RateLimits(100, 100, 32, outer_vlan_share=50)), clock)
    walked, other = behind(50, 16), behind(51, 2)
    for vlan in (*walked, *other):
        serve(admission, vlan)
    clock.now += 30
    assert expired(admission, ()) == sorted(vlan.name for vlan in walked[:2])


def test_as_many_vlans_as_requested_expire_and_none_under_way(
    admission: Admission, clock: SteppedClock
) -> None:
    serve(admission, SINGLE)
    serve(admission, DOUBLE)
    under_way = AccessVlan("trunk0", 50, 8)
    assert admission.decide(trigger(under_way)) == under_way
    clock.now += 300
    assert admission.take_expired(Occupancy(()), 1) == [SINGLE]
    assert admission.take_expired(Occupancy(()), 1) == [DOUBLE]
    assert admission.take_expired(Occupancy(()), 1) == []


def test_a_vlan_that_is_postponed_is_the_last(admission: Admission) -> None:
    for vlan in (SINGLE, DOUBLE):
        assert admission.decide(trigger(vlan)) == vlan
        admission.mark_made(vlan)
    admission.postpone(SINGLE)
    assert admission.list_unserved(PPP, 100) == [DOUBLE, SINGLE]


def test_a_vlan_without_a_profile_expires_at_once_with_its_sessions(admission: Admission) -> None:
    serve(admission, SINGLE)
    serve(admission, DOUBLE)
    serve(admission, AccessVlan("trunk1", None, 300))
    admission.configure(replace(DEMUX, trunks=("trunk0",), vlan_profiles=(QINQ,)))
    # While a source does not reply, it cannot release them.
    assert expired(admission, (), unknown={PPP}) == []
    assert expired(admission, {"trunk0.300", DOUBLE.name}) == ["trunk0.300", "trunk1.300"]


def test_a_vlan_whose_session_type_changes_is_made_anew(admission: Admission) -> None:
    serve(admission, SINGLE)
    admission.configure(replace(DEMUX, vlan_profiles=(replace(PPPOE, type="dhcp"),)))
    assert expired(admission, ()) == ["trunk0.300"]
    admission.forget(SINGLE)
    serve(admission, SINGLE, SessionType.DHCP)
    assert [managed.type for managed in admission] == [SessionType.DHCP]


def test_a_vlan_of_an_earlier_life_expires_unless_a_profile_has_it_on_one_of_its_trunks(make: Make) -> None:
    admission = make(trunks=("trunk0", "eth0.50"))
    former = AccessVlan("trunk9", None, 300)
    of_two_trunks = AccessVlan("eth0.50", None, 300), AccessVlan("eth0", 50, 300)
    admission.adopt_former([former, SINGLE, DOUBLE, *of_two_trunks])
    assert unserved(admission) == []
    assert expired(admission, {"trunk9.300"}) == ["trunk9.300"]


def test_a_vlan_of_a_profile_or_about_to_lose_it_is_under_management(admission: Admission) -> None:
    serve(admission, SINGLE)
    admission.configure(replace(DEMUX, vlan_profiles=(QINQ,)))
    assert (admission.is_managed(SINGLE), admission.is_managed(DOUBLE)) == (True, True)
    assert not admission.is_managed(AccessVlan("trunk0", None, 10))


def test_what_is_under_way_is_not_adopted_or_forgotten(admission: Admission, clock: SteppedClock) -> None:
    serve(admission, DOUBLE)
    clock.now += 300
    assert expired(admission, ()) == ["trunk0.50.7"]
    assert admission.decide(trigger(SINGLE)) == SINGLE
    admission.adopt("trunk0", [DOUBLE])
    assert {managed.vlan: managed.state for managed in admission} == {
        SINGLE: VlanState.MAKING,
        DOUBLE: VlanState.REMOVING,
    }


def test_triggers_of_a_flood_leave_nothing_behind(admission: Admission, clock: SteppedClock) -> None:
    for id in range(1, 4095):
        admission.decide(trigger(AccessVlan("trunk0", None, id)))
    assert len(list(admission)) == 20
    for managed in list(admission):
        admission.mark_failed(managed.vlan)
    clock.now += HOLD_OFF_SECONDS
    assert expired(admission, (), {PPP}) == []
    assert admission._hold_off_ends == {}


def parsed(frame: bytes) -> Trigger | None:
    return parse_trigger("trunk0", *received(frame))


@pytest.mark.parametrize("name", FIRST)
def test_each_first_message_is_a_trigger_of_its_session_type_with_its_tags(name: str) -> None:
    frame, kind = FIRST[name]
    dot1q, dot1ad = VlanProtocol.DOT1Q, VlanProtocol.DOT1AD
    assert parsed(tagged(frame, (DOT1Q, 300))) == Trigger("trunk0", None, dot1q, 300, kind)
    for protocol, known in ((DOT1AD, dot1ad), (DOT1Q, dot1q)):
        expected = Trigger("trunk0", 50, known, 7, kind)
        assert parsed(tagged(frame, (protocol, 50), (DOT1Q, 7))) == expected


@pytest.mark.parametrize("name", OTHER)
def test_no_other_message_is_a_trigger(name: str) -> None:
    assert parsed(tagged(OTHER[name], (DOT1Q, 300))) is None
    assert parsed(tagged(OTHER[name], (DOT1AD, 50), (DOT1Q, 7))) is None


@pytest.mark.parametrize(
    "frame",
    [
        *(dhcp(message_type) for message_type in (4, 7, 8)),
        # A request that replies to an offer.
        dhcp(3, before=OFFERED_BY + REQUESTED),
        dhcp(3, after=REQUESTED + OFFERED_BY),
        # A discover to one host.
        dhcp(destination=bytes((2, 0, 0, 0, 0, 1))),
        # A group is no sender.
        padi(source=b"\x03\0\0\0\0\1"),
        # Broken options.
        *(dhcp(before=before) for before in (b"\xff", bytes((61, 0xFF)), b"\x35\0", b"\x35\2\1\1")),
    ],
)
def test_a_message_that_is_almost_a_first_one_is_no_trigger(frame: bytes) -> None:
    assert parsed(tagged(frame, (DOT1Q, 300))) is None


@pytest.mark.parametrize(
    "before", [b"\0\0", bytes((61, 7, 1, 2, 0, 0, 0, 0, 42)), bytes((12, 3)) + b"\x35\1\2"]
)
def test_the_message_type_is_found_behind_other_options(before: bytes) -> None:
    assert parsed(tagged(dhcp(before=before), (DOT1Q, 300)))


def test_priority_and_drop_eligible_bits_are_not_of_the_vlan_id() -> None:
    trigger = parsed(tagged(padi(), (DOT1AD, 0xF000 | 50), (DOT1Q, 0xE000 | 7)))
    assert trigger
    assert (trigger.outer_vlan_id, trigger.vlan_id) == (50, 7)


@pytest.mark.parametrize("id", [0, 4095])
def test_a_reserved_vlan_id_is_no_vlan(id: int) -> None:
    assert parsed(tagged(padi(), (DOT1Q, id))) is None
    assert parsed(tagged(padi(), (DOT1AD, id), (DOT1Q, 7))) is None
    assert parsed(tagged(padi(), (DOT1AD, 50), (DOT1Q, id))) is None


@pytest.mark.parametrize(
    "tags", [((DOT1AD, 50), (DOT1Q, 7), (DOT1Q, 8)), ((0x9100, 50), (DOT1Q, 7))], ids=["three", "0x9100"]
)
def test_other_tags_are_of_no_subscriber(tags: tuple[tuple[int, int], ...]) -> None:
    assert parsed(tagged(padi(), *tags)) is None


def test_a_frame_without_a_tag_is_no_trigger() -> None:
    frame, auxdata = received(tagged(padi(), (DOT1Q, 300)))
    assert parse_trigger("trunk0", frame, bytes(4) + auxdata[4:]) is None
    assert parse_trigger("trunk0", frame, b"") is None


@pytest.mark.parametrize("name", FIRST)
def test_a_frame_that_is_cut_is_a_trigger_or_none_and_never_an_error(name: str) -> None:
    frame, auxdata = received(tagged(FIRST[name][0], (DOT1AD, 50), (DOT1Q, 7)))
    for length in range(len(frame)):
        assert parse_trigger("trunk0", frame[:length], auxdata) in (
            None,
            parse_trigger("trunk0", frame, auxdata),
        )


@given(some.binary(max_size=400), some.binary(max_size=24))
def test_any_bytes_are_a_trigger_or_none(frame: bytes, auxdata: bytes) -> None:
    trigger = parse_trigger("trunk0", frame, auxdata)
    assert trigger is None or 1 <= trigger.vlan_id <= 4094


@given(some.sampled_from(sorted(FIRST)), some.lists(some.tuples(some.integers(0), some.integers(0, 255))))
@example("DHCPDISCOVER", [(17, 0x4F)])
def test_a_first_message_with_other_bytes_is_a_trigger_or_none(
    name: str, changes: list[tuple[int, int]]
) -> None:
    frame = bytearray(tagged(FIRST[name][0], (DOT1AD, 50), (DOT1Q, 7)))
    for at, byte in changes:
        frame[at % len(frame)] = byte
    trigger = parsed(bytes(frame))
    assert trigger is None or trigger.type in SessionType
