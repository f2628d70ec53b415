"""The hub, which delivers messages to webhooks, and the hub's threads in gunicorn's arbiter.

A fork copies only one thread, but all descriptors. So all modules that the threads need are imported before
the first fork: otherwise a worker could inherit a half-imported module. Each worker gives up the sockets that
it inherited: otherwise a receiver would not notice that a connection was closed. `sender.py` prevents workers
from inheriting locked locks of OpenSSL. The lock of the C library's resolver needs no protection, because
workers resolve no names.
"""

import encodings.idna  # noqa: F401 - otherwise imported when the first name is resolved
import hashlib
import logging
import os
import secrets
import stat
import stringprep  # noqa: F401 - as above
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

from msgspec import structs

from gateway_api.base.core_events import Events
from gateway_api.base.settings import Settings
from gateway_api.hub import interface as wire
from gateway_api.hub.delivery_queue import Backlog, DeliveryQueue, MessageCounts
from gateway_api.hub.interface import HUB, WebhookOrigin, WebhookState
from gateway_api.hub.sender import DeniedNetworks, Sender, WebhookMessage, make_message, make_test_message
from gateway_contract.base.errors import CoreLacksMethod
from gateway_contract.base.logs import LOG
from gateway_contract.base.retry import repeat
from gateway_contract.base.texts import PathSegment, format_path
from gateway_contract.contract import bind_handlers
from gateway_contract.core.configuration import ApiSettings, GetApiSettings, Receiver
from gateway_contract.core.sessions import EventName
from gateway_contract.core_client import CoreClient
from gateway_contract.varlink.client import Client
from gateway_contract.varlink.dispatcher import Dispatcher, Identity
from gateway_contract.varlink.server import Server
from gateway_contract.version import PRODUCT, VERSION

#: Registered webhooks. The configuration has a limit of its own for declared ones.
MAX_WEBHOOKS = 100
#: Seconds between two checks of the deadlines of attempts.
_DEADLINE_CHECK_SECONDS = 0.25


@dataclass(frozen=True)
class _RunningWebhook:
    """A webhook with its queue and its sender."""

    webhook: wire.Webhook
    queue: DeliveryQueue
    sender: Sender

    def make_record(self) -> wire.Webhook:
        """Return the record of the webhook, with the present state of its receiver."""
        paused_until, failing_since = self.queue.paused_until, self.queue.failing_since
        state = WebhookState.WELL
        if failing_since is not None:
            state = WebhookState.FAILING if paused_until is None else WebhookState.PAUSED
        return structs.replace(
            self.webhook, paused_until=paused_until, state=state, failing_since=failing_since
        )

    @property
    def is_declared(self) -> bool:
        return self.webhook.origin == WebhookOrigin.DECLARED


class Registry:
    """Registry of webhooks, which implements the methods of the hub's interface. The workers have already
    checked the parameters of each call. `denied` and `certificates` are passed to each `Sender`."""

    def __init__(self, denied: Callable[[], Iterable[str]], certificates: str | None) -> None:
        self._denied = denied
        self._certificates = certificates
        self._lock = threading.Lock()
        self._entries: dict[str, _RunningWebhook] = {}
        #: Backlogs by the events of their messages.
        self._backlogs: dict[frozenset[str], Backlog] = {}
        #: The counts of removed webhooks.
        self._removed_counts = MessageCounts()
        #: The sender of each thread. The thread of a removed webhook ends with its last attempt.
        self._senders: set[Sender] = set()

    def __len__(self) -> int:
        """Return the number of webhooks."""
        return len(self._entries)

    def get_counts(self, _: wire.GetCounts) -> wire.WebhookCounts:
        with self._lock:
            queues = [entry.queue for entry in self._entries.values()]
            paused = sum(queue.paused_until is not None for queue in queues)
            counts = _sum_counts([self._removed_counts, *(queue.counts for queue in queues)])
            return wire.WebhookCounts(len(queues), paused, sum(map(len, queues)), **vars(counts))

    def list_webhooks(self, _: wire.ListWebhooks) -> wire.WebhooksReply:
        with self._lock:
            webhooks = tuple(entry.make_record() for entry in self._entries.values())
        return wire.WebhooksReply(webhooks, len(webhooks))

    def get_webhook(self, call: wire.GetWebhook) -> wire.WebhookReply:
        with self._lock:
            return wire.WebhookReply(self._find(call.id).make_record())

    def add_webhook(self, call: wire.AddWebhook) -> wire.WebhookReply:
        webhook = wire.Webhook(f"wh_{secrets.token_hex(8)}", call.url, call.events, None)
        with self._lock:
            if sum(not entry.is_declared for entry in self._entries.values()) >= MAX_WEBHOOKS:
                raise HUB.make_error(wire.TooManyWebhooksError(MAX_WEBHOOKS))
            self._add(webhook, call.secret)
        return wire.WebhookReply(webhook)

    def remove_webhook(self, call: wire.RemoveWebhook) -> wire.WebhookReply:
        with self._lock:
            entry = self._find(call.id)
            if entry.is_declared:
                raise HUB.make_error(wire.WebhookDeclaredError(_make_path(entry.webhook.url)))
            record = entry.make_record()
            self._remove(entry)
            return wire.WebhookReply(record)

    def declare(self, receivers: Iterable[Receiver]) -> None:
        """Replace the declared webhooks after a start or a commit. A webhook with the same URL and events
        keeps its queue and state; its secret may change."""
        wanted = {_make_declared(receiver): receiver for receiver in receivers}
        with self._lock:
            declared = {entry.webhook.id: entry for entry in self._entries.values() if entry.is_declared}
            kept = {webhook.id for webhook in wanted}.intersection(
                id for id, entry in declared.items() if entry.webhook in wanted
            )
            for id, entry in declared.items():
                if id not in kept:
                    LOG.info(
                        "a webhook is no longer declared: dropped its %d waiting messages", len(entry.queue)
                    )
                    self._remove(entry)
            for webhook, receiver in wanted.items():
                if webhook.id in kept:
                    declared[webhook.id].sender.secret = receiver.secret
                else:
                    self._add(webhook, receiver.secret)

    def list_deliveries(self, call: wire.ListDeliveries) -> wire.DeliveriesReply:
        deliveries = tuple(self.queue(call.id).read_log())
        return wire.DeliveriesReply(deliveries, len(deliveries))

    def test_webhook(self, call: wire.TestWebhook) -> wire.TestReply:
        message = make_test_message(time.time())
        self.queue(call.id).test(message)
        return wire.TestReply(message.id)

    def queue(self, id: str) -> DeliveryQueue:
        """Return the queue of a webhook. Raises WebhookNotFoundError if no webhook has this id."""
        with self._lock:
            return self._find(id).queue

    def offer(self, messages: list[WebhookMessage]) -> None:
        """Add each message to the queues of the webhooks that subscribe to the event of the message."""
        with self._lock:
            backlogs = list(self._backlogs.items())
        for events, backlog in backlogs:
            backlog.offer(message for message in messages if message.event in events)

    def watch(self) -> None:
        """End delivery attempts whose deadline has passed. Never returns."""
        while True:
            time.sleep(_DEADLINE_CHECK_SECONDS)
            with self._lock:
                senders = list(self._senders)
            for sender in senders:
                sender.cut(time.monotonic())

    def _add(self, webhook: wire.Webhook, secret: str | None) -> None:
        """Add a webhook and start its thread. The caller holds the lock."""
        sender = Sender(webhook.url, secret, self._denied, self._certificates)
        queue = DeliveryQueue(sender.send, self._backlogs.setdefault(frozenset(webhook.events), Backlog()))
        try:
            threading.Thread(target=self._deliver, args=(queue, sender), daemon=True).start()
        except RuntimeError:
            # Without a thread, the queue would only grow.
            queue.close()
            raise
        self._entries[webhook.id] = _RunningWebhook(webhook, queue, sender)
        self._senders.add(sender)

    def _remove(self, entry: _RunningWebhook) -> None:
        """Remove a webhook and drop its waiting messages. The caller holds the lock."""
        del self._entries[entry.webhook.id]
        # Before it is counted: otherwise an attempt that ends in between would be in no sum.
        entry.queue.close()
        self._removed_counts = _sum_counts([self._removed_counts, entry.queue.counts])

    def _deliver(self, queue: DeliveryQueue, sender: Sender) -> None:
        try:
            queue.run()
        except BaseException:
            LOG.critical(
                "the delivery thread of a webhook failed, nothing is sent to it until the API restarts",
                exc_info=True,
            )
            raise
        finally:
            with self._lock:
                self._senders.discard(sender)
            sender.close()

    def _find(self, id: str) -> _RunningWebhook:
        try:
            return self._entries[id]
        except KeyError:
            raise HUB.make_error(wire.WebhookNotFoundError(id)) from None


def _make_declared(receiver: Receiver) -> wire.Webhook:
    """Return the declared webhook of a receiver. The id of the webhook is the same after each start, and does
    not depend on the order of the events."""
    # Not a hash of OpenSSL, whose locks a worker could inherit.
    id = f"wh_{hashlib.blake2b(receiver.url.encode(), digest_size=8).hexdigest()}"
    events = tuple(name.value for name in EventName if name in receiver.events)
    return wire.Webhook(id, receiver.url, events, None, WebhookOrigin.DECLARED)


def _make_path(url: str) -> str:
    return format_path(
        (PathSegment("api"), PathSegment("webhooks"), PathSegment("receivers"), PathSegment(url))
    )


def _sum_counts(counts: list[MessageCounts]) -> MessageCounts:
    return MessageCounts(
        *(sum(getattr(one, field.name) for one in counts) for field in fields(MessageCounts))
    )


_IDENTITY = Identity("gateway-api", f"{PRODUCT} hub", VERSION, "urn:gateway-api")
_RETRY_SECONDS = 0.2
#: Seconds between two looks for the first workers.
_FORK_POLL_SECONDS = 0.05


def start(
    settings: Settings,
    has_forked: Callable[[], bool] = lambda: True,
    use_settings: Callable[[ApiSettings], None] = lambda _: None,
) -> None:
    """Start the threads of the hub. `has_forked` returns True when all workers exist. After that,
    `use_settings` is called with the API's settings in the running configuration, and again after each
    commit. Raises AlreadyServed if another process serves the hub's socket, and OSError if the socket cannot
    be opened."""
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
        partial(_configure, core, registry, denied, configured, has_forked, use_settings),
        partial(_feed, Events(core), registry, configured),
    ):
        threading.Thread(target=target, daemon=True).start()


def _configure(
    core: CoreClient,
    registry: Registry,
    denied: DeniedNetworks,
    configured: threading.Event,
    has_forked: Callable[[], bool],
    use_settings: Callable[[ApiSettings], None],
) -> None:
    """Wait until `has_forked` returns True. Then apply the denied networks and declared webhooks of the
    running configuration, and call `use_settings`, now and after each commit. Set the event `configured`
    after the core's first reply or an error."""
    # Deliveries to declared webhooks begin at once, and a fork would wait for their calls of OpenSSL.
    while not has_forked():
        time.sleep(_FORK_POLL_SECONDS)

    def follow() -> Iterator[None]:
        try:
            for settings in core.follow(GetApiSettings()):
                # First: a declared webhook may be in a denied network.
                denied.known = settings.denied_networks
                registry.declare(settings.receivers)
                use_settings(settings)
                yield
        except CoreLacksMethod:
            denied.known = ()
            raise

    def pause(seconds: float) -> None:
        configured.set()
        time.sleep(seconds)

    fault = "the declared webhooks may differ from the running configuration"
    for _ in repeat(follow, pause, "follow the declared webhooks", LOG, seconds=_RETRY_SECONDS, fault=fault):
        configured.set()


def _feed(events: Events, registry: Registry, configured: threading.Event) -> None:
    # An event that comes before the declared webhooks would be lost to them.
    configured.wait()

    def feed() -> Iterator[None]:
        for batch in events.follow_for_ever(time.sleep, with_all_held=True):
            # Without a webhook, nobody misses the events.
            if batch.gap and len(registry):
                LOG.error("webhooks miss the events before %s-%d", batch.boot_id, batch.oldest)
            registry.offer([make_message(batch.boot_id, e) for e in batch.events])
            yield

    fault = "unexpected error in the feed of the webhooks, webhooks may miss events"
    for _ in repeat(feed, time.sleep, "follow the core's events", LOG, fault=fault):
        pass


def give_up_sockets(kept: Iterable[int]) -> None:
    """Replace each socket that a worker inherited with /dev/null, except the descriptors in `kept`. The
    inherited sockets are not closed: the Python objects of these sockets would later close the same
    descriptor numbers again, when other files have these numbers."""
    # Under systemd, standard output and standard error are sockets.
    kept_descriptors = {0, 1, 2, *kept}
    null_device = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for entry in list(Path("/proc/self/fd").iterdir()):
        descriptor = int(entry.name)
        try:
            if descriptor not in kept_descriptors and stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.dup2(null_device, descriptor, inheritable=False)
        except OSError as error:
            # The descriptor of the folder itself is closed by now.
            LOG.debug(
                "cannot replace the inherited descriptor %d, it may be closed already: %s", descriptor, error
            )
    os.close(null_device)
