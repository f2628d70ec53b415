"""FRR: its configuration at a commit, and the state of its BGP. Undocumented behaviour was checked against
FRR 8.4.4 (Debian 12) and FRR 10.3 (Debian 13), with frr-reload.py of the package frr-pythontools.

A commit replaces only the gateway's part of the running configuration of FRR, without a restart.
frr-reload.py gets the running configuration with the new part in place of the old part, and applies only the
differences. FRR then saves its running configuration. The gateway's part is the default BGP instance, the
lists and route maps named `gateway-*`, static routes with the gateway's tag, and two kinds of lines from the
gateway's last configuration: the route of the VRF, and names that an older version of the gateway used. All
other lines belong to the operator and stay unchanged.

A BGP instance belongs to the gateway if the configuration has the line `MARK`. A comment could not mark the
instance, because FRR drops comments. An operator's own BGP instance is replaced only after the operator has
allowed the replacement with `gateway-core setup --frr replace`.

The exit status of frr-reload.py is not enough. The status is 0 even if the daemon for a line does not run,
and after a refused line frr-reload.py still applies the following lines. So the difference is computed again
after each run. If a difference stays, FRR gets its former configuration back.

No value of a request or of a configuration is passed on a command line of vtysh, because vtysh would
interpret the value as commands.
"""

import logging
import re
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from ipaddress import IPv4Network, IPv6Network
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self

import msgspec

from gateway_contract.base.errors import StepFailed
from gateway_contract.base.texts import join_names
from gateway_contract.configuration import Configuration
from gateway_contract.core.impact import ServiceAction
from gateway_core.configuration.workspace import RenderedFiles
from gateway_core.gateways.linux.daemons.daemon import (
    CheckFailed,
    DaemonAction,
    MissingRequirement,
    PlacedFiles,
    Rollback,
    ServiceDaemon,
    check_lines,
    fill_template,
    load_template,
)
from gateway_core.gateways.linux.daemons.systemd import Systemd
from gateway_core.gateways.linux.entries import EntryReader, UnreadableEntry
from gateway_core.gateways.linux.program import (
    CommitLimits,
    ProgramFailed,
    ProgramMissing,
    ProgramResult,
    run,
)

#: What the operator does to give BGP to the gateway, for a message.
REMEDY = "`gateway-core setup --frr replace`, as root, gives BGP to the gateway"

_MARK_NAME = "access-list gateway-core"
#: Line without effect in FRR. An older version had another remark.
MARK = f"{_MARK_NAME} remark The gateway replaces router bgp and what is named gateway-"
#: Tag of the gateway's static routes: FRR gives routes no name.
_ROUTE_TAG = 4_200_140_140
_OWN_LINE_PATTERN = re.compile(
    r"(access-list|ip prefix-list|ipv6 prefix-list|route-map) gateway-"
    rf"|(ip|ipv6) route \S+ reject tag {_ROUTE_TAG} "
)
#: The default instance, and none of a VRF or a view.
_BGP_PATTERN = re.compile(r"router bgp \d+")
#: Lines that an older version rendered with other names. All else in its file is FRR's own, such as
#: `hostname`.
_OLD_NAME_PATTERN = re.compile(r"(ip prefix-list|ipv6 prefix-list|route-map) \S")
_VRF_PREFIX = "vrf "
#: The ends of a context and of the whole.
_EXIT_PATTERN, _END_LINE = re.compile(r"exit(-[a-z-]+)?"), "end"
#: Words before a secret, which is the rest of the line.
_SECRET_PATTERN = re.compile(
    r"\b(password|secret|md5|authentication-key|key-string|authentication string)\b .+"
)
#: Lines in a message.
_MAX_SHOWN_LINES = 5

_FILE_NAME, _SETTINGS_NAME = "frr.conf", "vtysh.conf"
_TEMPLATE = load_template(_FILE_NAME)

#: Bytes of FRR's output: a configuration, a summary with about 1,000 for each neighbour, and anything else.
_MAX_CONFIGURATION_BYTES, _MAX_SUMMARY_BYTES, _MAX_OUTPUT_BYTES = 16 * 2**20, 2**22, 1 << 16
#: Seconds for a check of the file, to mark the running configuration, and to reach a daemon.
_CHECK_SECONDS, _MARK_SECONDS, _CONNECT_SECONDS = 5.0, 10.0, 1.0

_APPLY_STEP = "apply frr.conf to FRR"
_READ_STEP = "read the running configuration of FRR"
_SAVE_STEP = "save the configuration of FRR"
_SUMMARY_STEP = "read the BGP summary of FRR"

#: Runs until the difference is empty. One may leave something, and the next complain while it removes that:
#: after `router bgp`, FRR reads the line `vrf cgnat` as `vrf-policy cgnat`, which brings `vnc defaults` too.
_MAX_RELOAD_RUNS = 3
#: Settings of vtysh itself, which it has from vtysh.conf and from the system.
_VTYSH_SETTING_PATTERN = re.compile(r"(no )?(hostname|service integrated-vtysh-config|username)\b.*")
_TEST_OPTION, _RELOAD_OPTION = "--test", "--reload"
#: vtysh names a line of the file, or the text of a line that a daemon refuses after it.
_BAD_SYNTAX_PATTERN = re.compile(r"line (\d{1,9}): % ([A-Za-z ]+)")
_BAD_VALUE_PATTERN = re.compile(r"Failure to communicate\[\d+\] to [a-z0-9]+, line: *([ -~]+)")
_COMPLAINT_PATTERN = re.compile(r"^% *([ -~]+)", re.MULTILINE)
_EXITING_PATTERN = re.compile(r"^Exiting: *([ -~]+)", re.MULTILINE)
_NO_DAEMON_TEXT = "failed to connect to any daemons"
_FATAL_PATTERN = re.compile(r"(?:ERROR|WARNING)\S*: *([ -~]+)")
#: A refusal of a check. Its status is 0 if the first line of a context fails: of the `exit`s that follow, one
#: leaves the configuration, and the next one vtysh.
_REFUSAL_PATTERN = re.compile(r"line \d+: [ -~]{1,200}")

_BFD_PATTERN = re.compile(r"^ neighbor \S+ bfd$", re.MULTILINE)
_BFD_REMEDY = "set bfdd=yes in /etc/frr/daemons, and restart FRR"
_BGPD_PATTERN = re.compile(r"^\s*bgpd=[\"']?(\w*)", re.MULTILINE)

_FAMILY_READER = EntryReader(
    "frr", "family", "the address families in FRR's BGP summary", "its neighbours count as not established"
)
_NEIGHBOUR_READER = EntryReader(
    "frr", "neighbor", "the neighbours in FRR's BGP summary", "such a one counts as not established"
)

_log = logging.getLogger(__name__)


class FrrUnavailable(StepFailed):
    """Failure of FRR or of one of its daemons to run or to give a usable reply. If FRR prints an error line,
    the reason is this line without secrets."""

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(step, reason.rstrip("."))


class FrrUnreadable(FrrUnavailable):
    """Error of a reply of FRR: no part of the reply can be read."""


class FrrAbsent(FrrUnavailable):
    """Absence of FRR: FRR is not installed, or none of its daemons runs."""


class FrrRefused(StepFailed):
    """Refusal of a configuration by FRR. The former configuration stays in use. `line` is the refused line,
    or empty if FRR names no line. `number` is the line number of the refused line in frr.conf, counted from
    1."""

    def __init__(self, reason: str, line: str = "", number: int | None = None) -> None:
        place = f"line {number} of {_FILE_NAME}" if number else _FILE_NAME
        named = f"{place} ({hide_secret(line)})" if line else place
        super().__init__(_APPLY_STEP, f"FRR refuses {named}: {hide_secret(reason)}")


class ForeignBgp(StepFailed):
    """Refusal of a commit, because FRR has a BGP instance that does not belong to the gateway. `lines` are
    the lines that FRR would lose, without secrets."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        lost = summarize_lines(lines)
        super().__init__(
            _APPLY_STEP, f"FRR has a BGP instance that is not the gateway's, and would lose: {lost}. {REMEDY}"
        )


@dataclass(frozen=True)
class FrrFolders:
    """Folders of an FRR installation: `programs` contains vtysh, `tools` contains frr-reload.py,
    `configuration` contains frr.conf and vtysh.conf, and `sockets` contains the sockets of the daemons."""

    programs: Path = Path("/usr/bin")
    tools: Path = Path("/usr/lib/frr")
    configuration: Path = Path("/etc/frr")
    sockets: Path = Path("/run/frr")

    @property
    def vtysh(self) -> list[str]:
        """First words of every vtysh command line: the program and its options."""
        program = str(self.programs / "vtysh")
        return [program, "--config_dir", str(self.configuration), "--vty_socket", str(self.sockets)]


class FrrDaemon(ServiceDaemon):
    """FRR as a daemon that a commit reconfigures. A commit needs a running FRR only if the configuration has
    BGP."""

    name = "frr"
    programs: ClassVar = {"vtysh": "frr", "frr-reload.py": "frr-pythontools"}
    effects: ClassVar = {
        "interfaces.uplinks": ServiceAction.RELOAD,
        "cgnat.enabled": ServiceAction.RELOAD,
        "cgnat.vrf_name": ServiceAction.RELOAD,
        "cgnat.handoff_interface": ServiceAction.RELOAD,
        "cgnat.handoff_gateway": ServiceAction.RELOAD,
        "cgnat.source_range": ServiceAction.RELOAD,
        "bgp": ServiceAction.RELOAD,
        "subscribers.ipv6_range": ServiceAction.RELOAD,
        "subscribers.delegated_range": ServiceAction.RELOAD,
    }

    @classmethod
    def create(cls, files: PlacedFiles, systemd: Systemd, is_source: bool) -> Self:
        return cls(files, FrrFolders())

    @classmethod
    def find_missing_requirements(cls, root: Path) -> Iterator[MissingRequirement]:
        daemons = root / "etc/frr/daemons"
        # The file comes with FRR. A shell reads it: the last value counts.
        if daemons.exists() and _BGPD_PATTERN.findall(daemons.read_text(errors="replace"))[-1:] != ["yes"]:
            edit_command = r"sed -i '/^\s*bgpd=/d' /etc/frr/daemons && echo bgpd=yes >> /etc/frr/daemons"
            yield MissingRequirement(
                "setting in /etc/frr/daemons: bgpd=yes", f"{edit_command} && systemctl restart frr"
            )

    def __init__(self, files: PlacedFiles, folders: FrrFolders) -> None:
        self._files = files
        self._folders = folders
        self._applied: str | None = None
        #: Lines of a BGP instance that is not the gateway's, which keep FRR from running the gateway's part.
        self.foreign_lines: Sequence[str] = ()

    def render(self, configuration: Configuration) -> RenderedFiles:
        families = [*_make_families(configuration)]
        return {
            _FILE_NAME: fill_template(_TEMPLATE, configuration, mark=MARK, tag=_ROUTE_TAG, families=families)
        }

    def verify(self, rendered: RenderedFiles) -> None:
        """Check the rendered file. If FRR is installed, also check the file with FRR's own parser. Raises
        CheckFailed if the file has an invalid line, if FRR refuses the file, or if FRR's parser does not
        reply."""
        check_lines(_FILE_NAME, rendered[_FILE_NAME])
        program = self._folders.programs / "vtysh"
        if not program.exists():
            return
        try:
            with _write_draft(self._folders, rendered[_FILE_NAME]) as draft:
                command = [str(program), "--dryrun", "--inputfile", str(draft)]
                ended = run(command, seconds=_CHECK_SECONDS, max_bytes=_MAX_OUTPUT_BYTES)
        except ProgramFailed as error:
            raise CheckFailed("vtysh did not reply") from error
        refusal = _REFUSAL_PATTERN.search((ended.output + ended.errors).decode("ascii", "replace"))
        if ended.status or refusal:
            reason = hide_secret(refusal.group()) if refusal else "no reason given"
            raise CheckFailed(f"FRR refuses {_FILE_NAME}: {reason}")

    def apply(
        self, rendered: RenderedFiles, configuration: Configuration, limits: CommitLimits, rollback: Rollback
    ) -> None:
        text = rendered[_FILE_NAME]
        if text == self._applied:
            return
        before = self._files.read(_FILE_NAME)
        try:
            self._apply_file(text, limits, before)
        except FrrAbsent as error:
            if configuration.bgp is not None:
                raise
            _log.warning(
                "FRR is not running, and the commit skips it, as the configuration has no BGP: %s", error
            )
            # `preview_action` compares the next configuration with this file.
            rollback.add(self._files.place(_FILE_NAME, text))
        else:
            back = replace(limits, apply=limits.put_back)
            rollback.add(lambda: self._apply_file(before, back, text))

    def preview_action(self, rendered: RenderedFiles, configuration: Configuration) -> DaemonAction:
        return ServiceAction.RELOAD if rendered[_FILE_NAME] != self._files.read(_FILE_NAME) else None

    def _apply_file(self, text: str | None, limits: CommitLimits, before: str | None) -> None:
        self._applied, self.foreign_lines = None, ()
        with Rollback() as rollback:
            # First: a full disk must not be found when FRR has changed.
            rollback.add(self._files.place(_FILE_NAME, text))
            try:
                FrrConfiguration(self._folders, limits).apply(text or "", before or "")
            except ForeignBgp as error:
                self.foreign_lines = error.lines
                raise
            rollback.pop_all()
        self._applied = text


@dataclass(frozen=True)
class FrrDifference:
    """Difference between the running configuration of FRR and a new configuration: the commands to remove and
    to add. A command has one or more lines."""

    removed_commands: tuple[str, ...] = ()
    added_commands: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.removed_commands or self.added_commands)


class FrrConfiguration:
    """Access to the running configuration of FRR, for one commit. Not thread-safe. If FRR refuses the
    commit, frr-reload.py runs at most ten times until the former configuration is back."""

    def __init__(self, folders: FrrFolders, limits: CommitLimits) -> None:
        self._folders = folders
        self._limits = limits

    def apply(self, text: str, former: str = "") -> FrrDifference:
        """Replace the gateway's part in the running configuration of FRR, and save the running configuration.
        `text` is the new part, and `former` is the part that the gateway wrote last. Return the difference
        that was applied. Raises StepFailed if FRR is not available or refuses the new part. FRR then has its
        former configuration, unless the reason says that the rollback failed."""
        gateway_part, before = GatewayPart(text, former), self._read_running()
        if lines := gateway_part.find_foreign_lines(before):
            raise ForeignBgp(lines)
        # bgpd takes the line all the same, and the neighbour is not watched.
        if (bfd_line := _BFD_PATTERN.search(text)) and not (self._folders.sockets / "bfdd.vty").exists():
            raise FrrRefused(f"bfdd does not run: {_BFD_REMEDY}", bfd_line.group().strip())
        with _write_draft(self._folders, gateway_part.merge(before)) as draft:
            changes = self._compare(draft, text)
            if foreign_commands := [
                each
                for each in (*changes.removed_commands, *changes.added_commands)
                if not gateway_part.is_own(each)
            ]:
                line = hide_secret(_make_printable(foreign_commands[0]))
                raise FrrUnavailable(_APPLY_STEP, f"frr-reload.py would change {line} too")
            dead_daemon = _find_dead_daemon(self._folders.sockets)
            if dead_daemon and changes:
                raise FrrUnavailable(
                    _APPLY_STEP, f"{dead_daemon} does not run, and FRR would forget its lines"
                )
            try:
                self._apply_difference(draft, text, changes)
                if not dead_daemon:
                    self._save()
            except StepFailed as error:
                if changes:
                    self._restore(before, error)
                raise
        return changes

    def _restore(self, before: str, cause: StepFailed) -> None:
        way_back = FrrConfiguration(self._folders, replace(self._limits, apply=self._limits.put_back))
        try:
            with _write_draft(self._folders, before) as draft:
                way_back._apply_difference(draft, before, way_back._compare(draft, before))
        except StepFailed as error:
            raise StepFailed(_APPLY_STEP, f"{cause.reason}. FRR is not as before: {error}") from error

    def _apply_difference(self, draft: Path, text: str, left: FrrDifference) -> None:
        """Run frr-reload.py until the running configuration equals the draft, or until a run changes nothing.
        `text` is the gateway's part of the draft. `left` is the difference before the first run. Raises
        FrrRefused if a difference stays: then some of the changes may be applied."""
        refusal = None
        for _ in range(_MAX_RELOAD_RUNS if left else 0):
            try:
                self._remove_secrets(draft, left)
                self._reload(_RELOAD_OPTION, draft, text)
            except FrrRefused as error:
                refusal = error
            before, left = left, self._compare(draft, text)
            if left in (before, FrrDifference()):
                break
        if left:
            # An addition tells more than what it replaces.
            command = (left.added_commands or left.removed_commands)[0].splitlines()[-1]
            reason = "it has no effect, or the daemon that it is for does not run"
            raise refusal or _make_refusal(reason, command, text)

    def _remove_secrets(self, draft: Path, left: FrrDifference) -> None:
        """Remove the lines with a secret in the difference `left` from the running configuration, by a
        command file for vtysh. frr-reload.py would pass each removed line on a command line, which every user
        of the machine can read. The command file is written next to `draft`."""
        lines = [f"{command}\n" for command in left.removed_commands if hide_secret(command) != command]
        if not lines:
            return
        file = draft.with_name("secrets.conf")
        try:
            file.write_bytes("".join(lines).encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise FrrUnavailable(_APPLY_STEP, f"cannot write its draft: {error.strerror}") from error
        ended = self._run(_APPLY_STEP, [*self._folders.vtysh, "-f", str(file)])
        if ended.status:
            raise _make_error(ended, "".join(lines))

    def _read_running(self) -> str:
        """Return the running configuration of FRR, in the format of frr.conf. Raises FrrUnavailable if FRR
        does not reply."""
        ended = self._run(_READ_STEP, [*self._folders.vtysh, "-c", "show running-config no-header"])
        if ended.status:
            # The output is no reason: it may have passwords.
            reason = _find_last_line(ended.errors) or f"vtysh ended with status {ended.status}"
            error_class = FrrAbsent if _NO_DAEMON_TEXT in reason else FrrUnavailable
            raise error_class(_READ_STEP, reason)
        # A description has any bytes.
        return ended.output.decode("utf-8", "surrogateescape")

    def _compare(self, draft: Path, text: str) -> FrrDifference:
        printed = self._reload(_TEST_OPTION, draft, text).decode(errors="replace")
        head, _, added = printed.partition("\nLines To Add\n")
        _, _, removed = head.partition("\nLines To Delete\n")
        return FrrDifference(tuple(_parse_commands(removed)), tuple(_parse_commands(added)))

    def _reload(self, mode: str, draft: Path, text: str) -> bytes:
        """Run frr-reload.py with the option `mode` on the draft, and return the output. `text` is the
        gateway's part of the draft: an error may quote a line of `text`. Raises FrrRefused or FrrUnavailable
        if the run fails."""
        folders = self._folders
        command = [str(folders.tools / "frr-reload.py"), mode, "--stdout"]
        command += ["--bindir", str(folders.programs), "--vty_socket", str(folders.sockets)]
        # Unless it is in `confdir`, letter by letter, FRR overwrites that folder's frr.conf with what runs.
        command += ["--confdir", str(draft.parent), "--rundir", str(draft.parent), str(draft)]
        ended = self._run(_APPLY_STEP, command)
        if ended.status:
            raise _make_error(ended, text)
        return ended.output

    def _run(self, step: str, command: list[str]) -> ProgramResult:
        try:
            return run(
                command, seconds=self._limits.apply.get_remaining(), max_bytes=_MAX_CONFIGURATION_BYTES
            )
        except ProgramMissing as error:
            raise FrrAbsent(step, str(error)) from error
        except ProgramFailed as error:
            raise FrrUnavailable(step, str(error)) from error

    def _save(self) -> None:
        # FRR writes its file itself: the core may not, and FRR may have a file for each daemon.
        ended = self._run(_SAVE_STEP, [*self._folders.vtysh, "-c", "write memory"])
        if ended.status or b"[OK]" not in ended.output:
            raise FrrUnavailable(_SAVE_STEP, _find_last_line(ended.errors) or "FRR gives no reason")


def _make_families(configuration: Configuration) -> Iterator[Mapping[str, Any]]:
    """Yield the template values of each BGP address family. `word` is the first word of FRR's commands for
    the family. `announced` and `accepted` are the entries of the two prefix lists of the family."""
    bgp, cgnat = configuration.bgp, configuration.cgnat
    if bgp is None:
        return
    ipv6_networks = configuration.subscribers.ipv6_networks
    all_networks = dict.fromkeys((*cgnat.source_ranges, *ipv6_networks, *bgp.networks))
    for version, name, word in ((4, "ipv4", "ip"), (6, "ipv6", "ipv6")):
        networks = [network for network in all_networks if network.version == version]
        if bgp.announce == "hosts":
            # Not the gateway's own addresses: a link of PPPoE has one as a /32.
            gateways = [network[1] for network in cgnat.source_ranges]
            own_entries = [f"deny {address}/32" for address in (*gateways, bgp.router_id)]
            announced = [*(own_entries if version == 4 else []), *map(_format_session_permit, networks)]
        else:
            announced = [f"permit {network}" for network in networks]
        # A neighbour must not have the subscribers' addresses.
        accepted = [f"deny {_format_with_le(network)}" for network in networks]
        accepted += [
            f"permit {_format_with_le(network) if network.prefixlen else network}"
            for network in bgp.accept
            if network.version == version
        ]
        has_neighbors = any(name in neighbor.used_families for neighbor in bgp.neighbors)
        yield {
            "name": name,
            "word": word,
            "networks": networks,
            # FRR drops an empty context.
            "has_lines": bool(networks) or bgp.announce == "hosts" or has_neighbors,
            # A list without an entry would let all through.
            "announced": [*announced, "deny any"],
            "accepted": [*accepted, "deny any"],
        }


def _format_session_permit(network: IPv4Network | IPv6Network) -> str:
    """Return the prefix-list entry that permits the routes of sessions in a network: host routes for IPv4,
    routes of any length for IPv6."""
    has_hosts = network.version == 4 and network.prefixlen < network.max_prefixlen
    return f"permit {network} ge 32" if has_hosts else f"permit {_format_with_le(network)}"


def _format_with_le(network: IPv4Network | IPv6Network) -> str:
    longest = network.max_prefixlen
    return f"{network} le {longest}" if network.prefixlen < longest else str(network)


class BgpReader:
    """Reader of the state of FRR's bgpd, which may be down or hang. `seconds` is the time limit of a request.
    Thread-safe."""

    def __init__(self, folders: FrrFolders, seconds: float) -> None:
        self._folders = folders
        self._seconds = seconds

    def read_bgp_summary(self) -> dict[str, Any]:
        """Return the JSON object of `show bgp summary json`. The object is empty if FRR has no BGP.
        Unreadable address families and neighbours are left out. Raises FrrUnavailable if bgpd does not run or
        does not reply, and FrrUnreadable if no address family can be read."""
        # Only bgpd is asked: another daemon that hangs must not block the reply.
        command = [*self._folders.vtysh, "-d", "bgpd", "-c", "show bgp summary json"]
        try:
            ended = run(command, seconds=self._seconds, max_bytes=_MAX_SUMMARY_BYTES)
        except ProgramFailed as error:
            raise FrrUnavailable(_SUMMARY_STEP, str(error)) from error
        if ended.status:
            error_line = _find_last_line(ended.output + b"\n" + ended.errors)
            raise FrrUnavailable(
                _SUMMARY_STEP, f"bgpd: {error_line or f'vtysh ended with status {ended.status}'}"
            )
        try:
            # A neighbour chooses its host name, and FRR prints its bytes as they came.
            summary = msgspec.json.decode(ended.output.decode(errors="replace"), type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError) as error:
            reason = f"its reply is not as expected: {_make_printable(str(error))}"
            raise FrrUnavailable(_SUMMARY_STEP, reason) from error
        families = dict(_FAMILY_READER.read(summary.items(), _parse_family, name=itemgetter(0)))
        if summary and not families:
            raise FrrUnreadable(_SUMMARY_STEP, "its reply has no address family that can be read")
        return families


def _parse_family(item: tuple[str, Any]) -> tuple[str, dict[str, Any]]:
    """Check an address family of a BGP summary, and return the family without unreadable neighbours. `item`
    is the name and the JSON object of the family. Raises UnreadableEntry if the format is unknown."""
    name, about = item
    if not isinstance(about, dict) or not isinstance(about.get("peers", {}), dict):
        raise UnreadableEntry("an address family is no object with neighbours")
    if "peers" not in about:
        return item
    peers = _NEIGHBOUR_READER.read(about["peers"].items(), _parse_neighbour, name=itemgetter(0), place=name)
    return name, {**about, "peers": dict(peers)}


def _parse_neighbour(item: tuple[str, Any]) -> tuple[str, Any]:
    """Check and return a neighbour of a BGP summary. `item` is the address and the JSON object of the
    neighbour. Raises UnreadableEntry if the format is unknown."""
    if not isinstance(item[1], dict) or not isinstance(item[1].get("state", ""), str):
        raise UnreadableEntry("a neighbour is no object with a state")
    return item


def find_foreign_bgp(folders: FrrFolders, former: str) -> tuple[str, ...]:
    """Return the lines of the BGP instances in frr.conf that do not belong to the gateway, without secrets.
    Return an empty tuple if there are no such lines or no frr.conf. `former` is the configuration that the
    gateway wrote last. Raises OSError if frr.conf cannot be read."""
    try:
        text = (folders.configuration / _FILE_NAME).read_text(errors="replace")
    except FileNotFoundError:
        return ()
    return _find_foreign_lines(text, former)


def mark_own_bgp(folders: FrrFolders) -> tuple[Path, bool]:
    """Mark the BGP instance as the gateway's, in frr.conf and in a running FRR. Return the path of a backup
    of frr.conf, and True if the running FRR has accepted the mark. Raises OSError if frr.conf or the backup
    cannot be read or written."""
    file = folders.configuration / _FILE_NAME
    copy, number = file.with_name(f"{_FILE_NAME}.before-gateway"), 1
    while copy.exists():
        copy, number = file.with_name(f"{_FILE_NAME}.before-gateway.{number}"), number + 1
    shutil.copy2(file, copy)
    # In place: the file is FRR's, which writes to it.
    with file.open("a") as output:
        output.write(f"\n{MARK}\n")
    try:
        command = [*folders.vtysh, "-c", "configure terminal", "-c", MARK]
        return copy, run(command, seconds=_MARK_SECONDS, max_bytes=_MAX_OUTPUT_BYTES).status == 0
    except ProgramFailed:
        return copy, False


def _find_last_line(printed: bytes) -> str:
    """Return the last line that is neither empty nor a hint, cut to 200 printable characters. Return an empty
    text if there is no such line."""
    lines = [line for line in printed.decode("ascii", "replace").splitlines() if line.strip()]
    # vtysh ends with a hint for every user but root.
    lines = [line for line in lines if not line.startswith("Hint:")]
    return _make_printable(lines[-1]) if lines else ""


def _make_printable(line: str) -> str:
    return re.sub(r"[^ -~]+", "?", line.strip())[:200]


def _find_dead_daemon(sockets: Path) -> str | None:
    """Return the name of a crashed FRR daemon, or None if no daemon has crashed. After a crash, a save would
    lose the lines of the crashed daemon, because FRR saves the replies of its daemons. A daemon that was
    stopped normally has no PID file, and does not count as crashed."""
    for path in sorted(sockets.glob("*.vty")):
        if not path.with_suffix(".pid").exists():
            continue
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_CONNECT_SECONDS)
            try:
                client.connect(str(path))
            except ConnectionRefusedError:
                return path.stem
            except OSError as error:
                # A daemon that is busy, or gone in order: a refusal alone says that nobody listens.
                _log.debug(
                    "cannot connect to the FRR daemon at %s, assuming that the daemon is running: %s",
                    path,
                    error,
                )
    return None


@contextmanager
def _write_draft(folders: FrrFolders, text: str) -> Iterator[Path]:
    """Write a text to a draft of frr.conf, in a temporary folder with the settings that FRR has for vtysh.
    Raises FrrUnavailable if the draft cannot be written."""
    with ExitStack() as stack:
        try:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="frr-")))
            (folder / _SETTINGS_NAME).symlink_to(folders.configuration.absolute() / _SETTINGS_NAME)
            draft = folder / _FILE_NAME
            draft.write_bytes(text.encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise FrrUnavailable(_APPLY_STEP, f"cannot write its draft: {error.strerror}") from error
        yield draft


def _parse_commands(printed: str) -> Iterator[str]:
    """Return the commands in a section of frr-reload.py's output. The first line of a command is its
    outermost context, and each further line begins with a space."""
    # The first line underlines the section's name. FRR 10 leaves a context by a line of its own.
    lines = [line for line in printed.strip("\n").splitlines()[1:] if line.strip() != "exit"]
    commands = re.split(r"\n(?! )", "\n".join(lines))
    return (each for each in commands if each and not _VTYSH_SETTING_PATTERN.fullmatch(each))


def _make_error(ended: ProgramResult, text: str) -> FrrRefused | FrrUnavailable:
    """Return the error for a failed run of vtysh or frr-reload.py. `text` is the configuration that the
    program read."""
    printed = (ended.errors + b"\n" + ended.output).decode("ascii", "replace")
    if match := _BAD_SYNTAX_PATTERN.search(printed):
        number, lines = int(match[1]), text.splitlines()
        line = _make_printable(lines[number - 1]) if 0 < number <= len(lines) else ""
        return FrrRefused(match[2].strip(), line, number)
    if match := _BAD_VALUE_PATTERN.search(printed):
        complaint = _COMPLAINT_PATTERN.search(printed)
        return _make_refusal(complaint[1] if complaint else "it gives no reason", match[1], text)
    if match := _FATAL_PATTERN.search(printed):
        return FrrRefused(_make_printable(match[1]))
    if match := _EXITING_PATTERN.search(printed):
        error_class = FrrAbsent if match[1].startswith(_NO_DAEMON_TEXT) else FrrUnavailable
        return error_class(_APPLY_STEP, _make_printable(match[1]))
    return FrrUnavailable(
        _APPLY_STEP, _find_last_line(ended.errors) or f"frr-reload.py ended with {ended.status}"
    )


def _make_refusal(reason: str, line: str, text: str) -> FrrRefused:
    line, lines = line.strip(), [each.strip() for each in text.splitlines()]
    number = lines.index(line) + 1 if line in lines else None
    return FrrRefused(_make_printable(reason), _make_printable(line), number)


@dataclass(frozen=True)
class _Block:
    """Block of an FRR configuration: a line without indentation, the indented lines below this line, and the
    comments that follow."""

    lines: tuple[str, ...]

    @property
    def key(self) -> str:
        return self.lines[0].strip()

    @property
    def members(self) -> tuple[str, ...]:
        """Indented commands of the block, without comments and `exit` lines."""
        found = (line.strip() for line in self.lines[1:])
        return tuple(
            line for line in found if line[:1] not in ("", "!") and not _EXIT_PATTERN.fullmatch(line)
        )


@dataclass(frozen=True)
class GatewayPart:
    """Gateway's part of an FRR configuration. `text` is the new part, and `former` is the part that `text`
    replaces."""

    text: str
    former: str = ""

    def merge(self, running: str) -> str:
        """Return the new part, followed by the lines of a running configuration that do not belong to the
        gateway."""
        return "".join(f"{line}\n" for line in (*self.text.splitlines(), *self._keep_lines(running)))

    def find_foreign_lines(self, running: str) -> tuple[str, ...]:
        """Return the lines of the operator's BGP instances that the new part would replace, without
        secrets."""
        return _find_foreign_lines(running, self.former) if _find_bgp_instances(self.text) else ()

    def is_own(self, command: str) -> bool:
        """Return True if a command changes only the gateway's part. The first line of the command is its
        outermost context."""
        key = command.splitlines()[0].strip().removeprefix("no ")
        if _BGP_PATTERN.fullmatch(key):
            return bool(_find_bgp_instances(self.text) or _find_bgp_instances(self.former))
        known = (block.key for text in (self.text, self.former) for block in _split_blocks(text))
        is_known = key in known and bool(_OLD_NAME_PATTERN.match(key) or key.startswith(_VRF_PREFIX))
        return is_known or bool(_OWN_LINE_PATTERN.match(key))

    def _keep_lines(self, running: str) -> Iterator[str]:
        replaces_bgp = bool(_find_bgp_instances(self.text)) or (
            bool(_find_bgp_instances(self.former)) and not _find_foreign_lines(running, self.former)
        )
        drops_mark = replaces_bgp or _is_marked(self.former)
        former = [*_split_blocks(self.former)]
        removed_keys = {block.key for block in former if _OLD_NAME_PATTERN.match(block.key)} | {_END_LINE}
        vrfs = [block for block in (*former, *_split_blocks(self.text)) if block.key.startswith(_VRF_PREFIX)]
        for block in _split_blocks(running):
            if block.key.startswith(f"{_MARK_NAME} "):
                is_gone = drops_mark
            elif _BGP_PATTERN.fullmatch(block.key):
                is_gone = replaces_bgp
            else:
                is_gone = block.key in removed_keys or bool(_OWN_LINE_PATTERN.match(block.key))
            # Somebody else may have lines in the VRF too.
            own_lines = {line for vrf in vrfs if vrf.key == block.key for line in vrf.members} & {
                *block.members
            }
            if not is_gone and (not own_lines or own_lines < {*block.members}):
                yield from (line for line in block.lines if line.strip() not in own_lines)


def _is_marked(text: str) -> bool:
    """Return True if a configuration marks its BGP instance as the gateway's."""
    return any(line.startswith(f"{_MARK_NAME} ") for line in text.splitlines())


def _find_foreign_lines(text: str, former: str) -> tuple[str, ...]:
    """Return the lines of the BGP instances in `text` that do not belong to the gateway, without secrets.
    Return an empty tuple if there are no such lines. `former` is the configuration that the gateway wrote
    last. The lines in `former` belong to the gateway even without a mark, because an older version wrote no
    mark."""
    if _is_marked(text):
        return ()
    known_lines = {line.strip() for line in former.splitlines()}
    foreign_members = {
        block.key: [f" {line}" for line in block.members if line not in known_lines]
        for block in _find_bgp_instances(text)
    }
    lines = (
        line
        for key, lost in foreign_members.items()
        if lost or key not in known_lines
        for line in (key, *lost)
    )
    return tuple(map(hide_secret, lines))


def hide_secret(line: str) -> str:
    """Return a configuration line with `...` in place of the secret in the line."""
    return _SECRET_PATTERN.sub(r"\1 ...", line)


def summarize_lines(lines: Sequence[str]) -> str:
    """Return the first _MAX_SHOWN_LINES lines, and the number of further lines, as text for use in a
    sentence."""
    return join_names([line.strip() for line in lines], _MAX_SHOWN_LINES, "; ")


def _find_bgp_instances(text: str) -> list[_Block]:
    return [block for block in _split_blocks(text) if _BGP_PATTERN.fullmatch(block.key)]


def _split_blocks(text: str) -> Iterator[_Block]:
    lines: list[str] = []
    for line in text.splitlines():
        # FRR has comments between the parts of a context too.
        if lines and line[:1] not in ("", " ", "!") and not _EXIT_PATTERN.fullmatch(line.strip()):
            yield _Block(tuple(lines))
            lines = []
        lines.append(line)
    if lines:
        yield _Block(tuple(lines))
