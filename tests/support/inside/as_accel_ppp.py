"""Stands in for accel-pppd under its unit: does what accel-ppp needs of the kernel, then what an accel-ppp
that somebody took over might do, and writes down what came of each.

Its file names an interface that is up. It runs alone, without the packages of the tests, until it is ended.
"""

import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

#: linux/socket.h, linux/if_ether.h, linux/ppp-ioctl.h
_AF_PPPOX, _PPPOE_DISCOVERY = 24, 0x8863
_GET_CHANNEL, _ATTACH, _CONNECT, _NEW_UNIT = 0x80047437, 0x40047438, 0x4004743A, 0xC004743E
_DELETE_MODULE = {"x86_64": 176, "aarch64": 106}
REPORT = Path("/var/log/accel-ppp/seen.json")

_libc = ctypes.CDLL(None, use_errno=True)


def _called(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _number(descriptor: int, request: int, value: int = -1) -> int:
    """Return the integer that an ioctl leaves."""
    (number,) = struct.unpack("i", fcntl.ioctl(descriptor, request, struct.pack("i", value)))
    return int(number)


def session(interface: str) -> str:
    """Make a PPPoE session in the kernel and its link, as far as that works without a peer."""
    line = socket.socket(_AF_PPPOX, socket.SOCK_STREAM)
    # sockaddr_pppox: protocol 0 is PPPoE; session 7 of a peer.
    address = struct.pack("=HI", _AF_PPPOX, 0) + struct.pack("!H", 7) + bytes.fromhex("020000000007")
    address += interface.encode().ljust(16, b"\0")
    _called(_libc.connect(line.fileno(), address, len(address)))
    channel, unit = (os.open("/dev/ppp", os.O_RDWR) for _ in range(2))
    _number(channel, _ATTACH, _number(line.fileno(), _GET_CHANNEL))
    name = f"ppp{_number(unit, _NEW_UNIT)}"
    _number(channel, _CONNECT, int(name[3:]))
    settings = Path("/proc/sys/net/ipv6/conf", name, "accept_ra")
    settings.write_text("0\n")
    link = name if settings.read_text() == "0\n" else ""
    for descriptor in (unit, channel):
        os.close(descriptor)
    line.close()
    return link


def discovery(interface: str) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_PPPOE_DISCOVERY)) as line:
        line.bind((interface, _PPPOE_DISCOVERY))


def low_port(_: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 67))


def many_files(_: str) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20, 1 << 20))


def write_to_the_machine(_: str) -> None:
    Path("/etc/seen").touch()


def write_its_own_file(_: str) -> None:
    Path(sys.argv[2]).write_text("")


def open_the_memory(_: str) -> None:
    os.close(os.open("/dev/mem", os.O_RDONLY))


def remove_a_module(_: str) -> None:
    _called(_libc.syscall(_DELETE_MODULE[os.uname().machine], b"none", os.O_NONBLOCK))


def leave_the_network(_: str) -> None:
    _called(_libc.unshare(0x40000000))


_WORKS: tuple[Callable[[str], object], ...] = (session, discovery, low_port, many_files)
_REFUSED = (write_to_the_machine, write_its_own_file, open_the_memory, remove_a_module, leave_the_network)


def main() -> None:
    interface = Path(sys.argv[2]).read_text().strip()
    seen = {}
    for act in (*_WORKS, *_REFUSED):
        try:
            seen[act.__name__] = act(interface) or "done"
        except OSError as error:
            seen[act.__name__] = error.strerror
    draft = REPORT.with_suffix(".new")
    draft.write_text(json.dumps(seen))
    draft.rename(REPORT)
    signal.pause()


if __name__ == "__main__":
    main()
