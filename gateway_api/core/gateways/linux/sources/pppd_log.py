"""The log of a pppd, which alone says why a session ended.

Its exit status does not: after the goodbye of a subscriber, it is that of a hangup, or of a signal. Nor is a
log file for each session the place: pppd logs each frame of an unknown protocol, so that a subscriber could
fill the disk. systemd's journal has limits.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from gateway_api.core.gateways.linux.program import ProgramFailed, run
from gateway_api.core.gateways.linux.sources.source import SourceUnavailable

#: The cause of an end is among the last lines.
_LINES = 200
#: Bytes that they may take in JSON: a line of pppd has at most 1024.
_MOST = 4 << 20


class PppdLog(Protocol):
    """Any thread may call."""

    def lines(self, pid: int, since: float) -> Sequence[str]:
        """The last lines, oldest first, of the processes with an id since a time in epoch seconds. Raises
        SourceUnavailable."""


class _Entry(msgspec.Struct):
    """Text that is not UTF-8 is a list of bytes (systemd's Journal Export Formats, JSON)."""

    MESSAGE: str | list[int] | None = None


class SystemdJournal:
    """systemd's journal (252 in Debian 12), by `journalctl`. Its reader is in the group systemd-journal."""

    def __init__(self, journalctl: Sequence[str] = ("journalctl",), seconds: float = 10.0) -> None:
        self._journalctl = journalctl
        self._seconds = seconds
        self._decoder = msgspec.json.Decoder(_Entry)

    def lines(self, pid: int, since: float) -> Sequence[str]:
        """As PppdLog. The journal knows the sender of a line from the kernel."""
        command = [*self._journalctl, "--quiet", "--no-pager", "--output=json", f"--lines={_LINES}"]
        # The journal's times and those of processes are from two clocks.
        command += ["--output-fields=MESSAGE", f"--since=@{int(since) - 2}", f"_PID={pid}"]
        try:
            ended = run([*command, "SYSLOG_IDENTIFIER=pppd"], seconds=self._seconds, most=_MOST)
        except ProgramFailed as error:
            raise SourceUnavailable(f"cannot read the journal: {error}") from error
        if ended.status:
            raise SourceUnavailable(f"cannot read the journal: journalctl ended with status {ended.status}")
        try:
            return [_text(entry) for entry in self._decoder.decode_lines(ended.output)]
        except (msgspec.DecodeError, ValueError) as error:
            raise SourceUnavailable(f"cannot read what journalctl wrote: {error}") from error


def _text(entry: _Entry) -> str:
    if isinstance(entry.MESSAGE, list):
        return bytes(entry.MESSAGE).decode(errors="replace")
    return entry.MESSAGE or ""
