"""The process as systemd runs it: sd_notify(3) and the limit of file descriptors."""

import logging
import os
import resource
import socket
import threading
from pathlib import Path

_log = logging.getLogger(__name__)


def notify(address: str) -> None:
    """Says so at once, to the socket that `NOTIFY_SOCKET` names."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as systemd:
        systemd.sendto(b"READY=1", f"\0{address[1:]}" if address.startswith("@") else address)


class Readiness:
    """Says so when the first of several processes answers, by the one that forks them: systemd listens to
    no other. gunicorn itself says so when it listens, before there is anybody to answer."""

    def __init__(self) -> None:
        self._answering: int | None = None

    def take_over(self) -> None:
        """To be called before the first fork, and before gunicorn looks for whom to tell."""
        address = os.environ.pop("NOTIFY_SOCKET", None)
        if address is not None:
            self._answering = os.eventfd(0)
            threading.Thread(target=self._tell, args=(address, self._answering), daemon=True).start()

    def answering(self) -> None:
        """Called in a process that answers, as often as it likes."""
        if self._answering is not None:
            os.eventfd_write(self._answering, 1)
            self._answering = None

    def _tell(self, address: str, answering: int) -> None:
        os.eventfd_read(answering)
        try:
            notify(address)
        except OSError as error:
            _log.error("cannot tell systemd that requests are answered: %s", error)


#: For what else a process opens later: files, pipes, databases, connections to the core and to the hub.
_OWN = 64


def places(most: int) -> int:
    """For so many clients of a kind, or fewer where the process's limit (getrlimit(2)) leaves less room: a
    process has two kinds, those whose requests it answers and those that it streams events to. What is open
    now counts, too: a worker inherits what its parent has open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # One of them is the folder's own.
    now_open = len(list(Path("/proc/self/fd").iterdir())) - 1
    return max(1, min(most, (limit - now_open - _OWN) // 2))
