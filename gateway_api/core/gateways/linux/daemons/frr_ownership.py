"""Whose configuration FRR has. A commit of the gateway replaces the whole of it, and an operator with routing
of its own must not lose it without a word.

It is the gateway's if it has the line `FRR_MARK`, or is that of a fresh installation.
"""

import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from gateway_api.core.configuration.services import FRR_MARK
from gateway_api.core.gateways.linux.daemons.frr import FrrFolders, vtysh
from gateway_api.core.gateways.linux.program import ProgramFailed, run

_FILE = "frr.conf"
#: Lines of a fresh installation, those that FRR writes by itself, and those that only end a context.
_OF_FRR = re.compile(
    r"|[!#].*|frr (version|defaults) .*|hostname .*|log syslog informational|service integrated-vtysh-config"
    r"|(no )?ip(v6)? forwarding|username root nopassword|exit|exit-[a-z-]+|end"
)
#: What follows in a line is a secret.
_SECRET = re.compile(r"\b(password|secret|md5|authentication-key|key-string|authentication string)\b .+")
_SECONDS, _MOST = 10.0, 1 << 16
#: Lines in a message.
_SHOWN = 5

#: What to do, for a message.
REMEDY = "`gateway-core setup --frr replace`, as root, gives FRR to the gateway"


def is_marked(text: str) -> bool:
    return FRR_MARK in map(str.strip, text.splitlines())


def foreign(lines: Iterable[str]) -> tuple[str, ...]:
    """The lines that somebody else has configured, without their secrets."""
    found = (line.rstrip() for line in lines if not _OF_FRR.fullmatch(line.strip()))
    return tuple(_SECRET.sub(r"\1 ...", line) for line in found)


def shown(lines: Sequence[str]) -> str:
    """The first of them, for a sentence."""
    more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return "; ".join(line.strip() for line in lines[:_SHOWN]) + more


def foreign_lines(folders: FrrFolders, own: str) -> tuple[str, ...]:
    """Those of frr.conf that the gateway would delete; none without the file. `own` is what the gateway wrote
    last: older versions wrote no mark. Raises OSError."""
    try:
        text = (folders.configuration / _FILE).read_text(errors="replace")
    except FileNotFoundError:
        return ()
    known = set(map(str.strip, own.splitlines()))
    lines = (line for line in text.splitlines() if line.strip() not in known)
    return () if is_marked(text) else foreign(lines)


def take_over(folders: FrrFolders) -> tuple[Path, bool]:
    """Marks frr.conf as the gateway's, and FRR if it runs. Returns a copy of the file as it was, and whether
    FRR has the mark. Raises OSError."""
    file = folders.configuration / _FILE
    copy, number = file.with_name(f"{_FILE}.before-gateway"), 1
    while copy.exists():
        copy, number = file.with_name(f"{_FILE}.before-gateway.{number}"), number + 1
    shutil.copy2(file, copy)
    # In place: the file is FRR's, which writes to it.
    with file.open("a") as appended:
        appended.write(f"\n{FRR_MARK}\n")
    try:
        command = [*vtysh(folders), "-c", "configure terminal", "-c", FRR_MARK]
        return copy, run(command, seconds=_SECONDS, most=_MOST).status == 0
    except ProgramFailed:
        return copy, False
