"""accel-ppp 1.14: its configuration, and its sessions. A session is a PPPoE session or a DHCP session.
accel-ppp serves DHCP by IPoE without a kernel module.

A commit reloads accel-ppp if the new configuration file differs from the old one. A reload ends no session. A
change between RADIUS and local subscribers needs a restart, because accel-ppp loads its modules only at the
start. The modules `radius` and `chap-secrets` cannot be loaded together: `radius` without a server rejects
every subscriber, and `chap-secrets` is never tried (accel-pppd/pwdb.c, accel-pppd/radius/auth.c; tested in
both orders). The restart happens after the new configuration has become the running configuration, and ends
all sessions of accel-ppp.

Sessions are read from the command line, which truncates user names to 127 bytes. accel-ppp does not notify
the core of new or ended sessions, and never reports why a session ended.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Network, summarize_address_range
from pathlib import Path
from typing import ClassVar, Self

from msgspec.structs import replace

from gateway_contract.base import durable
from gateway_contract.base.errors import GatewayApiError, StepFailed
from gateway_contract.configuration import Configuration
from gateway_contract.core.impact import ServiceAction
from gateway_contract.core.sessions import SessionType
from gateway_core.configuration.workspace import RenderedFiles
from gateway_core.gateways.linux.daemons.accel_command_line import (
    COLUMNS,
    RATE_COLUMN,
    AccelPppRadius,
    CommandLine,
    Endpoint,
    UnknownColumn,
    UnreadableReply,
    is_interface_name,
    load_password,
    parse_sessions,
    parse_uptime,
)
from gateway_core.gateways.linux.daemons.daemon import (
    SERVICES_FOLDER,
    DaemonAction,
    PlacedFiles,
    Rollback,
    SourceDaemon,
    check_lines,
    fill_template,
    load_template,
)
from gateway_core.gateways.linux.daemons.source import (
    NO_SESSIONS,
    START_JITTER_SECONDS,
    Source,
    SourceEnd,
    SourceNotRunning,
    SourceRefused,
    SourceSession,
    SourceUnavailable,
    Terminations,
)
from gateway_core.gateways.linux.daemons.systemd import Systemd
from gateway_core.gateways.linux.entries import EntryReader, UnreadableEntry
from gateway_core.gateways.linux.kernel.links import has_device
from gateway_core.gateways.linux.program import CommitLimits, TimeLimit
from gateway_core.gateways.linux.threads import DebouncedAction
from gateway_core.records.clock import Clock

COMMAND_LINE = Endpoint(IPv4Address("127.0.0.1"), 2001)
#: Files that its configuration includes: the interfaces of IPoE, and the password of its command line.
IPOE_INTERFACES_FILE = SERVICES_FOLDER / "ipoe-interfaces"
PASSWORD_FILE = SERVICES_FOLDER / "accel-ppp-password"

_FILE_NAME = "accel-ppp.conf"
_TEMPLATE = load_template(_FILE_NAME)
_LINE_PATTERN = re.compile(
    r"|#.*|\[[a-z0-9-]+\]|[a-z0-9_.,:/-]+(,name=[A-Za-z0-9_-]+)?|[A-Za-z0-9-]+=[!-~]([ -~]*[!-~])?|"
    r"\$include /[a-z/-]+",
    re.ASCII,
)
#: Unit of packaging/accel-ppp.service, which the operator may have.
_UNIT_NAME = "accel-ppp.service"
_RELOAD_STEP, _RESTART_STEP = "reload accel-ppp", "restart accel-ppp"
#: File from a commit that needs a restart until the restart: it has the time of the commit in epoch seconds.
_RESTART_NOTE = "accel-ppp-restart"
#: Limit of a restart that accel-ppp does itself, and seconds between two looks at it.
_RESTART_SECONDS, _POLL_SECONDS = 15.0, 0.5
#: Seconds by which whole seconds of two clocks may differ.
_ROUNDING_SECONDS = 2
#: Modules in the section `[modules]`, of which accel-ppp has one.
_AUTHENTICATION_MODULES = {"chap-secrets", "radius"}
#: Most prefixes of a pool: accel-ppp 1.14.0 keeps a list of them in memory.
_MAX_POOL_PREFIXES = 1 << 18
_LENGTH_EFFECT = "accel-ppp reloads; version 1.14.0 gives prefixes of it from its next start on"
_RANGE_EFFECT = f"{_LENGTH_EFFECT}; its sessions with a prefix outside the new networks end"

_SHOW_COMMAND = f"show sessions {','.join(COLUMNS)}"
_SHOW_COMMAND_WITHOUT_RATES = f"show sessions {','.join(name for name in COLUMNS if name != RATE_COLUMN)}"
#: First frames of PPPoE a second on an access interface that accel-ppp replies to, and one of each client.
_MAX_PADI_PER_SECOND = 10
#: Seconds in which a `reload` waits for further interfaces: accel-ppp reads its whole configuration. A DHCP
#: client repeats its DISCOVER after about four (RFC 2131 section 4.1).
_RELOAD_DELAY_SECONDS = 1.0
_INTERFACE_OPTION = "interface="
_INTERFACE_READER = EntryReader(
    "core",
    "ipoe_interface",
    "the lines in the file of accel-ppp's DHCP interfaces",
    "such an interface is served again at its next first frame",
)

_log = logging.getLogger(__name__)


def _cap_pool(network: IPv6Network | None, length: int) -> list[tuple[IPv6Network, int]]:
    """Return a list with one pair: the network of a pool, and `length`, the length of each prefix in the
    pool. A pool with more than _MAX_POOL_PREFIXES prefixes is cut to its first _MAX_POOL_PREFIXES prefixes.
    Return an empty list if `network` is None."""
    if network is None:
        return []
    # A prefix that is longer by `n` bits is one of 2**n.
    longest = length - (_MAX_POOL_PREFIXES.bit_length() - 1)
    return [(IPv6Network((network.network_address, max(network.prefixlen, longest))), length)]


class AccelPppDaemon(SourceDaemon):
    """accel-ppp, which the operator has built and started. The gateway configures accel-ppp only if accel-ppp
    is a source."""

    name = "accel-ppp"
    programs: ClassVar = {"accel-pppd": None, "accel-cmd": None}
    remedy = "build accel-ppp from https://github.com/accel-ppp/accel-ppp: Debian has no package of it"
    modules = ("ppp_generic", "pppoe")
    types = ("pppoe", "dhcp")
    effects: ClassVar = {
        "system.hostname": ServiceAction.RELOAD,
        "radius": "accel-ppp reloads; when `radius.server` is set or removed, it restarts, and all its "
        "sessions end",
        "cgnat.source_range": ServiceAction.RELOAD,
        "demux.trunks": ServiceAction.RELOAD,
        "demux.vlan_profiles": "accel-ppp reloads when the first profile with one tag, or with two, or "
        "whose tags need short names of interfaces, is added, or the last one removed",
        "subscribers.dns_servers": ServiceAction.RELOAD,
        "subscribers.ipv6_dns_servers": ServiceAction.RELOAD,
        "subscribers.ipv6_range": _RANGE_EFFECT,
        "subscribers.delegated_range": _RANGE_EFFECT,
        "subscribers.delegated_length": _LENGTH_EFFECT,
        "subscribers.pools": ServiceAction.RELOAD,
        "subscribers.max_starting": ServiceAction.RELOAD,
        "subscribers.pado_delay": ServiceAction.RELOAD,
    }

    @classmethod
    def create(cls, files: PlacedFiles, systemd: Systemd, is_source: bool) -> Self | None:
        if not is_source:
            return None
        return cls(files, CommandLine(COMMAND_LINE, password=load_password(PASSWORD_FILE)), systemd)

    def __init__(
        self,
        files: PlacedFiles,
        command_line: CommandLine,
        systemd: Systemd,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._files = files
        self._command_line = command_line
        self._systemd = systemd
        self._wall = wall
        #: Configuration that accel-ppp runs with; None if this process has not written the file.
        self._applied: str | None = None
        #: Held while a commit notes that a restart is needed, and during a restart.
        self._restart_lock = threading.Lock()
        #: Monotonic time of the last request to restart itself.
        self._requested_at: float | None = None

    def create_source(self, configuration: Configuration, clock: Clock) -> "AccelPppSource":
        return AccelPppSource(self._command_line, IPOE_INTERFACES_FILE, clock)

    def create_radius_client(self, clock: Clock) -> AccelPppRadius:
        return AccelPppRadius(lambda: self._command_line.run("show stat"), clock.wall)

    def render(self, configuration: Configuration) -> RenderedFiles:
        cgnat, subscribers = configuration.cgnat, configuration.subscribers
        shared = subscribers.ipv6_range
        text = fill_template(
            _TEMPLATE,
            configuration,
            command_line=COMMAND_LINE,
            ipoe_interfaces=IPOE_INTERFACES_FILE,
            password=PASSWORD_FILE,
            padi_limit=_MAX_PADI_PER_SECOND,
            # Without the broadcast address.
            pool=summarize_address_range(cgnat.subscriber_gateway + 1, cgnat.source_range[-2]),
            quoted=re.escape,
            # The other sources have the second half.
            ipv6_pools=_cap_pool(None if shared is None else next(shared.subnets()), 64),
            delegated_pools=_cap_pool(subscribers.delegated_range, subscribers.delegated_length),
        )
        return {_FILE_NAME: text}

    def verify(self, rendered: RenderedFiles) -> None:
        check_lines(_FILE_NAME, rendered[_FILE_NAME], _LINE_PATTERN)

    def apply(
        self, rendered: RenderedFiles, configuration: Configuration, limits: CommitLimits, rollback: Rollback
    ) -> None:
        text = rendered[_FILE_NAME]
        if text == self._applied:
            return
        # Needed also if accel-ppp does not reply: it may have read the file, or do so later.
        rollback.add(lambda: self._reload(limits.put_back))
        self._place(text, limits.apply, rollback)
        self._reload(limits.apply)
        self._applied = text

    def preview_action(self, rendered: RenderedFiles, configuration: Configuration) -> DaemonAction:
        text, before = rendered[_FILE_NAME], self._files.read(_FILE_NAME)
        if text == before:
            return None
        return ServiceAction.RESTART if _is_module_change(before, text) else ServiceAction.RELOAD

    def is_unfinished(self) -> bool:
        return self._files.read(_RESTART_NOTE) is not None

    def finish(self, running: Configuration) -> None:
        with self._restart_lock:
            if not self.is_unfinished():
                return
            if _is_module_change(self._files.read(_FILE_NAME), self.render(running)[_FILE_NAME]):
                # A commit under way may fail. What a killed core left of one goes when the services resume.
                return
            self._restart()
            self._files.place(_RESTART_NOTE, None)

    def _restart(self) -> None:
        try:
            # systemd kills what does not end by itself.
            if self._systemd.is_active(_UNIT_NAME):
                self._systemd.restart(_UNIT_NAME)
            else:
                self._restart_by_command()
        except SourceNotRunning as error:
            _log.warning(
                "accel-ppp is not running, it loads the new authentication module at its next start: %s",
                error,
            )
            return
        except (SourceUnavailable, UnreadableReply) as error:
            raise StepFailed(_RESTART_STEP, str(error)) from error
        _log.warning("accel-ppp restarted to load another authentication module, all its sessions ended")

    def _restart_by_command(self) -> None:
        """Request that accel-ppp restarts itself, and wait until the uptime of accel-ppp shows the restart.
        Raises StepFailed if accel-ppp has not restarted within _RESTART_SECONDS: some builds ignore the
        request, and a build with PPPoE sessions did not start again."""
        # An earlier restart may be late, or done by hand: another one would end the new sessions.
        if not self._has_restarted():
            _require_empty_reply(_RESTART_STEP, self._command_line.run("restart hard"))
            self._requested_at = time.monotonic()
        end = time.monotonic() + _RESTART_SECONDS
        while not self._has_restarted():
            if time.monotonic() > end:
                raise StepFailed(_RESTART_STEP, f"it has not restarted, and is not {_UNIT_NAME}: restart it")
            time.sleep(_POLL_SECONDS)
        self._requested_at = None

    def _has_restarted(self) -> bool:
        """Return True if accel-ppp has started since the last restart request. Return False if no restart is
        requested, or if accel-ppp does not reply."""
        if self._requested_at is None:
            return False
        try:
            seconds = parse_uptime(self._command_line.run("show stat"))
        except SourceUnavailable:
            return False
        return seconds < time.monotonic() - self._requested_at

    def _place(self, text: str, limit: TimeLimit, rollback: Rollback) -> None:
        """Write the configuration file of accel-ppp. If accel-ppp needs a restart to use the file, also write
        the file _RESTART_NOTE."""
        with self._restart_lock:
            if _is_module_change(self._files.read(_FILE_NAME), text):
                # An accel-ppp that has not restarted yet has the right modules again.
                note = None if self._is_restart_pending(limit) else f"{int(self._wall())}\n"
                rollback.add(self._files.place(_RESTART_NOTE, note))
            rollback.add(self._files.place(_FILE_NAME, text))

    def _is_restart_pending(self, limit: TimeLimit) -> bool:
        """Return True if a commit needed a restart of accel-ppp, and accel-ppp has not started since that
        commit. A start after a power cut counts too."""
        note = self._files.read(_RESTART_NOTE)
        if note is None or not note.strip().isdigit():
            # An earlier version has noted no time.
            return note is not None
        try:
            seconds = parse_uptime(self._command_line.run("show stat", limit.get_remaining()))
        except (SourceUnavailable, UnreadableReply):
            # The reload fails, too. An accel-ppp that does not run loads its modules at its next start.
            return True
        return seconds >= int(self._wall()) - int(note) - _ROUNDING_SECONDS

    def _reload(self, limit: TimeLimit) -> None:
        self._applied = None
        try:
            _require_empty_reply(_RELOAD_STEP, self._command_line.run("reload", limit.get_remaining()))
        except SourceNotRunning as error:
            _log.warning(
                "accel-ppp is not running, it reads its new configuration at its next start: %s", error
            )
        except SourceUnavailable as error:
            raise StepFailed(_RELOAD_STEP, str(error)) from error


def _require_empty_reply(step: str, reply: bytes) -> None:
    """Raise StepFailed for the step `step` if a reply is not empty. To a restart or reload, accel-ppp replies
    only with an error text."""
    if reply:
        raise StepFailed(step, repr(reply.decode("ascii", "replace").strip()))


def _is_module_change(before: str | None, after: str) -> bool:
    """Return True if the configuration files `before` and `after` need different authentication modules."""
    loaded_modules = _AUTHENTICATION_MODULES.intersection((before or "").splitlines())
    return bool(loaded_modules) and loaded_modules.isdisjoint(after.splitlines())


class IpoeInterfaces:
    """DHCP interfaces of accel-ppp, in a file that the section `[ipoe]` of the configuration of accel-ppp
    includes. The line `$include FILE` is the last line of the configuration. The file stays when the core or
    accel-ppp ends. accel-ppp serves an interface until the name of the interface leaves the file. If an
    interface is removed and created again, the old sockets of accel-ppp do not work. So the option
    `interface=re:` is not used: a name that matches a regular expression never leaves the file.

    The function `reload` makes accel-ppp read the file, and raises GatewayApiError if accel-ppp refuses or
    does not reply. A thread calls `reload` once for many changes. If `reload` fails, the thread logs the
    error and calls `reload` again. The file and its folder are created if they are missing. Raises
    SourceRefused if the file cannot be read or written."""

    def __init__(self, file: Path, reload: Callable[[], None]) -> None:
        self._file = file
        self._reload = reload
        self._lock = threading.Lock()
        names = _read_interfaces(file)
        self._served = {name for name in names if has_device(name)}
        #: Interfaces that were removed since accel-ppp opened its sockets: the sockets do not work.
        self._stale = names - self._served
        self._write(self._served)
        self._changes = DebouncedAction(
            "reload the interfaces of accel-ppp", self._apply, _RELOAD_DELAY_SECONDS
        )

    def serve(self, interface: str) -> None:
        with self._lock:
            self._served.add(interface)
        self._changes.request()

    def release(self, interface: str) -> None:
        """Remove an interface from the file; do nothing if the interface is not in the file."""
        with self._lock:
            if interface not in self._served:
                return
            self._served.remove(interface)
            self._stale.add(interface)
        self._changes.request()

    def close(self) -> None:
        self._changes.close()

    def _apply(self) -> None:
        with self._lock:
            # An interface that is made again meanwhile is stale again, for the next run.
            served, stale, self._stale = self._served.copy(), self._stale, set()
        try:
            if served & stale:
                # Only a reload without a name closes its sockets.
                self._write(served - stale)
                self._reload()
            self._write(served)
            self._reload()
        except GatewayApiError:
            with self._lock:
                self._stale |= stale
            raise

    def _write(self, names: set[str]) -> None:
        text = "".join(f"{_INTERFACE_OPTION}{name}\n" for name in sorted(names))
        try:
            # At the first start of the core, no commit has made the folder.
            durable.make_folder(self._file.parent)
            durable.replace(self._file, text.encode())
        except OSError as error:
            raise SourceRefused(f"cannot write {self._file}: {error}") from error


def _read_interfaces(file: Path) -> set[str]:
    try:
        # A line with other bytes has no name of an interface.
        lines = file.read_bytes().decode("ascii", "replace").splitlines()
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise SourceRefused(f"cannot read {file}: {error}") from error
    return set(_INTERFACE_READER.read(lines, _parse_line))


def _parse_line(line: str) -> str:
    """Return the interface name in a line of the file of IpoeInterfaces. Raises UnreadableEntry if the line
    has no name."""
    name = line.removeprefix(_INTERFACE_OPTION)
    if name == line or not is_interface_name(name):
        raise UnreadableEntry("a line does not name an interface")
    return name


class AccelPppSource(Source):
    """Source of the sessions of accel-ppp. `ipoe_interfaces` is the file of IpoeInterfaces. The method
    `close` stops the thread of IpoeInterfaces. Raises SourceRefused if the file cannot be read or written."""

    name = AccelPppDaemon.name

    def __init__(self, command_line: CommandLine, ipoe_interfaces: Path, clock: Clock) -> None:
        self._command_line = command_line
        self._clock = clock
        self._sweep_lock = threading.Lock()
        self._known: dict[str, SourceSession] = {}
        self._terminations = Terminations(clock)
        # A reload under way may have read the configuration before, and refuses another one.
        self._ipoe = IpoeInterfaces(ipoe_interfaces, lambda: self._execute("reload"))

    def close(self) -> None:
        self._ipoe.close()

    def list_sessions(self, former: Mapping[str, SourceSession] = NO_SESSIONS) -> Sequence[SourceSession]:
        with self._sweep_lock:
            try:
                sessions = self._read_table(former)
            except UnreadableReply as error:
                raise SourceUnavailable(f"cannot read the sessions of accel-ppp: {error}") from error
            self._known = {session.key: self._keep_start(session) for session in sessions}
            return list(self._known.values())

    def terminate(self, session: SourceSession) -> None:
        """Request the end of a session. The first request terminates PPP gracefully, which takes seconds if
        the subscriber's device does not reply. A second request within a minute ends the session at once."""
        how = "hard" if session.key in self._terminations else "soft"
        with self._terminations.record(session.key):
            self._execute(f"terminate sid {session.key} {how}")

    def serve(self, interfaces: Sequence[str], type: SessionType) -> None:
        """Serve PPPoE at once, and DHCP within a few seconds. DHCP takes longer because accel-ppp reads its
        DHCP interfaces only at a `reload`. The reload ends no session, and a failed reload is logged."""
        for interface in interfaces:
            if type is SessionType.DHCP:
                self._ipoe.serve(interface)
            else:
                option = f"{interface},padi-limit={_MAX_PADI_PER_SECOND}"
                self._execute(f"pppoe interface add {option}", b"error: already exists\r\n")

    def release(self, interface: str) -> None:
        """End the PPPoE service on an interface at once, and the DHCP service within a few seconds."""
        ending = (session.key for session in self._known.values() if session.access_interface == interface)
        with self._terminations.record(*ending):
            self._ipoe.release(interface)
            self._execute(f"pppoe interface del {interface}")

    def read_ends(self, keys: Sequence[str]) -> Mapping[str, SourceEnd]:
        """Return an end without traffic for each session, because accel-ppp does not report the traffic of
        ended sessions. The reason is `admin_disconnect` if the end of the session or the release of its
        interface was requested in the last minute, and `unknown` otherwise."""
        return {key: SourceEnd(self._terminations.find_reason(key)) for key in keys}

    def _read_table(self, former: Mapping[str, SourceSession]) -> list[SourceSession]:
        try:
            return parse_sessions(self._command_line.run(_SHOW_COMMAND), int(self._clock.wall()), former)
        except UnknownColumn as error:
            if error.name != RATE_COLUMN:
                raise
            reply = self._command_line.run(_SHOW_COMMAND_WITHOUT_RATES)
            return parse_sessions(reply, int(self._clock.wall()), former)

    def _keep_start(self, session: SourceSession) -> SourceSession:
        """Return the session with the start time from the previous list, unless the two start times differ by
        more than START_JITTER_SECONDS. If nothing else has changed, return the session object of the previous
        list."""
        before = self._known.get(session.key)
        if before is None:
            return session
        if session != before and abs(session.started_at - before.started_at) <= START_JITTER_SECONDS:
            session = replace(session, started_at=before.started_at)
        return before if session == before else session

    def _execute(self, command: str, *expected: bytes) -> None:
        """Run a command that has no reply on success. Raises SourceRefused with the text of the reply if
        accel-ppp sends a reply that is not in `expected`."""
        reply = self._command_line.run(command)
        if reply and reply not in expected:
            text = reply.decode("ascii", "replace").strip()
            raise SourceRefused(f"accel-ppp refused `{command}`: {text!r}")
