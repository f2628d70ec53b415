"""Client of the TCP command line of accel-ppp 1.14, and parsers of two replies: the session table and the
statistics.

The command line has neither a prompt nor an end marker, and does not report a wrong password. So each
connection carries one command between two `show version` commands. The reply to the first `show version`
proves that accel-ppp replies, and the reply to the second proves that the reply to the command is complete.
accel-ppp has no password until its first `reload` with a password: until then, accel-ppp treats the password
line as an unknown command.

A subscriber chooses the user name, which may contain anything but NUL: line ends, `|`, bytes that are not
UTF-8. So a table is split at byte offsets before its cells are decoded.
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
    NO_SESSIONS,
    SourceNotRunning,
    SourceRefused,
    SourceSession,
    SourceUnavailable,
)
from gateway_core.gateways.linux.entries import EntryReader, UnreadableEntry

#: Seconds for a command, with the connection and the wait for its turn.
_TIMEOUT_SECONDS = 10.0
#: A session takes up to 500 bytes.
_MAX_REPLY_BYTES = 128 << 20
_CHUNK_BYTES = 256 << 10

#: accel-ppp hangs up at a line of 1,023 bytes.
_COMMAND_PATTERN = re.compile(r"[ -~]{1,1000}")
_VERSION_COMMAND = "show version"
_UNKNOWN_COMMAND_REPLY = b"command unknown\r\n"
_VERSION_PATTERN = re.compile(rb"[!-~]{1,64}")
#: Option of the section `[cli]`.
_PASSWORD_LINE_PATTERN = re.compile(r"password=([0-9a-f]{64})\n")

#: Columns of `show sessions` that make a SourceSession. The module `shaper` brings RATE_COLUMN.
RATE_COLUMN = "rate-limit"
COLUMNS = (
    "sid", "type", "state", "ifname", "inbound-if", "username", "calling-sid",
    "ip", "ip6", "ip6-dp", "uptime-raw", RATE_COLUMN,
)  # fmt: skip
_REQUIRED_COLUMNS = frozenset(COLUMNS) - {RATE_COLUMN}
#: The gateway does not use the other types: l2tp, pptp, sstp.
_SESSION_TYPES = {"pppoe": SessionType.PPPOE, "ipoe": SessionType.DHCP}
#: The other states are start, finish and unk.
_ACTIVE_STATE = "active"

_LINE_END = b"\r\n"
_UNKNOWN_COLUMN_PATTERN = re.compile(rb"unknown column ([\w-]{1,64})\r\n", re.ASCII)
#: The `sid` of a session: 64 bits.
_KEY_PATTERN = re.compile(r"[0-9A-Fa-f]{16}")
#: Names that the kernel allows (dev_valid_name()).
_DEVICE_PATTERN = re.compile(r"[^\s/]{1,15}")
#: Names that a configuration of the gateway allows.
_INTERFACE_PATTERN = re.compile(r"[A-Za-z0-9._@][A-Za-z0-9._@+-]{0,14}")
#: The station id may have the interface in front: `[pppoe] called-sid=` and the like.
_MAC_PATTERN = re.compile(r"(?:.*:)?([0-9a-f]{2}(?::[0-9a-f]{2}){5})", re.DOTALL)
_NUMBER_PATTERN = re.compile(r"[0-9]{1,18}")
_PREFIX_LENGTH_PATTERN = re.compile(r"[0-9]{1,3}")
#: Rates in kbit/s, down and up, 0 for no limit.
_RATES_PATTERN = re.compile(r"([0-9]{1,10})/([0-9]{1,10})")
#: Size of the address caches: each sweep sees mostly the same addresses, and parsing took half of a sweep.
_MAX_CACHED_ADDRESSES = 1 << 16
#: Global unicast (RFC 4291 section 2.4) and unique local addresses (RFC 4193), and a prefix's least length.
_DELEGATED_NETWORKS, _MIN_DELEGATED_LENGTH = (IPv6Network("2000::/3"), IPv6Network("fc00::/7")), 16
_INVALID_BYTE_PATTERN = re.compile("[\udc80-\udcff]")

_SESSION_READER = EntryReader(
    "accel-ppp",
    "session",
    "the rows in the table of accel-ppp",
    "such a session is as it was, or not listed yet",
)

#: Head of a section in `show stat`, as accel-pppd/radius/serv.c prints it: `radius(1, 192.0.2.1):`. A server
#: without a time-out for failures has no `state` there.
_SECTION_PATTERN = re.compile(r"(\w[\w -]*)(?:\([^)]*\))?:\s*")
_STATISTIC_PATTERN = re.compile(r"  ([^:]+): (.*)")
_UPTIME_PATTERN = re.compile(r"uptime: (\d+)\.(\d+):(\d+):(\d+)\s")
_NO_NUMBERS_REASON = "a section of RADIUS in `show stat` has no numbers"
_SERVER_READER = EntryReader(
    "accel-ppp",
    "radius_server",
    "the RADIUS servers in `show stat` of accel-ppp",
    "the health of RADIUS is that of the others",
)
_REQUEST_KINDS = ("auth", "acct", "interim")
#: Seconds over which accel-ppp counts `recent_timeouts`.
_TIMEOUT_WINDOW_SECONDS = 300.0


class UnreadableReply(UnreadableEntry):
    """Error of a reply, or of an entry in a reply: the reply or the entry is truncated, or is not in the
    format of accel-ppp."""


class UnknownColumn(UnreadableReply):
    """Error of `show sessions`: accel-ppp does not know a requested column, because accel-ppp has not loaded
    the module that adds the column."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"accel-ppp has no column {name}")


class Endpoint(NamedTuple):
    """IPv4 address and TCP port of the command line of accel-ppp. A host name is not possible, because a
    gateway may have no DNS resolver."""

    host: IPv4Address
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class CommandLine:
    """Client of the command line of accel-ppp. Thread-safe: commands run one after the other, because
    accel-ppp queues only one connection. `password` is the password in the section `[cli]` of the
    configuration of accel-ppp. `timeout` is the time limit of each command, in seconds. Raises ValueError if
    the password is not one line of ASCII."""

    def __init__(
        self, endpoint: Endpoint, *, password: str | None = None, timeout: float = _TIMEOUT_SECONDS
    ) -> None:
        if password is not None and not _COMMAND_PATTERN.fullmatch(password):
            raise ValueError("the password of accel-ppp must be one line of ASCII")
        self._endpoint = endpoint
        self._login = () if password is None else (password,)
        self._timeout = timeout
        self._lock = threading.Lock()

    def run(self, command: str, within: float = math.inf) -> bytes:
        """Run a command and return the reply of accel-ppp, which may be an error text. The time limit is
        `within` seconds or the timeout of the client, whichever is shorter. Raises SourceUnavailable if no
        complete reply arrives in time, and ValueError if the command is not one line of ASCII."""
        if not _COMMAND_PATTERN.fullmatch(command):
            raise ValueError(f"not a command of accel-ppp: {command!r}")
        lines = (*self._login, _VERSION_COMMAND, command, _VERSION_COMMAND, "exit")
        request = "".join(f"{line}\n" for line in lines).encode()
        failed = f"cannot command accel-ppp at {self._endpoint}"
        seconds = min(within, self._timeout)
        deadline = time.monotonic() + seconds
        try:
            if not self._lock.acquire(timeout=seconds):
                raise UnreadableReply("another command took all the time")
            try:
                received = self._exchange(request, deadline)
            finally:
                self._lock.release()
            return extract_reply(received.removeprefix(_UNKNOWN_COMMAND_REPLY) if self._login else received)
        except ConnectionRefusedError as error:
            raise SourceNotRunning(f"{failed}: {error.strerror}") from error
        except TimeoutError as error:
            raise SourceUnavailable(f"{failed}: no reply within {seconds:.3g} s") from error
        except (OSError, UnreadableReply) as error:
            raise SourceUnavailable(f"{failed}: {error}") from error

    def _exchange(self, request: bytes, deadline: float) -> bytes:
        """Send a request, and return all bytes that accel-ppp sends until it closes the connection.
        `deadline` is in monotonic seconds. Raises OSError if the connection fails or the deadline passes, and
        UnreadableReply if the reply is too long."""

        def get_seconds_left() -> float:
            if (left := deadline - time.monotonic()) <= 0:
                raise TimeoutError("no reply in time")
            return left

        received = bytearray()
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as peer:
            peer.settimeout(get_seconds_left())
            peer.connect((str(self._endpoint.host), self._endpoint.port))
            peer.settimeout(get_seconds_left())
            peer.sendall(request)
            while True:
                peer.settimeout(get_seconds_left())
                data = peer.recv(_CHUNK_BYTES)
                if not data:
                    return bytes(received)
                received += data
                if len(received) > _MAX_REPLY_BYTES:
                    raise UnreadableReply(f"a reply of over {_MAX_REPLY_BYTES} bytes")


def load_password(file: Path) -> str:
    """Return the password in the file that the section `[cli]` of the configuration of accel-ppp includes. If
    the file is missing or has no password, write a file with a new password that only the owner of the file
    and root can read. Raises SourceRefused if the file cannot be read or written."""
    try:
        if file.exists() and (password_line := _PASSWORD_LINE_PATTERN.fullmatch(file.read_text("latin-1"))):
            return password_line[1]
        password = secrets.token_hex(32)
        durable.make_folder(file.parent)
        durable.replace(file, f"password={password}\n".encode())
    except OSError as error:
        raise SourceRefused(f"cannot keep the password of accel-ppp in {file}: {error.strerror}") from error
    return password


def extract_reply(received: bytes) -> bytes:
    """Return the part of `received` between the replies to the two `show version` commands. Raises
    UnreadableReply if one of these two replies is missing."""
    if not received:
        raise UnreadableReply("it hung up without a reply, as it does at a wrong password")
    version, _, rest = received.partition(_LINE_END)
    if not _VERSION_PATTERN.fullmatch(version):
        raise UnreadableReply("the reply does not start with a version")
    if not rest.endswith(version + _LINE_END):
        raise UnreadableReply("it hung up in the middle of its reply")
    return rest.removesuffix(version + _LINE_END)


def is_interface_name(text: str) -> bool:
    """Return True if a text is an interface name that is safe in commands and in the configuration of
    accel-ppp. In both places, `,` would start options, `re:` would start a regular expression, and `${` would
    start a reference."""
    return _INTERFACE_PATTERN.fullmatch(text) is not None


def parse_table(reply: bytes) -> Iterator[dict[str, bytes]]:
    """Yield each row of a table as a map from column name to cell. Raises UnreadableReply if the reply is not
    a table.

    The header, the ruler and all rows have the same length, so the text of a cell can neither add a row nor
    move another cell."""
    if unknown := _UNKNOWN_COLUMN_PATTERN.fullmatch(reply):
        raise UnknownColumn(unknown[1].decode())
    header, _, rest = reply.partition(_LINE_END)
    ruler, ended, block = rest.partition(_LINE_END)
    widths = [len(part) for part in ruler.split(b"+")]
    if not ended or ruler.strip(b"-+") or min(widths) < 3 or len(header) != len(ruler):
        raise UnreadableReply("not a table")
    cells = struct.Struct("x".join(f"x{width - 2}sx" for width in widths))
    names = [cell.strip().decode("ascii", "replace") for cell in cells.unpack(header)]
    row = struct.Struct(f"{cells.format}2x")
    number, rest_of_row = divmod(len(block), row.size)
    # The bytes that every row has at the same places.
    place, fixed = -1, {row.size - 2: b"\r", row.size - 1: b"\n"}
    for width in widths[:-1]:
        place += width + 1
        fixed[place] = b"|"
    if rest_of_row or any(block[place :: row.size] != byte * number for place, byte in fixed.items()):
        raise UnreadableReply("a table with rows of other lengths than its header")
    return (
        dict(zip(names, [cell.rstrip(b" ") for cell in found], strict=True))
        for found in row.iter_unpack(block)
    )


def parse_sessions(
    reply: bytes, now: int, former: Mapping[str, SourceSession] = NO_SESSIONS
) -> list[SourceSession]:
    """Return the sessions that are up. `reply` is a table with the columns COLUMNS, which was read at the
    epoch second `now`. If only the `sid` of a session can be read, the session with this `sid` is taken from
    `former`. Raises UnreadableReply if no row of the table can be read."""
    found: dict[str, SourceSession] = {}

    def parse(cells: Mapping[str, bytes]) -> SourceSession | None:
        texts = {name: _decode(cell) for name, cell in cells.items()}
        if texts["state"] != _ACTIVE_STATE or texts["type"] not in _SESSION_TYPES:
            return None
        if texts["sid"] in found:
            raise UnreadableReply("two sessions with one id")
        found[texts["sid"]] = session = _parse_session(texts, now)
        return session

    def find_former_session(cells: Mapping[str, bytes]) -> SourceSession | None:
        key = _decode(cells["sid"])
        return None if key in found else former.get(key)

    rows = list(parse_table(reply))
    if any(not cells.keys() >= _REQUIRED_COLUMNS for cells in rows[:1]):
        raise UnreadableReply("a table without the columns that were asked for")
    read = _SESSION_READER.read(rows, parse, instead=find_former_session, name=itemgetter("sid"))
    if rows and not read:
        raise UnreadableReply("a table without a row that can be read")
    return [session for session in read if session is not None]


def _parse_session(texts: Mapping[str, str], now: int) -> SourceSession:
    key, interface, access_interface = texts["sid"], texts["ifname"], texts["inbound-if"]
    if not _NUMBER_PATTERN.fullmatch(texts["uptime-raw"]):
        raise UnreadableReply("an uptime that is not a number")
    if not (
        _KEY_PATTERN.fullmatch(key)
        and _DEVICE_PATTERN.fullmatch(interface)
        and _DEVICE_PATTERN.fullmatch(access_interface)
    ):
        raise UnreadableReply("a session without an id or an interface")
    mac = _MAC_PATTERN.fullmatch(texts["calling-sid"].lower())
    ip, ipv6 = texts["ip"], texts["ip6"]
    address, prefix = _parse_ipv6(ipv6) if ipv6 else (None, None)
    rates = _RATES_PATTERN.fullmatch(texts.get(RATE_COLUMN, ""))
    down, up = (min(int(rate) * 1000, MAX_BPS) for rate in rates.groups()) if rates else (None, None)
    return SourceSession(
        key=key,
        type=_SESSION_TYPES[texts["type"]],
        username=texts["username"],
        mac_address=mac[1] if mac else None,
        access_interface=access_interface,
        interface=interface,
        # A session without IPv4 shows its IPv6 address here.
        ip_address=_parse_ipv4(ip) if ip and ":" not in ip else None,
        ipv6_address=address,
        ipv6_prefix=prefix,
        delegated_prefixes=_parse_delegated(texts["ip6-dp"]),
        acct_session_id=key,
        started_at=max(0, now - int(texts["uptime-raw"])),
        rate_down=down,
        rate_up=up,
    )


def _decode(cell: bytes) -> str:
    """Decode a cell. Each byte that is not UTF-8 becomes U+FFFD."""
    try:
        return cell.decode()
    except UnicodeDecodeError:
        return _INVALID_BYTE_PATTERN.sub("\ufffd", cell.decode(errors="surrogateescape"))


@lru_cache(_MAX_CACHED_ADDRESSES)
def _parse_ipv4(text: str) -> str:
    try:
        return socket.inet_ntop(socket.AF_INET, socket.inet_pton(socket.AF_INET, text))
    except (OSError, ValueError) as error:
        raise UnreadableReply("an address that is not IPv4") from error


@lru_cache(_MAX_CACHED_ADDRESSES)
def _parse_ipv6(text: str) -> tuple[str, str]:
    """Parse an IPv6 address with a prefix length, such as `2001:db8::1/64`. Return the address and the
    network of the address. Raises UnreadableReply if the text has another format."""
    address, _, length = text.partition("/")
    if not _PREFIX_LENGTH_PATTERN.fullmatch(length) or int(length) > 128:
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


@lru_cache(_MAX_CACHED_ADDRESSES)
def _parse_delegated(text: str) -> tuple[str, ...]:
    """Return a tuple with the delegated prefix, or an empty tuple if there is no delegated prefix. If a
    session has several prefixes, accel-ppp shows only the first. Before the delegation, accel-ppp shows
    uninitialized memory, so a prefix that no subscriber can have is ignored. For example, a prefix of zeros
    would become the default route."""
    try:
        prefix = IPv6Network(_parse_ipv6(text)[1]) if text else None
    except UnreadableReply:
        return ()
    if prefix is None or prefix.prefixlen < _MIN_DELEGATED_LENGTH:
        return ()
    return (str(prefix),) if any(prefix.subnet_of(network) for network in _DELEGATED_NETWORKS) else ()


class RadiusServer(NamedTuple):
    """State of a RADIUS server. While `is_given_up` is True, accel-ppp sends no requests to the server,
    because too many requests in a row timed out. `responses` is the number of responses since the start of
    accel-ppp. `recent_timeouts` is the number of requests that timed out in the last five minutes."""

    is_given_up: bool
    responses: int
    recent_timeouts: int


class AccelPppRadius:
    """RadiusClient of accel-ppp. The statistics of accel-ppp do not contain the time of the last response. So
    the client detects a response when the number of responses grows between two calls of `read_state`.
    `show_stat` returns the reply to `show stat`, and raises SourceUnavailable if accel-ppp does not reply.
    `wall` returns epoch seconds."""

    def __init__(self, show_stat: Callable[[], bytes], wall: Callable[[], float]) -> None:
        self._show_stat = show_stat
        self._wall = wall
        self._responses: int | None = None
        self._last_response: float | None = None
        #: Time of the last response, or of the start.
        self._quiet_since = wall()

    def read_state(self) -> tuple[DependencyState, str]:
        try:
            servers = parse_radius_servers(self._show_stat())
        except SourceUnavailable:
            message = "accel-ppp does not reply, so nothing tells whether RADIUS responds."
            return DependencyState.UNKNOWN, message
        except UnreadableReply:
            return DependencyState.UNKNOWN, "accel-ppp says nothing readable of its RADIUS requests."
        if not servers:
            return DependencyState.FAILED, "accel-ppp runs without its RADIUS module and has to be restarted."
        now, responses = self._wall(), sum(server.responses for server in servers)
        if self._responses is not None and responses > self._responses:
            self._last_response = self._quiet_since = now
        # Less than before after a restart of accel-ppp.
        self._responses = responses
        last = "the core has seen no response since it started"
        if self._last_response is not None:
            last = f"the last response came at {format_utc(self._last_response)}"
        lost = sum(server.recent_timeouts for server in servers)
        requests = f"{lost} request{'' if lost == 1 else 's'} timed out in the last 5 minutes"
        if all(server.is_given_up for server in servers):
            return DependencyState.FAILED, f"accel-ppp has given the server up: {requests}, and {last}."
        if lost and (not responses or now - self._quiet_since > _TIMEOUT_WINDOW_SECONDS):
            return DependencyState.FAILED, f"The server does not respond: {requests}, and {last}."
        if lost:
            return DependencyState.DEGRADED, f"{requests}, and {last}."
        if not responses:
            return DependencyState.UNKNOWN, "No request timed out, and none has a response yet."
        return DependencyState.OK, f"No request timed out in the last 5 minutes, and {last}."


def parse_uptime(reply: bytes) -> int:
    """Return the uptime of accel-ppp in seconds, from a reply to `show stat`. Raises UnreadableReply if the
    uptime is missing."""
    uptime = _UPTIME_PATTERN.match(reply.decode("ascii", "replace"))
    if uptime is None:
        raise UnreadableReply("the reply to `show stat` does not start with the uptime")
    days, hours, minutes, seconds = map(int, uptime.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def parse_radius_servers(reply: bytes) -> list[RadiusServer]:
    """Return the RADIUS servers in a reply to `show stat`; an empty list if accel-ppp has not loaded the
    module `radius`. Raises UnreadableReply if no server can be read."""
    parse_uptime(reply)
    sections: list[dict[str, str]] = []
    values: dict[str, str] = {}
    for line in reply.decode("ascii", "replace").splitlines():
        if section := _SECTION_PATTERN.fullmatch(line):
            values = {}
            if section[1] == "radius":
                sections.append(values)
        elif pair := _STATISTIC_PATTERN.fullmatch(line):
            values[pair[1]] = pair[2].strip()
    servers = _SERVER_READER.read(
        enumerate(sections), lambda each: _parse_server(each[1]), name=itemgetter(0)
    )
    if sections and not servers:
        raise UnreadableReply(_NO_NUMBERS_REASON)
    return servers


def _parse_server(values: Mapping[str, str]) -> RadiusServer:
    try:
        sent_count = sum(int(values.get(f"{kind} sent", "0")) for kind in _REQUEST_KINDS)
        timeout_counts = [
            values.get(f"{kind} lost(total/5m/1m)", "0/0/0").split("/") for kind in _REQUEST_KINDS
        ]
        unanswered_count = sum(int(total) for total, _, _ in timeout_counts) + int(
            values.get("request count", "0")
        )
        return RadiusServer(
            is_given_up=values.get("state", "active") != "active",
            # The counters are not of one moment.
            responses=max(sent_count - unanswered_count, 0),
            recent_timeouts=sum(int(lately) for _, lately, _ in timeout_counts),
        )
    except ValueError as error:
        raise UnreadableReply(_NO_NUMBERS_REASON) from error
