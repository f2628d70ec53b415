"""Records of interfaces, VLANs and routes, as they go."""

from marshmallow import INCLUDE, validate
from marshmallow.fields import Dict, List, Nested

from gateway_api.base.fields import Text, Whole
from gateway_api.web.schemas.describe import says
from gateway_api.web.schemas.records import ADDRESS, CIDR, COUNT, MAC, Answer, Record

_UP_OR_DOWN = validate.OneOf(("up", "down"))
_VLAN_ID = validate.Range(1, 4094)


class InterfaceAddress(Record):
    family = Text(validate=validate.OneOf(("inet", "inet6")), metadata=says("Address family.", "inet"))
    address = Text(metadata=says("IPv4 or IPv6 address.", "10.255.0.1"))
    prefix_length = Whole(validate=validate.Range(0, 128), metadata=says("Bits of the network.", 30))


class InterfaceStats(Record):
    rx_bytes = Whole(validate=COUNT, metadata=says("Bytes received.", 58248942780))
    rx_packets = Whole(validate=COUNT, metadata=says("Packets received.", 145622356))
    rx_errors = Whole(validate=COUNT, metadata=says("Packets received with errors.", 0))
    rx_dropped = Whole(validate=COUNT, metadata=says("Packets received and dropped.", 0))
    tx_bytes = Whole(validate=COUNT, metadata=says("Bytes sent.", 291244714181))
    tx_packets = Whole(validate=COUNT, metadata=says("Packets sent.", 242703928))
    tx_errors = Whole(validate=COUNT, metadata=says("Packets that could not be sent.", 0))
    tx_dropped = Whole(validate=COUNT, metadata=says("Packets dropped instead of sent.", 0))


class Interface(Record):
    ifindex = Whole(metadata=says("The kernel's number of it.", 2))
    name = Text(metadata=says("Interface name.", "trunk0"))
    type = Text(
        validate=validate.OneOf(("trunk", "loopback", "vlan", "ppp", "ifb", "vrf", "other")),
        metadata=says("What it is.", "trunk"),
    )
    mac_address = Text(
        validate=MAC,
        allow_none=True,
        metadata=says("MAC address, null when it has none.", "06:00:00:00:00:02"),
    )
    mtu = Whole(metadata=says("Largest packet, bytes.", 1600))
    admin_state = Text(validate=_UP_OR_DOWN, metadata=says("What it is told to be.", "up"))
    oper_state = Text(metadata=says("What it is (RFC 2863).", "up"))
    parent = Text(allow_none=True, metadata=says("Interface that carries it, null when none does.", None))
    master = Text(allow_none=True, metadata=says("VRF or bridge that it belongs to, null when none.", None))
    addresses = List(Nested(InterfaceAddress), metadata={"description": "Its addresses."})
    stats = Nested(InterfaceStats)


class Vlan(Record):
    name = Text(metadata=says("Interface name.", "trunk0.1000"))
    trunk = Text(metadata=says("Trunk interface that carries it.", "trunk0"))
    vlan_id = Whole(validate=_VLAN_ID, metadata=says("VLAN id; the inner one of two.", 1000))
    outer_vlan_id = Whole(
        validate=_VLAN_ID, allow_none=True, metadata=says("Outer VLAN id, null without QinQ.", None)
    )
    protocol = Text(
        validate=validate.OneOf(("802.1Q", "802.1ad")), metadata=says("Protocol of the outer tag.", "802.1Q")
    )
    oper_state = Text(metadata=says("What it is (RFC 2863).", "up"))
    session_count = Whole(validate=COUNT, metadata=says("Sessions on it.", 27))
    created_at = Whole(validate=COUNT, metadata=says("When it was made, Unix epoch seconds.", 1795270980))


class DemuxVlan(Vlan):
    state = Text(
        validate=validate.OneOf(("active", "idle")),
        metadata=says("active with sessions, idle without.", "active"),
    )


def rate_limited_total() -> Whole:
    """Beside the list of those VLANs."""
    return Whole(required=True, validate=COUNT, metadata=says("New VLANs refused by the limits.", 0))


class Route(Record):
    """With the names of `ip -j route` (iproute2)."""

    dst = Text(validate=CIDR, metadata=says("Destination; 0.0.0.0/0 is the default route.", "100.64.0.5/32"))
    gateway = Text(
        validate=ADDRESS,
        allow_none=True,
        metadata=says("Next hop, null when there is none.", None, format="ipv4"),
    )
    dev = Text(metadata=says("Interface.", "ppp5"))
    protocol = Text(metadata=says("Who made it.", "kernel"))
    scope = Text(metadata=says("How far it reaches.", "link"))
    type = Text(metadata=says("Kind of route.", "unicast"))
    table = Text(metadata=says("Routing table.", "main"))
    metric = Whole(allow_none=True, metadata=says("Lower is preferred; null for the kernel's own.", None))
    prefsrc = Text(
        validate=ADDRESS,
        allow_none=True,
        metadata=says("Source address to prefer, null for any.", "100.64.0.1", format="ipv4"),
    )
    session_id = Whole(allow_none=True, metadata=says("Session that it belongs to, null for others.", 7))


_PEER = {"10.255.0.2": {"hostname": "core1", "remoteAs": 64513, "pfxRcd": 1, "state": "Established"}}


class FrrSummary(Answer):
    """FRR's own document, an object for each address family; empty without BGP."""

    class Meta:
        unknown = INCLUDE

    ipv4Unicast = Dict(
        keys=Text(),
        metadata=says(
            "IPv4 unicast, as `show bgp summary json` has it. Absent without BGP.",
            {"routerId": "10.255.0.1", "as": 64512, "peerCount": 1, "peers": _PEER},
        ),
    )
