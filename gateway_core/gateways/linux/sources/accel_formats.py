"""The replies of accel-ppp 1.14 as bytes, without sockets: the table of its command line.

A subscriber chooses the user name, and may put anything but NUL into it: line ends, `|`, bytes that are not
UTF-8. So a table is cut at byte offsets, before it is decoded.
"""

import re
import socket
import struct
from collections.abc import Iterator, Mapping
from functools import lru_cache
from ipaddress import IPv6Network
from operator import itemgetter

from gateway_contract.base.texts import MAX_BPS
from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.entries import EntryReader, UnreadableEntry
from gateway_core.gateways.linux.sources.source import NONE_BEFORE, SourceSession

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
