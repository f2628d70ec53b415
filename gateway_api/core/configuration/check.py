"""Whether the services would take what was rendered for them, as far as this machine can tell.

FRR's own parser is asked where it is installed; what has no parser that can be asked is looked at line by
line.
"""

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

from gateway_api.core.configuration.render import ACCEL_PPP, CHAP_SECRETS, FRR, QOS
from gateway_api.core.configuration.steps import StepFailed, disk_step

_STEP = "check the services' files"
_VTYSH_TIMEOUT = 5

_SHAPES = {
    ACCEL_PPP: re.compile(r"|#.*|\[[a-z-]+\]|[a-z0-9_./-]+|[a-z0-9-]+=[!-~]([ -~]*[!-~])?", re.ASCII),
    CHAP_SECRETS: re.compile(r"#.*|\S+ \* \S+ (\*|[0-9.]+)", re.ASCII),
    QOS: re.compile(r"#.*|[a-z_]+=[0-9]+", re.ASCII),
}


def check(services: Path) -> None:
    """Looks at all files in a folder. Raises StepFailed."""
    with disk_step(_STEP):
        paths = sorted(services.iterdir())
    for path in paths:
        with disk_step(_STEP):
            # Whatever the bytes are, each is one character, and none is taken for another's line end.
            text = path.read_bytes().decode("latin-1")
        if not re.fullmatch(r"([ -~]*\n)+", text):
            raise _failed(f"{path.name} is not lines of printable ASCII")
        _check_lines(path.name, text[:-1].split("\n"))
        if path.name == FRR:
            _ask_vtysh(path)


def _check_lines(name: str, lines: list[str]) -> None:
    shape = _SHAPES.get(name)
    for number, line in enumerate(lines, 1):
        if shape is not None and not shape.fullmatch(line):
            raise _failed(f"{name}, line {number} is not of its form")
    repeated = [line for line, times in Counter(lines).items() if line.startswith("[") and times > 1]
    if repeated:
        raise _failed(f"{name} has {repeated[0]} twice")


def _ask_vtysh(path: Path) -> None:
    vtysh = shutil.which("vtysh")
    if vtysh is None:
        return
    try:
        asked = subprocess.run(
            [vtysh, "--dryrun", "--inputfile", str(path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VTYSH_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _failed("vtysh gave no answer") from error
    if asked.returncode:
        found = re.search(r"line \d+: [ -~]{1,200}", asked.stdout + asked.stderr)
        raise _failed(f"FRR refuses {path.name}: {found.group() if found else 'no reason given'}")


def _failed(reason: str) -> StepFailed:
    return StepFailed(_STEP, reason)
