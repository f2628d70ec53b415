"""A virtual machine with Debian's kernel, over this machine's files.

That kernel has PPP and traffic shaping, which the kernel of a container may lack. The machine writes to
memory, has no network, and ends with its script. The variable EMULATOR chooses the emulator on any processor.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support import qemu, uml


def run_in_machine(script: str, folder: Path, timeout: float = 600) -> str:
    """The output of a script of bash, which must succeed, as root of the machine. It finds the files of
    `folder`, which it may change, in /mnt/shared."""
    (folder / "script").write_text(script)
    if os.environ.get("EMULATOR") or "amx_tile" in Path("/proc/cpuinfo").read_text():
        # Ten times slower, on any processor.
        qemu.boot(folder, timeout * 5)
    else:
        uml.boot(folder, timeout)
    output = (folder / "output").read_text(errors="replace") if (folder / "output").exists() else ""
    said = f"{output}\n{(folder / 'console').read_text(errors='replace')}"
    assert (folder / "status").exists(), f"the machine ended before the script did: {said}"
    assert (folder / "status").read_text().strip() == "0", said
    return output


def seen_by(folder: Path, script: str) -> dict[str, Any]:
    """What a script of `inside` saw, by case: it ran with its output in SCRIPT.json of the folder, and its
    errors in SCRIPT.errors."""
    output = (folder / f"{script}.json").read_text()
    assert output, (folder / f"{script}.errors").read_text()
    seen: dict[str, Any] = json.loads(output)
    return seen


def of_case(seen: Mapping[str, Any], name: str) -> Any:
    """What one case saw, which must have come to its end."""
    case = seen[name]
    assert "error" not in case, "".join(case["error"])
    return case
