"""What the core tells a caller that has lost the reply to a change."""

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gateway_api.audit.log import AuditLog, resolve_calls
from gateway_api.audit.record import Filter, make_gap
from gateway_contract.contract import Nothing
from gateway_contract.core.configuration import ConfirmCommit, GetCandidate, ResolveCalls
from gateway_contract.varlink.dispatcher import Handler
from gateway_contract.varlink.protocol import ErrorReply
from gateway_core.records.changes import MAX_CHANGES, ChangeLog
from gateway_core.service.core import Outcomes
from tests.support.pools import Here

LISTS = ("done", "failed", "unknown")


@pytest.fixture
def changes(tmp_path: Path) -> ChangeLog:
    return ChangeLog(tmp_path / "changes", "log")


@pytest.fixture
def outcomes(changes: ChangeLog) -> Outcomes:
    return Outcomes(changes)


def change(outcomes: Outcomes, id: str | None, make: Callable[[], object] = int) -> Any:
    """Calls a method that changes something by `make`."""

    def confirm(_: ConfirmCommit) -> Nothing:
        make()
        return Nothing()

    handler = outcomes.record(Handler(ConfirmCommit, confirm))
    return handler.handler(ConfirmCommit(request_id=id))


def told(outcomes: Outcomes, *ids: str) -> dict[str, str]:
    """The outcome of each call, unless it runs."""
    reply = msgspec.to_builtins(outcomes.resolve_calls(ResolveCalls(ids)))
    return {id: name for name in LISTS for id in reply[name]}


def fails() -> None:
    raise ErrorReply.of("a.b.Failed")


def test_a_call_that_runs_has_no_outcome_yet(outcomes: Outcomes) -> None:
    runs, goes_on = threading.Event(), threading.Event()

    def make() -> None:
        runs.set()
        goes_on.wait(60)

    thread = threading.Thread(target=change, args=(outcomes, "1f", make))
    thread.start()
    assert runs.wait(60)
    assert told(outcomes, "1f") == {}
    goes_on.set()
    thread.join(60)
    assert told(outcomes, "1f") == {"1f": "done"}


def test_a_call_that_comes_after_it_was_told_to_be_unknown_is_refused(outcomes: Outcomes) -> None:
    assert told(outcomes, "1f") == {"1f": "unknown"}
    made: list[str] = []
    with pytest.raises(ErrorReply, match="StepFailed"):
        change(outcomes, "1f", lambda: made.append("1f"))
    assert (made, told(outcomes, "1f")) == ([], {"1f": "unknown"})


def test_a_done_call_is_known_after_a_restart(tmp_path: Path, outcomes: Outcomes) -> None:
    change(outcomes, "1f")
    with pytest.raises(ErrorReply):
        change(outcomes, "2f", fails)
    assert told(outcomes, "1f", "2f") == {"1f": "done", "2f": "failed"}
    again = Outcomes(ChangeLog(tmp_path / "changes", "log"))
    assert told(again, "1f", "2f") == {"1f": "done", "2f": "unknown"}


def test_the_newest_calls_are_kept_on_disk(tmp_path: Path, changes: ChangeLog) -> None:
    changes.add_calls(*map(str, range(MAX_CHANGES)))
    changes.add_calls("last")
    again = ChangeLog(tmp_path / "changes", "log")
    assert again.find_calls(["0", "1", "last"]) == {"1", "last"}


def test_what_has_no_id_or_only_reads_is_served_as_it_is(outcomes: Outcomes, tmp_path: Path) -> None:
    change(outcomes, None)
    assert not (tmp_path / "changes").exists()
    handler = Handler(GetCandidate, int)
    assert outcomes.record(handler) is handler


def resolved(folder: Path, outcomes: Outcomes, action: str) -> tuple[str, str | None]:
    """Result and call of the record of a lost change, once the API has asked the core for its outcome."""
    log = AuditLog(folder, 1 << 20, Here())
    lost = make_gap(1.0, "", user="admin", role="admin")
    log.add(msgspec.structs.replace(lost, action=action, result="unanswered", call_id="1f"))
    core: Any = SimpleNamespace(call=outcomes.resolve_calls)
    resolve_calls(core, log)
    (text,) = log.read(Filter(), None).records
    log.close()
    record = json.loads(bytes(text))
    return record["result"], record["call_id"]


@pytest.mark.parametrize(
    ("action", "result"),
    [
        ("configuration.commit", "failed"),
        ("subscribers.disconnect", "unanswered"),
        ("jobs.change_rates", "unanswered"),
    ],
)
def test_the_record_of_a_call_that_a_new_core_does_not_know_has_failed_unless_it_changes_sessions(
    tmp_path: Path, outcomes: Outcomes, action: str, result: str
) -> None:
    assert resolved(tmp_path, outcomes, action) == (result, None)


@pytest.mark.parametrize(("make", "result"), [(int, "done"), (fails, "failed")])
def test_the_record_of_a_call_that_the_core_knows_has_its_outcome(
    tmp_path: Path, outcomes: Outcomes, make: Callable[[], object], result: str
) -> None:
    with suppress(ErrorReply):
        change(outcomes, "1f", make)
    assert resolved(tmp_path, outcomes, "subscribers.disconnect") == (result, None)
