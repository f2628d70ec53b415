"""VLANs on demand, with real frames on a trunk. The VLAN devices are in memory."""

import gc
import json
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway_contract.base.errors import GatewayApiError
from gateway_contract.configuration import Demux, RateLimits, VlanProfile, VlanRange
from gateway_contract.core.health import TriggerRefusal
from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.demux.admission import HOLD_OFF_SECONDS, AccessVlan, Occupancy
from gateway_core.gateways.linux.demux.demultiplexer import Demultiplexer
from gateway_core.gateways.linux.demux.listener import MAX_FRAME_BYTES, Listener, Trigger, attach_filter
from gateway_core.gateways.linux.threads import ThreadGroup
from tests.support.clocks import SteppedClock
from tests.support.first_frames import (
    DOT1AD,
    DOT1Q,
    FIRST,
    OTHER,
    add_trunk,
    dhcp,
    padi,
    renewal,
    send,
    tagged,
)
from tests.support.namespaces import can, ip, network_namespace
from tests.support.stack import PATIENCE, wait_for
from tests.support.workspaces import many_descriptors

pytestmark = pytest.mark.skipif(not can("true"), reason="needs to be root, for network namespaces")

ETH_P_ALL = 3
PPPOE = VlanProfile("pppoe", "pppoe", VlanRange(1, 4094), None, "pppoe_ethernet")
QINQ = VlanProfile("qinq", "dhcp", VlanRange(1, 4094), VlanRange(50, 59), "ipoe_qinq")
DEMUX = Demux(("trunk0",), (PPPOE, QINQ), RateLimits(1000, 1000, 16_000), idle_timeout=300)


@pytest.fixture(autouse=True)
def trunk() -> Iterator[None]:
    with network_namespace():
        add_trunk()
        yield


class Heard:
    """What listeners reported."""

    def __init__(self) -> None:
        self.triggers: list[Trigger] = []
        self.changes: list[str] = []
        self.thread_group = ThreadGroup()

    def hear(self, triggers: list[Trigger], dropped: int) -> None:
        self.triggers += triggers

    def tags(self) -> list[tuple[int | None, int]]:
        return [(trigger.outer_vlan_id, trigger.vlan_id) for trigger in self.triggers]


@pytest.fixture
def heard(trunk: None) -> Iterator[Heard]:
    """A listener on the trunk."""
    heard = Heard()
    listener = Listener("trunk0", heard.hear, heard.changes.append, heard.thread_group)
    wait_for("the listener", is_listening)
    yield heard
    listener.stop()
    assert heard.thread_group.failures.empty()


def is_listening() -> bool:
    with Path("/proc/thread-self/net/packet").open() as packets:
        next(packets)
        return any(line.split()[3] == "0003" for line in packets)


class Ports:
    """Devices and a source in memory. `refused` has the names that the kernel refuses, `unwanted` those that
    the source refuses. `at_release` and `at_serve` are called once."""

    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.devices: set[AccessVlan] = set()
        self.of_former_life: set[AccessVlan] = set()
        self.made: list[str] = []
        #: Seconds of the clock that it takes to make a device.
        self.takes = 0.0
        self.served: dict[str, SessionType] = {}
        self.released: list[str] = []
        self.at_release: Callable[[], object] = lambda: None
        self.at_serve: Callable[[], object] = lambda: None
        self.calls = 0
        #: What was released before the last call.
        self.before_serving: list[str] = []
        self.is_silent = self.is_unreadable = False
        self.refused, self.unwanted, self.occupied = set[str](), set[str](), set[str]()
        self.unknown: set[SessionType] = set()

    def find_vlans(self, trunk: str) -> Iterable[AccessVlan]:
        return [vlan for vlan in self._read(self.devices) if vlan.trunk == trunk]

    def find_former_vlans(self) -> Iterable[AccessVlan]:
        return self._read(self.of_former_life)

    def make(self, vlan: AccessVlan) -> None:
        if vlan.name in self.refused:
            raise GatewayApiError("no such thing")
        self.clock.now += self.takes
        self.made.append(vlan.name)
        self.devices.add(vlan)

    def remove(self, vlans: Sequence[AccessVlan]) -> None:
        if any(vlan.name in self.refused for vlan in vlans):
            raise GatewayApiError("it is busy")
        self._read(self.devices).difference_update(vlans)

    def serve(self, interfaces: Sequence[str], type: SessionType) -> None:
        self.calls += 1
        self.before_serving = self.released.copy()
        if self.is_silent or self.unwanted.intersection(interfaces):
            raise GatewayApiError("no reply")
        self.at_serve()
        self.at_serve = lambda: None
        self.served.update(dict.fromkeys(interfaces, type))

    def occupancy(self) -> Occupancy:
        return Occupancy(self.occupied, self.unknown)

    def release(self, interface: str, types: Collection[SessionType]) -> None:
        assert types == [self.served.get(interface, SessionType.PPPOE)]
        if self.is_silent:
            raise GatewayApiError("no reply")
        self.at_release()
        self.at_release = lambda: None
        self.released.append(interface)
        self.served.pop(interface, None)

    def _read(self, vlans: set[AccessVlan]) -> set[AccessVlan]:
        if self.is_unreadable:
            raise GatewayApiError("try again")
        return vlans


class Running:
    """A demultiplexer that runs, with a clock of the test."""

    def __init__(self, ports: Ports, demux: Demux, leased: Sequence[str]) -> None:
        self.clock = ports.clock
        self.demux = Demultiplexer(demux, ports, ports, ports.occupancy, self.clock, leased)
        self.thread_group = ThreadGroup()
        self.thread = self.thread_group.start(lambda: self.demux.run(self.thread_group))

    def rest(self) -> None:
        """Waits until it waits. At the end of a sweep it looks at the clock for the next one."""
        wait_for("its rest", lambda: self.demux._work._waiters)

    def advance(self, seconds: float) -> None:
        self.rest()
        self.clock.now += seconds
        # It looks at the clock when it wakes.
        self.demux.adopt("trunk0")


@pytest.fixture
def ports() -> Ports:
    return Ports()


def vlans(*ids: int) -> set[AccessVlan]:
    """With one tag."""
    return {AccessVlan("trunk0", None, id) for id in ids}


@contextmanager
def demultiplexer(ports: Ports, demux: Demux = DEMUX, leased: Sequence[str] = ()) -> Iterator[Running]:
    running = Running(ports, demux, leased)
    try:
        wait_for("the listener", is_listening)
        yield running
    finally:
        running.demux.stop()
        running.thread.join()
    assert running.thread_group.failures.empty()


@contextmanager
def adopted(ports: Ports, *ids: int) -> Iterator[Running]:
    """A demultiplexer that has adopted VLANs with one tag."""
    ports.devices = vlans(*ids)
    with demultiplexer(ports) as running:
        wait_for("the adoption", lambda: len(ports.served) == len(ids))
        running.rest()
        yield running


TAGS = {
    "802.1Q": ((DOT1Q, 300),),
    "802.1ad over 802.1Q": ((DOT1AD, 50), (DOT1Q, 7)),
    "802.1Q over 802.1Q": ((DOT1Q, 60), (DOT1Q, 8)),
}


def test_the_kernel_passes_first_messages_with_a_tag_and_nothing_else() -> None:
    wanted = [tagged(frame, *tags) for frame, _ in FIRST.values() for tags in TAGS.values()]
    other = [tagged(frame, *tags) for frame in OTHER.values() for tags in TAGS.values()]
    untagged = [frame for frame, _ in FIRST.values()]
    last = tagged(padi(), (DOT1Q, 4094))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as packets:
        attach_filter(packets)
        packets.setsockopt(263, 8, 1)
        packets.bind(("trunk0", ETH_P_ALL))
        send([*other, *untagged, *wanted, *other, *untagged, last])
        passed = []
        while not passed or passed[-1] != last:
            frame, ancillary, _, _ = packets.recvmsg(MAX_FRAME_BYTES, 100)
            tci, protocol = struct.unpack_from("=HH", ancillary[0][2], 16)
            passed.append(tagged(frame, (protocol, tci)))
    # Of DHCP, the kernel does not know the message type.
    assert passed == [*wanted, last]


def test_each_first_message_is_heard_with_its_tags_and_nothing_else(heard: Heard) -> None:
    shown = subprocess.run(["ip", "-d", "-j", "link", "show", "trunk0"], capture_output=True, check=True)
    # Groups and VLANs that nobody joined reach the trunk.
    assert json.loads(shown.stdout)[0]["promiscuity"] == 1
    send([tagged(padi(), (DOT1Q, 299))], device="trunk0")
    send([tagged(renewal(bytes((2, 0, 0, 0, 0, 2))), (DOT1Q, 299))])
    send(tagged(frame, *tags) for frame, _ in FIRST.values() for tags in TAGS.values())
    wait_for("the triggers", lambda: len(heard.triggers) >= len(FIRST) * len(TAGS))
    assert heard.tags() == [(None, 300), (50, 7), (60, 8)] * len(FIRST)
    assert [trigger.outer_protocol for trigger in heard.triggers[:3]] == ["802.1Q", "802.1ad", "802.1Q"]
    assert [trigger.type for trigger in heard.triggers[::3]] == [kind for _, kind in FIRST.values()]


@pytest.mark.parametrize(
    ("end", "back"),
    [("link set trunk0 down", lambda: ip("link set trunk0 up")), ("link del trunk0", add_trunk)],
    ids=["down", "deleted"],
)
def test_a_trunk_that_goes_down_or_disappears_is_heard_when_it_is_back(
    heard: Heard, end: str, back: Callable[[], None]
) -> None:
    ip(end)
    wait_for("the change", lambda: heard.changes)
    back()
    wait_for("both changes", lambda: len(heard.changes) >= 2)
    send([tagged(padi(), (DOT1Q, 300))])
    wait_for("the trigger", lambda: heard.tags() == [(None, 300)])
    assert set(heard.changes) == {"trunk0"}


def test_a_listener_beside_many_connections_leaves_no_thread_and_no_descriptor() -> None:
    # Those of other tests are collected at any time.
    gc.collect()
    thread_group, before = ThreadGroup(), len([*Path("/proc/self/fd").iterdir()])
    with many_descriptors():
        for trunk in ("trunk0", "missing0"):
            Listener(trunk, lambda *_: None, lambda _: None, thread_group).stop()
    assert thread_group.failures.empty()
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("demux")] == []
    assert len([*Path("/proc/self/fd").iterdir()]) <= before


def test_the_first_frame_of_a_client_has_its_vlan_made_and_served_once(ports: Ports) -> None:
    with demultiplexer(ports) as running:
        send([tagged(padi(), (DOT1Q, 300))] * 150)
        send([tagged(dhcp(), (DOT1AD, 50), (DOT1Q, 7))])
        wait_for("both", lambda: len(ports.served) == 2)
        assert running.demux.count_refusals().total() == 149
    assert ports.served == {"trunk0.300": SessionType.PPPOE, "trunk0.50.7": SessionType.DHCP}
    assert ports.devices == {AccessVlan("trunk0", None, 300), AccessVlan("trunk0", 50, 7)}
    assert ports.made == ["trunk0.300", "trunk0.50.7"]


def test_idle_vlans_are_removed_and_one_with_a_session_stays(ports: Ports) -> None:
    # More than one sweep removes.
    with adopted(ports, *range(300, 400)) as running:
        # It is told of several at once.
        assert ports.calls < 10
        ports.occupied = {"trunk0.300"}
        running.advance(300)
        wait_for("the end of the others", lambda: len(running.demux.list_vlans()) == 1)
        assert [managed.vlan.name for managed in running.demux.list_vlans()] == ["trunk0.300"]
    assert (ports.devices, ports.served) == (vlans(300), {"trunk0.300": SessionType.PPPOE})


def test_while_a_source_does_not_say_who_is_there_no_vlan_is_removed(ports: Ports) -> None:
    ports.unknown = {SessionType.PPPOE}
    with adopted(ports, 300) as running:
        running.advance(1000)
        send([tagged(padi(), (DOT1Q, 301))])
        wait_for("another", lambda: len(ports.served) == 2)
        ports.unknown = set()
        running.advance(5)
        wait_for("the end", lambda: ports.devices == vlans(301))


def test_what_exists_is_adopted_and_served_and_not_made(ports: Ports) -> None:
    ports.devices = {
        AccessVlan("trunk0", None, 300),
        AccessVlan("trunk0", 50, 7),
        AccessVlan("trunk0", 60, 7),
    }
    with demultiplexer(ports):
        wait_for("the adoption", lambda: len(ports.served) == 2)
        send([tagged(padi(), (DOT1Q, 300)), tagged(padi(), (DOT1Q, 301))])
        wait_for("a new one", lambda: len(ports.served) == 3)
    assert ports.served == {
        "trunk0.300": SessionType.PPPOE,
        "trunk0.50.7": SessionType.DHCP,
        "trunk0.301": SessionType.PPPOE,
    }
    assert ports.made == ["trunk0.301"]


def test_vlans_of_a_former_life_that_no_profile_has_are_released_and_removed(ports: Ports) -> None:
    kept, operators = AccessVlan("trunk0", None, 300), AccessVlan("trunk0", 60, 7)
    ports.of_former_life = {kept, AccessVlan("trunk9", None, 300), AccessVlan("trunk0", 60, 8)}
    ports.devices = {*ports.of_former_life, operators}
    ports.occupied = {"trunk9.300"}
    with demultiplexer(ports):
        wait_for("their end", lambda: ports.devices == {kept, operators})
    assert sorted(ports.released) == ["trunk0.60.8", "trunk9.300"]
    assert ports.served == {"trunk0.300": SessionType.PPPOE}


def test_a_device_that_is_refused_is_tried_again_later(ports: Ports, caplog: Any) -> None:
    ports.refused = {"trunk0.300"}
    with demultiplexer(ports) as running:
        send([tagged(padi(), (DOT1Q, 300))])
        wait_for("the failure", lambda: not running.demux.list_vlans() and caplog.messages)
        ports.refused = set()
        send([tagged(padi(), (DOT1Q, 300)), tagged(padi(), (DOT1Q, 301))])
        wait_for("another", lambda: "trunk0.301" in ports.served)
        assert ports.made == ["trunk0.301"]
        running.clock.now += HOLD_OFF_SECONDS
        send([tagged(padi(), (DOT1Q, 300))])
        wait_for("it", lambda: "trunk0.300" in ports.served)
    assert caplog.messages == ["cannot make VLAN trunk0.300, trying again: no such thing"]


def test_a_vlan_that_loses_its_device_is_released_before_it_is_made_again(ports: Ports) -> None:
    with adopted(ports, 300) as running:
        ports.is_silent = True
        ports.devices.clear()
        running.demux.adopt("trunk0")
        wait_for("the failure", lambda: running.demux.list_vlans()[0].state.name == "MADE")
        send([tagged(padi(), (DOT1Q, 300)), tagged(padi(), (DOT1Q, 301))])
        wait_for("another", lambda: ports.made == ["trunk0.301"])
        ports.is_silent = False
        running.advance(5)
        wait_for("its release", lambda: ports.released == ["trunk0.300"])

        def is_made_again() -> bool:
            send([tagged(padi(), (DOT1Q, 300))])
            return "trunk0.300" in ports.served

        wait_for("it again", is_made_again)
        assert ports.made == ["trunk0.301", "trunk0.300"]


def test_a_new_subscriber_does_not_wait_until_all_vlans_without_a_device_are_released(ports: Ports) -> None:
    with adopted(ports, *range(300, 340)) as running:
        # To release the first one takes until the new subscriber is heard.
        ports.at_release = lambda: wait_for("the trigger", lambda: len(running.demux.list_vlans()) == 41)
        ports.devices.clear()
        running.demux.adopt("trunk0")
        send([tagged(padi(), (DOT1Q, 500))])
        wait_for("its service", lambda: "trunk0.500" in ports.served)
        wait_for("the end of the others", lambda: len(running.demux.list_vlans()) == 1)
    assert len(ports.before_serving) <= 8
    assert (len(ports.released), list(ports.served)) == (40, ["trunk0.500"])


def test_a_new_subscriber_does_not_wait_until_a_source_is_told_of_all_vlans_that_it_has_not(
    ports: Ports,
) -> None:
    with adopted(ports, *range(300, 500)) as running:
        ports.served.clear()
        is_told = threading.Event()

        def wait() -> None:
            is_told.set()
            wait_for("the trigger", lambda: len(running.demux.list_vlans()) == 201)

        # To tell it of the first ones takes until the new subscriber is heard.
        ports.at_serve = wait
        running.demux.serve_again(SessionType.PPPOE)
        running.advance(5)
        assert is_told.wait(PATIENCE)
        send([tagged(padi(), (DOT1Q, 500))])
        wait_for("all of them", lambda: len(ports.served) == 201)
    assert list(ports.served).index("trunk0.500") <= 32


def test_a_trunk_that_comes_back_gets_its_vlans_again(ports: Ports) -> None:
    with adopted(ports, 300):
        ip("link del trunk0")
        # As the kernel does.
        ports.devices.clear()
        wait_for("the end of the socket", lambda: not is_listening())
        add_trunk()
        wait_for("the listener", is_listening)

        def is_made_again() -> bool:
            send([tagged(padi(), (DOT1Q, 300))])
            return bool(ports.devices)

        wait_for("its VLAN", is_made_again)


def test_a_source_and_a_kernel_that_fail_are_tried_again(ports: Ports, caplog: Any) -> None:
    ports.devices, ports.is_unreadable = vlans(300), True
    with demultiplexer(ports) as running:
        wait_for(
            "the failure",
            lambda: "cannot read the VLANs on trunk trunk0, trying again: try again" in caplog.messages,
        )
        running.rest()
        ports.is_unreadable = False
        running.advance(5)
        wait_for("the adoption", lambda: ports.served and not ports.made)
        running.rest()
        ports.is_silent = ports.is_unreadable = True
        running.advance(300)
        wait_for("a line", lambda: "cannot release VLAN trunk0.300, trying again: no reply" in caplog.text)
        ports.is_silent = ports.is_unreadable = False
        ports.refused = {"trunk0.300"}
        running.advance(5)
        wait_for("another", lambda: "cannot remove VLAN trunk0.300, trying again: it is busy" in caplog.text)
        ports.refused = set()
        running.advance(5)
        wait_for("its end", lambda: not ports.devices)


def test_idle_vlans_go_before_a_source_is_told_of_others(ports: Ports) -> None:
    # To tell it may take long, and a session may begin on a VLAN that is about to go.
    with adopted(ports, 300) as running:
        ports.devices |= vlans(301)
        running.advance(300)
        wait_for("the other", lambda: "trunk0.301" in ports.served)
    assert ports.before_serving == ["trunk0.300"]


def test_a_trunk_of_a_new_configuration_is_listened_to_and_a_removed_one_is_not(ports: Ports) -> None:
    add_trunk(1)
    with demultiplexer(ports) as running:
        running.demux.configure(Demux(("trunk1",), DEMUX.vlan_profiles, DEMUX.rate_limits, 300))

        def is_made() -> bool:
            send([tagged(padi(), (DOT1Q, 300))], "access0")
            send([tagged(padi(), (DOT1Q, 301))], "access1")
            return "trunk1.301" in ports.served

        wait_for("the new trunk", is_made)
        names = [thread.name for thread in threading.enumerate() if thread.name.startswith("demux")]
        assert names == ["demux trunk1"]
        assert "trunk0.300" not in ports.served


def test_a_flood_over_all_tags_makes_no_more_vlans_than_allowed_and_ends_with_it(ports: Ports) -> None:
    demux = Demux(("trunk0",), (PPPOE, QINQ), RateLimits(50, 100, 16_000), idle_timeout=300)
    flood = [tagged(padi(), (DOT1Q, 1 + number % 4094)) for number in range(20_000)]
    with demultiplexer(ports, demux) as running:
        send(flood)

        def is_heard() -> bool:
            running.clock.now += 1
            send([tagged(dhcp(), (DOT1AD, 50), (DOT1Q, 7))])
            return "trunk0.50.7" in ports.served

        before = running.clock.now
        wait_for("a new subscriber", is_heard)
        assert len(ports.devices) <= 100 + 50 * (running.clock.now - before)
        refused = running.demux.count_refusals()
        assert refused.total() + len(ports.made) >= 20_000
        assert refused[TriggerRefusal.OUTER_VLAN_RATE_LIMITED] > 0


def test_two_802_1q_tags_are_refused_with_a_reason(ports: Ports) -> None:
    with demultiplexer(ports) as running:
        send([tagged(dhcp(), (DOT1Q, 50), (DOT1Q, 7))] * 2 + [tagged(dhcp(), (DOT1Q, 60), (DOT1Q, 7))])
        send([tagged(padi(), (DOT1Q, 300))])
        wait_for("another", lambda: ports.served)
        assert running.demux.count_refusals() == {
            TriggerRefusal.DROPPED: 0,
            TriggerRefusal.OTHER_PROTOCOL: 2,
            TriggerRefusal.NO_PROFILE: 1,
        }


def test_the_vlans_of_leases_are_made_with_rests_and_a_new_subscriber_comes_first(ports: Ports) -> None:
    ports.takes = 0.1
    with demultiplexer(ports, leased=[f"trunk0.50.{id}" for id in range(1, 101)]) as running:
        wait_for("a part of them", lambda: len(ports.made) >= 32)
        send([tagged(padi(), (DOT1Q, 300))])
        wait_for("the new subscriber", lambda: "trunk0.300" in ports.served)
        before = len(ports.made)
        assert before < 100
        assert not running.demux.wait_until_restored(0)
        running.advance(4)
        wait_for("another part", lambda: len(ports.made) > before)


def test_the_vlans_of_leases_are_made_and_served_without_a_frame(ports: Ports) -> None:
    ports.devices = {AccessVlan("trunk0", 50, 1)}
    ports.refused = {"trunk0.50.2", "trunk0.50.3"}
    # Some of no profile, or of no trunk any more.
    others = ["trunk0.49.1", "trunk7.50.1", "eth0"]
    with demultiplexer(ports, leased=[*others, *(f"trunk0.50.{id}" for id in range(1, 101))]) as running:
        # The DHCP server does not wait for a trunk that comes late.
        assert running.demux.wait_until_restored(PATIENCE)
        assert ports.served.keys() >= {f"trunk0.50.{id}" for id in range(4, 101)}
        wait_for("the one that existed", lambda: "trunk0.50.1" in ports.served)
        assert len(ports.made) == 97
        ports.refused = set()
        running.advance(5)
        wait_for("the others", lambda: len(ports.served) == 100)
    assert set(ports.served.values()) == {SessionType.DHCP}


def test_vlans_that_a_source_takes_during_a_commit_are_told_to_it_again(ports: Ports) -> None:
    dhcp_vlan = AccessVlan("trunk0", 50, 7)
    with demultiplexer(ports) as running:
        # The commit has another address of the gateway: what was served with the former one is not enough.
        ports.at_serve = lambda: running.demux.serve_again(SessionType.DHCP)
        send([tagged(dhcp(), (DOT1AD, 50), (DOT1Q, 7))])
        wait_for("the source", lambda: dhcp_vlan.name in ports.served)
        running.rest()
        ports.served.clear()
        running.advance(5)
        wait_for("the source again", lambda: dhcp_vlan.name in ports.served)


def test_a_source_that_is_down_is_called_once_a_sweep_and_told_of_all_vlans_when_it_is_back(
    ports: Ports, caplog: Any
) -> None:
    ports.is_silent, ports.devices = True, vlans(*range(300, 310))
    with demultiplexer(ports) as running:
        for number in (1, 2):
            wait_for("a sweep", lambda number=number: ports.calls >= number)
            running.rest()
            assert (ports.calls, len(caplog.messages)) == (number, 1)
            ports.is_silent = number < 2
            running.advance(5)
        wait_for("all VLANs served", lambda: len(ports.served) == 10)


def test_a_vlan_that_the_source_refuses_does_not_keep_others_from_it(ports: Ports) -> None:
    ports.devices, ports.unwanted = vlans(*range(300, 310)), {"trunk0.300", "trunk0.304"}
    with demultiplexer(ports) as running:

        def are_served() -> bool:
            running.advance(5)
            return len(ports.served) == 8

        wait_for("all others", are_served)
