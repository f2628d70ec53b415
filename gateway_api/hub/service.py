"""The hub as a part of gunicorn's arbiter: the threads that serve it.

A fork copies one thread and all descriptors. So everything that the threads need is imported before the first
fork: a worker could inherit half a module. And each worker gives up the sockets that it inherited: otherwise
a receiver would not see the end of a connection. `sender.py` keeps workers from inheriting locks of OpenSSL.
The lock of the C library's resolver is left, as no worker resolves a name.
"""

import encodings.idna  # noqa: F401 - otherwise imported when the first name is resolved
import logging
import os
import stat
import stringprep  # noqa: F401 - as above
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from gateway_api.base.core_events import Events
from gateway_api.base.retry import repeat
from gateway_api.base.settings import Settings
from gateway_api.hub.interface import HUB
from gateway_api.hub.registry import Registry
from gateway_api.hub.sender import DeniedNetworks, make_message
from gateway_contract.base.errors import CoreLacksMethod
from gateway_contract.base.logs import LOG
from gateway_contract.contract import bind_handlers
from gateway_contract.core.configuration import GetApiSettings
from gateway_contract.core_client import CoreClient
from gateway_contract.varlink.client import Client
from gateway_contract.varlink.dispatcher import Dispatcher, Identity
from gateway_contract.varlink.server import Server
from gateway_contract.version import PRODUCT, VERSION

_IDENTITY = Identity("gateway-api", f"{PRODUCT} hub", VERSION, "urn:gateway-api")
_PAUSE = 0.2
#: Seconds between two looks for the first workers.
_FORKS = 0.05


def start(settings: Settings, forked: Callable[[], bool] = lambda: True) -> None:
    """Start the threads of the hub. `forked` tells whether there are all workers. Raises AlreadyServed and
    OSError."""
    # urllib3 logs invalid headers of a receiver with the whole URL.
    logging.getLogger("urllib3").setLevel(logging.CRITICAL)
    core = CoreClient(Client(settings.core_socket))
    denied = DeniedNetworks()
    registry = Registry(denied, settings.webhook_certificates)
    server = Server(settings.hub_socket, Dispatcher(_IDENTITY, [bind_handlers(HUB, registry)]), waits=True)
    configured = threading.Event()
    for target in (
        server.serve_forever,
        registry.watch,
        partial(_configure, core, registry, denied, configured, forked),
        partial(_feed, Events(core), registry, configured),
    ):
        threading.Thread(target=target, daemon=True).start()


def _configure(
    core: CoreClient,
    registry: Registry,
    denied: DeniedNetworks,
    configured: threading.Event,
    forked: Callable[[], bool],
) -> None:
    """Follow the denied networks and the declared webhooks of the running configuration. Set the event after
    the first reply or error."""
    # Their deliveries begin at once, and a fork would wait for what they do by TLS.
    while not forked():
        time.sleep(_FORKS)

    def follow() -> Iterator[None]:
        try:
            for settings in core.follow(GetApiSettings()):
                # First: a declared webhook may be in a denied network.
                denied.known = settings.denied_networks
                registry.declare(settings.receivers)
                yield
        except CoreLacksMethod:
            denied.known = ()
            raise

    def pause(seconds: float) -> None:
        configured.set()
        time.sleep(seconds)

    fault = "the declared webhooks are not as the configuration has them"
    for _ in repeat(follow, pause, "follow the declared webhooks", LOG, seconds=_PAUSE, fault=fault):
        configured.set()


def _feed(events: Events, registry: Registry, configured: threading.Event) -> None:
    # An event that comes before the declared webhooks would be lost to them.
    configured.wait()

    def feed() -> Iterator[None]:
        for batch in events.follow_for_ever(time.sleep, all_held=True):
            # Without a webhook, nobody misses them.
            if batch.gap and len(registry):
                LOG.error("events before %s-%d are lost to the webhooks", batch.boot_id, batch.oldest)
            registry.offer([make_message(batch.boot_id, e) for e in batch.events])
            yield

    fault = "events are lost to the webhooks"
    for _ in repeat(feed, time.sleep, "follow the core's events", LOG, fault=fault):
        pass


def give_up_sockets(kept: Iterable[int]) -> None:
    """In a worker: replaces all inherited sockets by /dev/null, except these descriptors. It does not close
    them: their objects would close the descriptors again, when others have the same numbers."""
    # Under systemd, standard output and standard error are sockets.
    stay = {0, 1, 2, *kept}
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for entry in list(Path("/proc/self/fd").iterdir()):
        descriptor = int(entry.name)
        try:
            if descriptor not in stay and stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.dup2(nothing, descriptor, inheritable=False)
        except OSError as error:
            # The descriptor of the folder itself is closed by now.
            LOG.debug("descriptor %d: %s", descriptor, error)
    os.close(nothing)
