"""What a line with false sources makes the gateway send to others.

The line sends packets of each kind, with each address that is not its own as the source, or as the address in
a DHCP message to which the reply goes. The gateway has its packet filter, its routes and dnsmasq. Another
subscriber and a host upstream count the packets that reach them. The VLANs are veth pairs with the names of
VLANs.
"""

import itertools
import json
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from typing import Any

from gateway_contract.core.network import OVERHEAD_PROFILES
from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.linux.dataplane.firewall import Firewall
from gateway_core.gateways.linux.dataplane.plane import DataPlane, WantedSession
from gateway_core.gateways.linux.kernel.reader import KernelReader
from tests.support.dnsmasq import GATEWAY, running_dnsmasq
from tests.support.namespaces import inside, ip_batch, neighbour, network_of
from tests.support.packets import dhcp, icmp, ipv4, ipv6, summed, udp, with_checksum
from tests.support.stack import PATIENCE, wait_for

LINE, OTHER = 301, 302
_MACS = {LINE: "02:00:00:00:03:01", OTHER: "02:00:00:00:03:02"}
_OWN_MAC = bytes.fromhex(_MACS[LINE].replace(":", ""))
WORLD, WORLD6 = "203.0.113.1", "2001:db8:ff::1"
#: In the networks of subscribers: of nobody, and of each line.
_OFFLINE, _OFFLINE6 = "100.64.9.77", "2001:db8:c077::1"
_RANGE6 = IPv6Network("2001:db8:c000::/36")
_PREFIXES = {LINE: IPv6Network("2001:db8:c301::/64"), OTHER: IPv6Network("2001:db8:c302::/64")}
_OWN6, _OTHER6 = "2001:db8:c301::6", "2001:db8:c302::6"
_FAR, _FAR_MAC, _MTU = "10.255.0.2", "02:00:00:00:00:fe", "1280"
_BROADCAST, _GROUP, _GROUP6 = "255.255.255.255", "224.0.0.1", "ff02::1"
_LINK6 = "fe80::1"
_IPV4, _IPV6, _ARP = 0x0800, 0x86DD, 0x0806
_UDP = struct.pack("!HHHH", 4000, 9, 16, 0) + b"falsely "
#: Of each kind, with each address.
_TIMES = 3
#: Seconds in which the kernel waits for the fragments of a packet.
_FRAGMENTS = 1

#: What makes a packet with a false address and another argument, and the other arguments: most are
#: destinations.
Kind = tuple[Callable[[str, Any], bytes], Sequence[Any]]


def _tcp(source: str, to: str) -> bytes:
    head = struct.pack("!HHIIBBHHH", 4000, 9, 7, 0, 0x50, 2, 8192, 0, 0)
    return with_checksum(source, to, socket.IPPROTO_TCP, head, 16)


def _dhcp(type: int, source: str, to: str, options: bytes = b"", **more: str) -> bytes:
    """Return a DHCP message of the line's device."""
    return udp(source, to, dhcp(type, 0x0FA15E00 + type, _OWN_MAC, options, **more).ljust(300, b"\0"), 68, 67)


def _part(number: int, packet: bytes) -> bytes:
    """Return one of two fragments, the first of which has no more than the header of UDP."""
    source, to = (str(IPv4Address(packet[place : place + 4])) for place in (12, 16))
    return ipv4(source, to, packet[28:], part=1) if number else ipv4(source, to, packet[20:28], part=0x2000)


def _arp_request(source: str, target: str) -> bytes:
    head = struct.pack("!HHBBH", 1, _IPV4, 6, 4, 1)
    return head + _OWN_MAC + IPv4Address(source).packed + bytes(6) + IPv4Address(target).packed


def _of4(payload: bytes, protocol: int = 17, **more: Any) -> Callable[[str, str], bytes]:
    return lambda source, to: ipv4(source, to, payload, protocol, **more)


def _of6(payload: bytes, next_header: int = 17, **more: int) -> Callable[[str, str], bytes]:
    return lambda source, to: ipv6(source, to, payload, next_header, **more)


_FALSELY = b"\0\7\0\1falsely "
_GATEWAYS, _GATEWAYS6 = (str(GATEWAY), "10.255.0.1"), (_LINK6, "2001:db8:ff00::1")
_DESTINATION_OPTION, _HOP_OPTION, _ROUTING, _FRAGMENT = 60, 0, 43, 44
#: An option that a host must report unless it knows it, and padding (RFC 8200 section 4.2).
_UNKNOWN_OPTION = b"\x11\0\x80\4\0\0\0\0" + _UDP
#: A jumbogram (RFC 2675) with a payload of 7 bytes.
_JUMBO = b"\x11\0\xc2\4\0\0\0\7" + _UDP
_IGMP_QUERY = summed(b"\x11\1" + bytes(6), 2)


def kinds4(own: str, other: str) -> dict[str, Kind]:
    """Return the kinds of IPv4 packets, with the address of the line and of another subscriber."""
    anywhere, everybody = ("0.0.0.0", own), (*_GATEWAYS, _BROADCAST)
    return {
        "to a host upstream": (_of4(_UDP), [WORLD]),
        "to another subscriber": (_of4(_UDP), [other]),
        "TTL of 1": (_of4(_UDP, ttl=1), [WORLD]),
        "to an address of nobody": (_of4(_UDP), ["100.64.9.99"]),
        "to the line itself": (_of4(_UDP), [own]),
        "a malformed option": (_of4(_UDP, options=b"\7\3\1\0"), [WORLD, *everybody]),
        "too large, do not fragment": (_of4(_UDP * 85, part=0x4000), [WORLD]),
        "ping": (lambda source, to: icmp(source, to, 8, _FALSELY), [*everybody, _GROUP]),
        "ICMP errors": (
            lambda source, to: icmp(source, to, 3, bytes(4) + ipv4(WORLD, source, _UDP)),
            [WORLD, *_GATEWAYS],
        ),
        "TCP, a closed port": (_tcp, _GATEWAYS),
        "UDP, a closed port": (_of4(_UDP), _GATEWAYS),
        "an unknown protocol": (_of4(_UDP, 200), _GATEWAYS),
        "IGMP query": (_of4(_IGMP_QUERY, 2), [_GROUP]),
        "DHCPINFORM": (lambda source, to: _dhcp(8, source, to, client=source), everybody),
        "DHCPINFORM, false ciaddr alone": (
            lambda address, source: _dhcp(8, source, _BROADCAST, client=address),
            anywhere,
        ),
        "DHCPINFORM, in fragments": (
            lambda address, part: _part(part, _dhcp(8, "0.0.0.0", _BROADCAST, client=address)),
            [0, 1],
        ),
        "DHCPREQUEST, renewing": (lambda source, to: _dhcp(3, source, to, client=source), everybody),
        "DHCPREQUEST, false ciaddr alone": (
            lambda address, source: _dhcp(3, source, _BROADCAST, client=address),
            anywhere,
        ),
        "DHCPREQUEST, INIT-REBOOT": (
            lambda source, to: _dhcp(3, source, to, bytes((50, 4)) + IPv4Address(source).packed),
            [_BROADCAST],
        ),
        "DHCPDISCOVER, false giaddr": (
            lambda address, source: _dhcp(1, source, _BROADCAST, relay=address),
            anywhere,
        ),
        "ARP request": (_arp_request, [str(GATEWAY), other]),
        "a fragment without the others": (_of4(_UDP, part=0x2000), [WORLD, *_GATEWAYS]),
    }


KINDS6: Mapping[str, Kind] = {
    "to a host upstream": (_of6(_UDP), [WORLD6]),
    "to another subscriber": (_of6(_UDP), [_OTHER6]),
    "hop limit of 1": (_of6(_UDP, hop_limit=1), [WORLD6]),
    "to an address of nobody": (_of6(_UDP), [_OFFLINE6]),
    "to the line itself": (_of6(_UDP), [_OWN6]),
    "too large": (_of6(_UDP * 85), [WORLD6]),
    "ping": (lambda source, to: icmp(source, to, 128, _FALSELY), [*_GATEWAYS6, _GROUP6]),
    "ICMPv6 errors": (
        lambda source, to: icmp(source, to, 1, bytes(4) + ipv6(WORLD6, source, _UDP)),
        [WORLD6, *_GATEWAYS6],
    ),
    "TCP, a closed port": (_tcp, _GATEWAYS6),
    "UDP, a closed port": (lambda source, to: udp(source, to, b"falsely ", 4000, 9), _GATEWAYS6),
    "an unknown next header": (_of6(_UDP, 200), [*_GATEWAYS6, _GROUP6]),
    "an unknown destination option": (_of6(_UNKNOWN_OPTION, _DESTINATION_OPTION), [*_GATEWAYS6, _GROUP6]),
    "an unknown hop-by-hop option": (_of6(_UNKNOWN_OPTION, _HOP_OPTION), [WORLD6, *_GATEWAYS6, _GROUP6]),
    "a malformed jumbogram": (_of6(_JUMBO, _HOP_OPTION), [WORLD6, *_GATEWAYS6]),
    "an unknown routing header": (_of6(b"\x11\0\xc8\1" + bytes(4) + _UDP, _ROUTING), _GATEWAYS6),
    "MLD query": (lambda source, to: icmp(source, to, 130, bytes(20)), [_GROUP6]),
    "neighbour solicitation": (
        lambda source, to: icmp(source, to, 135, bytes(4) + IPv6Address(_LINK6).packed + b"\1\1" + _OWN_MAC),
        [_LINK6, "ff02::1:ff00:1"],
    ),
    "router solicitation": (lambda source, to: icmp(source, to, 133), ["ff02::2"]),
    "DHCPv6 information request": (
        lambda source, to: udp(source, to, b"\x0b\0\0\7", 546, 547),
        ["ff02::1:2", *_GATEWAYS6],
    ),
    "a fragment without the others": (_of6(b"\x11\0\0\1\0\0\0\7" + _UDP, _FRAGMENT), [WORLD6, *_GATEWAYS6]),
}


#: Of hosts upstream, of nobody, of the gateway; and of no host.
_FALSE = (
    *("8.8.8.8", WORLD, _OFFLINE, *_GATEWAYS),
    *("0.0.0.0", "169.254.1.1", "224.0.0.5", "127.0.0.1", _BROADCAST),
)
_FALSE6 = (
    *(_OTHER6, WORLD6, "2001:db8:ffff::6", _OFFLINE6, "2001:db8:ff00::1"),
    *("::", "fe80::66", "ff02::5", "::1"),
)


class _Trial:
    """The gateway in the network of the calling thread."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._server = stack.enter_context(running_dnsmasq(folder))
        self._plane = DataPlane(KernelReader())
        self._marks = itertools.count(1)
        #: Of the subscribers, by the tag. The line has its own with a session.
        self.addresses = {LINE: "100.64.9.201"}
        world = stack.enter_context(neighbour())
        _switch()
        for tag, mac in _MACS.items():
            self._server.add_vlan(tag, mac)
        ip_batch(
            [
                *(f"address add {_LINK6}/64 dev trunk0.{tag} nodad" for tag in _MACS),
                f"link add uplink0 type veth peer name far0 address {_FAR_MAC} netns {world}",
                f"link set uplink0 mtu {_MTU} up",
                "address add 10.255.0.1/24 dev uplink0",
                "address add 2001:db8:ff00::1/64 dev uplink0 nodad",
                # No packet waits for the resolution of an address.
                f"neighbour add {_FAR} lladdr {_FAR_MAC} dev uplink0",
                f"neighbour add 2001:db8:ff00::2 lladdr {_FAR_MAC} dev uplink0",
                f"neighbour add {_OWN6} lladdr {_MACS[LINE]} dev trunk0.{LINE}",
                f"neighbour add {_OTHER6} lladdr {_MACS[OTHER]} dev trunk0.{OTHER}",
                f"route add default via {_FAR}",
                "route add default via 2001:db8:ff00::2",
            ]
        )
        subprocess.run(inside(world, "ip", "link", "set", "far0", "mtu", _MTU, "up"), check=True)
        configuration = RunningConfiguration.of({**self._server.document, "bgp": None}).sections
        self._plane.configure(replace(configuration.cgnat, enabled=False), [_RANGE6])
        firewall = Firewall(time.time)
        firewall.configure(configuration)
        if faults := firewall.fault_register.list_faults():
            raise RuntimeError(faults[0].reason)
        self._line = _heard(stack, self._server.far_end, f"access{LINE}")
        self._peers = {
            OTHER: _heard(stack, self._server.far_end, f"access{OTHER}"),
            0: _heard(stack, world, "far0"),
        }
        own = Path(f"/sys/class/net/trunk0.{LINE}/address")
        link = subprocess.run(["ip", "-j", "link", "show", own.parent.name], check=True, capture_output=True)
        self._gateway = bytes.fromhex(json.loads(link.stdout)[0]["address"].replace(":", ""))
        self.sign_on(OTHER)

    def sign_on(self, tag: int) -> None:
        device = f"trunk0.{tag}"
        self._server.sign_on(tag).vanish()
        source = self._server.source()

        def address_of_the_session() -> str | None:
            found = (each.ip_address for each in source.list_sessions() if each.access_interface == device)
            return next(found, None)

        address: str = wait_for("the session", address_of_the_session)
        self.addresses[tag] = address
        self._plane.apply(
            WantedSession(
                tag, device, f"ifb-{tag}", device, 0, 0, OVERHEAD_PROFILES["none"], IPv4Address(address),
                sets_host_route=True, gateway=GATEWAY, delegated=(_PREFIXES[tag],),
            )
        )  # fmt: skip
        ip_batch([f"neighbour replace {address} lladdr {_MACS[tag]} dev {device}"])

    def packets(self, kind: Kind, sources: Sequence[str], rest: float) -> dict[str, int]:
        """Return how many packets of a kind were sent, and those that reached others within `rest`
        seconds."""
        self._drain()
        make, others = kind
        frames = [self._frame(make(source, other)) for source in sources for other in others] * _TIMES
        for frame in frames:
            self._line.send(frame)
        time.sleep(rest)
        self._await_dnsmasq()
        found = self._received()
        return {"sent": len(frames), "received": len(found), "bytes": sum(map(len, found))}

    def _frame(self, packet: bytes) -> bytes:
        if packet[0] >> 4 == 6:
            ethertype, to = _IPV6, ip_address(packet[24:40])
        else:
            ethertype = _IPV4 if packet[0] >> 4 == 4 else _ARP
            to = ip_address(packet[16:20] if ethertype == _IPV4 else _BROADCAST)
        if to == IPv4Address(_BROADCAST):
            mac = b"\xff" * 6
        elif not to.is_multicast:
            mac = self._gateway
        else:
            mac = b"\x33\x33" + to.packed[-4:] if to.version == 6 else b"\1\0\x5e" + to.packed[1:]
        return mac + _OWN_MAC + struct.pack("!H", ethertype) + packet

    def _await_dnsmasq(self) -> None:
        """Wait for dnsmasq's offer to the line, which comes after its replies to all messages before."""
        asked = 0x11110000 + next(self._marks)
        message = dhcp(1, asked, _OWN_MAC).ljust(300, b"\0")
        self._line.send(self._frame(udp("0.0.0.0", _BROADCAST, message, 68, 67)))
        self._await(self._line, lambda frame: frame[12:14] == b"\x08\0" and frame[46:50] == asked.to_bytes(4))

    def _received(self) -> list[bytes]:
        """Return the frames at others, up to a packet of the gateway itself."""
        mark = b"mark %d" % next(self._marks)
        found: list[bytes] = []
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as marks:
            for tag, peer in self._peers.items():
                marks.sendto(mark, (self.addresses[tag] if tag else _FAR, 9))
                found += self._await(peer, lambda frame: frame.endswith(mark))
        return [frame for frame in found if _is_of_the_line(frame)]

    def _await(self, line: socket.socket, is_last: Callable[[bytes], bool]) -> list[bytes]:
        """Return the frames before the last one."""
        found: list[bytes] = []
        line.settimeout(PATIENCE)
        while True:
            frame, (_, _, type, *_) = line.recvfrom(4096)
            if type != socket.PACKET_OUTGOING:
                if is_last(frame):
                    return found
                found.append(frame)

    def _drain(self) -> None:
        for line in (self._line, *self._peers.values()):
            line.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    line.recv(4096)


def _switch() -> None:
    """Have the kernel report each error, and soon, as far as the kernel can."""
    for setting, value in (
        ("ipv4/icmp_ratelimit", 0),
        ("ipv6/icmp/ratelimit", 0),
        # Not in each kernel, nor in each network.
        ("ipv4/icmp_msgs_per_sec", 100_000),
        ("ipv4/icmp_msgs_burst", 100_000),
        ("ipv4/ipfrag_time", _FRAGMENTS),
        ("ipv6/ip6frag_time", _FRAGMENTS),
        ("ipv6/conf/all/forwarding", 1),
    ):
        with suppress(FileNotFoundError, PermissionError):
            Path("/proc/sys/net", setting).write_text(f"{value}\n")


def _heard(stack: ExitStack, pid: int, device: str) -> socket.socket:
    """Return a socket that receives all frames of a device in the network of a process."""
    with network_of(pid):
        line = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)))
        line.bind((device, 0))
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    return line


def _is_of_the_line(frame: bytes) -> bool:
    """Return False for frames of the gateway itself: ARP, neighbour discovery, IPv6 groups."""
    (ethertype,) = struct.unpack_from("!H", frame, 12)
    if ethertype == _IPV4:
        return True
    is_discovery = frame[20] == 58 and frame[54] in (135, 136)
    return ethertype == _IPV6 and not IPv6Address(frame[38:54]).is_multicast and not is_discovery


def run(folder: Path) -> dict[str, dict[str, dict[str, int]]]:
    """Return the packets sent and those that reached others, by the state of the line and the kind."""
    seen: dict[str, dict[str, dict[str, int]]] = {}
    with ExitStack() as stack:
        trial = _Trial(stack, folder)
        # Without a session, the line's own addresses are false, too.
        seen["without a session"] = _of_all_kinds(trial, [trial.addresses[LINE]], [_OWN6])
        trial.sign_on(LINE)
        seen["with a session"] = _of_all_kinds(trial, [], [])
    return seen


def _of_all_kinds(trial: _Trial, own: Sequence[str], own6: Sequence[str]) -> dict[str, dict[str, int]]:
    addresses = trial.addresses
    of_both = (
        ("IPv4", kinds4(addresses[LINE], addresses[OTHER]), [addresses[OTHER], *_FALSE, *own]),
        ("IPv6", KINDS6, [*_FALSE6, *own6]),
    )
    return {
        f"{family}: {name}": trial.packets(kind, sources, _FRAGMENTS + 1 if "fragment " in name else 0)
        for family, kinds, sources in of_both
        for name, kind in kinds.items()
    }


def faults(kinds: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return the kinds whose packets made the gateway send something to others, or were not sent."""
    wanted = [*(f"IPv4: {name}" for name in kinds4("", "")), *(f"IPv6: {name}" for name in KINDS6)]
    missing = [name for name in wanted if name not in kinds or not kinds[name]["sent"]]
    return missing + [name for name, kind in kinds.items() if kind["bytes"]]
