"""The VLANs of subscribers: their devices, made and removed by netlink, and the sources that serve them."""

import errno
import threading
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address

from gateway_contract.base.vlan_names import outer_name
from gateway_contract.core.network import VlanProtocol
from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.daemons.source import Source, SourceRefused, SourceUnavailable
from gateway_core.gateways.linux.demux.admission import AccessVlan
from gateway_core.gateways.linux.kernel.links import (
    DEFAULT_GROUP,
    SUBSCRIBERS,
    Link,
    VlanTag,
    add_address,
    add_vlan,
    delete_group,
    enable_proxy_arp,
    set_down,
    set_group,
    set_up,
)
from gateway_core.gateways.linux.kernel.netlink import KernelError, NoDevice, change
from gateway_core.gateways.linux.kernel.reader import KernelReader

#: Nobody else uses groups from here on (linux/if_link.h, IFLA_GROUP): for links that are about to be removed.
_OUTGOING = 0x564C0000
_GONE = {errno.ENODEV, errno.EINVAL}


class VlanDevices:
    """Makes a device for one tag. For two, it makes one on a device with the outer tag. `vlan_names` has the
    names. Raises KernelError."""

    def __init__(self, reader: KernelReader) -> None:
        self._reader = reader
        # Held during changes: a VLAN that is made could need an outer device that goes.
        self._lock = threading.Lock()
        #: The index of the device that was set up, by trunk.
        self._raised: dict[str, int] = {}

    def existing(self, trunk: str) -> Iterator[AccessVlan]:
        """The VLANs on a trunk whose device has the name that `make` gives."""
        links = self._reader.read_links()
        for link in links.values():
            vlan = AccessVlan.named(link.name, (trunk,))
            if vlan is not None and _is_device_of(vlan, link, links):
                yield vlan

    def former(self) -> Iterator[AccessVlan]:
        """The VLANs that `make` made, on any trunk, also in an earlier life of the core. A device that may be
        of two trunks is a VLAN of each."""
        links = self._reader.read_links()
        for link in links.values():
            parent = _parent(link, links)
            if link.group == SUBSCRIBERS and parent is not None:
                for trunk in filter(None, (parent, _parent(parent, links))):
                    vlan = AccessVlan.named(link.name, (trunk.name,))
                    if vlan is not None and _is_device_of(vlan, link, links):
                        yield vlan

    def raise_trunk(self, trunk: str) -> bool:
        """Set a trunk up. False if it was up. Raises NoDevice if there is none."""
        link = self._reader.find_link(trunk)
        if not link.is_up:
            change(f"set {trunk} up", set_up(link.index))
        self._raised[trunk] = link.index
        return not link.is_up

    def lower_trunk(self, trunk: str) -> None:
        """Set a trunk down, as it was before `raise_trunk`. Raises NoDevice if there is none."""
        self._raised.pop(trunk, None)
        change(f"set {trunk} down", set_down(self._reader.find_link(trunk).index))

    def raise_new_trunk(self, trunk: str) -> None:
        """Set a trunk up if its device came after the last `raise_trunk`."""
        try:
            is_new = self._reader.find_link(trunk).index != self._raised.get(trunk)
        except NoDevice:
            return
        if is_new:
            self.raise_trunk(trunk)

    def make(self, vlan: AccessVlan, *, is_own: bool = True) -> None:
        """Make the device, on the outer one if there are two tags, and set them up. What exists stays. One
        that is not the gateway's own, for it takes the place of an operator's, is none of `former` later."""
        step, group = f"make {vlan.name}", SUBSCRIBERS if is_own else DEFAULT_GROUP
        with self._lock:
            parent = self._reader.find_link(vlan.trunk)
            if vlan.outer_vlan_id is not None:
                # An operator may have made it, with another name.
                tag = VlanTag(VlanProtocol.DOT1AD, vlan.outer_vlan_id)
                parent = self._device(step, outer_name(vlan.trunk, tag.id), parent, tag, group)
            made = self._device(step, vlan.name, parent, VlanTag(VlanProtocol.DOT1Q, vlan.vlan_id), group)
            if made.name != vlan.name:
                raise KernelError(step, f"{made.name} has its tags")

    def remove(self, vlans: Sequence[AccessVlan]) -> None:
        """Remove the devices that exist, and the outer ones that `make` made and that carry nothing then."""
        with self._lock:
            links, wanted = self._reader.read_links(), {vlan.name: vlan for vlan in vlans}
            going = {
                link.index: link
                for link in links.values()
                if link.name in wanted and _is_device_of(wanted[link.name], link, links)
            }
            trunks = {vlan.trunk for vlan in vlans if vlan.outer_vlan_id is not None}
            carrying = {link.parent for link in links.values() if link.index not in going}
            outer = [link for link in links.values() if _is_outer_device(link, links, trunks)]
            _remove_links([*going.values(), *(link for link in outer if link.index not in carrying)])

    def _device(self, step: str, name: str, parent: Link, tag: VlanTag, group: int) -> Link:
        """Return the device with a tag on a parent, up. It is made if there is none, with this name, in this
        group."""
        found = self._found(name, parent, tag)
        if found is None:
            if any(change(step, add_vlan(name, parent.index, tag, group), accept={errno.EEXIST})):
                return self._reader.find_link(name)
            with_tag = (link for link in self._reader.read_links().values() if _has_tag(link, parent, tag))
            found = next(with_tag, None)
        if found is None:
            raise KernelError(f"make {name}", "another device has the name")
        if not found.is_up:
            change(step, set_up(found.index))
        return found

    def _found(self, name: str, parent: Link, tag: VlanTag) -> Link | None:
        """By its name: it costs the same for any number of devices."""
        try:
            link = self._reader.find_link(name)
        except NoDevice:
            return None
        return link if _has_tag(link, parent, tag) else None


def _remove_links(links: Sequence[Link]) -> None:
    """Remove them together: each removal by itself makes the kernel wait for all processors."""
    if links:
        step = "remove VLANs"
        # Another one each time: after a failure, links of this one stay, and may be in use again later.
        group = _OUTGOING + links[0].index
        change(step, *(set_group(link.index, group) for link in links), accept=_GONE)
        change(step, delete_group(group), accept={errno.ENODEV})


def _has_tag(link: Link, parent: Link, tag: VlanTag) -> bool:
    return link.parent == parent.index and link.vlan == tag


def _is_outer_device(link: Link, links: Mapping[int, Link], trunks: Container[str]) -> bool:
    """Return True for one that `make` made: by its name."""
    tag, trunk = link.vlan, _parent(link, links)
    if tag is None or trunk is None or trunk.name not in trunks:
        return False
    return tag.protocol == VlanProtocol.DOT1AD and link.name == outer_name(trunk.name, tag.id)


def _is_device_of(vlan: AccessVlan, link: Link, links: Mapping[int, Link]) -> bool:
    """Return True for a link with the tags of a VLAN, on its trunk, which may be a VLAN device itself."""
    if link.vlan != VlanTag(VlanProtocol.DOT1Q, vlan.vlan_id):
        return False
    parent = _parent(link, links)
    if parent is not None and vlan.outer_vlan_id is not None:
        if parent.vlan != VlanTag(VlanProtocol.DOT1AD, vlan.outer_vlan_id):
            return False
        parent = _parent(parent, links)
    return parent is not None and parent.name == vlan.trunk


def _parent(link: Link, links: Mapping[int, Link]) -> Link | None:
    return None if link.parent is None else links.get(link.parent)


class VlanServing:
    """Hands each VLAN to the source of its session type. `addresses` returns the gateway's in the networks of
    the subscribers."""

    def __init__(
        self,
        sources: Mapping[SessionType, Source],
        reader: KernelReader,
        addresses: Callable[[], Iterable[IPv4Address]],
    ) -> None:
        self._sources = sources
        self._reader = reader
        self._addresses = addresses

    def serve(self, interfaces: Sequence[str], type: SessionType) -> None:
        """Serve as a Source does, and refuse a type without a source. Raises KernelError too."""
        source = self._sources.get(type)
        if source is None:
            raise SourceRefused(f"no source of this gateway serves {type}")
        if type is SessionType.DHCP:
            for interface in interfaces:
                index = self._reader.find_link(interface).index
                # A DHCP server offers addresses only where the gateway has its own. With /32, many links can.
                # One of a former `cgnat.source_range` stays until the VLAN goes: subscribers use it until
                # they renew.
                for address in self._addresses():
                    step = f"add {address} to {interface}"
                    change(step, add_address(index, address), accept={errno.EEXIST})
                # Subscribers have the netmask of the whole range, and ask for each other by ARP. The kernel
                # answers for those that have a session, and for no other address of the range.
                change(f"answer ARP on {interface}", enable_proxy_arp(index))
        source.serve(interfaces, type)

    def release(self, interface: str, types: Collection[SessionType]) -> None:
        """Release as a Source does, at the sources of these session types. The others, which may have served
        the interface by an earlier configuration, release it if they reply."""
        needed = {self._sources.get(type) for type in types}
        for source in dict.fromkeys(self._sources.values()):
            try:
                source.release(interface)
            except SourceUnavailable:
                if source in needed:
                    raise
