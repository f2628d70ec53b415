"""Many DHCP clients in one process: `python -m tests.support.dhcp_clients FIRST COUNT`.

One is at the far end of each VLAN from `FIRST` on: on the device `access.VLAN`, or, while that is not there,
with a tag on `access0`. Each asks for a lease until it has one; then it is mute but for ARP and pings (RFC
2131, 826, 792). To each line on stdin, the process prints a line: the addresses by VLAN, and how many
messages of DHCP the clients have sent.

`python -m tests.support.dhcp_clients one DEVICE HTYPE HARDWARE` is one client with this hardware, in
hexadecimal, of any length (RFC 2131 section 2): it prints the address of its lease, and ends.

`python -m tests.support.dhcp_clients ping SECONDS` pings the addresses on stdin, in JSON, and prints those
that answer.
"""

import json
import select
import socket
import struct
import sys
import time
from contextlib import suppress

from tests.support.packets import dhcp, icmp, udp

_BROADCAST = b"\xff" * 6
_IPV4, _ARP, _VLAN = 0x0800, 0x0806, 0x8100
_OFFER, _ACK = 2, 5
#: Seconds after which a client without a lease repeats itself.
_AGAIN = 1.0


class _Clients:
    def __init__(self, first: int, count: int) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self._socket.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)
        self._vlans = range(first, first + count)
        self._addresses: dict[int, bytes] = {}
        self._sent = 0

    def run(self) -> None:
        again = 0.0
        while True:
            if time.monotonic() >= again:
                for vlan in self._vlans:
                    if vlan not in self._addresses:
                        self._ask(vlan, 1)
                again = time.monotonic() + _AGAIN
            ready, _, _ = select.select([self._socket, sys.stdin], [], [], _AGAIN)
            if self._socket in ready:
                frame, (device, _, kind, *_) = self._socket.recvfrom(2048)
                if kind != socket.PACKET_OUTGOING and device.startswith("access."):
                    self._hear(int(device.removeprefix("access.")), frame)
            if sys.stdin in ready:
                if not sys.stdin.readline():
                    return
                addresses = {vlan: socket.inet_ntoa(address) for vlan, address in self._addresses.items()}
                print(json.dumps([addresses, self._sent]), flush=True)

    def _hear(self, vlan: int, frame: bytes) -> None:
        (ethertype,) = struct.unpack_from("!H", frame, 12)
        own = self._addresses.get(vlan)
        if ethertype == _ARP and frame[20:22] == b"\0\1" and own is not None and frame[38:42] == own:
            reply = frame[14:20] + b"\0\2" + _mac(vlan) + own + frame[22:32]
            self._send(vlan, _ARP, reply, frame[6:12])
        elif ethertype == _IPV4 and frame[23] == socket.IPPROTO_ICMP:
            if frame[34] == 8 and own == frame[30:34]:
                packet = frame[14 : 14 + int.from_bytes(frame[16:18])]
                reply = icmp(socket.inet_ntoa(own), socket.inet_ntoa(packet[12:16]), 0, packet[24:])
                self._send(vlan, _IPV4, reply, frame[6:12])
        elif ethertype == _IPV4 and frame[36:38] == b"\0\x44" and own is None:
            self._take(vlan, frame[42:])

    def _take(self, vlan: int, message: bytes) -> None:
        if message[28:34] != _mac(vlan):
            return
        options = _options(message[240:])
        if options.get(53) == bytes([_OFFER]):
            self._ask(vlan, 3, bytes((50, 4)) + message[16:20] + bytes((54, 4)) + options[54])
        elif options.get(53) == bytes([_ACK]):
            self._addresses[vlan] = message[16:20]

    def _ask(self, vlan: int, kind: int, more: bytes = b"") -> None:
        self._sent += 1
        self._send(vlan, _IPV4, _packet(kind, vlan, 1, _mac(vlan), more), _BROADCAST)

    def _send(self, vlan: int, ethertype: int, payload: bytes, to: bytes) -> None:
        start, rest = to + _mac(vlan), struct.pack("!H", ethertype) + payload
        try:
            self._socket.sendto(start + rest, (f"access.{vlan}", 0))
        except OSError:
            # The gateway may be down.
            with suppress(OSError):
                self._socket.sendto(start + struct.pack("!HH", _VLAN, vlan) + rest, ("access0", 0))


def _packet(kind: int, transaction: int, hardware_type: int, hardware: bytes, more: bytes = b"") -> bytes:
    # With the flag for replies by broadcast.
    message = dhcp(kind, transaction, hardware, more, hardware_type=hardware_type, flags=0x8000)
    return udp("0.0.0.0", "255.255.255.255", message, 68, 67)


def _lease(device: str, hardware_type: int, hardware: bytes) -> str:
    """Request a lease until there is one, and return its address."""
    transaction = int.from_bytes(hardware[-4:])
    asked = _packet(1, transaction, hardware_type, hardware)
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_IPV4)) as client:
        client.bind((device, _IPV4))
        while True:
            client.sendto(asked, (device, _IPV4, 0, 0, _BROADCAST))
            deadline = time.monotonic() + _AGAIN
            while (rest := deadline - time.monotonic()) > 0 and select.select([client], [], [], rest)[0]:
                message = client.recv(2048)[28:]
                if message[:1] != b"\2" or message[4:8] != transaction.to_bytes(4):
                    continue
                options = _options(message[240:])
                if options.get(53) == bytes([_ACK]):
                    return socket.inet_ntoa(message[16:20])
                if options.get(53) == bytes([_OFFER]):
                    more = bytes((50, 4)) + message[16:20] + bytes((54, 4)) + options[54]
                    request = _packet(3, transaction, hardware_type, hardware, more)
                    client.sendto(request, (device, _IPV4, 0, 0, _BROADCAST))


def _mac(vlan: int) -> bytes:
    return struct.pack("!HI", 0x0200, vlan)


def _options(data: bytes) -> dict[int, bytes]:
    found, at = {}, 0
    while at + 1 < len(data) and data[at] != 255:
        if data[at] == 0:
            at += 1
            continue
        found[data[at]] = data[at + 2 : at + 2 + data[at + 1]]
        at += 2 + data[at + 1]
    return found


def _answers(addresses: list[str], seconds: float) -> list[str]:
    missing = set(addresses)
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as pings:
        for number, address in enumerate(addresses):
            # Its gateway may not be up yet.
            with suppress(OSError):
                pings.sendto(icmp(address, address, 8, struct.pack("!HH", 4711, number))[20:], (address, 0))
        deadline = time.monotonic() + seconds
        while missing and (rest := deadline - time.monotonic()) > 0:
            if select.select([pings], [], [], rest)[0]:
                packet, (source, _) = pings.recvfrom(2048)
                if packet[20] == 0:
                    missing.discard(source)
    return sorted(set(addresses) - missing)


def _main() -> None:
    if sys.argv[1] == "ping":
        print(json.dumps(_answers(json.load(sys.stdin), float(sys.argv[2]))))
    elif sys.argv[1] == "one":
        print(_lease(sys.argv[2], int(sys.argv[3]), bytes.fromhex(sys.argv[4])))
    else:
        _Clients(int(sys.argv[1]), int(sys.argv[2])).run()


if __name__ == "__main__":
    _main()
