"""The frames with which subscribers begin, and what a packet socket makes of them."""

import struct

from gateway_api.wire.core.sessions import SessionType

MAC = "02:00:00:00:00:2a"
_SOURCE = bytes.fromhex(MAC.replace(":", ""))
_BROADCAST = b"\xff" * 6

DOT1Q, DOT1AD = 0x8100, 0x88A8
#: TP_STATUS_VLAN_VALID and TP_STATUS_VLAN_TPID_VALID, with TP_STATUS_USER.
TAGGED = 1 | 1 << 4 | 1 << 6


def tagged(frame: bytes, *tags: tuple[int, int]) -> bytes:
    """The frame with these tags, outermost first: each a protocol and a TCI."""
    return frame[:12] + b"".join(struct.pack("!HH", *tag) for tag in tags) + frame[12:]


def received(frame: bytes) -> tuple[bytes, bytes]:
    """A tagged frame as a packet socket receives it, and its auxiliary data (struct tpacket_auxdata)."""
    protocol, tci = struct.unpack_from("!HH", frame, 12)
    rest = frame[:12] + frame[16:]
    return rest, struct.pack("=IIIHHHH", TAGGED, len(rest), len(rest), 0, 14, tci, protocol)


def padi(source: bytes = _SOURCE, code: int = 0x09) -> bytes:
    """RFC 2516 section 5.1, with an empty Service-Name and a Host-Uniq."""
    tags = struct.pack("!HHHH4s", 0x0101, 0, 0x0103, 4, b"uniq")
    return _ethernet(_BROADCAST, source, 0x8863, struct.pack("!BBHH", 0x11, code, 0, len(tags)) + tags)


def dhcp(
    message_type: int = 1, *, port: int = 67, op: int = 1, ip_options: bytes = b"", fragment: int = 0,
    before: bytes = b"",
) -> bytes:  # fmt: skip
    """RFC 2131 section 2. `before` are options in front of the message type."""
    options = before + bytes((53, 1, message_type, 55, 2, 1, 3, 255))
    message = struct.pack("!BBBB4x", op, 1, 6, 0).ljust(28, b"\0") + _SOURCE
    message = message.ljust(236, b"\0") + b"\x63\x82\x53\x63" + options
    header = struct.pack("!BBHHHBBH4s4s", 0x45 + len(ip_options) // 4, 0, 0, 0, fragment, 64, 17, 0, b"", b"")
    udp = struct.pack("!HHHH", 68, port, 8 + len(message), 0)
    return _ethernet(_BROADCAST, _SOURCE, 0x0800, header + ip_options + udp + message)


def dhcpv6(message_type: int = 1) -> bytes:
    """RFC 8415 section 8."""
    message = bytes((message_type, 1, 2, 3)) + struct.pack("!HHH", 8, 2, 0)
    udp = struct.pack("!HHHH", 546, 547, 8 + len(message), 0)
    return _ipv6("33:33:00:01:00:02", 17, udp + message)


def icmpv6(message_type: int = 133) -> bytes:
    """RFC 4861 section 4.1."""
    return _ipv6("33:33:00:00:00:02", 58, struct.pack("!BBHI", message_type, 0, 0, 0))


def _ethernet(destination: bytes, source: bytes, ethertype: int, payload: bytes) -> bytes:
    """At least 60 bytes, as a network card pads it."""
    return (destination + source + struct.pack("!H", ethertype) + payload).ljust(60, b"\0")


def _ipv6(destination: str, next_header: int, payload: bytes) -> bytes:
    header = struct.pack("!IHBB16s16s", 6 << 28, len(payload), next_header, 255, b"", b"")
    return _ethernet(bytes.fromhex(destination.replace(":", "")), _SOURCE, 0x86DD, header + payload)


#: Each first message of a subscriber, by name, with the type of its session.
FIRST = {
    "PADI": (padi(), SessionType.PPPOE),
    "DHCPDISCOVER": (dhcp(), SessionType.DHCP),
    "DHCPDISCOVER with IP options": (dhcp(ip_options=b"\x94\x04\0\0"), SessionType.DHCP),
    "DHCPv6 Solicit": (dhcpv6(), SessionType.DHCP),
    "Router Solicitation": (icmpv6(), SessionType.DHCP),
}
#: Frames that are like them, but no first message.
OTHER = {
    "PADR": padi(code=0x19),
    "PADI to one host": b"\x02" + padi()[1:],
    "PPPoE session": padi()[:12] + b"\x88\x64" + padi()[14:],
    "DHCPACK to a client": dhcp(5, op=2, port=68),
    "a later fragment": dhcp(fragment=185),
    "DNS": dhcp(port=53),
    "DHCPv6 Renew": dhcpv6(5),
    "Neighbour Solicitation": icmpv6(135),
    "ARP": _BROADCAST + _SOURCE + b"\x08\x06" + bytes(46),
    "nothing": _BROADCAST + _SOURCE + b"\x08\x00" + bytes(46),
}
