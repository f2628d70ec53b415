"""Debian's user-mode-linux: a kernel as a process, with the speed of the processor.

Version 6.1 does not run on a processor with AMX.
"""

import shutil
from pathlib import Path

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
$busybox dmesg > $root/mnt/shared/kernel.log
$busybox sync
$busybox poweroff -f
"""

#: The kernel runs it for a device or qdisc whose module it lacks, with this machine's files as its root.
_MODPROBE = """\
#!{busybox} sh
exec {busybox} chroot {here}/memory/root /sbin/modprobe "$@"
"""


def machine(folder: Path) -> list[str]:
    """The command of a machine, which runs `folder`/script, and leaves its output in `output`, its status in
    `status`, and the messages of its kernel in `kernel.log`. Its own output is the console."""
    (folder / "memory").mkdir()
    busybox = shutil.which("busybox")
    for name, text in (("init", _INIT), ("modprobe", _MODPROBE)):
        (folder / name).write_text(text.format(busybox=busybox, here=folder, modules=_MODULES))
        (folder / name).chmod(0o755)
    command = ["linux.uml", "mem=2048M", "rootfstype=hostfs", "rootflags=/", "ro", f"init={folder / 'init'}"]
    command += [f"uml_dir={folder}/uml", "con=null", "con0=fd:0,fd:1", "quiet", "panic=-1"]
    return command
