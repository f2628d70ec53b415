"""The registrations, each with a queue; in memory, for as long as the API runs."""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields

from gateway_api.base.errors import GatewayApiError, NotFound
from gateway_api.hub.backlog import Backlog
from gateway_api.hub.delivery_queue import Counts, DeliveryQueue
from gateway_api.hub.message import WebhookMessage
from gateway_api.hub.sender import Sender

_log = logging.getLogger(__name__)

MOST = 100
_WATCH = 0.25


class Full(GatewayApiError):
    """There are as many webhooks as there may be."""


@dataclass(frozen=True)
class Registration:
    """`events` are the names that it wants; `secret` signs what it gets."""

    id: str
    url: str
    events: tuple[str, ...]
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class _Entry:
    webhook: Registration
    sender: Sender
    queue: DeliveryQueue


class Registry:
    """`denied` gives networks that nothing is delivered to, besides those that never are; `certificates` is
    as for `Sender`."""

    def __init__(self, denied: Callable[[], Iterable[str]], certificates: str | None) -> None:
        self._denied = denied
        self._certificates = certificates
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        #: By the events that are wanted.
        self._backlogs: dict[frozenset[str], Backlog] = {}
        self._gone = Counts()
        #: Those whose threads run, the ones of removed webhooks in their last attempt included.
        self._senders: set[Sender] = set()

    def add(self, url: str, events: tuple[str, ...], secret: str | None) -> Registration:
        """Registers a receiver. Raises Full."""
        webhook = Registration(f"wh_{secrets.token_hex(8)}", url, events, secret)
        with self._lock:
            if len(self._entries) >= MOST:
                raise Full(f"There are {MOST} webhooks, which is the most there may be")
            sender = Sender(url, secret, self._denied, self._certificates)
            queue = DeliveryQueue(sender.send, self._backlogs.setdefault(frozenset(events), Backlog()))
            try:
                threading.Thread(target=self._deliver, args=(queue, sender), daemon=True).start()
            except RuntimeError:
                # Nothing would ever deliver what the queue takes.
                queue.close()
                raise
            self._entries[webhook.id] = _Entry(webhook, sender, queue)
            self._senders.add(sender)
        return webhook

    def remove(self, id: str) -> tuple[Registration, float | None]:
        """Ends a registration at once, and returns it as `webhook` does; an attempt under way is its last.
        Raises NotFound."""
        with self._lock:
            entry = self._found(id)
            removed = entry.webhook, entry.queue.paused_until
            del self._entries[id]
            # Before it is counted: an attempt that ends in between would be in no sum.
            entry.queue.close()
            self._gone = _sum([self._gone, entry.queue.counts])
            return removed

    def webhooks(self) -> list[tuple[Registration, float | None]]:
        """All of them, the oldest first, each with until when it is paused, as `DeliveryQueue`."""
        with self._lock:
            return [(entry.webhook, entry.queue.paused_until) for entry in self._entries.values()]

    def webhook(self, id: str) -> tuple[Registration, float | None]:
        """One of them, likewise. Raises NotFound."""
        with self._lock:
            entry = self._found(id)
            return entry.webhook, entry.queue.paused_until

    def queue(self, id: str) -> DeliveryQueue:
        """Raises NotFound."""
        with self._lock:
            return self._found(id).queue

    def offer(self, messages: list[WebhookMessage]) -> None:
        """Gives every queue the messages that its webhook wants."""
        with self._lock:
            backlogs = list(self._backlogs.items())
        for events, backlog in backlogs:
            backlog.offer(message for message in messages if message.event in events)

    def counts(self) -> tuple[int, int, int, Counts]:
        """How many webhooks there are, how many of them are paused, how many messages wait, and what became
        of the others."""
        with self._lock:
            queues = [entry.queue for entry in self._entries.values()]
            paused = sum(queue.paused_until is not None for queue in queues)
            counts = _sum([self._gone, *(queue.counts for queue in queues)])
            return len(queues), paused, sum(map(len, queues)), counts

    def watch(self) -> None:
        """Ends attempts at their deadlines, for ever."""
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
            # It would be a queue that swallows what it is given.
            _log.critical("a webhook's deliveries have stopped", exc_info=True)
            raise
        finally:
            with self._lock:
                self._senders.discard(sender)
            sender.close()

    def _found(self, id: str) -> _Entry:
        try:
            return self._entries[id]
        except KeyError:
            raise NotFound("No such webhook") from None


def _sum(counts: list[Counts]) -> Counts:
    return Counts(*(sum(getattr(one, field.name) for one in counts) for field in fields(Counts)))
