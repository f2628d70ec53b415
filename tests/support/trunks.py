"""A network of a test's own, with a trunk: a veth pair, `trunk0` and its far end `access0`. Requires root."""

import ctypes
import os
import socket
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000


@contextmanager
def own_network() -> Iterator[None]:
    """Moves this thread, its new threads and its child processes into a new network namespace."""
    with Path("/proc/thread-self/ns/net").open() as before:
        _checked(_LIBC.unshare(_CLONE_NEWNET))
        try:
            yield
        finally:
            _checked(_LIBC.setns(before.fileno(), _CLONE_NEWNET))


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def add_trunk() -> None:
    ip("link", "add", "trunk0", "type", "veth", "peer", "name", "access0")
    ip("link", "set", "trunk0", "up")
    ip("link", "set", "access0", "up")


def send(frames: Iterable[bytes], device: str = "access0") -> None:
    """Sends whole Ethernet frames."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as packets:
        packets.bind((device, 0))
        for frame in frames:
            packets.send(frame)


def _checked(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
