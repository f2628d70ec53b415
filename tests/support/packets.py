"""Packets of IPv4 and IPv6, from the IP header on, and messages of DHCP."""

import socket
import struct
from ipaddress import ip_address


def summed(data: bytes, place: int, pseudo: bytes = b"") -> bytes:
    """Return the bytes with their checksum (RFC 1071) at a place. The checksum includes a pseudo header."""
    padded = pseudo + data + bytes(len(data) % 2)
    total = sum(word for (word,) in struct.iter_unpack("!H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return data[:place] + struct.pack("!H", ~total & 0xFFFF) + data[place + 2 :]


def _addresses(source: str, destination: str) -> bytes:
    return ip_address(source).packed + ip_address(destination).packed


def ipv4(
    source: str, destination: str, payload: bytes, protocol: int = 17, *,
    ttl: int = 64, options: bytes = b"", part: int = 0,
) -> bytes:  # fmt: skip
    """Return an IPv4 packet (RFC 791). `part` has the flags and the offset of a fragment."""
    head_length = 20 + len(options)
    head = struct.pack(
        "!BBHHHBBH", 0x40 + head_length // 4, 0, head_length + len(payload), 7, part, ttl, protocol, 0
    )
    return summed(head + _addresses(source, destination) + options, 10) + payload


def ipv6(
    source: str, destination: str, payload: bytes, next_header: int = 17, *, hop_limit: int = 64
) -> bytes:
    """Return an IPv6 packet (RFC 8200)."""
    head = struct.pack("!IHBB", 6 << 28, len(payload), next_header, hop_limit)
    return head + _addresses(source, destination) + payload


def udp(source: str, destination: str, payload: bytes, source_port: int, port: int) -> bytes:
    head = struct.pack("!HHHH", source_port, port, 8 + len(payload), 0)
    return with_checksum(source, destination, socket.IPPROTO_UDP, head + payload, 6)


def icmp(source: str, destination: str, type: int, rest: bytes = bytes(4)) -> bytes:
    """Return a message of ICMP or ICMPv6, with `rest` after its checksum."""
    protocol = socket.IPPROTO_ICMPV6 if ":" in source else socket.IPPROTO_ICMP
    return with_checksum(source, destination, protocol, bytes((type, 0, 0, 0)) + rest, 2)


def with_checksum(source: str, destination: str, protocol: int, message: bytes, place: int) -> bytes:
    """Return a packet with a message whose checksum is at a place."""
    # ICMP of IPv4 has none.
    has_pseudo = protocol != socket.IPPROTO_ICMP
    head = _addresses(source, destination) + struct.pack("!II", len(message), protocol)
    message = summed(message, place, head if has_pseudo else b"")
    if ":" in source:
        return ipv6(source, destination, message, protocol, hop_limit=255)
    return ipv4(source, destination, message, protocol)


def dhcp(
    type: int, transaction: int, hardware: bytes, options: bytes = b"", *,
    hardware_type: int = 1, flags: int = 0, client: str = "0.0.0.0", relay: str = "0.0.0.0",
) -> bytes:  # fmt: skip
    """Return a client's DHCP message (RFC 2131 section 2)."""
    head = struct.pack("!BBBBIHH", 1, hardware_type, len(hardware), 0, transaction, 0, flags)
    addresses = socket.inet_aton(client) + bytes(8) + socket.inet_aton(relay)
    message = (head + addresses + hardware).ljust(236, b"\0") + b"\x63\x82\x53\x63"
    return message + bytes((53, 1, type)) + options + b"\xff"
