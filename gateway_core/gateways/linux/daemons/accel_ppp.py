"""accel-ppp 1.14 as a source of sessions: PPPoE, and DHCP by its IPoE without a kernel module of its own.

Sessions are read from the command line, which cuts user names at 127 bytes. accel-ppp reports nothing by
itself, and never why a session ended.

accel-ppp 1.14, at a commit: it reloads if its file differs, which ends no session.

A change between RADIUS and local subscribers is the exception. It loads its modules only when it starts, and
with both of them it refuses all local subscribers: `radius` without a server denies, `chap-secrets` is not
asked then (accel-pppd/pwdb.c, accel-pppd/radius/auth.c; tried in both orders). So it restarts once the commit
counts, which ends all its sessions.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from ipaddress import IPv4Address, IPv6Network, summarize_address_range
from pathlib import Path
from typing import ClassVar, Self

from msgspec.structs import replace

from gateway_contract.base import durable
from gateway_contract.base.errors import GatewayApiError, StepFailed
from gateway_contract.configuration import Configuration
from gateway_contract.core.impact import ServiceAction
from gateway_contract.core.sessions import SessionType
from gateway_core.configuration.workspace import Rendered
from gateway_core.gateways.linux.daemons.accel_command_line import (
    COLUMNS,
    RATE,
    AccelPppStatistics,
    CommandLine,
    Endpoint,
    UnknownColumn,
    UnreadableReply,
    is_interface,
    is_key,
    kept_password,
    table_sessions,
    uptime,
)
from gateway_core.gateways.linux.daemons.daemon import (
    SERVICES,
    DaemonAction,
    DaemonHost,
    PlacedFiles,
    PutBack,
    SourceDaemon,
    all_or_none,
    check_lines,
    filled,
    put_back_after,
    template,
)
from gateway_core.gateways.linux.daemons.source import (
    ADMIN_DISCONNECT,
    NONE_BEFORE,
    START_JITTER,
    UNKNOWN,
    Source,
    SourceEnd,
    SourceNotRunning,
    SourceRefused,
    SourceSession,
    SourceUnavailable,
    Terminations,
)
from gateway_core.gateways.linux.daemons.subscriber_addresses import halves
from gateway_core.gateways.linux.daemons.systemd import Systemd, UnitFailed
from gateway_core.gateways.linux.entries import EntryReader, UnreadableEntry
from gateway_core.gateways.linux.kernel.links import is_device
from gateway_core.gateways.linux.program import CommitLimits, TimeLimit
from gateway_core.gateways.linux.threads import Debounced
from gateway_core.records.clock import Clock

_SHOW = f"show sessions {','.join(COLUMNS)}"
_SHOW_WITHOUT_RATES = f"show sessions {','.join(name for name in COLUMNS if name != RATE)}"

#: Seconds in which a `reload` waits for further interfaces: accel-ppp reads its whole configuration. A DHCP
#: client repeats its DISCOVER after about four (RFC 2131 section 4.1).
_GATHER = 1.0

_OPTION = "interface="

_SERVED = EntryReader(
    "core",
    "ipoe_interface",
    "the lines in the file of accel-ppp's DHCP interfaces",
    "such an interface is served again at its next first frame",
)

#: First frames of PPPoE a second on an access interface that accel-ppp replies to, and one of each client.
PADI_LIMIT = 10


class IpoeInterfaces:
    """The interfaces of DHCP: the `file` that the section `[ipoe]` of accel-ppp's configuration includes, by
    the last line of the section and of the whole: `$include FILE`. It outlives this process and accel-ppp. A
    name in it is served until it leaves the file: accel-ppp keeps its sockets when the interface is removed,
    and they do not work when it is created again. An expression (`interface=re:`) would never let a name go.

    `reload` makes accel-ppp read it: on a thread, once for many changes, again after an error, which is
    logged. It raises GatewayApiError. The file and its folder are created if they are missing. Raises
    SourceRefused if that cannot be done."""

    def __init__(self, file: Path, reload: Callable[[], None]) -> None:
        self._file = file
        self._reload = reload
        self._lock = threading.Lock()
        self._served = _served_in(file)
        #: Names that accel-ppp may have sockets for, although their interface is or was gone.
        self._stale: set[str] = {name for name in self._served if not is_device(name)}
        self._served -= self._stale
        self._write(self._served)
        self._changes = Debounced(self._apply, _GATHER)

    def serve(self, interface: str) -> None:
        with self._lock:
            self._served.add(interface)
        self._changes.request()

    def release(self, interface: str) -> None:
        """Does nothing for an interface that is not in the file."""
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
            # One that is made again meanwhile is stale again, for the next run.
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
        text = "".join(f"{_OPTION}{name}\n" for name in sorted(names))
        try:
            # At the first start of the core, no commit has made it.
            durable.make_folder(self._file.parent)
            durable.replace(self._file, text.encode())
        except OSError as error:
            raise SourceRefused(f"cannot write {self._file}: {error}") from error


class AccelPpp(Source):
    """`ipoe_interfaces` is the file of `IpoeInterfaces`. `close` ends a thread. Raises
    SourceRefused."""

    def __init__(
        self,
        name: str,
        command_line: CommandLine,
        ipoe_interfaces: Path,
        clock: Clock,
    ) -> None:
        self.name = name
        self._command_line = command_line
        self._clock = clock
        self._sweep = threading.Lock()
        self._known: dict[str, SourceSession] = {}
        self._terminations = Terminations(clock)
        self._ipoe = IpoeInterfaces(ipoe_interfaces, self._reload)

    def close(self) -> None:
        self._ipoe.close()

    def sessions(self, former: Mapping[str, SourceSession] = NONE_BEFORE) -> Sequence[SourceSession]:
        """Return all of one moment."""
        with self._sweep:
            try:
                found = self._from_table(former)
            except UnreadableReply as error:
                raise SourceUnavailable(f"cannot read the sessions of accel-ppp: {error}") from error
            self._known = self._settled(found)
            return list(self._known.values())

    def terminate(self, session: SourceSession) -> None:
        """The first request lets PPP say goodbye, which takes seconds if the subscriber's side is
        dead; another within a minute does not."""
        if not is_key(session.key):
            raise ValueError(f"not an id of accel-ppp: {session.key!r}")
        how = "hard" if session.key in self._terminations else "soft"
        with self._terminations.requesting(session.key):
            self._act(f"terminate sid {session.key} {how}")

    def serve(self, interfaces: Sequence[str], type: SessionType) -> None:
        """PPPoE starts at once, DHCP within a few seconds: accel-ppp looks for its interfaces at
        `reload` only, which keeps all sessions. What fails then is logged."""
        for interface in interfaces:
            _check(interface)
            if type is SessionType.DHCP:
                self._ipoe.serve(interface)
            else:
                limited = f"{interface},padi-limit={PADI_LIMIT}"
                self._act(f"pppoe interface add {limited}", b"error: already exists\r\n")

    def release(self, interface: str) -> None:
        """DHCP ends within a few seconds."""
        _check(interface)
        ending = (session.key for session in self._known.values() if session.access_interface == interface)
        with self._terminations.requesting(*ending):
            self._ipoe.release(interface)
            self._act(f"pppoe interface del {interface}")

    def ends(self, keys: Sequence[str]) -> Mapping[str, SourceEnd]:
        """`admin_disconnect` for a session whose end was requested here in the last minute, alone
        or with its interface. Nothing tells the traffic."""
        return {key: SourceEnd(ADMIN_DISCONNECT if key in self._terminations else UNKNOWN) for key in keys}

    def _from_table(self, former: Mapping[str, SourceSession]) -> list[SourceSession]:
        try:
            return table_sessions(self._command_line.run(_SHOW), int(self._clock.wall()), former)
        except UnknownColumn as error:
            if error.name != RATE:
                raise
            reply = self._command_line.run(_SHOW_WITHOUT_RATES)
            return table_sessions(reply, int(self._clock.wall()), former)

    def _settled(self, found: list[SourceSession]) -> dict[str, SourceSession]:
        """By key. What did not change stays the same object, and a start stays the same second."""
        settled = {}
        for session in found:
            before = self._known.get(session.key)
            if before is not None:
                if session != before and abs(session.started_at - before.started_at) <= START_JITTER:
                    session = replace(session, started_at=before.started_at)
                if session == before:
                    session = before
            settled[session.key] = session
        return settled

    def _reload(self) -> None:
        # If it is in progress already, that one may have read the configuration before.
        self._act("reload")

    def _act(self, command: str, *expected: bytes) -> None:
        """Raises SourceRefused with the text of a reply: what accel-ppp did, it does not tell."""
        reply = self._command_line.run(command)
        if reply and reply not in expected:
            text = reply.decode("ascii", "replace").strip()
            raise SourceRefused(f"accel-ppp refused `{command}`: {text!r}")


def _check(interface: str) -> None:
    if not is_interface(interface):
        raise ValueError(f"not the name of an interface: {interface!r}")


def _served_in(file: Path) -> set[str]:
    try:
        # A line with other bytes has no name of an interface.
        lines = file.read_bytes().decode("ascii", "replace").splitlines()
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise SourceRefused(f"cannot read {file}: {error}") from error
    return set(_SERVED.read(lines, _parse_line))


def _parse_line(line: str) -> str:
    """Return the name in a line of the file. Raises UnreadableEntry."""
    name = line.removeprefix(_OPTION)
    if name == line or not is_interface(name):
        raise UnreadableEntry("a line does not name an interface")
    return name


COMMAND_LINE = Endpoint(IPv4Address("127.0.0.1"), 2001)
#: The interfaces of its IPoE, and the password of its command line. Its configuration includes both.
IPOE_INTERFACES = SERVICES / "ipoe-interfaces"
PASSWORD = SERVICES / "accel-ppp-password"

_FILE = "accel-ppp.conf"
_TEMPLATE = template(_FILE)
_FORM = re.compile(
    r"|#.*|\[[a-z0-9-]+\]|[a-z0-9_.,:/-]+(,name=[A-Za-z0-9_-]+)?|[A-Za-z0-9-]+=[!-~]([ -~]*[!-~])?|"
    r"\$include /[a-z/-]+",
    re.ASCII,
)
#: As in packaging/accel-ppp.service, which the operator may have.
_UNIT = "accel-ppp.service"
_RELOAD, _RESTART = "reload accel-ppp", "restart accel-ppp"
#: A file that is there from a commit that needs a restart until that is done: with the time of the commit in
#: epoch seconds.
_TO_RESTART = "accel-ppp-restart"
#: Seconds that its own restart may take, and between two looks at it.
_RESTARTS, _LOOK = 15.0, 0.5
#: Seconds by which whole seconds of two clocks may differ.
_ROUNDING = 2
#: Of the section `[modules]`.
_AUTHENTICATION = {"chap-secrets", "radius"}
#: Prefixes that a pool has at most: accel-ppp 1.14.0 keeps a list of them in memory.
_MOST_PREFIXES = 1 << 18
_LENGTH_EFFECT = "accel-ppp reloads; version 1.14.0 gives prefixes of it from its next start on"
_RANGE_EFFECT = f"{_LENGTH_EFFECT}; its sessions with a prefix outside the new networks end"

_log = logging.getLogger(__name__)


def _pools(network: IPv6Network | None, length: int) -> list[tuple[IPv6Network, int]]:
    """Return the first prefixes of a length in a network, as many as a pool may have. None of no network."""
    if network is None:
        return []
    # A prefix that is longer by `n` bits is one of 2**n.
    longest = length - (_MOST_PREFIXES.bit_length() - 1)
    first = IPv6Network((network.network_address, max(network.prefixlen, longest)))
    return [(first, length)]


class AccelPppReload(SourceDaemon):
    """accel-ppp, which the gateway leaves alone unless it is a source: the operator has built and started
    it."""

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
    def on(cls, host: DaemonHost) -> Self | None:
        if cls.name not in host.sources:
            return None
        return cls(host.files, CommandLine(COMMAND_LINE, password=kept_password(PASSWORD)), host.systemd)

    def __init__(
        self,
        files: PlacedFiles,
        command_line: CommandLine,
        systemd: Systemd | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._files = files
        self._command_line = command_line
        #: None where nothing runs it as a unit.
        self._systemd = systemd
        self._wall = wall
        #: What it runs by, if this process has seen to it.
        self._applied: str | None = None
        #: Held by what needs a restart, and by what does it.
        self._restarting = threading.Lock()
        #: The monotonic time of the last request for its own restart.
        self._requested_at: float | None = None

    def source(self, configuration: Configuration, clock: Clock) -> AccelPpp:
        return AccelPpp(self.name, self._command_line, IPOE_INTERFACES, clock)

    def radius_client(self, clock: Clock) -> AccelPppStatistics:
        return AccelPppStatistics(lambda: self._command_line.run("show stat"), clock.wall)

    def render(self, configuration: Configuration) -> Rendered:
        cgnat = configuration.cgnat
        # Without the broadcast address.
        pool = summarize_address_range(cgnat.subscriber_gateway + 1, cgnat.source_range[-2])
        subscribers = configuration.subscribers
        shared = subscribers.ipv6_range
        values = {
            "command_line": COMMAND_LINE,
            "ipoe_interfaces": IPOE_INTERFACES,
            "password": PASSWORD,
            "padi_limit": PADI_LIMIT,
            "ipv6_pools": _pools(None if shared is None else halves(shared)[0], 64),
            "delegated_pools": _pools(subscribers.delegated_range, subscribers.delegated_length),
        }
        return {_FILE: filled(_TEMPLATE, configuration, pool=pool, quoted=re.escape, **values)}

    def verify(self, rendered: Rendered) -> None:
        check_lines(_FILE, rendered[_FILE], _FORM)

    def apply(self, rendered: Rendered, configuration: Configuration, limits: CommitLimits) -> PutBack:
        """If it does not run, it reads the file at its next start."""
        text = rendered[_FILE]
        if text == self._applied:
            return lambda: None
        place_back = self._place(text, limits.apply)

        def put_back() -> None:
            self._applied = None
            place_back()
            self._reload(limits.put_back)

        # Also if it does not reply: it may have read the file, or do so later.
        put_back_after(partial(self._reload, limits.apply), put_back)
        self._applied = text
        return put_back

    def action(self, rendered: Rendered, configuration: Configuration) -> DaemonAction:
        text, before = rendered[_FILE], self._files.read(_FILE)
        if text == before:
            return None
        return ServiceAction.RESTART if _has_other_modules(before, text) else ServiceAction.RELOAD

    def is_unfinished(self) -> bool:
        return self._files.read(_TO_RESTART) is not None

    def finish(self, running: Configuration) -> None:
        with self._restarting:
            if not self.is_unfinished():
                return
            if _has_other_modules(self._files.read(_FILE), self.render(running)[_FILE]):
                # A commit under way may fail. What a killed core left of one goes when the services resume.
                return
            self._restart()
            self._files.place(_TO_RESTART, None)

    def _restart(self) -> None:
        """By its unit, if it runs by that: systemd ends what does not end by itself."""
        try:
            if self._systemd is not None and self._systemd.is_active(_UNIT):
                self._systemd.restart(_UNIT)
            else:
                self._restart_itself()
        except SourceNotRunning as error:
            _log.warning("accel-ppp loads its modules at its next start: %s", error)
            return
        except (SourceUnavailable, UnitFailed, UnreadableReply) as error:
            raise StepFailed(_RESTART, str(error)) from error
        _log.warning("accel-ppp has restarted for other modules: subscribers are authorized otherwise")

    def _restart_itself(self) -> None:
        """Its own restart says nothing, and not each accel-ppp that was built does it: some go on as before,
        and one with sessions of PPPoE did not come back."""
        # It may be late, or somebody has restarted it by hand: once more would end the new sessions.
        if not self._has_restarted():
            reply = self._command_line.run("restart hard")
            if reply:
                raise StepFailed(_RESTART, repr(reply.decode("ascii", "replace").strip()))
            self._requested_at = time.monotonic()
        end = time.monotonic() + _RESTARTS
        while not self._has_restarted():
            if time.monotonic() > end:
                raise StepFailed(_RESTART, f"it has not restarted, and is not {_UNIT}: restart it")
            time.sleep(_LOOK)
        self._requested_at = None

    def _has_restarted(self) -> bool:
        """Since the request."""
        if self._requested_at is None:
            return False
        try:
            seconds = uptime(self._command_line.run("show stat"))
        except SourceUnavailable:
            return False
        return seconds < time.monotonic() - self._requested_at

    def _place(self, text: str, limit: TimeLimit) -> PutBack:
        with self._restarting:
            if not _has_other_modules(self._files.read(_FILE), text):
                return self._files.place(_FILE, text)
            # Those that it has loaded are right again, where it has not restarted yet.
            mark = None if self._is_owed(limit) else f"{int(self._wall())}\n"
            return all_or_none(
                partial(self._files.place, name, content)
                for name, content in ((_TO_RESTART, mark), (_FILE, text))
            )

    def _is_owed(self, limit: TimeLimit) -> bool:
        """Return whether a commit needed a restart, and accel-ppp has not started since: after a power cut,
        it has."""
        mark = self._files.read(_TO_RESTART)
        if mark is None or not mark.strip().isdigit():
            # None, or one of an earlier version.
            return mark is not None
        try:
            seconds = uptime(self._command_line.run("show stat", limit.left()))
        except (SourceUnavailable, UnreadableReply):
            # The reload fails, too, unless it does not run: then it loads its modules at its next start.
            return True
        return seconds >= int(self._wall()) - int(mark) - _ROUNDING

    def _reload(self, limit: TimeLimit) -> None:
        try:
            reply = self._command_line.run("reload", limit.left())
        except SourceNotRunning as error:
            _log.warning("accel-ppp reads its configuration at its next start: %s", error)
            return
        except SourceUnavailable as error:
            raise StepFailed(_RELOAD, str(error)) from error
        if reply:
            raise StepFailed(_RELOAD, repr(reply.decode("ascii", "replace").strip()))


def _has_other_modules(before: str | None, after: str) -> bool:
    """Return True if an accel-ppp that runs by a file has not the module that another one needs."""
    known = _AUTHENTICATION.intersection((before or "").splitlines())
    return bool(known) and known.isdisjoint(after.splitlines())
