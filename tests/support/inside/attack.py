"""An attack from the subscribers' side of the trunk: all that a line can send and must not, endlessly."""

import itertools
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

from tests.support.first_frames import DOT1Q, dhcp, icmpv6, padi, send, tagged
from tests.support.inside import homes
from tests.support.inside.routers import BEHIND_THE_APPLIANCE
from tests.support.packets import ipv4, ipv6

#: Frames in a second. The emulated processor, which also has to take them, makes few more.
_RATE = 1000
_VLAN_IDS = 4094
_BROADCAST = b"\xff" * 6
_OWN = bytes.fromhex("0200000000aa")
_GATEWAY = IPv4Address("100.64.0.1")
_UDP = struct.pack("!HHHH", 9, 9, 16, 0) + bytes(8)


def _arp(operation: int, sender: IPv4Address, target: IPv4Address) -> bytes:
    """Return an ARP message (RFC 826)."""
    head = struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation)
    return head + _OWN + sender.packed + bytes(6) + target.packed


def start(line: homes.Line, other: homes.Line, victim: str, seconds: int) -> "subprocess.Popen[bytes]":
    """Start the attack from a line without a session, with the MAC address of another line, and the address
    of a subscriber."""
    trunk = Path("/sys/class/net/trunk0/address").read_text().strip()
    words = [line.inner, trunk, homes.mac_of(other), victim, BEHIND_THE_APPLIANCE, seconds]
    return subprocess.Popen(homes.at_home(sys.executable, "-m", __name__, *map(str, words)))


def frames(line: int, gateway: bytes, clone: bytes, victim: str, behind: str) -> Iterator[bytes]:
    """Yield the frames of the attack, without an end."""

    def packet(ethertype: int, payload: bytes, destination: bytes = gateway) -> bytes:
        return tagged(destination + _OWN + struct.pack("!H", ethertype) + payload, (DOT1Q, line))

    for number in itertools.count():
        tag, address = (DOT1Q, 1 + number % _VLAN_IDS), _GATEWAY + 1 + number % 1000
        yield tagged(padi(), tag)
        yield tagged(dhcp(), tag)
        # Sources that belong to nobody, and to another subscriber.
        yield packet(0x0800, ipv4("8.8.8.8", behind, _UDP))
        yield packet(0x0800, ipv4(victim, behind, _UDP))
        yield packet(0x86DD, ipv6("2001:db8::bad", "2001:db8:ffff::1", _UDP))
        # Fragments: one that says that more come, and one without a beginning.
        yield packet(0x0800, ipv4("8.8.8.8", behind, _UDP, part=0x2000))
        yield packet(0x0800, ipv4("8.8.8.8", behind, _UDP, part=100))
        # Each address is asked for, and the gateway's own is claimed.
        yield packet(0x0806, _arp(1, IPv4Address("100.64.9.9"), address), _BROADCAST)
        yield packet(0x0806, _arp(2, _GATEWAY, _GATEWAY), _BROADCAST)
        # A DHCP server and a router.
        yield tagged(dhcp(2, op=2, port=68), (DOT1Q, line))
        yield tagged(icmpv6(134), (DOT1Q, line))
        # The MAC address of another subscriber.
        yield tagged(padi(clone), (DOT1Q, line))


def paced(endless: Iterator[bytes], seconds: float) -> Iterator[bytes]:
    began = time.monotonic()
    for number, frame in enumerate(endless):
        now = time.monotonic() - began
        if now > seconds:
            return
        if number / _RATE > now:
            time.sleep(number / _RATE - now)
        yield frame


if __name__ == "__main__":
    number, gateway, clone, victim, behind, lasts = sys.argv[1:]
    macs = (bytes.fromhex(mac.replace(":", "")) for mac in (gateway, clone))
    send(paced(frames(int(number), *macs, victim, behind), float(lasts)), "cpe0")
