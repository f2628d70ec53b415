"""The changes of a file of rates: all are known and checked before the first one is made."""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from gateway_api.base import durable
from gateway_api.cli.ctl.failures import CommandFailure, ExitStatus, complain, status_of
from gateway_api.cli.ctl.invocation import confirm
from gateway_api.cli.ctl.progress import Progress
from gateway_api.cli.ctl.rate_file import BadRow, RateRow, read, written
from gateway_api.cli.ctl.results import Importance, Report, ResultList, ShownColumn
from gateway_api.cli.ctl.targets import session_path
from gateway_api.cli.ctl.texts import sessions
from gateway_api.client.errors import ClientError, NoResponse
from gateway_api.client.gateway import Record, RemoteGateway

#: Seconds between the attempts while the gateway does not respond.
_PAUSES = (1, 2, 4)
#: Changes that a question shows.
_MOST_SHOWN = 100
#: Undo files that are kept.
_MOST_KEPT = 100
#: All of them say what would change.
_COLUMNS = (
    ShownColumn("id", importance=Importance.IDENTITY),
    ShownColumn("username", importance=Importance.IDENTITY),
    ShownColumn("former_rate_down_bps", "Down", importance=Importance.IDENTITY),
    ShownColumn("rate_down_bps", "New down", importance=Importance.IDENTITY),
    ShownColumn("former_rate_up_bps", "Up", importance=Importance.IDENTITY),
    ShownColumn("rate_up_bps", "New up", importance=Importance.IDENTITY),
)


class Change(NamedTuple):
    """A line of the file, and a session as the list has it."""

    row: RateRow
    session: Record

    @property
    def record(self) -> Record:
        return {
            "id": self.session["id"],
            "username": self.session["username"],
            "rate_down_bps": self.row.down,
            "rate_up_bps": self.row.up,
            "former_rate_down_bps": self.session["rate_down"],
            "former_rate_up_bps": self.session["rate_up"],
        }


class RateChanges:
    """The changes of a file. Raises ClientError for bad lines."""

    def __init__(self, gateway: RemoteGateway, file: str, *, skip_bad: bool, offline_ok: bool) -> None:
        found = read(file)
        bad = [each for each in found if isinstance(each, BadRow)]
        complain(f"line {each.number}: {each.reason}" for each in bad)
        if bad and not skip_bad:
            count = f"{len(bad)} bad line{'' if len(bad) == 1 else 's'}"
            raise CommandFailure(ExitStatus.USAGE, f"{count}: nothing was changed; --skip-bad ignores them")
        rows = [each for each in found if isinstance(each, RateRow)]
        online = gateway.pages("/subscribers", "sessions", {}) if rows else []
        self.bad = len(bad)
        self.offline = 0
        self.offline_ok = offline_ok
        self.changes: list[Change] = []
        by_id, by_username = {each["id"]: each for each in online}, _by_username(online)
        for row in rows:
            self._add(row, _sessions_of(row, by_id, by_username))

    def _add(self, row: RateRow, found: Sequence[Record]) -> None:
        if not found:
            self.offline += 1
            complain([f"line {row.number}: {row.who} is not online"])
        self.changes += [Change(row, each) for each in found]

    @property
    def is_whole(self) -> bool:
        return self.bad == 0 and (self.offline == 0 or self.offline_ok)

    @property
    def absent(self) -> str:
        return f"{self.offline} not online, {self.bad} bad"

    def table(self, most: int | None = None) -> ResultList:
        """The former and the new rates of each session, or of the first ones."""
        return ResultList([each.record for each in self.changes[:most]], _COLUMNS)


def _by_username(online: Iterable[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for each in online:
        found.setdefault(each["username"], []).append(each)
    return found


def _sessions_of(
    row: RateRow, by_id: Mapping[int, Record], by_username: Mapping[str, Sequence[Record]]
) -> Sequence[Record]:
    if row.id is None:
        return by_username.get(row.username or "", ())
    session = by_id.get(row.id)
    # The id may be that of another subscriber meanwhile, after a restart of the core.
    is_same = session is not None and row.username in (None, session["username"])
    return [session] if session is not None and is_same else []


def change_all(
    gateway: RemoteGateway, rates: RateChanges, terms: Record, *, dry_run: bool, yes: bool
) -> Report:
    """Shows the changes, asks, writes the undo file, and makes the changes. `terms` say how long the rates
    are valid. The status is DONE if every change of the file was made. Raises ClientError."""
    status = ExitStatus.DONE if rates.is_whole else ExitStatus.REFUSED
    if rates.changes:
        _require_allowed(gateway, rates.changes[0], terms)
    if dry_run:
        text = f"{len(rates.changes)} would change, {rates.absent}"
        record = {"message": text, "changes": [each.record for each in rates.changes]}
        return Report(text, record, status=status, table=rates.table())
    if not rates.changes:
        return _outcome(rates, 0, 0, status)
    left = len(rates.changes) - _MOST_SHOWN
    more = f"and {sessions(left)} more: --dry-run shows all\n" if left > 0 else ""
    text = f"{more}{len(rates.changes)} will change, {rates.absent}"
    about = Report(text, None, table=rates.table(_MOST_SHOWN))
    confirm("Change their rates?", yes=yes, otherwise="nothing was changed", about=about)
    undo = _undo_file(rates.changes)
    complain([f"to undo the changes: gatewayctl subscribers rate --file {undo}"])
    changed = failed = 0
    with Progress(len(rates.changes)) as progress:
        for each in rates.changes:
            try:
                _change(gateway, each, terms)
                changed += 1
            except ClientError as failure:
                complain(f"line {each.row.number}: {each.row.who}: {said}" for said in failure.lines)
                status = status_of(failure)
                if status is not ExitStatus.REFUSED:
                    complain([f"stopped at line {each.row.number}; run it again for the rest"])
                    break
                failed += 1
            progress.advance(failed=failed)
    return _outcome(rates, changed, failed, status)


def _require_allowed(gateway: RemoteGateway, change: Change, terms: Record) -> None:
    """Has the gateway check the user's role, and the terms, which are the same for all lines. Raises
    ClientError."""
    body = {**_body(change.row, terms), "filter": {"search": str(change.session["id"])}, "dry_run": True}
    gateway.send("POST", "/subscribers/rate", body)


def _undo_file(changes: Sequence[Change]) -> Path:
    """Writes the former rates to a file of the user's. Raises ClientError."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    folder = Path(home) / "gatewayctl"
    path = folder / f"rates-before-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.csv"
    try:
        durable.make_folder(folder)
        durable.replace(path, written(each.session for each in changes).encode())
        for old in sorted(folder.glob("rates-before-*.csv"))[:-_MOST_KEPT]:
            old.unlink(missing_ok=True)
    except OSError as error:
        said = f"cannot write the undo file {path}: {error.strerror}; nothing was changed"
        raise CommandFailure(ExitStatus.REFUSED, said) from error
    return path


def _change(gateway: RemoteGateway, change: Change, terms: Record) -> None:
    """Tries again while the gateway does not respond. Raises ClientError."""
    for pause in (*_PAUSES, None):
        try:
            gateway.send("PUT", f"{session_path(change.session['id'])}/rate", _body(change.row, terms))
            return
        except NoResponse:
            if pause is None:
                raise
            time.sleep(pause)


def _body(row: RateRow, terms: Record) -> Record:
    return {"rate_down": f"{row.down}bit", "rate_up": f"{row.up}bit", **terms}


def _outcome(rates: RateChanges, changed: int, failed: int, status: ExitStatus) -> Report:
    left = len(rates.changes) - changed - failed
    text = f"{changed} changed, {failed} failed, {rates.absent}, {left} not tried"
    return Report(text, {"message": text}, status=status)
