"""The webhooks of the hub, and the methods of its interface."""

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields

from msgspec import structs

from gateway_api.hub import interface as wire
from gateway_api.hub.delivery_queue import Backlog, Counts, DeliveryQueue
from gateway_api.hub.interface import HUB, WebhookOrigin, WebhookState
from gateway_api.hub.sender import Sender, WebhookMessage, make_test_message
from gateway_contract.base.logs import LOG
from gateway_contract.base.texts import PathSegment, format_path
from gateway_contract.core.configuration import Receiver
from gateway_contract.core.sessions import EventName

#: Of those that are registered. The configuration has a limit of its own.
MAX_WEBHOOKS = 100
#: Seconds between two checks of the deadlines of attempts.
_WATCH = 0.25


@dataclass(frozen=True)
class _Entry:
    webhook: wire.Webhook
    queue: DeliveryQueue
    sender: Sender

    def record(self) -> wire.Webhook:
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
    """The parameters of calls are those that the workers have checked. `denied` and `certificates` are those
    of `Sender`."""

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

    def __len__(self) -> int:
        """Return the number of webhooks."""
        return len(self._entries)

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
            if sum(not entry.is_declared for entry in self._entries.values()) >= MAX_WEBHOOKS:
                raise HUB.error(wire.TooManyWebhooksError(MAX_WEBHOOKS))
            self._add(webhook, call.secret)
        return wire.WebhookReply(webhook)

    def remove_webhook(self, call: wire.RemoveWebhook) -> wire.WebhookReply:
        with self._lock:
            entry = self._found(call.id)
            if entry.is_declared:
                raise HUB.error(wire.WebhookDeclaredError(_path(entry.webhook.url)))
            record = entry.record()
            self._remove(entry)
            return wire.WebhookReply(record)

    def declare(self, receivers: Iterable[Receiver]) -> None:
        """Make these the declared webhooks, after a start or commit. One with the same URL and events keeps
        its queue and its state; its secret may change."""
        wanted = {_declared(receiver): receiver for receiver in receivers}
        with self._lock:
            declared = {entry.webhook.id: entry for entry in self._entries.values() if entry.is_declared}
            kept = {webhook.id for webhook in wanted}.intersection(
                id for id, entry in declared.items() if entry.webhook in wanted
            )
            for id, entry in declared.items():
                if id not in kept:
                    LOG.info("a webhook is not declared any more: %d messages are dropped", len(entry.queue))
                    self._remove(entry)
            for webhook, receiver in wanted.items():
                if webhook.id in kept:
                    declared[webhook.id].sender.secret = receiver.secret
                else:
                    self._add(webhook, receiver.secret)

    def list_deliveries(self, call: wire.ListDeliveries) -> wire.DeliveriesReply:
        deliveries = tuple(self.queue(call.id).log())
        return wire.DeliveriesReply(deliveries, len(deliveries))

    def test_webhook(self, call: wire.TestWebhook) -> wire.TestReply:
        message = make_test_message(time.time())
        self.queue(call.id).test(message)
        return wire.TestReply(message.id)

    def queue(self, id: str) -> DeliveryQueue:
        """Return the queue of a webhook. Raises WebhookNotFoundError."""
        with self._lock:
            return self._found(id).queue

    def offer(self, messages: list[WebhookMessage]) -> None:
        """Add messages to the queues of the webhooks that want their events."""
        with self._lock:
            backlogs = list(self._backlogs.items())
        for events, backlog in backlogs:
            backlog.offer(message for message in messages if message.event in events)

    def watch(self) -> None:
        """End attempts at their deadlines. Never returns."""
        while True:
            time.sleep(_WATCH)
            with self._lock:
                senders = list(self._senders)
            for sender in senders:
                sender.cut(time.monotonic())

    def _add(self, webhook: wire.Webhook, secret: str | None) -> None:
        """With the lock."""
        sender = Sender(webhook.url, secret, self._denied, self._certificates)
        queue = DeliveryQueue(sender.send, self._backlogs.setdefault(frozenset(webhook.events), Backlog()))
        try:
            threading.Thread(target=self._deliver, args=(queue, sender), daemon=True).start()
        except RuntimeError:
            # Without a thread, the queue would only grow.
            queue.close()
            raise
        self._entries[webhook.id] = _Entry(webhook, queue, sender)
        self._senders.add(sender)

    def _remove(self, entry: _Entry) -> None:
        """With the lock."""
        del self._entries[entry.webhook.id]
        # Before it is counted: otherwise an attempt that ends in between would be in no sum.
        entry.queue.close()
        self._gone = _sum([self._gone, entry.queue.counts])

    def _deliver(self, queue: DeliveryQueue, sender: Sender) -> None:
        try:
            queue.run()
        except BaseException:
            LOG.critical("the deliveries of a webhook have stopped", exc_info=True)
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


def _declared(receiver: Receiver) -> wire.Webhook:
    """Its id is the same after each start, and it is the same whatever the order of the events."""
    # Not a hash of OpenSSL, whose locks a worker could inherit.
    id = f"wh_{hashlib.blake2b(receiver.url.encode(), digest_size=8).hexdigest()}"
    events = tuple(name.value for name in EventName if name in receiver.events)
    return wire.Webhook(id, receiver.url, events, None, WebhookOrigin.DECLARED)


def _path(url: str) -> str:
    return format_path(
        (PathSegment("api"), PathSegment("webhooks"), PathSegment("receivers"), PathSegment(url))
    )


def _sum(counts: list[Counts]) -> Counts:
    return Counts(*(sum(getattr(one, field.name) for one in counts) for field in fields(Counts)))
