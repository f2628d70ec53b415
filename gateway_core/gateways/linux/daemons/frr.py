"""The text of FRR's configuration: its blocks, and which of them are the gateway's.

The gateway has the default BGP instance, what is named `gateway-*`, static routes with its tag, and what its
last configuration had: a route of the VRF, and names of an older version. All other lines are somebody
else's, and stay, letter by letter: they are read to the bounds of their blocks, and no further.

A BGP instance is the gateway's if `MARK` is beside it: FRR keeps that line, and drops comments.

FRR, at a commit: it gets only what differs, without a restart. Read in FRR 8.4.4 of Debian 12 and 10.3 of
Debian 13, with frr-reload.py of their frr-pythontools.

The status of frr-reload.py is not the whole truth: it is 0 if the daemon of a line does not run, and after a
refused line it applies those that follow. So the difference is computed again afterwards. Unless it is empty,
FRR gets back what ran before.

A commit replaces the gateway's part of what FRR runs, and nothing else: frr-reload.py gets the running
configuration with the new part in it. FRR then saves what it runs. An operator's own BGP instance is replaced
only after the operator has said so.

No value of a request or of a configuration is on a command line of vtysh: it would read its syntax in it.
"""

import logging
import re
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from ipaddress import IPv4Network, IPv6Network
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self

import msgspec

from gateway_contract.base.errors import GatewayApiError, StepFailed
from gateway_contract.base.texts import join_names
from gateway_contract.configuration import Configuration
from gateway_contract.core.impact import ServiceAction
from gateway_core.configuration.workspace import Rendered
from gateway_core.gateways.linux.daemons.daemon import (
    DaemonAction,
    DaemonHost,
    Lack,
    PlacedFiles,
    PutBack,
    ServiceDaemon,
    check_failed,
    check_lines,
    filled,
    template,
    undo,
)
from gateway_core.gateways.linux.entries import EntryReader, UnreadableEntry
from gateway_core.gateways.linux.program import CommitLimits, EndedProgram, ProgramFailed, ProgramMissing, run

_MARK_NAME = "access-list gateway-core"
#: A line without effect. An older version had another remark.
MARK = f"{_MARK_NAME} remark The gateway replaces router bgp and what is named gateway-"

#: The tag of a static route that is the gateway's: FRR gives routes no name.
TAG = 4_200_140_140
_NAMED = re.compile(
    r"(access-list|ip prefix-list|ipv6 prefix-list|route-map) gateway-"
    rf"|(ip|ipv6) route \S+ reject tag {TAG} "
)
#: Not an instance of a VRF or a view.
_BGP = re.compile(r"router bgp \d+")
#: What an older version rendered with other names. All else in its file is FRR's own, such as `hostname`.
_RENDERED = re.compile(r"(ip prefix-list|ipv6 prefix-list|route-map) \S")
_VRF = "vrf "
#: What ends a context, and what ends the whole.
_EXIT, _END = re.compile(r"exit(-[a-z-]+)?"), "end"

#: What follows in a line is a secret.
_SECRET = re.compile(r"\b(password|secret|md5|authentication-key|key-string|authentication string)\b .+")
#: Lines in a message.
_SHOWN = 5


@dataclass(frozen=True)
class _Block:
    """A line at the left margin, with the lines of its context and the comments that follow."""

    lines: tuple[str, ...]

    @property
    def key(self) -> str:
        return self.lines[0].strip()

    @property
    def members(self) -> tuple[str, ...]:
        """The commands in its context."""
        found = (line.strip() for line in self.lines[1:])
        return tuple(line for line in found if line[:1] not in ("", "!") and not _EXIT.fullmatch(line))


@dataclass(frozen=True)
class OwnText:
    """The gateway's part of a configuration of FRR: `text`, in place of `former`."""

    text: str
    former: str = ""

    def merged(self, running: str) -> str:
        """Return the text, and then the lines of a running configuration that are not the gateway's."""
        return "".join(f"{line}\n" for line in (*self.text.splitlines(), *self._kept(running)))

    def foreign(self, running: str) -> tuple[str, ...]:
        """Return the lines of a BGP instance of somebody else that the text would replace, without
        secrets."""
        return foreign_instance(running, self.former) if _instances(self.text) else ()

    def is_own(self, command: str) -> bool:
        """Return whether a command, after its contexts on lines of their own, is for what is the
        gateway's."""
        key = command.splitlines()[0].strip().removeprefix("no ")
        if _BGP.fullmatch(key):
            return bool(_instances(self.text) or _instances(self.former))
        known = (block.key for text in (self.text, self.former) for block in _blocks(text))
        return bool(_NAMED.match(key)) or (key in known and bool(_RENDERED.match(key) or _is_vrf(key)))

    def _kept(self, running: str) -> Iterator[str]:
        replaces_bgp = bool(_instances(self.text)) or (
            bool(_instances(self.former)) and not foreign_instance(running, self.former)
        )
        drops_mark = replaces_bgp or is_marked(self.former)
        former = [*_blocks(self.former)]
        gone = {block.key for block in former if _RENDERED.match(block.key)} | {_END}
        for block in _blocks(running):
            if block.key.startswith(f"{_MARK_NAME} "):
                is_gone = drops_mark
            elif _BGP.fullmatch(block.key):
                is_gone = replaces_bgp
            else:
                is_gone = block.key in gone or bool(_NAMED.match(block.key))
            # Somebody else may have lines in the VRF too.
            own = _of_vrf(block.key, [*former, *_blocks(self.text)]).intersection(block.members)
            if not is_gone and (not own or own < {*block.members}):
                yield from (line for line in block.lines if line.strip() not in own)


def is_marked(text: str) -> bool:
    """Return whether a BGP instance is the gateway's."""
    return any(line.startswith(f"{_MARK_NAME} ") for line in text.splitlines())


def foreign_instance(text: str, former: str) -> tuple[str, ...]:
    """Return the lines of a BGP instance that is not the gateway's, without secrets; none without one.
    `former` is what the gateway wrote last: an older version wrote no mark."""
    if is_marked(text):
        return ()
    known = {line.strip() for line in former.splitlines()}
    found = {
        block.key: [f" {line}" for line in block.members if line not in known] for block in _instances(text)
    }
    lines = (line for key, lost in found.items() if lost or key not in known for line in (key, *lost))
    return tuple(map(without_secrets, lines))


def without_secrets(line: str) -> str:
    return _SECRET.sub(r"\1 ...", line)


def shown(lines: Sequence[str]) -> str:
    """Return the first of them, for a sentence."""
    return join_names([line.strip() for line in lines], _SHOWN, "; ")


def _is_vrf(key: str) -> bool:
    return key.startswith(_VRF)


def _of_vrf(key: str, blocks: Sequence[_Block]) -> set[str]:
    if not _is_vrf(key):
        return set()
    return {member for block in blocks if block.key == key for member in block.members}


def _instances(text: str) -> list[_Block]:
    return [block for block in _blocks(text) if _BGP.fullmatch(block.key)]


def _blocks(text: str) -> Iterator[_Block]:
    lines: list[str] = []
    for line in text.splitlines():
        # FRR has comments between the parts of a context too.
        if lines and line[:1] not in ("", " ", "!") and not _EXIT.fullmatch(line.strip()):
            yield _Block(tuple(lines))
            lines = []
        lines.append(line)
    if lines:
        yield _Block(tuple(lines))


#: What gives BGP to the gateway, for a message.
REMEDY = "`gateway-core setup --frr replace`, as root, gives BGP to the gateway"

_FILE, _SETTINGS = "frr.conf", "vtysh.conf"
_TEMPLATE = template(_FILE)

#: Bytes of FRR's output: a configuration, a summary with about 1,000 for each neighbour, and anything else.
_MOST_CONFIGURATION, _MOST_SUMMARY, _MOST = 16 * 2**20, 2**22, 1 << 16
#: Seconds for a check of the file, to mark the running configuration, and to reach a daemon.
_CHECK_SECONDS, _MARK_SECONDS, _CONNECT_SECONDS = 5.0, 10.0, 1.0

_STEP, _READ, _SAVE = (
    "apply frr.conf to FRR",
    "read the running configuration of FRR",
    "save the configuration of FRR",
)
_SUMMARY, _DAEMON, _COMMAND = "read the BGP summary of FRR", "bgpd", "show bgp summary json"
_SAVED = b"[OK]"

#: Runs until the difference is empty. One may leave something, and the next complain while it removes that:
#: after `router bgp`, FRR reads the line `vrf cgnat` as `vrf-policy cgnat`, which brings `vnc defaults` too.
_RUNS = 3
#: vtysh's own settings, which it has from vtysh.conf and from the system.
_OF_VTYSH = re.compile(r"(no )?(hostname|service integrated-vtysh-config|username)\b.*")
_TEST, _RELOAD = "--test", "--reload"
#: vtysh names a line of the file, or the text of a line that a daemon refuses after it.
_BAD_SYNTAX = re.compile(r"line (\d{1,9}): % ([A-Za-z ]+)")
_BAD_VALUE = re.compile(r"Failure to communicate\[\d+\] to [a-z0-9]+, line: *([ -~]+)")
_COMPLAINT = re.compile(r"^% *([ -~]+)", re.MULTILINE)
_EXITING = re.compile(r"^Exiting: *([ -~]+)", re.MULTILINE)
_NO_DAEMON = "failed to connect to any daemons"
_FATAL = re.compile(r"(?:ERROR|WARNING)\S*: *([ -~]+)")
#: A refusal of a check. Its status is 0 if the first line of a context fails: of the `exit`s that follow, one
#: leaves the configuration, and the next one vtysh.
_REFUSED = re.compile(r"line \d+: [ -~]{1,200}")

_BFD = re.compile(r"^ neighbor \S+ bfd$", re.MULTILINE)
_BFD_REMEDY = "set bfdd=yes in /etc/frr/daemons, and restart FRR"
_BGPD = re.compile(r"^\s*bgpd=[\"']?(\w*)", re.MULTILINE)

_FAMILIES = EntryReader(
    "frr", "family", "the address families in FRR's BGP summary", "its neighbours count as not established"
)
_NEIGHBOURS = EntryReader(
    "frr", "neighbor", "the neighbours in FRR's BGP summary", "such a one counts as not established"
)

_log = logging.getLogger(__name__)


class RoutingUnavailable(StepFailed):
    """FRR, or the daemon of it that was asked, does not run or gave no usable reply. The reason is FRR's own
    line if there is one; it has no secret."""


class RoutingUnreadable(RoutingUnavailable):
    """A reply of FRR has none of the things that it tells of."""


class RoutingAbsent(RoutingUnavailable):
    """FRR is not installed, or none of its daemons runs."""


class RoutingRefused(GatewayApiError):
    """FRR refuses a configuration, and runs as before."""

    def __init__(self, reason: str, line: str = "", number: int | None = None) -> None:
        self.reason = reason = without_secrets(reason)
        #: The line of FRR's configuration, without the spaces at its beginning and without a secret. Empty if
        #: FRR names none.
        self.line = line = without_secrets(line)
        #: Its number in the new frr.conf, from 1.
        self.number = number
        place = f"line {number} of {_FILE}" if number else _FILE
        super().__init__(f"FRR refuses {place}{f' ({line})' if line else ''}: {reason}")


class RoutingForeign(GatewayApiError):
    """FRR has a BGP instance that is not the gateway's."""

    def __init__(self, lines: Sequence[str]) -> None:
        #: Those that FRR would lose, without their secrets.
        self.lines = lines
        super().__init__(
            f"FRR has a BGP instance that is not the gateway's, and would lose: {shown(lines)}. {REMEDY}"
        )


class RoutingHalfChanged(GatewayApiError):
    """FRR took a part of a configuration, and could not be brought back to what ran before. frr.conf is as
    before."""


@dataclass(frozen=True)
class FrrFolders:
    """Where an FRR is: `programs` has vtysh, `tools` has frr-reload.py, `configuration` has frr.conf and
    vtysh.conf, `sockets` those of the daemons."""

    programs: Path = Path("/usr/bin")
    tools: Path = Path("/usr/lib/frr")
    configuration: Path = Path("/etc/frr")
    sockets: Path = Path("/run/frr")


class FrrByDifference(ServiceDaemon):
    """FRR, which gets only what differs. Without BGP in the configuration, the gateway does without FRR."""

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
    def on(cls, host: DaemonHost) -> Self:
        return cls(host.files, FrrFolders())

    @classmethod
    def lacks(cls, root: Path) -> Iterator[Lack]:
        daemons = root / "etc/frr/daemons"
        # The file comes with FRR. A shell reads it: the last value counts.
        if daemons.exists() and _BGPD.findall(daemons.read_text(errors="replace"))[-1:] != ["yes"]:
            edit = r"sed -i '/^\s*bgpd=/d' /etc/frr/daemons && echo bgpd=yes >> /etc/frr/daemons"
            yield Lack("setting in /etc/frr/daemons: bgpd=yes", f"{edit} && systemctl restart frr")

    def __init__(self, files: PlacedFiles, folders: FrrFolders) -> None:
        self._files = files
        self._folders = folders
        self._applied: str | None = None
        #: The lines of a BGP instance that is not the gateway's, which keep FRR from running by its part.
        self.foreign: Sequence[str] = ()

    def render(self, configuration: Configuration) -> Rendered:
        families = [*_families(configuration)]
        return {_FILE: filled(_TEMPLATE, configuration, mark=MARK, tag=TAG, families=families)}

    def verify(self, rendered: Rendered) -> None:
        """FRR's own parser checks the file where it is installed."""
        check_lines(_FILE, rendered[_FILE])
        program = self._folders.programs / "vtysh"
        if not program.exists():
            return
        try:
            with _draft(self._folders, rendered[_FILE]) as draft:
                command = [str(program), "--dryrun", "--inputfile", str(draft)]
                ended = run(command, seconds=_CHECK_SECONDS, most=_MOST)
        except RoutingUnavailable as error:
            raise check_failed(error.reason) from error
        except ProgramFailed as error:
            raise check_failed("vtysh did not reply") from error
        found = _REFUSED.search((ended.output + ended.errors).decode("ascii", "replace"))
        if ended.status or found:
            reason = without_secrets(found.group()) if found else "no reason given"
            raise check_failed(f"FRR refuses {_FILE}: {reason}")

    def apply(self, rendered: Rendered, configuration: Configuration, limits: CommitLimits) -> PutBack:
        text = rendered[_FILE]
        if text == self._applied:
            return lambda: None
        before = self._files.read(_FILE)
        try:
            self._run_by(text, limits, before)
        except StepFailed as error:
            is_needed = configuration.bgp is not None
            if is_needed or not isinstance(error.__cause__, RoutingAbsent):
                raise
            _log.warning("the gateway runs without FRR: %s", error)
            # What `action` compares the next configuration with.
            return self._files.place(_FILE, text)
        back = replace(limits, apply=limits.put_back)
        return lambda: self._run_by(before, back, text)

    def action(self, rendered: Rendered, configuration: Configuration) -> DaemonAction:
        return ServiceAction.RELOAD if rendered[_FILE] != self._files.read(_FILE) else None

    def _run_by(self, text: str | None, limits: CommitLimits, before: str | None) -> None:
        self._applied, self.foreign = None, ()
        # First: a full disk must not be found when FRR has changed.
        place_back = self._files.place(_FILE, text)
        try:
            FrrConfiguration(self._folders, limits).apply(text or "", before or "")
        except (RoutingForeign, RoutingRefused, RoutingHalfChanged, RoutingUnavailable) as error:
            undo([place_back])
            if isinstance(error, RoutingForeign):
                self.foreign = error.lines
            reason = error.reason.rstrip(".") if isinstance(error, RoutingUnavailable) else str(error)
            raise StepFailed(_STEP, reason) from error
        self._applied = text


@dataclass(frozen=True)
class FrrDifference:
    """The difference between the running FRR and a configuration: commands, one or more lines each."""

    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.removed or self.added)


class FrrConfiguration:
    """The configuration of a running FRR, for one commit. A refusal needs ten runs of frr-reload.py at most.
    One thread at a time."""

    def __init__(self, folders: FrrFolders, limits: CommitLimits) -> None:
        self._folders = folders
        self._limits = limits

    def difference(self, text: str, former: str = "") -> FrrDifference:
        """Return the changes that `apply` would make. Raises as it does."""
        wanted = OwnText(text, former).merged(self._running())
        with _draft(self._folders, wanted) as draft:
            return self._difference(draft, text)

    def apply(self, text: str, former: str = "") -> FrrDifference:
        """Make FRR run the gateway's part of a configuration in place of a former one, and return what
        changed. Then FRR has saved what it runs. After an error all is as before, unless it is
        RoutingHalfChanged. Raises RoutingForeign, RoutingRefused, RoutingUnavailable."""
        own, before = OwnText(text, former), self._running()
        if lines := own.foreign(before):
            raise RoutingForeign(lines)
        # bgpd takes the line all the same, and the neighbour is not watched.
        if (watched := _BFD.search(text)) and not (self._folders.sockets / "bfdd.vty").exists():
            raise RoutingRefused(f"bfdd does not run: {_BFD_REMEDY}", watched.group().strip())
        with _draft(self._folders, own.merged(before)) as draft:
            changes = self._difference(draft, text)
            if strange := [each for each in (*changes.removed, *changes.added) if not own.is_own(each)]:
                line = without_secrets(printable(strange[0]))
                raise RoutingUnavailable(_STEP, f"frr-reload.py would change {line} too")
            dead = _dead_daemon(self._folders.sockets)
            if dead and changes:
                raise RoutingUnavailable(_STEP, f"{dead} does not run, and FRR would forget its lines")
            try:
                self._reach(draft, text, changes)
                if not dead:
                    self._save()
            except (RoutingRefused, RoutingUnavailable) as error:
                if changes:
                    self._restore(before, error)
                raise
        return changes

    def _restore(self, before: str, cause: GatewayApiError) -> None:
        way_back = FrrConfiguration(self._folders, replace(self._limits, apply=self._limits.put_back))
        try:
            with _draft(self._folders, before) as draft:
                way_back._reach(draft, before, way_back._difference(draft, before))
        except (RoutingRefused, RoutingUnavailable) as error:
            raise RoutingHalfChanged(f"{cause}. FRR is not as before: {error}") from error

    def _reach(self, draft: Path, text: str, left: FrrDifference) -> None:
        """Run frr-reload.py until nothing is left of the difference, or a run changes nothing. Raises the
        refusal then, though the run before may have applied a part."""
        refusal = None
        for _ in range(_RUNS if left else 0):
            try:
                self._remove_secrets(draft, left)
                self._reload(_RELOAD, draft, text)
            except RoutingRefused as error:
                refusal = error
            before, left = left, self._difference(draft, text)
            if left in (before, FrrDifference()):
                break
        if left:
            raise refusal or _not_taken(left, text)

    def _remove_secrets(self, draft: Path, left: FrrDifference) -> None:
        """frr-reload.py has each line that it removes on a command line, which every user of the machine may
        read. Those with a secret go before, from a file."""
        lines = [f"{command}\n" for command in left.removed if without_secrets(command) != command]
        if not lines:
            return
        file = draft.with_name("secrets.conf")
        try:
            file.write_bytes("".join(lines).encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise RoutingUnavailable(_STEP, f"cannot write its draft: {error.strerror}") from error
        ended = self._run(_STEP, [*vtysh(self._folders), "-f", str(file)])
        if ended.status:
            raise _refusal(ended, "".join(lines))

    def _running(self) -> str:
        """Return the running configuration, as FRR reads it."""
        command = [*vtysh(self._folders), "-c", "show running-config no-header"]
        ended = self._run(_READ, command)
        if ended.status:
            # The output is no reason: it may have passwords.
            reason = last_line(ended.errors) or f"vtysh ended with status {ended.status}"
            kind = RoutingAbsent if _NO_DAEMON in reason else RoutingUnavailable
            raise kind(_READ, reason)
        # A description has any bytes.
        return ended.output.decode("utf-8", "surrogateescape")

    def _difference(self, draft: Path, text: str) -> FrrDifference:
        printed = self._reload(_TEST, draft, text).decode(errors="replace")
        head, _, added = printed.partition("\nLines To Add\n")
        _, _, removed = head.partition("\nLines To Delete\n")
        return FrrDifference(tuple(_commands(removed)), tuple(_commands(added)))

    def _reload(self, mode: str, draft: Path, text: str) -> bytes:
        """Return the output of frr-reload.py."""
        folders = self._folders
        command = [str(folders.tools / "frr-reload.py"), mode, "--stdout"]
        command += ["--bindir", str(folders.programs), "--vty_socket", str(folders.sockets)]
        # Unless it is in `confdir`, letter by letter, FRR overwrites that folder's frr.conf with what runs.
        command += ["--confdir", str(draft.parent), "--rundir", str(draft.parent), str(draft)]
        ended = self._run(_STEP, command)
        if ended.status:
            raise _refusal(ended, text)
        return ended.output

    def _run(self, step: str, command: list[str]) -> EndedProgram:
        try:
            return run(command, seconds=self._limits.apply.left(), most=_MOST_CONFIGURATION)
        except ProgramMissing as error:
            raise RoutingAbsent(step, str(error)) from error
        except ProgramFailed as error:
            raise RoutingUnavailable(step, str(error)) from error

    def _save(self) -> None:
        """Has FRR write its file by what runs: the core may not, and FRR may have a file for each daemon."""
        ended = self._run(_SAVE, [*vtysh(self._folders), "-c", "write memory"])
        if ended.status or _SAVED not in ended.output:
            raise RoutingUnavailable(_SAVE, last_line(ended.errors) or "FRR gives no reason")


@dataclass(frozen=True)
class _AddressFamily:
    """A family of BGP. `word` begins FRR's commands; `networks` has those of subscribers; the others are
    entries of prefix lists."""

    name: str
    word: str
    #: FRR drops a context that is empty.
    has_lines: bool
    networks: Sequence[IPv4Network | IPv6Network]
    #: Of these, those that packets without a session must not leave again: neighbours send them back.
    unreachable: Sequence[IPv4Network | IPv6Network]
    announced: Sequence[str]
    accepted: Sequence[str]


def _families(configuration: Configuration) -> Iterator[_AddressFamily]:
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
            own = [f"deny {address}/32" for address in (*gateways, bgp.router_id)]
            announced = [*(own if version == 4 else []), *map(_hosts, networks)]
        else:
            announced = [f"permit {network}" for network in networks]
        # A neighbour must not have the subscribers' addresses.
        accepted = [f"deny {_within(network)}" for network in networks]
        accepted += [
            f"permit {_within(network) if network.prefixlen else network}"
            for network in bgp.accept
            if network.version == version
        ]
        # A list without an entry would let all through.
        has_neighbors = any(name in neighbor.used_families for neighbor in bgp.neighbors)
        has_lines = bool(networks) or bgp.announce == "hosts" or has_neighbors
        lists = [*announced, "deny any"], [*accepted, "deny any"]
        # The core has a route for the source ranges.
        others = [network for network in networks if network not in cgnat.source_ranges]
        unreachable = others if bgp.announce == "aggregates" else []
        yield _AddressFamily(name, word, has_lines, networks, unreachable, *lists)


def _hosts(network: IPv4Network | IPv6Network) -> str:
    """Return the routes of sessions: addresses, and for IPv6 prefixes too."""
    has_hosts = network.version == 4 and network.prefixlen < network.max_prefixlen
    return f"permit {network} ge 32" if has_hosts else f"permit {_within(network)}"


def _within(network: IPv4Network | IPv6Network) -> str:
    longest = network.max_prefixlen
    return f"{network} le {longest}" if network.prefixlen < longest else str(network)


class Frr:
    """FRR's bgpd, which may be down or hang. `seconds` is the limit of a method. Any thread may call."""

    def __init__(self, folders: FrrFolders, seconds: float) -> None:
        self._folders = folders
        self._seconds = seconds

    def bgp_summary(self) -> dict[str, Any]:
        """Return the JSON object of `show bgp summary json`, which is empty if FRR has no BGP. Address
        families and neighbours that cannot be read are left out. Raises RoutingUnavailable, also if bgpd does
        not run, and RoutingUnreadable if nothing is left."""
        # Only to bgpd: another daemon that hangs must not block it.
        command = [*vtysh(self._folders), "-d", _DAEMON, "-c", _COMMAND]
        try:
            ended = run(command, seconds=self._seconds, most=_MOST_SUMMARY)
        except ProgramFailed as error:
            raise RoutingUnavailable(_SUMMARY, str(error)) from error
        if ended.status:
            said = last_line(ended.output + b"\n" + ended.errors)
            reason = said or f"vtysh ended with status {ended.status}"
            raise RoutingUnavailable(_SUMMARY, f"{_DAEMON}: {reason}")
        try:
            # A neighbour chooses its host name, and FRR prints its bytes as they came.
            printed = msgspec.json.decode(ended.output.decode(errors="replace"), type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError) as error:
            reason = f"its reply is not as expected: {printable(str(error))}"
            raise RoutingUnavailable(_SUMMARY, reason) from error
        families = dict(_FAMILIES.read(printed.items(), _family, name=itemgetter(0)))
        if printed and not families:
            raise RoutingUnreadable(_SUMMARY, "its reply has no address family that can be read")
        return families


def _family(item: tuple[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return an address family of a summary. Raises UnreadableEntry."""
    name, about = item
    if not isinstance(about, dict) or not isinstance(about.get("peers", {}), dict):
        raise UnreadableEntry("an address family is no object with neighbours")
    if "peers" not in about:
        return item
    peers = dict(_NEIGHBOURS.read(about["peers"].items(), _neighbour, name=itemgetter(0), place=name))
    return name, {**about, "peers": peers}


def _neighbour(item: tuple[str, Any]) -> tuple[str, Any]:
    """Return a neighbour of a summary. Raises UnreadableEntry."""
    if not isinstance(item[1], dict) or not isinstance(item[1].get("state", ""), str):
        raise UnreadableEntry("a neighbour is no object with a state")
    return item


def foreign_lines(folders: FrrFolders, former: str) -> tuple[str, ...]:
    """Return the lines of a BGP instance in frr.conf that is not the gateway's; none without the file.
    `former` is what the gateway wrote last. Raises OSError."""
    try:
        text = (folders.configuration / _FILE).read_text(errors="replace")
    except FileNotFoundError:
        return ()
    return foreign_instance(text, former)


def take_over(folders: FrrFolders) -> tuple[Path, bool]:
    """Mark the BGP instance as the gateway's: in frr.conf, and in FRR if it runs. Return a copy of the file
    as it was, and whether FRR has the mark. Raises OSError."""
    file = folders.configuration / _FILE
    copy, number = file.with_name(f"{_FILE}.before-gateway"), 1
    while copy.exists():
        copy, number = file.with_name(f"{_FILE}.before-gateway.{number}"), number + 1
    shutil.copy2(file, copy)
    # In place: the file is FRR's, which writes to it.
    with file.open("a") as appended:
        appended.write(f"\n{MARK}\n")
    try:
        command = [*vtysh(folders), "-c", "configure terminal", "-c", MARK]
        return copy, run(command, seconds=_MARK_SECONDS, most=_MOST).status == 0
    except ProgramFailed:
        return copy, False


def vtysh(folders: FrrFolders) -> list[str]:
    """Return the beginning of a command."""
    program = str(folders.programs / "vtysh")
    return [program, "--config_dir", str(folders.configuration), "--vty_socket", str(folders.sockets)]


def last_line(printed: bytes) -> str:
    """Return the last line with text, shortened and printable."""
    lines = [line for line in printed.decode("ascii", "replace").splitlines() if line.strip()]
    # vtysh ends with one for every user but root.
    lines = [line for line in lines if not line.startswith("Hint:")]
    return printable(lines[-1]) if lines else ""


def printable(line: str) -> str:
    return re.sub(r"[^ -~]+", "?", line.strip())[:200]


def _dead_daemon(sockets: Path) -> str | None:
    """Return a daemon that crashed. FRR saves what its daemons say, and loses the lines of one that is
    silent; one that was stopped in order has no file with its process id."""
    for path in sorted(sockets.glob("*.vty")):
        if not path.with_suffix(".pid").exists():
            continue
        with socket.socket(socket.AF_UNIX) as asked:
            asked.settimeout(_CONNECT_SECONDS)
            try:
                asked.connect(str(path))
            except ConnectionRefusedError:
                return path.stem
            except OSError as error:
                # One that is busy, or gone in order: a refusal alone says that nobody listens.
                _log.debug("cannot connect to %s: %s", path, error)
    return None


@contextmanager
def _draft(folders: FrrFolders, text: str) -> Iterator[Path]:
    """A file with the text, in a folder of its own with FRR's settings of vtysh. Raises
    RoutingUnavailable."""
    with ExitStack() as stack:
        try:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="frr-")))
            (folder / _SETTINGS).symlink_to(folders.configuration.absolute() / _SETTINGS)
            draft = folder / _FILE
            draft.write_bytes(text.encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise RoutingUnavailable(_STEP, f"cannot write its draft: {error.strerror}") from error
        yield draft


def _commands(printed: str) -> Iterator[str]:
    """The commands of a section. The lines of one in a context have a space before all but the first."""
    # The first line underlines the section's name. FRR 10 leaves a context by a line of its own.
    lines = printed.strip("\n").splitlines()[1:]
    found: list[list[str]] = []
    for line in (line for line in lines if line.strip() != "exit"):
        if line.startswith(" ") and found:
            found[-1].append(line)
        else:
            found.append([line])
    return (command for command in map("\n".join, found) if not _OF_VTYSH.fullmatch(command))


def _refusal(ended: EndedProgram, text: str) -> RoutingRefused | RoutingUnavailable:
    printed = (ended.errors + b"\n" + ended.output).decode("ascii", "replace")
    lines = [line.strip() for line in text.splitlines()]
    if found := _BAD_SYNTAX.search(printed):
        number = int(found[1])
        line = printable(lines[number - 1]) if 0 < number <= len(lines) else ""
        return RoutingRefused(found[2].strip(), line, number)
    if found := _BAD_VALUE.search(printed):
        complaint = _COMPLAINT.search(printed)
        return _refused(complaint[1] if complaint else "it gives no reason", found[1], lines)
    if found := _FATAL.search(printed):
        return RoutingRefused(printable(found[1]))
    if found := _EXITING.search(printed):
        kind = RoutingAbsent if found[1].startswith(_NO_DAEMON) else RoutingUnavailable
        return kind(_STEP, printable(found[1]))
    return RoutingUnavailable(_STEP, last_line(ended.errors) or f"frr-reload.py ended with {ended.status}")


def _not_taken(left: FrrDifference, text: str) -> RoutingRefused:
    """Return an addition first: it tells more than what it replaces."""
    command = (left.added or left.removed)[0].splitlines()[-1]
    reason = "it has no effect, or the daemon that it is for does not run"
    return _refused(reason, command, [line.strip() for line in text.splitlines()])


def _refused(reason: str, line: str, lines: list[str]) -> RoutingRefused:
    line = line.strip()
    return RoutingRefused(
        printable(reason), printable(line), lines.index(line) + 1 if line in lines else None
    )
