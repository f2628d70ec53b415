"""The traces of a session of pppoe-server's pppd: the records of its hook, /proc, and its log.

The hook is packaging/pppoe/session-hook. Undocumented formats are those of pppd 2.4.9 and rp-pppoe 3.15, in
Debian 12; the log lines of pppd 2.5.2, in Debian 13, are the same.
"""

import re
from collections.abc import Iterable, Sequence
from ipaddress import AddressValueError, IPv4Address, IPv6Address

import msgspec

from gateway_core.gateways.linux.entries import UnreadableEntry
from gateway_core.gateways.linux.sources.source import SourceTraffic

#: The cause of an end by SIGTERM: ours, a service that stops, or a PADT of the subscriber. pppoe-server sends
#: the signal for that one.
SIGNALLED = "signalled"

_EVENTS = {b"ip-up": True, b"ipv6-up": True, b"ip-down": False, b"ipv6-down": False}
_INTERFACE = re.compile(rb"[!-.0-~]{1,15}")
_NUMBER = re.compile(rb"[0-9]{1,20}")
#: As packaging/pppoe/pppd has it for a session in the kernel, or as pppoe-server has it in user mode.
_SERVED = re.compile(
    rb" (?:(nic-)|-I )([!-.0-~]{1,15}) (?:rp_pppoe_sess|-e) "
    rb"[0-9]+:((?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2})(?= |$)"
)
_COUNTED = re.compile(r"Sent ([0-9]{1,20}) bytes, received ([0-9]{1,20}) bytes\.")
_START = re.compile(r"pppd \S+ started by .*, uid [0-9]+")
#: Whole lines, because some lines hold text of the subscriber. pppd escapes line ends in it.
_CAUSES = (
    (re.compile(r"LCP terminated by peer(?: \(.*\))?"), "user_request"),
    (re.compile(r"No response to [0-9]+ echo-requests"), "lost_carrier"),
    (re.compile(r"Modem hangup"), "lost_carrier"),
    (re.compile(r"Terminating connection due to lack of activity\."), "idle_timeout"),
    (re.compile(r"Connect time expired"), "session_timeout"),
    (re.compile(r"Terminating on signal 15"), SIGNALLED),
)
#: pppd escapes quotes and line ends in the name.
_REFUSED = re.compile(r"(?:Peer (.*) failed CHAP authentication|PAP peer authentication failed for (.*))")
_RADIUS_SILENT = re.compile(r"rc_send_server: no reply from RADIUS server .*")
_NO_RESPONSE = "LCP: timeout sending Config-Requests"


class UnreadableRecord(UnreadableEntry):
    """The text names the format, and has nothing that a subscriber sent."""


class PppdRecord(msgspec.Struct, frozen=True):
    """The last event of IPv4, or that of IPv6, in a session."""

    is_up: bool
    interface: str
    #: Any characters. U+FFFD stands for what is not UTF-8.
    username: str
    ip_address: str | None
    #: Of the subscriber's end.
    link_local: str | None
    #: Only after the end.
    traffic: SourceTraffic | None


class PppoeAccess(msgspec.Struct, frozen=True):
    """Where a session arrived. Unless it is in the kernel, its packets go through `pppoe`, a process."""

    interface: str
    mac_address: str
    in_kernel: bool


class PppdRefusal(msgspec.Struct, frozen=True):
    """Why a subscriber got no session. `username` is None if none was given."""

    reason: str
    username: str | None


def record_of(data: bytes) -> PppdRecord:
    """Return the record of the hook. Raises UnreadableRecord."""
    if not data.endswith(b"\0"):
        raise UnreadableRecord("a record of a session without its end")
    parts = (item.partition(b"=") for item in data[:-1].split(b"\0"))
    items = {name: value for name, _, value in parts}
    event, interface = items.get(b"EVENT", b""), items.get(b"IFNAME", b"")
    if event not in _EVENTS or not _INTERFACE.fullmatch(interface):
        raise UnreadableRecord("a record of a session without its event or its interface")
    try:
        ip_address, link_local = _ipv4(items.get(b"IPREMOTE", b"")), _ipv6(items.get(b"LLREMOTE", b""))
    except AddressValueError as error:
        raise UnreadableRecord("a record of a session with an unknown address") from error
    username = items.get(b"PEERNAME", b"").decode(errors="replace")
    is_up = _EVENTS[event]
    traffic = None if is_up else _traffic(items)
    return PppdRecord(is_up, interface.decode(), username, ip_address, link_local, traffic)


def start_of(stat: bytes) -> int | None:
    """When a process started, in clock ticks since the boot, from its `stat` (proc(5)). None for a process
    that has ended, and waits for its parent. Raises UnreadableRecord."""
    # A program chooses its name, which may have spaces and parentheses.
    fields = stat[stat.rfind(b")") + 1 :].split()
    if len(fields) < 20 or not _NUMBER.fullmatch(fields[19]):
        raise UnreadableRecord("an unknown format of /proc/PID/stat")
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def access_of(cmdline: bytes) -> PppoeAccess:
    """From the `cmdline` (proc(5)) of a pppd that pppoe-server started. Raises UnreadableRecord."""
    return served_by(cmdline.replace(b"\0", b" "))


def served_by(command: bytes) -> PppoeAccess:
    """From the same with spaces between the arguments, as logs have it. Raises UnreadableRecord."""
    found = _SERVED.search(command)
    if found is None:
        raise UnreadableRecord("a pppd that pppoe-server did not start")
    return PppoeAccess(found[2].decode(), found[3].decode().lower(), in_kernel=found[1] is not None)


def cause_of(lines: Iterable[str]) -> str | None:
    """Why a session ended, from the log lines of its pppd and of earlier processes with its id: an
    Acct-Terminate-Cause (RFC 2866 section 5.10) in snake_case, or SIGNALLED. What follows the first cause
    follows from it. None without a cause."""
    found: str | None = None
    for line in lines:
        if _START.fullmatch(line):
            found = None
        elif found is None:
            found = next((cause for pattern, cause in _CAUSES if pattern.fullmatch(line)), None)
    return found


def is_start(line: str) -> bool:
    """Return whether it is the first line of a process."""
    return bool(_START.fullmatch(line))


def is_silence_of_radius(line: str) -> bool:
    """Return whether a pppd has waited for RADIUS in vain. If it refuses the subscriber then, this is why."""
    return bool(_RADIUS_SILENT.fullmatch(line))


def refusal_of(line: str) -> PppdRefusal | None:
    """Return the failed sign-on that a line tells of; None for any other line."""
    if line == _NO_RESPONSE:
        return PppdRefusal("no_response", None)
    refused = _REFUSED.fullmatch(line)
    if refused is None:
        return None
    name = refused[1] or refused[2] or ""
    return PppdRefusal("rejected", re.sub(r'\\(["\\])', r"\1", name) or None)


def is_whole(lines: Sequence[str]) -> bool:
    """Return True if they reach to the end of pppd. Those of a pppd that was killed never do."""
    return bool(lines) and lines[-1] == "Exit."


def traffic_of(lines: Iterable[str]) -> SourceTraffic | None:
    """Return the traffic that pppd counted until the end, from the same lines. None before it."""
    found: SourceTraffic | None = None
    for line in lines:
        if _START.fullmatch(line):
            found = None
        elif counted := _COUNTED.fullmatch(line):
            found = SourceTraffic(int(counted[2]), int(counted[1]))
    return found


def _ipv4(text: bytes) -> str | None:
    return str(IPv4Address(text.decode("ascii", "replace"))) if text else None


def _ipv6(text: bytes) -> str | None:
    return str(IPv6Address(text.decode("ascii", "replace"))) if text else None


def _traffic(items: dict[bytes, bytes]) -> SourceTraffic | None:
    """None where pppd did not count."""
    values = [items.get(name, b"") for name in (b"BYTES_RCVD", b"BYTES_SENT")]
    return SourceTraffic(*map(int, values)) if all(map(_NUMBER.fullmatch, values)) else None
