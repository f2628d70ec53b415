"""The hub: webhooks and their queues, in memory, served by threads of gunicorn's arbiter.

A fork copies one thread and all descriptors. So everything that the threads need is imported before the first
fork: a worker could inherit half a module. And each worker gives up the sockets that it inherited: otherwise
a receiver would not see the end of a connection.
"""

import encodings.idna  # noqa: F401 - otherwise imported when the first name is resolved
import logging
import os
import secrets
import stat
import stringprep  # noqa: F401 - as above
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

from msgspec import structs

from gateway_api.base.settings import Settings
from gateway_api.daemon.commands import Daemon
from gateway_api.daemon.events import Events
from gateway_api.hub.backlog import Backlog
from gateway_api.hub.delivery_queue import Counts, DeliveryQueue
from gateway_api.hub.destination import DeniedNetworks
from gateway_api.hub.message import WebhookMessage, message_of, test_message
from gateway_api.hub.sender import Sender
from gateway_api.version import PRODUCT, VERSION
from gateway_api.wire import hub as wire
from gateway_api.wire.contract import served
from gateway_api.wire.events import DELIVERIES
from gateway_api.wire.hub import HUB
from gateway_api.wire.varlink.client import Client
from gateway_api.wire.varlink.dispatcher import Dispatcher, Identity
from gateway_api.wire.varlink.server import Server

_log = logging.getLogger("gunicorn.error")

_IDENTITY = Identity("gateway-api", f"{PRODUCT} hub", VERSION, "urn:gateway-api")
_CALL_TIMEOUT = 3.0

MAX_WEBHOOKS = 100
#: Seconds between two checks of the deadlines of attempts.
_WATCH = 0.25


@dataclass(frozen=True)
class _Entry:
    webhook: wire.Webhook
    queue: DeliveryQueue

    def record(self) -> wire.Webhook:
        return structs.replace(self.webhook, paused_until=self.queue.paused_until)


class Registry:
    """The webhooks, and the methods of the hub's interface, whose parameters the workers have checked.
    `denied` and `certificates` are those of `Sender`."""

    def __init__(self, denied: Callable[[], Iterable[str]], certificates: str | None) -> None:
        self._denied = denied
        self._certificates = certificates
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        #: By the events that they hold.
        self._backlogs: dict[frozenset[str], Backlog] = {}
        #: The counts of removed webhooks.
        self._gone = Counts()
        #: One for each thread. The thread of a removed webhook ends with its last attempt.
        self._senders: set[Sender] = set()

    def get_counts(self, _: wire.GetCounts) -> wire.WebhookCounts:
        with self._lock:
            queues = [entry.queue for entry in self._entries.values()]
            paused = sum(queue.paused_until is not None for queue in queues)
            counts = _sum([self._gone, *(queue.counts for queue in queues)])
            return wire.WebhookCounts(len(queues), paused, sum(map(len, queues)), **vars(counts))

    def list_webhooks(self, _: wire.ListWebhooks) -> wire.WebhooksReply:
        with self._lock:
            webhooks = tuple(entry.record() for entry in self._entries.values())
        return wire.WebhooksReply(webhooks, len(webhooks))

    def get_webhook(self, call: wire.GetWebhook) -> wire.WebhookReply:
        with self._lock:
            return wire.WebhookReply(self._found(call.id).record())

    def add_webhook(self, call: wire.AddWebhook) -> wire.WebhookReply:
        webhook = wire.Webhook(f"wh_{secrets.token_hex(8)}", call.url, call.events, None)
        with self._lock:
            if len(self._entries) >= MAX_WEBHOOKS:
                raise HUB.error(wire.TooManyWebhooksError(MAX_WEBHOOKS))
            sender = Sender(call.url, call.secret, self._denied, self._certificates)
            queue = DeliveryQueue(sender.send, self._backlogs.setdefault(frozenset(call.events), Backlog()))
            try:
                threading.Thread(target=self._deliver, args=(queue, sender), daemon=True).start()
            except RuntimeError:
                # Without a thread, the queue would only grow.
                queue.close()
                raise
            self._entries[webhook.id] = _Entry(webhook, queue)
            self._senders.add(sender)
        return wire.WebhookReply(webhook)

    def remove_webhook(self, call: wire.RemoveWebhook) -> wire.WebhookReply:
        with self._lock:
            entry = self._found(call.id)
            record = entry.record()
            del self._entries[call.id]
            # Before it is counted: otherwise an attempt that ends in between would be in no sum.
            entry.queue.close()
            self._gone = _sum([self._gone, entry.queue.counts])
            return wire.WebhookReply(record)

    def list_deliveries(self, call: wire.ListDeliveries) -> wire.DeliveriesReply:
        deliveries = tuple(self.queue(call.id).log())
        return wire.DeliveriesReply(deliveries, len(deliveries))

    def test_webhook(self, call: wire.TestWebhook) -> wire.TestReply:
        message = test_message(time.time())
        self.queue(call.id).test(message)
        return wire.TestReply(message.id)

    def queue(self, id: str) -> DeliveryQueue:
        """The queue of a webhook. Raises WebhookNotFound."""
        with self._lock:
            return self._found(id).queue

    def offer(self, messages: list[WebhookMessage]) -> None:
        """Adds messages to the queues of the webhooks that have registered for their events."""
        with self._lock:
            backlogs = list(self._backlogs.items())
        for events, backlog in backlogs:
            backlog.offer(message for message in messages if message.event in events)

    def watch(self) -> None:
        """Ends attempts at their deadlines. Never returns."""
        while True:
            time.sleep(_WATCH)
            with self._lock:
                senders = list(self._senders)
            for sender in senders:
                sender.cut(time.monotonic())

    def _deliver(self, queue: DeliveryQueue, sender: Sender) -> None:
        try:
            queue.run()
        except BaseException:
            _log.critical("the deliveries of a webhook have stopped", exc_info=True)
            raise
        finally:
            with self._lock:
                self._senders.discard(sender)
            sender.close()

    def _found(self, id: str) -> _Entry:
        try:
            return self._entries[id]
        except KeyError:
            raise HUB.error(wire.WebhookNotFoundError(id)) from None


def _sum(counts: list[Counts]) -> Counts:
    return Counts(*(sum(getattr(one, field.name) for one in counts) for field in fields(Counts)))


def start(settings: Settings) -> None:
    """Starts the threads of the hub. Raises AlreadyServed and OSError."""
    # urllib3 logs invalid headers of a receiver with the whole URL.
    logging.getLogger("urllib3").setLevel(logging.CRITICAL)
    client = Client(settings.core_socket, timeout=_CALL_TIMEOUT)
    registry = Registry(DeniedNetworks(Daemon(client)), settings.webhook_certificates)
    server = Server(settings.hub_socket, Dispatcher(_IDENTITY, [served(HUB, registry)]))
    for target in (server.serve_forever, registry.watch, partial(_feed, Events(client), registry)):
        threading.Thread(target=target, daemon=True).start()


def _feed(events: Events, registry: Registry) -> None:
    while True:
        try:
            for batch in events.for_ever(time.sleep, all_held=True):
                if batch.gap:
                    _log.error("events before %s-%d are lost to the webhooks", batch.boot_id, batch.oldest)
                messages = [message_of(batch.boot_id, e) for e in batch.events if e.event in DELIVERIES]
                registry.offer(messages)
        except Exception:  # noqa: BLE001 - logged; if the thread ended, all later events would be lost
            _log.exception("events are lost to the webhooks")
            time.sleep(1)


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
            _log.debug("descriptor %d: %s", descriptor, error)
    os.close(nothing)
