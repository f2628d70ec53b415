"""Events for tests: a growing journal, one behind a real socket, and a core in this process."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import gevent
import msgspec

from gateway_contract.core.interface import CORE
from gateway_contract.core.sessions import EventsReply, SubscribeEvents
from gateway_contract.core.sign_ons import FailedSignOnsReply, SubscribeFailedSignOns
from gateway_contract.varlink.client import Unreachable
from gateway_contract.varlink.dispatcher import Dispatcher, Handler, Identity, ServedInterface
from gateway_contract.varlink.server import Server
from gateway_core.sessions.journal import Journal
from tests.support.records import session


def grow(journal: Journal, number: int) -> None:
    for id in range(number):
        journal.add_session_up(session(id + 1), 1.0)


def fail(journal: Journal, username: str, at: float = 1.0) -> None:
    journal.add_failed_sign_on(
        "rejected",
        at,
        type="PPPoE",
        username=username,
        mac_address=None,
        access_interface="trunk0.7",
        outer_vlan_id=None,
        inner_vlan_id=7,
        source="lab",
    )


class Core:
    """The journal of one life of a core, behind a real socket. It records where followers begin. Unless it
    `tells_failures`, it is one of an older version."""

    def __init__(self, path: Path, journal: Journal, *, tells_failures: bool) -> None:
        self.asked: list[tuple[str | None, int | None]] = []
        self._journal = journal
        methods = {"SubscribeEvents": Handler(SubscribeEvents, self._follow, streams=True)}
        if tells_failures:
            failures = Handler(SubscribeFailedSignOns, self._follow_failures, streams=True)
            methods["SubscribeFailedSignOns"] = failures
        interface = ServedInterface(CORE.name, methods, lambda: "")
        self.server = Server(path, Dispatcher(Identity("v", "p", "1", "urn:example"), [interface]))

    def _follow(self, call: SubscribeEvents) -> Iterator[EventsReply]:
        self.asked.append((call.boot_id, call.after_sequence))
        return self._journal.follow(call.boot_id, call.after_sequence)

    def _follow_failures(self, call: SubscribeFailedSignOns) -> Iterator[FailedSignOnsReply | None]:
        self.asked.append((call.boot_id, call.after_sequence))
        return self._journal.follow_failed_sign_ons(call.boot_id, call.after_sequence)


@contextmanager
def serving(path: Path, journal: Journal, *, tells_failures: bool = False) -> Iterator[Core]:
    core = Core(path, journal, tells_failures=tells_failures)
    thread = threading.Thread(target=core.server.serve_forever)
    thread.start()
    try:
        yield core
    finally:
        core.server.close()
        thread.join(10)


def numbers(batches: list[EventsReply]) -> list[int]:
    return [event.sequence for batch in batches for event in batch.events]


def no_pause(_: float) -> None:
    """Do not pause between a follower's failure and its next try."""


class InProcessCore:
    """A client of the core's socket, for `Events`. Its followers are greenlets. Without a `journal` the core
    is unavailable."""

    def __init__(self, journal: Journal | None) -> None:
        self.journal = journal
        #: The event after which each connection began.
        self.asked: list[tuple[str | None, int | None]] = []
        #: Replies per connection, and the last event that its follower has processed.
        self.given = Counter[int]()
        self.reached = Counter[int]()
        #: Open connections, and their highest number at a time.
        self.open: set[int] = set()
        self.most = 0
        #: True while a connection gets no further reply.
        self.holds: Callable[[int], bool] = lambda _: False
        #: An unexpected error that ends a connection.
        self.surprise: Exception | None = None

    def stream(self, _: str, wanted: SubscribeEvents, *, silence: float) -> Iterator[msgspec.Raw]:
        number = len(self.asked)
        self.asked.append((wanted.boot_id, wanted.after_sequence))
        self.open.add(number)
        self.most = max(self.most, len(self.open))
        try:
            for reply in self._replies(number, wanted.boot_id, wanted.after_sequence):
                self.given[number] += 1
                yield msgspec.Raw(msgspec.json.encode(reply))
        finally:
            self.open.discard(number)

    def _replies(self, number: int, boot_id: str | None, after_sequence: int | None) -> Iterator[EventsReply]:
        journal, told = self.journal, False
        while True:
            while self.holds(number):
                gevent.sleep(0.001)
            if self.surprise is not None:
                raise self.surprise
            if journal is None or journal is not self.journal:
                raise Unreachable("hung up")
            reply = next(journal.follow(boot_id, after_sequence))
            assert reply is not None
            if reply.events or reply.gap or not told:
                yield reply
                told = True
            boot_id, after_sequence = reply.boot_id, (after_sequence or 0) + len(reply.events)
            if not reply.events:
                after_sequence = reply.newest
                gevent.sleep(0.001)
            self.reached[number] = after_sequence
