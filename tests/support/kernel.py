"""A virtual machine with Debian's kernel, over this machine's files.

That kernel has PPP and traffic shaping, which the kernel of a container may lack. The machine writes to
memory, has no network, and ends with its script. The variable EMULATOR chooses the emulator on any processor.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support import qemu, uml

#: Hundredths of a second that the measurement takes on a fast machine.
_FAST = 20
#: Before a script: new processes are what it will wait for most.
_MEASUREMENT = f"""\
read -r before _ < /proc/uptime
for ((i = 0; i < 300; i++)); do (:); done
read -r after _ < /proc/uptime
slowness=$(((10#${{after/.}} - 10#${{before/.}}) / {_FAST} + 1))
echo $slowness > /mnt/shared/slowness
export PATIENCE=$((60 + 72 * slowness))
"""
#: Of an emulator, until it is measured.
_EMULATED = 5
#: A line of the kernel's log.
_CRASH = re.compile(
    r"(?:traps: )?([^][ ]+)\[[0-9]+\]:? (segfault|trap [a-z ]*opcode|general protection fault)"
)


class MachineCrashed(Exception):
    """The emulator itself ended by a signal."""


def run_in_machine(
    script: str, folder: Path, timeout: float = 600, *, needs_packet_filter: bool = False
) -> str:
    """The output of a script of bash, which must succeed, as root of the machine. It finds the files of
    `folder`, which it may change, in /mnt/shared; and in PATIENCE the seconds that it may wait for
    something. The timeout, in seconds, is for a fast machine. An emulator that crashes gets another try.

    With `needs_packet_filter` the machine is emulated: user-mode-linux lacks nftables for both families."""
    (folder / "script").write_text(_MEASUREMENT + script)
    has_amx = "amx_tile" in Path("/proc/cpuinfo").read_text()
    if needs_packet_filter or has_amx or os.environ.get("EMULATOR"):
        # Ten times slower, on any processor.
        command, slowness = qemu.machine(folder), _EMULATED
    else:
        command, slowness = uml.machine(folder), 1
    before = set(folder.iterdir())
    try:
        _boot(command, folder, timeout, slowness)
    except MachineCrashed as crash:
        warnings.warn(f"{crash}: again", stacklevel=2)
        for path in set(folder.iterdir()) - before:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        _boot(command, folder, timeout, slowness)
    output = _text(folder / "output")
    said = f"{_crashes(folder)}{output}\n{_text(folder / 'console')}"
    assert (folder / "status").exists(), f"the machine ended before the script did: {said}"
    assert (folder / "status").read_text().strip() == "0", said
    return output


def _boot(command: Sequence[str], folder: Path, timeout: float, slowness: int) -> None:
    """Raises MachineCrashed and TimeoutError."""
    began = time.monotonic()
    with (folder / "console").open("wb") as console:
        # user-mode-linux has a process for each of its own.
        machine = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while machine.poll() is None:
                measured = _text(folder / "slowness").strip()
                if time.monotonic() - began > timeout * max(slowness, int(measured or 0)):
                    raise TimeoutError(f"{command[0]} ran too long: {_text(folder / 'console')}")
                with suppress(subprocess.TimeoutExpired):
                    machine.wait(1)
        finally:
            if machine.returncode is None:
                os.killpg(machine.pid, signal.SIGKILL)
                machine.wait()
    if machine.returncode < 0:
        name = signal.Signals(-machine.returncode).name
        raise MachineCrashed(f"the emulator {command[0]} crashed ({name}), which is no fault of the gateway")


def _crashes(folder: Path) -> str:
    """A line about the programs that crashed in the machine, or nothing. An emulator may make them crash."""
    crashes = _CRASH.finditer(_text(folder / "kernel.log"))
    found = dict.fromkeys(f"{crash[1]} ({crash[2]})" for crash in crashes)
    if not found:
        return ""
    return f"In the machine, programs crashed: {', '.join(found)}. What failed may be their fault alone.\n"


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def seen_by(folder: Path, script: str) -> dict[str, Any]:
    """What a script of `inside` saw, by case: it ran with its output in SCRIPT.json of the folder, and its
    errors in SCRIPT.errors."""
    output, crashes = (folder / f"{script}.json").read_text(), _crashes(folder)
    assert output, crashes + (folder / f"{script}.errors").read_text()
    seen: dict[str, Any] = json.loads(output)
    if crashes:
        warnings.warn(crashes, stacklevel=2)
    return seen


def of_case(seen: Mapping[str, Any], name: str) -> Any:
    """What one case saw, which must have come to its end."""
    case = seen[name]
    assert "error" not in case, "".join(case["error"])
    return case
