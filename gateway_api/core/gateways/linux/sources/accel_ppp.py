"""accel-ppp 1.14 as a source of sessions: PPPoE, and DHCP by its IPoE without a kernel module of its own.

Sessions are read from the command line, which cuts user names at 127 bytes. accel-ppp reports nothing by
itself, and never why a session ended. It is a client of RADIUS servers, and counts its requests.
"""

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from gateway_api.base import durable
from gateway_api.base.errors import GatewayApiError
from gateway_api.base.texts import utc_text
from gateway_api.core.gateways.linux.kernel.links import is_device
from gateway_api.core.gateways.linux.sources.accel_cli import CommandLine
from gateway_api.core.gateways.linux.sources.accel_formats import (
    COLUMNS,
    RATE,
    UnknownColumn,
    UnreadableReply,
    is_interface,
    is_key,
    table_sessions,
)
from gateway_api.core.gateways.linux.sources.source import (
    ADMIN_DISCONNECT,
    START_JITTER,
    UNKNOWN,
    Source,
    SourceEnd,
    SourceRefused,
    SourceSession,
    SourceUnavailable,
    Terminations,
)
from gateway_api.core.gateways.linux.threads import Debounced
from gateway_api.core.records.clock import Clock
from gateway_api.wire.core.health import DependencyState
from gateway_api.wire.core.sessions import SessionType

_SHOW = f"show sessions {','.join(COLUMNS)}"
_SHOW_WITHOUT_RATES = f"show sessions {','.join(name for name in COLUMNS if name != RATE)}"

#: Seconds in which a `reload` waits for further interfaces: accel-ppp reads its whole configuration. A DHCP
#: client repeats its DISCOVER after about four (RFC 2131 section 4.1).
_GATHER = 1.0

_OPTION = "interface="

#: First frames of PPPoE a second on an access interface that accel-ppp replies to, and one of each client.
PADI_LIMIT = 10

#: Of `show stat`, as accel-pppd/radius/serv.c prints it: `radius(1, 192.0.2.1):`. A server without a time-out
#: for failures has no `state` there.
_SECTION = re.compile(r"(\w[\w -]*)(?:\([^)]*\))?:\s*")
_LINE = re.compile(r"  ([^:]+): (.*)")
_UPTIME = re.compile(r"uptime: (\d+)\.(\d+):(\d+):(\d+)\s")
_NO_UPTIME = "the reply to `show stat` does not start with the uptime"
_KINDS = ("auth", "acct", "interim")
_LOST = "lost(total/5m/1m)"
#: Seconds over which accel-ppp counts `lost_lately`.
_LATELY = 300.0


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

    def sessions(self) -> Sequence[SourceSession]:
        """All of one moment."""
        with self._sweep:
            try:
                found = self._from_table()
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

    def _from_table(self) -> list[SourceSession]:
        try:
            return table_sessions(self._command_line.run(_SHOW), int(self._clock.wall()))
        except UnknownColumn as error:
            if error.name != RATE:
                raise
            return table_sessions(self._command_line.run(_SHOW_WITHOUT_RATES), int(self._clock.wall()))

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
        if len(settled) != len(found):
            raise UnreadableReply("two sessions with one id")
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
        lines = file.read_text().splitlines()
    except FileNotFoundError:
        return set()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceRefused(f"cannot read {file}: {error}") from error
    names = {line.removeprefix(_OPTION) for line in lines if line.startswith(_OPTION)}
    return {name for name in names if is_interface(name)}


class RadiusServer(NamedTuple):
    """One server. Numbers are of transmissions of requests since accel-ppp started."""

    #: accel-ppp sends nothing to it for a while: too many requests timed out in a row.
    is_given_up: bool
    sent: int
    lost: int
    #: Lost in the last five minutes.
    lost_lately: int
    #: Requests without an answer until now.
    waiting: int

    @property
    def answered(self) -> int:
        # The numbers are not of one moment.
        return max(self.sent - self.lost - self.waiting, 0)


class AccelPppStatistics:
    """A `RadiusClient`. accel-ppp tells no time of an answer: one came between two looks if the number of
    answers grew. `ask` gives its `show stat`, and raises SourceUnavailable; `wall` gives epoch seconds."""

    def __init__(self, ask: Callable[[], bytes], wall: Callable[[], float]) -> None:
        self._ask = ask
        self._wall = wall
        self._answered: int | None = None
        self._last_answer: float | None = None
        #: The last answer, or the first look.
        self._quiet_since = wall()

    def look(self) -> tuple[DependencyState, str]:
        try:
            servers = radius_servers(self._ask())
        except SourceUnavailable:
            return (
                DependencyState.UNKNOWN,
                "accel-ppp does not reply, so nothing tells whether RADIUS answers.",
            )
        except UnreadableReply:
            return DependencyState.UNKNOWN, "accel-ppp says nothing readable of its RADIUS requests."
        if not servers:
            return DependencyState.FAILED, "accel-ppp runs without its RADIUS module and has to be restarted."
        return self._judge(servers)

    def _judge(self, servers: list[RadiusServer]) -> tuple[DependencyState, str]:
        now, answered = self._wall(), sum(server.answered for server in servers)
        if self._answered is not None and answered > self._answered:
            self._last_answer = self._quiet_since = now
        # Less than before after a restart of accel-ppp.
        self._answered = answered
        last = "the core has seen no answer since it started"
        if self._last_answer is not None:
            last = f"the last answer came at {utc_text(self._last_answer)}"
        lost = sum(server.lost_lately for server in servers)
        requests = f"{lost} request{'' if lost == 1 else 's'} timed out in the last 5 minutes"
        if all(server.is_given_up for server in servers):
            return DependencyState.FAILED, f"accel-ppp has given the server up: {requests}, and {last}."
        if lost and (not answered or now - self._quiet_since > _LATELY):
            return DependencyState.FAILED, f"The server does not answer: {requests}, and {last}."
        if lost:
            return DependencyState.DEGRADED, f"{requests}, and {last}."
        if not answered:
            return DependencyState.UNKNOWN, "No request was answered or timed out yet."
        return DependencyState.OK, f"No request timed out in the last 5 minutes, and {last}."


def uptime(reply: bytes) -> int:
    """Seconds since accel-ppp started, in a reply to `show stat`. Raises UnreadableReply."""
    found = _UPTIME.match(reply.decode("ascii", "replace"))
    if found is None:
        raise UnreadableReply(_NO_UPTIME)
    days, hours, minutes, seconds = map(int, found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def radius_servers(reply: bytes) -> list[RadiusServer]:
    """The servers in a reply to `show stat`, none without the module `radius`. Raises UnreadableReply."""
    text = reply.decode("ascii", "replace")
    if not text.startswith("uptime:"):
        raise UnreadableReply(_NO_UPTIME)
    return [_server(values) for values in _sections(text)]


def _sections(text: str) -> Iterator[dict[str, str]]:
    values: dict[str, str] | None = None
    for line in text.splitlines():
        if section := _SECTION.fullmatch(line):
            if values is not None:
                yield values
            values = {} if section[1] == "radius" else None
        elif values is not None and (pair := _LINE.fullmatch(line)):
            values[pair[1]] = pair[2].strip()
    if values is not None:
        yield values


def _server(values: dict[str, str]) -> RadiusServer:
    try:
        lost = [values.get(f"{kind} {_LOST}", "0/0/0").split("/") for kind in _KINDS]
        return RadiusServer(
            is_given_up=values.get("state", "active") != "active",
            sent=sum(int(values.get(f"{kind} sent", "0")) for kind in _KINDS),
            lost=sum(int(total) for total, _, _ in lost),
            lost_lately=sum(int(lately) for _, lately, _ in lost),
            waiting=int(values.get("request count", "0")),
        )
    except ValueError as error:
        raise UnreadableReply("a section of RADIUS in `show stat` has no numbers") from error
