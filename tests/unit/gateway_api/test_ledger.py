"""The ledger of logins: its file, its name, and the tokens that were given back."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway_api.auth.ledger import Ledger, Revocations, SharedState, open_ledger, prepare_ledger, read_name
from gateway_contract.base.errors import LedgerUnavailable
from tests.support.clocks import SteppedClock
from tests.support.ledger import ledger_at, lose, revocations_of


def test_a_prepared_ledger_and_what_lies_beside_it_are_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    prepare_ledger(path, SharedState())
    with closing(open_ledger(path)) as ledger:
        ledger.execute("INSERT INTO revoked (jti, expires) VALUES ('1f', 1)")
        modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    names = [f"ledger.sqlite{suffix}" for suffix in ("", "-wal", "-shm", ".reserve")]
    assert modes == dict.fromkeys(names, 0o600)


def test_preparing_a_ledger_again_keeps_what_it_knows(tmp_path: Path, clock: SteppedClock) -> None:
    path = tmp_path / "ledger.sqlite"
    prepare_ledger(path, SharedState())
    with closing(ledger_at(path, SharedState())) as ledger:
        name = ledger.name
        revocations_of(ledger, clock).revoke("1f", int(clock()) + 60)
    prepare_ledger(path, SharedState())
    with closing(ledger_at(path, SharedState())) as ledger:
        assert ledger.name == name
        assert revocations_of(ledger, clock).is_revoked("1f", name)


def test_space_of_which_a_killed_start_kept_only_a_part_is_kept_by_the_next(tmp_path: Path) -> None:
    path, reserve = tmp_path / "ledger.sqlite", tmp_path / "ledger.sqlite.reserve"
    prepare_ledger(path, SharedState())
    whole = reserve.stat().st_size
    reserve.write_bytes(bytes(1000))
    prepare_ledger(path, SharedState())
    assert reserve.stat().st_size == whole >= 100_000
    assert reserve.stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob(".*"))


def test_a_broken_ledger_is_begun_anew_under_another_name(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with closing(open_ledger(path)) as ledger:
        name = read_name(ledger)
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    prepare_ledger(path, SharedState())
    with closing(open_ledger(path)) as ledger:
        assert read_name(ledger) != name
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_logout_is_on_the_disk_and_waits_for_a_lock_of_a_few_hundred_milliseconds(ledger: Ledger) -> None:
    def settings(each: Any) -> list[int]:
        names = ("synchronous", "busy_timeout")
        return [each.execute(f"PRAGMA {name}").fetchone()[0] for name in names]

    # FULL: SQLite has the disk written before it returns.
    assert ledger.write(settings) == [2, 500]


def test_a_token_that_another_worker_revokes_is_no_longer_known_to_be_valid(
    ledger: Ledger, neighbours_ledger: Ledger, clock: SteppedClock
) -> None:
    revocations = revocations_of(ledger, clock)
    for jti in ("1f", "2f"):
        # The revocation of one revokes no other.
        assert not revocations.is_revoked(jti, ledger.name)
        revocations_of(neighbours_ledger, clock).revoke(jti, int(clock()) + 60)
        assert revocations.is_revoked(jti, ledger.name)


def interrupted(ledger: Ledger, after: Callable[[], object]) -> Any:
    """A ledger, of which `after` is called after each statement that changes or selects revocations."""

    def execute(statement: str, values: tuple[object, ...]) -> Any:
        rows = ledger.execute(statement, values)
        after()
        return rows

    made = SimpleNamespace(name=ledger.name, shared=ledger.shared, execute=execute)
    made.write = lambda work: work(made)
    return made


def test_a_token_that_is_revoked_just_after_a_look_up_is_rejected_from_then_on(
    ledger: Ledger, neighbours_ledger: Ledger, clock: SteppedClock
) -> None:
    neighbour = revocations_of(neighbours_ledger, clock)
    revokes = interrupted(ledger, lambda: neighbour.revoke("1f", int(clock()) + 60))
    revocations = revocations_of(revokes, clock)
    assert [revocations.is_revoked("1f", ledger.name) for _ in range(2)] == [False, True]


def test_a_revocation_whose_write_failed_half_way_counts_where_it_is_in_the_ledger(
    ledger: Ledger, neighbours_ledger: Ledger, clock: SteppedClock
) -> None:
    def fails() -> None:
        raise sqlite3.OperationalError("disk I/O error")

    neighbour = revocations_of(neighbours_ledger, clock)
    assert not neighbour.is_revoked("1f", ledger.name)
    with pytest.raises(LedgerUnavailable):
        revocations_of(interrupted(ledger, fails), clock).revoke("1f", int(clock()) + 60)
    assert neighbour.is_revoked("1f", ledger.name)


def test_a_token_that_is_known_to_be_valid_is_not_looked_up_again(
    ledger: Ledger, clock: SteppedClock
) -> None:
    revocations = revocations_of(ledger, clock)
    name = ledger.name
    assert not revocations.is_revoked("1f", name)
    ledger.execute("DROP TABLE revoked")
    assert not revocations.is_revoked("1f", name)


def test_a_revocation_lasts_as_long_as_its_token_and_outlives_a_clock_that_jumps(
    ledger: Ledger, clock: SteppedClock
) -> None:
    revocations = revocations_of(ledger, clock)
    # Twice is no error.
    for _ in range(2):
        revocations.revoke("1f", int(clock()) + 60)
    for passed in (59, 86_400):
        clock.now += passed
        revocations.revoke("2f", int(clock()) + 60)
    clock.now -= 86_400
    assert revocations.is_revoked("1f", ledger.name)


def test_of_many_revocations_the_newest_stay_and_of_the_others_those_that_have_not_expired(
    ledger: Ledger, clock: SteppedClock
) -> None:
    revocations = revocations_of(ledger, clock, kept=3)
    revocations.revoke("long", int(clock()) + 600)
    for number in range(5):
        revocations.revoke(str(number), int(clock()) + 60)
    clock.now += 61
    revocations.revoke("last", int(clock()) + 60)
    assert revocations.find_revoked(dict.fromkeys(["long", *map(str, range(5)), "last"], ledger.name)) == {
        "long",
        "3",
        "4",
        "last",
    }


def test_a_token_is_not_taken_for_valid_where_the_ledger_cannot_be_read(
    tmp_path: Path, ledger: Ledger, clock: SteppedClock
) -> None:
    revocations, name = revocations_of(ledger, clock), ledger.name
    lose(tmp_path / "ledger.sqlite")
    with pytest.raises(LedgerUnavailable):
        revocations.is_revoked("1f", name)


# A ledger that is damaged, removed or replaced while workers use it


def damage(path: Path) -> None:
    path.write_bytes(b"garbage" * 1000)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def restore(path: Path) -> None:
    """Puts a backup in its place: without the revocations since."""
    path.with_name("backup").replace(path)


@pytest.fixture
def revoked_since(
    tmp_path: Path, ledger: Ledger, neighbours_ledger: Ledger, clock: SteppedClock
) -> tuple[Revocations, Revocations]:
    """Both workers know tokens 1f and 2f, of which 2f was revoked after the backup."""
    both = revocations_of(ledger, clock), revocations_of(neighbours_ledger, clock)
    with closing(sqlite3.connect(tmp_path / "backup")) as backup:
        ledger.write(lambda connection: connection.backup(backup))
    both[0].revoke("2f", int(clock()) + 60)
    # Or SQLite would find all pages in its log, and miss nothing.
    ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    name = ledger.name
    assert [[one.is_revoked(jti, name) for jti in ("1f", "2f")] for one in both] == 2 * [[False, True]]
    return both


@pytest.mark.parametrize("fault", [damage, empty, Path.unlink, restore])
def test_all_tokens_end_with_their_ledger_in_each_worker_and_later_ones_count(
    tmp_path: Path,
    ledger: Ledger,
    revoked_since: tuple[Revocations, Revocations],
    clock: SteppedClock,
    fault: Callable[[Path], None],
) -> None:
    former = ledger.name
    fault(tmp_path / "ledger.sqlite")
    # SQLite notices damage when it reads the file: a new worker does.
    with closing(ledger_at(tmp_path / "ledger.sqlite", ledger.shared, clock)):
        for worker in revoked_since:
            assert worker.find_revoked({"1f": former, "2f": former}) == {"1f", "2f"}
            assert [worker.is_revoked(jti, former) for jti in ("1f", "2f")] == [True, True]
    one, other = revoked_since
    assert not one.is_revoked("3f", ledger.name)
    other.revoke("3f", int(clock()) + 60)
    assert one.is_revoked("3f", name := ledger.name)
    # It is stored in the ledger that took the place of the other.
    with closing(ledger_at(tmp_path / "ledger.sqlite", SharedState())) as later:
        assert (later.name, revocations_of(later, clock).is_revoked("3f", name)) == (name, True)


def test_a_damaged_ledger_is_kept_beside_the_new_one_and_the_log_says_so(
    tmp_path: Path, ledger: Ledger, clock: SteppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    damage(path)
    ledger_at(path, ledger.shared, clock).close()
    assert (tmp_path / "ledger.sqlite.damaged").read_bytes() == b"garbage" * 1000
    damaged, new = (record.getMessage() for record in caplog.records)
    assert f"{path}.damaged" in damaged
    assert "all users have to log in again" in new


def test_a_worker_that_finds_the_new_ledger_of_another_worker_begins_none(
    ledger: Ledger, neighbours_ledger: Ledger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ledger.sqlite").unlink()
    assert ledger.name == neighbours_ledger.name == ledger.name
    assert len(caplog.records) == 1
