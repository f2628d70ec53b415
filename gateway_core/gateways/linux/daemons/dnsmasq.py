"""The files that dnsmasq 2.89 to 2.91 and its script `packaging/dhcp-lease` leave on disk: the lease file,
and for each lease a record with what that file lacks.

dnsmasq 2.89 to 2.91 as a source of sessions: DHCP subscribers, one or several on a VLAN.

A session is a lease of DHCPv4 that has not ended. The lease file is the truth; `packaging/dhcp-lease`, the
script of dnsmasq, adds the VLAN and the start. A lease outlives a reboot of the machine, and is another
session then, with another key. A lease of DHCPv6 gives its address to the session with the same MAC address
and VLAN; alone it is no session. dnsmasq delegates no prefixes.

dnsmasq 2.89 to 2.91 as the DHCP server, systemd/gateway-dnsmasq.service. At a commit, it restarts if its
file differs: it has no reload. A restart ends no session: the leases are on disk, and in the subscribers'
devices.
"""

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from operator import itemgetter
from pathlib import Path
from typing import ClassVar, Self, TypeAlias

import msgspec
from msgspec.structs import replace

from gateway_contract.base.errors import StepFailed
from gateway_contract.configuration import Configuration
from gateway_contract.core.impact import ServiceAction
from gateway_contract.core.sessions import SessionType
from gateway_core.configuration.unconfirmed import former_range
from gateway_core.configuration.workspace import Rendered
from gateway_core.gateways.linux.daemons.daemon import (
    DaemonAction,
    DaemonHost,
    PlacedFiles,
    PutBack,
    SourceDaemon,
    check_lines,
    filled,
    put_back_after,
    template,
)
from gateway_core.gateways.linux.daemons.source import (
    ADMIN_DISCONNECT,
    NONE_BEFORE,
    UNKNOWN,
    PrefixOf,
    Source,
    SourceEnd,
    SourceRefused,
    SourceSession,
    SourceUnavailable,
    Terminations,
    with_prefix,
)
from gateway_core.gateways.linux.daemons.subscriber_addresses import SessionPrefixes, SharedRange
from gateway_core.gateways.linux.daemons.systemd import Systemd, UnitFailed
from gateway_core.gateways.linux.entries import EntryReader, UnreadableEntry
from gateway_core.gateways.linux.kernel.links import is_device
from gateway_core.gateways.linux.program import CommitLimits, ProgramFailed, TimeLimit, run
from gateway_core.records.clock import Clock

#: Names that are one plain word for every tool, and no option.
_INTERFACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,14}")
_NUMBER = re.compile(r"[0-9]{1,10}")
#: dnsmasq puts the type of hardware (RFC 2131 section 2, htype) before all but Ethernet's, and before an
#: empty address. A client chooses the length, up to 16 octets, for Ethernet too.
_HARDWARE = re.compile(r"[0-9a-f]{2}-|(?:[0-9a-f]{2}-)?[0-9a-f]{2}(?::[0-9a-f]{2}){0,15}")
_ETHERNET = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}")
_OCTETS = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){0,254}")
#: The identity of an IA; `T` for temporary addresses.
_IAID = re.compile(r"T?[0-9]{1,10}")
_KEY = re.compile(r"[0-9a-f]{16}")
_BOOT_ID = re.compile(r"[0-9a-z]{1,64}")
_NONE = "*"

_LEASES = EntryReader(
    "dnsmasq",
    "lease",
    "the lines in the lease file of dnsmasq",
    "a session goes on if its address can be read, and all others do",
)


class UnreadableLease(UnreadableEntry):
    """Not in the format, or not whole. The text has no part of what was read."""


class Lease(msgspec.Struct, frozen=True, gc=False):
    """An address that dnsmasq gave away."""

    address: str
    #: Epoch seconds. 0 for never, and where it cannot be read.
    expires: int
    #: As dnsmasq writes it. None for DHCPv6, and where it cannot be read.
    hardware: str | None
    #: Octets in hexadecimal, with colons: the client identifier, or the DUID. None without one, and where it
    #: cannot be read.
    client_id: str | None

    @property
    def is_v6(self) -> bool:
        return ":" in self.address

    def is_over(self, now: float) -> bool:
        # Not within the second: dnsmasq may still renew it then.
        return self.expires != 0 and int(now) > self.expires


class LeaseRecord(msgspec.Struct, frozen=True, gc=False):
    """The record that the script wrote of a lease."""

    key: str
    started_at: int
    #: As in Lease; None if dnsmasq did not know it.
    hardware: str | None
    #: None until dnsmasq tells it: after a start it only guesses.
    interface: str | None
    state: str
    #: The boot in which the script made it. None where that is not known.
    boot_id: str | None = None

    @property
    def is_live(self) -> bool:
        return self.state == "live"

    @property
    def has_expired(self) -> bool:
        return self.state == "expired"


def is_interface(text: str) -> bool:
    return _INTERFACE.fullmatch(text) is not None


def mac_address(hardware: str | None) -> str | None:
    """None if the hardware is not Ethernet with six octets."""
    return hardware if hardware is not None and _ETHERNET.fullmatch(hardware) else None


def leases_of(data: bytes) -> dict[str, Lease]:
    """Return the content of a lease file, by address. Raises UnreadableLease if it is not whole.

    Lines of five words: expiry, MAC address, address, host name, client identifier. For DHCPv6: expiry, IAID,
    address, host name, DUID. `*` stands for nothing. A line `duid` has the DUID of dnsmasq itself.

    A line of which nothing but the address can be read is a lease too: the record of the script has the rest.
    """
    if data and not data.endswith(b"\n"):
        raise UnreadableLease("the lease file is not whole")
    found: dict[str, Lease] = {}

    def keep(line: tuple[int, bytes]) -> None:
        number, text = line
        words = text.split(b" ")
        if words[0] == b"duid" and len(words) == 2:
            return
        address = _address(words)
        if address is None or address in found:
            raise UnreadableLease(f"line {number} is not a lease")
        lease = _lease(address, words)
        found[address] = lease or Lease(address, 0, None, None)
        if lease is None:
            raise UnreadableLease(f"of line {number}, only the address is in the format")

    # The lines before it may change their number.
    _LEASES.read(enumerate(data.split(b"\n")[:-1], 1), keep, name=itemgetter(1))
    return found


def record_of(data: bytes) -> LeaseRecord:
    """Return the content of a file that the script wrote; one of an earlier version has six words. Raises
    UnreadableLease."""
    try:
        words = data.decode("ascii").removesuffix("\n").split(" ")
        key, started, hardware, interface, expires, state, boot_id = [*words, "-"][: max(7, len(words))]
    except ValueError as error:
        raise UnreadableLease("a record of a lease does not have seven words") from error
    if not (
        _KEY.fullmatch(key)
        and _NUMBER.fullmatch(started)
        and (hardware == "-" or _HARDWARE.fullmatch(hardware))
        and (interface == "-" or is_interface(interface))
        and _NUMBER.fullmatch(expires)
        and state in ("live", "ended", "expired")
        and (boot_id == "-" or _BOOT_ID.fullmatch(boot_id))
    ):
        raise UnreadableLease("a record of a lease has a word that is not in its format")
    return LeaseRecord(
        key=key,
        started_at=int(started),
        hardware=None if hardware == "-" else hardware,
        interface=None if interface == "-" else interface,
        state=state,
        boot_id=None if boot_id == "-" else boot_id,
    )


def address_of(text: str, *, is_v6: bool) -> str | None:
    """Return an address in its canonical form. None if it is none."""
    try:
        return str(IPv6Address(text) if is_v6 else IPv4Address(text))
    except ValueError:
        return None


def _address(words: list[bytes]) -> str | None:
    """Return the address of a line, in its canonical form."""
    text = words[2].decode("ascii", "replace") if len(words) > 2 else ""
    # A zone is of a link.
    return None if "%" in text else address_of(text, is_v6=":" in text)


def _lease(address: str, words: list[bytes]) -> Lease | None:
    if len(words) != 5:
        return None
    try:
        # Not the host name: the subscriber chose it.
        expires, identity, client_id = (words[place].decode("ascii") for place in (0, 1, 4))
    except UnicodeDecodeError:
        return None
    is_v6 = ":" in address
    if (
        not _NUMBER.fullmatch(expires)
        or not (_IAID if is_v6 else _HARDWARE).fullmatch(identity)
        or not (client_id == _NONE or _OCTETS.fullmatch(client_id))
    ):
        return None
    return Lease(
        address=address,
        expires=int(expires),
        hardware=None if is_v6 else identity,
        client_id=None if client_id == _NONE else client_id,
    )


#: Seconds between two attempts to read, and how many.
_PAUSE = 0.025
_ATTEMPTS = 40
#: For the program that releases a lease: it sends one datagram, and prints nothing but an error.
_RELEASE_SECONDS = 5.0
_MOST_OUTPUT = 1 << 12

_RECORDS = EntryReader(
    "dnsmasq",
    "record",
    "the records of leases",
    # A power cut may have left it so. The script writes it anew.
    "such a lease is no session until it is renewed",
)


class Dnsmasq(Source):
    """The files are those of dnsmasq's options, `records` is the folder `records` in the script's
    STATE_DIRECTORY. dnsmasq must be visible in /proc."""

    def __init__(
        self,
        name: str,
        lease_file: Path,
        pid_file: Path,
        records: Path,
        clock: Clock,
        prefix_of: PrefixOf,
    ) -> None:
        self.name = name
        self._lease_file = lease_file
        self._pid_file = pid_file
        self._records = Records(records, clock)
        self._clock = clock
        self._prefix_of = prefix_of
        self._sweep = threading.Lock()
        #: The lease file as it was last believed.
        self._data: bytes | None = None
        self._leases: dict[str, Lease] = {}
        #: Keys of records without a lease: the script will not tell their end any more.
        self._without_lease: set[str] = set()
        self._known: dict[str, SourceSession] = {}
        #: Keys of sessions whose lease expired. Replaced as a whole.
        self._expired: set[str] = set()
        self._terminations = Terminations(clock)

    def sessions(self, former: Mapping[str, SourceSession] = NONE_BEFORE) -> Sequence[SourceSession]:
        """A lease is listed when the script has told its VLAN. Without a readable record, it has no
        key."""
        with self._sweep:
            records, live = self._live()
            now = self._clock.wall()
            over = {record.key for lease, record in live if lease.is_over(now)}
            self._expired = over | {record.key for record in records.values() if record.has_expired}
            found = _sessions([(lease, record) for lease, record in live if record.key not in over])
            self._known = {
                key: before if (before := self._known.get(key)) == session else session
                for key, listed in found.items()
                if (session := with_prefix(listed, self._prefix_of))
            }
            return list(self._known.values())

    def leased(self) -> set[str]:
        """Return the access interfaces with a lease that has not ended, as they are on disk: dnsmasq need not
        run. None before its first start. Raises SourceUnavailable."""
        with self._sweep:
            try:
                data = self._read_lease_file()
            except SourceUnavailable as error:
                if isinstance(error.__cause__, FileNotFoundError):
                    return set()
                raise
            leases, records, now = self._parsed(data), self._records.read(), self._clock.wall()
        return {
            record.interface
            for address, record in records.items()
            if record.is_live
            and record.interface is not None
            and (lease := leases.get(address)) is not None
            and _is_of(record, lease)
            and not lease.is_over(now)
        }

    def terminate(self, session: SourceSession) -> None:
        """As Source, by `dhcp_release` of Debian's dnsmasq-utils, which sends dnsmasq a DHCPRELEASE. The
        subscriber's device is not told: it keeps the address until it renews, and is then another session."""
        with self._sweep:
            _, live = self._live()
        for lease, record in live:
            if record.key != session.key or record.interface is None or record.hardware is None:
                continue
            if lease.is_v6:
                continue
            with self._terminations.requesting(session.key):
                _release(record.interface, lease.address, record.hardware, lease.client_id)

    def serve(self, interfaces: Sequence[str], type: SessionType) -> None:
        """dnsmasq serves each interface that its options name, from the moment that it has the
        `gateway` of a range as its address, with any prefix length: /32 is enough. To answer a renewal, it
        needs the host route of the subscriber. Others add both. Refuses PPPoE."""
        if type is not SessionType.DHCP:
            raise SourceRefused("dnsmasq serves DHCP only")

    def release(self, interface: str) -> None:
        """End the sessions. The service ends when the interface loses its address, or is removed. Nothing can
        be sent to dnsmasq through one that is removed already, nor need it be: when it is created again, it
        is served again, and its sessions go on."""
        if not is_device(interface):
            return
        for session in self.sessions():
            if session.access_interface == interface:
                self.terminate(session)

    def ends(self, keys: Sequence[str]) -> Mapping[str, SourceEnd]:
        """`admin_disconnect` for a session whose end was requested here in the last minute,
        `session_timeout` for a lease that expired. dnsmasq does not tell a DHCPRELEASE from other ends, and
        nothing tells the traffic."""
        return {key: SourceEnd(self._reason(key)) for key in keys}

    def _reason(self, key: str) -> str:
        if key in self._terminations:
            return ADMIN_DISCONNECT
        return "session_timeout" if key in self._expired else UNKNOWN

    def _live(self) -> tuple[dict[str, LeaseRecord], list[tuple[Lease, LeaseRecord]]]:
        """Return all records, and those of sessions with their leases."""
        records = self._read()
        self._check_process()
        return records, [
            (lease, record)
            for address, lease in self._leases.items()
            if (record := records.get(address)) is not None and record.is_live and _is_of(record, lease)
        ]

    def _read(self) -> dict[str, LeaseRecord]:
        """Return the records of the script, with `_leases` of the same moment.

        dnsmasq empties the lease file before it writes it anew. So a change is believed when it was read
        twice, and a lease that is missing when the script told its end too, or had the time to. Where none
        is left, the script must have told it: on a full disk, the leases are in the memory of dnsmasq alone.
        """
        before: bytes | None = None
        for _ in range(_ATTEMPTS):
            data = self._read_lease_file()
            records = self._records.read()
            if data in (self._data, before):
                leases = self._leases if data == self._data else self._parsed(data)
                missing = _missing(records, leases)
                if missing <= self._without_lease:
                    break
            before = data
            time.sleep(_PAUSE)
        else:
            leases = self._parsed(data)
            missing = _missing(records, leases)
            if missing and not leases:
                raise SourceUnavailable(
                    f"{self._lease_file} is empty, but no end of a lease was told: the disk may be full"
                )
        self._data, self._leases, self._without_lease = data, leases, missing
        return records

    def _parsed(self, data: bytes) -> dict[str, Lease]:
        try:
            return leases_of(data)
        except UnreadableLease as error:
            raise SourceUnavailable(f"cannot read {self._lease_file}: {error}") from error

    def _read_lease_file(self) -> bytes:
        try:
            return self._lease_file.read_bytes()
        except OSError as error:
            raise SourceUnavailable(f"cannot read {self._lease_file}: {error}") from error

    def _check_process(self) -> None:
        """After the lease file was read: a dnsmasq that was killed may have left a part of it."""
        try:
            pid = int(self._pid_file.read_bytes()[:20])
            command = Path(f"/proc/{pid}/comm").read_bytes()
        except (OSError, ValueError) as error:
            raise SourceUnavailable("dnsmasq is not running") from error
        if command != b"dnsmasq\n":
            raise SourceUnavailable("dnsmasq is not running")


#: The version of a file, and the record in it, or the reason why it cannot be read.
_Kept: TypeAlias = tuple[tuple[int, int], LeaseRecord | str]


class Records:
    """The records in a folder. One that did not change is not read again. One of a former boot has the key
    and the start of its session in this one."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        #: With the inode and the time of the last change: the script replaces whole files.
        self._known: dict[str, _Kept] = {}

    def read(self) -> dict[str, LeaseRecord]:
        """By address. Raises SourceUnavailable."""
        found = {}
        try:
            # The script creates the folder with the first lease.
            if not self._folder.exists():
                return {}
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    address = address_of(entry.name, is_v6=":" in entry.name)
                    if address is not None and (record := self._record(entry)) is not None:
                        found[address] = record
        except OSError as error:
            raise SourceUnavailable(f"cannot read the records in {self._folder}: {error}") from error
        self._known = found
        return dict(_RECORDS.read(found.items(), _readable, name=itemgetter(0)))

    def _record(self, entry: "os.DirEntry[str]") -> _Kept | None:
        """None if the script has removed it meanwhile."""
        try:
            status = entry.stat()
            version = (status.st_ino, status.st_mtime_ns)
            known = self._known.get(entry.name)
            if known is not None and known[0] == version:
                return known
            return version, self._in_this_boot(record_of(Path(entry.path).read_bytes()))
        except FileNotFoundError:
            return None
        except UnreadableLease as error:
            return version, str(error)

    def _in_this_boot(self, record: LeaseRecord) -> LeaseRecord:
        if record.boot_id in (None, self._clock.boot_id):
            return record
        # The same after a restart of the core.
        key = blake2b(f"{record.key} {self._clock.boot_id}".encode(), digest_size=8).hexdigest()
        return replace(record, key=key, started_at=max(record.started_at, int(self._clock.boot_time())))


def _readable(kept: tuple[str, _Kept]) -> tuple[str, LeaseRecord]:
    """Return an address with its record. Raises UnreadableLease."""
    address, (_, record) = kept
    if isinstance(record, str):
        raise UnreadableLease(f"that of {address}: {record}")
    return address, record


def _is_of(record: LeaseRecord, lease: Lease) -> bool:
    """Return False for the record of the client that had the address before."""
    return lease.hardware is None or record.hardware == lease.hardware


def _missing(records: dict[str, LeaseRecord], leases: dict[str, Lease]) -> set[str]:
    """Return the keys of the live records without their lease."""
    return {
        record.key
        for address, record in records.items()
        if record.is_live and ((lease := leases.get(address)) is None or not _is_of(record, lease))
    }


def _sessions(live: list[tuple[Lease, LeaseRecord]]) -> dict[str, SourceSession]:
    ipv6 = {(record.hardware, record.interface): lease.address for lease, record in live if lease.is_v6}
    return {
        record.key: SourceSession(
            key=record.key,
            type=SessionType.DHCP,
            username=record.hardware,
            mac_address=mac_address(record.hardware),
            access_interface=record.interface,
            interface=record.interface,
            ip_address=lease.address,
            ipv6_address=ipv6.get((record.hardware, record.interface)),
            acct_session_id=record.key,
            started_at=record.started_at,
        )
        for lease, record in live
        if not lease.is_v6 and record.hardware is not None and record.interface is not None
    }


def _release(interface: str, address: str, hardware: str, client_id: str | None) -> None:
    command = ["dhcp_release", interface, address, hardware, *([client_id] if client_id else [])]
    try:
        ended = run(command, seconds=_RELEASE_SECONDS, most=_MOST_OUTPUT)
    except ProgramFailed as error:
        raise SourceRefused(f"{error} (Debian's package dnsmasq-utils)") from error
    if ended.status != 0:
        text = ended.errors.decode("ascii", "replace").strip()
        raise SourceRefused(f"dhcp_release failed on {interface}: {text!r}")


#: The lease file, the process id, and the records of its script, which is beside the programs. The unit names
#: the same places. Leases and records outlive a reboot.
LEASES = Path("/var/lib/gateway-dnsmasq/leases")
PID_FILE = Path("/run/gateway-dnsmasq/dnsmasq.pid")
RECORDS = Path("/var/lib/gateway-dnsmasq/records")
SCRIPT = Path(sys.prefix, "dhcp-lease")

#: Seconds. A subscriber who left without a word counts as online for so long. dnsmasq takes two minutes for
#: less, and says nothing.
LEASE_TIME = 600
#: The same in the range of a commit that waits for its confirmation: the least that dnsmasq takes. Clients
#: that heed T2 (RFC 2131 section 4.4.5) ask by a broadcast after 8 s, and so leave the range after a return.
_UNCONFIRMED_TIME, _UNCONFIRMED_RENEWAL, _UNCONFIRMED_REBINDING = 120, 5, 8
#: The same for a prefix that is advertised: dnsmasq does so every ten minutes.
_PREFIX_TIME = 3600
#: dnsmasq looks through all leases for each one.
_MOST_LEASES = 20_000

_UNIT, _FILE = "gateway-dnsmasq.service", "dnsmasq.conf"
_TEMPLATE = template(_FILE)
_FORM = re.compile(
    r"interface=[A-Za-z0-9_][A-Za-z0-9_.@-]*\*|(?!interface)[a-z0-9-]+(=[A-Za-z0-9_.,:/@*\[\]-]+)?", re.ASCII
)
_NETWORK = re.compile(r"^dhcp-range=set:[a-z0-9]+,([0-9.]+),[a-z0-9.]+,([0-9.]+)", re.ASCII | re.MULTILINE)
#: A client that may renew its lease of the range before an unconfirmed commit.
_HELD = re.compile(r"^dhcp-host=([0-9a-f:]{17}),([0-9.]+)$", re.ASCII | re.MULTILINE)
_HEAD = re.compile(r"^interface=(.+)\.\*$", re.ASCII | re.MULTILINE)
#: Former networks and trunks that it still ends leases of: the latest.
_MOST_FORMER = 8
_STEP, _READ = "restart dnsmasq", "read the leases of dnsmasq"
#: Readings of the lease file until two are the same, and seconds between two.
_READINGS, _BETWEEN_READINGS = 40, 0.025


class DhcpServer(SourceDaemon):
    """dnsmasq, which runs from the first trunk on. Unless it is a source, it is stopped if an earlier life of
    the core has started it."""

    name = "dnsmasq"
    programs: ClassVar = {"dnsmasq": "dnsmasq-base", "dhcp_release": "dnsmasq-utils"}
    types = ("dhcp",)
    effects: ClassVar = {
        "cgnat.source_range": ServiceAction.RESTART,
        "demux.trunks": ServiceAction.RESTART,
        "demux.vlan_profiles": "dnsmasq restarts when the first profile whose tags need short names of "
        "interfaces is added, or the last one removed",
        "subscribers.local": "dnsmasq restarts for a fixed `ip_address` in its half of the range, and a "
        "lease of that address ends",
        "subscribers.dns_servers": ServiceAction.RESTART,
        "subscribers.ipv6_dns_servers": ServiceAction.RESTART,
        "subscribers.ipv6_range": "dnsmasq restarts when it is set or removed; sessions of pppoe-server and "
        "dnsmasq have prefixes of the new one at once",
    }

    @classmethod
    def on(cls, host: DaemonHost) -> Self:
        return cls(host.systemd, host.files, is_source=cls.name in host.sources)

    def __init__(
        self, systemd: Systemd, files: PlacedFiles, *, is_source: bool, leases: Path = LEASES
    ) -> None:
        self._systemd = systemd
        self._files = files
        self._leases = leases
        self._is_source = is_source
        self._prefixes = SessionPrefixes()

    def source(self, configuration: Configuration, clock: Clock) -> Dnsmasq:
        self._prefixes.configure(configuration)
        return Dnsmasq(self.name, LEASES, PID_FILE, RECORDS, clock, self._prefixes)

    def render(self, configuration: Configuration) -> Rendered:
        """Render one range for all VLANs; until a commit is confirmed, clients with a lease of the former
        range can renew it. dnsmasq runs without a DHCP profile, too: a source that does not reply is a fault.
        Leases of the networks and trunks that the file has now can still end."""
        demux = configuration.demux
        heads = [head for trunk in demux.trunks for head in demux.name_prefixes(trunk)]
        before = self._files.read(_FILE) or ""
        former_heads = [head for head in _HEAD.findall(before) if head not in heads]
        if not self._is_source or not (heads or former_heads):
            return {}
        given = [IPv4Network("/".join(found), strict=False) for found in _NETWORK.findall(before)]
        shared = SharedRange.of(configuration)
        first, last = shared.dhcp
        held = former_range(configuration)
        held_leases = [] if held is None else self._held_leases(held, shared.network, before)
        text = filled(
            _TEMPLATE,
            configuration,
            first=first,
            last=last,
            # A subscriber of PPPoE has it.
            heads=heads,
            former_heads=former_heads[:_MOST_FORMER],
            former_networks=[each for each in given if each not in (shared.network, held)][:_MOST_FORMER],
            held=held,
            held_leases=held_leases,
            reserved=sorted(address for address in shared.fixed if first <= address <= last),
            most_leases=min(int(last) - int(first) + 1 + len(held_leases), _MOST_LEASES),
            lease_time=LEASE_TIME,
            unconfirmed_time=_UNCONFIRMED_TIME,
            renewal=_UNCONFIRMED_RENEWAL,
            rebinding=_UNCONFIRMED_REBINDING,
            ra_heads=[*(f"{head}." for head in heads), "ppp"],
            ra_time=_PREFIX_TIME,
            leases=LEASES,
            pid_file=PID_FILE,
            script=SCRIPT,
        )
        return {_FILE: text}

    def _held_leases(self, held: IPv4Network, network: IPv4Network, before: str) -> list[tuple[str, str]]:
        """Return MAC address and IPv4 address of each client with a lease of the range `held`: those of the
        commit that first held the range, whose sessions it has announced. An address that is in `network`
        too is not held: the new range shares it out, perhaps to PPPoE."""

        def is_held(address: str) -> bool:
            parsed = IPv4Address(address)
            return parsed in held and parsed not in network

        if found := [(mac, address) for mac, address in _HELD.findall(before) if is_held(address)]:
            return found
        return sorted(
            (lease.hardware, lease.address)
            for lease in self._read_leases().values()
            if lease.hardware is not None
            and mac_address(lease.hardware) is not None
            and is_held(lease.address)
        )

    def _read_leases(self) -> dict[str, Lease]:
        """Return the leases by address. Raises StepFailed: without them, homes would lose their addresses.

        dnsmasq empties the file before it writes the file anew. So the content is believed when two readings
        had it.
        """
        before: bytes | None = None
        try:
            for _ in range(_READINGS):
                data = self._leases.read_bytes()
                if data == before:
                    return leases_of(data)
                before = data
                time.sleep(_BETWEEN_READINGS)
        except FileNotFoundError:
            # dnsmasq has never run.
            return {}
        except (OSError, UnreadableLease) as error:
            raise StepFailed(_READ, f"{self._leases}: {error}") from error
        raise StepFailed(_READ, f"{self._leases} changes all the time")

    def verify(self, rendered: Rendered) -> None:
        if _FILE in rendered:
            check_lines(_FILE, rendered[_FILE], _FORM)

    def apply(self, rendered: Rendered, configuration: Configuration, limits: CommitLimits) -> PutBack:
        """Start it with the first trunk, and stop it without any."""
        text, before = rendered.get(_FILE), self._files.read(_FILE)
        if text == before:
            if text is not None:
                self._run(self._systemd.within(limits.apply).start)
            return self._prefixes.configure(configuration)
        former_prefixes = self._prefixes.configure(configuration)

        def put_back() -> None:
            former_prefixes()
            self._run_by(before, limits.put_back)

        return put_back_after(partial(self._run_by, text, limits.apply), put_back)

    def action(self, rendered: Rendered, configuration: Configuration) -> DaemonAction:
        """A start and a stop count as a restart."""
        return ServiceAction.RESTART if rendered.get(_FILE) != self._files.read(_FILE) else None

    def _run_by(self, text: str | None, limit: TimeLimit) -> None:
        """None stops it. The file says that it may run, and is there as long."""
        systemd = self._systemd.within(limit)
        if text is None:
            self._run(systemd.stop)
            self._files.place(_FILE, None)
        else:
            self._files.place(_FILE, text)
            self._run(systemd.restart)

    def _run(self, act: Callable[[str], None]) -> None:
        try:
            act(_UNIT)
        except UnitFailed as error:
            raise StepFailed(_STEP, error.reason) from error
