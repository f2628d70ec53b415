"""Addresses as the database has them: short, and equal in every spelling."""

import socket
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Network

_BITS = 128


def of_ipv4(address: str) -> int:
    return int.from_bytes(socket.inet_aton(address))


def ipv4_text(key: int) -> str:
    return str(IPv4Address(key))


def of_mac(address: str) -> str:
    """Twelve digits, from a MAC address with colons."""
    return address.replace(":", "")


def mac_text(key: str) -> str:
    return bytes.fromhex(key).hex(":")


def of_network(text: str) -> bytes:
    """The key of an IPv6 prefix or address: its length, then as many bytes as have a bit of it."""
    written, _, length = text.partition("/")
    return _key(int.from_bytes(socket.inet_pton(socket.AF_INET6, written)), int(length or _BITS))


def network_text(key: bytes) -> str:
    """An address, or a prefix with its length."""
    network = IPv6Network((key[1:].ljust(_BITS // 8, b"\0"), key[0]))
    return str(network.network_address if key[0] == _BITS else network)


def around(address: str) -> Iterator[bytes]:
    """The keys of the IPv6 networks that contain an address, and of the address."""
    number = int.from_bytes(socket.inet_pton(socket.AF_INET6, address))
    return (_key(number, length) for length in range(_BITS + 1))


def _key(number: int, length: int) -> bytes:
    masked = number >> _BITS - length << _BITS - length
    return bytes([length]) + masked.to_bytes(_BITS // 8)[: -(-length // 8)]
