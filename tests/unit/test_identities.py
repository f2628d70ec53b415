"""Our ids of sessions: their order, over restarts and crashes, and with a damaged file."""

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

from gateway_api.core.gateways.linux.identities import STEP, Identities, IdentitiesUnavailable, Key
from tests.support.stack import wait_for
from tests.support.workspaces import no_file_longer_than


@pytest.fixture
def identities(tmp_path: Path) -> Iterator[Identities]:
    with closing(Identities(tmp_path / "state")) as opened:
        yield opened


def keys(*names: str) -> list[Key]:
    return [Key("accel-ppp", name) for name in names]


def ids(identities: Identities, *names: str) -> list[int]:
    return list(identities.claim(keys(*names)).values())


def bounds(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("identities.sqlite"))


def test_ids_ascend_in_the_order_of_the_keys(identities: Identities) -> None:
    assert ids(identities, "c", "a", "b") == [1, 2, 3]
    assert ids(identities, "d") == [4]


def test_a_key_keeps_its_id(identities: Identities) -> None:
    ids(identities, "a", "b")
    assert identities.claim(keys("c", "b", "c", "a")) == dict(
        zip(keys("c", "b", "a"), [3, 2, 1], strict=True)
    )
    assert identities.known() == dict(zip(keys("a", "b", "c"), [1, 2, 3], strict=True))


def test_sources_may_have_the_same_key(identities: Identities) -> None:
    assert identities.claim([Key("accel-ppp", "1"), Key("pppoe", "1")]) == {
        Key("accel-ppp", "1"): 1,
        Key("pppoe", "1"): 2,
    }


def test_a_key_that_comes_back_gets_a_new_id(identities: Identities) -> None:
    ids(identities, "a", "b")
    identities.release(keys("b", "nobody", "b"))
    assert identities.known() == {Key("accel-ppp", "a"): 1}
    assert ids(identities, "b") == [3]


def test_no_keys_are_no_ids(identities: Identities) -> None:
    assert identities.claim([]) == {}
    identities.release([])
    assert identities.known() == {}


def test_what_is_known_is_not_changed_by_the_caller(identities: Identities) -> None:
    ids(identities, "a")
    identities.known().clear()
    assert identities.known() == {Key("accel-ppp", "a"): 1}


@pytest.mark.parametrize(
    "name", ["", "a'; DROP TABLE identity; --", "\x00", "é🙂", "\ud800", "\udcff", "x" * 10_000]
)
def test_any_text_is_a_key(tmp_path: Path, name: str) -> None:
    for _ in range(2):
        with closing(Identities(tmp_path)) as identities:
            assert ids(identities, name) == [1]
            assert identities.known() == {Key("accel-ppp", name): 1}


def test_threads_get_different_ids(identities: Identities) -> None:
    def work(number: int) -> None:
        for turn in range(20):
            ids(identities, f"{number}-{turn}", f"shared-{turn}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(identities.known().values()) == list(range(1, 101))


# Restarts.


def test_ids_last_over_a_restart(tmp_path: Path) -> None:
    with closing(Identities(tmp_path)) as identities:
        ids(identities, "a", "b", "c")
        identities.release(keys("c"))
    with closing(Identities(tmp_path)) as identities:
        assert identities.known() == dict(zip(keys("a", "b"), [1, 2], strict=True))
        assert ids(identities, "c", "a") == [4, 1]


def test_a_closed_database_opens_again(identities: Identities) -> None:
    ids(identities, "a")
    identities.close()
    assert ids(identities, "b", "a") == [2, 1]


def test_the_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    with closing(Identities(tmp_path / "state")) as identities:
        ids(identities, "a")
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "state").iterdir()} == {
        "identities.sqlite": 0o600,
        f"identities-below-{STEP}": 0o600,
    }


_WRITER = """
import sys
from pathlib import Path
from gateway_api.core.gateways.linux.identities import Identities, Key
identities = Identities(Path(sys.argv[1]))
for turn in range(int(sys.argv[2]), 1 << 30):
    claimed = identities.claim(Key("s", f"{turn}-{number}") for number in range(20))
    print(turn, *claimed.values(), flush=True)
    identities.release([Key("s", f"{turn}-0")])
"""


def test_a_core_killed_at_any_time_gives_no_id_twice(tmp_path: Path) -> None:
    given: dict[str, int] = {}
    turn = 0
    for life in range(8):
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
        with closing(Identities(tmp_path / "state")) as identities:
            known = {key.name: id for key, id in identities.known().items()}
        kept = {name: id for name, id in given.items() if not name.endswith("-0")}
        assert kept.items() <= known.items()
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


@pytest.mark.parametrize(
    "damage", [break_header, break_pages, break_all, cut, Path.unlink, lambda path: os.truncate(path, 0)]
)
def test_a_damaged_database_begins_anew_above_all_ids(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    with closing(Identities(tmp_path)) as identities:
        ids(identities, *map(str, range(500)))
    for life in (1, 2):
        damage(tmp_path / "identities.sqlite")
        with closing(Identities(tmp_path)) as identities:
            assert identities.known() == {}
            assert ids(identities, "0", "1") == [life * STEP, life * STEP + 1]
        assert bounds(tmp_path) == [f"identities-below-{(life + 1) * STEP}"]


def test_a_damaged_database_is_set_aside_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with closing(Identities(tmp_path)) as identities:
        ids(identities, "a")
    break_header(tmp_path / "identities.sqlite")
    with closing(Identities(tmp_path)) as identities:
        ids(identities, "a")
    assert (tmp_path / "identities.sqlite.damaged").read_bytes().startswith(b"no database at all")
    assert [record.getMessage() for record in caplog.records] == [
        f"began new ids of sessions: the database is damaged, and is now {tmp_path}/identities.sqlite.damaged"
    ]


def test_damage_while_the_core_runs_costs_no_id(tmp_path: Path) -> None:
    with closing(Identities(tmp_path)) as identities:
        ids(identities, *map(str, range(500)))
        break_all(tmp_path / "identities.sqlite")
        assert ids(identities, "7", "new") == [8, STEP]
    with closing(Identities(tmp_path)) as identities:
        assert ids(identities, "7", "new", "499", "newer") == [8, STEP, 500, STEP + 1]


def test_a_name_that_is_lost_is_made_again(tmp_path: Path) -> None:
    with closing(Identities(tmp_path)) as identities:
        ids(identities, "a")
    (tmp_path / f"identities-below-{STEP}").unlink()
    with closing(Identities(tmp_path)) as identities:
        assert ids(identities, "b") == [2]
    assert bounds(tmp_path) == [f"identities-below-{STEP}"]


def test_a_database_from_a_backup_gives_no_id_of_a_later_step(tmp_path: Path) -> None:
    with closing(Identities(tmp_path)) as identities:
        ids(identities, "a")
    (tmp_path / f"identities-below-{STEP}").rename(tmp_path / f"identities-below-{4 * STEP}")
    with closing(Identities(tmp_path)) as identities:
        assert ids(identities, "a", "b") == [1, 4 * STEP]


def test_names_of_other_files_are_no_bounds(tmp_path: Path) -> None:
    for name in ("identities-below-", "identities-below-x", "identities-below-٣", "identities-below-9.bak"):
        (tmp_path / name).touch()
    (tmp_path / f"identities-below-{10**16}").touch()
    with closing(Identities(tmp_path)) as identities:
        assert ids(identities, "a") == [1]


def test_the_name_is_raised_before_the_ids_are_given(tmp_path: Path) -> None:
    with closing(Identities(tmp_path)) as identities:
        ids(identities, "a")
    with closing(sqlite3.connect(tmp_path / "identities.sqlite")) as database, database:
        database.execute("UPDATE next SET id = ?", (STEP - 2,))
    with closing(Identities(tmp_path)) as identities:
        assert ids(identities, "b", "c") == [STEP - 2, STEP - 1]
        assert bounds(tmp_path) == [f"identities-below-{STEP}"]
        assert ids(identities, "d") == [STEP]
        assert bounds(tmp_path) == [f"identities-below-{2 * STEP}"]


# Disks that fail.


def test_a_full_disk_gives_no_id_and_the_next_call_tries_again(
    identities: Identities, tmp_path: Path
) -> None:
    ids(identities, "a")
    many = [str(number) for number in range(2000)]
    size = (tmp_path / "state" / "identities.sqlite").stat().st_size
    with no_file_longer_than(size), pytest.raises(IdentitiesUnavailable, match="cannot give ids to sessions"):
        ids(identities, *many)
    assert identities.known() == {Key("accel-ppp", "a"): 1}
    assert ids(identities, *many) == list(range(2, 2002))


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    identities = Identities(tmp_path / "file" / "state")
    for call in (lambda: ids(identities, "a"), lambda: identities.release(keys("a")), identities.known):
        with pytest.raises(IdentitiesUnavailable, match="File exists"):
            call()


def test_a_file_of_another_program_is_an_error_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "identities.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE identity (other TEXT)")
    with pytest.raises(IdentitiesUnavailable):
        ids(Identities(tmp_path), "a")
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT name FROM pragma_table_info('identity')").fetchall() == [("other",)]


class AnyUse(RuleBasedStateMachine):
    """Any order of calls and restarts, and now and then damage."""

    names = Bundle("names")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(mkdtemp())
        self.identities = Identities(self.folder)
        self.expected: dict[Key, int] = {}
        self.given: list[int] = []

    @rule(target=names, wanted=st.lists(st.text(max_size=2), max_size=6))
    def claim(self, wanted: list[str]) -> list[str]:
        claimed = self.identities.claim(keys(*wanted))
        assert list(claimed) == list(dict.fromkeys(keys(*wanted)))
        new = [claimed[key] for key in claimed if key not in self.expected]
        assert new == sorted(new) and all(id > max(self.given, default=0) for id in new)
        self.given += new
        self.expected |= claimed
        return wanted

    @rule(wanted=consumes(names))
    def release(self, wanted: list[str]) -> None:
        self.identities.release(keys(*wanted))
        for key in keys(*wanted):
            self.expected.pop(key, None)

    @rule()
    def restart(self) -> None:
        self.identities.close()
        self.identities = Identities(self.folder)

    @rule()
    def damage(self) -> None:
        self.restart()
        self.expected.clear()
        (self.folder / "identities.sqlite").write_bytes(b"damaged")

    @invariant()
    def knows_what_is_expected(self) -> None:
        assert self.identities.known() == self.expected
        assert len(set(self.given)) == len(self.given)

    def teardown(self) -> None:
        self.identities.close()
        shutil.rmtree(self.folder)


TestAnyUse = AnyUse.TestCase
TestAnyUse.settings = settings(deadline=None, max_examples=15, stateful_step_count=15)
