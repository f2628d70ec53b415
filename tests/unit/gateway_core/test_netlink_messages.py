"""The kernel's messages, as bytes of Debian 12's kernel 6.1; and any other bytes."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_contract.core.network import AdminState, VlanProtocol
from gateway_core.gateways.linux.kernel import fib, links, qdiscs
from gateway_core.gateways.linux.kernel import netlink as nl
from gateway_core.gateways.linux.kernel import rtnetlink as rt
from gateway_core.gateways.linux.kernel.fib import NextHop
from gateway_core.gateways.linux.kernel.links import VlanTag
from gateway_core.gateways.linux.kernel.netlink import MalformedMessage
from gateway_core.gateways.linux.kernel.qdiscs import PacketFilter, Qdisc, TbfLimit
from gateway_core.gateways.linux.kernel.watcher import ChangedPart, parse_events

# Attributes that the parsers don't read are left out.
VLAN = bytes.fromhex(
    "0000010006000000021000000000000009000300742e353000000000050010000200000008000400dc0500000a0001004ea249ab"
    "eb0100003000120009000100766c616e00000000200002000600050088a8000006000100320000000c00020001000000ffffffff"
    "0800050004000000"
)
PPP = bytes.fromhex(
    "0000000209000000d110010000000000090003007070703000000000050010000000000008000400dc0500001000120008000100"
    "7070700004000200"
)
PEER = bytes.fromhex(
    "0220800009000000080001000a090002080002000a090001090003007070703000000000080008008000000014000600ffffffff"
    "ffffffff4d0e00004d0e0000"
)
MULTIPATH = bytes.fromhex(
    "02180000fe0300010000000008000f00fe00000008000100cb00710024000900100000000500000008000500c000020210000000"
    "0500000008000500c0000203"
)
VIA_IPV6 = bytes.fromhex(
    "02180000fe0300010000000008000f00fe00000008000100cb007200160012000a0020010db80000000000000000000000090000"
    "0800040005000000"
)
TBF = bytes.fromhex(
    "000000000200000000000200ffffffff0200000008000100746266002c000200280001000001240000005400a025260000000000"
    "0000000000000000000004002d31010000000000"
)
HASH_TABLE = bytes.fromhex("000000000a000000000000800000ffff00030a0008000100753332000c0002000800040001000000")
REDIRECT = bytes.fromhex(
    "000000000a000000000800800000ffff00030a000800010075333200040102002400050001000100000000000000000000000000"
    "000000000000000000000000000000000800020000000080080001001000010008000b0008000000a8000700a40001000b000100"
    "6d69727265640000440004001400010000000000000000000000000000000000140007000000000000000000000000000000000018"
    "000300000000000000000000000000000000000000000008000a0000000000480002002000020002000000000000000400000001"
    "00000001000000010000000c0000002400010004000000000000000400000000000000000000000000000000000000000000001c00"
    "0900000000000000000000000000000000000000000000000000"
)

PARSERS: list[tuple[Callable[[bytes], object], bytes]] = [
    (links.parse_link, VLAN),
    (links.parse_link, PPP),
    (links.parse_address, PEER),
    (fib.parse_route, MULTIPATH),
    (fib.parse_route, VIA_IPV6),
    (fib.parse_rule, VIA_IPV6),
    (qdiscs.parse_qdisc, TBF),
    (qdiscs.parse_filter, REDIRECT),
    (links.parse_link_entry, VLAN),
    (qdiscs.parse_qdisc_entry, TBF),
    (fib.parse_fib_entry, VIA_IPV6),
]


def test_a_vlan_has_tag_and_parent() -> None:
    link = links.parse_link(VLAN)
    assert (link.index, link.name, link.kind, link.mtu) == (6, "t.50", "vlan", 1500)
    assert (link.vlan, link.parent) == (VlanTag(VlanProtocol.DOT1AD, 50), 4)
    assert (link.admin_state, link.oper_state) == (AdminState.DOWN, "down")
    assert link.mac_address == "4e:a2:49:ab:eb:01"
    # The parent in another namespace is none of ours.
    assert links.parse_link(VLAN + nl.pack_attribute(37, bytes(4))).parent is None


def test_a_ppp_device_has_no_mac_and_no_ethernet_header() -> None:
    link = links.parse_link(PPP)
    assert (link.name, link.kind, link.mac_address, link.has_ethernet_header) == ("ppp0", "ppp", None, False)
    assert (link.admin_state, link.oper_state, link.parent) == (AdminState.UP, "unknown", None)
    # A name that is not UTF-8 can be shown.
    assert links.parse_link(PPP + nl.pack_attribute(3, b"\xff\0")).name == "\\xff"


def test_a_route_has_all_next_hops() -> None:
    route = fib.parse_route(MULTIPATH)
    assert (route.destination, route.table, route.protocol) == ("203.0.113.0/24", 254, "boot")
    assert route.next_hops == (NextHop("192.0.2.2", 5), NextHop("192.0.2.3", 5))
    # An IPv4 route may have an IPv6 gateway.
    assert fib.parse_route(VIA_IPV6).next_hops == (NextHop("2001:db8::9", 5),)


def test_a_limit_has_rate_overhead_mpu_and_burst_and_over_34_gbit_another_attribute() -> None:
    assert qdiscs.parse_qdisc(TBF) == Qdisc("tbf", 0x20000, TbfLimit(2_500_000, 36, 84, 78_125))
    options = nl.split_attributes(TBF, 20)[2] + nl.pack_attribute(4, (5 * 10**9).to_bytes(8, "little"))
    changed = qdiscs.parse_qdisc(TBF + nl.pack_attribute(2, options))
    assert changed.bucket is not None and changed.bucket.rate == 5 * 10**9


def test_a_filter_for_some_packets_is_no_redirect_and_a_hash_table_no_filter() -> None:
    match_all = bytes.fromhex("0000000000000000000000000000000008000200")
    some = REDIRECT.replace(match_all, b"\xff" + match_all[1:])
    assert qdiscs.parse_filter(some) == PacketFilter(10, None)
    assert qdiscs.parse_filter(HASH_TABLE) is None


@given(st.sampled_from(PARSERS), st.data())
def test_a_damaged_message_gives_a_value_or_the_error(
    parser: tuple[Callable[[bytes], object], bytes], data: st.DataObject
) -> None:
    parse, example = parser
    damaged = bytearray(example)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(MalformedMessage):
        parse(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))


@given(st.binary(max_size=200))
def test_any_datagram_gives_messages_or_the_error(data: bytes) -> None:
    with suppress(MalformedMessage):
        assert all(len(body) <= len(data) for _, _, _, body in nl.split_messages(data))
        parse_events(data)


@given(st.lists(st.tuples(st.integers(4, 60000), st.binary(max_size=20))))
def test_messages_come_out_as_they_went_in(sent: list[tuple[int, bytes]]) -> None:
    parts = [nl.pack_request(type, 0, 7, body) for type, body in sent]
    data = b"".join(part + bytes(-len(part) % 4) for part in parts)
    assert [(type, body) for type, _, _, body in nl.split_messages(data)] == sent


def test_a_lost_link_may_have_taken_routes_along_and_an_event_of_another_kind_changes_nothing() -> None:
    assert parse_events(nl.pack_request(17, 0, 0, b"")) == ({ChangedPart.LINKS, ChangedPart.ROUTES}, set())
    assert parse_events(nl.pack_request(28, 0, 0, b"")) == (frozenset(), set())


@pytest.mark.parametrize(
    ("replies", "found"),
    [
        ([(b"ab", True), (b"bc", False)], b"bc"),
        # Those that changes interrupt each time are united.
        ([(b"ab", True), (b"bc", True), (b"c", True), (b"a", True)], b"abc"),
    ],
)
def test_an_interrupted_list_is_read_again(
    monkeypatch: pytest.MonkeyPatch, replies: list[tuple[bytes, bool]], found: bytes
) -> None:
    lists = iter(
        [nl.Reply(0, [bytes([letter]) for letter in letters], is_cut) for letters, is_cut in replies]
    )
    monkeypatch.setattr(nl, "_exchange", lambda *_: [next(lists)])
    assert b"".join(nl.dump("read", rt.RTM_GETLINK, b"", bytes)) == found
