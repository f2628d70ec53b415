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
"""

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import ClassVar, Self

from gateway_contract.base import durable
from gateway_contract.base.errors import StepFailed
from gateway_contract.configuration import Configuration
from gateway_contract.core.impact import ServiceAction
from gateway_core.configuration.store import disk_step
from gateway_core.configuration.workspace import Rendered
from gateway_core.gateways.linux.daemons.daemon import (
    DaemonAction,
    DaemonHost,
    PutBack,
    SourceDaemon,
    put_back_after,
)
from gateway_core.gateways.linux.daemons.pppd import RECORDS, PppdRadius
from gateway_core.gateways.linux.daemons.subscriber_addresses import BLOCK, SessionPrefixes, SharedRange
from gateway_core.gateways.linux.daemons.systemd import (
    Systemd,
    SystemdUnreachable,
    UnitFailed,
    instance,
)
from gateway_core.gateways.linux.kernel.links import is_device
from gateway_core.gateways.linux.program import CommitLimits, TimeLimit
from gateway_core.gateways.linux.sources.pppd_log import JournalTail, PppdFailures, SystemdJournal
from gateway_core.gateways.linux.sources.pppoe_server import PppoeServer
from gateway_core.gateways.linux.sources.source import SourceRefused, SourceUnavailable
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

    def source(self, configuration: Configuration, clock: Clock) -> PppoeServer:
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
