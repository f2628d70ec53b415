"""Any order of what sources, disks and restarts of the core do: each session has one start and one end in all
journals together, but for the two moments of a kill that `lifecycle` names."""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway_api.base.errors import StepFailed
from gateway_api.core.gateways.linux.sessions.session_store import STORE, SessionKey, SessionStore
from gateway_api.core.sessions.journal import Journal
from gateway_api.core.sessions.session import Counters
from gateway_api.wire.core.sessions import SessionSummary
from tests.support.sources import ListedSource, Lives, listed

#: Whatever syncs is fast where nothing has a disk below it.
MEMORY = Path("/dev/shm")
FOLDERS = MEMORY if os.access(MEMORY, os.W_OK) else None


class Killed(BaseException):
    """As by SIGKILL: nothing that follows in the core is done."""


class Disk(SessionStore):
    """Fails as it is told, before or after it has written. `step` is called before and after each write."""

    def __init__(self, folder: Path, step: Callable[[], None]) -> None:
        super().__init__(folder)
        self._step = step
        self.fails = ""
        #: What is in the journal, but not on disk: the event and the key of each.
        self.unsettled: set[tuple[str, SessionKey]] = set()

    def claim(self, records: Mapping[SessionKey, bytes]) -> dict[SessionKey, int]:
        return self._write(lambda: super(Disk, self).claim(records))

    def settle(
        self,
        *,
        announced: Iterable[SessionKey] = (),
        records: Mapping[SessionKey, bytes] | None = None,
        released: Iterable[SessionKey] = (),
    ) -> None:
        def write() -> None:
            super(Disk, self).settle(announced=announced, records=records, released=released)
            done = {("up", key) for key in (*announced, *released)}
            self.unsettled -= done | {("down", key) for key in released}

        self._write(write)

    def _write(self, write: Callable[[], Any]) -> Any:
        self._step()
        if self.fails == "before":
            raise StepFailed(STORE, "no disk")
        written = write()
        self._step()
        if self.fails == "after":
            raise StepFailed(STORE, "no disk, as it seems")
        return written


class Told(Journal):
    """Tells of each event, before and after it is there."""

    def __init__(self, step: Callable[[], None], add: Callable[[str, int], None]) -> None:
        super().__init__("life")
        self._step = step
        self._tell = add

    def session_up(self, session: SessionSummary, at: float) -> None:
        self._step()
        super().session_up(session, at)
        self._tell("up", session.id)
        self._step()

    def session_down(self, session: SessionSummary, reason: str, at: float, counters: Counters) -> None:
        self._step()
        super().session_down(session, reason, at, counters)
        self._tell("down", session.id)
        self._step()


class KilledLives(Lives):
    def __init__(self, folder: Path, *sources: ListedSource) -> None:
        self.steps = 0
        self.told: list[tuple[str, int]] = []
        #: How often an event may be there again.
        self.excused: Counter[tuple[str, int]] = Counter()
        super().__init__(folder, *sources)

    def made(self) -> tuple[SessionStore, Journal]:
        self.disk = Disk(self.folder, self._step)
        return self.disk, Told(self._step, self._tell)

    def restart(self) -> None:
        ids = {key: row.id for key, row in self.disk.known().items()}
        self.excused.update((event, ids[key]) for event, key in self.disk.unsettled)
        super().restart()

    def _step(self) -> None:
        self.steps -= 1
        if self.steps == 0:
            raise Killed

    def _tell(self, event: str, id: int) -> None:
        self.told.append((event, id))
        self.disk.unsettled.add((event, next(key for key, row in self.disk.known().items() if row.id == id)))


class AnyLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(mkdtemp(dir=FOLDERS))
        self.sources = (ListedSource("accel-ppp"), ListedSource("pppoe-server"))
        self.lives = KilledLives(self.folder, *self.sources)
        self.numbers = count(1)
        #: The keys that each source listed when the core had polled it to the end.
        self.seen: set[SessionKey] = set()

    @rule(source=st.integers(0, 1), number=st.integers(1, 3))
    def come(self, source: int, number: int) -> None:
        # The two sources have the same keys.
        self.sources[source].up(*(listed(f"{next(self.numbers) // 2}") for _ in range(number)))

    @rule(source=st.integers(0, 1), place=st.integers(0, 3))
    def go(self, source: int, place: int) -> None:
        for key in list(self.sources[source].listed)[place : place + 2]:
            self.sources[source].down(key, "user_request")

    @rule(source=st.integers(0, 1), address=st.sampled_from(["100.64.7.7", None]))
    def change(self, source: int, address: str | None) -> None:
        for key in list(self.sources[source].listed)[:2]:
            self.sources[source].up(listed(key, ip_address=address))

    @rule(source=st.integers(0, 1))
    def lose_all(self, source: int) -> None:
        self.sources[source].listed.clear()

    @rule(source=st.integers(0, 1), fails=st.booleans())
    def reply(self, source: int, fails: bool) -> None:
        self.sources[source].fails = fails

    @rule(fails=st.sampled_from(["", "", "before", "after"]))
    def write(self, fails: str) -> None:
        self.lives.disk.fails = fails

    @rule()
    def poll(self) -> None:
        self.lives.poll()
        if not self.lives.disk.fails:
            listed = {SessionKey(s.name, key) for s in self.sources if not s.fails for key in s.listed}
            self.seen |= listed
            silent = {source.name for source in self.sources if source.fails}
            present = {session.key for session in self.lives.tracker.sessions.all()}
            assert {key for key in present if key.source not in silent} == listed
            active = {s.id for s in self.lives.tracker.sessions.all() if s.summary.state == "active"}
            assert active <= {id for event, id in self.lives.told if event == "up"}

    @rule()
    def restart(self) -> None:
        self.lives.disk.fails = ""
        self.lives.restart()

    @rule(steps=st.integers(1, 8), comes=st.booleans(), ends=st.booleans())
    def be_killed(self, steps: int, comes: bool, ends: bool) -> None:
        if comes:
            self.come(0, 1)
        self.lives.steps = steps
        try:
            self.lives.poll()
        except Killed:
            if ends:
                self.lose_all(0)
            self.lives.restart()
        self.lives.steps = 0

    @invariant()
    def no_event_is_there_again(self) -> None:
        for event, times in Counter(self.lives.told).items():
            assert times <= 1 + self.lives.excused[event], event

    @invariant()
    def ids_ascend(self) -> None:
        ids = [session.id for session in self.lives.tracker.sessions.all()]
        assert ids == sorted(ids)

    def teardown(self) -> None:
        self.lives.disk.fails = ""
        for source in self.sources:
            source.fails = False
        self.poll()
        for source in self.sources:
            source.listed.clear()
        self.poll()
        first = list(dict.fromkeys(self.lives.told))
        ups, downs = ([id for event, id in first if event == name] for name in ("up", "down"))
        assert set(ups) == set(downs) and len(ups) == len(set(ups)) >= len(self.seen)
        assert all(first.index(("up", id)) < first.index(("down", id)) for id in ups)
        assert self.lives.store.known() == {}
        self.lives.kill()
        shutil.rmtree(self.folder)


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(max_examples=100, stateful_step_count=30)
