"""The socket at which the hooks of pppd and dnsmasq say that something has changed."""

import errno
import os
import select
import socket
import stat
from pathlib import Path
from typing import Self

#: A datagram only brings the next look at the sources forward. The units and `packaging/pppoe` name the same
#: place.
TRIGGER = Path("/run/gateway-core/trigger")

#: Datagrams in one batch, and the seconds of rest after each: senders without end get no more of the
#: processor. The kernel holds some more, and drops none: hooks wait, or leave it to the next poll.
_AT_ONCE = 1024
_REST = 0.02


class HookSocket:
    """A Unix datagram socket for every user of the machine: dnsmasq is another one. What a datagram holds is
    ignored. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = _bound(path)
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._stopped = select.poll()
        self._stopped.register(self._stop, select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        os.close(self._stop)
        self._path.unlink(missing_ok=True)

    def wait(self) -> bool:
        """Wait until hooks have sent something. False after `stop`."""
        if self._stopped.poll(_REST * 1000):
            return False
        ready = select.poll()
        ready.register(self._socket, select.POLLIN)
        ready.register(self._stop, select.POLLIN)
        ready.poll()
        for _ in range(_AT_ONCE):
            try:
                self._socket.recv(1)
            except BlockingIOError:
                break
        return not self._stopped.poll(0)

    def stop(self) -> None:
        """End `wait`, from any thread."""
        os.eventfd_write(self._stop, 1)


def _bound(path: Path) -> socket.socket:
    """In place of the socket that an earlier process left. Raises FileExistsError for any other file."""
    if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
        raise FileExistsError(errno.EEXIST, "is there and is no socket", str(path))
    # Bound aside: a hook must find one of both.
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        receiver.bind(str(aside))
        # Not by the umask, which is that of all threads.
        aside.chmod(0o666)
        aside.rename(path)
    except BaseException:
        receiver.close()
        aside.unlink(missing_ok=True)
        raise
    return receiver
