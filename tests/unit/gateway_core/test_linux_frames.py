"""The parser of subscribers' first frames."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from gateway_contract.core.network import VlanProtocol
from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.demux.listener import Trigger, parse_trigger
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
    assert trigger is None or trigger.kind in SessionType
