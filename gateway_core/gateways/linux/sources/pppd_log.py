"""The log of a pppd, which alone says why a session ended, and that a sign-on failed.

Its exit status does not: after the goodbye of a subscriber, it is that of a hangup, or of a signal. Nor is a
log file for each session the place: pppd logs each frame of an unknown protocol, so that a subscriber could
fill the disk. systemd's journal has limits.
"""

import logging
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeAlias

import msgspec

from gateway_core.gateways.linux.entries import EntryReader
from gateway_core.gateways.linux.program import ProgramFailed, run
from gateway_core.gateways.linux.sources.pppd import (
    UnreadableRecord,
    is_silence_of_radius,
    is_start,
    refusal_of,
    served_by,
)
from gateway_core.gateways.linux.sources.source import SourceFailure, SourceUnavailable

#: Of a process. The cause of an end is among the last lines.
_LINES = 200
#: Of all processes together, in one reading of a tail. Some twenty are of one sign-on.
_FLOOD = 4000
#: Bytes that a line may take in JSON. Of pppd, it has at most 1024, and one takes four as a number of a list.
_MOST = 8 << 10
#: Seconds. The journal's times and those of processes are from two clocks.
_APART = 2
#: Processes that are remembered for a RADIUS server that did not reply.
_MOST_WAITING = 1000

_log = logging.getLogger(__name__)


_LINES_OF_PPPD = EntryReader(
    "pppoe-server",
    "log_line",
    "the lines of pppd in the journal",
    "a failed sign-on or the reason of an end may be missing",
)


class LoggedLine(NamedTuple):
    """`at` is epoch seconds. `command` is the command line of the process, with spaces between arguments."""

    at: float
    pid: int
    command: str
    text: str


class _Found(NamedTuple):
    """A line, and its place in the journal."""

    line: LoggedLine
    cursor: str


_Text: TypeAlias = str | list[int] | None


class _JournalEntry(msgspec.Struct):
    """Text that is not UTF-8 is a list of bytes (systemd's Journal Export Formats, JSON). Numbers are text,
    times are in microseconds."""

    pid: str = msgspec.field(name="_PID")
    at: str = msgspec.field(name="__REALTIME_TIMESTAMP")
    message: _Text = msgspec.field(name="MESSAGE", default=None)
    command: _Text = msgspec.field(name="_CMDLINE", default=None)
    cursor: str = msgspec.field(name="__CURSOR", default="")


_DECODER = msgspec.json.Decoder(_JournalEntry)


class SystemdJournal:
    """systemd's journal (252 in Debian 12), by `journalctl`. Its reader is in the group systemd-journal. Any
    thread may call."""

    def __init__(self, journalctl: Sequence[str] = ("journalctl",), seconds: float = 10.0) -> None:
        self._journalctl = journalctl
        self._seconds = seconds

    def lines(self, since: Mapping[int, float]) -> Mapping[int, Sequence[str]]:
        """Return the last lines of pppd, oldest first, of processes by their id, each since a time in epoch
        seconds. The journal knows the sender of a line from the kernel. Raises SourceUnavailable."""
        if not since:
            return {}
        found = self._lines_of(since)
        if len(found) < _LINES * len(since) or len(since) == 1:
            return _by_process(found, since)
        # One that fills the log must not take the place of the others.
        alone = [{pid: at} for pid, at in since.items()]
        return _by_process([line for one in alone for line in self._lines_of(one)], since)

    def _lines_of(self, since: Mapping[int, float]) -> list[LoggedLine]:
        most = _LINES * len(since)
        wanted = [f"--lines={most}", "--output-fields=MESSAGE,_PID"]
        wanted += [f"--since=@{int(min(since.values())) - _APART}", *(f"_PID={pid}" for pid in since)]
        return [
            found.line
            for found in _read_journal(self._journalctl, wanted, self._seconds, most * _MOST, since)
        ]


class JournalTail:
    """The log of pppd from a time on, in epoch seconds, by `journalctl`. One thread at a time may call."""

    def __init__(
        self, since: float, journalctl: Sequence[str] = ("journalctl",), seconds: float = 10.0
    ) -> None:
        self._from = f"--since=@{int(since)}"
        self._journalctl = journalctl
        self._seconds = seconds

    def read(self) -> list[LoggedLine]:
        """Return the lines after those of the last reading. After a flood, the newest. Raises
        SourceUnavailable."""
        wanted = [self._from, f"--lines={_FLOOD}", "--output-fields=MESSAGE,_PID,_CMDLINE"]
        found = _read_journal(self._journalctl, wanted, self._seconds, _FLOOD * _MOST)
        if len(found) == _FLOOD:
            _log.warning("pppd logs faster than the core reads: some failed sign-ons may be missing")
        if found:
            self._from = f"--after-cursor={found[-1].cursor}"
        return [each.line for each in found]


def _read_journal(
    journalctl: Sequence[str],
    wanted: Sequence[str],
    seconds: float,
    most: int,
    processes: Container[int] | None = None,
) -> list[_Found]:
    """Return the lines of pppd, oldest first: of all processes, or of some. Raises SourceUnavailable."""
    command = [*journalctl, "--quiet", "--no-pager", "--output=json", "SYSLOG_IDENTIFIER=pppd", *wanted]
    try:
        ended = run(command, seconds=seconds, most=most)
    except ProgramFailed as error:
        raise SourceUnavailable(f"cannot read the journal: {error}") from error
    if ended.status:
        raise SourceUnavailable(f"cannot read the journal: journalctl ended with status {ended.status}")
    lines = ended.output.splitlines()
    found = _LINES_OF_PPPD.read(lines, partial(_parse_line, processes))
    if lines and not found:
        raise SourceUnavailable("cannot read what journalctl wrote: no line is in its format")
    return found


def _parse_line(processes: Container[int] | None, line: bytes) -> _Found:
    """Return a line of journalctl's JSON. Raises UnreadableRecord."""
    try:
        entry = _DECODER.decode(line)
        at, pid = int(entry.at) / 1e6, int(entry.pid)
        found = _Found(LoggedLine(at, pid, _text(entry.command), _text(entry.message)), entry.cursor)
    except (ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise UnreadableRecord("a line of journalctl is not in its format") from error
    if processes is not None and pid not in processes:
        raise UnreadableRecord("a line of journalctl is of another process")
    return found


def _by_process(found: Iterable[LoggedLine], since: Mapping[int, float]) -> Mapping[int, Sequence[str]]:
    lines: dict[int, list[str]] = {pid: [] for pid in since}
    for line in found:
        if line.at >= int(since[line.pid]) - _APART:
            lines[line.pid].append(line.text)
    return lines


def _text(value: _Text) -> str:
    if isinstance(value, list):
        return bytes(value).decode(errors="replace")
    return value or ""


class PppdFailures:
    """The sign-ons that failed, in a `tail` of the log. `name` is that of the source. One thread at a time
    may call."""

    def __init__(self, name: str, tail: JournalTail) -> None:
        self.name = name
        self._tail = tail
        self._waited: set[int] = set()

    def read(self) -> list[SourceFailure]:
        """Return the failures since the last call. Raises SourceUnavailable."""
        return [failure for line in self._tail.read() for failure in self._failure(line)]

    def _failure(self, line: LoggedLine) -> Iterator[SourceFailure]:
        if is_start(line.text):
            # An earlier process with this id may have waited.
            self._waited.discard(line.pid)
        elif is_silence_of_radius(line.text):
            if len(self._waited) >= _MOST_WAITING:
                self._waited.clear()
            self._waited.add(line.pid)
        refusal = refusal_of(line.text)
        if refusal is None:
            return
        has_waited = line.pid in self._waited
        self._waited.discard(line.pid)
        # Another pppd of this machine, which no pppoe-server started, has no subscriber.
        with suppress(UnreadableRecord):
            access = served_by(line.command.encode())
            yield SourceFailure(
                at=line.at,
                reason="radius_timeout" if has_waited else refusal.reason,
                username=refusal.username,
                mac_address=access.mac_address,
                access_interface=access.interface,
            )
