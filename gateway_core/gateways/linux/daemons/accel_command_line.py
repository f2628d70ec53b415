"""The command line of accel-ppp 1.14, on TCP.

It has neither a prompt nor an end marker, and says nothing to a wrong password. So a connection
carries one command between two `show version`: the version before the reply is the proof of life, and the
version after it proves that the reply is whole. Before its first `reload` with a password, accel-ppp has
none, and takes the password for a command that it does not know.

The replies of accel-ppp 1.14 as bytes, without sockets: the table of its command line.

A subscriber chooses the user name, and may put anything but NUL into it: line ends, `|`, bytes that are not
UTF-8. So a table is cut at byte offsets, before it is decoded.

The reply of accel-ppp 1.14 to `show stat`: its uptime, and what it has counted of its RADIUS servers.
"""

import math
import re
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Network
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from gateway_contract.base import durable
from gateway_contract.base.texts import MAX_BPS, format_utc
from gateway_contract.core.health import DependencyState
from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.daemons.source import (
    NONE_BEFORE,
    SourceNotRunning,
    SourceRefused,
    SourceSession,
    SourceUnavailable,
)
from gateway_core.gateways.linux.entries import EntryReader, UnreadableEntry

#: Seconds for a command, with the connection and the wait for its turn.
TIMEOUT = 10.0
#: A session takes up to 500 bytes.
REPLY_CAP = 128 << 20
_CHUNK = 256 << 10

#: accel-ppp hangs up at a line of 1,023 bytes.
_LINE = re.compile(r"[ -~]{1,1000}")
_PROOF = "show version"
_UNKNOWN = b"command unknown\r\n"
_VERSION = re.compile(rb"[!-~]{1,64}")

#: As an option of the section `[cli]`.
_PASSWORD = re.compile(r"password=([0-9a-f]{64})\n")


class Endpoint(NamedTuple):
    """An address, not a name: on a gateway, there may be no resolver."""

    host: IPv4Address
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class CommandLine:
    """Runs commands, one at a time: accel-ppp queues one connection only. `password` is that of `[cli]`.
    Raises ValueError for a password that is not one line of ASCII."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        password: str | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        if password is not None and not _LINE.fullmatch(password):
            raise ValueError("the password of accel-ppp must be one line of ASCII")
        self._endpoint = endpoint
        self._login = () if password is None else (password,)
        self._timeout = timeout
        self._turn = threading.Lock()

    def run(self, command: str, within: float = math.inf) -> bytes:
        """Return the reply, which may be the text of an error. `within` seconds, if they are fewer than the
        timeout. Raises SourceUnavailable; ValueError for a command that is not one line of ASCII."""
        if not _LINE.fullmatch(command):
            raise ValueError(f"not a command of accel-ppp: {command!r}")
        lines = (*self._login, _PROOF, command, _PROOF, "exit")
        request = "".join(f"{line}\n" for line in lines).encode()
        failed = f"cannot command accel-ppp at {self._endpoint}"
        seconds = min(within, self._timeout)
        deadline = time.monotonic() + seconds
        try:
            if not self._turn.acquire(timeout=seconds):
                raise UnreadableReply("another command took all the time")
            try:
                received = _exchange(self._endpoint, request, deadline)
                return reply_in(received.removeprefix(_UNKNOWN) if self._login else received)
            finally:
                self._turn.release()
        except ConnectionRefusedError as error:
            raise SourceNotRunning(f"{failed}: {error.strerror}") from error
        except TimeoutError as error:
            raise SourceUnavailable(f"{failed}: no reply within {seconds:.3g} s") from error
        except (OSError, UnreadableReply) as error:
            raise SourceUnavailable(f"{failed}: {error}") from error


def kept_password(file: Path) -> str:
    """Return the password in a file that `[cli]` includes. It is made once, for the owner of the file and
    root. Raises SourceRefused."""
    try:
        if file.exists() and (kept := _PASSWORD.fullmatch(file.read_text("latin-1"))):
            return kept[1]
        password = secrets.token_hex(32)
        durable.make_folder(file.parent)
        durable.replace(file, f"password={password}\n".encode())
    except OSError as error:
        raise SourceRefused(f"cannot keep the password of accel-ppp in {file}: {error.strerror}") from error
    return password


def reply_in(received: bytes) -> bytes:
    """Return the reply between two versions. Raises UnreadableReply."""
    if not received:
        raise UnreadableReply("it hung up without a reply, as it does at a wrong password")
    version, _, rest = received.partition(b"\r\n")
    if not _VERSION.fullmatch(version):
        raise UnreadableReply("the reply does not start with a version")
    end = version + b"\r\n"
    if not rest.endswith(end):
        raise UnreadableReply("it hung up in the middle of its reply")
    return rest[: -len(end)]


def _exchange(endpoint: Endpoint, request: bytes, deadline: float) -> bytes:
    """Return all that the peer sends until it hangs up. Raises OSError and UnreadableReply."""

    def until_deadline() -> float:
        if (left := deadline - time.monotonic()) <= 0:
            raise TimeoutError("no reply in time")
        return left

    received = bytearray()
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as peer:
        peer.settimeout(until_deadline())
        peer.connect((str(endpoint.host), endpoint.port))
        peer.settimeout(until_deadline())
        peer.sendall(request)
        while True:
            peer.settimeout(until_deadline())
            data = peer.recv(_CHUNK)
            if not data:
                return bytes(received)
            received += data
            if len(received) > REPLY_CAP:
                raise UnreadableReply(f"a reply of over {REPLY_CAP} bytes")


#: Of `show sessions`: all that a SourceSession is made of. The module `shaper` brings RATE.
RATE = "rate-limit"
COLUMNS = (
    "sid", "type", "state", "ifname", "inbound-if", "username", "calling-sid",
    "ip", "ip6", "ip6-dp", "uptime-raw", RATE,
)  # fmt: skip
_REQUIRED = frozenset(COLUMNS) - {RATE}

#: Other types are not of this gateway: l2tp, pptp, sstp.
_TYPES = {"pppoe": SessionType.PPPOE, "ipoe": SessionType.DHCP}
#: The others are start, finish and unk.
_UP = "active"

_END = b"\r\n"
_UNKNOWN_COLUMN = re.compile(rb"unknown column ([\w-]{1,64})\r\n", re.ASCII)
_KEY = re.compile(r"[0-9A-Fa-f]{16}")
#: As the kernel allows it (dev_valid_name()).
_DEVICE = re.compile(r"[^\s/]{1,15}")
#: As a configuration of the gateway allows it.
_INTERFACE = re.compile(r"[A-Za-z0-9._@][A-Za-z0-9._@+-]{0,14}")
_MAC = re.compile(r"(?:.*:)?([0-9a-f]{2}(?::[0-9a-f]{2}){5})", re.DOTALL)
_NUMBER = re.compile(r"[0-9]{1,18}")
_PREFIX_LENGTH = re.compile(r"[0-9]{1,3}")
_RATES = re.compile(r"([0-9]{1,10})/([0-9]{1,10})")
#: Addresses that are remembered: a sweep sees those of the sweep before, and reading them took half of it.
_ADDRESSES = 1 << 16
#: Global unicast (RFC 4291 section 2.4) and unique local addresses (RFC 4193), and a prefix's least length.
_DELEGATED, _SHORTEST_DELEGATED = (IPv6Network("2000::/3"), IPv6Network("fc00::/7")), 16
_NOT_UTF8 = re.compile("[\udc80-\udcff]")

_SESSIONS = EntryReader(
    "accel-ppp",
    "session",
    "the rows in the table of accel-ppp",
    "such a session is as it was, or not listed yet",
)


class UnreadableReply(UnreadableEntry):
    """A reply that is cut, or not in the format of accel-ppp; or an entry of one."""


class UnknownColumn(UnreadableReply):
    """`show sessions` does not have a column: the module that brings it is not loaded."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"accel-ppp has no column {name}")


def is_key(text: str) -> bool:
    """Return True for the `sid` of a session: 64 bits in hexadecimal."""
    return _KEY.fullmatch(text) is not None


def is_interface(text: str) -> bool:
    """Return True for the name of an interface that is one plain word in a command and in the configuration:
    `,` would start options there, `re:` an expression, and `${` a reference."""
    return _INTERFACE.fullmatch(text) is not None


def rows_of(reply: bytes) -> Iterator[dict[str, bytes]]:
    """The cells of each row by column. Raises UnreadableReply.

    Header, ruler and all rows are equally long: so the text of a cell can neither add a row nor move a cell.
    """
    if unknown := _UNKNOWN_COLUMN.fullmatch(reply):
        raise UnknownColumn(unknown[1].decode())
    header, _, rest = reply.partition(_END)
    ruler, ended, block = rest.partition(_END)
    widths = [len(part) for part in ruler.split(b"+")]
    if not ended or ruler.strip(b"-+") or min(widths) < 3 or len(header) != len(ruler):
        raise UnreadableReply("not a table")
    row = struct.Struct("x".join(f"x{width - 2}sx" for width in widths))
    names = [cell.strip().decode("ascii", "replace") for cell in row.unpack(header)]
    if len(set(names)) != len(names):
        raise UnreadableReply("a table with a column twice")
    return _rows(names, widths, row.format, block)


def _rows(names: list[str], widths: list[int], cells: str, block: bytes) -> Iterator[dict[str, bytes]]:
    row = struct.Struct(f"{cells}2x")
    number, rest = divmod(len(block), row.size)
    place, fixed = -1, {row.size - 2: b"\r", row.size - 1: b"\n"}
    for width in widths[:-1]:
        place += width + 1
        fixed[place] = b"|"
    if rest or any(block[place :: row.size] != byte * number for place, byte in fixed.items()):
        raise UnreadableReply("a table with rows of other lengths than its header")
    return (
        dict(zip(names, [cell.rstrip(b" ") for cell in row_cells], strict=True))
        for row_cells in row.iter_unpack(block)
    )


def table_sessions(
    reply: bytes, now: int, former: Mapping[str, SourceSession] = NONE_BEFORE
) -> list[SourceSession]:
    """Return the sessions that are up, of a table with COLUMNS, at the epoch second `now`. One of which the
    `sid` alone can be read is as it was in `former`. Raises UnreadableReply."""
    found: dict[str, SourceSession] = {}

    def session(cells: Mapping[str, bytes]) -> SourceSession | None:
        texts = {name: _text(cell) for name, cell in cells.items()}
        if texts["state"] != _UP or texts["type"] not in _TYPES:
            return None
        if texts["sid"] in found:
            raise UnreadableReply("two sessions with one id")
        found[texts["sid"]] = session = _session(texts, now)
        return session

    def former_session(cells: Mapping[str, bytes]) -> SourceSession | None:
        key = _text(cells["sid"])
        return None if key in found else former.get(key)

    rows = list(rows_of(reply))
    if any(not cells.keys() >= _REQUIRED for cells in rows[:1]):
        raise UnreadableReply("a table without the columns that were asked for")
    read = _SESSIONS.read(rows, session, instead=former_session, name=itemgetter("sid"))
    if rows and not read:
        raise UnreadableReply("a table without a row that can be read")
    return [session for session in read if session is not None]


def _session(texts: Mapping[str, str], now: int) -> SourceSession:
    key, interface, access_interface = texts["sid"], texts["ifname"], texts["inbound-if"]
    if not _NUMBER.fullmatch(texts["uptime-raw"]):
        raise UnreadableReply("an uptime that is not a number")
    if not (is_key(key) and _DEVICE.fullmatch(interface) and _DEVICE.fullmatch(access_interface)):
        raise UnreadableReply("a session without an id or an interface")
    # The station id may have the interface in front: `[pppoe] called-sid=` and the like.
    mac = _MAC.fullmatch(texts["calling-sid"].lower())
    ip, ipv6 = texts["ip"], texts["ip6"]
    address, prefix = _ipv6(ipv6) if ipv6 else (None, None)
    rate_down, rate_up = _rates(texts.get(RATE, ""))
    return SourceSession(
        key=key,
        type=_TYPES[texts["type"]],
        username=texts["username"],
        mac_address=mac[1] if mac else None,
        access_interface=access_interface,
        interface=interface,
        # A session without IPv4 shows its IPv6 address here.
        ip_address=_ipv4(ip) if ip and ":" not in ip else None,
        ipv6_address=address,
        ipv6_prefix=prefix,
        delegated_prefixes=_delegated(texts["ip6-dp"]),
        acct_session_id=key,
        started_at=max(0, now - int(texts["uptime-raw"])),
        rate_down=rate_down,
        rate_up=rate_up,
    )


def _text(cell: bytes) -> str:
    """Each byte that is not UTF-8 becomes U+FFFD."""
    try:
        return cell.decode()
    except UnicodeDecodeError:
        return _NOT_UTF8.sub("\ufffd", cell.decode(errors="surrogateescape"))


@lru_cache(_ADDRESSES)
def _ipv4(text: str) -> str:
    try:
        return socket.inet_ntop(socket.AF_INET, socket.inet_pton(socket.AF_INET, text))
    except (OSError, ValueError) as error:
        raise UnreadableReply("an address that is not IPv4") from error


@lru_cache(_ADDRESSES)
def _ipv6(text: str) -> tuple[str, str]:
    """Return the address and its network, of an address with the length of the prefix."""
    address, _, length = text.partition("/")
    if not _PREFIX_LENGTH.fullmatch(length) or int(length) > 128:
        raise UnreadableReply("an IPv6 address without the length of its prefix")
    try:
        packed = socket.inet_pton(socket.AF_INET6, address)
    except (OSError, ValueError) as error:
        raise UnreadableReply("an address that is not IPv6") from error
    host_bits = 128 - int(length)
    network = (int.from_bytes(packed) >> host_bits << host_bits).to_bytes(16)
    return (
        socket.inet_ntop(socket.AF_INET6, packed),
        f"{socket.inet_ntop(socket.AF_INET6, network)}/{int(length)}",
    )


@lru_cache(_ADDRESSES)
def _delegated(text: str) -> tuple[str, ...]:
    """Return the delegated prefixes: of several, accel-ppp shows the first. Before it has one, the table
    shows stray memory. What subscribers cannot have is none: zeros would be the default route."""
    try:
        prefix = IPv6Network(_ipv6(text)[1]) if text else None
    except UnreadableReply:
        return ()
    if prefix is None or prefix.prefixlen < _SHORTEST_DELEGATED:
        return ()
    return (str(prefix),) if any(prefix.subnet_of(network) for network in _DELEGATED) else ()


def _rates(text: str) -> tuple[int | None, int | None]:
    """`20000/5000`: kbit/s down and up, 0 for no limit. accel-ppp shows nothing for a session that was told
    no rate."""
    match = _RATES.fullmatch(text)
    if match is None:
        return None, None
    down, up = (min(int(rate) * 1000, MAX_BPS) for rate in match.groups())
    return down, up


#: As accel-pppd/radius/serv.c prints it: `radius(1, 192.0.2.1):`. A server without a time-out for failures
#: has no `state` there.
_SECTION = re.compile(r"(\w[\w -]*)(?:\([^)]*\))?:\s*")
_STATISTIC = re.compile(r"  ([^:]+): (.*)")
_UPTIME = re.compile(r"uptime: (\d+)\.(\d+):(\d+):(\d+)\s")
_NO_UPTIME = "the reply to `show stat` does not start with the uptime"
_NO_NUMBERS = "a section of RADIUS in `show stat` has no numbers"
_SERVERS = EntryReader(
    "accel-ppp",
    "radius_server",
    "the RADIUS servers in `show stat` of accel-ppp",
    "the health of RADIUS is that of the others",
)
_KINDS = ("auth", "acct", "interim")
_LOST = "lost(total/5m/1m)"
#: Seconds over which accel-ppp counts `lost_lately`.
_LATELY = 300.0


class RadiusServer(NamedTuple):
    """One server. Numbers are of transmissions of requests since accel-ppp started."""

    #: accel-ppp sends nothing to it for a while: too many requests timed out in a row.
    is_given_up: bool
    sent: int
    lost: int
    #: Lost in the last five minutes.
    lost_lately: int
    #: Requests without a response until now.
    waiting: int

    @property
    def responses(self) -> int:
        # The numbers are not of one moment.
        return max(self.sent - self.lost - self.waiting, 0)


class AccelPppStatistics:
    """A `RadiusClient`. accel-ppp does not tell when a response came. One came between two looks if their
    number grew. `ask` gives its `show stat`, and raises SourceUnavailable; `wall` gives epoch seconds."""

    def __init__(self, ask: Callable[[], bytes], wall: Callable[[], float]) -> None:
        self._ask = ask
        self._wall = wall
        self._responses: int | None = None
        self._last_response: float | None = None
        #: The last response, or the first look.
        self._quiet_since = wall()

    def look(self) -> tuple[DependencyState, str]:
        try:
            servers = radius_servers(self._ask())
        except SourceUnavailable:
            return (
                DependencyState.UNKNOWN,
                "accel-ppp does not reply, so nothing tells whether RADIUS responds.",
            )
        except UnreadableReply:
            return DependencyState.UNKNOWN, "accel-ppp says nothing readable of its RADIUS requests."
        if not servers:
            return DependencyState.FAILED, "accel-ppp runs without its RADIUS module and has to be restarted."
        return self._judge(servers)

    def _judge(self, servers: list[RadiusServer]) -> tuple[DependencyState, str]:
        now, responses = self._wall(), sum(server.responses for server in servers)
        if self._responses is not None and responses > self._responses:
            self._last_response = self._quiet_since = now
        # Less than before after a restart of accel-ppp.
        self._responses = responses
        last = "the core has seen no response since it started"
        if self._last_response is not None:
            last = f"the last response came at {format_utc(self._last_response)}"
        lost = sum(server.lost_lately for server in servers)
        requests = f"{lost} request{'' if lost == 1 else 's'} timed out in the last 5 minutes"
        if all(server.is_given_up for server in servers):
            return DependencyState.FAILED, f"accel-ppp has given the server up: {requests}, and {last}."
        if lost and (not responses or now - self._quiet_since > _LATELY):
            return DependencyState.FAILED, f"The server does not respond: {requests}, and {last}."
        if lost:
            return DependencyState.DEGRADED, f"{requests}, and {last}."
        if not responses:
            return DependencyState.UNKNOWN, "No request timed out, and none has a response yet."
        return DependencyState.OK, f"No request timed out in the last 5 minutes, and {last}."


def uptime(reply: bytes) -> int:
    """Seconds since accel-ppp started, in a reply to `show stat`. Raises UnreadableReply."""
    found = _UPTIME.match(reply.decode("ascii", "replace"))
    if found is None:
        raise UnreadableReply(_NO_UPTIME)
    days, hours, minutes, seconds = map(int, found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def radius_servers(reply: bytes) -> list[RadiusServer]:
    """Return the servers in a reply to `show stat`, none without the module `radius`. Raises
    UnreadableReply."""
    text = reply.decode("ascii", "replace")
    if not text.startswith("uptime:"):
        raise UnreadableReply(_NO_UPTIME)
    sections = list(enumerate(_sections(text)))
    servers = _SERVERS.read(sections, lambda section: _server(section[1]), name=itemgetter(0))
    if sections and not servers:
        raise UnreadableReply(_NO_NUMBERS)
    return servers


def _sections(text: str) -> Iterator[dict[str, str]]:
    values: dict[str, str] | None = None
    for line in text.splitlines():
        if section := _SECTION.fullmatch(line):
            if values is not None:
                yield values
            values = {} if section[1] == "radius" else None
        elif values is not None and (pair := _STATISTIC.fullmatch(line)):
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
        raise UnreadableReply(_NO_NUMBERS) from error
