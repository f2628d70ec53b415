"""Tells systemd that a service is up (sd_notify(3)), where a unit has `Type=notify`."""

import logging
import os
import socket
import threading

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
