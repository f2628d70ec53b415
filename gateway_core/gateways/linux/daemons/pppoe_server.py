"""A pppoe-server for each access interface, as an instance of systemd/gateway-pppoe@.service. At a commit,
those reload whose settings differ: sessions that are up keep their pppd and their address.

Each has a block of addresses of its own, which it keeps until it is stopped. Its settings are a file:

    100.64.0.1 100.64.0.16 secrets bng1
    192.0.2.53 192.0.2.54

The gateway's address, the first of the 16 addresses to give away (`100.64.0.20/30`: of four), how subscribers
are authenticated, and the name of the access concentrator. The DNS servers have a second line, if there are
any: a server that still runs by the program of before an upgrade reads only the first.
packaging/pppoe/server, which is root, reads them. It takes no options and no file for pppd: with those, the
core would be root too. packaging/pppoe/pppd, which pppoe-server starts for each session, chooses between
PPPoE in the kernel and user mode.

Debian's pppoe-server with pppd as a source of PPPoE sessions, one pppoe-server for each access interface.

The pppd processes that live are the truth. What their hooks recorded says whose they are, and since when
they are up.
"""

import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol, Self

from gateway_contract.base import durable
from gateway_contract.base.errors import StepFailed
from gateway_contract.configuration import Configuration
from gateway_contract.core.impact import ServiceAction
from gateway_contract.core.sessions import SessionType
from gateway_core.configuration.store import disk_step
from gateway_core.configuration.workspace import Rendered
from gateway_core.gateways.linux.daemons.daemon import (
    DaemonAction,
    DaemonHost,
    PutBack,
    SourceDaemon,
    put_back_after,
)
from gateway_core.gateways.linux.daemons.pppd import (
    RECORDS,
    SIGNALLED,
    JournalTail,
    PppdFailures,
    PppdRadius,
    PppdRecord,
    PppoeAccess,
    SystemdJournal,
    UnreadableRecord,
    access_of,
    cause_of,
    is_whole,
    record_of,
    start_of,
    traffic_of,
)
from gateway_core.gateways.linux.daemons.source import (
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
from gateway_core.gateways.linux.daemons.subscriber_addresses import BLOCK, SessionPrefixes, SharedRange
from gateway_core.gateways.linux.daemons.systemd import Systemd, SystemdUnreachable, UnitFailed, instance
from gateway_core.gateways.linux.entries import EntryReader
from gateway_core.gateways.linux.kernel.links import is_device
from gateway_core.gateways.linux.program import CommitLimits, TimeLimit
from gateway_core.records.clock import Clock

#: A file for each access interface.
SETTINGS = Path("/var/lib/gateway-core/pppoe")

_UNIT = "gateway-pppoe@.service"
_STEP = "configure pppoe-server"
#: Seconds that a look at the settings waits for a change to end.
_LOOK = 2.0
_NO_BLOCK = "cgnat.source_range has no free block of addresses for PPPoE"
_SMALLER = "cgnat.source_range is shared out among the VLANs of PPPoE in smaller blocks now"
_RELOADED = "its other servers have only now read their settings"
#: A name of an access interface ends with a number: neither this is one, nor a draft of `durable`.
_MARK = "to-reload"
_SECRETS, _RADIUS = "secrets", "radius"
_LINES = re.compile(
    rf"([0-9.]+) ([0-9.]+)(?:/(29|3[0-2]))? ({_SECRETS}|{_RADIUS}) ([A-Za-z0-9.-]+)\n"
    r"(?:([0-9.]+(?: [0-9.]+)?)\n)?"
)


@dataclass(frozen=True)
class PppoeSettings:
    """The settings of one pppoe-server."""

    gateway: IPv4Address
    first: IPv4Address
    has_radius: bool
    access_concentrator: str
    dns_servers: tuple[IPv4Address, ...]
    #: Addresses to give away.
    block: int = BLOCK

    @classmethod
    def of(cls, configuration: Configuration, first: IPv4Address, block: int = BLOCK) -> "PppoeSettings":
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
        """None for what the core did not write."""
        parts = _LINES.fullmatch(text)
        if parts is None:
            return None
        try:
            dns_servers = tuple(map(IPv4Address, (parts[6] or "").split()))
            gateway, first = IPv4Address(parts[1]), IPv4Address(parts[2])
        except AddressValueError:
            return None
        block = BLOCK if parts[3] is None else 1 << (32 - int(parts[3]))
        return cls(gateway, first, parts[4] == _RADIUS, parts[5], dns_servers, block)

    def __str__(self) -> str:
        auth = _RADIUS if self.has_radius else _SECRETS
        dns_servers = " ".join(map(str, self.dns_servers))
        # The program of before an upgrade, which may still run, knows no other block than one of 16.
        first = str(self.first) if self.block == BLOCK else f"{self.first}/{33 - self.block.bit_length()}"
        lines = (f"{self.gateway} {first} {auth} {self.access_concentrator}", dns_servers)
        return "".join(f"{line}\n" for line in lines if line)


class SettingsFolder:
    """The files of the settings. They outlive the core, as the sessions do. All methods raise OSError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self) -> dict[str, PppoeSettings | None]:
        """By access interface; None for one whose file is not readable as such."""
        try:
            names = [path.name for path in self._folder.iterdir() if path.name[-1].isdigit()]
        except FileNotFoundError:
            return {}
        return {name: PppoeSettings.parse(self._text(name)) for name in names}

    def write(self, interface: str, settings: PppoeSettings) -> None:
        durable.make_folder(self._folder)
        durable.replace(self._folder / interface, str(settings).encode())

    def remove(self, interface: str) -> None:
        (self._folder / interface).unlink(missing_ok=True)

    @property
    def is_marked(self) -> bool:
        """True while servers may run by other settings."""
        return (self._folder / _MARK).exists()

    def mark(self) -> None:
        durable.make_folder(self._folder)
        durable.replace(self._folder / _MARK, b"")

    def unmark(self) -> None:
        (self._folder / _MARK).unlink(missing_ok=True)

    def _text(self, interface: str) -> str:
        return (self._folder / interface).read_bytes().decode("ascii", "replace")


#: By access interface. None if the file has none of ours.
_Known = Mapping[str, PppoeSettings | None]


class PppoeUnits(SourceDaemon):
    """The servers, and the `PppoeServices` of the source. `folder` has the settings, which only this
    object writes. Unless it is a source, the servers of an earlier life of the core are stopped. Any thread
    may call."""

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
    def on(cls, host: DaemonHost) -> Self:
        return cls(host.systemd, SETTINGS, is_source=cls.name in host.sources)

    def __init__(self, systemd: Systemd, folder: Path, *, is_source: bool) -> None:
        self._systemd = systemd
        self._is_source = is_source
        self._folder = SettingsFolder(folder)
        self._configuration: Configuration | None = None
        self._prefixes = SessionPrefixes()
        self._lock = threading.Lock()
        #: As on disk. None before the first look.
        self._read: _Known | None = None
        #: Interfaces whose server may run by other settings than those on disk. There is a mark on disk too.
        self._to_reload: set[str] = set()

    def source(self, configuration: Configuration, clock: Clock) -> "PppoeServer":
        self.begin(configuration)
        return PppoeServer(self.name, self, SystemdJournal(), RECORDS, clock, self._prefixes)

    def radius_client(self, clock: Clock) -> PppdRadius:
        return PppdRadius()

    def failures(self, clock: Clock) -> PppdFailures:
        return PppdFailures(self.name, JournalTail(clock.wall()))

    def begin(self, configuration: Configuration) -> None:
        """Start servers by a configuration that an earlier life of the core has applied."""
        self._configuration = configuration
        self._prefixes.configure(configuration)

    def start(self, interfaces: Sequence[str]) -> None:
        """Refused if all addresses are given away. Where there is no room for another block, all get smaller
        ones, and the start is refused once: until the servers have read that, and the sign-ons are over that
        go on, there could be two sessions with one address."""
        with self._lock, _source_errors():
            if self._configuration is None:
                raise SourceUnavailable("the core has no configuration yet")
            known = self._known()
            wanted = _wanted(
                self._configuration,
                {**dict.fromkeys(interfaces), **known},
                min((settings.block for settings in known.values() if settings is not None), default=BLOCK),
            )
            smaller = dict(_smaller(known, wanted))
            for name, with_less in smaller.items():
                self._change(name, with_less)
            if self._to_reload:
                self._reload(self._systemd)
                raise SourceRefused(_SMALLER if smaller else _RELOADED)
            for interface in interfaces:
                settings = wanted[interface]
                if settings is None:
                    raise SourceRefused(_NO_BLOCK)
                self._write(interface, settings)
            self._systemd.start(*map(_unit, interfaces))

    def stop(self, interface: str) -> None:
        """Its block is free then."""
        with self._lock, _source_errors():
            self._stop(self._systemd, [interface])

    def apply(self, rendered: Rendered, configuration: Configuration, limits: CommitLimits) -> PutBack:
        """Make the settings, by the VLANs that there are. An access interface that is gone, as after a boot,
        gives its block back."""
        former = self._configuration

        def put_back() -> None:
            if former is not None:
                self._configure(former, limits.put_back)

        return put_back_after(partial(self._configure, configuration, limits.apply), put_back)

    def action(self, rendered: Rendered, configuration: Configuration) -> DaemonAction:
        with _step_errors(), self._held(_LOOK):
            known = {name: settings for name, settings in self._known().items() if self._is_used(name)}
            is_other = self._to_reload or _wanted(configuration, known) != known
            return ServiceAction.RELOAD if is_other else None

    def _configure(self, configuration: Configuration, limit: TimeLimit) -> None:
        systemd = self._systemd.within(limit)
        with _step_errors(), self._held(limit.left()):
            self.begin(configuration)
            self._stop(systemd, [name for name in self._known() if not self._is_used(name)])
            known = self._known()
            for interface, settings in _wanted(configuration, known).items():
                if settings is None:
                    raise StepFailed(_STEP, _NO_BLOCK)
                if settings != known[interface]:
                    self._change(interface, settings)
            self._reload(systemd)

    @contextmanager
    def _held(self, seconds: float) -> Iterator[None]:
        """The lock, for a commit: the source holds it while systemd does not reply."""
        if not self._lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)):
            raise StepFailed(_STEP, f"another change to it did not end within {seconds:.3g} s")
        try:
            yield
        finally:
            self._lock.release()

    def _known(self) -> _Known:
        if self._read is None:
            known = self._folder.read()
            self._to_reload = set(known) if self._folder.is_marked else set()
            self._read = known
        return self._read

    def _change(self, interface: str, settings: PppoeSettings) -> None:
        """Write the settings of a server that may run: `_reload` has it read them."""
        if not self._to_reload:
            # A core that is killed before the reload leaves it to the next one.
            self._folder.mark()
        self._to_reload.add(interface)
        self._write(interface, settings)

    def _reload(self, systemd: Systemd) -> None:
        systemd.reload_running(*map(_unit, sorted(self._to_reload)))
        self._folder.unmark()
        self._to_reload.clear()

    def _write(self, interface: str, settings: PppoeSettings) -> None:
        known = self._known()
        if known.get(interface) != settings:
            self._folder.write(interface, settings)
            self._read = {**known, interface: settings}

    def _is_used(self, interface: str) -> bool:
        return self._is_source and is_device(interface)

    def _stop(self, systemd: Systemd, interfaces: Sequence[str]) -> None:
        systemd.stop(*map(_unit, interfaces))
        for interface in interfaces:
            # Not before: until then, sessions may have its addresses.
            self._folder.remove(interface)
            self._to_reload.discard(interface)
            self._read = {name: settings for name, settings in self._known().items() if name != interface}


def _wanted(
    configuration: Configuration, known: _Known, block: int = BLOCK
) -> dict[str, PppoeSettings | None]:
    """Return the settings of each interface, with its block as before if it can have that, of so many
    addresses at most. None without a block."""
    shared = SharedRange.of(configuration, len(known), block)
    blocks = {
        name: settings.first
        for name, settings in known.items()
        if settings is not None and shared.has_block(settings.first)
    }
    taken = set(blocks.values())
    for name in known:
        if name not in blocks and (first := shared.free_block(taken)) is not None:
            blocks[name] = first
            taken.add(first)
    return {
        name: PppoeSettings.of(configuration, blocks[name], shared.block) if name in blocks else None
        for name in known
    }


def _smaller(known: _Known, wanted: _Known) -> Iterator[tuple[str, PppoeSettings]]:
    """The settings that are wanted with a smaller block than those that are known."""
    for name, settings in known.items():
        other = wanted[name]
        if settings is not None and other is not None and other.block < settings.block:
            yield name, other


def _unit(interface: str) -> str:
    return instance(_UNIT, interface)


@contextmanager
def _source_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SourceRefused(f"cannot store the settings of pppoe-server: {error}") from error
    except SystemdUnreachable as error:
        raise SourceUnavailable(str(error)) from error
    except UnitFailed as error:
        raise SourceRefused(str(error)) from error


@contextmanager
def _step_errors() -> Iterator[None]:
    try:
        with disk_step(_STEP):
            yield
    except UnitFailed as error:
        raise StepFailed(_STEP, error.reason) from error


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
