"""pppd, at a commit: it gets other files, and nothing restarts or reloads. pppd and accel-ppp read them at
each sign-on: the subscribers' secrets, or where RADIUS is.

The traces of a session of pppoe-server's pppd: the records of its hook, /proc, and its log.

The hook is packaging/pppoe/session-hook. Undocumented formats are those of pppd 2.4.9 and rp-pppoe 3.15, in
Debian 12; the log lines of pppd 2.5.2, in Debian 13, are the same.

The log of a pppd, which alone says why a session ended, and that a sign-on failed.

Its exit status does not: after the goodbye of a subscriber, it is that of a hangup, or of a signal. Nor is a
log file for each session the place: pppd logs each frame of an unknown protocol, so that a subscriber could
fill the disk. systemd's journal has limits.
"""

import logging
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from pathlib import Path
from typing import ClassVar, NamedTuple, Self, TypeAlias

import msgspec

from gateway_contract.configuration import Configuration
from gateway_contract.core.health import DependencyState
from gateway_core.configuration.workspace import Rendered
from gateway_core.gateways.linux.daemons.daemon import (
    DaemonAction,
    DaemonHost,
    PlacedFiles,
    PutBack,
    ServiceDaemon,
    all_or_none,
    check_lines,
    filled,
    template,
)
from gateway_core.gateways.linux.daemons.source import SourceFailure, SourceTraffic, SourceUnavailable
from gateway_core.gateways.linux.entries import EntryReader, UnreadableEntry
from gateway_core.gateways.linux.program import CommitLimits, ProgramFailed, run

#: The records of its hooks. `packaging/pppoe` names the same place.
RECORDS = Path("/run/gateway-pppoe")

_SECRETS = "chap-secrets"
_WITH_RADIUS, _WITHOUT_RADIUS = ("radiusclient.conf", "radius-servers"), (_SECRETS,)
_NAMES = (*_WITHOUT_RADIUS, *_WITH_RADIUS)
_TEMPLATES = {name: template(name) for name in _NAMES}
_FORMS = {_SECRETS: re.compile(r"#.*|\S+ \* \S+ (\*|[0-9.]+)", re.ASCII)}


class SignOnFiles(ServiceDaemon):
    """The files, for any pppd and for accel-ppp."""

    name = "pppd"
    effects: ClassVar = {"subscribers.local": "usually none, because each sign-on reads the passwords"}

    @classmethod
    def on(cls, host: DaemonHost) -> Self:
        return cls(host.files)

    def __init__(self, files: PlacedFiles) -> None:
        self._files = files

    def render(self, configuration: Configuration) -> Rendered:
        names = _WITH_RADIUS if configuration.radius.server else _WITHOUT_RADIUS
        return {name: filled(_TEMPLATES[name], configuration) for name in names}

    def verify(self, rendered: Rendered) -> None:
        for name, text in rendered.items():
            check_lines(name, text, _FORMS.get(name))

    def apply(self, rendered: Rendered, configuration: Configuration, limits: CommitLimits) -> PutBack:
        return all_or_none(partial(self._files.place, name, rendered.get(name)) for name in _NAMES)

    def action(self, rendered: Rendered, configuration: Configuration) -> DaemonAction:
        return None


class PppdRadius:
    """A RadiusClient, whose plugin of pppd keeps no count."""

    def look(self) -> tuple[DependencyState, str]:
        return DependencyState.UNKNOWN, "pppd does not tell whether its RADIUS requests get a response."


#: The cause of an end by SIGTERM: ours, a service that stops, or a PADT of the subscriber. pppoe-server sends
#: the signal for that one.
SIGNALLED = "signalled"

_EVENTS = {b"ip-up": True, b"ipv6-up": True, b"ip-down": False, b"ipv6-down": False}
_INTERFACE = re.compile(rb"[!-.0-~]{1,15}")
_NUMBER = re.compile(rb"[0-9]{1,20}")
#: As packaging/pppoe/pppd has it for a session in the kernel, or as pppoe-server has it in user mode.
_SERVED = re.compile(
    rb" (?:(nic-)|-I )([!-.0-~]{1,15}) (?:rp_pppoe_sess|-e) "
    rb"[0-9]+:((?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2})(?= |$)"
)
_COUNTED = re.compile(r"Sent ([0-9]{1,20}) bytes, received ([0-9]{1,20}) bytes\.")
_START = re.compile(r"pppd \S+ started by .*, uid [0-9]+")
#: Whole lines, because some lines hold text of the subscriber. pppd escapes line ends in it.
_CAUSES = (
    (re.compile(r"LCP terminated by peer(?: \(.*\))?"), "user_request"),
    (re.compile(r"No response to [0-9]+ echo-requests"), "lost_carrier"),
    (re.compile(r"Modem hangup"), "lost_carrier"),
    (re.compile(r"Terminating connection due to lack of activity\."), "idle_timeout"),
    (re.compile(r"Connect time expired"), "session_timeout"),
    (re.compile(r"Terminating on signal 15"), SIGNALLED),
)
#: pppd escapes quotes and line ends in the name.
_REFUSED = re.compile(r"(?:Peer (.*) failed CHAP authentication|PAP peer authentication failed for (.*))")
_RADIUS_SILENT = re.compile(r"rc_send_server: no reply from RADIUS server .*")
_NO_RESPONSE = "LCP: timeout sending Config-Requests"


class UnreadableRecord(UnreadableEntry):
    """The text names the format, and has nothing that a subscriber sent."""


class PppdRecord(msgspec.Struct, frozen=True):
    """The last event of IPv4, or that of IPv6, in a session."""

    is_up: bool
    interface: str
    #: Any characters. U+FFFD stands for what is not UTF-8.
    username: str
    ip_address: str | None
    #: Of the subscriber's end.
    link_local: str | None
    #: Only after the end.
    traffic: SourceTraffic | None


class PppoeAccess(msgspec.Struct, frozen=True):
    """Where a session arrived. Unless it is in the kernel, its packets go through `pppoe`, a process."""

    interface: str
    mac_address: str
    in_kernel: bool


class PppdRefusal(msgspec.Struct, frozen=True):
    """Why a subscriber got no session. `username` is None if none was given."""

    reason: str
    username: str | None


def record_of(data: bytes) -> PppdRecord:
    """Return the record of the hook. Raises UnreadableRecord."""
    if not data.endswith(b"\0"):
        raise UnreadableRecord("a record of a session without its end")
    parts = (item.partition(b"=") for item in data[:-1].split(b"\0"))
    items = {name: value for name, _, value in parts}
    event, interface = items.get(b"EVENT", b""), items.get(b"IFNAME", b"")
    if event not in _EVENTS or not _INTERFACE.fullmatch(interface):
        raise UnreadableRecord("a record of a session without its event or its interface")
    try:
        ip_address, link_local = _ipv4(items.get(b"IPREMOTE", b"")), _ipv6(items.get(b"LLREMOTE", b""))
    except AddressValueError as error:
        raise UnreadableRecord("a record of a session with an unknown address") from error
    username = items.get(b"PEERNAME", b"").decode(errors="replace")
    is_up = _EVENTS[event]
    traffic = None if is_up else _traffic(items)
    return PppdRecord(is_up, interface.decode(), username, ip_address, link_local, traffic)


def start_of(stat: bytes) -> int | None:
    """When a process started, in clock ticks since the boot, from its `stat` (proc(5)). None for a process
    that has ended, and waits for its parent. Raises UnreadableRecord."""
    # A program chooses its name, which may have spaces and parentheses.
    fields = stat[stat.rfind(b")") + 1 :].split()
    if len(fields) < 20 or not _NUMBER.fullmatch(fields[19]):
        raise UnreadableRecord("an unknown format of /proc/PID/stat")
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def access_of(cmdline: bytes) -> PppoeAccess:
    """From the `cmdline` (proc(5)) of a pppd that pppoe-server started. Raises UnreadableRecord."""
    return served_by(cmdline.replace(b"\0", b" "))


def served_by(command: bytes) -> PppoeAccess:
    """From the same with spaces between the arguments, as logs have it. Raises UnreadableRecord."""
    found = _SERVED.search(command)
    if found is None:
        raise UnreadableRecord("a pppd that pppoe-server did not start")
    return PppoeAccess(found[2].decode(), found[3].decode().lower(), in_kernel=found[1] is not None)


def cause_of(lines: Iterable[str]) -> str | None:
    """Why a session ended, from the log lines of its pppd and of earlier processes with its id: an
    Acct-Terminate-Cause (RFC 2866 section 5.10) in snake_case, or SIGNALLED. What follows the first cause
    follows from it. None without a cause."""
    found: str | None = None
    for line in lines:
        if _START.fullmatch(line):
            found = None
        elif found is None:
            found = next((cause for pattern, cause in _CAUSES if pattern.fullmatch(line)), None)
    return found


def is_start(line: str) -> bool:
    """Return whether it is the first line of a process."""
    return bool(_START.fullmatch(line))


def is_silence_of_radius(line: str) -> bool:
    """Return whether a pppd has waited for RADIUS in vain. If it refuses the subscriber then, this is why."""
    return bool(_RADIUS_SILENT.fullmatch(line))


def refusal_of(line: str) -> PppdRefusal | None:
    """Return the failed sign-on that a line tells of; None for any other line."""
    if line == _NO_RESPONSE:
        return PppdRefusal("no_response", None)
    refused = _REFUSED.fullmatch(line)
    if refused is None:
        return None
    name = refused[1] or refused[2] or ""
    return PppdRefusal("rejected", re.sub(r'\\(["\\])', r"\1", name) or None)


def is_whole(lines: Sequence[str]) -> bool:
    """Return True if they reach to the end of pppd. Those of a pppd that was killed never do."""
    return bool(lines) and lines[-1] == "Exit."


def traffic_of(lines: Iterable[str]) -> SourceTraffic | None:
    """Return the traffic that pppd counted until the end, from the same lines. None before it."""
    found: SourceTraffic | None = None
    for line in lines:
        if _START.fullmatch(line):
            found = None
        elif counted := _COUNTED.fullmatch(line):
            found = SourceTraffic(int(counted[2]), int(counted[1]))
    return found


def _ipv4(text: bytes) -> str | None:
    return str(IPv4Address(text.decode("ascii", "replace"))) if text else None


def _ipv6(text: bytes) -> str | None:
    return str(IPv6Address(text.decode("ascii", "replace"))) if text else None


def _traffic(items: dict[bytes, bytes]) -> SourceTraffic | None:
    """None where pppd did not count."""
    values = [items.get(name, b"") for name in (b"BYTES_RCVD", b"BYTES_SENT")]
    return SourceTraffic(*map(int, values)) if all(map(_NUMBER.fullmatch, values)) else None


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
