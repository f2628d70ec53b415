"""The links of the machine as a list of interfaces."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import attrgetter

from gateway_api.core.gateways.linux.demux.admission import AccessVlan
from gateway_api.core.gateways.linux.kernel.links import Link
from gateway_api.core.gateways.linux.kernel.reader import KernelReader
from gateway_api.core.records.paging import Chained, Key, Rows, Sorted
from gateway_api.core.sessions.session import Session
from gateway_api.wire.core.network import Interface, InterfaceAddress, InterfaceType

_TYPES = {
    "vlan": InterfaceType.VLAN, "ppp": InterfaceType.PPP, "ifb": InterfaceType.IFB, "vrf": InterfaceType.VRF,
}  # fmt: skip
_LOOPBACK = "lo"


class Links:
    """All links with their addresses, of one moment. Raises KernelError."""

    def __init__(self, reader: KernelReader) -> None:
        self._links = reader.links()
        self._by_name = {link.name: link for link in self._links.values()}
        self._addresses: dict[int, list[InterfaceAddress]] = defaultdict(list)
        for address in reader.addresses():
            shown = InterfaceAddress(address.family, address.address, address.prefix_length)
            self._addresses[address.ifindex].append(shown)

    def named(self, name: str) -> Link | None:
        return self._by_name.get(name)

    def names(self) -> dict[int, str]:
        """By index."""
        return {link.index: link.name for link in self._links.values()}

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def rows(
        self, trunks: Collection[str], vlans: Sequence[AccessVlan], sessions: Collection[Session]
    ) -> Rows:
        """Interface: those of no VLAN and no session, then VLANs, then devices and IFBs of sessions by id."""
        carried = {vlan.name for vlan in vlans}
        # A DHCP session may have no device but its VLAN, on which there may be others.
        with_device = [each for each in sessions if each.interface != each.access_interface]
        own = self._holders(attrgetter("interface"), with_device)
        shaped = self._holders(attrgetter("ifb_device"), sessions)
        carried.update(each.interface for each in own)
        carried.update(each.ifb_device for each in shaped)
        fixed = [link for _, link in sorted(self._links.items()) if link.name not in carried]
        present = sorted((vlan for vlan in vlans if vlan.name in self), key=vlan_key)
        return Chained(
            Sorted(fixed, lambda link: (0, link.index), lambda link: self._interface(link, trunks)),
            Sorted(present, lambda vlan: (1, *vlan_key(vlan)), lambda vlan: self._named(vlan.name)),
            Sorted(own, lambda session: (2, session.id), self._of_session),
            Sorted(shaped, lambda session: (3, session.id), lambda session: self._named(session.ifb_device)),
        )

    def _holders(self, device: Callable[[Session], str], sessions: Iterable[Session]) -> list[Session]:
        """The sessions with a device that there is, by id. Of several with one, the newest."""
        newest = {name: each for each in sessions if (name := device(each)) in self}
        return sorted(newest.values(), key=attrgetter("id"))

    def _named(self, name: str) -> Interface:
        return self._interface(self._by_name[name], ())

    def _of_session(self, session: Session) -> Interface:
        return self._interface(self._by_name[session.interface], (), session.access_interface)

    def _interface(self, link: Link, trunks: Collection[str], carrier: str | None = None) -> Interface:
        """`carrier` is what carries a link of which the kernel does not know that: ppp."""
        return Interface(
            ifindex=link.index,
            name=link.name,
            type=_type(link, trunks),
            mac_address=link.mac_address,
            mtu=link.mtu,
            admin_state=link.admin_state,
            oper_state=link.oper_state,
            parent=self._name_of(link.parent) or carrier,
            master=self._name_of(link.master),
            addresses=tuple(self._addresses.get(link.index, ())),
            stats=link.stats,
        )

    def _name_of(self, index: int | None) -> str | None:
        link = None if index is None else self._links.get(index)
        return None if link is None else link.name


def vlan_key(vlan: AccessVlan) -> Key:
    """The key of a VLAN in a list: by trunk and tags, those with one tag first."""
    return vlan.trunk, vlan.outer_vlan_id or 0, vlan.vlan_id


def _type(link: Link, trunks: Collection[str]) -> InterfaceType:
    if link.name in trunks:
        return InterfaceType.TRUNK
    if link.name == _LOOPBACK:
        return InterfaceType.LOOPBACK
    return _TYPES.get(link.kind or "", InterfaceType.OTHER)
