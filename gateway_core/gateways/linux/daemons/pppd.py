"""pppd: the files that pppd reads at each sign-on, the records of its hook, its processes in /proc, and its
log.

A commit replaces the files with the subscribers' secrets or with the RADIUS servers. pppd and accel-ppp read
these files at each sign-on, so no daemon restarts or reloads.

The hook is packaging/pppoe/session-hook. Undocumented formats were checked against pppd 2.4.9 and rp-pppoe
3.15 (Debian 12). The log lines of pppd 2.5.2 (Debian 13) are the same.

Only the log tells why a session ended, and that a sign-on failed. The exit status of pppd does not tell the
reason: when the subscriber terminates PPP, pppd exits with the status of a hangup or of a signal. The log
goes to the systemd journal, which has size limits. A log file for each session could fill the disk, because
pppd logs each frame of an unknown protocol.
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
from gateway_core.configuration.workspace import RenderedFiles
from gateway_core.gateways.linux.daemons.daemon import (
    DaemonAction,
    PlacedFiles,
    Rollback,
    ServiceDaemon,
    check_lines,
    fill_template,
    load_template,
)
from gateway_core.gateways.linux.daemons.source import SourceFailure, SourceTraffic, SourceUnavailable
from gateway_core.gateways.linux.daemons.systemd import Systemd
from gateway_core.gateways.linux.entries import EntryReader, UnreadableEntry
from gateway_core.gateways.linux.program import CommitLimits, ProgramFailed, run

#: Folder of the records of the hook. `packaging/pppoe` names the same folder.
RECORDS_FOLDER = Path("/run/gateway-pppoe")

_SECRETS_FILE = "chap-secrets"
_RADIUS_FILES = ("radiusclient.conf", "radius-servers")
_TEMPLATES = {name: load_template(name) for name in (_SECRETS_FILE, *_RADIUS_FILES)}
_LINE_PATTERNS = {_SECRETS_FILE: re.compile(r"#.*|\S+ \* \S+ (\*|[0-9.]+)", re.ASCII)}

#: Cause of an end by SIGTERM: a request, a service that stops, or a PADT of the subscriber, at which
#: pppoe-server sends the signal.
SIGNALLED = "signalled"

_IS_UP_BY_EVENT = {b"ip-up": True, b"ipv6-up": True, b"ip-down": False, b"ipv6-down": False}
_INTERFACE_PATTERN = re.compile(rb"[!-.0-~]{1,15}")
_NUMBER_PATTERN = re.compile(rb"[0-9]{1,20}")
#: Arguments that packaging/pppoe/pppd makes for a session in the kernel, or pppoe-server in user mode.
_ACCESS_PATTERN = re.compile(
    rb" (?:(nic-)|-I )([!-.0-~]{1,15}) (?:rp_pppoe_sess|-e) "
    rb"[0-9]+:((?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2})(?= |$)"
)

# Whole lines of the log, because some lines hold text of the subscriber. pppd escapes quotes and line ends in
# that text.
_TRAFFIC_PATTERN = re.compile(r"Sent ([0-9]{1,20}) bytes, received ([0-9]{1,20}) bytes\.")
_START_PATTERN = re.compile(r"pppd \S+ started by .*, uid [0-9]+")
_CAUSE_PATTERNS = (
    (re.compile(r"LCP terminated by peer(?: \(.*\))?"), "user_request"),
    (re.compile(r"No response to [0-9]+ echo-requests"), "lost_carrier"),
    (re.compile(r"Modem hangup"), "lost_carrier"),
    (re.compile(r"Terminating connection due to lack of activity\."), "idle_timeout"),
    (re.compile(r"Connect time expired"), "session_timeout"),
    (re.compile(r"Terminating on signal 15"), SIGNALLED),
)
_REJECTION_PATTERN = re.compile(
    r"(?:Peer (.*) failed CHAP authentication|PAP peer authentication failed for (.*))"
)
_RADIUS_TIMEOUT_PATTERN = re.compile(r"rc_send_server: no reply from RADIUS server .*")
_NO_RESPONSE_LINE = "LCP: timeout sending Config-Requests"
_LAST_LINE = "Exit."

#: Lines that are read of an ended process. The cause of an end is among the last.
_MAX_LINES_PER_PROCESS = 200
#: Lines that are read at once of all processes together. Some twenty are of one sign-on.
_MAX_LOG_LINES = 4000
#: Bytes of a line in JSON. pppd writes at most 1024, and each may take four as a number of a list.
_MAX_LINE_BYTES = 8 << 10
#: Seconds by which the time stamps of the journal and the start times of processes may differ.
_CLOCK_TOLERANCE_SECONDS = 2
#: Processes that are remembered for a RADIUS server that did not reply.
_MAX_WAITING_PROCESSES = 1000

_LOG_LINE_READER = EntryReader(
    "pppoe-server",
    "log_line",
    "the lines of pppd in the journal",
    "a failed sign-on or the reason of an end may be missing",
)

_log = logging.getLogger(__name__)


class PppdFiles(ServiceDaemon):
    """Configuration files that pppd and accel-ppp read at each sign-on."""

    name = "pppd"
    effects: ClassVar = {"subscribers.local": "usually none, because each sign-on reads the passwords"}

    @classmethod
    def create(cls, files: PlacedFiles, systemd: Systemd, is_source: bool) -> Self:
        return cls(files)

    def __init__(self, files: PlacedFiles) -> None:
        self._files = files

    def render(self, configuration: Configuration) -> RenderedFiles:
        names = _RADIUS_FILES if configuration.radius.server else (_SECRETS_FILE,)
        return {name: fill_template(_TEMPLATES[name], configuration) for name in names}

    def verify(self, rendered: RenderedFiles) -> None:
        for name, text in rendered.items():
            check_lines(name, text, _LINE_PATTERNS.get(name))

    def apply(
        self, rendered: RenderedFiles, configuration: Configuration, limits: CommitLimits, rollback: Rollback
    ) -> None:
        for name in _TEMPLATES:
            rollback.add(self._files.place(name, rendered.get(name)))

    def preview_action(self, rendered: RenderedFiles, configuration: Configuration) -> DaemonAction:
        return None


class PppdRadius:
    """RadiusClient of pppd. The state is always unknown, because pppd's RADIUS plugin keeps no statistics."""

    def read_state(self) -> tuple[DependencyState, str]:
        return DependencyState.UNKNOWN, "pppd does not tell whether its RADIUS requests get a response."


class UnreadableRecord(UnreadableEntry):
    """Error of a record, a process or a log line: the format is unknown. The error text contains nothing that
    a subscriber sent."""


class PppdRecord(msgspec.Struct, frozen=True):
    """Last event of a session in one address family, IPv4 or IPv6."""

    is_up: bool
    interface: str
    #: Any characters. U+FFFD stands for a byte that is not UTF-8.
    username: str
    ip_address: str | None
    #: The link-local address of the subscriber.
    link_local: str | None
    #: Only after the end.
    traffic: SourceTraffic | None


class PppoeAccess(msgspec.Struct, frozen=True):
    """Access interface and MAC address of a PPPoE session. If `in_kernel` is False, the process `pppoe`
    forwards the packets of the session in user mode."""

    interface: str
    mac_address: str
    in_kernel: bool


def parse_record(data: bytes) -> PppdRecord:
    """Parse a record that the hook wrote. Raises UnreadableRecord if the record is incomplete or invalid."""
    if not data.endswith(b"\0"):
        raise UnreadableRecord("a record of a session without its end")
    parts = (item.partition(b"=") for item in data[:-1].split(b"\0"))
    items = {name: value for name, _, value in parts}
    is_up, interface = _IS_UP_BY_EVENT.get(items.get(b"EVENT", b"")), items.get(b"IFNAME", b"")
    if is_up is None or not _INTERFACE_PATTERN.fullmatch(interface):
        raise UnreadableRecord("a record of a session without its event or its interface")
    remote, link_local = (
        items.get(name, b"").decode("ascii", "replace") for name in (b"IPREMOTE", b"LLREMOTE")
    )
    counts = [items.get(name, b"") for name in (b"BYTES_RCVD", b"BYTES_SENT")]
    is_counted = not is_up and all(map(_NUMBER_PATTERN.fullmatch, counts))
    try:
        return PppdRecord(
            is_up=is_up,
            interface=interface.decode(),
            username=items.get(b"PEERNAME", b"").decode(errors="replace"),
            ip_address=str(IPv4Address(remote)) if remote else None,
            link_local=str(IPv6Address(link_local)) if link_local else None,
            traffic=SourceTraffic(*map(int, counts)) if is_counted else None,
        )
    except AddressValueError as error:
        raise UnreadableRecord("a record of a session with an unknown address") from error


def parse_start(stat: bytes) -> int | None:
    """Return the start time of a process in clock ticks since boot. `stat` is the content of /proc/PID/stat
    (proc(5)). Return None for a zombie process. Raises UnreadableRecord if the format is unknown."""
    # A program chooses its name, which may have spaces and parentheses.
    fields = stat[stat.rfind(b")") + 1 :].split()
    if len(fields) < 20 or not _NUMBER_PATTERN.fullmatch(fields[19]):
        raise UnreadableRecord("an unknown format of /proc/PID/stat")
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def parse_access(command: bytes) -> PppoeAccess:
    """Return the access interface and MAC address in `command`, the command line of a pppd. The arguments are
    separated by NUL, as in /proc, or by spaces, as in the journal. Raises UnreadableRecord if pppoe-server
    did not start this pppd."""
    match = _ACCESS_PATTERN.search(command.replace(b"\0", b" "))
    if match is None:
        raise UnreadableRecord("a pppd that pppoe-server did not start")
    return PppoeAccess(match[2].decode(), match[3].decode().lower(), in_kernel=match[1] is not None)


def parse_end(lines: Iterable[str]) -> tuple[str | None, SourceTraffic | None]:
    """Return the reason for the end of a session, and the traffic that pppd counted. `lines` are the log
    lines of the pppd, perhaps after lines of earlier processes with the same id. The reason is an
    Acct-Terminate-Cause (RFC 2866 section 5.10) in snake_case, or SIGNALLED. If the lines have several
    causes, the first cause is returned, because the later causes are consequences of the first. The reason or
    the traffic is None if the lines do not contain it."""
    cause: str | None = None
    traffic: SourceTraffic | None = None
    for line in lines:
        if _START_PATTERN.fullmatch(line):
            cause = traffic = None
        elif match := _TRAFFIC_PATTERN.fullmatch(line):
            traffic = SourceTraffic(int(match[2]), int(match[1]))
        elif cause is None:
            cause = next((cause for pattern, cause in _CAUSE_PATTERNS if pattern.fullmatch(line)), None)
    return cause, traffic


def is_log_complete(lines: Sequence[str]) -> bool:
    """Return True if the log lines include the last line of a pppd. A pppd that was killed never writes its
    last line."""
    return bool(lines) and lines[-1] == _LAST_LINE


def parse_refusal(line: str) -> tuple[str, str | None] | None:
    """Return the reason and the user name of a failed sign-on. The user name is None if the subscriber sent
    no user name. Return None if the line does not report a failed sign-on."""
    if line == _NO_RESPONSE_LINE:
        return "no_response", None
    match = _REJECTION_PATTERN.fullmatch(line)
    if match is None:
        return None
    name = match[1] or match[2] or ""
    return "rejected", re.sub(r'\\(["\\])', r"\1", name) or None


class LogLine(NamedTuple):
    """Log line of pppd in the journal. `at` is in epoch seconds. `command` is the command line of the
    process, with spaces between the arguments. `cursor` is the position of the line in the journal."""

    at: float
    pid: int
    command: str
    text: str
    cursor: str = ""


_JournalText: TypeAlias = str | list[int] | None


class _JournalEntry(msgspec.Struct):
    """JSON entry of the journal (systemd's Journal Export Formats). Text that is not UTF-8 is a list of byte
    values. Numbers are strings, and times are in microseconds."""

    pid: str = msgspec.field(name="_PID")
    at: str = msgspec.field(name="__REALTIME_TIMESTAMP")
    message: _JournalText = msgspec.field(name="MESSAGE", default=None)
    command: _JournalText = msgspec.field(name="_CMDLINE", default=None)
    cursor: str = msgspec.field(name="__CURSOR", default="")


_ENTRY_DECODER = msgspec.json.Decoder(_JournalEntry)


class PppdJournal:
    """Reader of the pppd log in the systemd journal (252 in Debian 12), by `journalctl`. The user of the core
    must be in the group systemd-journal. `seconds` is the time limit of one `journalctl` run. Thread-safe.
    All methods raise SourceUnavailable if the journal cannot be read."""

    def __init__(self, journalctl: Sequence[str] = ("journalctl",), seconds: float = 10.0) -> None:
        self._journalctl = journalctl
        self._seconds = seconds

    def read_processes(self, since: Mapping[int, float]) -> Mapping[int, Sequence[str]]:
        """Return the last log lines of each process by process id, oldest line first. `since` maps each
        process id to the start time of the process in epoch seconds. A process cannot forge lines of another
        process, because the journal gets the process id from the kernel."""
        if not since:
            return {}
        log_lines = self._read_last_lines(since)
        if len(log_lines) >= _MAX_LINES_PER_PROCESS * len(since) and len(since) > 1:
            # A process that fills the log must not take the place of the others.
            log_lines = [line for pid, at in since.items() for line in self._read_last_lines({pid: at})]
        lines: dict[int, list[str]] = {pid: [] for pid in since}
        for line in log_lines:
            if line.at >= int(since[line.pid]) - _CLOCK_TOLERANCE_SECONDS:
                lines[line.pid].append(line.text)
        return lines

    def read_lines(self, start_option: str) -> list[LogLine]:
        """Return the log lines of all pppd processes, oldest first. If there are more than _MAX_LOG_LINES
        lines, return only the newest. `start_option` is the `journalctl` option for the start position."""
        arguments = [start_option, f"--lines={_MAX_LOG_LINES}", "--output-fields=MESSAGE,_PID,_CMDLINE"]
        found = self._read(arguments, _MAX_LOG_LINES)
        if len(found) == _MAX_LOG_LINES:
            _log.warning("pppd logs faster than the core reads: some failed sign-ons may be missing")
        return found

    def _read_last_lines(self, since: Mapping[int, float]) -> list[LogLine]:
        max_lines = _MAX_LINES_PER_PROCESS * len(since)
        arguments = [f"--lines={max_lines}", "--output-fields=MESSAGE,_PID"]
        arguments += [
            f"--since=@{int(min(since.values())) - _CLOCK_TOLERANCE_SECONDS}",
            *(f"_PID={pid}" for pid in since),
        ]
        return self._read(arguments, max_lines, since)

    def _read(
        self, arguments: Sequence[str], max_lines: int, processes: Container[int] | None = None
    ) -> list[LogLine]:
        """Return at most `max_lines` log lines of pppd, oldest first. `arguments` are further arguments for
        `journalctl`. `processes` are the ids of the processes, or None for all processes."""
        command = [*self._journalctl, "--quiet", "--no-pager", "--output=json", "SYSLOG_IDENTIFIER=pppd"]
        try:
            ended = run([*command, *arguments], seconds=self._seconds, max_bytes=max_lines * _MAX_LINE_BYTES)
        except ProgramFailed as error:
            raise SourceUnavailable(f"cannot read the journal: {error}") from error
        if ended.status:
            raise SourceUnavailable(f"cannot read the journal: journalctl ended with status {ended.status}")
        lines = ended.output.splitlines()
        log_lines = _LOG_LINE_READER.read(lines, partial(_parse_line, processes))
        if lines and not log_lines:
            raise SourceUnavailable("cannot read what journalctl wrote: no line is in its format")
        return log_lines


def _parse_line(processes: Container[int] | None, line: bytes) -> LogLine:
    """Parse a JSON line of `journalctl`. `processes` are the expected process ids, or None for all. Raises
    UnreadableRecord if the line is invalid, or belongs to another process."""
    try:
        entry = _ENTRY_DECODER.decode(line)
        at, pid = int(entry.at) / 1e6, int(entry.pid)
        log_line = LogLine(at, pid, _decode_text(entry.command), _decode_text(entry.message), entry.cursor)
    except (ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise UnreadableRecord("a line of journalctl is not in its format") from error
    if processes is not None and pid not in processes:
        raise UnreadableRecord("a line of journalctl is of another process")
    return log_line


def _decode_text(value: _JournalText) -> str:
    if isinstance(value, list):
        return bytes(value).decode(errors="replace")
    return value or ""


class PppdFailures:
    """Reader of failed sign-ons in the pppd log, beginning at the epoch second `since`. `name` is the name of
    the source. Not thread-safe."""

    def __init__(self, name: str, journal: PppdJournal, since: float) -> None:
        self.name = name
        self._journal = journal
        self._start_option = f"--since=@{int(since)}"
        #: Ids of processes that have waited for a RADIUS server in vain.
        self._waiting_pids: set[int] = set()

    def read(self) -> list[SourceFailure]:
        """Return the failed sign-ons since the previous call. Raises SourceUnavailable if the journal cannot
        be read."""
        lines = self._journal.read_lines(self._start_option)
        if lines:
            self._start_option = f"--after-cursor={lines[-1].cursor}"
        return [failure for line in lines for failure in self._find_failure(line)]

    def _find_failure(self, line: LogLine) -> Iterator[SourceFailure]:
        if _START_PATTERN.fullmatch(line.text):
            # An earlier process with this id may have waited.
            self._waiting_pids.discard(line.pid)
        elif _RADIUS_TIMEOUT_PATTERN.fullmatch(line.text):
            if len(self._waiting_pids) >= _MAX_WAITING_PROCESSES:
                self._waiting_pids.clear()
            self._waiting_pids.add(line.pid)
        refusal = parse_refusal(line.text)
        if refusal is None:
            return
        reason, username = refusal
        if line.pid in self._waiting_pids:
            reason = "radius_timeout"
        self._waiting_pids.discard(line.pid)
        # Another pppd of this machine, which no pppoe-server started, has no subscriber.
        with suppress(UnreadableRecord):
            access = parse_access(line.command.encode())
            yield SourceFailure(
                at=line.at,
                reason=reason,
                username=username,
                mac_address=access.mac_address,
                access_interface=access.interface,
            )
