"""The changes of a file of rates: which sessions they are of, and how they are made."""

import time
from collections.abc import Sequence

from gateway_api.cli.ctl.failures import CommandFailure, ExitStatus, complain
from gateway_api.cli.ctl.gateway import Record, RemoteGateway
from gateway_api.cli.ctl.progress import Progress
from gateway_api.cli.ctl.rate_file import BadRow, RateRow, read
from gateway_api.cli.ctl.results import Report
from gateway_api.cli.ctl.targets import session_path
from gateway_api.cli.ctl.texts import line

#: Seconds between the attempts while the gateway does not respond.
_PAUSES = (1, 2, 4)


class RateChanges:
    """The changes of a file. Raises Failure for bad lines."""

    def __init__(self, gateway: RemoteGateway, file: str, *, skip_bad: bool, offline_ok: bool) -> None:
        rows = read(file)
        bad = [each for each in rows if isinstance(each, BadRow)]
        complain(f"line {each.number}: {each.reason}" for each in bad)
        if bad and not skip_bad:
            count = f"{len(bad)} bad line{'' if len(bad) == 1 else 's'}"
            raise CommandFailure(ExitStatus.USAGE, f"{count}: nothing was changed; --skip-bad ignores them")
        self.bad = len(bad)
        self.offline = 0
        self.offline_ok = offline_ok
        self.changes: list[tuple[int, RateRow]] = []
        online = (
            _online(gateway) if any(isinstance(each, RateRow) and not each.by_id for each in rows) else {}
        )
        for row in rows:
            if isinstance(row, RateRow):
                self._add(row, [int(row.who)] if row.by_id else online.get(row.who, []))

    def _add(self, row: RateRow, ids: Sequence[int]) -> None:
        if not ids:
            self.offline += 1
            complain([f"line {row.number}: {line(row.who)} is not online"])
        self.changes += [(id, row) for id in ids]

    @property
    def is_whole(self) -> bool:
        return self.bad == 0 and (self.offline == 0 or self.offline_ok)


def _online(gateway: RemoteGateway) -> dict[str, list[int]]:
    """The ids of all sessions by username."""
    found: dict[str, list[int]] = {}
    for each in gateway.pages("/subscribers", "sessions", {}):
        found.setdefault(each["username"], []).append(each["id"])
    return found


def change_all(gateway: RemoteGateway, rates: RateChanges, terms: Record, dry_run: bool) -> Report:
    """`terms` say how long the rates are valid. The status is DONE if every change of the file was made."""
    absent = f"{rates.offline} not online, {rates.bad} bad"
    if dry_run:
        text = f"{len(rates.changes)} would change, {absent}"
        return _outcome(text, ExitStatus.DONE if rates.is_whole else ExitStatus.REFUSED)
    changed = failed = 0
    status = ExitStatus.DONE if rates.is_whole else ExitStatus.REFUSED
    with Progress(len(rates.changes)) as progress:
        for id, row in rates.changes:
            try:
                _change(gateway, id, row, terms)
                changed += 1
            except CommandFailure as failure:
                complain(f"line {row.number}: {line(row.who)}: {each}" for each in failure.lines)
                status = failure.status
                if status is not ExitStatus.REFUSED:
                    complain([f"stopped at line {row.number}; run it again for the rest"])
                    break
                failed += 1
            progress.advance(failed=failed)
    left = len(rates.changes) - changed - failed
    return _outcome(f"{changed} changed, {failed} failed, {absent}, {left} not tried", status)


def _change(gateway: RemoteGateway, id: int, row: RateRow, terms: Record) -> None:
    """Tries again while the gateway does not respond. Raises Failure."""
    body = {"rate_down": row.down, "rate_up": row.up, **terms}
    for pause in (*_PAUSES, None):
        try:
            gateway.send("PUT", f"{session_path(id)}/rate", body)
            return
        except CommandFailure as failure:
            if pause is None or failure.status is not ExitStatus.UNREACHABLE:
                raise
            time.sleep(pause)


def _outcome(text: str, status: ExitStatus) -> Report:
    return Report(text, {"message": text}, status=status)
