"""The hub in gunicorn's arbiter: threads beside the one that forks the workers.

A fork copies one thread and all descriptors, so two things hold. All that the threads need is imported
before the first fork, or a worker could inherit half a module. And a worker lays /dev/null over the
sockets that it inherited, or a receiver would never see one of them end.
"""

import encodings.idna  # noqa: F401 - imported by the first name that is looked up, if not here
import logging
import os
import stat
import stringprep  # noqa: F401 - as above
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from gateway_api.base.errors import GatewayApiError
from gateway_api.base.settings import Settings
from gateway_api.daemon.commands import Daemon
from gateway_api.daemon.events import Events
from gateway_api.hub.destination import Denied
from gateway_api.hub.message import message_of
from gateway_api.hub.registry import Registry
from gateway_api.hub.service import IDENTITY, HubService
from gateway_api.wire.varlink.client import Client
from gateway_api.wire.varlink.dispatcher import Dispatcher
from gateway_api.wire.varlink.server import Server

_log = logging.getLogger("gunicorn.error")

_CALL_TIMEOUT = 3.0
#: Seconds for which the denied networks of a moment are those of the next.
_REMEMBERED = 1.0


class DeniedNetworks:
    """What the running configuration says of where nothing is delivered to, or said last. Before it has ever
    been asked, everything is Denied."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._known: tuple[str, ...] | None = None
        self._asked = float("-inf")
        self._asking = threading.Lock()

    def __call__(self) -> Iterable[str]:
        with self._asking:
            if time.monotonic() - self._asked > _REMEMBERED:
                self._ask()
        if self._known is None:
            raise Denied("which networks are denied is not known yet")
        return self._known

    def _ask(self) -> None:
        try:
            self._known = self._daemon.denied_networks()
        except GatewayApiError as error:
            _log.warning("cannot ask which networks are denied: %s", error)
        # Of a core that hangs, too: an attempt has ten seconds in all.
        self._asked = time.monotonic()


def start(settings: Settings) -> None:
    """Starts the hub's threads. Raises AlreadyServed and OSError."""
    # It warns of a receiver's broken headers with the whole URL.
    logging.getLogger("urllib3").setLevel(logging.CRITICAL)
    client = Client(settings.core_socket, timeout=_CALL_TIMEOUT)
    registry = Registry(DeniedNetworks(Daemon(client)), settings.webhook_certificates)
    server = Server(settings.hub_socket, Dispatcher(IDENTITY, [HubService(registry).interface()]))
    for target in (server.serve_forever, registry.watch):
        threading.Thread(target=target, daemon=True).start()
    threading.Thread(target=_feed, args=(Events(client), registry), daemon=True).start()


def forget(kept: Iterable[int]) -> None:
    """In a worker: lets go of every socket that it inherited, but for these descriptors. Not by closing
    them: the objects that they belong to would close them again, when others have got their numbers."""
    # With systemd, what a process says goes to a socket.
    stay = {0, 1, 2, *kept}
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for entry in list(Path("/proc/self/fd").iterdir()):
        descriptor = int(entry.name)
        try:
            if descriptor not in stay and stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.dup2(nothing, descriptor, inheritable=False)
        except OSError as error:
            # The folder's own descriptor is gone by now.
            _log.debug("descriptor %d: %s", descriptor, error)
    os.close(nothing)


def _feed(events: Events, registry: Registry) -> None:
    while True:
        try:
            for batch in events.for_ever(time.sleep, all_held=True):
                if batch.gap:
                    _log.error("events before %s-%d are lost to the webhooks", batch.boot_id, batch.oldest)
                registry.offer([message_of(batch.boot_id, event) for event in batch.events])
        except Exception:  # noqa: BLE001 - logged
            # A thread that ended would take every event to come with it.
            _log.exception("events are lost to the webhooks")
            time.sleep(1)
