"""The ledger of logins: its file, its name, and the tokens that were given back."""

import multiprocessing
import sqlite3
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway_api.auth.ledger import name_of, open_ledger, prepare_ledger
from gateway_api.base.errors import LedgerUnavailable
from tests.support.clocks import SteppedClock
from tests.support.ledger import revocations_of


def test_a_prepared_ledger_and_what_lies_beside_it_are_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    prepare_ledger(path)
    with closing(open_ledger(path)) as ledger:
        ledger.execute("INSERT INTO revoked (jti, expires) VALUES ('1f', 1)")
        modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    names = [f"ledger.sqlite{suffix}" for suffix in ("", "-wal", "-shm", ".reserve")]
    assert modes == dict.fromkeys(names, 0o600)


def test_preparing_a_ledger_again_keeps_what_it_knows(tmp_path: Path, clock: SteppedClock) -> None:
    path = tmp_path / "ledger.sqlite"
    prepare_ledger(path)
    with closing(open_ledger(path)) as ledger:
        revocations_of(ledger, clock).revoke("1f", int(clock()) + 60)
    prepare_ledger(path)
    with closing(open_ledger(path)) as ledger:
        assert revocations_of(ledger, clock).is_revoked("1f")


@pytest.mark.parametrize("left", [0, 1000])
def test_space_of_which_a_killed_start_kept_only_a_part_is_kept_by_the_next(
    tmp_path: Path, left: int
) -> None:
    path, reserve = tmp_path / "ledger.sqlite", tmp_path / "ledger.sqlite.reserve"
    prepare_ledger(path)
    whole = reserve.stat().st_size
    reserve.write_bytes(bytes(left))
    prepare_ledger(path)
    assert reserve.stat().st_size == whole >= 100_000
    assert reserve.stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob(".*"))


def test_a_ledger_that_is_opened_again_keeps_its_name_and_each_has_another(tmp_path: Path) -> None:
    names = []
    for path in ("one", "one", "two"):
        with closing(open_ledger(tmp_path / path)) as ledger:
            names.append(name_of(ledger))
    assert names[0] == names[1] != names[2]


@pytest.mark.parametrize("broken", [b"garbage" * 1000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_broken_ledger_is_begun_anew_under_another_name(tmp_path: Path, broken: bytes) -> None:
    path = tmp_path / "ledger.sqlite"
    with closing(open_ledger(path)) as ledger:
        name = name_of(ledger)
    path.write_bytes(broken)
    prepare_ledger(path)
    with closing(open_ledger(path)) as ledger:
        assert name_of(ledger) != name
    assert path.stat().st_mode & 0o777 == 0o600


def _open_together(folder: str, rounds: int, start: threading.Barrier) -> None:
    errors = []
    for turn in range(rounds):
        start.wait(20)
        try:
            open_ledger(Path(folder) / f"{turn}.sqlite").close()
        except sqlite3.Error as error:
            errors.append(error)
    if errors:
        sys.exit(f"{len(errors)} of {rounds}: {errors[0]!r}")


def test_workers_that_start_together_all_open_the_ledger(tmp_path: Path) -> None:
    rounds, workers = 60, 8
    for turn in range(rounds):
        prepare_ledger(tmp_path / f"{turn}.sqlite")
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(workers)
    started = [
        context.Process(target=_open_together, args=(str(tmp_path), rounds, start)) for _ in range(workers)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(40)
    assert [process.exitcode for process in started] == [0] * workers


def test_a_logout_waits_for_a_lock_of_a_few_hundred_milliseconds(ledger: sqlite3.Connection) -> None:
    assert ledger.execute("PRAGMA busy_timeout").fetchone() == (500,)


def test_a_token_that_nobody_gave_back_is_not_revoked(
    ledger: sqlite3.Connection, clock: SteppedClock
) -> None:
    assert not revocations_of(ledger, clock).is_revoked("1f")


def test_a_token_that_was_given_back_is_revoked_in_both_workers(
    ledger: sqlite3.Connection, neighbours_ledger: sqlite3.Connection, clock: SteppedClock
) -> None:
    revocations_of(ledger, clock).revoke("1f", int(clock()) + 60)
    assert [revocations_of(each, clock).is_revoked("1f") for each in (ledger, neighbours_ledger)] == [
        True,
        True,
    ]


def test_a_token_that_another_worker_revokes_is_no_longer_known_to_be_valid(
    ledger: sqlite3.Connection, neighbours_ledger: sqlite3.Connection, clock: SteppedClock
) -> None:
    revocations = revocations_of(ledger, clock)
    for jti in ("1f", "2f"):
        assert not revocations.is_revoked(jti)
        revocations_of(neighbours_ledger, clock).revoke(jti, int(clock()) + 60)
        assert revocations.is_revoked(jti)


class _Interrupted:
    """A ledger, of which `before` and `after` are called around each statement that changes or selects
    revocations."""

    def __init__(
        self,
        ledger: sqlite3.Connection,
        before: Callable[[], object] = lambda: None,
        after: Callable[[], object] = lambda: None,
    ) -> None:
        self._ledger, self._before, self._after = ledger, before, after

    def execute(self, statement: str, values: tuple[object, ...]) -> Any:
        self._before()
        rows = self._ledger.execute(statement, values).fetchall()
        self._after()
        return rows


def test_a_token_that_is_revoked_just_after_a_look_up_is_rejected_from_then_on(
    ledger: sqlite3.Connection, neighbours_ledger: sqlite3.Connection, clock: SteppedClock
) -> None:
    neighbour = revocations_of(neighbours_ledger, clock)
    interrupted: Any = _Interrupted(ledger, after=lambda: neighbour.revoke("1f", int(clock()) + 60))
    revocations = revocations_of(interrupted, clock)
    assert [revocations.is_revoked("1f") for _ in range(2)] == [False, True]


def test_a_token_that_is_looked_up_just_before_its_revocation_is_rejected_after_it(
    ledger: sqlite3.Connection, neighbours_ledger: sqlite3.Connection, clock: SteppedClock
) -> None:
    neighbour = revocations_of(neighbours_ledger, clock)
    interrupted: Any = _Interrupted(ledger, before=lambda: neighbour.is_revoked("1f"))
    revocations_of(interrupted, clock).revoke("1f", int(clock()) + 60)
    assert neighbour.is_revoked("1f")


def test_a_revocation_whose_write_failed_half_way_counts_where_it_is_in_the_ledger(
    ledger: sqlite3.Connection, neighbours_ledger: sqlite3.Connection, clock: SteppedClock
) -> None:
    def fails() -> None:
        raise sqlite3.OperationalError("disk I/O error")

    neighbour = revocations_of(neighbours_ledger, clock)
    assert not neighbour.is_revoked("1f")
    interrupted: Any = _Interrupted(ledger, after=fails)
    with pytest.raises(LedgerUnavailable):
        revocations_of(interrupted, clock).revoke("1f", int(clock()) + 60)
    assert neighbour.is_revoked("1f")


def test_a_token_that_is_known_to_be_valid_is_not_looked_up_again(
    ledger: sqlite3.Connection, clock: SteppedClock
) -> None:
    revocations = revocations_of(ledger, clock)
    assert not revocations.is_revoked("1f")
    ledger.close()
    assert not revocations.is_revoked("1f")


def test_revoking_one_token_revokes_no_other(ledger: sqlite3.Connection, clock: SteppedClock) -> None:
    revocations_of(ledger, clock).revoke("1f", int(clock()) + 60)
    assert not revocations_of(ledger, clock).is_revoked("2f")


def test_revoking_a_token_twice_is_no_error(ledger: sqlite3.Connection, clock: SteppedClock) -> None:
    for _ in range(2):
        revocations_of(ledger, clock).revoke("1f", int(clock()) + 60)
    assert revocations_of(ledger, clock).is_revoked("1f")


def test_a_revocation_lasts_as_long_as_its_token(ledger: sqlite3.Connection, clock: SteppedClock) -> None:
    revocations = revocations_of(ledger, clock)
    revocations.revoke("1f", int(clock()) + 60)
    clock.now += 59
    revocations.revoke("2f", int(clock()) + 60)
    assert revocations.is_revoked("1f")


def test_a_revocation_outlives_a_clock_that_jumps_ahead_and_back(
    ledger: sqlite3.Connection, clock: SteppedClock
) -> None:
    revocations = revocations_of(ledger, clock)
    revocations.revoke("1f", int(clock()) + 60)
    clock.now += 86_400
    revocations.revoke("2f", int(clock()) + 60)
    clock.now -= 86_400
    assert revocations.is_revoked("1f")


def test_of_many_revocations_the_newest_stay_and_of_the_others_those_that_have_not_expired(
    ledger: sqlite3.Connection, clock: SteppedClock
) -> None:
    revocations = revocations_of(ledger, clock, kept=3)
    revocations.revoke("long", int(clock()) + 600)
    for number in range(5):
        revocations.revoke(str(number), int(clock()) + 60)
    clock.now += 61
    revocations.revoke("last", int(clock()) + 60)
    assert revocations.among(["long", *map(str, range(5)), "last"]) == {"long", "3", "4", "last"}


def test_a_token_is_not_taken_for_valid_where_the_ledger_cannot_be_read(
    ledger: sqlite3.Connection, clock: SteppedClock
) -> None:
    revocations = revocations_of(ledger, clock)
    ledger.close()
    with pytest.raises(LedgerUnavailable):
        revocations.is_revoked("1f")


def test_of_several_tokens_it_is_known_which_are_revoked(
    ledger: sqlite3.Connection, clock: SteppedClock
) -> None:
    revocations = revocations_of(ledger, clock)
    for jti in ("1f", "2f", "3f"):
        revocations.revoke(jti, int(clock()) + 60)
    assert revocations.among(["1f", "3f", "4f"]) == {"1f", "3f"}
    assert revocations.among([]) == set()
