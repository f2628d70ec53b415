"""A trunk: a veth pair, `trunk0` and its far end `access0`, in the network namespace of the caller."""

import socket
from collections.abc import Iterable

from tests.support.first_frames import TRUNK_MAC
from tests.support.namespaces import ip


def add_trunk(number: int = 0) -> None:
    """`trunkN` and `accessN`, both up."""
    ip(
        f"link add trunk{number} address {TRUNK_MAC} type veth peer name access{number}",
        f"link set trunk{number} up",
        f"link set access{number} up",
    )


def send(frames: Iterable[bytes], device: str = "access0") -> None:
    """Sends whole Ethernet frames."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as packets:
        packets.bind((device, 0))
        for frame in frames:
            packets.send(frame)
