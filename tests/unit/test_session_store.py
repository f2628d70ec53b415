"""The sessions on disk: the order of their ids, over restarts and crashes, and with a damaged file."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from gateway_api.base.errors import StepFailed
from gateway_api.core.gateways.linux.sessions.session_store import (
    STEP,
    SessionKey,
    SessionStore,
    StoredSession,
)
from tests.support.stack import wait_for
from tests.support.workspaces import no_file_longer_than


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionStore]:
    with closing(SessionStore(tmp_path / "state")) as opened:
        yield opened


def keys(*names: str) -> list[SessionKey]:
    return [SessionKey("accel-ppp", name) for name in names]


def ids(store: SessionStore, *names: str) -> list[int]:
    return list(store.claim(records(*names)).values())


def records(*names: str) -> dict[SessionKey, bytes]:
    return {key: f"record {key.name!r}".encode() for key in keys(*names)}


def known(store: SessionStore) -> dict[str, int]:
    return {key.name: row.id for key, row in store.known().items()}


def bounds(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("sessions.sqlite"))


def test_sources_may_have_the_same_key(store: SessionStore) -> None:
    assert store.claim({SessionKey("accel-ppp", "1"): b"", SessionKey("pppoe", "1"): b""}) == {
        SessionKey("accel-ppp", "1"): 1,
        SessionKey("pppoe", "1"): 2,
    }


def test_what_is_not_known_is_not_stored(store: SessionStore) -> None:
    assert store.claim({}) == {}
    store.settle()
    store.settle(announced=keys("a"), records=records("b"), released=keys("c", "c"))
    store.known()[keys("a")[0]] = StoredSession(1, b"", announced=False)
    assert store.known() == {}


@pytest.mark.parametrize("name", ["", "a'; DROP TABLE session; --", "\x00", "é🙂", "\ud800", "x" * 10_000])
def test_any_text_is_a_key(tmp_path: Path, name: str) -> None:
    for _ in range(2):
        with closing(SessionStore(tmp_path)) as store:
            assert ids(store, name) == [1]
            assert known(store) == {name: 1}


def test_threads_get_different_ids(store: SessionStore) -> None:
    def work(number: int) -> None:
        for turn in range(20):
            ids(store, f"{number}-{turn}", f"shared-{turn}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(known(store).values()) == list(range(1, 101))


# Restarts.


def test_a_closed_database_opens_again(store: SessionStore) -> None:
    ids(store, "a")
    store.close()
    assert ids(store, "b", "a") == [2, 1]


def test_the_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    with closing(SessionStore(tmp_path / "state")) as store:
        ids(store, "a")
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "state").iterdir()} == {
        "sessions.sqlite": 0o600,
        f"session-ids-below-{STEP}": 0o600,
    }


_WRITER = """
import sys
from pathlib import Path
from gateway_api.core.gateways.linux.sessions.session_store import SessionKey, SessionStore
store = SessionStore(Path(sys.argv[1]))
for turn in range(int(sys.argv[2]), 1 << 30):
    claimed = store.claim({SessionKey("s", f"{turn}-{number}"): b"record" for number in range(20)})
    print(turn, *claimed.values(), flush=True)
    store.settle(released=[SessionKey("s", f"{turn}-0")])
"""


def test_a_core_killed_at_any_time_gives_no_id_twice(tmp_path: Path) -> None:
    given: dict[str, int] = {}
    turn = 0
    for life in range(3):
        log = tmp_path / f"log-{life}"
        with log.open("wb") as output:
            command = [sys.executable, "-c", _WRITER, str(tmp_path / "state"), str(turn)]
            process = subprocess.Popen(command, stdout=output)
            wait_for("some ids", lambda log=log, life=life: log.read_bytes().count(b"\n") > 1 + 3 * life)
            process.send_signal(signal.SIGKILL)
            process.wait()
        lines = [line.split() for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        for line in lines:
            given |= {f"{line[0]}-{number}": int(id) for number, id in enumerate(line[1:])}
        turn = int(lines[-1][0]) + 2
        with closing(SessionStore(tmp_path / "state")) as store:
            found = known(store)
        kept = {name: id for name, id in given.items() if not name.endswith("-0")}
        assert kept.items() <= found.items()
    assert len(set(given.values())) == len(given)
    in_order = sorted(given, key=lambda name: tuple(map(int, name.split("-"))))
    assert [given[name] for name in in_order] == sorted(given.values())


# Damage.


def break_header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"no database at all")


def break_pages(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))


def break_all(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\xa5" * path.stat().st_size)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2 - 100)


@pytest.mark.parametrize("damage", [break_header, break_pages, break_all, cut, Path.unlink])
def test_a_damaged_database_is_set_aside_and_begins_anew_above_all_ids(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], None]
) -> None:
    with closing(SessionStore(tmp_path)) as store:
        ids(store, *map(str, range(500)))
    for life in (1, 2):
        damage(tmp_path / "sessions.sqlite")
        with closing(SessionStore(tmp_path)) as store:
            assert store.known() == {}
            assert ids(store, "0", "1") == [life * STEP, life * STEP + 1]
        assert bounds(tmp_path) == [f"session-ids-below-{(life + 1) * STEP}"]
    if damage is break_header:
        aside = tmp_path / "sessions.sqlite.damaged"
        assert aside.read_bytes().startswith(b"no database at all")
        told = f"began a new store of sessions: the old one is damaged, and is now {aside}"
        assert [record.getMessage() for record in caplog.records] == [told] * 2


def test_damage_while_the_core_runs_costs_no_id(tmp_path: Path) -> None:
    with closing(SessionStore(tmp_path)) as store:
        ids(store, *map(str, range(500)))
        break_all(tmp_path / "sessions.sqlite")
        assert ids(store, "7", "new") == [8, STEP]
    with closing(SessionStore(tmp_path)) as store:
        assert ids(store, "7", "new", "499", "newer") == [8, STEP, 500, STEP + 1]


def test_a_removed_database_is_made_again_with_what_the_core_knows(tmp_path: Path) -> None:
    with closing(SessionStore(tmp_path)) as store:
        ids(store, "a", "b")
        (tmp_path / "sessions.sqlite").unlink()
        assert ids(store, "a", "c") == [1, STEP]
    with closing(SessionStore(tmp_path)) as store:
        assert known(store) == {"a": 1, "b": 2, "c": STEP}


def test_a_session_whose_row_cannot_be_read_starts_anew_and_keeps_no_other(tmp_path: Path) -> None:
    with closing(SessionStore(tmp_path)) as store:
        ids(store, "a", "b")
    with closing(sqlite3.connect(tmp_path / "sessions.sqlite")) as database, database:
        database.execute("UPDATE session SET record = CAST(record AS TEXT) WHERE id = 2")
    with closing(SessionStore(tmp_path)) as store:
        assert known(store) == {"a": 1}
        assert ids(store, "a", "b", "c") == [1, 3, 4]


def test_a_name_that_is_lost_is_made_again(tmp_path: Path) -> None:
    with closing(SessionStore(tmp_path)) as store:
        ids(store, "a")
    (tmp_path / f"session-ids-below-{STEP}").unlink()
    with closing(SessionStore(tmp_path)) as store:
        assert ids(store, "b") == [2]
    assert bounds(tmp_path) == [f"session-ids-below-{STEP}"]


def test_a_database_from_a_backup_gives_no_id_of_a_later_step(tmp_path: Path) -> None:
    with closing(SessionStore(tmp_path)) as store:
        ids(store, "a")
    (tmp_path / f"session-ids-below-{STEP}").rename(tmp_path / f"session-ids-below-{4 * STEP}")
    with closing(SessionStore(tmp_path)) as store:
        assert ids(store, "a", "b") == [1, 4 * STEP]


def test_names_of_other_files_are_no_bounds(tmp_path: Path) -> None:
    for name in (
        "session-ids-below-",
        "session-ids-below-x",
        "session-ids-below-٣",
        "session-ids-below-9.bak",
    ):
        (tmp_path / name).touch()
    (tmp_path / f"session-ids-below-{10**16}").touch()
    with closing(SessionStore(tmp_path)) as store:
        assert ids(store, "a") == [1]


def test_the_name_is_raised_before_the_ids_are_given(tmp_path: Path) -> None:
    with closing(SessionStore(tmp_path)) as store:
        ids(store, "a")
    with closing(sqlite3.connect(tmp_path / "sessions.sqlite")) as database, database:
        database.execute("UPDATE next SET id = ?", (STEP - 2,))
    with closing(SessionStore(tmp_path)) as store:
        assert ids(store, "b", "c") == [STEP - 2, STEP - 1]
        assert bounds(tmp_path) == [f"session-ids-below-{STEP}"]
        assert ids(store, "d") == [STEP]
        assert bounds(tmp_path) == [f"session-ids-below-{2 * STEP}"]


# Disks that fail.


def test_a_full_disk_gives_no_id_and_the_next_call_tries_again(store: SessionStore, tmp_path: Path) -> None:
    ids(store, "a")
    many = [str(number) for number in range(2000)]
    size = (tmp_path / "state" / "sessions.sqlite").stat().st_size
    with (
        no_file_longer_than(size),
        pytest.raises(StepFailed, match="cannot give ids to sessions"),
    ):
        ids(store, *many)
    assert known(store) == {"a": 1}
    assert ids(store, *many) == list(range(2, 2002))


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = SessionStore(tmp_path / "file" / "state")
    for call in (lambda: ids(store, "a"), lambda: store.settle(released=keys("a")), store.known):
        with pytest.raises(StepFailed, match="File exists"):
            call()


def test_a_file_of_another_program_is_an_error_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "sessions.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE session (other TEXT)")
    with pytest.raises(StepFailed):
        ids(SessionStore(tmp_path), "a")
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT name FROM pragma_table_info('session')").fetchall() == [("other",)]


class AnyUse(RuleBasedStateMachine):
    """Any order of calls and restarts, and now and then damage."""

    names = Bundle("names")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(mkdtemp())
        self.store = SessionStore(self.folder)
        self.expected: dict[SessionKey, StoredSession] = {}
        self.given: list[int] = []

    @rule(target=names, wanted=st.lists(st.text(max_size=2), max_size=6, unique=True))
    def claim(self, wanted: list[str]) -> list[str]:
        claimed = self.store.claim(records(*wanted))
        assert list(claimed) == keys(*wanted)
        new = [claimed[key] for key in claimed if key not in self.expected]
        assert new == sorted(new) and all(id > max(self.given, default=0) for id in new)
        self.given += new
        for key, record in records(*wanted).items():
            self.expected.setdefault(key, StoredSession(claimed[key], record, announced=False))
        return wanted

    @rule(wanted=consumes(names))
    def release(self, wanted: list[str]) -> None:
        self.store.settle(released=keys(*wanted))
        for key in keys(*wanted):
            self.expected.pop(key, None)

    @rule(announced=names, changed=names, record=st.binary(max_size=3))
    def change(self, announced: list[str], changed: list[str], record: bytes) -> None:
        self.store.settle(announced=keys(*announced), records=dict.fromkeys(keys(*changed), record))
        for key in self.expected.keys() & keys(*announced):
            self.expected[key] = self.expected[key]._replace(announced=True)
        for key in self.expected.keys() & keys(*changed):
            self.expected[key] = self.expected[key]._replace(record=record)

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = SessionStore(self.folder)

    @rule()
    def damage(self) -> None:
        self.restart()
        self.expected.clear()
        (self.folder / "sessions.sqlite").write_bytes(b"damaged")

    @invariant()
    def knows_what_is_expected(self) -> None:
        assert list(self.store.known().items()) == list(self.expected.items())
        assert len(set(self.given)) == len(self.given)

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)


TestAnyUse = AnyUse.TestCase
TestAnyUse.settings = settings(max_examples=15, stateful_step_count=15)
