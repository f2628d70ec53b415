"""The frames with which subscribers begin, what a packet socket makes of them, and a trunk to send them."""

import socket
import struct
from collections.abc import Iterable

from gateway_contract.core.sessions import SessionType
from tests.support.namespaces import ip

MAC = "02:00:00:00:00:2a"
_SOURCE = bytes.fromhex(MAC.replace(":", ""))
_BROADCAST = b"\xff" * 6
#: The gateway's, on each trunk.
TRUNK_MAC = "02:00:00:00:00:01"
_TRUNK = bytes.fromhex(TRUNK_MAC.replace(":", ""))
_LEASED = socket.inet_aton("100.64.0.42")
#: Options of a DHCPREQUEST (RFC 2132 sections 9.1 and 9.7): its address, and the server that offered it.
REQUESTED, OFFERED_BY = bytes((50, 4)) + _LEASED, bytes((54, 4, 192, 0, 2, 1))

DOT1Q, DOT1AD = 0x8100, 0x88A8
#: TP_STATUS_VLAN_VALID and TP_STATUS_VLAN_TPID_VALID, with TP_STATUS_USER.
TAGGED = 1 | 1 << 4 | 1 << 6


def tagged(frame: bytes, *tags: tuple[int, int]) -> bytes:
    """Return the frame with these tags, outermost first: each a protocol and a TCI."""
    return frame[:12] + b"".join(struct.pack("!HH", *tag) for tag in tags) + frame[12:]


def received(frame: bytes) -> tuple[bytes, bytes]:
    """Return a tagged frame as a packet socket receives it, and its tpacket_auxdata."""
    protocol, tci = struct.unpack_from("!HH", frame, 12)
    rest = frame[:12] + frame[16:]
    return rest, struct.pack("=IIIHHHH", TAGGED, len(rest), len(rest), 0, 14, tci, protocol)


def padi(source: bytes = _SOURCE, code: int = 0x09) -> bytes:
    """Return a PADI (RFC 2516 section 5.1) with an empty Service-Name and a Host-Uniq."""
    tags = struct.pack("!HHHH4s", 0x0101, 0, 0x0103, 4, b"uniq")
    return _ethernet(_BROADCAST, source, 0x8863, struct.pack("!BBHH", 0x11, code, 0, len(tags)) + tags)


def dhcp(
    message_type: int = 1, *, port: int = 67, op: int = 1, ip_options: bytes = b"", fragment: int = 0,
    before: bytes = b"", after: bytes = b"", client: bytes = bytes(4), destination: bytes = _BROADCAST,
) -> bytes:  # fmt: skip
    """Return a DHCP message (RFC 2131). `before` and `after` are options around the message type."""
    options = before + bytes((53, 1, message_type)) + after + bytes((55, 2, 1, 3, 255))
    message = (struct.pack("!BBBB8x", op, 1, 6, 0) + client).ljust(28, b"\0") + _SOURCE
    message = message.ljust(236, b"\0") + b"\x63\x82\x53\x63" + options
    header = struct.pack("!BBHHHBBH4s4s", 0x45 + len(ip_options) // 4, 0, 0, 0, fragment, 64, 17, 0, b"", b"")
    udp = struct.pack("!HHHH", 68, port, 8 + len(message), 0)
    return _ethernet(destination, _SOURCE, 0x0800, header + ip_options + udp + message)


def renewal(destination: bytes = _TRUNK) -> bytes:
    """Return a DHCPREQUEST in the state RENEWING."""
    return dhcp(3, client=_LEASED, destination=destination)


def dhcpv6(message_type: int = 1) -> bytes:
    """Return a DHCPv6 message (RFC 8415 section 8)."""
    message = bytes((message_type, 1, 2, 3)) + struct.pack("!HHH", 8, 2, 0)
    udp = struct.pack("!HHHH", 546, 547, 8 + len(message), 0)
    return _ipv6("33:33:00:01:00:02", 17, udp + message)


def icmpv6(message_type: int = 133) -> bytes:
    """Return an ICMPv6 message (RFC 4861 section 4.1)."""
    return _ipv6("33:33:00:00:00:02", 58, struct.pack("!BBHI", message_type, 0, 0, 0))


def _ethernet(destination: bytes, source: bytes, ethertype: int, payload: bytes) -> bytes:
    """Return a frame of at least 60 bytes, as a network card pads it."""
    return (destination + source + struct.pack("!H", ethertype) + payload).ljust(60, b"\0")


def _ipv6(destination: str, next_header: int, payload: bytes) -> bytes:
    header = struct.pack("!IHBB16s16s", 6 << 28, len(payload), next_header, 255, b"", b"")
    return _ethernet(bytes.fromhex(destination.replace(":", "")), _SOURCE, 0x86DD, header + payload)


#: Each first message of a subscriber, by name, with the type of its session.
FIRST = {
    "PADI": (padi(), SessionType.PPPOE),
    "DHCPDISCOVER": (dhcp(), SessionType.DHCP),
    "DHCPDISCOVER with IP options": (dhcp(ip_options=b"\x94\x04\0\0"), SessionType.DHCP),
    "DHCPREQUEST in INIT-REBOOT": (dhcp(3, after=REQUESTED), SessionType.DHCP),
    "DHCPREQUEST in RENEWING": (renewal(), SessionType.DHCP),
    "DHCPREQUEST in REBINDING": (renewal(_BROADCAST), SessionType.DHCP),
    "DHCPv6 Solicit": (dhcpv6(), SessionType.DHCP),
    "DHCPv6 Request": (dhcpv6(3), SessionType.DHCP),
    "DHCPv6 Confirm": (dhcpv6(4), SessionType.DHCP),
    "DHCPv6 Renew": (dhcpv6(5), SessionType.DHCP),
    "DHCPv6 Rebind": (dhcpv6(6), SessionType.DHCP),
    "Router Solicitation": (icmpv6(), SessionType.DHCP),
}
#: Frames that are like them, but no first message.
OTHER = {
    "PADR": padi(code=0x19),
    "PADI to one host": _TRUNK + padi()[6:],
    "PPPoE session": padi()[:12] + b"\x88\x64" + padi()[14:],
    "DHCPACK to a client": dhcp(5, op=2, port=68),
    "a later fragment": dhcp(fragment=185),
    "DNS": dhcp(port=53),
    "DHCPv6 Advertise": dhcpv6(2),
    "DHCPv6 Release": dhcpv6(8),
    "DHCPv6 of no type": dhcpv6(0),
    "DHCPv6 Renew to one host": _TRUNK + dhcpv6(5)[6:],
    "Neighbour Solicitation": icmpv6(135),
    "ARP": _BROADCAST + _SOURCE + b"\x08\x06" + bytes(46),
    "nothing": _BROADCAST + _SOURCE + b"\x08\x00" + bytes(46),
}


def add_trunk(number: int = 0) -> None:
    """Add `trunkN` and its far end `accessN`, a veth pair that is up, to the caller's network namespace."""
    ip(
        f"link add trunk{number} address {TRUNK_MAC} type veth peer name access{number}",
        f"link set trunk{number} up",
        f"link set access{number} up",
    )


def send(frames: Iterable[bytes], device: str = "access0") -> None:
    """Send whole Ethernet frames."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as packets:
        packets.bind((device, 0))
        for frame in frames:
            packets.send(frame)
