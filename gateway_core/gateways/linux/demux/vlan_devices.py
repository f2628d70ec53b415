"""Devices of the subscribers' VLANs, created and removed through netlink, and the service of VLANs by the
sources of sessions."""

import errno
import threading
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Address

from gateway_contract.base.vlan_names import make_outer_name
from gateway_contract.core.network import VlanProtocol
from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.daemons.source import Source, SourceRefused, SourceUnavailable
from gateway_core.gateways.linux.demux.admission import AccessVlan
from gateway_core.gateways.linux.kernel import links
from gateway_core.gateways.linux.kernel.links import SUBSCRIBER_GROUP, Link, VlanTag
from gateway_core.gateways.linux.kernel.netlink import KernelError, NoDevice, change
from gateway_core.gateways.linux.kernel.reader import KernelReader

#: First number of the groups (linux/if_link.h, IFLA_GROUP) of links that are about to be removed. No other
#: program uses these groups.
_OUTGOING_GROUP = 0x564C0000
_GONE_CODES = {errno.ENODEV, errno.EINVAL}


class VlanDevices:
    """VLAN devices of the subscribers, with the names that the module `vlan_names` makes. A VLAN with one tag
    has one device. A VLAN with two tags has an inner device on an outer device, which several VLANs share.
    All methods raise KernelError if the kernel refuses a query or a change."""

    def __init__(self, reader: KernelReader) -> None:
        self._reader = reader
        # Held during changes: a new VLAN could need an outer device that another thread removes.
        self._lock = threading.Lock()
        #: Interface index of each trunk at the time when it was set up, by the name of the trunk.
        self._index_of_trunk: dict[str, int] = {}

    def find_vlans(self, trunk: str) -> list[AccessVlan]:
        """Return the VLANs on a trunk that have a device with the gateway's name for the VLAN."""
        links_and_vlans = _identify_vlans(self._reader.read_links())
        return [vlan for _, vlan in links_and_vlans if vlan.trunk == trunk]

    def find_former_vlans(self) -> list[AccessVlan]:
        """Return the VLANs on all trunks whose devices were created by this core or by a core before a
        restart. A device whose name is valid for two trunks is returned as a VLAN of each trunk."""
        links_and_vlans = _identify_vlans(self._reader.read_links())
        return [vlan for link, vlan in links_and_vlans if link.group == SUBSCRIBER_GROUP]

    def set_trunk_up(self, trunk: str) -> bool:
        """Set a trunk up. Return False if the trunk was already up. Raises NoDevice if the trunk does not
        exist."""
        link = self._reader.find_link(trunk)
        if not link.is_up:
            change(f"set {trunk} up", links.set_up(link.index))
        self._index_of_trunk[trunk] = link.index
        return not link.is_up

    def set_trunk_down(self, trunk: str) -> None:
        """Set a trunk down again, to undo `set_trunk_up`. Raises NoDevice if the trunk does not exist."""
        self._index_of_trunk.pop(trunk, None)
        change(f"set {trunk} down", links.set_down(self._reader.find_link(trunk).index))

    def set_new_trunk_up(self, trunk: str) -> None:
        """Set a trunk up if the device of the trunk appeared after the last call of `set_trunk_up`. A missing
        trunk is ignored."""
        with suppress(NoDevice):
            if self._reader.find_link(trunk).index != self._index_of_trunk.get(trunk):
                self.set_trunk_up(trunk)

    def make(self, vlan: AccessVlan, *, is_own: bool = True) -> None:
        """Create the device of a VLAN, and for two tags the outer device, and set the devices up. Existing
        devices are kept. If `is_own` is False, the new device replaces a deleted device of the operator, and
        `find_former_vlans` does not return the VLAN."""
        step, group = f"make {vlan.name}", SUBSCRIBER_GROUP if is_own else links.DEFAULT_GROUP
        with self._lock:
            parent = self._reader.find_link(vlan.trunk)
            if vlan.outer_vlan_id is not None:
                # An operator may have made the outer device, with another name.
                tag = VlanTag(VlanProtocol.DOT1AD, vlan.outer_vlan_id)
                parent = self._ensure_device(step, make_outer_name(vlan.trunk, tag.id), parent, tag, group)
            device = self._ensure_device(
                step, vlan.name, parent, VlanTag(VlanProtocol.DOT1Q, vlan.vlan_id), group
            )
            if device.name != vlan.name:
                raise KernelError(step, f"{device.name} has its tags")

    def remove(self, vlans: Sequence[AccessVlan]) -> None:
        """Remove the devices of VLANs, and the gateway's outer devices that no longer carry a VLAN. Missing
        devices are ignored."""
        with self._lock:
            links_by_index, vlan_set = self._reader.read_links(), set(vlans)
            outgoing_links = {
                link.index: link for link, vlan in _identify_vlans(links_by_index) if vlan in vlan_set
            }
            trunks = {vlan.trunk for vlan in vlans if vlan.outer_vlan_id is not None}
            parents_in_use = {
                link.parent for link in links_by_index.values() if link.index not in outgoing_links
            }
            outer_links = [
                link for link in links_by_index.values() if _is_outer_device(link, links_by_index, trunks)
            ]
            _remove_links(
                [
                    *outgoing_links.values(),
                    *(link for link in outer_links if link.index not in parents_in_use),
                ]
            )

    def _ensure_device(self, step: str, name: str, parent: Link, tag: VlanTag, group: int) -> Link:
        """Return the VLAN device with this tag on a parent device, and set the VLAN device up. If no such
        device exists, create the device with this name and group. Raises KernelError if another device has
        the name."""
        # The search by name comes first: its cost does not depend on the number of devices.
        (device,) = self._reader.find_links([name])
        if device is None or not _has_tag(device, parent, tag):
            addition = links.add_vlan(name, parent.index, tag, group)
            if any(change(step, addition, accept={errno.EEXIST})):
                return self._reader.find_link(name)
            with_tag = (link for link in self._reader.read_links().values() if _has_tag(link, parent, tag))
            device = next(with_tag, None)
        if device is None:
            raise KernelError(f"make {name}", "another device has the name")
        if not device.is_up:
            change(step, links.set_up(device.index))
        return device


def _remove_links(outgoing_links: Sequence[Link]) -> None:
    """Remove links in one step, because the kernel waits for all processors at each removal."""
    if outgoing_links:
        step = "remove VLANs"
        # Each call uses another group: after a failure, links stay in the group, and may be used again later.
        group = _OUTGOING_GROUP + outgoing_links[0].index
        change(step, *(links.set_group(link.index, group) for link in outgoing_links), accept=_GONE_CODES)
        change(step, links.delete_group(group), accept={errno.ENODEV})


def _has_tag(link: Link, parent: Link, tag: VlanTag) -> bool:
    return link.parent == parent.index and link.vlan == tag


def _is_outer_device(link: Link, links_by_index: Mapping[int, Link], trunks: Container[str]) -> bool:
    """Return True if a link has the name and the tag of an outer device of the gateway on these trunks."""
    tag, trunk = link.vlan, links_by_index.get(link.parent or 0)
    if tag is None or trunk is None or trunk.name not in trunks:
        return False
    return tag.protocol == VlanProtocol.DOT1AD and link.name == make_outer_name(trunk.name, tag.id)


def _identify_vlans(links_by_index: Mapping[int, Link]) -> Iterator[tuple[Link, AccessVlan]]:
    """Yield the links that have the name and the tags of a VLAN, each link with this VLAN. A trunk may itself
    be a VLAN device. A link that is valid for two trunks is yielded with the VLAN of each trunk."""
    for link in links_by_index.values():
        parent = links_by_index.get(link.parent or 0)
        if link.vlan is None or link.vlan.protocol != VlanProtocol.DOT1Q or parent is None:
            continue
        vlans = [AccessVlan(parent.name, None, link.vlan.id)]
        trunk = links_by_index.get(parent.parent or 0)
        if trunk is not None and parent.vlan is not None and parent.vlan.protocol == VlanProtocol.DOT1AD:
            vlans.append(AccessVlan(trunk.name, parent.vlan.id, link.vlan.id))
        yield from ((link, vlan) for vlan in vlans if vlan.name == link.name)


class VlanService:
    """Service of VLANs by the sources of the session types. `addresses` returns the gateway's own addresses
    for subscribers."""

    def __init__(
        self,
        sources: Mapping[SessionType, Source],
        reader: KernelReader,
        addresses: Callable[[], Iterable[IPv4Address]],
    ) -> None:
        self._sources = sources
        self._reader = reader
        self._list_addresses = addresses

    def serve(self, interfaces: Sequence[str], type: SessionType) -> None:
        """Tell the source of a session type to serve VLANs. For DHCP, first add the gateway's addresses and
        proxy ARP to the interfaces. Raises SourceRefused if the source refuses a VLAN or no source serves the
        type, SourceUnavailable if the source does not reply, and KernelError if an interface cannot be
        changed."""
        source = self._sources.get(type)
        if source is None:
            raise SourceRefused(f"no source of this gateway serves {type}")
        if type is SessionType.DHCP:
            for interface in interfaces:
                index = self._reader.find_link(interface).index
                # A DHCP server offers addresses only on a link with an address of the gateway. With prefix
                # length 32, many links can have the same address. An address of a former
                # `cgnat.source_range` stays: subscribers use the address until they renew their lease.
                for address in self._list_addresses():
                    step = f"add {address} to {interface}"
                    change(step, links.add_address(index, address), accept={errno.EEXIST})
                # Subscribers have the netmask of the whole range, and send ARP requests for each other. The
                # kernel answers for addresses that have a session, and for no other address of the range.
                change(f"answer ARP on {interface}", links.enable_proxy_arp(index))
        source.serve(interfaces, type)

    def release(self, interface: str, types: Collection[SessionType]) -> None:
        """Tell all sources to release a VLAN. Raises SourceUnavailable if a source of these session types
        does not reply. The other sources, which may have served the VLAN under an earlier configuration, are
        not required to reply."""
        required_sources = {self._sources.get(type) for type in types}
        for source in dict.fromkeys(self._sources.values()):
            try:
                source.release(interface)
            except SourceUnavailable:
                if source in required_sources:
                    raise
