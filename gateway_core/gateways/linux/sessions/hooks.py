"""Socket at which the hooks of pppd and dnsmasq report that something has changed."""

import errno
import os
import socket
import stat
import threading
from pathlib import Path
from typing import Self

#: A datagram only brings the next poll of the sources forward. The units and `packaging/pppoe` name the same
#: path.
TRIGGER_SOCKET = Path("/run/gateway-core/trigger")

#: Bounds of one batch: senders without end get no more of the processor. The kernel holds some more
#: datagrams, and drops none: hooks wait, or leave it to the next poll.
_MAX_DATAGRAMS_PER_BATCH, _PAUSE_SECONDS = 1024, 0.02


class HookSocket:
    """Unix datagram socket for every user of the machine: dnsmasq runs as another one. The content of a
    datagram is ignored. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = _bind(path)
        self._stopped = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def wait(self) -> bool:
        """Wait until hooks have sent something. Return False after `stop`."""
        if self._stopped.wait(_PAUSE_SECONDS):
            return False
        self._socket.recv(1)
        for _ in range(_MAX_DATAGRAMS_PER_BATCH):
            try:
                self._socket.recv(1, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
        return not self._stopped.is_set()

    def stop(self) -> None:
        """End `wait`, from any thread."""
        self._stopped.set()
        self._socket.shutdown(socket.SHUT_RD)


def _bind(path: Path) -> socket.socket:
    """Return a socket in place of the one that an earlier process left. Raises FileExistsError for any other
    file."""
    if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
        raise FileExistsError(errno.EEXIST, "is there and is no socket", str(path))
    # Renamed when it is ready: a hook must always find a socket.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        receiver.bind(str(draft))
        # Not by the umask, which is that of all threads.
        draft.chmod(0o666)
        draft.rename(path)
    except BaseException:
        receiver.close()
        draft.unlink(missing_ok=True)
        raise
    return receiver
