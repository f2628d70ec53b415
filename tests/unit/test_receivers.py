"""How the hub follows the receivers of webhooks that the core declares."""

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import pytest

from gateway_api.base.errors import CoreUnavailable
from gateway_api.core.configuration import receivers
from gateway_api.core.configuration.receivers import ReceiversService
from gateway_api.core_client.commands import Daemon
from gateway_api.hub import service
from gateway_api.wire.configuration import ConfiguredReceiver
from gateway_api.wire.contract import Contract, served
from gateway_api.wire.core.interface import CORE
from gateway_api.wire.core.receivers import FollowReceivers, Receiver, ReceiversReply
from gateway_api.wire.varlink.client import Client
from gateway_api.wire.varlink.dispatcher import Dispatcher, Identity
from gateway_api.wire.varlink.server import Server
from tests.support.stack import PATIENCE

ONE = ConfiguredReceiver("http://127.0.0.1:9/", ("session.up",), None)
OTHER = ConfiguredReceiver("http://127.0.0.1:9/other", ("session.down",), "a secret")


class Declared:
    """The receivers of a configuration, and the service that tells of them."""

    def __init__(self, *declared: ConfiguredReceiver) -> None:
        self.declared = declared
        self.service = ReceiversService(lambda: self.declared)

    def commit(self, *declared: ConfiguredReceiver) -> None:
        self.declared = declared
        self.service.committed(None)


def reply(*declared: ConfiguredReceiver) -> ReceiversReply:
    return ReceiversReply(tuple(Receiver(one.url, one.events, one.secret) for one in declared))


def test_a_follower_gets_the_receivers_of_now_and_those_of_each_commit() -> None:
    core = Declared(ONE)
    replies = core.service.follow_receivers(FollowReceivers())
    assert next(replies) == reply(ONE)
    core.commit(ONE, OTHER)
    assert next(replies) == reply(ONE, OTHER)
    core.commit()
    assert next(replies) == reply()


def test_a_commit_wakes_a_follower_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receivers, "_WAIT", PATIENCE)
    core = Declared()
    replies = core.service.follow_receivers(FollowReceivers())
    next(replies)
    threading.Timer(0.1, core.commit, [ONE]).start()
    assert next(replies) == reply(ONE)


def test_a_reply_comes_from_time_to_time_without_a_commit() -> None:
    assert receivers._WAITS * receivers._WAIT <= 15
    core = Declared(ONE)
    core.service._has_changed = lambda _: False  # type: ignore[method-assign]
    found = list(islice(core.service.follow_receivers(FollowReceivers()), 2 + receivers._WAITS))
    assert found == [reply(ONE), *[None] * receivers._WAITS, reply(ONE)]


# In the API


@contextmanager
def served_at(path: Path, core: Declared) -> Iterator[None]:
    """A core with this method alone, at a socket."""
    contract = Contract(CORE.name, "", (FollowReceivers,), ())
    server = Server(
        path, Dispatcher(Identity("v", "p", "1", "urn:example"), [served(contract, core.service)])
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.close()
        thread.join(PATIENCE)


class Enough(BaseException):
    """Ends the thread that follows."""


class Registry:
    """The webhooks of a hub, as the configuration declares them."""

    def __init__(self) -> None:
        self.declared: queue.Queue[tuple[Receiver, ...]] = queue.Queue()
        self.is_over = False

    def declare(self, receivers: tuple[Receiver, ...]) -> None:
        self.declared.put(receivers)
        if self.is_over:
            raise Enough

    def __call__(self) -> tuple[Receiver, ...]:
        return self.declared.get(timeout=PATIENCE)


def test_the_hub_follows_a_core_over_its_restarts(tmp_path: Path) -> None:
    core, registry, declared = Declared(ONE), Registry(), threading.Event()

    def follow() -> None:
        daemon = Daemon(Client(tmp_path / "core.sock", timeout=PATIENCE))
        with suppress(Enough):
            service._declare(daemon, registry, declared, lambda: True)  # type: ignore[arg-type]

    thread = threading.Thread(target=follow)
    thread.start()
    # Without a core, too: the hub must not wait for it.
    assert declared.wait(PATIENCE)
    with served_at(tmp_path / "core.sock", core):
        assert registry() == reply(ONE).receivers
        core.commit(OTHER)
        assert registry() == reply(OTHER).receivers
    core.commit(ONE, OTHER)
    registry.is_over = True
    with served_at(tmp_path / "core.sock", core):
        assert registry() == reply(ONE, OTHER).receivers
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_core_without_the_method_is_unavailable_for_it(tmp_path: Path) -> None:
    server = Server(tmp_path / "core.sock", Dispatcher(Identity("v", "p", "1", "urn:example"), []))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with pytest.raises(CoreUnavailable, match="InterfaceNotFound"):
            next(Daemon(Client(tmp_path / "core.sock", timeout=PATIENCE)).follow(FollowReceivers()))
    finally:
        server.close()
        thread.join(PATIENCE)
