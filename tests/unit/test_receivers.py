"""How a client of the core follows the receivers of webhooks."""

import threading
from itertools import islice

import pytest

from gateway_api.core.configuration import receivers
from gateway_api.core.configuration.receivers import DeclaredReceiver, ReceiversService
from gateway_api.wire.core.receivers import FollowReceivers, Receiver, ReceiversReply
from tests.support.stack import PATIENCE

ONE = DeclaredReceiver("http://127.0.0.1:9/", ("session.up",), None)
OTHER = DeclaredReceiver("http://127.0.0.1:9/other", ("session.down",), "a secret")


class Declared:
    """The receivers of a configuration, and the service that tells of them."""

    def __init__(self, *declared: DeclaredReceiver) -> None:
        self.declared = declared
        self.service = ReceiversService(lambda: self.declared)

    def commit(self, *declared: DeclaredReceiver) -> None:
        self.declared = declared
        self.service.committed(None)


def reply(*declared: DeclaredReceiver) -> ReceiversReply:
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
