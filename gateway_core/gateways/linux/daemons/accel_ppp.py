"""accel-ppp 1.14, at a commit: it reloads if its file differs, which ends no session.

A change between RADIUS and local subscribers is the exception. It loads its modules only when it starts, and
with both of them it refuses all local subscribers: `radius` without a server denies, `chap-secrets` is not
asked then (accel-pppd/pwdb.c, accel-pppd/radius/auth.c; tried in both orders). So it restarts once the commit
counts, which ends all its sessions.
"""

import logging
import re
import threading
import time
from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Address, IPv6Network, summarize_address_range
from typing import ClassVar, Self

from gateway_contract.base.errors import StepFailed
from gateway_contract.configuration import Configuration
from gateway_contract.core.impact import ServiceAction
from gateway_core.configuration.workspace import Rendered
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
from gateway_core.gateways.linux.daemons.subscriber_addresses import halves
from gateway_core.gateways.linux.daemons.systemd import Systemd, UnitFailed
from gateway_core.gateways.linux.program import CommitLimits, TimeLimit
from gateway_core.gateways.linux.sources.accel_cli import (
    CommandLine,
    Endpoint,
    kept_password,
)
from gateway_core.gateways.linux.sources.accel_formats import UnreadableReply
from gateway_core.gateways.linux.sources.accel_ppp import PADI_LIMIT, AccelPpp
from gateway_core.gateways.linux.sources.accel_statistics import AccelPppStatistics, uptime
from gateway_core.gateways.linux.sources.source import SourceNotRunning, SourceUnavailable
from gateway_core.records.clock import Clock

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
