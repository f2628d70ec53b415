"""Listener for the first frames of subscribers on a trunk, with a packet socket (packet(7)).

First frames are PADI, DHCPDISCOVER, Router Solicitation and DHCPv6 Solicit. DHCPREQUEST, and DHCPv6 Request,
Confirm, Renew and Rebind are first frames too: after a reboot of the gateway, a client with a lease sends
these messages on a VLAN that does not exist yet. Frames have one or two VLAN tags.

The BPF filter is coarse, and drops nearly all other traffic of a trunk in the kernel. The parser is exact,
with one exception: only the filter checks that a unicast frame is for the trunk's own MAC address.
"""

import ctypes
import errno
import logging
import os
import select
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from gateway_contract.core.network import VlanProtocol
from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.kernel.links import VLAN_PROTOCOL_OF_ETHERTYPE
from gateway_core.gateways.linux.threads import ThreadGroup

#: Frames in one batch, and the pause after a full batch: limits the processor time of a flood.
_MAX_FRAMES_PER_BATCH = 256
_PAUSE_SECONDS = 0.01
#: Receive buffer, enough for a burst of 10,000 to 20,000 frames on a trunk. The kernel doubles the number.
_RECEIVE_BUFFER_BYTES = 8 << 20
#: Seconds between two attempts to listen on a trunk that is missing or down.
_RETRY_SECONDS = 1.0

# linux/if_packet.h and linux/if_ether.h, which Python lacks.
_ETH_P_ALL = 3
_SOL_PACKET = 263
_PACKET_ADD_MEMBERSHIP, _PACKET_STATISTICS, _PACKET_AUXDATA, _PACKET_IGNORE_OUTGOING = 1, 6, 8, 23
_PACKET_MR_PROMISC = 1
_MEMBERSHIP_STRUCT = struct.Struct("@iHH8x")
_STATISTICS_STRUCT = struct.Struct("@II")
_SO_RCVBUFFORCE = 33

#: Maximum length of a first frame: an Ethernet frame has 1,518 bytes, and the kernel has removed the outer
#: tag.
MAX_FRAME_BYTES: Final = 1536

# struct tpacket_auxdata (linux/if_packet.h): status, lengths, offsets, TCI and type of the outer tag.
_AUXDATA_STRUCT = struct.Struct("=I12xHH")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_AUXDATA_STRUCT.size)
_TAG_AND_TYPE_VALID_BITS = 1 << 4 | 1 << 6

_ETHERNET_HEADER_STRUCT = struct.Struct("!6s6sH")
_INNER_TAG_STRUCT = struct.Struct("!HH")
_DHCP_COOKIE = b"\x63\x82\x53\x63"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Trigger:
    """First frame of a subscriber. For a frame with one tag, `outer_vlan_id` is None, and `outer_protocol` is
    the protocol of this tag."""

    trunk: str
    outer_vlan_id: int | None
    outer_protocol: VlanProtocol
    vlan_id: int
    type: SessionType


def parse_trigger(trunk: str, frame: bytes, auxdata: bytes) -> Trigger | None:
    """Parse a frame that a packet socket received (packet(7)). Return None if the frame is not a first frame
    of a subscriber. `auxdata` is the PACKET_AUXDATA of the frame and contains the outer tag; an inner tag is
    in the frame."""
    if len(auxdata) < _AUXDATA_STRUCT.size or len(frame) < _ETHERNET_HEADER_STRUCT.size:
        return None
    status, tci, tag_type = _AUXDATA_STRUCT.unpack_from(auxdata)
    protocol = VLAN_PROTOCOL_OF_ETHERTYPE.get(tag_type)
    if protocol is None or status & _TAG_AND_TYPE_VALID_BITS != _TAG_AND_TYPE_VALID_BITS:
        return None
    outer, vlan, payload = None, tci & 0xFFF, _ETHERNET_HEADER_STRUCT.size
    destination, source, ethertype = _ETHERNET_HEADER_STRUCT.unpack_from(frame)
    if ethertype == 0x8100:
        if len(frame) < payload + _INNER_TAG_STRUCT.size:
            return None
        inner, ethertype = _INNER_TAG_STRUCT.unpack_from(frame, payload)
        outer, vlan, payload = vlan, inner & 0xFFF, payload + _INNER_TAG_STRUCT.size
    # 0 is a priority tag, without a VLAN; 4095 is reserved (IEEE 802.1Q table 9-2).
    if not 0 < vlan < 0xFFF or (outer is not None and not 0 < outer < 0xFFF):
        return None
    # A group address (bit 0 of the first byte) is no valid source address.
    if source[0] & 1:
        return None
    is_to_group = bool(destination[0] & 1)
    type = _find_session_type(ethertype, frame[payload:], is_to_group=is_to_group)
    return None if type is None else Trigger(trunk, outer, protocol, vlan, type)


def _find_session_type(ethertype: int, packet: bytes, *, is_to_group: bool) -> SessionType | None:
    if ethertype == 0x0800:
        return SessionType.DHCP if _is_from_dhcp_client(packet, is_to_group=is_to_group) else None
    if not is_to_group:
        return None
    if ethertype == 0x8863:
        # RFC 2516 section 5.1: version and type 1, code 0x09, session id 0.
        return SessionType.PPPOE if packet[:4] == b"\x11\x09\x00\x00" else None
    if ethertype == 0x86DD:
        return SessionType.DHCP if _is_from_ipv6_host(packet) else None
    return None


def _is_from_dhcp_client(packet: bytes, *, is_to_group: bool) -> bool:
    """Return True if an IPv4 packet is a DHCPDISCOVER (RFC 2131 sections 2 and 3.1), or a DHCPREQUEST of a
    client that has a lease (section 4.3.2). A client that renews a lease sends to the server's unicast
    address."""
    if len(packet) < 20 or not 0x45 <= packet[0] <= 0x4F or packet[9] != socket.IPPROTO_UDP:
        return False
    # A later fragment has no UDP header.
    if int.from_bytes(packet[6:8]) & 0x1FFF:
        return False
    udp = packet[(packet[0] & 0xF) * 4 :]
    message = udp[8:]
    if udp[2:4] != b"\x00\x43" or len(message) < 240 or message[0] != 1 or message[236:240] != _DHCP_COOKIE:
        return False
    options = message[240:]
    match _find_option(options, _MESSAGE_TYPE):
        case b"\x01":
            return is_to_group
        case b"\x03":
            # With a server identifier, the request answers an offer: the gateway's own offers are sent on
            # VLANs that exist.
            return _find_option(options, _SERVER_IDENTIFIER) is None
        case _:
            return False


#: RFC 2132 sections 9.6 and 9.7.
_MESSAGE_TYPE, _SERVER_IDENTIFIER = 53, 54


def _find_option(options: bytes, code: int) -> bytes | None:
    """Return the value of the first DHCP option with this code (RFC 2132 section 2); None if the options do
    not contain the code."""
    offset = 0
    while offset + 1 < len(options) and options[offset] != 255:
        if options[offset] == 0:
            offset += 1
            continue
        next_offset = offset + 2 + options[offset + 1]
        if options[offset] == code:
            return options[offset + 2 : next_offset]
        offset = next_offset
    return None


#: Solicit, Request, Confirm, Renew, Rebind (RFC 8415 section 7.3).
_DHCPV6_MESSAGES = frozenset({1, 3, 4, 5, 6})


def _is_from_ipv6_host(packet: bytes) -> bool:
    """Return True if an IPv6 packet is a Router Solicitation (RFC 4861 section 4.1) or one of the
    _DHCPV6_MESSAGES."""
    if len(packet) < 40 or packet[0] >> 4 != 6:
        return False
    if packet[6] == socket.IPPROTO_ICMPV6:
        return packet[40:41] == b"\x85"
    is_to_server = packet[6] == socket.IPPROTO_UDP and packet[42:44] == b"\x02\x23"
    return is_to_server and len(packet) > 48 and packet[48] in _DHCPV6_MESSAGES


# The filter is a program of the kernel's classic BPF (linux/filter.h, linux/bpf_common.h).
_LD, _LDH, _LDB = 0x20, 0x28, 0x30  # 4, 2 or 1 bytes of the frame at k, into A
_LDH_X, _LDB_X = 0x48, 0x50  # at X + k
_LDX, _TAX, _ADD_X = 0x01, 0x07, 0x0C  # k into X; A into X; X added to A
_AND, _LSH = 0x54, 0x64
_JEQ, _JGT, _JSET = 0x15, 0x25, 0x45  # A equals k; A is greater than k; A has a bit of k
_RET = 0x06  # accept k bytes of the frame; 0 drops the frame
# SKF_AD_OFF with SKF_AD_PKTTYPE and SKF_AD_VLAN_TAG_PRESENT: not in the frame, but known to the kernel.
_PACKET_TYPE, _VLAN_TAG_PRESENT = 0xFFFFF000 + 4, 0xFFFFF000 + 48
_PACKET_MULTICAST = 2  # linux/if_packet.h; less is to this host (0) or to all

_PASS, _DROP = "pass", "drop"
_Instruction = tuple[int, int] | tuple[int, int, str | None, str | None]
#: Labels and instructions. An instruction is a code and k, and for a jump the labels of the targets if the
#: condition is true and if the condition is false; None is the next instruction. A load beyond the end of the
#: frame drops the frame.
_FILTER_PROGRAM: Final[tuple[str | _Instruction, ...]] = (
    (_LD, _VLAN_TAG_PRESENT),
    (_JEQ, 1, None, _DROP),  # tagged
    (_LD, _PACKET_TYPE),
    (_JGT, _PACKET_MULTICAST, _DROP, None),  # to another host
    (_LDX, 0),  # X is the length of an inner tag
    (_LDH, 12),
    (_JEQ, 0x8100, None, "untagged"),
    (_LDX, 4),
    "untagged",
    (_LDH_X, 12),
    (_JEQ, 0x0800, "ipv4", None),
    (_JEQ, 0x8863, "pppoe", None),
    (_JEQ, 0x86DD, "ipv6", _DROP),
    "pppoe",
    (_LDB, 0),  # the destination
    (_JSET, 1, None, _DROP),  # a group
    (_LDH_X, 14),
    (_JEQ, 0x1109, _PASS, _DROP),  # PADI
    "ipv4",
    (_LDB_X, 23),
    (_JEQ, socket.IPPROTO_UDP, None, _DROP),
    (_LDH_X, 20),
    (_JSET, 0x1FFF, _DROP, None),  # no later fragment
    (_LDB_X, 14),
    (_AND, 0xF),
    (_LSH, 2),  # the length of the IPv4 header in bytes
    (_ADD_X, 0),
    (_TAX, 0),  # X is now that of tag and IPv4 header
    (_LDH_X, 16),
    (_JEQ, 67, None, _DROP),  # to a DHCP server
    (_LDB_X, 22),
    (_JEQ, 1, _PASS, _DROP),  # BOOTREQUEST: a loop over its options is beyond this BPF
    "ipv6",
    (_LDB, 0),
    (_JSET, 1, None, _DROP),
    (_LDB_X, 20),
    (_JEQ, socket.IPPROTO_UDP, "dhcpv6", None),
    (_JEQ, socket.IPPROTO_ICMPV6, None, _DROP),
    (_LDB_X, 54),
    (_JEQ, 133, _PASS, _DROP),  # Router Solicitation
    "dhcpv6",
    (_LDH_X, 56),
    (_JEQ, 547, None, _DROP),  # to a DHCPv6 server
    (_LDB_X, 62),
    (_JEQ, 0, _DROP, None),
    (_JEQ, 2, _DROP, None),  # Advertise, of a server
    (_JGT, 6, _DROP, _PASS),  # Solicit to Rebind
    _PASS,
    (_RET, MAX_FRAME_BYTES),
    _DROP,
    (_RET, 0),
)


def _assemble_filter() -> Iterator[bytes]:
    """Yield the instructions of _FILTER_PROGRAM as struct sock_filter. The offset of a jump is relative to
    the next instruction."""
    instructions: list[_Instruction] = []
    offset_of_label: dict[str, int] = {}
    for line in _FILTER_PROGRAM:
        if isinstance(line, str):
            offset_of_label[line] = len(instructions)
        else:
            instructions.append(line)
    for position, (code, k, *targets) in enumerate(instructions):
        offsets = [0 if target is None else offset_of_label[target] - position - 1 for target in targets] or [
            0,
            0,
        ]
        yield struct.pack("=HBBI", code, *offsets, k)


_FILTER_BYTES = b"".join(_assemble_filter())


def attach_filter(packets: socket.socket) -> None:
    """Attach a BPF filter that drops all frames except first frames (socket(7), SO_ATTACH_FILTER). Raises
    OSError if the kernel refuses the filter."""
    # struct sock_fprog: the number of instructions, and a pointer, which the kernel follows in this call.
    program = ctypes.create_string_buffer(_FILTER_BYTES, len(_FILTER_BYTES))
    program_pointer = struct.pack("@HP", len(_FILTER_BYTES) // 8, ctypes.addressof(program))
    packets.setsockopt(socket.SOL_SOCKET, 26, program_pointer)


class Listener:
    """Listener for first frames on a trunk, on a thread of the `thread_group`, until `stop`. If the trunk
    disappears or goes down, the thread tries again until the trunk is back.

    The thread calls `handle_triggers` with the triggers of a batch, and with the number of frames that the
    kernel dropped since the previous batch. The thread calls `handle_trunk_change` with the name of the trunk
    when the trunk has disappeared or is back.
    """

    def __init__(
        self,
        trunk: str,
        handle_triggers: Callable[[list[Trigger], int], None],
        handle_trunk_change: Callable[[str], None],
        thread_group: ThreadGroup,
    ) -> None:
        self._trunk = trunk
        self._handle_triggers = handle_triggers
        self._handle_trunk_change = handle_trunk_change
        self._stop_fd = os.eventfd(0, os.EFD_CLOEXEC)
        self._stop_poll = select.poll()
        self._stop_poll.register(self._stop_fd, select.POLLIN)
        self._thread = thread_group.start(self._listen, f"demux {trunk}")

    def stop(self) -> None:
        """Stop the thread, and wait until the thread has ended."""
        os.eventfd_write(self._stop_fd, 1)
        self._thread.join()
        os.close(self._stop_fd)

    def _listen(self) -> None:
        logged_reason = ""
        while True:
            try:
                with closing(_open_socket(self._trunk)) as packets:
                    if logged_reason:
                        _log.info("receiving frames on trunk %s again", self._trunk)
                        logged_reason = ""
                        self._handle_trunk_change(self._trunk)
                    self._receive(packets)
                    return
            except OSError as error:
                # The trunk is missing or down, or may not be listened to.
                reason = os.strerror(error.errno or errno.EIO)
                if reason != logged_reason:
                    logged_reason = reason
                    _log.warning(
                        "cannot receive frames on trunk %s, new subscribers get no VLAN: %s",
                        self._trunk,
                        reason,
                    )
                    self._handle_trunk_change(self._trunk)
            if self._is_stopped(_RETRY_SECONDS):
                return

    def _receive(self, packets: socket.socket) -> None:
        """Receive frames and handle the triggers of each batch, until `stop` is called. Raises OSError if the
        socket fails, for example because the trunk has disappeared."""
        ready = select.poll()
        ready.register(packets, select.POLLIN)
        ready.register(self._stop_fd, select.POLLIN)
        pause = 0.0
        while not self._is_stopped(pause):
            ready.poll()
            batch = list(self._read_batch(packets))
            triggers = [trigger for trigger in batch if trigger is not None]
            # Reading the statistics resets the kernel's counters.
            _, drop_count = _STATISTICS_STRUCT.unpack(
                packets.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS_STRUCT.size)
            )
            if triggers or drop_count:
                self._handle_triggers(triggers, drop_count)
            pause = _PAUSE_SECONDS if len(batch) == _MAX_FRAMES_PER_BATCH else 0.0

    def _read_batch(self, packets: socket.socket) -> Iterator[Trigger | None]:
        for _ in range(_MAX_FRAMES_PER_BATCH):
            try:
                frame, ancillary, _, _ = packets.recvmsg(MAX_FRAME_BYTES, _ANCILLARY_BYTES)
            except BlockingIOError:
                return
            for level, type, auxdata in ancillary:
                if (level, type) == (_SOL_PACKET, _PACKET_AUXDATA):
                    yield parse_trigger(self._trunk, frame, auxdata)

    def _is_stopped(self, timeout: float) -> bool:
        """Return True if `stop` was called, or is called within `timeout` seconds."""
        return bool(self._stop_poll.poll(timeout * 1000))


def _open_socket(trunk: str) -> socket.socket:
    """Return a packet socket that receives the first frames on a trunk. Raises OSError if the trunk does not
    exist or the socket cannot be opened."""
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    try:
        # Before the bind: with protocol 0, the socket receives nothing, so no frame bypasses the filter.
        attach_filter(packets)
        packets.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        # Otherwise the kernel would copy each packet to a subscriber for this socket.
        packets.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        packets.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES)
        packets.bind((trunk, _ETH_P_ALL))
        # A network card may drop frames of VLANs without a device, and of groups that no program has joined.
        membership = _MEMBERSHIP_STRUCT.pack(socket.if_nametoindex(trunk), _PACKET_MR_PROMISC, 0)
        packets.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)
        if code := packets.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(code, os.strerror(code))
    except OSError:
        packets.close()
        raise
    return packets
