"""Changes at the core in the audit log: those of other clients than the API, and the outcome of the API's own
changes whose replies were lost.

The core keeps these changes while the API is down. One commit of the audit log has the records, and the place
of the last change in the core's log. So each change is recorded once, whichever worker tries.
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

from gateway_api.audit.log import AuditLog, LogPlace, OpenCall
from gateway_api.audit.record import AuditEntry, Result, describe_session, make_gap, mask_secrets
from gateway_api.base.retry import repeat
from gateway_contract.base.errors import CoreLacksMethod
from gateway_contract.base.logs import LOG
from gateway_contract.core.configuration import ChangeRecord, ChangesReply, ListChanges, ResolveCalls
from gateway_contract.core_client import CoreClient
from gateway_contract.varlink.client import Client

#: Calls whose outcome one reply of the core has.
_MAX_CALLS = 100
_REPLY_LOST = "The core's reply was lost"
#: Prefixes of the names of actions that change sessions.
_SESSION_ACTIONS = ("subscribers.", "jobs.")
#: The role of a client of the core's socket, and of the core.
ROLE = "system"


def start(core_socket: Path, log: AuditLog) -> None:
    """Start a thread that records changes until the process ends."""
    core = CoreClient(Client(core_socket))
    threading.Thread(target=_record_forever, args=(core, log), daemon=True).start()


def record_new(core: CoreClient, log: AuditLog) -> bool:
    """Record the next changes. Return True if the core may have more. Raises CoreUnavailable, CoreLacksMethod
    and AuditUnavailable; the next call tries again."""
    place = log.read_place()
    after = ListChanges(place.log, place.sequence) if place else ListChanges(None, 0)
    reply = core.call(after)
    records = _make_records(reply, place)
    if not records:
        return False
    sequence = reply.changes[-1].sequence if reply.changes else reply.newest
    log.add_changes(records, place, LogPlace(reply.log, sequence))
    return sequence < reply.newest


def resolve_calls(core: CoreClient, log: AuditLog) -> None:
    """Ask the core for the outcome of changes whose replies were lost, and complete their records. Raises
    CoreUnavailable and AuditUnavailable; the next call tries again."""
    calls = log.list_open_calls(_MAX_CALLS)
    if not calls:
        return
    try:
        reply = core.call(ResolveCalls(tuple(call.id for call in calls)))
    except CoreLacksMethod:
        return
    outcomes: dict[OpenCall, tuple[Result, str]] = {}
    for call in calls:
        if call.id in reply.done:
            outcomes[call] = "done", f"{_REPLY_LOST}: the change was made"
        elif call.id in reply.failed:
            outcomes[call] = "failed", f"{_REPLY_LOST}: the change was not made"
        elif call.id in reply.unknown and call.action.startswith(_SESSION_ACTIONS):
            # A core that was killed may have changed sessions, and had no time to note it.
            outcomes[call] = "unanswered", f"{_REPLY_LOST}: the core has no note of the change"
        elif call.id in reply.unknown:
            outcomes[call] = "failed", f"{_REPLY_LOST}: the change was not made"
    if outcomes:
        log.close_calls(outcomes)


def _record_forever(core: CoreClient, log: AuditLog) -> None:
    def record() -> Iterator[None]:
        while record_new(core, log):
            yield
        resolve_calls(core, log)
        yield

    what = "record changes at the core"
    # If this thread ended, no later change would be recorded.
    for _ in repeat(record, time.sleep, what, LOG, fault=f"cannot {what}"):
        pass


def _make_records(reply: ChangesReply, place: LogPlace | None) -> list[AuditEntry]:
    log, newest = reply.log, reply.newest
    recorded = place.sequence if place and place.log == log else 0
    if newest < recorded:
        # The core uses the numbers between the two again, for other changes.
        message = f"The core's log of changes went back from {recorded} to {newest}: changes may be missing"
        return [_make_gap(log, newest, message)]
    first = reply.changes[0].sequence if reply.changes else newest + 1
    records = [_make_record(log, change) for change in reply.changes]
    if lost := first - recorded - 1:
        message = f"{lost} changes at the core before this one are lost: they were more than it keeps"
        records.insert(0, _make_gap(log, first - 1, message))
    return records


def _make_record(log: str, change: ChangeRecord) -> AuditEntry:
    made = {"author": change.author, "comment": change.comment}
    before, after = mask_secrets(change.before), mask_secrets(change.after)
    by = "the core itself" if change.process is None else f"process {change.process} at the core's socket"
    return AuditEntry(
        at=float(change.at),
        user=change.user,
        role=ROLE,
        address=None,
        request_id=f"core-{log}-{change.sequence}",
        method="",
        action=change.action,
        route=None,
        path="",
        status=None,
        result="done",
        message=f"By {by}{describe_session(before, after)}",
        body=None if change.author is None else mask_secrets(made),
        before=before,
        after=after,
    )


def _make_gap(log: str, sequence: int, message: str) -> AuditEntry:
    return make_gap(time.time(), message, user="core", role=ROLE, request_id=f"core-{log}-{sequence}")
