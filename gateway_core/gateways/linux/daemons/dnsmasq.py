"""dnsmasq 2.89 to 2.91: its configuration, its lease file, the records of its script, and its DHCP sessions.

dnsmasq runs as systemd/gateway-dnsmasq.service. A commit restarts dnsmasq if the new configuration file
differs from the old one, because dnsmasq cannot reload it. A restart ends no session, because the leases are
on disk and in the subscribers' devices.

A session is a DHCPv4 lease that has not ended. A VLAN may have several sessions. The lease file is
authoritative. The script of dnsmasq, `packaging/dhcp-lease`, writes a record of each lease with the VLAN and
the start time. A lease stays valid over a reboot of the machine, and becomes a new session with a new key.
The address of a DHCPv6 lease belongs to the DHCPv4 session with the same MAC address and VLAN; a DHCPv6 lease
alone is not a session. dnsmasq delegates no prefixes.
"""

import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from ipaddress import IPv4Address, IPv4Network, ip_address
from operator import itemgetter
from pathlib import Path
from typing import ClassVar, Self, TypeAlias

import msgspec
from msgspec.structs import replace

from gateway_contract.base.errors import StepFailed
from gateway_contract.configuration import Configuration
from gateway_contract.core.impact import ServiceAction
from gateway_contract.core.sessions import SessionType
from gateway_core.configuration.running import get_former_range
from gateway_core.configuration.workspace import RenderedFiles
from gateway_core.gateways.linux.daemons.daemon import (
    DaemonAction,
    PlacedFiles,
    Rollback,
    SourceDaemon,
    check_lines,
    fill_template,
    load_template,
)
from gateway_core.gateways.linux.daemons.source import (
    NO_SESSIONS,
    UNKNOWN,
    PrefixOf,
    Source,
    SourceEnd,
    SourceRefused,
    SourceSession,
    SourceUnavailable,
    Terminations,
    add_prefix,
)
from gateway_core.gateways.linux.daemons.subscriber_addresses import SessionPrefixes, SharedRange
from gateway_core.gateways.linux.daemons.systemd import Systemd
from gateway_core.gateways.linux.entries import EntryReader, UnreadableEntry
from gateway_core.gateways.linux.kernel.links import has_device
from gateway_core.gateways.linux.program import CommitLimits, ProgramFailed, TimeLimit, run
from gateway_core.records.clock import Clock

#: The lease file, the process id, and the records of the script, which stands beside the programs. The unit
#: names the same places. Leases and records outlive a reboot.
LEASE_FILE = Path("/var/lib/gateway-dnsmasq/leases")
PID_FILE = Path("/run/gateway-dnsmasq/dnsmasq.pid")
RECORDS_FOLDER = Path("/var/lib/gateway-dnsmasq/records")
SCRIPT_FILE = Path(sys.prefix, "dhcp-lease")

#: Seconds of a lease: a subscriber who left without a word counts as online for so long. dnsmasq takes two
#: minutes for less, and says nothing.
LEASE_SECONDS = 600
#: Seconds of a lease in the range of a commit that waits for its confirmation: the least that dnsmasq takes.
#: Clients that heed T2 (RFC 2131 section 4.4.5) ask by a broadcast after 8 s, and so leave the range after a
#: return.
_UNCONFIRMED_SECONDS, _UNCONFIRMED_RENEWAL_SECONDS, _UNCONFIRMED_REBINDING_SECONDS = 120, 5, 8
#: Seconds of a prefix that is advertised: dnsmasq advertises it every ten minutes.
_PREFIX_LIFETIME_SECONDS = 3600
#: dnsmasq looks through all leases for each one.
_MAX_LEASES = 20_000

_UNIT_NAME, _FILE_NAME = "gateway-dnsmasq.service", "dnsmasq.conf"
_TEMPLATE = load_template(_FILE_NAME)
_LINE_PATTERN = re.compile(
    r"interface=[A-Za-z0-9_][A-Za-z0-9_.@-]*\*|(?!interface)[a-z0-9-]+(=[A-Za-z0-9_.,:/@*\[\]-]+)?", re.ASCII
)
_NETWORK_PATTERN = re.compile(
    r"^dhcp-range=set:[a-z0-9]+,([0-9.]+),[a-z0-9.]+,([0-9.]+)", re.ASCII | re.MULTILINE
)
#: Client that may renew its lease of the range before an unconfirmed commit.
_HELD_LEASE_PATTERN = re.compile(r"^dhcp-host=([0-9a-f:]{17}),([0-9.]+)$", re.ASCII | re.MULTILINE)
_NAME_PREFIX_PATTERN = re.compile(r"^interface=(.+)\.\*$", re.ASCII | re.MULTILINE)
#: Most former networks and trunks in the file, the latest first: dnsmasq still ends leases of them.
_MAX_FORMER_NETWORKS = 8

#: Names of interfaces that are one plain word for every tool, and no option.
_INTERFACE_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,14}")
_NUMBER_PATTERN = re.compile(r"[0-9]{1,10}")
#: dnsmasq puts the type of hardware (RFC 2131 section 2, htype) before all but Ethernet's, and before an
#: empty address. A client chooses the length, up to 16 octets, for Ethernet too.
_HARDWARE_PATTERN = re.compile(r"[0-9a-f]{2}-|(?:[0-9a-f]{2}-)?[0-9a-f]{2}(?::[0-9a-f]{2}){0,15}")
_MAC_PATTERN = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}")
_OCTETS_PATTERN = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){0,254}")
#: Identity of an association for DHCPv6; `T` for temporary addresses.
_IAID_PATTERN = re.compile(r"T?[0-9]{1,10}")
_KEY_PATTERN = re.compile(r"[0-9a-f]{16}")
_BOOT_ID_PATTERN = re.compile(r"[0-9a-z]{1,64}")

#: Readings of the lease file until its content is believed, and seconds between two.
_MAX_READINGS, _READING_PAUSE_SECONDS = 40, 0.025
#: Limits of the program that releases a lease: it sends one datagram, and prints nothing but an error.
_RELEASE_SECONDS, _MAX_RELEASE_BYTES = 5.0, 1 << 12

_LEASE_READER = EntryReader(
    "dnsmasq",
    "lease",
    "the lines in the lease file of dnsmasq",
    "a session goes on if its address can be read, and all others do",
)
_RECORD_READER = EntryReader(
    "dnsmasq",
    "record",
    "the records of leases",
    # A power cut may have left it so. The script writes it anew.
    "such a lease is no session until it is renewed",
)


class UnreadableLease(UnreadableEntry):
    """Error of a lease or of a lease record: incomplete, or in an unknown format. The error text contains no
    data of the lease or the record."""


class Lease(msgspec.Struct, frozen=True, gc=False):
    """Lease of an address by dnsmasq. If only the address in the lease file can be read, all other fields
    have their default values."""

    address: str
    #: Epoch seconds. 0 for never, and if unknown.
    expires: int = 0
    #: The hardware as dnsmasq writes it. None for DHCPv6, and if unknown.
    hardware: str | None = None
    #: The client identifier, or the DUID, as hexadecimal octets with colons. None without one, and if
    #: unknown.
    client_id: str | None = None

    @property
    def is_v6(self) -> bool:
        return ":" in self.address

    def has_ended(self, now: float) -> bool:
        # Not within the second: dnsmasq may still renew it then.
        return self.expires != 0 and int(now) > self.expires


class LeaseRecord(msgspec.Struct, frozen=True, gc=False):
    """Record of a lease, written by the script of dnsmasq, `packaging/dhcp-lease`."""

    key: str
    started_at: int
    #: The hardware as in Lease; None if dnsmasq did not know it.
    hardware: str | None
    #: None until dnsmasq tells it: after a start it only guesses.
    interface: str | None
    #: `live`, `ended` or `expired`.
    state: str
    #: The boot in which the script wrote the record; None if unknown.
    boot_id: str | None = None


def is_interface_name(text: str) -> bool:
    return _INTERFACE_PATTERN.fullmatch(text) is not None


def parse_mac_address(hardware: str | None) -> str | None:
    """Return the MAC address in `hardware`, the hardware address of a lease. Return None if the hardware
    address is not an Ethernet address of six octets."""
    return hardware if hardware is not None and _MAC_PATTERN.fullmatch(hardware) else None


def parse_leases(data: bytes) -> dict[str, Lease]:
    """Parse a lease file, and return the leases by address. Raises UnreadableLease if the last line of the
    file is incomplete.

    A line of a DHCPv4 lease has five words: expiry, MAC address, IP address, host name, client identifier. A
    line of a DHCPv6 lease has five words: expiry, IAID, IP address, host name, DUID. The word `*` means that
    a value is missing. A line `duid` has the DUID of dnsmasq itself.

    If only the address in a line can be read, the line is still a lease, because the record of the script has
    the other values."""
    if data and not data.endswith(b"\n"):
        raise UnreadableLease("the lease file is not whole")
    leases: dict[str, Lease] = {}

    def parse_line(line: tuple[int, bytes]) -> None:
        number, text = line
        words = text.decode("ascii", "replace").split(" ")
        if words[0] == "duid" and len(words) == 2:
            return
        address = _parse_address(words[2]) if len(words) > 2 else None
        if address is None or address in leases:
            raise UnreadableLease(f"line {number} is not a lease")
        leases[address] = Lease(address)
        # Not the host name: the subscriber chose it.
        expires, identity, client_id = (words[0], words[1], words[4]) if len(words) == 5 else ("", "", "")
        is_v6 = ":" in address
        if not (
            _NUMBER_PATTERN.fullmatch(expires)
            and (_IAID_PATTERN if is_v6 else _HARDWARE_PATTERN).fullmatch(identity)
            and (client_id == "*" or _OCTETS_PATTERN.fullmatch(client_id))
        ):
            raise UnreadableLease(f"of line {number}, only the address is in the format")
        leases[address] = Lease(
            address, int(expires), None if is_v6 else identity, None if client_id == "*" else client_id
        )

    # The lines before it may change their number.
    _LEASE_READER.read(enumerate(data.split(b"\n")[:-1], 1), parse_line, name=itemgetter(1))
    return leases


def parse_record(data: bytes) -> LeaseRecord:
    """Parse a lease record of the script. Raises UnreadableLease if the record does not have seven words, or
    a word is invalid."""
    try:
        words = data.decode("ascii").removesuffix("\n").split(" ")
        key, started, hardware, interface, expires, state, boot_id = words
    except ValueError as error:
        raise UnreadableLease("a record of a lease does not have seven words") from error
    if not (
        _KEY_PATTERN.fullmatch(key)
        and _NUMBER_PATTERN.fullmatch(started)
        and (hardware == "-" or _HARDWARE_PATTERN.fullmatch(hardware))
        and (interface == "-" or is_interface_name(interface))
        and _NUMBER_PATTERN.fullmatch(expires)
        and state in ("live", "ended", "expired")
        and (boot_id == "-" or _BOOT_ID_PATTERN.fullmatch(boot_id))
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


def _parse_address(text: str) -> str | None:
    """Return an IP address in its canonical form, or None if the text is not an IP address."""
    try:
        # A zone is of a link.
        return None if "%" in text else str(ip_address(text))
    except ValueError:
        return None


class DnsmasqDaemon(SourceDaemon):
    """dnsmasq as the DHCP server. dnsmasq runs while the configuration has trunks. If dnsmasq is not a
    source, a commit stops a dnsmasq that the core started earlier."""

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
    def create(cls, files: PlacedFiles, systemd: Systemd, is_source: bool) -> Self:
        return cls(systemd, files, is_source=is_source)

    def __init__(
        self, systemd: Systemd, files: PlacedFiles, *, is_source: bool, leases: Path = LEASE_FILE
    ) -> None:
        self._systemd = systemd
        self._files = files
        self._leases = leases
        self._is_source = is_source
        self._prefixes = SessionPrefixes()

    def create_source(self, configuration: Configuration, clock: Clock) -> "DnsmasqSource":
        self._prefixes.configure(configuration)
        return DnsmasqSource(LEASE_FILE, PID_FILE, RECORDS_FOLDER, clock, self._prefixes)

    def render(self, configuration: Configuration) -> RenderedFiles:
        """Render the configuration file with one DHCP range for all VLANs. Until a commit is confirmed,
        clients can renew a lease from the former range. dnsmasq also runs if the configuration has no DHCP
        profile, because a source that does not reply counts as a fault. The networks and trunks of the
        current file stay in the new file as former networks and trunks, so that their leases can end."""
        demux = configuration.demux
        name_prefixes = [prefix for trunk in demux.trunks for prefix in demux.list_name_prefixes(trunk)]
        before = self._files.read(_FILE_NAME) or ""
        former_name_prefixes = [
            prefix for prefix in _NAME_PREFIX_PATTERN.findall(before) if prefix not in name_prefixes
        ]
        if not self._is_source or not (name_prefixes or former_name_prefixes):
            return {}
        given = [IPv4Network("/".join(found), strict=False) for found in _NETWORK_PATTERN.findall(before)]
        shared = SharedRange.of(configuration)
        first, last = shared.dhcp_range
        held = get_former_range(configuration)
        held_leases = [] if held is None else self._find_held_leases(held, shared.network, before)
        text = fill_template(
            _TEMPLATE,
            configuration,
            first=first,
            last=last,
            name_prefixes=name_prefixes,
            former_name_prefixes=former_name_prefixes[:_MAX_FORMER_NETWORKS],
            former_networks=[each for each in given if each not in (shared.network, held)][
                :_MAX_FORMER_NETWORKS
            ],
            held=held,
            held_leases=held_leases,
            # Subscribers of PPPoE have these.
            reserved=sorted(address for address in shared.fixed_addresses if first <= address <= last),
            most_leases=min(int(last) - int(first) + 1 + len(held_leases), _MAX_LEASES),
            lease_time=LEASE_SECONDS,
            unconfirmed_time=_UNCONFIRMED_SECONDS,
            renewal=_UNCONFIRMED_RENEWAL_SECONDS,
            rebinding=_UNCONFIRMED_REBINDING_SECONDS,
            ra_name_prefixes=[*(f"{prefix}." for prefix in name_prefixes), "ppp"],
            ra_time=_PREFIX_LIFETIME_SECONDS,
            leases=LEASE_FILE,
            pid_file=PID_FILE,
            script=SCRIPT_FILE,
        )
        return {_FILE_NAME: text}

    def _find_held_leases(
        self, former_range: IPv4Network, network: IPv4Network, former_text: str
    ) -> list[tuple[str, str]]:
        """Return the MAC address and IPv4 address of each client that may renew a lease from `former_range`.
        If `former_text`, the text of the current configuration file, already lists such clients, return these
        clients. Otherwise, return the clients in the lease file. An address that is also in `network`, the
        new range, is left out, because PPPoE may assign this address."""

        def is_held(address: str) -> bool:
            parsed = IPv4Address(address)
            return parsed in former_range and parsed not in network

        if held_leases := [
            (mac, address) for mac, address in _HELD_LEASE_PATTERN.findall(former_text) if is_held(address)
        ]:
            return held_leases
        return sorted(
            (mac, lease.address)
            for lease in self._read_leases().values()
            if (mac := parse_mac_address(lease.hardware)) is not None and is_held(lease.address)
        )

    def _read_leases(self) -> Mapping[str, Lease]:
        """Return the leases by address; an empty map if the lease file does not exist. Raises StepFailed if
        the lease file cannot be read, because a commit without the leases would take away the addresses of
        subscribers."""
        step = "read the leases of dnsmasq"
        before: bytes | None = None
        try:
            for _ in range(_MAX_READINGS):
                data = self._leases.read_bytes()
                # dnsmasq empties the file before it writes the file anew.
                if data == before:
                    return parse_leases(data)
                before = data
                time.sleep(_READING_PAUSE_SECONDS)
        except FileNotFoundError:
            # dnsmasq has never run.
            return {}
        except (OSError, UnreadableLease) as error:
            raise StepFailed(step, f"{self._leases}: {error}") from error
        raise StepFailed(step, f"{self._leases} changes all the time")

    def verify(self, rendered: RenderedFiles) -> None:
        if _FILE_NAME in rendered:
            check_lines(_FILE_NAME, rendered[_FILE_NAME], _LINE_PATTERN)

    def apply(
        self, rendered: RenderedFiles, configuration: Configuration, limits: CommitLimits, rollback: Rollback
    ) -> None:
        text, before = rendered.get(_FILE_NAME), self._files.read(_FILE_NAME)
        if text != before:
            rollback.add(partial(self._restart_with_file, before, limits.put_back))
        rollback.add(self._prefixes.configure(configuration))
        if text != before:
            self._restart_with_file(text, limits.apply)
        elif text is not None:
            self._systemd.with_limit(limits.apply).start(_UNIT_NAME)

    def preview_action(self, rendered: RenderedFiles, configuration: Configuration) -> DaemonAction:
        """Return RESTART if a commit would restart, start or stop dnsmasq. Return None otherwise."""
        return ServiceAction.RESTART if rendered.get(_FILE_NAME) != self._files.read(_FILE_NAME) else None

    def _restart_with_file(self, text: str | None, limit: TimeLimit) -> None:
        """Write `text` to the configuration file and restart dnsmasq. If `text` is None, stop dnsmasq and
        then remove the file, so that the file exists as long as dnsmasq may run."""
        systemd = self._systemd.with_limit(limit)
        if text is None:
            systemd.stop(_UNIT_NAME)
            self._files.place(_FILE_NAME, None)
        else:
            self._files.place(_FILE_NAME, text)
            systemd.restart(_UNIT_NAME)


#: Leases with their records.
_LiveLeases: TypeAlias = list[tuple[Lease, LeaseRecord]]


class DnsmasqSource(Source):
    """Source of the DHCP sessions of dnsmasq. `lease_file` and `pid_file` are the files that the options of
    dnsmasq name. `records` is the folder `records` in the STATE_DIRECTORY of the script. The process of
    dnsmasq must be visible in /proc."""

    name = DnsmasqDaemon.name

    def __init__(
        self, lease_file: Path, pid_file: Path, records: Path, clock: Clock, prefix_of: PrefixOf
    ) -> None:
        self._lease_file = lease_file
        self._pid_file = pid_file
        self._records = LeaseRecords(records, clock)
        self._clock = clock
        self._prefix_of = prefix_of
        self._sweep_lock = threading.Lock()
        #: The content of the lease file that was believed last.
        self._data: bytes | None = None
        self._leases: dict[str, Lease] = {}
        #: Keys of records without a lease: the script will not tell their end any more.
        self._without_lease: set[str] = set()
        self._known: dict[str, SourceSession] = {}
        #: Keys of sessions whose lease expired. Replaced as a whole.
        self._expired: set[str] = set()
        self._terminations = Terminations(clock)

    def list_sessions(self, former: Mapping[str, SourceSession] = NO_SESSIONS) -> Sequence[SourceSession]:
        """Return the sessions of all leases whose record has a VLAN. A lease without a readable record is
        left out, because its session would have no key."""
        with self._sweep_lock:
            records, live = self._read_live_leases()
            now = self._clock.wall()
            expired_keys = {record.key for lease, record in live if lease.has_ended(now)}
            self._expired = expired_keys | {
                record.key for record in records.values() if record.state == "expired"
            }
            sessions = (
                add_prefix(session, self._prefix_of)
                for session in _make_sessions([each for each in live if each[1].key not in expired_keys])
            )
            self._known = {
                session.key: before if (before := self._known.get(session.key)) == session else session
                for session in sessions
            }
            return list(self._known.values())

    def find_leased_interfaces(self) -> set[str]:
        """Return the access interfaces with a lease that has not ended. The leases are read from disk, so
        this method also works while dnsmasq is stopped. Return an empty set if the lease file does not exist.
        Raises SourceUnavailable if the lease file cannot be read."""
        with self._sweep_lock:
            try:
                data = self._read_lease_file()
            except SourceUnavailable as error:
                if isinstance(error.__cause__, FileNotFoundError):
                    return set()
                raise
            live, now = _match_records(self._parse_lease_data(data), self._records.read()), self._clock.wall()
        return {record.interface for lease, record in live if record.interface and not lease.has_ended(now)}

    def terminate(self, session: SourceSession) -> None:
        """Request the end of a session by `dhcp_release` of Debian's dnsmasq-utils, which sends a DHCPRELEASE
        to dnsmasq. The subscriber's device gets no message. The device keeps its address until the next
        renewal, which starts a new session."""
        with self._sweep_lock:
            _, live = self._read_live_leases()
        for lease, record in live:
            if record.key == session.key and record.interface and record.hardware and not lease.is_v6:
                with self._terminations.record(session.key):
                    _release_lease(record.interface, lease.address, record.hardware, lease.client_id)

    def serve(self, interfaces: Sequence[str], type: SessionType) -> None:
        """Refuse PPPoE, and do nothing for DHCP. dnsmasq serves each interface in its options as soon as the
        interface has the `gateway` address of a range, with any prefix length such as /32. To reply to a
        renewal, dnsmasq needs the host route of the subscriber. Other parts of the core add the address and
        the route."""
        if type is not SessionType.DHCP:
            raise SourceRefused("dnsmasq serves DHCP only")

    def release(self, interface: str) -> None:
        """Request the end of all sessions on an interface. The service ends when the interface loses its
        address or is removed. If the interface is already removed, do nothing: no DHCPRELEASE can be sent,
        and the sessions continue when the interface is created again."""
        if not has_device(interface):
            return
        for session in self.list_sessions():
            if session.access_interface == interface:
                self.terminate(session)

    def read_ends(self, keys: Sequence[str]) -> Mapping[str, SourceEnd]:
        """Return an end without traffic for each session, because dnsmasq does not report traffic. The reason
        is `admin_disconnect` if the end of the session was requested in the last minute, and
        `session_timeout` if the lease has expired. All other reasons are `unknown`, because dnsmasq does not
        report a DHCPRELEASE."""
        reasons = {key: "session_timeout" if key in self._expired else UNKNOWN for key in keys}
        return {key: SourceEnd(self._terminations.find_reason(key, reasons[key])) for key in keys}

    def _read_live_leases(self) -> tuple[Mapping[str, LeaseRecord], _LiveLeases]:
        """Return all records by address, and the leases that have a live record. Raises SourceUnavailable if
        dnsmasq does not run, or if its files cannot be read."""
        records = self._update_leases()
        # After the lease file was read: a dnsmasq that was killed may have left a part of it.
        try:
            pid = int(self._pid_file.read_bytes()[:20])
            command = Path(f"/proc/{pid}/comm").read_bytes()
        except (OSError, ValueError) as error:
            raise SourceUnavailable("dnsmasq is not running") from error
        if command != b"dnsmasq\n":
            raise SourceUnavailable("dnsmasq is not running")
        return records, _match_records(self._leases, records)

    def _update_leases(self) -> Mapping[str, LeaseRecord]:
        """Return the records of the script, and set `_leases` to the leases that were read with these
        records. Raises SourceUnavailable if the leases or the records cannot be read.

        dnsmasq truncates the lease file before it writes all leases again. So a changed lease file is
        accepted only after two equal readings. A lease that is missing in the file has ended if the script
        has recorded the end of the lease, or if the script has not recorded the end within _MAX_READINGS
        readings. An empty lease file is accepted only if the script has recorded the end of every lease: on a
        full disk, the leases are only in the memory of dnsmasq."""
        before: bytes | None = None
        for _ in range(_MAX_READINGS):
            data = self._read_lease_file()
            records = self._records.read()
            if data in (self._data, before):
                leases = self._leases if data == self._data else self._parse_lease_data(data)
                missing_keys = _find_keys_without_lease(records, leases)
                if missing_keys <= self._without_lease:
                    break
            before = data
            time.sleep(_READING_PAUSE_SECONDS)
        else:
            leases = self._parse_lease_data(data)
            missing_keys = _find_keys_without_lease(records, leases)
            if missing_keys and not leases:
                raise SourceUnavailable(
                    f"{self._lease_file} is empty, but no end of a lease was told: the disk may be full"
                )
        self._data, self._leases, self._without_lease = data, leases, missing_keys
        return records

    def _parse_lease_data(self, data: bytes) -> dict[str, Lease]:
        try:
            return parse_leases(data)
        except UnreadableLease as error:
            raise SourceUnavailable(f"cannot read {self._lease_file}: {error}") from error

    def _read_lease_file(self) -> bytes:
        try:
            return self._lease_file.read_bytes()
        except OSError as error:
            raise SourceUnavailable(f"cannot read {self._lease_file}: {error}") from error


#: Inode and time of the last change of a file, and its record, or the reason why it cannot be read. The
#: script replaces whole files.
_CachedRecord: TypeAlias = tuple[tuple[int, int], LeaseRecord | str]


class LeaseRecords:
    """Reader of the lease records in a folder. An unchanged record is read only once. A record from an
    earlier boot of the machine gets a new key, and a start time that is not before the current boot."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._cache: dict[str, _CachedRecord] = {}

    def read(self) -> dict[str, LeaseRecord]:
        """Return the readable records by address; an empty map if the folder does not exist. Raises
        SourceUnavailable if the folder cannot be read."""
        records = {}
        try:
            # The script creates the folder with the first lease.
            if not self._folder.exists():
                return {}
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    address = _parse_address(entry.name)
                    if address is not None and (cached := self._read_entry(entry)) is not None:
                        records[address] = cached
        except OSError as error:
            raise SourceUnavailable(f"cannot read the records in {self._folder}: {error}") from error
        self._cache = records
        return dict(_RECORD_READER.read(records.items(), _check_record, name=itemgetter(0)))

    def _read_entry(self, entry: "os.DirEntry[str]") -> _CachedRecord | None:
        """Return the version of a file with its record, or with the reason why the record cannot be read. If
        the file is unchanged, return the cached record. Return None if the script has just removed the
        file."""
        try:
            status = entry.stat()
            version = (status.st_ino, status.st_mtime_ns)
            cached = self._cache.get(entry.name)
            if cached is not None and cached[0] == version:
                return cached
            return version, self._move_to_this_boot(parse_record(Path(entry.path).read_bytes()))
        except FileNotFoundError:
            return None
        except UnreadableLease as error:
            return version, str(error)

    def _move_to_this_boot(self, record: LeaseRecord) -> LeaseRecord:
        if record.boot_id in (None, self._clock.boot_id):
            return record
        # A restart of the core makes the same key.
        key = blake2b(f"{record.key} {self._clock.boot_id}".encode(), digest_size=8).hexdigest()
        return replace(record, key=key, started_at=max(record.started_at, int(self._clock.boot_time())))


def _check_record(cached: tuple[str, _CachedRecord]) -> tuple[str, LeaseRecord]:
    """Return an address with its record. Raises UnreadableLease if `cached` has a reason in place of a
    record."""
    address, (_, record) = cached
    if isinstance(record, str):
        raise UnreadableLease(f"that of {address}: {record}")
    return address, record


def _match_records(leases: Mapping[str, Lease], records: Mapping[str, LeaseRecord]) -> _LiveLeases:
    """Return each lease with its live record. Leases without a live record are left out. A record of another
    client that had the same address before does not belong to the lease."""
    return [
        (lease, record)
        for address, lease in leases.items()
        if (record := records.get(address)) is not None
        and record.state == "live"
        and (lease.hardware is None or record.hardware == lease.hardware)
    ]


def _find_keys_without_lease(records: Mapping[str, LeaseRecord], leases: Mapping[str, Lease]) -> set[str]:
    """Return the keys of the live records that have no lease."""
    live = {record.key for record in records.values() if record.state == "live"}
    return live - {record.key for _, record in _match_records(leases, records)}


def _make_sessions(live: _LiveLeases) -> Iterator[SourceSession]:
    ipv6 = {(record.hardware, record.interface): lease.address for lease, record in live if lease.is_v6}
    for lease, record in live:
        if lease.is_v6 or record.hardware is None or record.interface is None:
            continue
        yield SourceSession(
            key=record.key,
            type=SessionType.DHCP,
            username=record.hardware,
            mac_address=parse_mac_address(record.hardware),
            access_interface=record.interface,
            interface=record.interface,
            ip_address=lease.address,
            ipv6_address=ipv6.get((record.hardware, record.interface)),
            acct_session_id=record.key,
            started_at=record.started_at,
        )


def _release_lease(interface: str, address: str, hardware: str, client_id: str | None) -> None:
    command = ["dhcp_release", interface, address, hardware, *([client_id] if client_id else [])]
    try:
        ended = run(command, seconds=_RELEASE_SECONDS, max_bytes=_MAX_RELEASE_BYTES)
    except ProgramFailed as error:
        raise SourceRefused(f"{error} (Debian's package dnsmasq-utils)") from error
    if ended.status != 0:
        text = ended.errors.decode("ascii", "replace").strip()
        raise SourceRefused(f"dhcp_release failed on {interface}: {text!r}")
