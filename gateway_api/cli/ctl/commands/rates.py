"""The rates of sessions: of one, or of many from a CSV file."""

import time
from collections.abc import Sequence

import click

from gateway_api.cli.ctl.failures import ExitStatus, Failure, complain
from gateway_api.cli.ctl.gateway import Gateway, Record
from gateway_api.cli.ctl.invocation import acts, dry_run_option
from gateway_api.cli.ctl.progress import Progress
from gateway_api.cli.ctl.rate_file import BadRow, Row, read
from gateway_api.cli.ctl.results import Report
from gateway_api.cli.ctl.targets import TargetType, session_id, session_path
from gateway_api.cli.ctl.texts import line

#: Seconds between the attempts while the gateway does not respond.
_PAUSES = (1, 2, 4)


@click.command()
@acts
@click.argument("target", required=False, type=TargetType())
@click.option("--down", metavar="RATE", help="Downstream rate, such as 50mbit or 1.5gbit.")
@click.option("--up", metavar="RATE", help="Upstream rate.")
@click.option("--file", metavar="FILE", help="Rates of many sessions, as CSV; - is standard input.")
@click.option("--skip-bad", is_flag=True, help="Ignores bad lines of the file.")
@click.option("--offline-ok", is_flag=True, help="An offline subscriber is not a failure.")
@dry_run_option
def rate(
    gateway: Gateway,
    target: str | None,
    down: str | None,
    up: str | None,
    file: str | None,
    skip_bad: bool,
    offline_ok: bool,
    dry_run: bool,
) -> Report:
    """Changes the rates of a session, or of those in a file.

    A rate is a number and a unit, in bits per second: bit, kbit, mbit, gbit, tbit, or k, m, g, t.

    The first line of a file is username,down,up or id,down,up. Empty lines and lines that begin with # are
    ignored. A file with a bad line, or with no newline at its end, changes nothing. After a failed change the
    command continues with the next; it is safe to run it again.
    """
    if file is not None:
        if target or down or up:
            raise click.UsageError("--file has the sessions and the rates.")
        return _change_all(gateway, _Rates(gateway, file, skip_bad=skip_bad, offline_ok=offline_ok), dry_run)
    if target is None or not (down or up):
        raise click.UsageError("Name a session with --down or --up, or a --file.")
    id = session_id(gateway, target)
    if dry_run:
        message = f"the rates of session {id} would change"
        return Report(message, {"message": message, "id": id})
    done = gateway.send("PUT", f"{session_path(id)}/rate", _body(down, up))
    return Report(done["message"], done)


def _body(down: str | None, up: str | None) -> Record:
    return {name: text for name, text in (("rate_down", down), ("rate_up", up)) if text is not None}


class _Rates:
    """The changes of a file. Raises Failure for bad lines."""

    def __init__(self, gateway: Gateway, file: str, *, skip_bad: bool, offline_ok: bool) -> None:
        rows = read(file)
        bad = [each for each in rows if isinstance(each, BadRow)]
        complain(f"line {each.number}: {each.reason}" for each in bad)
        if bad and not skip_bad:
            count = f"{len(bad)} bad line{'' if len(bad) == 1 else 's'}"
            raise Failure(ExitStatus.USAGE, f"{count}: nothing was changed; --skip-bad ignores them")
        self.bad = len(bad)
        self.offline = 0
        self.offline_ok = offline_ok
        self.changes: list[tuple[int, Row]] = []
        online = _online(gateway) if any(isinstance(each, Row) and not each.by_id for each in rows) else {}
        for row in rows:
            if isinstance(row, Row):
                self._add(row, [int(row.who)] if row.by_id else online.get(row.who, []))

    def _add(self, row: Row, ids: Sequence[int]) -> None:
        if not ids:
            self.offline += 1
            complain([f"line {row.number}: {line(row.who)} is not online"])
        self.changes += [(id, row) for id in ids]

    @property
    def is_whole(self) -> bool:
        return self.bad == 0 and (self.offline == 0 or self.offline_ok)


def _online(gateway: Gateway) -> dict[str, list[int]]:
    """The ids of all sessions by username."""
    found: dict[str, list[int]] = {}
    for each in gateway.pages("/subscribers", "sessions", {}):
        found.setdefault(each["username"], []).append(each["id"])
    return found


def _change_all(gateway: Gateway, rates: _Rates, dry_run: bool) -> Report:
    """Raises Failure unless every change of the file was made."""
    absent = f"{rates.offline} not online, {rates.bad} bad"
    if dry_run:
        text = f"{len(rates.changes)} would change, {absent}"
        return _outcome(text, ExitStatus.DONE if rates.is_whole else ExitStatus.REFUSED)
    changed = failed = 0
    status = ExitStatus.DONE if rates.is_whole else ExitStatus.REFUSED
    with Progress(len(rates.changes)) as progress:
        for id, row in rates.changes:
            try:
                _change(gateway, id, row)
                changed += 1
            except Failure as failure:
                complain(f"line {row.number}: {line(row.who)}: {each}" for each in failure.lines)
                status = failure.status
                if status is not ExitStatus.REFUSED:
                    complain([f"stopped at line {row.number}; run it again for the rest"])
                    break
                failed += 1
            progress.advance(failed=failed)
    left = len(rates.changes) - changed - failed
    return _outcome(f"{changed} changed, {failed} failed, {absent}, {left} not tried", status)


def _change(gateway: Gateway, id: int, row: Row) -> None:
    """Tries again while the gateway does not respond. Raises Failure."""
    for pause in (*_PAUSES, None):
        try:
            gateway.send("PUT", f"{session_path(id)}/rate", _body(row.down, row.up))
            return
        except Failure as failure:
            if pause is None or failure.status is not ExitStatus.UNREACHABLE:
                raise
            time.sleep(pause)


def _outcome(text: str, status: ExitStatus) -> Report:
    return Report(text, {"message": text}, status=status)
