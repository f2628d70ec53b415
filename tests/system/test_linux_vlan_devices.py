"""The VLAN devices of subscribers, in the kernel."""

import subprocess
from collections.abc import Iterator

import pytest

from gateway_core.gateways.linux.demux.admission import AccessVlan
from gateway_core.gateways.linux.demux.vlan_devices import VlanDevices
from gateway_core.gateways.linux.kernel.netlink import KernelError, NoDevice
from gateway_core.gateways.linux.kernel.reader import KernelReader
from tests.support.namespaces import can, ip, network_namespace

TRUNK = "link add trunk0 type veth peer name access0"
SINGLE = AccessVlan("trunk0", None, 300)
DOUBLE = AccessVlan("trunk0", 50, 7)

pytestmark = pytest.mark.skipif(
    not can(f"ip {TRUNK}", "ip link add link trunk0 name v type vlan id 1"), reason="the kernel has no VLANs"
)


@pytest.fixture
def devices() -> Iterator[VlanDevices]:
    with network_namespace():
        ip(TRUNK, "link set trunk0 up", "link set access0 up")
        yield VlanDevices(KernelReader())


def shown(name: str) -> str:
    command = ["ip", "-d", "link", "show", name]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def names() -> set[str]:
    return {link.name for link in KernelReader().read_links().values()} - {"lo", "trunk0", "access0"}


def test_a_trunk_with_a_long_name_has_vlans_with_any_tags(devices: VlanDevices) -> None:
    ip("link set trunk0 down", "link set trunk0 name enp129s0f1np1", "link set enp129s0f1np1 up")
    vlan = AccessVlan("enp129s0f1np1", 4094, 4094)
    devices.make(vlan)
    devices.make(vlan)
    assert "f1np1.4094.4094@f1np1-4094" in shown("f1np1.4094.4094")
    assert set(devices.find_vlans("enp129s0f1np1")) == {vlan}
    devices.remove([vlan])
    assert names() == {"enp129s0f1np1"}


def existing(devices: VlanDevices) -> set[AccessVlan]:
    return set(devices.find_vlans("trunk0"))


def test_one_tag_is_a_device_on_the_trunk_and_two_are_802_1q_on_802_1ad(devices: VlanDevices) -> None:
    other, same = AccessVlan("trunk0", 50, 8), AccessVlan("trunk0", None, 50)
    for vlan in (SINGLE, DOUBLE, other, same):
        devices.make(vlan)
    assert "trunk0.300@trunk0" in shown("trunk0.300")
    assert "protocol 802.1Q id 300" in shown("trunk0.300")
    assert "trunk0.50.7@trunk0-50" in shown("trunk0.50.7")
    assert "protocol 802.1Q id 7" in shown("trunk0.50.7")
    assert "protocol 802.1ad id 50" in shown("trunk0-50")
    assert all(KernelReader().find_link(name).is_up for name in ("trunk0.300", "trunk0-50", "trunk0.50.7"))
    # Of VLANs of an earlier life, an operator's are none.
    ip("link add link trunk0 name trunk0.301 type vlan id 301")
    assert set(VlanDevices(KernelReader()).find_former_vlans()) == {SINGLE, DOUBLE, other, same}
    ip("link del trunk0.301")
    devices.remove([DOUBLE, SINGLE, same])
    assert names() == {"trunk0-50", "trunk0.50.8"}
    # The last one takes the outer device with it. What is gone already is no error.
    devices.remove([other, SINGLE, DOUBLE, AccessVlan("missing0", None, 1)])
    assert names() == set()


def test_what_exists_is_found_and_stays_and_is_set_up(devices: VlanDevices) -> None:
    devices.make(DOUBLE)
    ip("link add link trunk0 name trunk0.300 type vlan id 300")
    index = KernelReader().find_link("trunk0.300").index
    assert existing(devices) == {SINGLE, DOUBLE}
    for vlan in (SINGLE, DOUBLE):
        devices.make(vlan)
    assert KernelReader().find_link("trunk0.300").index == index
    assert KernelReader().find_link("trunk0.300").is_up


def test_an_outer_device_of_an_operator_is_used_and_stays(devices: VlanDevices) -> None:
    ip("link add link trunk0 name service50 type vlan proto 802.1ad id 50")
    devices.make(DOUBLE)
    assert existing(devices) == {DOUBLE}
    devices.remove([DOUBLE])
    assert names() == {"service50"}


def test_other_devices_with_the_tags_or_the_name_are_an_error_and_stay(devices: VlanDevices) -> None:
    ip("link add link trunk0 name customer type vlan id 300", "link add trunk0.301 type ifb")
    with pytest.raises(KernelError, match=r"cannot make trunk0\.300: customer has its tags"):
        devices.make(SINGLE)
    with pytest.raises(KernelError, match=r"cannot make trunk0\.301: another device has the name"):
        devices.make(AccessVlan("trunk0", None, 301))
    devices.remove([SINGLE, AccessVlan("trunk0", None, 301)])
    assert names() == {"customer", "trunk0.301"}


def test_a_trunk_that_is_missing_or_whose_name_is_too_long_is_an_error(devices: VlanDevices) -> None:
    assert list(devices.find_vlans("missing0")) == []
    with pytest.raises(NoDevice):
        devices.make(AccessVlan("missing0", None, 300))
    ip("link set trunk0 down", "link set trunk0 name trunk0-longname", "link set trunk0-longname up")
    with pytest.raises(KernelError, match=r"cannot make trunk0-longname\.300: Numerical result out of range"):
        devices.make(AccessVlan("trunk0-longname", None, 300))
