"""The sessions on disk: the order of their ids, over restarts and crashes, and with a damaged file."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from gateway_contract.base.errors import StepFailed
from gateway_core.gateways.linux.sessions.session_store import (
    BOUND_STEP,
    SessionKey,
    SessionStore,
    StoredSession,
)
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
    return {key.name: row.id for key, row in store.read_all().items()}


def bounds(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("sessions.sqlite"))


def test_sources_may_have_the_same_key(store: SessionStore) -> None:
    both = [SessionKey(source, "1") for source in ("accel-ppp", "pppoe")]
    assert list(store.claim(dict.fromkeys(both, b"")).values()) == [1, 2]


@pytest.mark.parametrize("name", ["", "a'; --", "\x00", "é🙂", "\ud800"])
def test_any_text_is_a_key(tmp_path: Path, name: str) -> None:
    for _ in range(2):
        with closing(SessionStore(tmp_path)) as store:
            assert ids(store, name) == [1]
            assert known(store) == {name: 1}


# Restarts.


def test_the_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    with closing(SessionStore(tmp_path / "state")) as store:
        ids(store, "a")
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "state").iterdir()} == {
        "sessions.sqlite": 0o600,
        f"session-ids-below-{BOUND_STEP}": 0o600,
    }


# Damage.


def break_all(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\xa5" * path.stat().st_size)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2 - 100)


@pytest.mark.parametrize("damage", [break_all, cut, Path.unlink])
def test_a_damaged_database_is_set_aside_and_begins_anew_above_all_ids(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], None]
) -> None:
    with closing(SessionStore(tmp_path)) as store:
        ids(store, *map(str, range(500)))
    for life in (1, 2):
        damage(tmp_path / "sessions.sqlite")
        with closing(SessionStore(tmp_path)) as store:
            assert store.read_all() == {}
            assert ids(store, "0", "1") == [life * BOUND_STEP, life * BOUND_STEP + 1]
        assert bounds(tmp_path) == [f"session-ids-below-{(life + 1) * BOUND_STEP}"]
    if damage is break_all:
        aside = tmp_path / "sessions.sqlite.damaged"
        assert aside.read_bytes().startswith(b"\xa5")
        told = f"began a new store of sessions, the damaged file was moved to {aside}"
        assert [record.getMessage() for record in caplog.records] == [told] * 2


def test_damage_while_the_core_runs_costs_no_id(tmp_path: Path) -> None:
    with closing(SessionStore(tmp_path)) as store:
        ids(store, *map(str, range(500)))
        break_all(tmp_path / "sessions.sqlite")
        assert ids(store, "7", "new") == [8, BOUND_STEP]
    with closing(SessionStore(tmp_path)) as store:
        assert ids(store, "7", "new", "499", "newer") == [8, BOUND_STEP, 500, BOUND_STEP + 1]


def test_a_removed_database_is_made_again_with_what_the_core_knows(tmp_path: Path) -> None:
    with closing(SessionStore(tmp_path)) as store:
        ids(store, "a", "b")
        (tmp_path / "sessions.sqlite").unlink()
        assert ids(store, "a", "c") == [1, BOUND_STEP]
    with closing(SessionStore(tmp_path)) as store:
        assert known(store) == {"a": 1, "b": 2, "c": BOUND_STEP}


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
    (tmp_path / f"session-ids-below-{BOUND_STEP}").unlink()
    with closing(SessionStore(tmp_path)) as store:
        assert ids(store, "b") == [2]
    assert bounds(tmp_path) == [f"session-ids-below-{BOUND_STEP}"]
    # A database from a backup gives no id of a later step. Names of other files are no bounds.
    (tmp_path / f"session-ids-below-{BOUND_STEP}").rename(tmp_path / f"session-ids-below-{4 * BOUND_STEP}")
    for end in ("", "x", "٣", 10**16):
        (tmp_path / f"session-ids-below-{end}").touch()
    with closing(SessionStore(tmp_path)) as store:
        assert ids(store, "a", "c") == [1, 4 * BOUND_STEP]


def test_the_name_is_raised_before_the_ids_are_given(tmp_path: Path) -> None:
    with closing(SessionStore(tmp_path)) as store:
        ids(store, "a")
    with closing(sqlite3.connect(tmp_path / "sessions.sqlite")) as database, database:
        database.execute("UPDATE next SET id = ?", (BOUND_STEP - 2,))
    with closing(SessionStore(tmp_path)) as store:
        assert ids(store, "b", "c") == [BOUND_STEP - 2, BOUND_STEP - 1]
        assert bounds(tmp_path) == [f"session-ids-below-{BOUND_STEP}"]
        assert ids(store, "d") == [BOUND_STEP]
        assert bounds(tmp_path) == [f"session-ids-below-{2 * BOUND_STEP}"]


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
    for call in (lambda: ids(store, "a"), lambda: store.write(released=keys("a")), store.read_all):
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
        self.store.write(released=keys(*wanted))
        for key in keys(*wanted):
            self.expected.pop(key, None)

    @rule(announced=names, changed=names, record=st.binary(max_size=3))
    def change(self, announced: list[str], changed: list[str], record: bytes) -> None:
        self.store.write(announced=keys(*announced), records=dict.fromkeys(keys(*changed), record))
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
        assert list(self.store.read_all().items()) == list(self.expected.items())
        assert len(set(self.given)) == len(self.given)

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)


TestAnyUse = AnyUse.TestCase
TestAnyUse.settings = settings(max_examples=15, stateful_step_count=15)
