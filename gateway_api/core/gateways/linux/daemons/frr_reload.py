"""A new frr.conf, applied to the running FRR by difference, with frr-reload.py of Debian's frr-pythontools.
Read in its versions 8.4.4 and 10.3.

Its status is not the whole truth: it is 0 if the daemon of a line does not run, and after a refused line it
applies those that follow. So the difference is computed again afterwards. Unless it is empty, FRR gets back
what ran before.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from gateway_api.base import durable
from gateway_api.base.errors import GatewayApiError
from gateway_api.core.gateways.linux.daemons.frr import (
    FrrFolders,
    RoutingAbsent,
    RoutingUnavailable,
    last_line,
    printable,
    vtysh,
)
from gateway_api.core.gateways.linux.daemons.frr_ownership import REMEDY, foreign, is_marked, shown
from gateway_api.core.gateways.linux.daemons.time_limit import CommitLimits
from gateway_api.core.gateways.linux.program import EndedProgram, ProgramFailed, ProgramMissing, run

_MOST = 16 * 2**20
_READ, _STEP = "read the running configuration of FRR", "apply frr.conf to FRR"
_FILE, _SETTINGS = "frr.conf", "vtysh.conf"
#: As FRR makes it: passwords of neighbours may be in it.
_MODE = 0o640
_SAVE, _SAVED = "save the configuration of FRR", b"[OK]"

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


_log = logging.getLogger(__name__)


class RoutingRefused(GatewayApiError):
    """FRR refuses a configuration, and runs as before."""

    def __init__(self, reason: str, line: str = "", number: int | None = None) -> None:
        self.reason = reason
        #: The line of FRR's configuration, without the spaces at its beginning. Empty if FRR names none.
        self.line = line
        #: Its number in the new frr.conf, from 1.
        self.number = number
        place = f"line {number} of {_FILE}" if number else _FILE
        super().__init__(f"FRR refuses {place}{f' ({line})' if line else ''}: {reason}")


class RoutingForeign(GatewayApiError):
    """FRR has a configuration that is not the gateway's."""

    def __init__(self, lines: Sequence[str]) -> None:
        #: Those that FRR would lose, without their secrets.
        self.lines = lines
        super().__init__(
            f"FRR has a configuration that is not the gateway's, and would lose: {shown(lines)}. {REMEDY}"
        )


class RoutingHalfChanged(GatewayApiError):
    """FRR took a part of a configuration, and could not be brought back to what ran before. frr.conf is as
    before."""


@dataclass(frozen=True)
class FrrDifference:
    """What separates the running FRR from a configuration: commands, one or more lines each."""

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

    def refuse_foreign(self, text: str, former: str | None) -> None:
        """Raises RoutingForeign if `apply` would delete what somebody else has configured. `former` is the
        text of the last `apply`: older versions wrote no mark. Raises RoutingRefused, RoutingUnavailable."""
        lines = foreign(_lost(self.difference(text), text))
        if not lines or is_marked(self._running()):
            return
        if former is None or foreign(_lost(self.difference(former), former)):
            raise RoutingForeign(lines)

    def difference(self, text: str) -> FrrDifference:
        """What `apply` would change. Raises RoutingRefused, RoutingUnavailable."""
        with self._draft(text) as draft:
            return self._difference(draft, text)

    def apply(self, text: str) -> FrrDifference:
        """Makes FRR run a configuration, and returns what changed. Then frr.conf has the text, or FRR's form
        of it, for FRR's next start. After an error all is as before, unless it is RoutingHalfChanged. Raises
        RoutingRefused, RoutingUnavailable."""
        with self._draft(text) as draft:
            changes = self._difference(draft, text)
            before = self._running() if changes else ""
            try:
                self._reach(draft, text, changes)
                self._write(text)
            except (RoutingRefused, RoutingUnavailable) as error:
                if before:
                    self._restore(before, error)
                raise
        return changes

    def _restore(self, before: str, cause: GatewayApiError) -> None:
        way_back = FrrConfiguration(self._folders, replace(self._limits, apply=self._limits.put_back))
        try:
            with way_back._draft(before) as draft:
                way_back._reach(draft, before, way_back._difference(draft, before))
        except (RoutingRefused, RoutingUnavailable) as error:
            raise RoutingHalfChanged(f"{cause}. FRR is not as before: {error}") from error

    def _reach(self, draft: Path, text: str, left: FrrDifference) -> None:
        """Runs frr-reload.py until nothing is left of the difference, or a run changes nothing. Raises the
        refusal then, though the run before may have applied a part."""
        refusal = None
        for _ in range(_RUNS if left else 0):
            try:
                self._reload(_RELOAD, draft, text)
            except RoutingRefused as error:
                refusal = error
            before, left = left, self._difference(draft, text)
            if left in (before, FrrDifference()):
                break
        if left:
            raise refusal or _not_taken(left, text)

    def _running(self) -> str:
        """The running configuration, as FRR reads it."""
        command = [*vtysh(self._folders), "-c", "show running-config no-header"]
        ended = self._run(_READ, command)
        if ended.status:
            # The output is no reason: it may have passwords.
            reason = last_line(ended.errors) or f"vtysh ended with status {ended.status}"
            raise RoutingUnavailable(_READ, reason)
        # A description has any bytes.
        return ended.output.decode("utf-8", "surrogateescape")

    def _difference(self, draft: Path, text: str) -> FrrDifference:
        printed = self._reload(_TEST, draft, text).decode(errors="replace")
        head, _, added = printed.partition("\nLines To Add\n")
        _, _, removed = head.partition("\nLines To Delete\n")
        return FrrDifference(tuple(_commands(removed)), tuple(_commands(added)))

    def _reload(self, mode: str, draft: Path, text: str) -> bytes:
        """The output of frr-reload.py."""
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
            return run(command, seconds=self._limits.apply.left(), most=_MOST)
        except ProgramMissing as error:
            raise RoutingAbsent(step, str(error)) from error
        except ProgramFailed as error:
            raise RoutingUnavailable(step, str(error)) from error

    @contextmanager
    def _draft(self, text: str) -> Iterator[Path]:
        """A file with the text, in a folder of its own with FRR's settings of vtysh."""
        with ExitStack() as stack:
            try:
                folder = Path(stack.enter_context(TemporaryDirectory(prefix="frr-")))
                (folder / _SETTINGS).symlink_to(self._folders.configuration.absolute() / _SETTINGS)
                draft = folder / _FILE
                draft.write_bytes(text.encode("utf-8", "surrogateescape"))
            except OSError as error:
                raise RoutingUnavailable(_STEP, f"cannot write its draft: {error.strerror}") from error
            yield draft

    def _write(self, text: str) -> None:
        path = self._folders.configuration / _FILE
        try:
            durable.replace(path, text.encode("utf-8", "surrogateescape"), mode=_MODE)
        except durable.NotSynced as error:
            # The file is there. A power cut may bring back the former one.
            _log.warning("cannot sync %s: %s", path, error.strerror)
        except PermissionError:
            self._save()
        except OSError as error:
            raise RoutingUnavailable(_STEP, f"cannot write it: {error.strerror}") from error

    def _save(self) -> None:
        """Has watchfrr write the file, which is root: for a member of the group frrvty. Right after a change,
        what runs is what was to be written."""
        ended = self._run(_SAVE, [*vtysh(self._folders), "-c", "write memory"])
        if ended.status or _SAVED not in ended.output:
            raise RoutingUnavailable(_SAVE, last_line(ended.errors) or "FRR gives no reason")


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


def _lost(difference: FrrDifference, text: str) -> Iterator[str]:
    """The lines of the running FRR that a configuration lacks, each after the lines of its contexts."""
    kept = set(map(str.strip, text.splitlines()))
    for command in (*difference.removed, *difference.added):
        *contexts, last = map(str.strip, command.splitlines())
        is_removal = last.startswith("no ")
        # Static routes are removed among what is added.
        if command in difference.removed or (is_removal and last not in kept):
            yield ": ".join([*contexts, last.removeprefix("no ") if is_removal else f"no {last}"])


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
    """An addition first: it tells more than what it replaces."""
    command = (left.added or left.removed)[0].splitlines()[-1]
    reason = "it has no effect, or the daemon that it is for does not run"
    return _refused(reason, command, [line.strip() for line in text.splitlines()])


def _refused(reason: str, line: str, lines: list[str]) -> RoutingRefused:
    line = line.strip()
    return RoutingRefused(
        printable(reason), printable(line), lines.index(line) + 1 if line in lines else None
    )
