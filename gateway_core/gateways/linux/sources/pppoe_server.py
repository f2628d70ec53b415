"""Debian's pppoe-server with pppd as a source of PPPoE sessions, one pppoe-server for each access interface.

The pppd processes that live are the truth. What their hooks recorded says whose they are, and since when
they are up.
"""

import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.entries import EntryReader
from gateway_core.gateways.linux.sources.pppd import (
    SIGNALLED,
    PppdRecord,
    PppoeAccess,
    UnreadableRecord,
    access_of,
    cause_of,
    is_whole,
    record_of,
    start_of,
    traffic_of,
)
from gateway_core.gateways.linux.sources.pppd_log import SystemdJournal
from gateway_core.gateways.linux.sources.source import (
    ADMIN_DISCONNECT,
    NONE_BEFORE,
    UNKNOWN,
    PrefixOf,
    Source,
    SourceEnd,
    SourceRefused,
    SourceSession,
    SourceTraffic,
    SourceUnavailable,
    Terminations,
    with_prefix,
)
from gateway_core.records.clock import Clock

_RECORD = re.compile(r"([1-9][0-9]{0,6})-([0-9]{1,20})\.(?:ip|ipv6)")
_KEY = re.compile(r"(.+)-([1-9][0-9]{0,6})-([0-9]{1,20})")
#: Enough of the boot's id: a process has no id that another boot's process has.
_BOOT = 8
#: Seconds in which IPv4 mostly follows IPv6. Its address is part of the event of the start.
_WAIT_FOR_IPV4 = 4.0
#: Seconds for which a log that failed is not read again: of many ends, some are reported at a time, and each
#: reading may last until its deadline.
_LOG_PAUSE = 10.0
#: How often the log is read again when it lacks the end of a pppd, and the seconds before each time: the
#: journal is behind when many end at once.
_LATE, _CATCH_UP = 3, 0.5
#: Ticks a second of the start times in /proc.
_TICKS = os.sysconf("SC_CLK_TCK")

_RECORDS = EntryReader(
    "pppoe-server",
    "record",
    "the records of pppd, and of its processes",
    "such a session is as it was, or not listed yet",
)

_log = logging.getLogger(__name__)


class PppoeServices(Protocol):
    """The pppoe-server of each access interface. Both raise SourceUnavailable and SourceRefused, and end by a
    deadline. What is done already is no error."""

    def start(self, interfaces: Sequence[str]) -> None:
        """Start those of interfaces that are up; after an error, perhaps some of them."""

    def stop(self, interface: str) -> None:
        """Stop it with all its processes: its sessions end."""


class _Process(NamedTuple):
    """Its id comes again, but not with the same start (ticks since the boot)."""

    pid: int
    start: int


class PppoeServer(Source):
    """`records` is the folder of the hook's records, `proc` is /proc. A pppd that connects again
    within its process is the same session."""

    def __init__(
        self,
        name: str,
        services: PppoeServices,
        log: SystemdJournal,
        records: Path,
        clock: Clock,
        prefix_of: PrefixOf,
        proc: Path = Path("/proc"),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = name
        self._services = services
        self._log = log
        self._records = records
        self._clock = clock
        self._proc = proc
        self._sleep = sleep
        self._prefix_of = prefix_of
        self._sweep = threading.Lock()
        self._known: dict[_Process, SourceSession] = {}
        self._in_user_mode: set[_Process] = set()
        self._concern: str | None = None
        self._terminations = Terminations(clock)
        #: Steady seconds.
        self._log_from = 0.0

    def sessions(self, former: Mapping[str, SourceSession] = NONE_BEFORE) -> Sequence[SourceSession]:
        """A session is up from its first address to the loss of its last."""
        with self._sweep:
            try:
                # With `hidepid`, all processes would seem to have ended.
                if self._start(1) is None:
                    raise SourceUnavailable(f"{self._proc} does not show the processes of others")
                found = _RECORDS.read(
                    self._recorded(),
                    lambda process: (process, self._session(process)),
                    instead=lambda process: (process, former.get(self._key(process))),
                )
            except (OSError, UnreadableRecord) as error:
                raise SourceUnavailable(f"cannot read the sessions of pppd: {error}") from error
            self._known = {process: session for process, session in found if session is not None}
            self._in_user_mode &= self._known.keys()
            self._concern = _slowness(len(self._in_user_mode), len(self._known))
            return list(self._known.values())

    def terminate(self, session: SourceSession) -> None:
        """The first request lets PPP say goodbye; another within a minute kills pppd. Raises
        SourceRefused without CAP_KILL."""
        process = self._process(session.key)
        if process is None:
            return
        try:
            pidfd = os.pidfd_open(process.pid)
            try:
                # After it was opened: it stays with that process, even if another gets the id.
                if self._start(process.pid) != process.start:
                    return
                number = signal.SIGKILL if session.key in self._terminations else signal.SIGTERM
                with self._terminations.requesting(session.key):
                    signal.pidfd_send_signal(pidfd, number)
            finally:
                os.close(pidfd)
        except ProcessLookupError:
            return
        except (OSError, UnreadableRecord) as error:
            raise SourceRefused(f"cannot signal pppd {process.pid}: {error}") from error

    def serve(self, interfaces: Sequence[str], type: SessionType) -> None:
        """Raises SourceRefused for DHCP."""
        if type is not SessionType.PPPOE:
            raise SourceRefused(f"pppoe-server does not serve {type}")
        self._services.start(interfaces)

    def release(self, interface: str) -> None:
        ending = [each.key for each in self.sessions() if each.access_interface == interface]
        with self._terminations.requesting(*ending):
            self._services.stop(interface)

    def ends(self, keys: Sequence[str]) -> Mapping[str, SourceEnd]:
        """The reason is from the log of pppd, `unknown` where it cannot be read. The traffic is from
        its hook's record, or else from its log; None if pppd was killed."""
        processes = {key: process for key in keys if (process := self._process(key)) is not None}
        lines = self._whole_lines(list(processes.values()))
        ends = {
            key: self._end(key, process, lines.get(process.pid, ())) for key, process in processes.items()
        }
        return {key: ends.get(key, SourceEnd()) for key in keys}

    def concern(self) -> str | None:
        """Return the number of sessions in user mode."""
        return self._concern

    def _key(self, process: _Process) -> str:
        return f"{self._clock.boot_id[:_BOOT]}-{process.pid}-{process.start}"

    def _process(self, key: str) -> _Process | None:
        """None for a session of an earlier boot."""
        parts = _KEY.fullmatch(key)
        if parts is None or parts[1] != self._clock.boot_id[:_BOOT]:
            return None
        return _Process(int(parts[2]), int(parts[3]))

    def _end(self, key: str, process: _Process, lines: Sequence[str]) -> SourceEnd:
        reason = cause_of(lines)
        if reason is None or reason == SIGNALLED:
            reason = ADMIN_DISCONNECT if key in self._terminations else UNKNOWN
        # A pppd that ends by SIGTERM ends its hooks so too, mostly before they have done anything.
        return SourceEnd(reason, self._counted(process) or traffic_of(lines))

    def _counted(self, process: _Process) -> SourceTraffic | None:
        try:
            return self._record(process, "ip")[0].traffic
        except FileNotFoundError:
            return None
        except (OSError, UnreadableRecord) as error:
            _log.warning("cannot read the record of pppd %d: %s", process.pid, error)
            return None

    def _whole_lines(self, processes: Sequence[_Process]) -> Mapping[int, Sequence[str]]:
        """By process id; none where the log cannot be read."""
        lines = dict(self._lines(processes))
        for _ in range(_LATE):
            late = [one for one in processes if not is_whole(lines.get(one.pid, ()))]
            if not (late and lines):
                break
            self._sleep(_CATCH_UP)
            lines |= self._lines(late)
        return lines

    def _lines(self, processes: Iterable[_Process]) -> Mapping[int, Sequence[str]]:
        """By process id; none where the log cannot be read."""
        if self._clock.steady() < self._log_from:
            return {}
        booted = self._clock.wall() - self._clock.steady()
        try:
            return self._log.lines({process.pid: booted + process.start / _TICKS for process in processes})
        except SourceUnavailable as error:
            self._log_from = self._clock.steady() + _LOG_PAUSE
            _log.warning("the reasons of ended sessions are not known for %g s: %s", _LOG_PAUSE, error)
            return {}

    def _recorded(self) -> set[_Process]:
        names = (_RECORD.fullmatch(path.name) for path in self._records.iterdir())
        return {_Process(int(name[1]), int(name[2])) for name in names if name is not None}

    def _start(self, pid: int) -> int | None:
        """None for a process that has ended."""
        try:
            return start_of((self._proc / str(pid) / "stat").read_bytes())
        # ESRCH: it ended between open and read.
        except (FileNotFoundError, ProcessLookupError):
            return None

    def _access(self, process: _Process) -> PppoeAccess | None:
        """None if it ends now: then its command line is empty, before its `stat` says so."""
        try:
            cmdline = (self._proc / str(process.pid) / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return access_of(cmdline) if cmdline else None

    def _record(self, process: _Process, family: str) -> tuple[PppdRecord, int]:
        """With the epoch second in which it was written."""
        with (self._records / f"{process.pid}-{process.start}.{family}").open("rb") as file:
            return record_of(file.read()), int(os.fstat(file.fileno()).st_mtime)

    def _session(self, process: _Process) -> SourceSession | None:
        """None if it is not up."""
        if self._start(process.pid) != process.start:
            return None
        up: dict[str, tuple[PppdRecord, int]] = {}
        for family in ("ip", "ipv6"):
            try:
                record, at = self._record(process, family)
            except FileNotFoundError:
                continue
            if record.is_up:
                up[family] = record, at
        if not up:
            return None
        access = self._access(process)
        if access is None:
            return None
        before = self._known.get(process)
        if before is None and "ip" not in up and self._is_recent(up["ipv6"][1]):
            return None
        if not access.in_kernel:
            self._in_user_mode.add(process)
        (first, *_), (ipv4, ipv6) = up.values(), (up.get("ip"), up.get("ipv6"))
        key = self._key(process)
        session = SourceSession(
            key=key,
            type=SessionType.PPPOE,
            username=first[0].username,
            mac_address=access.mac_address,
            access_interface=access.interface,
            interface=first[0].interface,
            ip_address=ipv4[0].ip_address if ipv4 else None,
            ipv6_address=ipv6[0].link_local if ipv6 else None,
            acct_session_id=key,
            # The second address does not move it.
            started_at=before.started_at if before else min(at for _, at in up.values()),
        )
        session = with_prefix(session, self._prefix_of)
        return before if session == before else session

    def _is_recent(self, at: int) -> bool:
        # Negative after the clock was set back.
        return 0 <= self._clock.wall() - at < _WAIT_FOR_IPV4


def _slowness(in_user_mode: int, sessions: int) -> str | None:
    if not in_user_mode:
        return None
    return f"{in_user_mode} of {sessions} are in user mode, which is slower than PPPoE in the kernel"
