"""accel-ppp 1.14 as a source of sessions: PPPoE, and DHCP by its IPoE without a kernel module of its own.

Sessions are read from the command line, which cuts user names at 127 bytes. accel-ppp reports nothing by
itself, and never why a session ended.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from gateway_contract.base import durable
from gateway_contract.base.errors import GatewayApiError
from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.entries import EntryReader, UnreadableEntry
from gateway_core.gateways.linux.kernel.links import is_device
from gateway_core.gateways.linux.sources.accel_cli import CommandLine
from gateway_core.gateways.linux.sources.accel_formats import (
    COLUMNS,
    RATE,
    UnknownColumn,
    UnreadableReply,
    is_interface,
    is_key,
    table_sessions,
)
from gateway_core.gateways.linux.sources.source import (
    ADMIN_DISCONNECT,
    NONE_BEFORE,
    START_JITTER,
    UNKNOWN,
    Source,
    SourceEnd,
    SourceRefused,
    SourceSession,
    SourceUnavailable,
    Terminations,
)
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
