"""`gateway-core` where the kernel has no VLANs: a VLAN is a veth pair with the name of the VLAN's device.

`python -m tests.support.veth_vlans PID ...`: the far ends `access.VLAN` are in the network of the process
PID. The rest are arguments of `gateway-core`.
"""

import fcntl
import socket
import struct
import sys
from collections.abc import Iterator, Sequence

from gateway_core.__main__ import main
from gateway_core.gateways.linux import assembly
from gateway_core.gateways.linux.demux.admission import AccessVlan
from gateway_core.gateways.linux.demux.vlan_devices import VlanDevices
from gateway_core.gateways.linux.kernel.reader import KernelReader
from tests.support.first_frames import TRUNK_MAC
from tests.support.namespaces import ip_batch, network_of

_FAR = sys.argv.pop(1)


class VethVlans(VlanDevices):
    def __init__(self, reader: KernelReader) -> None:
        super().__init__(reader)
        with network_of(int(_FAR)):
            self._far = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def find_vlans(self, trunk: str) -> Iterator[AccessVlan]:
        named = (AccessVlan.parse(link.name, (trunk,)) for link in KernelReader().read_links().values())
        return (vlan for vlan in named if vlan is not None)

    def make(self, vlan: AccessVlan) -> None:
        if vlan in self.find_vlans(vlan.trunk):
            return
        far = f"access.{vlan.vlan_id}"
        # With the address of the trunk, as a VLAN has it. By their group, all go in a moment.
        pair = f"link add {vlan.name} address {TRUNK_MAC} group 77 type veth peer name {far} netns {_FAR}"
        ip_batch([pair, f"link set {vlan.name} up"])
        # SIOCSIFFLAGS of netdevice(7), with IFF_UP. A process for each would take longer than all else.
        fcntl.ioctl(self._far, 0x8914, struct.pack("16sH22x", far.encode(), 1))

    def remove(self, vlans: Sequence[AccessVlan]) -> None:
        ip_batch([f"link del {vlan.name}" for vlan in vlans])


assembly.VlanDevices = VethVlans  # type: ignore[misc]
main()
