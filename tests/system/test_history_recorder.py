"""The history of a running gateway: its recorder in every worker, and searches of several users at a time."""

import os
import random
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from gateway_api.base.core_events import Events
from gateway_api.history.reader import Reader
from gateway_api.history.sessions import HistoryFilter, find_sessions
from gateway_api.history.sign_ons import SignOnFilter, find_failed_sign_ons
from gateway_contract.contract import Page
from gateway_contract.core.sessions import EventName, SessionEvent
from gateway_contract.core.sign_ons import FailedSignOn, SubscribeFailedSignOns
from gateway_contract.core_client import CoreClient
from gateway_contract.history import FailedSignOns, PastSession
from gateway_contract.varlink.client import Client
from tests.support.histories import crowd
from tests.support.pools import Here
from tests.support.stack import Api, children, make_state, running_api, running_core, running_stack, wait_for


def all_of(path: Path) -> list[PastSession]:
    """All sessions of a history, the newest first."""
    reader, found, cursor = Reader(path, Here()), [], None
    while True:
        page = reader.search(find_sessions, HistoryFilter(), Page(1000, cursor))
        found += page.records
        cursor = page.next_cursor
        if cursor is None:
            return found


def failures_in(path: Path) -> list[FailedSignOns]:
    """All failed sign-ons of a history."""
    return Reader(path, Here()).search(find_failed_sign_ons, SignOnFilter(), Page(10_000)).records


def recorded_up_to(path: Path, place: str = "place") -> int:
    """The number of the last event in a history, or of the last failed sign-on; 0 without one."""
    try:
        with closing(sqlite3.connect(path)) as connection:
            (row,) = connection.execute(f"SELECT sequence FROM {place}").fetchall() or [(0,)]
    except sqlite3.OperationalError:
        return 0
    return int(row[0])


@dataclass
class Truth:
    """What a follower of the core's events sees for itself."""

    ends: dict[int, SessionEvent] = field(default_factory=dict)
    newest: int = 0
    failures: list[FailedSignOn] = field(default_factory=list)

    def follow(self, socket: Path) -> None:
        """Until the core ends."""
        events = Events(CoreClient(Client(socket, timeout=10)))
        try:
            for batch in events.follow_after(None, 0):
                assert not batch.gap
                for event in batch.events:
                    if event.event == EventName.DOWN:
                        self.ends[event.id] = event
                    self.newest = event.sequence
        except Exception:  # noqa: BLE001 - the core has ended
            return

    def follow_failures(self, socket: Path) -> None:
        """Until the core ends."""
        try:
            for batch in CoreClient(Client(socket, timeout=10)).follow(SubscribeFailedSignOns(None, 0)):
                assert not batch.gap
                self.failures += batch.failures
        except Exception:  # noqa: BLE001 - the core has ended
            return


def followed(socket: Path) -> Truth:
    truth = Truth()
    for follow in (truth.follow, truth.follow_failures):
        threading.Thread(target=follow, args=(socket,), daemon=True).start()
    return truth


def end_of(one: SessionEvent | PastSession | None) -> tuple[Any, ...]:
    """The same of an event and of a record."""
    if one is None:
        return ()
    at = one.at if isinstance(one, SessionEvent) else one.ended_at
    counters = one.bytes_in, one.bytes_out, one.packets_in, one.packets_out
    return one.id, one.username, one.ip_address, at, one.reason, *counters


@dataclass
class Made:
    """Where a core of its own listens, and the state of an API."""

    socket: Path
    state: Path

    @property
    def history(self) -> Path:
        return self.state / "history.sqlite"

    @contextmanager
    def core(self, sessions: int, arrivals: float, seed: int = 1) -> Iterator[Truth]:
        arguments = ("--sessions", str(sessions), "--arrivals", str(arrivals), "--seed", str(seed))
        with running_core(self.socket, self.state / "factory.json", *arguments):
            yield followed(self.socket)

    @contextmanager
    def api(self) -> Iterator[int]:
        """The process id of the arbiter."""
        before = set(children(os.getpid()))
        with running_api(self.socket, self.state):
            (arbiter,) = set(children(os.getpid())) - before
            yield arbiter

    def wait_for_all(self, truth: Truth) -> None:
        newest, failed = truth.newest, len(truth.failures)
        wait_for("the history", lambda: recorded_up_to(self.history) >= newest, 120)
        wait_for("the failures", lambda: recorded_up_to(self.history, "sign_on_place") >= failed, 120)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    make_state(tmp_path / "state")
    (tmp_path / "state" / "secret").write_text("0" * 64)
    (tmp_path / "core").mkdir()
    return Made(tmp_path / "core" / "core.sock", tmp_path / "state")


def test_each_session_and_failed_sign_on_is_there_once_whichever_process_is_killed(made: Made) -> None:
    dice = random.Random(7)
    with made.core(sessions=1500, arrivals=150) as truth:
        for _ in range(3):
            with made.api() as arbiter:
                for _ in range(7):
                    wait_for("a worker", lambda: children(arbiter))
                    os.kill(dice.choice(children(arbiter)), signal.SIGKILL)
                    reached = truth.newest + dice.randrange(1, 100)
                    wait_for("events", lambda: truth.newest >= reached)
                os.kill(arbiter, signal.SIGKILL)
            # Sessions end while no API runs, too.
            reached = truth.newest + 100
            wait_for("events", lambda: truth.newest >= reached)
        with made.api():
            wait_for("sessions", lambda: len(truth.ends) >= 2000)
            made.wait_for_all(truth)
        ends = list(truth.ends.values())[:2000]
        number = recorded_up_to(made.history, "sign_on_place")
        kept = Counter[tuple[str | None, str, str]]()
        for one in failures_in(made.history):
            kept[one.username, one.access_interface, one.reason] += one.attempts
        wait_for("the failures", lambda: len(truth.failures) >= number)
    sessions = all_of(made.history)
    found = {one.id: one for one in sessions}
    assert len(found) == len(sessions)
    assert [end for end in ends if end_of(found.get(end.id)) != end_of(end)] == []
    told = Counter((one.username, one.access_interface, one.reason) for one in truth.failures[:number])
    assert len(told) > 10
    assert kept == told


def test_after_another_run_of_the_core_the_ends_of_former_sessions_are_not_invented(made: Made) -> None:
    with made.api():
        with made.core(sessions=30, arrivals=0):
            wait_for("the sessions", lambda: made.history.exists() and len(all_of(made.history)) == 30)
        # Of another seed: within a second, the same sessions would start at the same time.
        with made.core(sessions=20, arrivals=0, seed=2):
            wait_for("the other sessions", lambda: len(all_of(made.history)) == 50)
    found = all_of(made.history)
    gone = [one for one in found if one.ended_before is not None]
    assert (len(gone), len([one for one in found if one.ended_before is None])) == (30, 20)
    for one in gone:
        assert one.ended_at is None
        assert one.reason is None
        assert one.started_at <= one.ended_after <= one.ended_before
    log = (made.state / "api.log").read_text()
    assert "core restarted: 30 sessions ended meanwhile, end times unknown" in log


def test_a_history_that_is_removed_begins_again_with_the_sessions_that_are_up(made: Made) -> None:
    with made.core(sessions=20, arrivals=10), made.api():
        wait_for("sessions", lambda: made.history.exists() and len(all_of(made.history)) >= 20)
        for path in made.state.glob("history.sqlite*"):
            path.unlink()
        wait_for("sessions again", lambda: made.history.exists() and recorded_up_to(made.history) > 0)
        assert len(all_of(made.history)) >= 20


#: It has no match, so it reads all.
DIGGING = "/subscribers/history?search=1&reason=none&limit=100"
NEWEST = "/subscribers/history?limit=20"
DIGGERS = 12


class Diggers:
    """Clients of one user that search again and again."""

    def __init__(self, api: Api) -> None:
        self._environment = api.environment
        self._token = api.token("operator")
        self._stopped = threading.Event()
        self.statuses: Counter[int] = Counter()

    def _dig(self) -> None:
        api = Api(self._environment)
        while not self._stopped.is_set():
            self.statuses[api.send("GET", DIGGING, token=self._token).status_code] += 1

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self._stopped.clear()
        threads = [threading.Thread(target=self._dig, daemon=True) for _ in range(DIGGERS)]
        for thread in threads:
            thread.start()
        try:
            already = self.statuses.total()
            wait_for("the first searches to end", lambda: self.statuses.total() > already)
            yield
        finally:
            self._stopped.set()
            for thread in threads:
                thread.join(30)


def taken(api: Api) -> float:
    """The median of the seconds that the newest sessions take."""
    times = []
    for _ in range(30):
        began = time.perf_counter()
        found = api.get(NEWEST, "admin")
        times.append(time.perf_counter() - began)
        assert found["count"] == 20
    return median(times)


def test_the_newest_take_at_most_ten_times_as_long_beside_many_searches_of_another_user(
    tmp_path: Path,
) -> None:
    state = tmp_path / "run"
    with running_stack(state):
        pass
    crowd(state / "history.sqlite", 400_000, int(time.time()))
    with running_stack(state) as (api, _):
        diggers, ratios = Diggers(api), []
        taken(api)
        for _ in range(5):
            alone = taken(api)
            with diggers.at_work():
                ratios.append(taken(api) / alone)
        assert median(ratios) <= 10, (ratios, diggers.statuses)
        assert set(diggers.statuses) <= {200, 503}
