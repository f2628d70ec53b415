"""Packets of IPv4 and IPv6, from the IP header on."""

import socket
import struct
from ipaddress import ip_address


def summed(data: bytes, place: int, pseudo: bytes = b"") -> bytes:
    """The bytes with their checksum (RFC 1071) at a place, and a pseudo header in it."""
    padded = pseudo + data + bytes(len(data) % 2)
    total = sum(word for (word,) in struct.iter_unpack("!H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return data[:place] + struct.pack("!H", ~total & 0xFFFF) + data[place + 2 :]


def udp(source: str, destination: str, payload: bytes, source_port: int, port: int) -> bytes:
    head = struct.pack("!HHHH", source_port, port, 8 + len(payload), 0)
    return _packet(source, destination, socket.IPPROTO_UDP, head + payload, 6)


def icmp(source: str, destination: str, type: int, rest: bytes = bytes(4)) -> bytes:
    """A message of ICMP or ICMPv6, with what follows its checksum."""
    protocol = socket.IPPROTO_ICMPV6 if ":" in source else socket.IPPROTO_ICMP
    return _packet(source, destination, protocol, bytes((type, 0, 0, 0)) + rest, 2)


def _packet(source: str, destination: str, protocol: int, message: bytes, place: int) -> bytes:
    """A message whose checksum is at a place."""
    addresses = ip_address(source).packed + ip_address(destination).packed
    pseudo = addresses + struct.pack("!II", len(message), protocol)
    if ":" in source:
        head = struct.pack("!IHBB", 6 << 28, len(message), protocol, 255) + addresses
    else:
        # ICMP of IPv4 has none.
        pseudo = b"" if protocol == socket.IPPROTO_ICMP else pseudo
        length = 20 + len(message)
        head = summed(struct.pack("!BBHIBBH", 0x45, 0, length, 0, 64, protocol, 0) + addresses, 10)
    return head + summed(message, place, pseudo)
