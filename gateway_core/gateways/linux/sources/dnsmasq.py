"""dnsmasq 2.89 to 2.91 as a source of sessions: DHCP subscribers, one or several on a VLAN.

A session is a lease of DHCPv4 that has not ended. The lease file is the truth; `packaging/dhcp-lease`, the
script of dnsmasq, adds the VLAN and the start. A lease outlives a reboot of the machine, and is another
session then, with another key. A lease of DHCPv6 gives its address to the session with the same MAC address
and VLAN; alone it is no session. dnsmasq delegates no prefixes.
"""

import os
import threading
import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.entries import EntryReader
from gateway_core.gateways.linux.kernel.links import is_device
from gateway_core.gateways.linux.program import ProgramFailed, run
from gateway_core.gateways.linux.sources.dnsmasq_leases import (
    Lease,
    LeaseRecord,
    UnreadableLease,
    address_of,
    leases_of,
    mac_address,
    record_of,
)
from gateway_core.gateways.linux.sources.source import (
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
from gateway_core.records.clock import Clock

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
        return replace(record, key=key, started_at=max(record.started_at, int(self._clock.booted())))


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
