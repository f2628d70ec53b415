"""Reading the kernel's links, addresses, routes and qdiscs in bulk, against iproute2."""

import errno
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any
from unittest.mock import DEFAULT, Mock

import pytest

from gateway_contract.core.network import AdminState, VlanProtocol
from gateway_core.gateways.linux.kernel import netlink
from gateway_core.gateways.linux.kernel.fib import FibEntry, add_route, delete_route, replace_route
from gateway_core.gateways.linux.kernel.links import VlanTag, raise_thresholds, read_thresholds
from gateway_core.gateways.linux.kernel.netlink import KernelError, NoDevice, try_changes
from gateway_core.gateways.linux.kernel.qdiscs import INGRESS, ROOT, QdiscEntry
from gateway_core.gateways.linux.kernel.reader import KernelReader
from gateway_core.gateways.linux.kernel.watcher import ALL_PARTS, ChangedPart, Watcher
from tests.support.namespaces import can, ip, network_namespace, tc
from tests.support.stack import wait_for

pytestmark = pytest.mark.skipif(not can("true"), reason="needs to be root, for network namespaces")

LIMIT = "handle 1: tbf rate 1mbit burst 10kb limit 10kb"


@pytest.fixture(autouse=True)
def namespace() -> Iterator[None]:
    with network_namespace():
        yield


@pytest.fixture
def links() -> None:
    ip("link add trunk0 type veth peer name far0", "link set trunk0 up", "link set far0 up")


def told(*arguments: str) -> Any:
    """What iproute2 says."""
    return json.loads(subprocess.run(["ip", "-json", *arguments], check=True, capture_output=True).stdout)


def test_links_are_those_of_iproute2(links: None) -> None:
    ip("link set trunk0 mtu 1600", "link set far0 down")
    # The kernel tells the other end of a pair a moment later.
    wait_for(
        "the end of the carrier", lambda: told("link", "show", "trunk0")[0]["operstate"] == "LOWERLAYERDOWN"
    )
    found = KernelReader().read_links()
    for one in told("-details", "link"):
        link = found.pop(one["ifindex"])
        assert (link.name, link.mtu, link.mac_address) == (one["ifname"], one["mtu"], one["address"])
        assert link.oper_state == one["operstate"].lower()
        assert link.is_up is ("UP" in one["flags"])
        assert link.kind == one.get("linkinfo", {}).get("info_kind")
        # The peer of a veth is none.
        assert link.parent is None
    assert found == {}
    trunk = KernelReader().find_link("trunk0")
    assert (trunk.mtu, trunk.has_ethernet_header, trunk.admin_state) == (1600, True, AdminState.UP)


@pytest.mark.parametrize("name", ["nobody", "", "a" * 16, "a" * 300, "/"])
def test_a_name_that_no_link_has_is_an_error_of_its_own(name: str) -> None:
    with pytest.raises(NoDevice):
        KernelReader().find_link(name)


def test_counters_are_the_kernels(links: None) -> None:
    ip("address add 192.0.2.1/24 dev trunk0")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        for _ in range(50):
            sender.sendto(bytes(1000), ("192.0.2.255", 9))

    def agree() -> bool:
        links = {link.name: (link.index, link.stats) for link in KernelReader().read_links().values()}
        ours = links["trunk0"][1]
        (theirs,) = told("-statistics", "link", "show", "trunk0")
        tx, rx = theirs["stats64"]["tx"], theirs["stats64"]["rx"]
        assert ours.tx_bytes > 50_000
        return KernelReader().read_statistics() == links and (
            (ours.tx_bytes, ours.tx_packets, ours.rx_bytes, ours.rx_packets)
            == (tx["bytes"], tx["packets"], rx["bytes"], rx["packets"])
        )

    # The kernel itself may send between the readings.
    wait_for("the same counters twice", agree)
    assert KernelReader().read_statistics().keys() == {"lo", "trunk0", "far0"}


def test_counters_whose_devices_cannot_be_named_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr("fcntl.ioctl", refused)
    with pytest.raises(KernelError, match="cannot read the counters: Cannot allocate memory"):
        KernelReader().read_statistics()


@pytest.mark.skipif(
    not can(
        "ip link add v type veth peer name w",
        "ip link add link v name v.5 type vlan id 5",
        "ip link add x type vrf table 9",
    ),
    reason="the kernel has no VLANs or no VRFs",
)
def test_vlans_have_parent_protocol_and_id_and_links_of_a_vrf_have_it_as_master(links: None) -> None:
    ip(
        "link add link trunk0 name trunk0.300 type vlan id 300",
        "link add link trunk0 name outer type vlan proto 802.1ad id 50",
        "link add link outer name inner type vlan id 7",
        "link add cgnat type vrf table 100",
        "link set trunk0 master cgnat",
    )
    trunk, single, outer, inner = map(KernelReader().find_link, ("trunk0", "trunk0.300", "outer", "inner"))
    assert (single.parent, outer.parent, inner.parent) == (trunk.index, trunk.index, outer.index)
    assert single.vlan == VlanTag(VlanProtocol.DOT1Q, 300)
    assert outer.vlan == VlanTag(VlanProtocol.DOT1AD, 50)
    assert inner.vlan == VlanTag(VlanProtocol.DOT1Q, 7)
    assert trunk.master == KernelReader().find_link("cgnat").index


def test_addresses_are_those_of_iproute2(links: None) -> None:
    ip(
        "address add 192.0.2.1/24 dev trunk0",
        "address add 100.64.0.1 peer 100.64.0.2 dev trunk0",
        "address add 2001:db8::1/64 dev far0",
    )

    def agree() -> bool:
        ours = {(each.ifindex, each.address, each.prefix_length) for each in KernelReader().read_addresses()}
        return ours == {
            (link["ifindex"], each["local"], each["prefixlen"])
            for link in told("address")
            for each in link["addr_info"]
        }

    # The kernel adds link-local addresses a moment later.
    wait_for("the same addresses twice", agree)


def test_routes_are_those_of_iproute2(links: None) -> None:
    ip(
        "address add 192.0.2.1/24 dev trunk0",
        "address add 2001:db8::1/64 dev far0 nodad",
        "route add 198.51.100.0/24 via 192.0.2.2 metric 7 proto static src 192.0.2.1",
        "route add blackhole 203.0.113.0/24 table 100 proto bgp",
        "route add default via 2001:db8::2",
        "route add 100.64.0.1 dev trunk0 table 70000",
        "route add 192.88.99.0/24 nexthop via 192.0.2.2 nexthop via 192.0.2.3",
    )
    names = {link.index: link.name for link in KernelReader().read_links().values()}

    def agree() -> bool:
        ours = {
            (
                route.destination,
                tuple((hop.gateway, names[hop.ifindex or 0]) for hop in route.next_hops),
                *(route.protocol, route.type, route.metric, route.source),
            )
            for route in KernelReader().read_routes((254, 255, 100, 70000))
        }
        return ours == {
            (
                destination(one["dst"], family),
                tuple((hop.get("gateway"), hop["dev"]) for hop in one.get("nexthops", [one]) if "dev" in hop),
                *(one["protocol"], one.get("type", "unicast"), one.get("metric"), one.get("prefsrc")),
            )
            for family in ("-4", "-6")
            for one in told("-details", family, "route", "show", "table", "all")
        }

    # The kernel adds those of link-local addresses a moment later.
    wait_for("the same routes twice", agree)
    assert KernelReader().read_routes([4711]) == []


def destination(text: str, family: str) -> str:
    """The destination in full, as iproute2 does not write it."""
    if text == "default":
        return "0.0.0.0/0" if family == "-4" else "::/0"
    return text if "/" in text else text + ("/32" if family == "-4" else "/128")


def test_rules_have_priority_table_device_and_source_network() -> None:
    ip("rule add iif ppp7 table 70000 priority 1234", "rule add from 100.64.0.0/10 table 9 priority 1235")
    found = [rule for rule in KernelReader().read_rules() if rule.priority in (1234, 1235)]
    assert [(rule.priority, rule.table, rule.iif, rule.source) for rule in found] == [
        (1234, 70000, "ppp7", None),
        (1235, 9, None, "100.64.0.0/10"),
    ]


def test_entries_of_links_and_qdiscs_agree_with_their_records(links: None) -> None:
    ip("link set far0 down")
    tc(f"qdisc add dev trunk0 root {LIMIT}", "qdisc add dev trunk0 ingress")
    records = KernelReader().read_links().values()
    assert {(link.index, link.name, link.is_up, link.has_ethernet_header) for link in records} == set(
        KernelReader().read_link_entries().values()
    )
    shown = subprocess.run(["tc", "-j", "qdisc"], check=True, capture_output=True).stdout
    entries = {(entry.ifindex, entry.kind) for entry in KernelReader().read_qdisc_entries() if entry.handle}
    assert entries == {
        (KernelReader().find_link(each["dev"]).index, each["kind"])
        for each in json.loads(shown)
        if each["handle"] != "0:"
    }


def test_entries_of_routes_are_of_a_protocol_and_a_device(links: None) -> None:
    ip(
        "address add 192.0.2.1/24 dev trunk0",
        "address add 2001:db8::1/64 dev trunk0 nodad",
        "route add 198.51.100.7 dev trunk0 table 70000 proto 140",
        "route add 198.51.100.0/24 via 192.0.2.9 proto 140 src 192.0.2.1",
        "-6 route add 2001:db8:9::/56 via 2001:db8::9 proto 140",
        "route add 203.0.113.0/24 dev far0 proto 140",
    )
    reader, index = KernelReader(), KernelReader().find_link("trunk0").index
    via = FibEntry(254, bytes((198, 51, 100, 0)), 24, index, bytes((192, 0, 2, 9)), bytes((192, 0, 2, 1)))
    in_table = FibEntry(70000, bytes((198, 51, 100, 7)), 32, index, None, None)
    assert set(reader.read_fib_entries(socket.AF_INET, 140, ifindex=index)) == {via, in_table}
    assert reader.read_fib_entries(socket.AF_INET, 140, table=70000) == [in_table]
    assert reader.read_fib_entries(socket.AF_INET, 140, table=9) == []
    assert len(reader.read_fib_entries(socket.AF_INET, 140)) == 3
    (sixth,) = reader.read_fib_entries(socket.AF_INET6, 140)
    assert (sixth.table, sixth.length, sixth.ifindex) == (254, 56, index)
    assert sixth.gateway == socket.inet_pton(socket.AF_INET6, "2001:db8::9")


def test_many_routes_are_changed_in_one_call(links: None) -> None:
    index = KernelReader().find_link("trunk0").index
    routes = [FibEntry(70000, bytes((10, 0, *divmod(n, 256))), 32, index, None, None) for n in range(1000)]
    assert set(try_changes("add", [add_route(route) for route in routes])) == {0}
    assert try_changes("add", [add_route(routes[0]), replace_route(routes[0])]) == [errno.EEXIST, 0]
    assert set(KernelReader().read_fib_entries(socket.AF_INET, 140)) == set(routes)
    assert try_changes("remove", [delete_route(route) for route in routes] + [delete_route(routes[0])]) == [
        *[0] * 1000,
        errno.ESRCH,
    ]
    assert KernelReader().read_fib_entries(socket.AF_INET, 140) == []


def test_qdiscs_are_found_by_their_places(links: None) -> None:
    tc(f"qdisc add dev trunk0 root {LIMIT}", "qdisc add dev trunk0 ingress")
    reader, index = KernelReader(), KernelReader().find_link("trunk0").index
    root, ingress, leaf, of_nothing = reader.find_qdiscs(
        [(index, ROOT), (index, INGRESS), (index, 0x10001), (4711, ROOT)]
    )
    assert root is not None and (root.kind, root.handle) == ("tbf", 0x10000)
    assert root.bucket is not None and root.bucket.rate == 125_000
    assert ingress is not None and ingress.kind == "ingress"
    assert {
        QdiscEntry(index, ROOT, root.handle, "tbf"),
        QdiscEntry(index, INGRESS, ingress.handle, "ingress"),
    } <= set(reader.read_qdisc_entries())
    assert (leaf, of_nothing) == (None, None)


def test_replies_that_other_processes_send_are_left_out(links: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # Another process with CAP_NET_ADMIN may send to the socket. Here the test does, from its own.
    make = netlink.socket.socket

    def attacked(*arguments: int) -> Any:
        made = make(*arguments)
        made.bind((0, 0))
        with make(*arguments) as other:
            other.sendto(b"not a message", made.getsockname())
        return made

    expected = set(KernelReader().read_links())
    monkeypatch.setattr(netlink.socket, "socket", attacked)
    assert set(KernelReader().read_links()) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("link add new0 type veth peer name new1", {ChangedPart.LINKS}),
        ("link set trunk0 down", {ChangedPart.LINKS, ChangedPart.ROUTES}),
        ("address add 192.0.2.1/24 dev trunk0", {ChangedPart.ADDRESSES, ChangedPart.ROUTES}),
        ("address add 2001:db8::1/64 dev trunk0", {ChangedPart.ADDRESSES}),
        ("route add 198.51.100.0/24 dev trunk0", {ChangedPart.ROUTES}),
        ("route add 2001:db8:1::/48 dev trunk0", {ChangedPart.ROUTES}),
        ("rule add from 192.0.2.0/24 table 9", {ChangedPart.RULES}),
    ],
)
def test_a_change_is_a_trigger(links: None, change: str, expected: set[ChangedPart]) -> None:
    time.sleep(0.1)
    with Watcher() as watcher:
        ip(change)
        found: set[ChangedPart] = set()
        for changed in watcher:
            found |= changed
            if expected <= found:
                break


@pytest.mark.parametrize(
    "change", ["qdisc del dev trunk0 ingress", "filter del dev trunk0 parent ffff: prio 10"]
)
def test_a_change_of_a_qdisc_names_its_device(links: None, change: str) -> None:
    tc(f"qdisc add dev trunk0 root {LIMIT}", "qdisc add dev trunk0 ingress")
    tc("filter add dev trunk0 parent ffff: prio 10 protocol all u32 match u32 0 0 flowid 1:1")
    # The kernel may still tell of the links that came up, and of their addresses.
    with Watcher(frozenset({ChangedPart.QDISCS})) as watcher:
        tc(change)
        assert next(iter(watcher)) == {ChangedPart.QDISCS}
        assert watcher.take_shaped_indexes() == {KernelReader().find_link("trunk0").index}
        assert watcher.take_shaped_indexes() == set()


def test_only_what_is_wanted_is_told(links: None) -> None:
    with Watcher(frozenset({ChangedPart.LINKS})) as watcher:
        ip("address add 192.0.2.1/24 dev far0", "route add 198.51.100.0/24 dev trunk0")
        ip("link set trunk0 mtu 1400")
        assert ChangedPart.ADDRESSES not in next(iter(watcher))


@pytest.mark.parametrize("change", ["link set ifb-acc0 up", "link del ifb-acc0"])
def test_an_ifb_is_told_from_other_links(change: str) -> None:
    ip("link add ifb-acc0 type ifb")
    with Watcher(frozenset({ChangedPart.LINKS})) as watcher:
        ip(change)
        assert next(iter(watcher)) == {ChangedPart.IFBS}


def test_neither_a_question_of_our_own_nor_what_another_process_sends_is_a_change(links: None) -> None:
    tc(f"qdisc add dev trunk0 root {LIMIT}")
    index = KernelReader().find_link("trunk0").index
    with Watcher() as watcher:
        assert KernelReader().find_qdiscs([(index, ROOT)]) != [None]
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as other:
            other.sendto(b"not a message", watcher._event_socket.getsockname())
        # A change before the first wait is not lost.
        ip("link set trunk0 mtu 1400")
        changed = next(iter(watcher))
        assert ChangedPart.LINKS in changed
        assert ChangedPart.QDISCS not in changed
        assert watcher.take_shaped_indexes() == set()


def test_an_overflow_right_after_another_is_no_error(links: None) -> None:
    full = OSError(errno.ENOBUFS, "No buffer space available")
    with Watcher() as watcher:
        # It overflows, and overflows again while it is emptied.
        overflowing = Mock(wraps=watcher._event_socket)
        overflowing.recvfrom.side_effect = chain([full], repeat(DEFAULT))
        overflowing.recv.side_effect = chain([full], repeat(DEFAULT))
        watcher._event_socket = overflowing
        ip("link set trunk0 mtu 1400")
        changes = iter(watcher)
        assert next(changes) == ALL_PARTS
        ip("link set trunk0 mtu 1500")
        assert ChangedPart.LINKS in next(changes)


def test_another_thread_ends_the_wait() -> None:
    with Watcher() as watcher:
        thread = threading.Thread(target=lambda: list(watcher))
        thread.start()
        watcher.close()
        thread.join()


def test_another_network_namespace_cannot_raise_the_thresholds_of_neighbours() -> None:
    # The kernel has one table for all namespaces, whose thresholds `test_virtual_machine` raises.
    before = read_thresholds(socket.AF_INET)
    assert before is not None
    with pytest.raises(KernelError, match="cannot raise the thresholds of the neighbour tables") as refused:
        raise_thresholds(before[2] + 1)
    assert refused.value.code == errno.ENOENT
    assert read_thresholds(socket.AF_INET) == before
