"""Debian's pppoe-server with pppd: one server for each access interface, and the PPPoE sessions of all
servers.

A server is an instance of systemd/gateway-pppoe@.service. A commit reloads each server whose settings have
changed; sessions that are up keep their pppd and their address. Each server has its own block of addresses,
until the server is stopped. The settings of a server are a file:

100.64.0.1 100.64.0.16 secrets bng1 192.0.2.53 192.0.2.54

The first line has the gateway's address, the first address of the block, the authentication of subscribers,
and the name of the access concentrator. A block has 16 addresses, unless a prefix length follows:
`100.64.0.20/30` has four. The second line has the DNS servers, if there are any. A server that still runs the
program of an older version reads only the first line. packaging/pppoe/server, which runs as root, reads the
settings. The settings cannot contain options or files for pppd, because pppd options would let the core run
commands as root. packaging/pppoe/pppd, which pppoe-server starts for each session, chooses between PPPoE in
the kernel and in user mode.

Each running pppd process is a session. The record of its hook has the user name and the start time of the
session.
"""

import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

from gateway_contract.base.errors import StepFailed
from gateway_contract.configuration import Configuration
from gateway_contract.core.impact import ServiceAction
from gateway_contract.core.sessions import SessionType
from gateway_core.configuration.workspace import RenderedFiles
from gateway_core.gateways.linux.daemons.daemon import (
    DaemonAction,
    PlacedFiles,
    Rollback,
    SourceDaemon,
)
from gateway_core.gateways.linux.daemons.pppd import (
    RECORDS_FOLDER,
    SIGNALLED,
    PppdFailures,
    PppdJournal,
    PppdRadius,
    PppdRecord,
    PppoeAccess,
    UnreadableRecord,
    is_log_complete,
    parse_access,
    parse_end,
    parse_record,
    parse_start,
)
from gateway_core.gateways.linux.daemons.source import (
    NO_SESSIONS,
    PrefixOf,
    Source,
    SourceEnd,
    SourceRefused,
    SourceSession,
    SourceTraffic,
    SourceUnavailable,
    Terminations,
    add_prefix,
)
from gateway_core.gateways.linux.daemons.subscriber_addresses import (
    MAX_BLOCK_SIZE,
    SessionPrefixes,
    SharedRange,
)
from gateway_core.gateways.linux.daemons.systemd import Systemd, SystemdUnreachable, name_instance
from gateway_core.gateways.linux.entries import EntryReader
from gateway_core.gateways.linux.kernel.links import has_device
from gateway_core.gateways.linux.program import CommitLimits, TimeLimit
from gateway_core.records.clock import Clock

#: Folder with the settings of each server, by access interface. The settings stay when the core ends, like
#: the sessions.
SETTINGS_FOLDER = Path("/var/lib/gateway-core/pppoe")

_name_unit = partial(name_instance, "gateway-pppoe@.service")
_CONFIGURE_STEP = "configure pppoe-server"
#: Seconds that a preview of a commit waits for another change to end.
_PREVIEW_WAIT_SECONDS = 2.0
_NO_BLOCK_REASON = "cgnat.source_range has no free block of addresses for PPPoE"
_SMALLER_BLOCKS_REASON = "cgnat.source_range is shared out among the VLANs of PPPoE in smaller blocks now"
_OLD_SETTINGS_REASON = "its other servers have only now read their settings"
#: File in the folder of the settings while servers may run with other settings. The name of an access
#: interface ends with a digit: neither this name does, nor that of a draft of `durable`.
_RELOAD_NOTE = "to-reload"
_SECRETS_WORD, _RADIUS_WORD = "secrets", "radius"
_SETTINGS_PATTERN = re.compile(
    rf"([0-9.]+) ([0-9.]+)(?:/(29|3[0-2]))? ({_SECRETS_WORD}|{_RADIUS_WORD}) ([A-Za-z0-9.-]+)\n"
    r"(?:([0-9.]+(?: [0-9.]+)?)\n)?"
)

_RECORD_NAME_PATTERN = re.compile(r"([1-9][0-9]{0,6})-([0-9]{1,20})\.(?:ip|ipv6)")
_KEY_PATTERN = re.compile(r"(.+)-([1-9][0-9]{0,6})-([0-9]{1,20})")
#: Characters of the boot id in a key: enough to tell boots apart, as process ids come again after a boot.
_BOOT_ID_CHARACTERS = 8
#: Seconds in which IPv4 mostly follows IPv6. The event of the start has the IPv4 address.
_IPV4_WAIT_SECONDS = 4.0
#: Seconds for which a log that failed is not read again: of many ends, some are reported at a time, and each
#: reading may last until its deadline.
_LOG_RETRY_SECONDS = 10.0
#: Readings of a log that lacks the end of a pppd, and the seconds between two: the journal is behind when
#: many end at once.
_MAX_LOG_READINGS, _LOG_READING_PAUSE_SECONDS = 4, 0.5
#: Ticks per second of the start times in /proc.
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

_PROCESS_READER = EntryReader(
    "pppoe-server",
    "record",
    "the records of pppd, and of its processes",
    "such a session is as it was, or not listed yet",
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PppoeSettings:
    """Settings of one pppoe-server. The server assigns `block` addresses, beginning with the address
    `first`."""

    gateway: IPv4Address
    first: IPv4Address
    has_radius: bool
    access_concentrator: str
    dns_servers: tuple[IPv4Address, ...]
    block: int = MAX_BLOCK_SIZE

    @classmethod
    def of(cls, configuration: Configuration, first: IPv4Address, block: int) -> "PppoeSettings":
        return cls(
            configuration.cgnat.subscriber_gateway,
            first,
            configuration.radius.server is not None,
            configuration.system.hostname,
            configuration.subscribers.dns_servers,
            block,
        )

    @classmethod
    def parse(cls, text: str) -> "PppoeSettings | None":
        """Parse the text of a settings file. Return None if the text is invalid: then the core did not write
        the file."""
        parts = _SETTINGS_PATTERN.fullmatch(text)
        if parts is None:
            return None
        try:
            dns_servers = tuple(map(IPv4Address, (parts[6] or "").split()))
            gateway, first = IPv4Address(parts[1]), IPv4Address(parts[2])
        except AddressValueError:
            return None
        block = MAX_BLOCK_SIZE if parts[3] is None else 1 << (32 - int(parts[3]))
        return cls(gateway, first, parts[4] == _RADIUS_WORD, parts[5], dns_servers, block)

    def __str__(self) -> str:
        auth = _RADIUS_WORD if self.has_radius else _SECRETS_WORD
        dns_servers = " ".join(map(str, self.dns_servers))
        # The program of before an upgrade, which may still run, knows no other block than one of 16.
        first = (
            str(self.first)
            if self.block == MAX_BLOCK_SIZE
            else f"{self.first}/{33 - self.block.bit_length()}"
        )
        lines = (f"{self.gateway} {first} {auth} {self.access_concentrator}", dns_servers)
        return "".join(f"{line}\n" for line in lines if line)


#: Settings by access interface. None for a file that the core did not write, or where no block is free.
_Settings = Mapping[str, PppoeSettings | None]


class PppoeServers(SourceDaemon):
    """Manager of the pppoe-servers of all access interfaces. Only this object writes to the folder of the
    settings. If pppoe-server is not a source, a commit stops all servers that still run. Thread-safe."""

    name = "pppoe-server"
    programs: ClassVar = {"pppoe-server": "pppoe", "pppd": "ppp", "ip": "iproute2"}
    # Where the kernel has no PPPoE, sessions go through a terminal.
    modules = ("ppp_generic", "ppp_async")
    types = ("pppoe",)
    effects: ClassVar = {
        "system.hostname": ServiceAction.RELOAD,
        "radius": "pppoe-server reloads when `radius.server` is set or removed",
        "cgnat.source_range": ServiceAction.RELOAD,
        "subscribers.dns_servers": ServiceAction.RELOAD,
    }

    @classmethod
    def create(cls, files: PlacedFiles, systemd: Systemd, is_source: bool) -> Self:
        return cls(systemd, SETTINGS_FOLDER, is_source=is_source)

    def __init__(self, systemd: Systemd, folder: Path, *, is_source: bool) -> None:
        self._systemd = systemd
        self._is_source = is_source
        self._files = PlacedFiles(folder)
        self._configuration: Configuration | None = None
        self._prefixes = SessionPrefixes()
        self._lock = threading.Lock()
        #: The settings on disk. None before they were read.
        self._settings: _Settings | None = None
        #: Interfaces whose server may run with other settings than those on disk. _RELOAD_NOTE is on disk
        #: then.
        self._to_reload: set[str] = set()

    def create_source(self, configuration: Configuration, clock: Clock) -> "PppoeServerSource":
        self.set_configuration(configuration)
        return PppoeServerSource(self, PppdJournal(), RECORDS_FOLDER, clock, self._prefixes)

    def create_radius_client(self, clock: Clock) -> PppdRadius:
        return PppdRadius()

    def create_failure_source(self, clock: Clock) -> PppdFailures:
        return PppdFailures(self.name, PppdJournal(), clock.wall())

    def set_configuration(self, configuration: Configuration) -> None:
        """Set the configuration for servers that start from now on. Running servers stay as they are."""
        self._configuration = configuration
        self._prefixes.configure(configuration)

    def start(self, interfaces: Sequence[str]) -> None:
        """Start the servers of interfaces. The interfaces must be up. If no block is free, all servers get
        smaller blocks, and the start is refused. The reason is that two sessions could get the same address
        until all servers have read their new settings and all current sign-ons have finished. Raises
        SourceUnavailable if systemd does not reply or the core has no configuration yet. Raises SourceRefused
        if the start is refused, or if no block is free even with smaller blocks."""
        with self._lock, _convert_errors():
            if self._configuration is None:
                raise SourceUnavailable("the core has no configuration yet")
            current_settings = self._load_settings()
            max_block_size = min(
                (settings.block for settings in current_settings.values() if settings is not None),
                default=MAX_BLOCK_SIZE,
            )
            new_settings = _assign_blocks(
                self._configuration, {**dict.fromkeys(interfaces), **current_settings}, max_block_size
            )
            smaller_blocks = {
                name: new
                for name, old in current_settings.items()
                if old is not None and (new := new_settings[name]) is not None and new.block < old.block
            }
            for name, settings in smaller_blocks.items():
                self._rewrite(name, settings)
            if self._to_reload:
                self._reload(self._systemd)
                raise SourceRefused(_SMALLER_BLOCKS_REASON if smaller_blocks else _OLD_SETTINGS_REASON)
            for interface in interfaces:
                new = new_settings[interface]
                if new is None:
                    raise SourceRefused(_NO_BLOCK_REASON)
                self._write(interface, new)
            self._systemd.start(*map(_name_unit, interfaces))

    def stop(self, interface: str) -> None:
        """Stop the server of an interface with all its processes. The sessions of the server end, and the
        block of the server becomes free. Raises SourceUnavailable if systemd does not reply, and
        SourceRefused if the server cannot be stopped."""
        with self._lock, _convert_errors():
            self._stop(self._systemd, [interface])

    def apply(
        self, rendered: RenderedFiles, configuration: Configuration, limits: CommitLimits, rollback: Rollback
    ) -> None:
        if self._configuration is not None:
            rollback.add(partial(self._configure, self._configuration, limits.put_back))
        self._configure(configuration, limits.apply)

    def preview_action(self, rendered: RenderedFiles, configuration: Configuration) -> DaemonAction:
        with self._hold_lock(_PREVIEW_WAIT_SECONDS):
            current_settings = {
                name: settings for name, settings in self._load_settings().items() if self._is_used(name)
            }
            needs_reload = (
                self._to_reload or _assign_blocks(configuration, current_settings) != current_settings
            )
            return ServiceAction.RELOAD if needs_reload else None

    def _configure(self, configuration: Configuration, limit: TimeLimit) -> None:
        systemd = self._systemd.with_limit(limit)
        with self._hold_lock(limit.get_remaining()):
            self.set_configuration(configuration)
            # An access interface that is gone, as after a boot, gives its block back.
            self._stop(systemd, [name for name in self._load_settings() if not self._is_used(name)])
            current_settings = self._load_settings()
            for interface, settings in _assign_blocks(configuration, current_settings).items():
                if settings is None:
                    raise StepFailed(_CONFIGURE_STEP, _NO_BLOCK_REASON)
                if settings != current_settings[interface]:
                    self._rewrite(interface, settings)
            self._reload(systemd)

    @contextmanager
    def _hold_lock(self, seconds: float) -> Iterator[None]:
        """Hold the lock of this object in a `with` block, for a commit. Raises StepFailed if another thread
        does not release the lock within `seconds`, for example because systemd does not reply."""
        if not self._lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)):
            raise StepFailed(_CONFIGURE_STEP, f"another change to it did not end within {seconds:.3g} s")
        try:
            yield
        finally:
            self._lock.release()

    def _load_settings(self) -> _Settings:
        if self._settings is None:
            names = self._files.list_names()
            texts = {name: self._files.read(name) or "" for name in names if name[-1].isdigit()}
            self._to_reload = set(texts) if _RELOAD_NOTE in names else set()
            self._settings = {name: PppoeSettings.parse(text) for name, text in texts.items()}
        return self._settings

    def _rewrite(self, interface: str, settings: PppoeSettings) -> None:
        """Write new settings of a server that may be running. The server reads the new settings at the next
        `_reload`."""
        if not self._to_reload:
            # A core that is killed before the reload leaves the reload to the next one.
            self._files.place(_RELOAD_NOTE, "")
        self._to_reload.add(interface)
        self._write(interface, settings)

    def _reload(self, systemd: Systemd) -> None:
        systemd.reload_running(*map(_name_unit, sorted(self._to_reload)))
        self._files.place(_RELOAD_NOTE, None)
        self._to_reload.clear()

    def _write(self, interface: str, settings: PppoeSettings) -> None:
        self._files.place(interface, str(settings))
        self._settings = {**self._load_settings(), interface: settings}

    def _is_used(self, interface: str) -> bool:
        return self._is_source and has_device(interface)

    def _stop(self, systemd: Systemd, interfaces: Sequence[str]) -> None:
        systemd.stop(*map(_name_unit, interfaces))
        for interface in interfaces:
            # Only now: until then, sessions may have its addresses.
            self._files.place(interface, None)
            self._to_reload.discard(interface)
            self._settings = {
                name: settings for name, settings in self._load_settings().items() if name != interface
            }


def _assign_blocks(
    configuration: Configuration, current_settings: _Settings, max_block_size: int = MAX_BLOCK_SIZE
) -> dict[str, PppoeSettings | None]:
    """Return the new settings of each interface in `current_settings`, or None for an interface without a
    free block. An interface keeps its current block if possible. A block has at most `max_block_size`
    addresses."""
    shared = SharedRange.of(configuration, len(current_settings), max_block_size)
    blocks = {
        name: settings.first
        for name, settings in current_settings.items()
        if settings is not None and shared.has_block(settings.first)
    }
    used_blocks = set(blocks.values())
    for name in current_settings:
        if name not in blocks and (first := shared.find_free_block(used_blocks)) is not None:
            blocks[name] = first
            used_blocks.add(first)
    return {
        name: PppoeSettings.of(configuration, blocks[name], shared.block_size) if name in blocks else None
        for name in current_settings
    }


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Convert the errors in a `with` block: SystemdUnreachable becomes SourceUnavailable, and any other
    StepFailed becomes SourceRefused."""
    try:
        yield
    except SystemdUnreachable as error:
        raise SourceUnavailable(str(error)) from error
    except StepFailed as error:
        raise SourceRefused(str(error)) from error


class _Process(NamedTuple):
    """Process of pppd. `start` is the start time in clock ticks since boot. The start time distinguishes the
    process from a later process with the same id."""

    pid: int
    start: int


class PppoeServerSource(Source):
    """Source of the sessions of all pppoe-servers. `records` is the folder of the records that the hook of
    pppd writes. If a pppd process connects again, the session continues."""

    name = PppoeServers.name

    def __init__(
        self,
        servers: PppoeServers,
        log: PppdJournal,
        records: Path,
        clock: Clock,
        prefix_of: PrefixOf,
        proc: Path = Path("/proc"),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._servers = servers
        self._log = log
        self._records = records
        self._clock = clock
        self._proc = proc
        self._sleep = sleep
        self._prefix_of = prefix_of
        self._sweep_lock = threading.Lock()
        self._known: dict[_Process, SourceSession] = {}
        self._in_user_mode: set[_Process] = set()
        self._terminations = Terminations(clock)
        #: Steady seconds from which the log may be read.
        self._log_from = 0.0

    def list_sessions(self, former: Mapping[str, SourceSession] = NO_SESSIONS) -> Sequence[SourceSession]:
        """Return the sessions that are up. A session is up while it has an IPv4 or IPv6 address."""
        with self._sweep_lock:
            try:
                # With `hidepid`, all processes would seem to have ended.
                if self._read_start(1) is None:
                    raise SourceUnavailable(f"{self._proc} does not show the processes of others")
                names = (_RECORD_NAME_PATTERN.fullmatch(path.name) for path in self._records.iterdir())
                sessions = _PROCESS_READER.read(
                    {_Process(int(name[1]), int(name[2])) for name in names if name is not None},
                    lambda process: (process, self._read_session(process)),
                    instead=lambda process: (process, former.get(self._make_key(process))),
                )
            except (OSError, UnreadableRecord) as error:
                raise SourceUnavailable(f"cannot read the sessions of pppd: {error}") from error
            self._known = {process: session for process, session in sessions if session is not None}
            self._in_user_mode &= self._known.keys()
            return list(self._known.values())

    def terminate(self, session: SourceSession) -> None:
        """Request the end of a session. The first request terminates PPP gracefully. A second request within
        a minute kills pppd. Raises SourceRefused if the core cannot signal pppd, for example because the core
        lacks CAP_KILL."""
        process = self._parse_key(session.key)
        if process is None:
            return
        try:
            pidfd = os.pidfd_open(process.pid)
            try:
                # Only now: the descriptor stays with its process, even if another gets the id.
                if self._read_start(process.pid) != process.start:
                    return
                number = signal.SIGKILL if session.key in self._terminations else signal.SIGTERM
                with self._terminations.record(session.key):
                    signal.pidfd_send_signal(pidfd, number)
            finally:
                os.close(pidfd)
        except ProcessLookupError:
            return
        except (OSError, UnreadableRecord) as error:
            raise SourceRefused(f"cannot signal pppd {process.pid}: {error}") from error

    def serve(self, interfaces: Sequence[str], type: SessionType) -> None:
        if type is not SessionType.PPPOE:
            raise SourceRefused(f"pppoe-server does not serve {type}")
        self._servers.start(interfaces)

    def release(self, interface: str) -> None:
        ending = [each.key for each in self.list_sessions() if each.access_interface == interface]
        with self._terminations.record(*ending):
            self._servers.stop(interface)

    def read_ends(self, keys: Sequence[str]) -> Mapping[str, SourceEnd]:
        """Return the ends of sessions by key. The reason comes from the log of pppd. If the log has no reason
        or cannot be read, the reason is `admin_disconnect` if the end of the session was requested in the
        last minute, and `unknown` otherwise. The traffic comes from the record of the hook, or else from the
        log of pppd. The traffic is None if neither has the traffic, for example after pppd was killed."""
        processes = {key: process for key in keys if (process := self._parse_key(key)) is not None}
        lines = self._read_log(list(processes.values()))
        return {
            key: self._make_end(key, processes[key], lines.get(processes[key].pid, ()))
            if key in processes
            else SourceEnd()
            for key in keys
        }

    def find_concern(self) -> str | None:
        with self._sweep_lock:
            slow, total = len(self._in_user_mode), len(self._known)
        return (
            f"{slow} of {total} are in user mode, which is slower than PPPoE in the kernel" if slow else None
        )

    def _make_key(self, process: _Process) -> str:
        return f"{self._clock.boot_id[:_BOOT_ID_CHARACTERS]}-{process.pid}-{process.start}"

    def _parse_key(self, key: str) -> _Process | None:
        """Return the process of the session with the key `key`. Return None if the session belongs to an
        earlier boot."""
        parts = _KEY_PATTERN.fullmatch(key)
        if parts is None or parts[1] != self._clock.boot_id[:_BOOT_ID_CHARACTERS]:
            return None
        return _Process(int(parts[2]), int(parts[3]))

    def _make_end(self, key: str, process: _Process, lines: Sequence[str]) -> SourceEnd:
        reason, logged = parse_end(lines)
        if reason is None or reason == SIGNALLED:
            reason = self._terminations.find_reason(key)
        # A pppd that ends by SIGTERM ends its hooks so too, mostly before they have done anything.
        return SourceEnd(reason, self._read_traffic(process) or logged)

    def _read_traffic(self, process: _Process) -> SourceTraffic | None:
        try:
            return self._read_record(process, "ip")[0].traffic
        except FileNotFoundError:
            return None
        except (OSError, UnreadableRecord) as error:
            _log.warning(
                "cannot read the record of pppd %d, the traffic counters come from the log of this pppd: %s",
                process.pid,
                error,
            )
            return None

    def _read_log(self, processes: Sequence[_Process]) -> Mapping[int, Sequence[str]]:
        """Return the log lines of each process by process id. A process whose lines cannot be read is left
        out."""
        lines: dict[int, Sequence[str]] = {}
        if self._clock.steady() < self._log_from:
            return lines
        boot_time = self._clock.wall() - self._clock.steady()
        for reading in range(_MAX_LOG_READINGS):
            incomplete = [each for each in processes if not is_log_complete(lines.get(each.pid, ()))]
            if not incomplete:
                break
            if reading:
                self._sleep(_LOG_READING_PAUSE_SECONDS)
            try:
                lines |= self._log.read_processes(
                    {each.pid: boot_time + each.start / _TICKS_PER_SECOND for each in incomplete}
                )
            except SourceUnavailable as error:
                self._log_from = self._clock.steady() + _LOG_RETRY_SECONDS
                _log.warning(
                    "cannot read the pppd log, sessions that end in the next %g s get the reason unknown: %s",
                    _LOG_RETRY_SECONDS,
                    error,
                )
                break
        return lines

    def _read_start(self, pid: int) -> int | None:
        """Return the start time of a process in clock ticks since boot, or None if the process has ended."""
        stat = self._read_proc(pid, "stat")
        return None if stat is None else parse_start(stat)

    def _read_access(self, process: _Process) -> PppoeAccess | None:
        """Return the access interface and MAC address of a process. Return None if the process is ending: an
        ending process has an empty command line before its `stat` shows the end."""
        command = self._read_proc(process.pid, "cmdline")
        return parse_access(command) if command else None

    def _read_proc(self, pid: int, name: str) -> bytes | None:
        try:
            return (self._proc / str(pid) / name).read_bytes()
        # ESRCH: the process ended between open and read.
        except (FileNotFoundError, ProcessLookupError):
            return None

    def _read_record(self, process: _Process, family: str) -> tuple[PppdRecord, int]:
        """Return the record of a process for an address family (`ip` or `ipv6`), and the epoch second in
        which the record was written. Raises FileNotFoundError if there is no such record, and
        UnreadableRecord if the record is invalid."""
        with (self._records / f"{process.pid}-{process.start}.{family}").open("rb") as file:
            return parse_record(file.read()), int(os.fstat(file.fileno()).st_mtime)

    def _read_session(self, process: _Process) -> SourceSession | None:
        """Return the session of a process, or None if the session is not up."""
        if self._read_start(process.pid) != process.start:
            return None
        up: dict[str, tuple[PppdRecord, int]] = {}
        for family in ("ip", "ipv6"):
            try:
                record, at = self._read_record(process, family)
            except FileNotFoundError:
                continue
            if record.is_up:
                up[family] = record, at
        access = self._read_access(process) if up else None
        if access is None:
            return None
        before = self._known.get(process)
        # Negative after the clock was set back.
        if before is None and "ip" not in up and 0 <= self._clock.wall() - up["ipv6"][1] < _IPV4_WAIT_SECONDS:
            return None
        if not access.in_kernel:
            self._in_user_mode.add(process)
        (first, _), *_ = up.values()
        key = self._make_key(process)
        session = SourceSession(
            key=key,
            type=SessionType.PPPOE,
            username=first.username,
            mac_address=access.mac_address,
            access_interface=access.interface,
            interface=first.interface,
            ip_address=up["ip"][0].ip_address if "ip" in up else None,
            ipv6_address=up["ipv6"][0].link_local if "ipv6" in up else None,
            acct_session_id=key,
            # The second address does not move the start.
            started_at=before.started_at if before else min(at for _, at in up.values()),
        )
        session = add_prefix(session, self._prefix_of)
        return before if session == before else session
