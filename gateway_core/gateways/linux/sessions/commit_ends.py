"""Sessions that a commit ends, and the file of the commits whose sessions have not all ended yet.

A commit ends the sessions that cannot go on with the new configuration. These are sessions

- on a trunk that the demux loses;
- on a VLAN that loses its profile of the session type: the VLAN is removed;
- with an address of the former `cgnat.source_range` or `subscribers.pools` that is not for subscribers in the
  new ranges and pools;
- with an address that the session's source may give to another session under the new configuration;
- of accel-ppp with a prefix of the former `subscribers.ipv6_range` or `delegated_range` that is outside the
  new ranges: the gateway would no longer announce the prefix;
- of accel-ppp, if the commit adds or removes the RADIUS server: accel-ppp restarts.

All other sessions go on: also sessions with an address from RADIUS or from a fixed assignment, and sessions
of other sources when the RADIUS server is added or removed. A change of VLANs ends no session that is on no
trunk of the demux, such as a session on an interface of the operator.

While a commit with another `cgnat.source_range` waits for its confirmation, a session of dnsmasq with an
address of the former range goes on. The confirmation ends the session. The next commit without the former
range ends the session too.

The file is written before a commit takes effect. If the core is killed meanwhile, the restarted core ends the
sessions. A commit that failed or was rolled back ends no session: the file contains the former configuration,
and a session ends only if it cannot go on with the configuration that is running at that time.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from gateway_contract.base import durable
from gateway_contract.base.errors import Invalid
from gateway_contract.configuration import Configuration, Section
from gateway_contract.contract import Record
from gateway_core.configuration.rules import load_section
from gateway_core.configuration.running import add_former_range, get_former_range, remove_former_range
from gateway_core.configuration.store import Unreadable, disk_step, read_json
from gateway_core.gateways.linux.daemons.accel_ppp import AccelPppDaemon
from gateway_core.gateways.linux.daemons.dnsmasq import DnsmasqDaemon
from gateway_core.gateways.linux.daemons.subscriber_addresses import SharedRange
from gateway_core.gateways.linux.demux.admission import AccessVlan, VlanProfiles
from gateway_core.gateways.linux.entries import EntryReader, UnreadableEntry
from gateway_core.gateways.linux.sessions.session import LinuxSession

_FILE_NAME = "owed-ends.json"
#: Sections of the configuration that the rules read.
_SECTION_NAMES = ("interfaces", "radius", "cgnat", "demux", "subscribers")

_ENTRY_READER = EntryReader(
    "core", "owed_end", f"the commits in {_FILE_NAME}", "sessions that a former commit must end go on"
)

#: Function that returns True if a session ends.
EndRule = Callable[[LinuxSession], bool]

_log = logging.getLogger(__name__)


def find_sessions_to_end(
    sessions: Iterable[LinuxSession], running: Configuration, wanted: Configuration
) -> list[int]:
    """Return the ids of the sessions that end when the configuration changes from `running` to `wanted`, in
    the order of `sessions`."""
    rules = [
        *_make_vlan_rules(running, wanted),
        *_make_address_rules(running, wanted),
        *_make_prefix_rules(running, wanted),
    ]
    if (running.radius.server is None) != (wanted.radius.server is None):
        rules.append(_is_of_accel_ppp)
    return [session.id for session in sessions if any(is_to_end(session) for is_to_end in rules)]


def _is_of_accel_ppp(session: LinuxSession) -> bool:
    return session.key.source == AccelPppDaemon.name


def _make_vlan_rules(running: Configuration, wanted: Configuration) -> Iterable[EndRule]:
    removed_trunks = set(running.demux.trunks).difference(wanted.demux.trunks)
    if not removed_trunks and running.demux.vlan_profiles == wanted.demux.vlan_profiles:
        return
    # Names are parsed with all trunks: `eth0.5.100` may be a VLAN of `eth0.5`, or two tags on `eth0`.
    trunks = running.interfaces.trunks
    profiles_before, profiles_after = VlanProfiles(running.demux), VlanProfiles(wanted.demux)

    def is_to_end(session: LinuxSession) -> bool:
        vlan = AccessVlan.parse(session.access_interface, trunks)
        if vlan is None:
            return False
        before, after = profiles_before.find(vlan), profiles_after.find(vlan)
        loses_profile = before is not None and (after is None or after.type != before.type)
        return vlan.trunk in removed_trunks or loses_profile

    yield is_to_end


def _make_address_rules(running: Configuration, wanted: Configuration) -> Iterable[EndRule]:
    ranges_before, ranges_after = _list_shared_ranges(running), _list_shared_ranges(wanted)
    pools_before, pools_after = _list_pools(running), _list_pools(wanted)
    if (ranges_before, pools_before) == (ranges_after, pools_after):
        return
    new_range, *former_ranges = ranges_after
    networks_before = (*(each.network for each in ranges_before), *pools_before)

    def is_to_end(session: LinuxSession) -> bool:
        if session.summary.ip_address is None:
            return False
        address, type = IPv4Address(session.summary.ip_address), session.summary.type
        is_for_subscribers = new_range.is_subscriber_address(address) or _is_in(address, pools_after)
        if _is_in(address, networks_before) and not is_for_subscribers:
            is_in_former_range = any(each.is_subscriber_address(address) for each in former_ranges)
            return not (is_in_former_range and session.key.source == DnsmasqDaemon.name)
        # accel-ppp uses the whole range for both session types.
        return (
            not _is_of_accel_ppp(session)
            and any(each.has_address(address, type) for each in ranges_before)
            and not new_range.has_address(address, type)
        )

    yield is_to_end


def _make_prefix_rules(running: Configuration, wanted: Configuration) -> Iterable[EndRule]:
    """Yield the rule that selects the sessions of accel-ppp that end because the commit changes their IPv6
    networks. Sessions of other sources do not end, because the commit gives these sessions a new prefix."""
    before, after = running.subscribers.ipv6_networks, wanted.subscribers.ipv6_networks
    if before == after:
        return

    def is_to_end(session: LinuxSession) -> bool:
        summary = session.summary
        link_prefixes = () if summary.ipv6_prefix is None else (summary.ipv6_prefix,)
        prefixes = map(IPv6Network, (*link_prefixes, *summary.delegated_prefixes))
        return _is_of_accel_ppp(session) and any(
            _is_part_of(prefix, before) and not _is_part_of(prefix, after) for prefix in prefixes
        )

    yield is_to_end


def _list_shared_ranges(configuration: Configuration) -> list[SharedRange]:
    """Return the source range, followed by the former source range if the former range is still served until
    the confirmation of a commit."""
    current_range, former_network = SharedRange.of(configuration), get_former_range(configuration)
    return (
        [current_range]
        if former_network is None
        else [current_range, replace(current_range, network=former_network)]
    )


def _list_pools(configuration: Configuration) -> tuple[IPv4Network, ...]:
    return tuple(pool.network for pool in configuration.subscribers.pools)


def _is_in(address: IPv4Address, networks: Iterable[IPv4Network]) -> bool:
    return any(address in network for network in networks)


def _is_part_of(prefix: IPv6Network, networks: Iterable[IPv6Network]) -> bool:
    return any(prefix.subnet_of(network) for network in networks)


class PendingCommit(NamedTuple):
    """Commit that must still end sessions: the ids of the sessions to end, and the configuration before the
    commit."""

    session_ids: tuple[int, ...]
    former: Configuration

    def drop_ended(self, sessions: Iterable[LinuxSession], running: Configuration) -> Self:
        """Return a copy of the commit without the sessions that have ended or that can go on with the running
        configuration."""
        ids = frozenset(self.session_ids)
        remaining_sessions = [session for session in sessions if session.id in ids]
        return self._replace(
            session_ids=tuple(find_sessions_to_end(remaining_sessions, self.former, running))
        )


class _StoredCommit(Record, frozen=True):
    """Pending commit in the file: the ids of the sessions, and the sections of the former configuration by
    name. `former_range` is the second source range that the former configuration served."""

    ids: tuple[int, ...]
    former: dict[str, Any]
    former_range: str | None = None


class PendingCommits:
    """Store of the pending `commits`, in a file in `folder`. Only one process may use the folder. Not
    thread-safe.

    `running` is the running configuration at the start.
    """

    def __init__(self, folder: Path, running: Configuration) -> None:
        self._path = folder / _FILE_NAME
        self.commits: Sequence[PendingCommit] = self._load(running)

    def replace(self, commits: Iterable[PendingCommit]) -> None:
        """Replace the stored commits by `commits`, without the commits that have no session to end. Raises
        StepFailed if the disk fails; the file then contains either the old or the new commits."""
        remaining_commits = [commit for commit in commits if commit.session_ids]
        if remaining_commits == self.commits:
            return
        with disk_step("store the ends of a commit"):
            if remaining_commits:
                durable.make_folder(self._path.parent)
                durable.replace(
                    self._path, msgspec.json.encode([_to_stored(commit) for commit in remaining_commits])
                )
            else:
                # A file that returns after a power cut ends no session: no session outlives a reboot.
                self._path.unlink(missing_ok=True)
        self.commits = remaining_commits

    def _load(self, running: Configuration) -> list[PendingCommit]:
        if not self._path.exists():
            return []
        try:
            entries = read_json(self._path, list[Any])
        except Unreadable as error:
            _log.error(
                "cannot read the pending commits, sessions that a former commit must end go on: %s", error
            )
            return []
        return _ENTRY_READER.read(
            entries, lambda each: _from_stored(each, running), name=repr, place=self._path
        )


def _to_stored(commit: PendingCommit) -> _StoredCommit:
    configuration, former_range = remove_former_range(commit.former), get_former_range(commit.former)
    sections = {name: _to_json(getattr(configuration, name)) for name in _SECTION_NAMES}
    return _StoredCommit(commit.session_ids, sections, None if former_range is None else str(former_range))


def _from_stored(entry: Any, running: Configuration) -> PendingCommit:
    """Parse an entry of the file into a commit. Raises UnreadableEntry if the entry is malformed."""
    try:
        stored_commit = msgspec.convert(entry, _StoredCommit)
        sections = {
            name: load_section(name, stored_commit.former[name])
            for name in _SECTION_NAMES
            if name in stored_commit.former
        }
        former = replace(running, **sections)
        if stored_commit.former_range is not None:
            former = add_former_range(former, IPv4Network(stored_commit.former_range))
    except (Invalid, ValueError) as error:
        # Another version of the gateway wrote the entry, before a downgrade.
        raise UnreadableEntry(f"a commit of another version: {error}") from error
    return PendingCommit(stored_commit.ids, former)


def _to_json(value: Any) -> Any:
    """Return the JSON value that `load_section` parses into `value`."""
    if isinstance(value, Section):
        return {name: _to_json(item) for name, item in vars(value).items()}
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    return value if value is None or isinstance(value, int) else str(value)
