"""Network devices of the machine, by name."""

import socket


def is_device(name: str) -> bool:
    """In the network namespace of the calling thread."""
    try:
        socket.if_nametoindex(name)
    except OSError:
        return False
    return True
