"""Shapers of sessions in the kernel: made, changed, repaired and removed."""

import json
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import groupby
from pathlib import Path

import pytest

from gateway_contract.core.network import OVERHEAD_PROFILES
from gateway_core.gateways.linux.dataplane.shaping import Limits, Shaper
from gateway_core.gateways.linux.kernel import netlink as nl
from gateway_core.gateways.linux.kernel import rtnetlink as rt
from gateway_core.gateways.linux.kernel.links import parse_link_entry
from gateway_core.gateways.linux.kernel.netlink import MAX_DATAGRAM_BYTES, KernelError, NoDevice
from gateway_core.gateways.linux.kernel.qdiscs import ROOT
from gateway_core.gateways.linux.kernel.reader import KernelReader
from tests.support.namespaces import can, ip, ip_batch, neighbour, network_namespace, network_of, tc

HAS_FQ_CODEL = can("ip link add i type ifb", "tc qdisc add dev i root fq_codel")
needs_shaping = pytest.mark.skipif(
    not can(
        "ip link add v type veth peer name w",
        "ip link add i type ifb",
        "tc qdisc add dev v root tbf rate 1mbit burst 10kb limit 10kb",
        "tc qdisc add dev v ingress",
        "tc filter add dev v parent ffff: u32 match u32 0 0 action mirred egress redirect dev i",
    ),
    reason="needs to be root, and a kernel with veth, ifb, TBF, u32 and mirred",
)
pytestmark = needs_shaping

PROFILE = OVERHEAD_PROFILES["pppoe_ethernet"]
NAMES = ("acc0", "ifb-acc0")
TO_OTHER = "match u32 0 0 action mirred egress redirect dev other"
DOWN, UP = 20_000_000, 5_000_000
#: What shaping changed, downstream and upstream.
DOWNSTREAM, UPSTREAM, BOTH, NOTHING = (True, False), (False, True), (True, True), (False, False)
_TOLD = {rt.RTM_NEWQDISC: "qdisc", rt.RTM_DELQDISC: "no qdisc", rt.RTM_NEWTFILTER: "filter"}
with_fq_codel = pytest.mark.skipif(not HAS_FQ_CODEL, reason="the kernel has no fq_codel")


@pytest.fixture
def subscriber() -> Iterator[int]:
    """A subscriber in a namespace of its own, behind acc0; the pid of a process there."""
    with network_namespace(), neighbour() as pid:
        ip(f"link add acc0 type veth peer name cpe0 netns {pid}")
        ip("address add 192.0.2.1/24 dev acc0", "link set acc0 up")
        with network_of(pid):
            ip("address add 192.0.2.2/24 dev cpe0", "link set cpe0 up")
        yield pid


@pytest.fixture
def shaper(subscriber: int) -> Shaper:
    return Shaper(KernelReader())


def told(*arguments: str) -> str:
    """What tc says."""
    return subprocess.run(["tc", *arguments], check=True, capture_output=True, text=True).stdout


def shaped() -> set[str]:
    """Names of the devices with TBF or a redirect, and of the IFBs."""
    found = {qdisc["dev"] for qdisc in json.loads(told("-j", "qdisc")) if qdisc["kind"] in {"tbf", "ingress"}}
    return found | {
        link.name for link in KernelReader().read_links().values() if link.name.startswith("ifb-")
    }


def dropped() -> int:
    """Packets that limits and their queues have dropped."""
    return sum(qdisc["drops"] for qdisc in json.loads(told("-s", "-j", "qdisc")))


def queues() -> set[str]:
    """The kinds of the queues in TBF."""
    found = json.loads(told("-j", "qdisc", "show", "invisible"))
    return {qdisc["kind"] for qdisc in found if qdisc.get("parent") == "2:1"}


def limit(device: str) -> int | None:
    """Bits per second. None without a limit."""
    (link,) = KernelReader().find_links([device])
    (found,) = KernelReader().find_qdiscs([(link.index if link else 0, ROOT)])
    return 8 * found.bucket.rate if found is not None and found.bucket is not None else None


def limits() -> tuple[int | None, int | None]:
    down, up = map(limit, NAMES)
    return down, up


def remove_surplus(shaper: Shaper, *kept: str) -> set[str]:
    return set(
        shaper.remove_surplus(KernelReader().read_link_entries(), KernelReader().read_qdisc_entries(), kept)
    )


def shape(
    shaper: Shaper, down: int = DOWN, up: int = UP, names: tuple[str, str] = NAMES
) -> tuple[bool, bool]:
    """True for a direction in which something was missing or different."""
    link = KernelReader().find_link(names[0])
    ((downstream, upstream),) = shaper.shape([Limits(link, names[1], down, up, PROFILE)])
    for each in (downstream, upstream):
        if each.error is not None:
            raise each.error
    return downstream.is_changed, upstream.is_changed


def changes_told(act: Callable[[], object]) -> list[tuple[str, str]]:
    """What the kernel tells of links that go up and of traffic control, in order, each with its device."""
    changes: list[tuple[str, str]] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as events:
        events.bind((0, rt.RTMGRP_LINK | rt.RTMGRP_TC))
        act()
        events.setblocking(False)
        names = {link.ifindex: link.name for link in KernelReader().read_link_entries().values()}
        with suppress(BlockingIOError):
            while True:
                for type, _, sequence, body in nl.split_messages(events.recv(MAX_DATAGRAM_BYTES)):
                    if type == rt.RTM_NEWLINK and parse_link_entry(body).is_up:
                        changes.append(("up", parse_link_entry(body).name))
                    elif type in _TOLD and sequence != nl.QUERY_SEQUENCE:
                        changes.append((_TOLD[type], names[nl.unpack(rt.TCMSG, body)[1]]))
    return changes


def test_a_session_gets_a_limit_each_way(shaper: Shaper) -> None:
    changes = changes_told(lambda: shape(shaper))
    for device, rate in zip(NAMES, ("20Mbit", "5Mbit"), strict=True):
        shown = told("-d", "qdisc", "show", "dev", device, "root")
        assert "qdisc tbf 2: root" in shown
        assert f"rate {rate} " in shown and "mpu 84b" in shown
    assert limits() == (DOWN, UP)
    assert "Redirect to device ifb-acc0" in told("filter", "show", "dev", "acc0", "parent", "ffff:")
    # A veth's packets have the 14 bytes of the Ethernet header already, a ppp device's have none.
    assert f"overhead {PROFILE.overhead - 14} " in told("-d", "qdisc", "show", "dev", "acc0", "root")
    # Packets to an IFB that is down are lost: it gets its queues before it is up.
    of_ifb = [kind for kind, name in changes if name == "ifb-acc0"]
    assert (set(of_ifb[:-1]), of_ifb[-1]) == ({"qdisc"}, "up")
    assert changes[-1] == ("filter", "acc0")
    before = told("qdisc")
    assert shape(shaper) == NOTHING
    assert told("qdisc") == before


def test_an_ifb_has_no_ipv6_and_the_group_that_udev_leaves_alone(shaper: Shaper) -> None:
    shape(shaper)
    assert KernelReader().find_link("ifb-acc0").is_up
    # Each one's own routes would be siblings in one node of the tables.
    for file in ("if_inet6", "ipv6_route", "igmp6"):
        assert "ifb-acc0" not in Path("/proc/thread-self/net", file).read_text()
    shown = subprocess.run(["ip", "-j", "-d", "link", "show", "ifb-acc0"], capture_output=True, check=True)
    rules = (Path(__file__).parents[2] / "packaging/udev.rules").read_text()
    assert f'ATTR{{netdev_group}}!="{json.loads(shown.stdout)[0]["group"]}", GOTO' in rules


def test_many_sessions_get_one_kind_of_change_after_the_other(shaper: Shaper) -> None:
    # The first may have another queue tried.
    shape(shaper)
    ip_batch([each for n in range(3) for each in (f"link add line{n} type ifb", f"link set line{n} up")])
    links = [KernelReader().find_link(f"line{number}") for number in range(3)]
    limits = [Limits(link, f"ifb-{link.name}", DOWN, UP, PROFILE) for link in links]
    changes = [kind for kind, _ in changes_told(lambda: shaper.shape(limits))]
    # The queue that each of these devices has of the kernel goes with the first.
    kinds = [kind for kind, _ in groupby(changes) if kind != "no qdisc"]
    assert [kind for kind, _ in groupby(kinds)] == ["qdisc", "up", "qdisc", "filter"]


def test_new_rates_change_both_limits_in_place(shaper: Shaper) -> None:
    shape(shaper)
    before = queues()
    changes = changes_told(lambda: shape(shaper, 100_000_000, 40_000_000))
    assert changes == [("qdisc", "ifb-acc0"), ("qdisc", "acc0")]
    assert limits() == (100_000_000, 40_000_000)
    assert queues() == before


@pytest.mark.parametrize(
    ("damage", "repaired"),
    [
        ("tc qdisc del dev acc0 root", DOWNSTREAM),
        ("tc qdisc replace dev acc0 root handle 9: pfifo", DOWNSTREAM),
        ("tc qdisc del dev acc0 root; tc qdisc add dev acc0 root handle 2: pfifo", DOWNSTREAM),
        pytest.param("tc qdisc del dev acc0 parent 2:1", DOWNSTREAM, marks=with_fq_codel),
        ("tc qdisc change dev acc0 root handle 2: tbf rate 1gbit burst 1mb limit 1mb", DOWNSTREAM),
        ("tc qdisc del dev acc0 ingress", UPSTREAM),
        ("tc filter del dev acc0 parent ffff: prio 10", UPSTREAM),
        ("ip link del ifb-acc0", UPSTREAM),
        ("ip link set ifb-acc0 down", UPSTREAM),
        ("tc qdisc del dev ifb-acc0 root", UPSTREAM),
        pytest.param("tc qdisc del dev ifb-acc0 parent 2:1", UPSTREAM, marks=with_fq_codel),
    ],
)
def test_what_is_damaged_is_repaired_alone(shaper: Shaper, damage: str, repaired: tuple[bool, bool]) -> None:
    shape(shaper)
    subprocess.run(["sh", "-ec", damage], check=True)
    assert shape(shaper) == repaired
    assert shape(shaper) == NOTHING
    assert limits() == (DOWN, UP)


def test_a_redirect_to_a_wrong_device_is_put_right_and_filters_of_others_stay(shaper: Shaper) -> None:
    shape(shaper)
    ip("link add other type ifb")
    tc(
        "filter del dev acc0 parent ffff: prio 10",
        f"filter add dev acc0 parent ffff: prio 10 protocol all u32 {TO_OTHER}",
        "filter add dev acc0 parent ffff: prio 5 protocol ip u32 match u32 1 1 "
        "action mirred egress mirror dev other",
    )
    assert shape(shaper) == UPSTREAM
    assert "ifb-acc0" in told("filter", "show", "dev", "acc0", "parent", "ffff:")
    assert shape(shaper) == NOTHING
    shaper.stop_shaping(NAMES)
    assert "pref 5" in told("filter", "show", "dev", "acc0", "parent", "ffff:")


def test_any_rate_that_the_api_takes_is_set(shaper: Shaper) -> None:
    for rate in (1, 8001, 64_000, 1_500_000, 34_359_738_368, 400_000_000_000):
        shape(shaper, rate, rate)
        expected = max(rate // 8, 1000) * 8
        assert limits() == (expected, expected)
        assert shape(shaper, rate, rate) == NOTHING


def test_a_rate_of_zero_is_no_limit(shaper: Shaper) -> None:
    shape(shaper)
    shape(shaper, up=0)
    assert limits() == (DOWN, None)
    shape(shaper, down=0)
    assert limits() == (None, UP)
    shape(shaper, 0, 0)
    assert shaped() == set()


def test_the_ifb_of_a_device_that_is_gone_is_removed(shaper: Shaper) -> None:
    shape(shaper)
    ip("link del acc0", "link add ifb-acc1 type ifb")
    assert remove_surplus(shaper, "acc1", "ifb-acc1") == {"ifb-acc0"}
    assert shaped() == {"ifb-acc1"}


@pytest.mark.parametrize("by", ["unshape", "surplus", "surplus without an IFB"])
def test_nothing_is_left_of_a_session(shaper: Shaper, by: str) -> None:
    before = told("qdisc")
    shape(shaper)
    if by == "unshape":
        names = [(f"gone{number}", f"ifb-gone{number}") for number in range(200)]
        ip_batch([f"link add {ifb} type ifb" for _, ifb in names])
        for _ in range(2):
            shaper.stop_shaping(*names, NAMES)
    else:
        if by == "surplus without an IFB":
            ip("link del ifb-acc0")
        assert remove_surplus(shaper) == {"acc0"}
    assert told("qdisc") == before
    assert shaped() == set()
    with pytest.raises(NoDevice):
        KernelReader().find_link("ifb-acc0")


def test_what_others_made_is_not_left_over(shaper: Shaper) -> None:
    ip("link add other type ifb", "link add ifb-veth type veth peer name far")
    tc(
        "qdisc add dev acc0 root handle 1: htb default 10",
        "qdisc add dev acc0 ingress",
        f"filter add dev acc0 parent ffff: prio 10 protocol all u32 {TO_OTHER}",
    )

    def present() -> tuple[str, str]:
        # A packet of the kernel's own may be counted meanwhile.
        qdiscs = re.sub(r"direct_packets_stat \d+", "", told("qdisc"))
        return qdiscs, told("filter", "show", "dev", "acc0", "parent", "ffff:")

    before = present()
    assert remove_surplus(shaper) == set()
    assert present() == before
    shaper.stop_shaping(NAMES)
    assert "default 0x10" in told("qdisc", "show", "dev", "acc0")


def test_a_device_that_is_gone_or_a_name_that_cannot_be_an_ifb_is_an_error_of_its_own(shaper: Shaper) -> None:
    with pytest.raises(NoDevice):
        shape(shaper, names=("ppp7", "ifb-ppp7"))
    assert shaped() == set()
    for ifb in ("acc0", "ifb-trunk0.50.4000"):
        with pytest.raises(KernelError, match=ifb):
            shape(shaper, 0, UP, ("acc0", ifb))


def test_many_threads_may_shape_at_once(shaper: Shaper) -> None:
    ip_batch([f"link add line{number} type ifb" for number in range(20)])

    def work(number: int) -> None:
        for rate in (1_000_000, 2_000_000):
            shape(shaper, rate, rate, (f"line{number}", f"ifb-line{number}"))

    with ThreadPoolExecutor(20) as threads:
        list(threads.map(work, range(20)))
    assert (limit("line7"), limit("ifb-line7")) == (2_000_000, 2_000_000)


@with_fq_codel
def test_the_queue_is_fq_codel_with_little_memory(shaper: Shaper) -> None:
    shape(shaper)
    assert queues() == {"fq_codel"}
    shown = subprocess.run(["tc", "-j", "qdisc", "show"], capture_output=True, check=True)
    found = [each["options"] for each in json.loads(shown.stdout) if each["kind"] == "fq_codel"]
    assert [options["memory_limit"] for options in found] == [2 << 20] * 2


@pytest.mark.skipif(HAS_FQ_CODEL, reason="the kernel has fq_codel")
def test_without_fq_codel_the_queue_is_plain(shaper: Shaper) -> None:
    shape(shaper)
    assert queues() == {"bfifo"}
    assert shape(shaper) == NOTHING


def test_packets_pass_while_rates_change_and_keep_to_the_limit(shaper: Shaper, subscriber: int) -> None:
    shape(shaper)
    with network_of(subscriber):
        there = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with there, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
        there.bind(("192.0.2.2", 5000))
        for each in (there, here):
            each.settimeout(30)
        for change in range(20):
            # No more than the queues and the buffers hold, also if a busy machine lets them wait.
            for _ in range(10):
                here.sendto(bytes(1000), ("192.0.2.2", 5000))
            shape(shaper, DOWN + 10_000_000 * change, UP + 10_000_000 * change)
            for _ in range(10):
                packet, sender = there.recvfrom(2000)
                there.sendto(packet, sender)
            assert [len(here.recv(2000)) for _ in range(10)] == [1000] * 10
        # What is sent faster than the rate is dropped, both ways.
        shape(shaper, 1_000_000, 1_000_000)
        for sending, address in ((here, ("192.0.2.2", 5000)), (there, ("192.0.2.1", here.getsockname()[1]))):
            before = dropped()
            # Else the sender would wait for the queue: SO_SNDBUFFORCE of socket(7).
            sending.setsockopt(socket.SOL_SOCKET, 32, 16 << 20)
            for _ in range(3000):
                sending.sendto(bytes(1000), address)
            assert dropped() > before
