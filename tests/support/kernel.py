"""A virtual machine with Debian's kernel, over this machine's files.

That kernel has PPP and traffic shaping, which the kernel of a container may lack. It is Debian's package
user-mode-linux: a kernel as a process, so that the machine has the speed of the processor. It writes to
memory, has no network, and ends with its script.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_MODULES = Path("/usr/lib/uml/modules")

#: {here} is a folder of this machine's files, which the kernel has as its root, read only.
_INIT = """\
#!{busybox} sh
busybox={busybox}
here={here}
$busybox mount -t proc proc /proc
$busybox mount -t sysfs sys /sys
echo $here/modprobe > /proc/sys/kernel/modprobe
$busybox mount -t tmpfs -o mode=0755 memory $here/memory
$busybox mkdir $here/memory/upper $here/memory/work $here/memory/root
root=$here/memory/root
layers=lowerdir=/,upperdir=$here/memory/upper,workdir=$here/memory/work
$busybox insmod {modules}/*/kernel/fs/overlayfs/overlay.ko
$busybox mount -t overlay -o "$layers" overlay $root
$busybox mkdir -p $root/mnt/shared $root/usr/lib/modules
$busybox mount -t hostfs -o $here hostfs $root/mnt/shared
$busybox mount -t hostfs -o {modules} hostfs $root/usr/lib/modules
for folder in proc sys dev; do $busybox mount --move "/$folder" "$root/$folder"; done
$busybox mkdir -p $root/dev/pts $root/dev/shm
$busybox mount -t devpts devpts $root/dev/pts
# Not on /tmp: this machine may have the repository there.
for folder in dev/shm run; do $busybox mount -t tmpfs memory "$root/$folder"; done
$busybox ip link set lo up
$busybox chroot $root /bin/bash /mnt/shared/script > $root/mnt/shared/output 2>&1
echo $? > $root/mnt/shared/status
$busybox sync
$busybox poweroff -f
"""

#: The kernel runs it for a device or qdisc whose module it lacks, with this machine's files as its root.
_MODPROBE = """\
#!{busybox} sh
exec {busybox} chroot {here}/memory/root /sbin/modprobe "$@"
"""


def run_in_machine(script: str, folder: Path, timeout: float = 600) -> str:
    """The output of a script of bash, which must succeed, as root of the machine. It finds the files of
    `folder`, which it may change, in /mnt/shared."""
    (folder / "script").write_text(script)
    (folder / "memory").mkdir()
    busybox = shutil.which("busybox")
    for name, text in (("init", _INIT), ("modprobe", _MODPROBE)):
        (folder / name).write_text(text.format(busybox=busybox, here=folder, modules=_MODULES))
        (folder / name).chmod(0o755)
    command = ["linux.uml", "mem=2048M", "rootfstype=hostfs", "rootflags=/", "ro", f"init={folder / 'init'}"]
    command += [f"uml_dir={folder}/uml", "con=null", "con0=fd:0,fd:1", "quiet", "panic=-1"]
    with (folder / "console").open("wb") as console:
        # Each of its processes is one of this machine, too.
        machine = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            machine.wait(timeout)
        finally:
            if machine.returncode is None:
                os.killpg(machine.pid, signal.SIGKILL)
                machine.wait()
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
