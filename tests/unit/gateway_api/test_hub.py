"""The hub's parts in one process: what may be delivered to, the registrations, and what a fork leaves."""

import logging
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from gateway_api.base.settings import Settings
from gateway_api.hub import interface as wire
from gateway_api.hub import sender as senders
from gateway_api.hub import service as hub
from gateway_api.hub import service as registries
from gateway_api.hub.interface import Hub
from gateway_api.hub.sender import WebhookMessage
from gateway_api.hub.service import Registry
from gateway_contract.base.errors import Conflict, HubUnavailable, NotFound
from gateway_contract.core.configuration import Receiver as WireReceiver
from gateway_contract.core.sessions import EventsReply
from gateway_contract.varlink.client import Client
from gateway_contract.varlink.dispatcher import Dispatcher, Identity
from gateway_contract.varlink.protocol import ErrorReply, Reply
from gateway_contract.varlink.server import AlreadyServed, Server
from tests.support.receivers import Receiver, Rude, answer, hang
from tests.support.stack import wait_for

IDENTITY = Identity("v", "p", "1", "urn:example")
BOTH = ("session.up", "session.down")
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def message(number: int = 1, event: str = "session.up") -> WebhookMessage:
    return WebhookMessage(f"life-{number}", event, b'{"number":%d}' % number)


# Errors of the hub


class Refusing:
    """A client of a hub that replies with one error, or with nothing in the reply."""

    def __init__(self, error: str | None, parameters: bytes = b"{}") -> None:
        self._reply = Reply(msgspec.Raw(parameters), error)

    def exchange(self, *_: object, **__: object) -> list[Reply]:
        return [self._reply]


@pytest.mark.parametrize(
    ("error", "parameters", "expected"),
    [
        (f"{wire.HUB.name}.WebhookNotFound", b"{}", NotFound),
        (f"{wire.HUB.name}.TooManyWebhooks", b'{"most":100}', Conflict),
        (f"{wire.HUB.name}.InternalError", b"{}", HubUnavailable),
        # A reply that breaks the contract is none.
        (None, b"{}", HubUnavailable),
    ],
)
def test_each_error_of_the_hub_is_one_of_the_api(
    error: str | None, parameters: bytes, expected: type[Exception]
) -> None:
    client = Hub(Refusing(error, parameters))  # type: ignore[arg-type]
    with pytest.raises(expected):
        client.call(wire.RemoveWebhook("wh_1"))


# The registry


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry(tuple, None)
    yield made
    for webhook in listed(made):
        remove(made, webhook)


def add(
    registry: Registry, url: str, events: tuple[str, ...] = BOTH, secret: str | None = None
) -> wire.Webhook:
    return registry.add_webhook(wire.AddWebhook(url, events, secret)).webhook


def remove(registry: Registry, webhook: wire.Webhook) -> wire.Webhook:
    return registry.remove_webhook(wire.RemoveWebhook(webhook.id)).webhook


def show(registry: Registry, webhook: wire.Webhook) -> wire.Webhook:
    return registry.get_webhook(wire.GetWebhook(webhook.id)).webhook


def listed(registry: Registry) -> list[wire.Webhook]:
    reply = registry.list_webhooks(wire.ListWebhooks())
    assert reply.count == len(reply.webhooks)
    return list(reply.webhooks)


def counts(registry: Registry) -> wire.WebhookCounts:
    return registry.get_counts(wire.GetCounts())


def count_of(**counted: int) -> wire.WebhookCounts:
    """Zero for what is not named."""
    return wire.WebhookCounts(**{**dict.fromkeys(wire.WebhookCounts.__struct_fields__, 0), **counted})


@contextmanager
def no_more_threads() -> Iterator[None]:
    """None can be started until the end of the block: there is no room for a stack of 128 TB."""
    before = threading.stack_size(1 << 47)
    try:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threading.Thread(target=int).start()
        yield
    finally:
        threading.stack_size(before)


def delivered(registry: Registry, number: int) -> bool:
    return counts(registry).delivered == number


def test_each_webhook_gets_the_events_that_it_wants(registry: Registry) -> None:
    with Receiver() as up, Receiver() as both:
        add(registry, up.url, ("session.up",))
        add(registry, both.url)
        registry.offer([message(1), message(2, "session.down"), message(3)])
        wait_for("all of them", lambda: delivered(registry, 5), 10)
        assert (up.ids, both.ids) == (["life-1", "life-3"], ["life-1", "life-2", "life-3"])


class Watched(WebhookMessage):
    """One that tells when it is gone."""


def test_a_webhook_without_a_thread_is_none_and_takes_nothing(registry: Registry) -> None:
    with Receiver() as receiver:
        with no_more_threads(), pytest.raises(RuntimeError):
            add(registry, receiver.url)
        assert listed(registry) == []
        offered = [Watched(f"life-{number}", "session.up", b"") for number in range(5000)]
        kept = [weakref.ref(one) for one in offered]
        registry.offer(list(offered))
        del offered
        assert not any(one() for one in kept)
        assert counts(registry) == count_of()
        add(registry, receiver.url)
        registry.offer([message()])
        wait_for("the message", lambda: delivered(registry, 1), 10)
        assert receiver.ids == ["life-1"]


def test_a_declared_webhook_that_stays_keeps_its_queue_and_gets_its_new_secret(registry: Registry) -> None:
    with Receiver() as one, Receiver() as other:
        registry.declare([WireReceiver(one.url, BOTH), WireReceiver(other.url, BOTH)])
        (first, second), queues = listed(registry), [registry.queue(each.id) for each in listed(registry)]
        assert (first.origin, first.url, second.url) == (wire.WebhookOrigin.DECLARED, one.url, other.url)
        # The order of its events says nothing.
        registry.declare(
            [WireReceiver(other.url, ("session.up",)), WireReceiver(one.url, BOTH[::-1], SECRET)]
        )
        assert registry.queue(first.id) is queues[0]
        assert registry.queue(second.id) is not queues[1]
        assert [(each.id, each.events) for each in listed(registry)] == [
            (first.id, BOTH),
            (second.id, ("session.up",)),
        ]
        registry.offer([message()])
        wait_for("both", lambda: delivered(registry, 2), 10)
        assert [name for name, _ in one.received[0].headers].count("webhook-signature") == 1
    registry.declare([])
    assert listed(registry) == []
    # What they delivered is still counted.
    assert delivered(registry, 2)


def test_a_declared_webhook_is_told_from_a_registered_one_of_the_same_url(registry: Registry) -> None:
    url = "http://127.0.0.1:9/"
    registered = add(registry, url)
    registry.declare([WireReceiver(url, BOTH)])
    _, declared = listed(registry)
    with pytest.raises(ErrorReply, match="WebhookDeclared"):
        remove(registry, declared)
    remove(registry, registered)
    assert listed(registry) == [declared]
    registry.declare([])


def test_a_declared_webhook_without_a_thread_comes_with_the_next_try(registry: Registry) -> None:
    receivers = [WireReceiver("http://127.0.0.1:9/", BOTH)]
    with no_more_threads(), pytest.raises(RuntimeError):
        registry.declare(receivers)
    assert listed(registry) == []
    registry.declare(receivers)
    assert len(listed(registry)) == 1
    registry.declare([])


def test_the_101st_webhook_is_refused_and_starts_nothing_until_one_goes(registry: Registry) -> None:
    added = [add(registry, "http://127.0.0.1:9/") for _ in range(100)]
    before = threading.active_count()
    with pytest.raises(ErrorReply, match="TooManyWebhooks") as refusal:
        add(registry, "http://127.0.0.1:9/")
    assert bytes(refusal.value.parameters) == b'{"most":100}'
    assert threading.active_count() == before
    assert counts(registry).webhooks == 100
    remove(registry, added[7])
    add(registry, "http://127.0.0.1:9/")
    with pytest.raises(ErrorReply, match="TooManyWebhooks"):
        add(registry, "http://127.0.0.1:9/")


def test_what_became_of_the_messages_of_removed_webhooks_stays_counted(registry: Registry) -> None:
    with Receiver() as good, Receiver(answer(500)) as bad:
        webhooks = [add(registry, receiver.url) for receiver in (good, bad, good)]
        registry.offer([message(1), message(2)])
        done = {"delivered": 4, "failed": 2}
        wait_for("the attempts", lambda: counts(registry) == count_of(webhooks=3, waiting=2, **done), 10)
        for left, webhook in zip((2, 1, 0), webhooks, strict=True):
            remove(registry, webhook)
            waiting = counts(registry).waiting
            assert counts(registry) == count_of(webhooks=left, waiting=waiting, **done)
        # What waited for its next attempt doesn't any more.
        assert waiting == 0
        add(registry, good.url)
        registry.offer([message(3)])
        wait_for("one more", lambda: delivered(registry, 5), 10)


def test_a_webhook_is_removed_once(registry: Registry) -> None:
    webhook = add(registry, "http://127.0.0.1:9/")
    assert remove(registry, webhook) == webhook
    for ask in (
        lambda: remove(registry, webhook),
        lambda: show(registry, webhook),
        lambda: registry.list_deliveries(wire.ListDeliveries(webhook.id)),
        lambda: registry.test_webhook(wire.TestWebhook(webhook.id)),
    ):
        with pytest.raises(ErrorReply, match="WebhookNotFound") as refusal:
            ask()
        assert bytes(refusal.value.parameters) == b'{"id":"%s"}' % webhook.id.encode()


def test_a_removed_webhook_gets_nothing_and_gives_up_its_thread_and_its_connection(
    registry: Registry,
) -> None:
    with Receiver() as receiver:
        before = threading.active_count()
        webhook = add(registry, receiver.url)
        registry.offer([message(1)])
        wait_for("the message", lambda: delivered(registry, 1), 10)
        queue = registry.queue(webhook.id)
        remove(registry, webhook)
        registry.offer([message(2)])
        queue.test(message(3))
        wait_for("the end of its connection", lambda: receiver.ended, 5)
        # The receiver's own threads stay: one listens, one had the connection.
        wait_for("the end of its thread", lambda: threading.active_count() <= before + 1, 5)
        assert receiver.ids == ["life-1"]


class Over(Exception):
    """There is no more time."""


@pytest.mark.parametrize("removed", [False, True])
def test_an_attempt_ends_at_its_deadline_though_its_webhook_may_be_removed(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, removed: bool
) -> None:
    with Rude(hang) as receiver:
        webhook = add(registry, receiver.url)
        registry.offer([message()])
        wait_for("the request", lambda: receiver.received, 5)
        queue = registry.queue(webhook.id)
        if removed:
            remove(registry, webhook)
        looks = Mock(sleep=Mock(side_effect=[None, Over]), monotonic=lambda: float("inf"))
        monkeypatch.setattr(registries, "time", looks)
        monkeypatch.setattr(senders, "time", looks)
        with pytest.raises(Over):
            registry.watch()
        if not removed:
            (entry,) = wait_for("the end of the attempt", queue.read_log, 5)
            assert (entry.result, entry.status, entry.error) == ("failed", None, "timeout")
        wait_for("the end of the connection", lambda: receiver.ended, 5)


# In gunicorn's arbiter


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    return Settings(tmp_path / "core.sock", tmp_path, b"secret" * 10)


def test_a_hub_does_not_start_where_another_one_answers(settings: Settings) -> None:
    server = Server(settings.hub_socket, Dispatcher(IDENTITY, []))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        before = threading.active_count()
        with pytest.raises(AlreadyServed, match=r"hub\.sock"):
            hub.start(settings)
        # A thread more may be the server's, for a look at whether it is there.
        wait_for("no thread of a hub", lambda: threading.active_count() <= before, 5)
        client = Client(settings.hub_socket, timeout=5)
        assert client.call("org.varlink.service.GetInfo")
        client.close()
    finally:
        server.close()
        thread.join(10)


def test_a_hub_does_not_start_where_a_file_stands(settings: Settings) -> None:
    settings.hub_socket.write_text("somebody's")
    before = set(threading.enumerate())
    with pytest.raises(FileExistsError):
        hub.start(settings)
    assert settings.hub_socket.read_text() == "somebody's"
    # One of an earlier test may end meanwhile.
    assert set(threading.enumerate()) <= before


# A gap in the core's events


class HubEnds(BaseException):
    """Ends a thread of the hub."""


class Gap:
    """Events of a core that was restarted, and then nothing more."""

    def follow_for_ever(self, *_: object, **__: object) -> Iterator[EventsReply]:
        yield EventsReply("life", 1, 0, True, ())
        raise HubEnds


@pytest.mark.parametrize("webhooks", [0, 1])
def test_a_gap_is_an_error_only_where_there_is_a_webhook(
    webhooks: int, caplog: pytest.LogCaptureFixture
) -> None:
    registry, declared = Registry(tuple, None), threading.Event()
    declared.set()
    call = wire.AddWebhook("http://127.0.0.1:9/", BOTH)
    ids = [registry.add_webhook(call).webhook.id for _ in range(webhooks)]
    with caplog.at_level(logging.DEBUG), pytest.raises(HubEnds):
        hub._feed(Gap(), registry, declared)  # type: ignore[arg-type]
    for id in ids:
        registry.remove_webhook(wire.RemoveWebhook(id))
    told = [(record.levelno, record.message) for record in caplog.records]
    assert told == [(logging.ERROR, "webhooks miss the events before life-1")] * webhooks
