"""The interface records of the lab, as a Linux gateway would show them."""

from gateway_api.core.configuration.sections import Cgnat
from gateway_api.core.gateways.lab.traffic import LabSession, Traffic
from gateway_api.core.gateways.lab.vlans import ManagedVlan
from gateway_api.wire.core.network import (
    AddressFamily,
    AdminState,
    Interface,
    InterfaceAddress,
    InterfaceStats,
    InterfaceType,
)

LOOPBACK_IFINDEX = 1

_ETHERNET_MTU = 1500
#: Room for two VLAN tags and PPPoE around a subscriber's full packet.
_TRUNK_MTU = 1600
#: RFC 2516 section 7: PPPoE takes 8 bytes of the 1500.
_PPPOE_MTU = 1492


def loopback() -> Interface:
    return Interface(
        ifindex=LOOPBACK_IFINDEX,
        name="lo",
        type=InterfaceType.LOOPBACK,
        mac_address="00:00:00:00:00:00",
        mtu=65536,
        admin_state=AdminState.UP,
        oper_state="unknown",
        parent=None,
        master=None,
        addresses=(
            InterfaceAddress(AddressFamily.INET, "127.0.0.1", 8),
            InterfaceAddress(AddressFamily.INET6, "::1", 128),
        ),
        stats=InterfaceStats(),
    )


def trunk(ifindex: int, name: str, traffic: Traffic, now: float) -> Interface:
    return _up(ifindex, name, InterfaceType.TRUNK, _TRUNK_MTU, traffic.access_stats(now))


def uplink(
    ifindex: int,
    name: str,
    addresses: tuple[InterfaceAddress, ...],
    master: str | None,
    traffic: Traffic,
    now: float,
) -> Interface:
    stats = traffic.network_stats(now)
    return _up(ifindex, name, InterfaceType.OTHER, _ETHERNET_MTU, stats, master=master, addresses=addresses)


def vrf(ifindex: int, cgnat: Cgnat) -> Interface:
    return _up(ifindex, cgnat.vrf_name, InterfaceType.VRF, 65575, InterfaceStats())


def vlan(vlan: ManagedVlan, now: float) -> Interface:
    stats = vlan.traffic.access_stats(now)
    return _up(vlan.ifindex, vlan.line.name, InterfaceType.VLAN, _ETHERNET_MTU, stats, parent=vlan.line.trunk)


def session(session: LabSession, now: float) -> Interface:
    """The device of a session: ppp, or for DHCP one on top of the VLAN."""
    address = InterfaceAddress(AddressFamily.INET, session.gateway, 32)
    stats = session.traffic.access_stats(now)
    if not session.is_pppoe:
        return _up(
            session.ifindex, session.interface, InterfaceType.OTHER, _ETHERNET_MTU, stats,
            parent=session.access_interface, addresses=(address,),
        )  # fmt: skip
    return Interface(
        ifindex=session.ifindex,
        name=session.interface,
        type=InterfaceType.PPP,
        mac_address=None,
        mtu=_PPPOE_MTU,
        admin_state=AdminState.UP,
        # Linux reports this for a link without carrier detection.
        oper_state="unknown",
        parent=session.access_interface,
        master=None,
        addresses=(address,),
        stats=stats,
    )


def ifb(session: LabSession, now: float) -> Interface:
    """The device that shapes the upstream, which is redirected to it."""
    up = Traffic(session.traffic.up, Traffic.none(now).down)
    return _up(
        session.ifb_ifindex, session.ifb_device, InterfaceType.IFB, _ETHERNET_MTU, up.access_stats(now)
    )


def _up(
    ifindex: int,
    name: str,
    type: InterfaceType,
    mtu: int,
    stats: InterfaceStats,
    *,
    parent: str | None = None,
    master: str | None = None,
    addresses: tuple[InterfaceAddress, ...] = (),
) -> Interface:
    return Interface(
        ifindex=ifindex,
        name=name,
        type=type,
        # Locally administered, and different from those of the subscribers.
        mac_address=":".join(f"{byte:02x}" for byte in (6 << 40 | ifindex).to_bytes(6)),
        mtu=mtu,
        admin_state=AdminState.UP,
        oper_state="up",
        parent=parent,
        master=master,
        addresses=addresses,
        stats=stats,
    )
