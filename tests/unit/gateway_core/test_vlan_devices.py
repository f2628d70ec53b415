"""The VLAN devices of subscribers in a kernel in memory: names that are rare, and removals that fail halfway.
tests/system has the real kernel."""

import errno
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from gateway_contract.core.network import VlanProtocol
from gateway_core.gateways.linux.demux.admission import AccessVlan
from gateway_core.gateways.linux.demux.vlan_devices import VlanDevices
from gateway_core.gateways.linux.kernel import links
from gateway_core.gateways.linux.kernel import netlink as nl
from gateway_core.gateways.linux.kernel import rtnetlink as rt
from gateway_core.gateways.linux.kernel.links import SUBSCRIBER_GROUP, Link, VlanTag
from gateway_core.gateways.linux.kernel.netlink import KernelChange, KernelError
from tests.support.links import KnownLinks, link

DOT1Q, DOT1AD = VlanProtocol.DOT1Q, VlanProtocol.DOT1AD
SINGLE = AccessVlan("trunk0", None, 300)
OTHER = AccessVlan("trunk0", None, 301)


class MemoryKernel(KnownLinks):
    """Makes VLAN devices, keeps links in groups, and removes a group. `removal` is called before that, for an
    error number."""

    def __init__(self, *found: Link) -> None:
        super().__init__(*found)
        self.groups: dict[int, int] = {}
        self.removal: Callable[[], int] = lambda: 0

    def make(self, step: str, changes: Sequence[KernelChange]) -> list[int]:
        return [self._make(*change) for change in changes]

    def _make(self, type: int, _: int, body: bytes) -> int:
        index = rt.IFINFOMSG.unpack_from(body)[2]
        group = nl.parse_u32(nl.split_attributes(body, rt.IFINFOMSG.size)[rt.IFLA_GROUP])
        assert group is not None
        if type == rt.RTM_NEWLINK:
            self.found.append(
                replace(links.parse_link(body), index=1 + max(each.index for each in self.found))
            )
            return 0
        if type == rt.RTM_SETLINK:
            self.groups[index] = group
            return 0
        assert type == rt.RTM_DELLINK
        if code := self.removal():
            return code
        left = [each for each in self.found if self.groups.get(each.index) != group]
        if len(left) == len(self.found):
            return errno.ENODEV
        self.found = left
        return 0

    def names(self) -> list[str]:
        return [each.name for each in self.found]


def vlan(index: int, name: str, parent: int, id: int, protocol: VlanProtocol = DOT1Q, **fields: Any) -> Link:
    return link(index, name, "vlan", parent=parent, vlan=VlanTag(protocol, id), **fields)


@pytest.fixture
def kernel() -> MemoryKernel:
    return MemoryKernel(link(1, "trunk0"), vlan(2, "trunk0.300", 1, 300), vlan(3, "trunk0.301", 1, 301))


@pytest.fixture
def devices(kernel: MemoryKernel, monkeypatch: pytest.MonkeyPatch) -> VlanDevices:
    monkeypatch.setattr(nl, "try_changes", kernel.make)
    return VlanDevices(kernel)


@pytest.mark.parametrize("protocol", [DOT1Q, DOT1AD])
def test_a_trunk_may_be_a_vlan_device_itself(
    kernel: MemoryKernel, devices: VlanDevices, protocol: VlanProtocol
) -> None:
    kernel.found = [
        link(1, "eth0"),
        vlan(2, "eth0.100", 1, 100, protocol),
        vlan(3, "eth0.100.7", 2, 7),
        vlan(4, "eth0.100-50", 2, 50, DOT1AD),
        vlan(5, "eth0.100.50.7", 4, 7),
    ]
    one, two = AccessVlan("eth0.100", None, 7), AccessVlan("eth0.100", 50, 7)
    assert list(devices.find_vlans("eth0.100")) == [one, two]
    devices.remove([one, two])
    assert kernel.names() == ["eth0", "eth0.100"]


@pytest.mark.parametrize(
    "other",
    [
        vlan(2, "trunk0.300", 1, 299),
        vlan(2, "trunk0.300", 1, 300, DOT1AD),
        vlan(2, "trunk0.300", 9, 300),
        link(2, "trunk0.300"),
    ],
)
def test_a_device_with_the_name_alone_is_no_vlan(
    kernel: MemoryKernel, devices: VlanDevices, other: Link
) -> None:
    kernel.found = [link(1, "trunk0"), link(9, "trunk1"), other]
    assert list(devices.find_vlans("trunk0")) == []
    devices.remove([SINGLE])
    assert kernel.names() == ["trunk0", "trunk1", "trunk0.300"]


def test_what_an_earlier_life_made_on_any_trunk_is_told_from_what_an_operator_made(
    kernel: MemoryKernel, devices: VlanDevices
) -> None:
    kernel.found = [
        link(1, "eth0"),
        vlan(2, "eth0.300", 1, 300, group=SUBSCRIBER_GROUP),
        vlan(3, "eth0.301", 1, 301),
        vlan(4, "eth0-50", 1, 50, DOT1AD, group=SUBSCRIBER_GROUP),
        vlan(5, "eth0.50.7", 4, 7, group=SUBSCRIBER_GROUP),
        link(6, "ifb-ppp0", "ifb", group=SUBSCRIBER_GROUP),
    ]
    assert list(devices.find_former_vlans()) == [AccessVlan("eth0", None, 300), AccessVlan("eth0", 50, 7)]


def test_a_vlan_that_is_made_again_for_an_operator_is_none_of_an_earlier_life(
    kernel: MemoryKernel, devices: VlanDevices
) -> None:
    own, operators = AccessVlan("trunk0", 50, 7), AccessVlan("trunk0", 51, 7)
    devices.make(own)
    devices.make(operators, is_own=False)
    assert kernel.names()[-4:] == ["trunk0-50", "trunk0.50.7", "trunk0-51", "trunk0.51.7"]
    assert list(VlanDevices(kernel).find_former_vlans()) == [own]


def test_a_vlan_that_could_not_be_removed_does_not_go_with_another(
    kernel: MemoryKernel, devices: VlanDevices
) -> None:
    kernel.removal = lambda: errno.ENOMEM
    with pytest.raises(KernelError, match="cannot remove VLANs: Cannot allocate memory"):
        devices.remove([SINGLE])
    kernel.removal = lambda: 0
    # A session may be on the first one by now.
    devices.remove([OTHER])
    assert kernel.names() == ["trunk0", "trunk0.300"]


def test_a_vlan_that_goes_during_its_removal_is_no_error(kernel: MemoryKernel, devices: VlanDevices) -> None:
    def vanish() -> int:
        del kernel.found[1]
        return 0

    kernel.removal = vanish
    devices.remove([SINGLE])
    assert kernel.names() == ["trunk0", "trunk0.301"]
